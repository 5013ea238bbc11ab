//! Bars as they come: `predict --follow` gives what `predict` gives for the whole series.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::Value;

use crate::stage::{SMALL, Stage, without_targets};

const CARRIED: &str = "--set training.carry_state=true --set data.purge=0s";
/// Each week is a segment, in which H4 is the last to have full windows.
const RECIPE: &str = "--timeframes M1:20,M5:6,H4:2 --features log_return_12,rsi_14,atr_14,relative_volume,day_sin,ema_20_distance \
                      --horizon 3 --longest-hole 3h";

/// A folder with the bars of three weeks, the series made of them, and a model trained on it.
fn trained(settings: &str) -> Stage {
    let stage = Stage::new();
    stage.succeeds("synth EURUSD.csv --days 19 --seed 3");
    stage.succeeds(&format!("ingest EURUSD.csv --out series.h5 {RECIPE}"));
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 3 {CARRIED} {SMALL} {settings}"));
    stage
}

/// Runs `megabatch LINE` with `input` as its standard input; its standard output.
fn piped(stage: &Stage, line: &str, input: &str) -> String {
    let assert = assert_cmd::Command::from_std(stage.command(line)).write_stdin(input).assert().success();
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

/// Values of CSV at each time, from the column after `time` on.
fn by_time(csv: &str) -> BTreeMap<String, String> {
    let place = csv.lines().next().unwrap().split(',').position(|name| name == "time").unwrap();
    let row = |line: &str| {
        let mut fields = line.splitn(place + 2, ',').skip(place).map(str::to_owned);
        (fields.next().unwrap(), fields.next().unwrap())
    };
    csv.lines().skip(1).map(row).collect()
}

/// Every prediction of the whole series after `after` is followed as `is_same` demands of the two
/// rows; what is followed besides are the last bars of segments, whose future is not known.
fn assert_followed_as(followed: &str, whole: &str, after: &str, is_same: fn(&str, &str) -> bool) -> usize {
    let (followed, mut whole) = (by_time(followed), by_time(&without_targets(whole)));
    whole.retain(|time, _| time.as_str() > after);
    for (time, expected) in &whole {
        let found = followed.get(time).unwrap_or_else(|| panic!("{time}: no prediction"));
        assert!(is_same(found, expected), "{time}: {found} and {expected}");
    }
    assert!(followed.len() - whole.len() <= 3 * 3 && followed.keys().all(|time| time.as_str() > after));
    whole.len()
}

/// [`assert_followed_as`], to the last digit, which tells every bit.
fn assert_followed(followed: &str, whole: &str, after: &str) -> usize {
    assert_followed_as(followed, whole, after, |found, expected| found == expected)
}

/// `bars`, the last of which is unfinished: all its prices are the open.
fn with_unfinished_last(bars: &str) -> String {
    let (before, last) = bars.trim_end().rsplit_once('\n').unwrap();
    let mut fields: Vec<&str> = last.split(',').collect();
    let open = fields[1];
    fields[2..5].fill(open);
    fields[5] = "1";
    format!("{before}\n{}\n", fields.join(","))
}

/// Follows the bars from the middle of a bin of H4 in the second week on; the predictions, which
/// are those of the whole series. The bars before are `first.csv`.
fn follow_the_second_half(stage: &Stage, is_same: fn(&str, &str) -> bool) -> String {
    stage.succeeds("predict --run run --out whole.csv");
    let (whole, bars) = (stage.text("whole.csv"), stage.text("EURUSD.csv"));
    let at = bars.find("2018-01-11 13:07").unwrap();
    stage.write("first.csv", &bars[..at]);
    let followed = piped(stage, "predict --run run --follow - --history first.csv", &bars[at..]);
    let count = assert_followed_as(&followed, &whole, "2018-01-11T13:07:00Z", is_same);
    assert!(count > 3000, "{count}");
    followed
}

#[test]
fn the_second_half_is_predicted_as_the_whole_series_is() {
    for settings in [
        "",
        "--set model.pooling=attention --set model.fusion=attention --set model.fusion_heads=2 --set model.layers=2",
        "--set model.pooling=attention --set training.precision=bf16",
        "--set model.cell=gru --set model.layers=2",
    ] {
        let stage = trained(settings);
        let followed = follow_the_second_half(&stage, |found, expected| found == expected);
        assert!(
            followed.contains("2018-01-12T12:00:00Z,") && followed.contains("2018-01-19T12:00:00Z,"),
            "both segments"
        );
        // A file that begins before the history ends: what the states have seen is passed over.
        let answer =
            stage.succeeds("predict --run run --follow EURUSD.csv --stop-at-end --history first.csv --out again.csv");
        assert_eq!(stage.text("again.csv"), followed);
        assert_eq!(
            (&answer["passed_over"], &answer["history_bars"]),
            (&answer["history_bars"], &answer["passed_over"])
        );
        // The states of all the bars that the series was made of, and nothing that follows them.
        assert_eq!(
            stage.succeeds("predict --run run --follow EURUSD.csv --stop-at-end --out none.csv")["predictions"],
            0
        );
        // Predictions of before stay where nothing new came.
        stage.succeeds("predict --run run --follow EURUSD.csv --stop-at-end --out again.csv");
        assert_eq!(stage.text("again.csv"), followed);
    }
}

/// The night's work: bars are appended, training goes on from the run of before, and the new run is
/// followed from the last bar.
#[test]
fn an_appended_series_is_trained_on_and_followed_from_its_last_bar() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let [first, second] = ["2018-01-11 13:07", "2018-01-16 05:00"].map(|time| bars.find(time).unwrap());
    for (name, part) in [("old", &bars[..first]), ("day", &bars[first..second]), ("live", &bars[second..])] {
        stage.write(&format!("EURUSD-{name}.csv"), part);
    }
    stage.succeeds(&format!("ingest EURUSD-old.csv --out nightly.h5 {RECIPE}"));
    stage.succeeds(&format!("train --data nightly.h5 --out before --max-steps 2 {CARRIED} {SMALL}"));
    let [message, _] = stage.fails("ingest --append EURUSD-day.csv --out nightly.h5 --horizon 36", 2);
    assert!(message.contains("--horizon: nightly.h5 was made with --horizon=3"), "{message}");
    let answer = stage.succeeds("ingest --append EURUSD-day.csv --out nightly.h5 --horizon 3");
    let rows = bars[first..second].lines().count();
    assert_eq!(answer["appended"]["bars"]["EURUSD"], rows);
    assert_eq!(answer["appended"]["files_read_again"], 1);
    stage.succeeds("leak nightly.h5 --samples 4 --set data.split=[1,0,0]");

    let settings = format!("--max-steps 2 {CARRIED} {SMALL}");
    stage.succeeds("export --run before --format safetensors --out before.safetensors");
    stage.succeeds(&format!("train --data nightly.h5 --init before.safetensors --out run-on {settings}"));
    let followed = stage.succeeds("predict --run run-on --follow EURUSD-live.csv --stop-at-end --out live.csv");
    // The first line is a header.
    assert_eq!(followed["history_bars"], bars[..second].lines().count() - 1);
    // A run of before follows it too.
    stage.succeeds("predict --run before --data nightly.h5 --follow EURUSD-live.csv --stop-at-end --out before.csv");
    stage.succeeds("ingest --append EURUSD-live.csv --out nightly.h5");
    for (run, live) in [("run-on", "live.csv"), ("before", "before.csv")] {
        stage.succeeds(&format!("predict --run {run} --data nightly.h5 --force --out whole.csv"));
        let count = assert_followed(&stage.text(live), &stage.text("whole.csv"), "2018-01-16T05:00:00Z");
        assert!(count > 1000, "{count}");
    }
}

