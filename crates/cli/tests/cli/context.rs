//! Features of other instruments, from files of their bars.

use hdf5::File;

use crate::stage::{SMALL, Stage};

const RECIPE: &str =
    "--timeframes M1:8,M5:4 --features log_return,body,day_sin --target log_return --horizon 2 --stride 8";

/// The error of `megabatch LINE`, behind a warning that the context ends before the bars.
fn refusal(stage: &Stage, line: &str) -> String {
    let said = String::from_utf8(stage.run(line).code(3).stdout("").get_output().stderr.clone()).unwrap();
    assert!(said.contains("warning: context DXY: its bars end at"), "{said}");
    said
}

#[test]
fn another_instrument_stands_beside_each_bar() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 8 --seed 5");
    stage.succeeds("synth dxy.csv --days 8 --seed 6");
    let answer = stage.succeeds(&format!("ingest bars.csv --out series.h5 --context DXY=dxy.csv {RECIPE}"));
    let recipe = answer["source"]["recipe"].to_string();
    assert!(recipe.contains("function:DXY.log_return,function:DXY.body,function:DXY.age"), "{recipe}");
    assert!(recipe.contains("--context=DXY=/") && recipe.contains("/dxy.csv"), "{recipe}");
    stage.succeeds("leak series.h5 --samples 2");
    let trained = stage.succeeds(&format!("train --data series.h5 --out run {SMALL} --max-steps 4"));
    let follow = "no `predict --follow`: context DXY; in Python, `run.follow(…, context=)`";
    assert_eq!(trained["uses"][0], follow);
    stage.succeeds("predict --run run --data series.h5 --out predictions.csv");

    let [_, error] = stage.fails("predict --run run --follow bars.csv --out live.csv", 2);
    assert!(error.contains("features of DXY, another instrument, whose bars do not come with these"), "{error}");
    std::fs::rename(stage.path("dxy.csv"), stage.path("moved.csv")).unwrap();
    let [_, error] = stage.fails("leak series.h5 --samples 2", 3);
    assert!(error.contains("context DXY: ") && error.contains("dxy.csv: cannot be opened"), "{error}");
    stage.succeeds("leak series.h5 --samples 2 --context DXY=moved.csv");

    // All bars would see one value of a context of another year.
    stage.write("early.csv", &stage.text("moved.csv").replace("2018-01", "2001-01"));
    let said = refusal(&stage, &format!("ingest bars.csv --out other.h5 --context DXY=early.csv {RECIPE}"));
    assert!(
        said.contains("megabatch: ") && said.contains("the last bar of the other instrument closes at 2001"),
        "{said}"
    );
    assert!(said.contains(", before these bars begin: give its bars of their time"), "{said}");
    let twice = format!("ingest bars.csv --out other.h5 --context DXY=moved.csv --context DXY=moved.csv {RECIPE}");
    let [_, error] = stage.fails(&twice, 2);
    assert!(error.contains("--context: DXY is there twice"), "{error}");
}

const WEEKS_RECIPE: &str = "--timeframes M1:8 --features body --target log_return --horizon 2 --stride 60";

/// Writes `bars.csv`, minutes of 150 days; rows of weeks beside them.
fn half_a_year(stage: &Stage) -> Vec<String> {
    stage.succeeds("synth bars.csv --days 150 --seed 5");
    let bars = stage.text("bars.csv");
    // Six days a week have bars, and Monday is the first.
    let mut dates: Vec<&str> = bars.lines().skip(1).map(|line| &line[..10]).collect();
    dates.dedup();
    let week = |(k, date): (usize, &&str)| {
        let open = 100 + 7 * k % 11;
        format!("{date},{open},{},{},{},9\n", open + 2, open - 2, open + k % 2)
    };
    dates.iter().step_by(6).enumerate().map(week).collect()
}

/// Makes the series `NAME.h5` of `bars.csv` beside the context of these `weeks`.
fn ingest_beside(stage: &Stage, weeks: &[String], name: &str) {
    stage.write(&format!("{name}.csv"), &format!("date,open,high,low,close,volume\n{}", weeks.concat()));
    stage.succeeds(&format!("ingest bars.csv --out {name}.h5 --context DXY={name}.csv {WEEKS_RECIPE}"));
}

fn purged(stage: &Stage, file: &str) -> u64 {
    stage.succeeds(&format!("plan --data {file}"))["split"]["purged"].as_u64().unwrap()
}