#[test]
fn it_begins_with_nothing_where_that_is_wanted_and_writes_json() {
    let stage = trained("--set training.loss=quantile --set training.quantile=[0.1,0.5,0.9]");
    stage.succeeds("predict --run run --out whole.csv");
    let bars = stage.text("EURUSD.csv");
    let csv = piped(&stage, "predict --run run --follow - --cold", &bars);
    assert!(csv.starts_with("time,h1,h2,h3,h1_q0.1,h2_q0.1,h3_q0.1,h1_q0.5,"), "{}", csv.lines().next().unwrap());
    assert!(assert_followed(&csv, &stage.text("whole.csv"), "") > 5000);
    let json = piped(&stage, "predict --run run --follow - --cold --json", &bars);
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let (time, row) = by_time(&csv).into_iter().next().unwrap();
    let row: Vec<f64> = row.split(',').map(|field| field.parse().unwrap()).collect();
    assert_eq!(first["time"], time.as_str());
    assert_eq!(serde_json::json!(row[..3]), first["predictions"]);
    assert_eq!(serde_json::json!(row[9..]), first["q0.9"]);
    assert_eq!(json.lines().count() + 1, csv.lines().count());
}

#[test]
fn each_of_several_instruments_is_followed_by_its_name() {
    let stage = Stage::new();
    for (seed, name) in ["EURUSD", "USDJPY"].into_iter().enumerate() {
        stage.succeeds(&format!("synth {name}.csv --days 12 --seed {seed}"));
    }
    stage.succeeds(&format!("ingest EURUSD.csv USDJPY.csv --out series.h5 {RECIPE} --stride 3"));
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 2 {CARRIED} {SMALL}"));
    stage.succeeds("predict --run run --out whole.csv");
    let whole = without_targets(&stage.text("whole.csv"));
    for symbol in ["EURUSD", "USDJPY"] {
        let followed = piped(
            &stage,
            &format!("predict --run run --follow - --cold --symbol {symbol}"),
            &stage.text(&format!("{symbol}.csv")),
        );
        let followed = by_time(&followed);
        let own = whole.lines().skip(1).filter(|line| line.contains(symbol)).collect::<Vec<_>>().join("\n");
        let own = by_time(&format!("sample,time,instrument\n{own}"));
        assert!(own.len() > 500 && own.iter().all(|(time, row)| followed.get(time) == Some(row)), "{symbol}");
    }
    // As MetaTrader names a file of one-minute bars.
    stage.write("USDJPY1.csv", &stage.text("USDJPY.csv"));
    let named = stage.succeeds("predict --run run --follow USDJPY1.csv --stop-at-end --cold --out named.csv");
    assert_eq!(named["symbol"], "USDJPY");
    let lower =
        stage.succeeds("predict --run run --follow EURUSD.csv --stop-at-end --cold --symbol eurusd --out lower.csv");
    assert_eq!(lower["symbol"], "EURUSD");
    let ending =
        stage.succeeds("predict --run run --follow EURUSD.csv --stop-at-end --cold --symbol EURUSD.r --out ending.csv");
    assert_eq!(ending["symbol"], "EURUSD");
    let [message, _] = stage.fails("predict --run run --follow whole.csv", 2);
    let advice = "`--symbol EURUSD` follows the bars of EURUSD; there are EURUSD, USDJPY";
    assert!(message.contains(&format!("series.h5: whose bars are followed? {advice}")), "{message}");
    // The option alone was told, which is no help.
    std::fs::create_dir(stage.path("live")).unwrap();
    stage.write("live/bars.csv", "");
    let [message, _] = stage.fails("predict --run run --follow live", 3);
    assert!(
        message.contains("live: is a folder, and one file is followed; the newest in it is live/bars.csv"),
        "{message}"
    );
    let [message, _] = stage.fails("predict --run run --follow EURUSD.csv --symbol GBPUSD", 2);
    assert!(message.starts_with("--symbol GBPUSD: ") && message.contains("series.h5 has EURUSD, USDJPY"), "{message}");
    let [message, _] = stage.fails("predict --run run --follow EURUSD.csv --symbol usd/jpy", 2);
    assert!(message.contains("series.h5 has EURUSD, USDJPY; did you mean USDJPY?"), "{message}");
}

#[test]
fn a_file_is_followed_while_it_grows() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let at = bars.find("2018-01-11 13:07").unwrap();
    stage.write("first.csv", &bars[..at]);
    stage.write("live.csv", "time,open,high,low,close,volume\n");
    let mut child = stage
        .command("predict --run run --follow live.csv --history first.csv")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut file = OpenOptions::new().append(true).open(stage.path("live.csv")).unwrap();
    for (place, bar) in bars[at..].lines().take(3).enumerate() {
        // A line counts once it is whole, and its prediction comes before the next bar does.
        let (begin, end) = bar.split_at(20);
        file.write_all(begin.as_bytes()).unwrap();
        writeln!(file, "{end}").unwrap();
        if place == 0 {
            assert_eq!(lines.next().unwrap(), "time,h1,h2,h3");
        }
        let [_, minute] = [&bar[..14], &bar[14..16]];
        let closes = format!("{:02}:00Z", minute.parse::<u32>().unwrap() + 1);
        assert!(lines.next().unwrap().split(',').next().unwrap().ends_with(&closes), "{bar}");
    }
    // What is no longer what was read is not read on.
    stage.write("live.csv", "");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn lines_that_cannot_be_used_are_told_by_their_number() {
    let stage = trained("");
    let input = "time,open,high,low,close,volume\n2018-03-01 00:00,1.2,1.3,1.1,1.2,5\nbroken\n2018-03-01 00:01,1.2,1.3,1.1,1.2,5\n";
    let run = |line: &str| assert_cmd::Command::from_std(stage.command(line)).write_stdin(input).assert();
    let stderr = |assert: assert_cmd::assert::Assert| String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    let stopped = stderr(run("predict --run run --follow -").code(3).stdout(""));
    let expected = "standard input: line 3: unreadable row: expected 5 fields or more, and there are 1, found `broken`";
    assert!(stopped.contains(expected), "{stopped}");
    let dropped = stderr(run("predict --run run --follow - --on-error skip").success());
    for part in [format!("{expected}; dropped").as_str(), "0 predictions for 2 bars", "; 1 row was dropped"] {
        assert!(dropped.contains(part), "{part}: {dropped}");
    }
    // It was called unreadable, with the advice to drop it.
    let cut = assert_cmd::Command::from_std(stage.command("predict --run run --follow -"))
        .write_stdin("2018-03-01 00:00,1.2,1.3,1.1,1.2,5\n2018-03-01 00:01,1.2,1.3")
        .assert();
    let cut = stderr(cut.code(3));
    assert!(cut.contains("line 2: unfinished last row: ") && cut.contains("wait until that line is whole"), "{cut}");
    let nothing = assert_cmd::Command::from_std(stage.command("predict --run run --follow -")).assert().success();
    nothing.stdout("time,h1,h2,h3\n");
    std::fs::remove_file(stage.path("EURUSD.csv")).unwrap();
    let lost = stderr(run("predict --run run --follow -").code(3));
    assert!(lost.contains("EURUSD.csv: cannot be opened") && lost.contains("--history"), "{lost}");
}