/// All samples after training were purged, and the refusal named windows alone.
#[test]
fn a_context_that_has_ended_leaves_samples_to_later_parts() {
    let stage = Stage::new();
    let weeks = half_a_year(&stage);
    ingest_beside(&stage, &weeks[..weeks.len() / 2], "ended");
    assert!(purged(&stage, "ended.h5") < 10);
    stage.succeeds("leak ended.h5 --samples 2");

    // A hole as long as the time since the last bar, which lies in training: the next may come yet.
    let last = weeks.len() * 13 / 20;
    let with_hole = [&weeks[..4], &weeks[last..=last]].concat();
    ingest_beside(&stage, &with_hole, "hole");
    let [error, _] = stage.fails("plan --data hole.h5", 2);
    assert!(error.contains("look back at); bars of the context DXY, whose last one closes at 2018-"), "{error}");
    assert!(error.contains("of that; give newer bars of it: no samples are left"), "{error}");
}

/// Validation saw the week of a context that lay in training.
#[test]
fn the_bars_of_a_context_stay_out_of_the_part_before() {
    let stage = Stage::new();
    let weeks = half_a_year(&stage);
    ingest_beside(&stage, &weeks, "weeks");
    stage.succeeds(&format!("ingest bars.csv --out plain.h5 {WEEKS_RECIPE}"));
    // A week has 120 samples, and there are two later parts.
    let (plain, weeks) = (purged(&stage, "plain.h5"), purged(&stage, "weeks.h5"));
    assert!(plain < 10 && weeks > 230, "{plain} {weeks}");
    assert!(stage.said("leak weeks.h5 --samples 2").contains("No label of training or validation ends after"));
    let refused = stage.run("leak weeks.h5 --samples 2 --set data.purge=6d").code(3);
    let error = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
    assert!(error.contains("samples of validation look back to before 2018-"), "{error}");
}

/// Samples of an earlier version do not reach back to the bars of a context.
#[test]
fn a_series_whose_samples_leave_the_context_out_goes_on() {
    let stage = Stage::new();
    stage.succeeds("synth all.csv --days 8 --seed 5");
    stage.succeeds("synth dxy.csv --days 8 --seed 6");
    let all = stage.text("all.csv");
    let day = all.find("2018-01-05").unwrap();
    stage.write("EURUSD-old.csv", &all[..day]);
    stage.write("EURUSD-new.csv", &format!("{}\n{}", all.lines().next().unwrap(), &all[day..]));
    stage.succeeds(&format!("ingest EURUSD-old.csv --out series.h5 --context DXY=dxy.csv {RECIPE} --zone UTC"));
    stage.with_hdf5("series.h5", |path| {
        let file = File::open_rw(path).unwrap();
        let times: Vec<i64> = file.dataset("samples/time").unwrap().read_raw().unwrap();
        let earlier: Vec<i64> = times.iter().map(|time| time - 60_000_000_000).collect();
        file.dataset("samples/reach_time").unwrap().write_raw(&earlier).unwrap();
    });
    let [error, _] = stage.fails("leak series.h5 --samples 2", 3);
    assert!(error.contains("/samples/reach_time is not what its bars give"), "{error}");
    stage.succeeds("ingest --append EURUSD-new.csv --out series.h5");
    stage.succeeds("leak series.h5 --samples 2");
}