#[test]
fn input_that_is_no_bars_writes_the_message_alone() {
    let stage = trained("");
    for (input, name) in
        [("{\"Error Message\": \"Invalid API call\"}\n", "saved.json"), ("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "lines.txt")]
    {
        stage.write(name, input);
        // After the bars before, which have no lines to come.
        let older = "time,h1,h2,h3\n2018-02-09T00:00:00Z,1,2,3\n";
        stage.write("out.csv", older);
        for out in ["", "--out out.csv"] {
            let line = format!("predict --run run --follow {name} --stop-at-end {out}");
            let assert = assert_cmd::Command::from_std(stage.command(&line)).assert().code(3).stdout("");
            let message = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
            assert!(message.contains(&format!("{name}: no bars recognised")), "{message}");
        }
        assert_eq!(stage.text("out.csv"), older);
    }
    let folder = stage.run("predict --run run --follow run").code(3).stdout("");
    let message = String::from_utf8_lossy(&folder.get_output().stderr).into_owned();
    assert!(message.contains("megabatch: run: is a folder, and one file is followed"), "{message}");
    std::fs::write(stage.path("bars.csv.gz"), [0x1f, 0x8b, 8, 0]).unwrap();
    let packed = stage.run("predict --run run --follow bars.csv.gz").code(3).stdout("");
    let message = String::from_utf8_lossy(&packed.get_output().stderr).into_owned();
    assert!(
        message.contains("bars.csv.gz: is compressed with gzip") && message.contains("zcat bars.csv.gz |"),
        "{message}"
    );
}

/// A second start replaced the predictions of the first.
#[test]
fn predictions_that_the_file_has_are_continued() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let [first, second, third] =
        ["2018-01-11 13:07", "2018-01-11 13:40", "2018-01-11 14:10"].map(|time| bars.find(time).unwrap());
    stage.write("first.csv", &bars[..first]);
    for (out, header_lines) in [("out.csv", 1), ("out.jsonl", 0)] {
        let line = format!("predict --run run --follow live.csv --stop-at-end --history first.csv --out {out}");
        stage.write("live.csv", &bars[first..second]);
        stage.succeeds(&line);
        let before = stage.text(out);
        // The process was killed as it wrote.
        stage.write(out, &format!("{before}2018-01-1"));
        stage.write("live.csv", &bars[first..third]);
        let answer = stage.succeeds(&line);
        assert_eq!(answer["already_written"], before.lines().count() - header_lines);
        stage.succeeds(&line.replace(out, &format!("whole-{out}")));
        assert!(stage.text(out) == stage.text(&format!("whole-{out}")) && stage.text(out).len() > before.len());
        assert!(!stage.told(&line).contains("another prediction"));
        if let Some((earlier, last)) = stage.text(out).trim_end().rsplit_once('\n').filter(|_| header_lines == 1) {
            stage.write(out, &format!("{earlier}\n{},900,900,900\n", last.split(',').next().unwrap()));
            let told = stage.told(&line);
            assert!(told.contains("warning: the output had another prediction at 2018-01-11 "), "{told}");
            assert_eq!(stage.text(out), stage.text(&format!("whole-{out}")));
        }
        stage.write(out, "older\n");
        let [message, _] = stage.fails(&line, 2);
        assert!(message.contains(&format!("{out}: line 1 is no prediction")), "{message}");
        assert_eq!(stage.text(out), "older\n");
    }
}

// Two processes wrote one output, and lines went to a file that was deleted, without a word.
#[test]
fn an_output_has_one_writer_and_stays_in_its_place() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let at = bars.find("2018-01-11 13:07").unwrap();
    stage.write("first.csv", &bars[..at]);
    stage.write("live.csv", "time,open,high,low,close,volume\n");
    let line = "predict --run run --follow live.csv --history first.csv --out out.csv";
    let mut child = stage.command(line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.any(|line| line.contains("continues with")));
    let [message, _] = stage.fails(&format!("{line} --stop-at-end"), 2);
    assert!(message.contains("out.csv: another process is writing this file"), "{message}");
    std::fs::remove_file(stage.path("out.csv")).unwrap();
    let mut file = OpenOptions::new().append(true).open(stage.path("live.csv")).unwrap();
    writeln!(file, "{}", bars[at..].lines().next().unwrap()).unwrap();
    assert!(told.any(|line| line.contains("out.csv: was deleted or replaced")));
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// The prediction of a bar that was unfinished stayed in the file.
#[test]
fn the_prediction_of_a_bar_that_was_unfinished_is_replaced() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let [first, second, third] =
        ["2018-01-11 13:07", "2018-01-11 13:40", "2018-01-11 14:10"].map(|time| bars.find(time).unwrap());
    let before = with_unfinished_last(&bars[..second]);
    let last = before.trim_end().rfind('\n').unwrap() + 1;
    stage.write("first.csv", &bars[..first]);
    stage.write("unfinished.csv", &before);
    let follow = |live: &str, history: &str, out: &str| {
        stage.write("live.csv", live);
        stage.succeeds(&format!("predict --run run --follow live.csv --stop-at-end --history {history} --out {out}"));
    };
    follow(&bars[first..third], "first.csv", "whole.csv");
    // The file is written anew, or the bar has come to be the last of the history.
    for (live, history) in [(first, "first.csv"), (last, "unfinished.csv")] {
        follow(&before[first..], "first.csv", "out.csv");
        follow(&bars[live..third], history, "out.csv");
        assert!(stage.text("out.csv") == stage.text("whole.csv"), "{history}");
        std::fs::remove_file(stage.path("out.csv")).unwrap();
    }
    follow(&before[first..], "first.csv", "out.csv");
    let line = "predict --run run --follow - --history unfinished.csv --out out.csv";
    piped(&stage, line, &bars[last..third]);
    assert!(stage.text("out.csv") == stage.text("whole.csv"));
}

// A followed file was read by the clock of the data, whatever its header said.
#[test]
fn a_followed_file_is_read_by_the_clock_that_its_header_names() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let [first, second] = ["2018-01-11 13:07", "2018-01-11 13:40"].map(|time| bars.find(time).unwrap());
    let header = bars.lines().next().unwrap();
    stage.write("first.csv", &bars[..first]);
    stage.write("utc.csv", &format!("{header}\n{}", &bars[first..second]));
    let moved = bars[first..second].replace("2018-01-11 13:", "2018-01-11 15:");
    stage.write("moved.csv", &format!("{}\n{moved}", header.replace("time", "Time (UTC+2)")));
    let line = |live: &str| {
        format!("predict --run run --follow {live}.csv --stop-at-end --history first.csv --out {live}-out.csv")
    };
    stage.succeeds(&line("utc"));
    let told = stage.told(&line("moved"));
    assert!(told.contains("moved.csv: its times are ") && told.contains(", as the header says"), "{told}");
    assert_eq!(stage.text("moved-out.csv"), stage.text("utc-out.csv"));
    assert!(stage.text("utc-out.csv").contains("2018-01-11T13:08:00Z,"));
}

// Bars that had come into the history since had no line, and the line of one that was unfinished
// stayed.
#[test]
fn bars_that_the_history_has_since_have_their_lines() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let [first, second, third, fourth] =
        ["2018-01-11 13:07", "2018-01-11 13:40", "2018-01-11 13:55", "2018-01-11 14:10"]
            .map(|time| bars.find(time).unwrap());
    stage.write("first.csv", &bars[..first]);
    let line = |history: &str, out: &str| {
        format!("predict --run run --follow live.csv --stop-at-end --history {history} --out {out}")
    };
    let follow = |live: &str, history: &str, out: &str| {
        stage.write("live.csv", live);
        stage.told(&line(history, out))
    };
    follow(&bars[first..fourth], "first.csv", "whole.csv");
    let expected =
        "EURUSD: the output ended at 2018-01-11 13:40 UTC, and the bars before go on to 2018-01-11 13:55 UTC";
    for (seen, begins, goes_on) in [(third, third, true), (third, second, true), (second, second, false)] {
        stage.write("seen.csv", &bars[..seen]);
        follow(&with_unfinished_last(&bars[..second])[first..], "first.csv", "out.csv");
        let told = follow(&bars[begins..fourth], "seen.csv", "out.csv");
        assert_eq!(told.contains(expected), goes_on, "{told}");
        assert!(!told.contains("get no line"), "{told}");
        assert!(stage.text("out.csv") == stage.text("whole.csv"), "{seen} {begins}");
        std::fs::remove_file(stage.path("out.csv")).unwrap();
    }
    // The last bar of the history is unfinished, and the pipe has it as it was later.
    follow(&bars[first..second], "first.csv", "out.csv");
    let seen = with_unfinished_last(&bars[..third]);
    let last = seen.trim_end().rfind('\n').unwrap() + 1;
    stage.write("seen.csv", &seen);
    piped(&stage, "predict --run run --follow - --history seen.csv --out out.csv", &bars[last..fourth]);
    assert!(stage.text("out.csv") == stage.text("whole.csv"));
    std::fs::remove_file(stage.path("out.csv")).unwrap();
    // The lines are counted apart.
    follow(&bars[first..second], "first.csv", "out.csv");
    stage.write("seen.csv", &bars[..third]);
    stage.write("live.csv", &bars[third..fourth]);
    let answer = stage.succeeds(&line("seen.csv", "out.csv"));
    let counts = ["history_predictions", "predictions", "bars", "already_written"].map(|key| answer[key].as_u64());
    assert_eq!(counts, [15, 15, 15, 0].map(Some), "{answer}");
    // A history that begins after the output has ended.
    stage.write("out.csv", stage.text("out.csv").split_inclusive('\n').take(2).collect::<String>().as_str());
    let header = bars.lines().next().unwrap();
    stage.write("seen.csv", &format!("{header}\n{}", &bars[third..fourth]));
    let fifth = bars.find("2018-01-11 14:20").unwrap();
    let told = follow(&bars[fourth..fifth], "seen.csv", "out.csv");
    assert!(told.contains("go on to 2018-01-11 14:10 UTC: those between get no line; `predict` gives"), "{told}");
    // One whose windows are not full where the output has ended.
    let earlier = bars.find("2018-01-11 13:00").unwrap();
    stage.write("seen.csv", &format!("{header}\n{}", &bars[earlier..fourth]));
    let told = follow(&bars[fourth..fifth], "seen.csv", "out.csv");
    assert!(told.contains("warning: EURUSD: 62 bars between get no line, as the bars before do not fill"), "{told}");
}