/// A context that a vendor delivers late was told that it changes rows of before.
#[test]
fn features_go_on_with_a_context_that_had_ended() {
    let stage = Stage::new();
    stage.succeeds("synth all.csv --days 8 --seed 5");
    stage.succeeds("synth dollar.csv --days 8 --seed 6");
    let part = |name: &str, from: &str, until: &str| -> String {
        let text = stage.text(name);
        let lines = text.lines().filter(|line| !line.starts_with("2018") || (from..until).contains(line));
        lines.map(|line| format!("{line}\n")).collect()
    };
    stage.write("EURUSD-old.csv", &part("all.csv", "2018", "2018-01-04 12"));
    stage.write("dxy.csv", &part("dollar.csv", "2018", "2018-01-04 10"));
    stage.succeeds(&format!("ingest EURUSD-old.csv --out series.h5 --context DXY=dxy.csv {RECIPE} --zone UTC"));
    stage.write("EURUSD-day.csv", &part("all.csv", "2018-01-04 12", "2018-01-05 12"));
    stage.write("dxy-later.csv", &part("dollar.csv", "2018", "2018-01-05 10"));
    // A bar of the time before that is missing is refused.
    let later = stage.text("dxy-later.csv");
    let without: String =
        later.lines().enumerate().filter(|(row, _)| *row != 1000).map(|(_, line)| format!("{line}\n")).collect();
    stage.write("dxy-other.csv", &without);
    let line = "ingest --append EURUSD-day.csv --out series.h5";
    let error = refusal(&stage, &format!("{line} --context DXY=dxy-other.csv"));
    assert!(error.contains("context DXY (dxy-other.csv): these are not the bars that series.h5 was"), "{error}");
    assert!(error.contains("would become another one"), "{error}");
    // A shorter one too, from the time at which it ends.
    stage.write("dxy-short.csv", &part("dollar.csv", "2018", "2018-01-04 08"));
    let error = refusal(&stage, &format!("{line} --context DXY=dxy-short.csv"));
    assert!(error.contains("context DXY (dxy-short.csv): these are not the bars that series.h5 was"), "{error}");
    assert!(error.contains("the M1 bar of EURUSD that closes at 2018-01-04 08:"), "{error}");
    stage.succeeds(&format!("{line} --context DXY=dxy-later.csv"));
    stage.succeeds("leak series.h5 --samples 2");

    // Without a bar of its own, the context was passed over, and its rows stayed as they were.
    let rows = |text: &str| text.lines().count();
    for (end, effect) in [("18", "its features from 2018-01-05 10:"), ("20", "no row has changed")] {
        let before = rows(&stage.text("dxy-later.csv"));
        let text = part("dollar.csv", "2018", &format!("2018-01-05 {end}"));
        stage.write("dxy-later.csv", &text);
        if end == "18" {
            let [_, error] = stage.fails("leak series.h5 --samples 2", 3);
            let grown = "dxy-later.csv, which has grown): these are not the bars that series.h5 was made of";
            assert!(error.contains("context DXY (") && error.contains(grown), "{error}");
        }
        let told = stage.told(line);
        let more = rows(&text) - before;
        let expected = format!("no bar of series.h5 is new; DXY has {more} more bars than when it was made: {effect}");
        assert!(told.contains(&expected), "{told}");
        stage.succeeds("leak series.h5 --samples 2");
        assert!(stage.said(line).contains("nothing was written"));
    }

    // Scalers that were fitted on the rows stayed, and the proof found others.
    stage.write("dxy.csv", &part("dollar.csv", "2018", "2018-01-02 10"));
    for (scaling, is_taken) in [("robust", false), ("none", true)] {
        let ingest = "ingest EURUSD-old.csv --out series.h5 --context DXY=dxy.csv --zone UTC --scaling";
        stage.succeeds(&format!("{ingest} {scaling} {RECIPE}"));
        let line = format!("{line} --context DXY=dxy-later.csv");
        if is_taken {
            stage.succeeds(&line);
            stage.succeeds("leak series.h5 --samples 2");
        } else {
            let [_, error] = stage.fails(&line, 3);
            assert!(
                error.contains("context DXY (dxy-later.csv): these bars had ended within the span, up to 2018-01-03 "),
                "{error}"
            );
            assert!(error.contains("the M1 bar of EURUSD that closes at 2018-01-02 10:"), "{error}");
        }
    }
}

/// The parser of the command line required bars.
#[test]
fn a_longer_context_is_appended_without_bars() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 8 --seed 5");
    stage.succeeds("synth all.csv --days 8 --seed 6");
    let all = stage.text("all.csv");
    let lines: Vec<&str> = all.split_inclusive('\n').collect();
    stage.write("dxy.csv", &lines[..lines.len() * 9 / 10].concat());
    let before = stage.succeeds(&format!("ingest bars.csv --out series.h5 --context DXY=dxy.csv {RECIPE}"));
    let after = stage.succeeds("ingest --append --out series.h5 --context DXY=all.csv");
    assert_eq!(after["samples"], before["samples"]);
    stage.succeeds("leak series.h5 --samples 2");
    let refused = stage.run("ingest --out other.h5 --context DXY=all.csv").code(2);
    let error = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
    assert!(error.contains("--context: there are no bars beside which it could stand: name files of bars"), "{error}");
}