// `predict --follow` of a run with training.carry_state=false, the default, was refused after the
// training.
#[test]
fn a_model_without_carried_states_computes_its_windows_anew() {
    for settings in ["", "--set model.pooling=attention --set model.layers=2"] {
        let stage = trained(&format!("--set training.carry_state=false {settings}"));
        // A window by itself adds in another order than windows that share their bars.
        follow_the_second_half(&stage, |found, expected| {
            let number = |text: &str| text.parse::<f64>().unwrap();
            let mut pairs = found.split(',').zip(expected.split(','));
            pairs.all(|(found, expected)| (number(found) - number(expected)).abs() <= 1e-5)
        });
    }
}

// `predict --follow` read 9,000 bars after a hole, wrote a header, and said nothing.
#[test]
fn a_hole_and_the_bars_that_are_needed_after_it_are_told() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let at = bars.find("2018-01-11 13:07").unwrap();
    let (first, second) = (&bars[..at], &bars[at..]);
    stage.write("first.csv", first);
    // Without four hours, and with so few bars after them that H4 has no window.
    let later: Vec<&str> = second.lines().skip(300).take(100).collect();
    let input = format!("{}\n{}\n", second.lines().take(60).collect::<Vec<_>>().join("\n"), later.join("\n"));
    let command = stage.command("predict --run run --follow - --history first.csv");
    let assert = assert_cmd::Command::from_std(command).write_stdin(input).assert().success();
    let said = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    for part in [
        "EURUSD: no bars from 2018-01-11",
        "the states begin anew; bars needed before the next prediction: ",
        "of M1",
        "the states began anew after 1 hole; bars needed before the next prediction: ",
        " of H4",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn bars_of_another_pair_and_those_of_another_timeframe_are_refused() {
    let stage = trained("");
    stage.write("GBPUSD_M1.csv", &stage.text("EURUSD.csv"));
    let line = "predict --run run --follow GBPUSD_M1.csv --stop-at-end --cold";
    let [message, _] = stage.fails(line, 3);
    assert!(
        message.starts_with("GBPUSD_M1.csv: bars of GBPUSD by its name, and ")
            && message.contains("series.h5 has EURUSD; if bars of EURUSD are meant, add `--symbol EURUSD`"),
        "{message}"
    );
    let told = stage.told(&format!("{line} --symbol EURUSD"));
    assert!(
        told.contains("warning: GBPUSD_M1.csv is named after GBPUSD, and its bars are taken for those of EURUSD"),
        "{told}"
    );
    let hours: Vec<String> = (0..9).map(|hour| format!("2018-03-01 0{hour}:00,1.2,1.3,1.1,1.2,5\n")).collect();
    stage.write("EURUSD_H1.csv", &hours.concat());
    let command = stage.command("predict --run run --follow EURUSD_H1.csv --stop-at-end --cold");
    let assert = assert_cmd::Command::from_std(command).assert().code(3);
    let said = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    let refused = "EURUSD_H1.csv: its bars are 1 h apart, and bars of M1 are followed: give those";
    assert!(said.contains(refused), "{said}");
    // The first of them had predictions, where the windows were full.
    let bars = stage.text("EURUSD.csv");
    stage.write("first.csv", &bars[..bars.find("2018-01-11 13:07").unwrap()]);
    let hours: Vec<String> = (14..23).map(|hour| format!("2018-01-11 {hour}:00,1.2,1.3,1.1,1.2,5\n")).collect();
    stage.write("EURUSD_H1.csv", &hours.concat());
    let [message, _] =
        stage.fails("predict --run run --follow EURUSD_H1.csv --stop-at-end --history first.csv --out hours.csv", 3);
    assert!(message.contains(refused) && !stage.path("hours.csv").exists(), "{message}");
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let stage = Stage::new();
    stage.succeeds("synth EURUSD.csv --days 9");
    let made = "--timeframes M1:5,M5:3 --features body,spread_pips --horizon 2";
    stage.succeeds(&format!("ingest EURUSD.csv --out series.h5 {RECIPE}"));
    stage.succeeds(&format!("ingest EURUSD.csv --out spread.h5 {made}"));
    let plan = stage.succeeds(&format!("plan --data spread.h5 --set data.purge=0s {SMALL}"));
    assert_eq!(plan["uses"][0], "no `predict --follow`: the feature spread_pips needs whole files");
    stage.succeeds(&format!("ingest EURUSD.csv --out other.h5 {}", made.replace("spread_pips", "range")));
    for (run, data, settings) in [
        ("rounded", "series.h5", "--set training.carry_state=true --set training.precision=fp16"),
        ("spread", "spread.h5", "--set training.carry_state=true"),
        ("carried", "series.h5", "--set training.carry_state=true"),
    ] {
        stage
            .succeeds(&format!("train --data {data} --out {run} --max-steps 1 --set data.purge=0s {SMALL} {settings}"));
    }
    for (line, code, expected) in [
        ("--run rounded --follow -", 2, "training.precision fp16"),
        ("--run spread --follow -", 2, "spread_pips is a feature of the model"),
        ("--run carried --follow - --out x.h5", 2, "expected .csv or .jsonl"),
        ("--run carried --follow absent.csv", 3, "absent.csv: cannot be opened"),
        ("--run carried --follow carried", 3, "carried: is a folder, and one file is followed"),
        ("--run carried --follow - --data other.h5", 3, "other.h5: the model of carried takes"),
    ] {
        let [message, _] = stage.fails(&format!("predict {line}"), code);
        assert!(message.contains(expected), "{line}: {message}");
    }
    let neither = stage.run("predict --run carried").code(2);
    assert!(String::from_utf8_lossy(&neither.get_output().stderr).contains("--out <OUT>"));
}

#[test]
fn the_latency_of_a_bar_is_measured_by_part() {
    let answer = Stage::new().succeeds("bench follow --model single --hidden 4 --bars 300");
    assert_eq!(answer["bars"], 300);
    for part in ["text", "features", "model", "all"] {
        let [median, p99] = ["median_us", "p99_us"].map(|what| answer[part][what].as_f64().unwrap());
        assert!(median > 0.0 && p99 >= median, "{part}: {answer}");
    }
}

/// The paths in a series were those that were typed: from another folder no file was found.
#[test]
fn a_series_finds_its_files_from_any_folder() {
    let stage = Stage::new();
    stage.succeeds("synth EURUSD.csv --days 4");
    std::fs::create_dir(stage.path("elsewhere")).unwrap();
    stage.succeeds("ingest EURUSD.csv --out series.h5 --timeframes M1:5,M5:3 --features body --horizon 2");
    for line in ["leak ../series.h5 --samples 2", "ingest --append ../EURUSD.csv --out ../series.h5"] {
        let output = stage.command(line).current_dir(stage.path("elsewhere")).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Files that are moved with their series are found too.
    std::fs::rename(stage.path("EURUSD.csv"), stage.path("elsewhere/EURUSD.csv")).unwrap();
    std::fs::rename(stage.path("series.h5"), stage.path("elsewhere/series.h5")).unwrap();
    stage.succeeds("leak elsewhere/series.h5 --samples 2");
    let answer = stage.succeeds("ingest --append elsewhere/EURUSD.csv --out elsewhere/series.h5");
    assert_eq!(answer["appended"]["files"], serde_json::json!([]));
    // A file of the same name that has other bytes was taken for the one that is gone.
    std::fs::rename(stage.path("elsewhere/EURUSD.csv"), stage.path("kept.csv")).unwrap();
    stage.succeeds("synth elsewhere/EURUSD.csv --days 4 --seed 9");
    let [message, _] = stage.fails("leak elsewhere/series.h5 --samples 2", 3);
    assert!(message.contains("say with --source where the bars of elsewhere/series.h5 are"), "{message}");
}

/// A file whose last bar is another one since was followed without a word.
#[test]
fn a_followed_file_with_other_bars_than_the_history_is_warned_of() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let (before, last) = bars.trim_end().rsplit_once('\n').unwrap();
    let mut fields: Vec<&str> = last.split(',').collect();
    fields[1] = if fields[1] == fields[2] { fields[3] } else { fields[2] };
    stage.write("changed.csv", &format!("{before}\n{}\n", fields.join(",")));
    let told = stage.told("predict --run run --follow changed.csv --stop-at-end --out live.csv");
    assert!(told.contains("warning: changed.csv: line ") && told.contains(" has the open "), "{told}");
}

/// The bar of a line that was being written when a followed file was read as its own history was
/// refused once it was whole.
#[test]
fn a_line_that_is_being_written_is_waited_for() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let at = bars.find("2018-01-11 13:07").unwrap();
    let (begun, rest) = (bars[..at].trim_end(), bars[at..].lines().take(3));
    let rest: String = rest.map(|row| format!("{row}\n")).collect();
    stage.write("first.csv", &format!("{begun}5\n"));
    stage.write("next.csv", &rest);
    stage.succeeds("predict --run run --follow next.csv --stop-at-end --history first.csv --out expected.csv");
    stage.write("live.csv", begun);
    let mut child = stage
        .command("predict --run run --follow live.csv --history live.csv")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(
        told.any(|line| line.contains("live.csv: its last line has no end yet") || line.contains("continues with"))
    );
    let mut file = OpenOptions::new().append(true).open(stage.path("live.csv")).unwrap();
    file.write_all(format!("5\n{rest}").as_bytes()).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(4).map(Result::unwrap);
    assert_eq!(lines.collect::<Vec<_>>().join("\n"), stage.text("expected.csv").trim_end());
    stage.write("live.csv", "");
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

/// Each row of a bar that was unfinished made the whole history be read again.
#[test]
fn a_history_is_read_again_once_a_bar_follows_its_last() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let at = bars.find("2018-01-11 13:07").unwrap();
    let (_, last) = bars[..at].trim_end().rsplit_once('\n').unwrap();
    stage.write("unfinished.csv", &with_unfinished_last(&bars[..at]));
    let mut child = stage
        .command("predict --run run --follow - --history unfinished.csv")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.any(|line| line.contains("continues with")));
    std::fs::remove_file(stage.path("unfinished.csv")).unwrap();
    child.stdin.take().unwrap().write_all(format!("{last}\n{last}\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{:?}", told.collect::<Vec<_>>());
}

/// Bars after an unfinished last bar were predicted from that bar as it was.
#[test]
fn a_last_bar_that_was_unfinished_is_the_one_of_the_followed_file() {
    let stage = trained("");
    let bars = stage.text("EURUSD.csv");
    let at = bars.find("2018-01-11 13:07").unwrap();
    let (before, last) = bars[..at].trim_end().rsplit_once('\n').unwrap();
    stage.write("first.csv", &bars[..at]);
    stage.write("live.csv", &bars[at..]);
    stage.write("unfinished.csv", &with_unfinished_last(&bars[..at]));
    stage.write("again.csv", &bars[before.len() + 1..]);
    let line = |live: &str, history: &str, out: &str| {
        format!("predict --run run --follow {live} --stop-at-end --history {history} --out {out}")
    };
    stage.succeeds(&line("live.csv", "first.csv", "expected.csv"));
    let told = stage.told(&line("again.csv", "unfinished.csv", "found.csv"));
    assert!(told.contains("EURUSD: the bar that opens at 2018-01-11 13:06 UTC was unfinished"), "{told}");
    assert!(!told.contains("they were changed since"), "{told}");
    assert_eq!(stage.text("found.csv"), stage.text("expected.csv"));
    // What comes of a pipe comes once, after the model has seen the unfinished bar.
    let command = stage.command("predict --run run --follow - --history unfinished.csv");
    let assert = assert_cmd::Command::from_std(command).write_stdin(stage.text("again.csv")).assert().success();
    let output = assert.get_output();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("EURUSD: the bar that opens at 2018-01-11 13:06 UTC was unfinished"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), stage.text("expected.csv"));
    // It does not come after bars that were predicted.
    let (first, rest) = bars[at..].split_once('\n').unwrap();
    let late = format!("{first}\n{last}\n{rest}");
    let command = stage.command("predict --run run --follow - --history unfinished.csv");
    let assert = assert_cmd::Command::from_std(command).write_stdin(late).assert().code(3);
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(said.contains("have more of it after later ones: append the finished bar"), "{said}");
    // Volumes are corrected later: such a bar was refused.
    let mut fields: Vec<&str> = last.split(',').collect();
    fields[5] = "99999999";
    let input = format!("{}\n{}", fields.join(","), &bars[at..]);
    let command = stage.command("predict --run run --follow - --history first.csv");
    let assert = assert_cmd::Command::from_std(command).write_stdin(input).assert().success();
    let output = assert.get_output();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("2018-01-11 13:06 UTC, has more volume in these bars; the one of before counts"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("2018-"), "predictions");
}
