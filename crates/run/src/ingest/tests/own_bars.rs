//! Bars of longer timeframes from files of their own: those that the shortest make give the series
//! that these make, and a change of one is seen from its close on.

use proptest::prelude::*;

use super::*;
use crate::command_report::CommandReport;
use crate::ingest::recipe::in_memory::WholeSeries;
use crate::leak;

/// Minutes of a longer bar.
const LENGTHS: [(Timeframe, i64); 4] =
    [(Timeframe::M15, 15), (Timeframe::H1, 60), (Timeframe::H4, 240), (Timeframe::D1, 1_440)];

/// Writes the bars of `timeframe` that the bars in the file `minutes` make, beside it, and each
/// row as `change` makes it of its place and fields.
fn write_longer(minutes: &Path, timeframe: Timeframe, change: impl Fn(usize, &mut [String])) -> PathBuf {
    let (_, length) = LENGTHS.into_iter().find(|(known, _)| *known == timeframe).unwrap();
    let text = fs::read_to_string(minutes).unwrap();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for line in text.lines().skip(1) {
        let mut row: Vec<String> = line.split(',').map(str::to_owned).collect();
        let number = |text: &str| -> i64 { text.parse().unwrap() };
        let minute = number(&row[0][11..13]) * 60 + number(&row[0][14..16]);
        let start = minute / length * length;
        row[0] = format!("{} {:02}:{:02}", &row[0][..10], start / 60, start % 60);
        let price = |text: &String| -> f64 { text.parse().unwrap() };
        match rows.last_mut().filter(|last| last[0] == row[0]) {
            None => rows.push(row),
            Some(last) => {
                if price(&row[2]) > price(&last[2]) {
                    last[2].clone_from(&row[2]);
                }
                if price(&row[3]) < price(&last[3]) {
                    last[3].clone_from(&row[3]);
                }
                last[4].clone_from(&row[4]);
                last[5] = (number(&last[5]) + number(&row[5])).to_string();
            }
        }
    }
    rows.iter_mut().enumerate().for_each(|(place, row)| change(place, row));
    let header = text.lines().next().unwrap();
    let rows: String = rows.iter().map(|row| format!("{}\n", row.join(","))).collect();
    let name = minutes.file_name().unwrap().to_str().unwrap().replace("_M1", &format!("_{timeframe}"));
    let path = minutes.with_file_name(name);
    fs::write(&path, format!("{header}\n{rows}")).unwrap();
    path
}

/// Hours of which every third closes at its high.
fn write_changed_hours(minutes: &Path) -> PathBuf {
    write_longer(minutes, Timeframe::H1, |place, row| {
        if place % 3 == 0 {
            row[4] = row[2].clone();
        }
    })
}

/// Closes the hour from 2018-01-02 16:00 on at another price.
fn change_close(place: usize, row: &mut [String]) {
    if place == 40 {
        assert_eq!(row[0], "2018-01-02 16:00");
        close_at_another_price(row);
    }
}

fn close_at_another_price(row: &mut [String]) {
    row[4] = if row[4] == row[2] { row[3].clone() } else { row[2].clone() };
}

fn recipe(bars: Vec<PathBuf>, own_bars: bool) -> Recipe {
    Recipe {
        bars,
        own_bars,
        timeframes: windows("M1:20,M15:6,H1:5,H4:3,D1:2"),
        features: "log_return,body,range".parse().unwrap(),
        target: TargetKind::LogReturn,
        horizon: 3,
        stride: 7,
        ..Recipe::default()
    }
}

fn hourly_recipe(bars: Vec<PathBuf>, own_bars: bool) -> Recipe {
    Recipe { timeframes: windows("M1:20,H1:5"), ..recipe(bars, own_bars) }
}

/// Features, samples and targets of a series.
fn assert_equal(found: &WholeSeries, expected: &WholeSeries) {
    assert_eq!(found.header.scalers, expected.header.scalers);
    let (found, expected) = (&found.arrays, &expected.arrays);
    assert_eq!(found.timeframes, expected.timeframes);
    assert_eq!(found.sample_time, expected.sample_time);
    assert_eq!(found.label_end_time, expected.label_end_time);
    assert_eq!(found.targets, expected.targets);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn bars_that_the_shortest_make_give_the_series_that_these_make(
        seed in 0u64..1_000, lost in 100usize..6_000, count in 1usize..900, has_own in prop::array::uniform8(any::<bool>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let gap = lost..lost + count;
        let minutes = [
            bars(folder.path(), "EURUSD_M1.csv", 11, seed, std::slice::from_ref(&gap)),
            bars(folder.path(), "GBPUSD_M1.csv", 9, seed + 1, &[]),
        ];
        let expected = recipe(minutes.to_vec(), false).align_streamed().unwrap();
        let mut files = minutes.to_vec();
        for (place, minutes) in minutes.iter().enumerate() {
            let own = LENGTHS.iter().enumerate().filter(|(k, _)| has_own[4 * place + k] || place + k == 1);
            files.extend(own.map(|(_, (timeframe, _))| write_longer(minutes, *timeframe, |_, _| {})));
        }
        assert_equal(&recipe(files, true).align_streamed().unwrap(), &expected);
    }
}

#[test]
fn a_change_of_an_own_bar_is_in_the_windows_with_it_and_not_before_its_close() {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 8, 1, &[]);
    let aligned = |change: &dyn Fn(usize, &mut [String])| {
        let hours = write_longer(&minutes, Timeframe::H1, change);
        let recipe = Recipe {
            features: "body".parse().unwrap(),
            scaling: Scaling::None,
            stride: 1,
            ..hourly_recipe(vec![minutes.clone(), hours], true)
        };
        recipe.align_streamed().unwrap().arrays
    };
    let before = aligned(&|_, _| {});
    let after = aligned(&change_close);
    assert_eq!((&after.timeframes[0], &after.targets), (&before.timeframes[0], &before.targets));
    let (hours, changed) = (&before.timeframes[1], &after.timeframes[1]);
    assert_eq!((&hours.close_time, &hours.end), (&changed.close_time, &changed.end));
    let rows: Vec<usize> = (0..hours.values.len()).filter(|&row| hours.values[row] != changed.values[row]).collect();
    let [row] = rows[..] else { panic!("one row of one feature: {rows:?}") };
    let close_time = hours.close_time[row];
    assert_eq!(close_time, 1_514_912_400_000_000_000, "2018-01-02 17:00");
    let seen = |&sample: &usize| (hours.end[sample] - 4..=hours.end[sample]).contains(&(row as i64));
    let times: Vec<i64> = (0..hours.end.len()).filter(seen).map(|sample| before.sample_time[sample]).collect();
    // Few minutes have no bar.
    let first = times.iter().copied().min().unwrap();
    assert!(
        (close_time..close_time + 300_000_000_000).contains(&first) && times.len() > 200,
        "{first} {}",
        times.len()
    );
}

#[test]
fn own_bars_are_told_and_kept_in_the_recipe() {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 8, 1, &[]);
    let out = folder.path().join("series.h5");
    let ingested = |hours: PathBuf| ingest(&hourly_recipe(vec![minutes.clone(), hours], true), &out, &Host::silent());
    let report = ingested(write_longer(&minutes, Timeframe::H1, change_close)).unwrap();
    let text = &report.text;
    assert!(
        text.contains("own bars equal the bars made of M1; 1 differs, the first at 2018-01-02T16:00:00Z"),
        "{text}"
    );
    let own = &report.json["source"]["instruments"][0]["own"][0];
    assert_eq!((&own["timeframe"], &own["different"]), (&"H1".into(), &1.into()));
    // Their clock was told as stated, and nobody had stated one.
    let why = "that of the M1 bars: the default of timestamps without offset";
    assert_eq!(own["files"][0]["zone_why"], why);
    assert!(text.contains(&format!("times are UTC ({why})")) && !text.contains("as stated"), "{text}");
    let hours = minutes.with_file_name("EURUSD_H1.csv");
    let stated = Recipe { zone: Some("UTC".parse().unwrap()), ..hourly_recipe(vec![minutes.clone(), hours], true) };
    let report = ingest(&stated, &out, &Host::silent()).unwrap();
    assert_eq!(report.json["source"]["instruments"][0]["own"][0]["files"][0]["zone_why"], "as stated");
    assert!(report.json["source"]["recipe"].as_array().unwrap().contains(&"--own-bars=true".into()));

    // Stamped an hour early, and off the hours.
    let later = write_longer(&minutes, Timeframe::H1, |_, row| row[0] = moved(&row[0], -60));
    let error = ingested(later).unwrap_err().to_string();
    assert!(error.contains("EURUSD: its own H1 bars close as the M1 bars do 1 h later"), "{error}");
    let off = write_longer(&minutes, Timeframe::H1, |_, row| row[0] = moved(&row[0], 30));
    let error = ingested(off).unwrap_err().to_string();
    assert!(error.contains("no H1 bar opens then on the clock UTC"), "{error}");
    let alone = hourly_recipe(vec![minutes.clone()], true);
    let error = ingest(&alone, &out, &Host::silent()).unwrap_err().to_string();
    assert!(error.contains("no symbol has a file beside that of its shortest bars"), "{error}");
}

#[test]
fn own_bars_are_proven_and_values_of_a_bar_early_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 8, 1, &[]);
    let hours = write_changed_hours(&minutes);
    let out = folder.path().join("series.h5");
    ingest(&hourly_recipe(vec![minutes.clone(), hours.clone()], true), &out, &Host::silent()).unwrap();
    let prove = |path: &Path, source: Vec<PathBuf>| {
        leak::prove(path, &leak::Options { source, ..leak::Options::default() }, &Host::silent())
    };
    let report = prove(&out, Vec::new()).unwrap();
    assert!(
        report.json["scalers_proven"] == true && report.json["bars_replaced"].as_u64() > Some(0),
        "{}",
        report.text
    );

    let mut series = SeriesFile::open(&out, &Device::cpu().scope("test")).unwrap().read().unwrap();
    let row = series.timeframes[1].feature_names.len();
    series.timeframes[1].values.rotate_left(row);
    let early = folder.path().join("early.h5");
    write_series(&early, &series, &WriteOptions { storage: Storage::Contiguous }).unwrap();
    let error = prove(&early, Vec::new()).unwrap_err().to_string();
    assert!(error.contains("/series/H1/values is not what its bars give"), "{error}");

    // Wherever the files lie now.
    let elsewhere = tempfile::tempdir().unwrap();
    let moved = [minutes, hours].map(|file| {
        let path = elsewhere.path().join(file.file_name().unwrap());
        fs::rename(&file, &path).unwrap();
        path
    });
    prove(&out, moved.to_vec()).unwrap();
}

/// Moved own files failed the proof, if a warning named one.
#[test]
fn own_files_that_a_warning_names_may_be_moved() {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 8, 1, &[]);
    let hours = write_longer(&minutes, Timeframe::H1, |_, row| row[5] = "-1".to_owned());
    let out = folder.path().join("series.h5");
    let report = ingest(&hourly_recipe(vec![minutes.clone(), hours.clone()], true), &out, &Host::silent()).unwrap();
    assert!(report.text.contains("EURUSD_H1.csv has no volume"), "{}", report.text);
    let elsewhere = tempfile::tempdir().unwrap();
    let source = [minutes, hours].map(|file| {
        let path = elsewhere.path().join(file.file_name().unwrap());
        fs::rename(&file, &path).unwrap();
        path
    });
    let options = leak::Options { source: source.to_vec(), samples: 4, ..leak::Options::default() };
    leak::prove(&out, &options, &Host::silent()).unwrap();
}

/// The rows of a file of bars that open before a time, or from it on, in a file of the same name.
fn part(file: &Path, folder: &Path, is_part: impl Fn(&str) -> bool) -> PathBuf {
    let text = fs::read_to_string(file).unwrap();
    let rows = text.lines().enumerate().filter(|(place, row)| *place == 0 || is_part(&row[..16]));
    fs::create_dir_all(folder).unwrap();
    let path = folder.join(file.file_name().unwrap());
    fs::write(&path, rows.map(|(_, row)| format!("{row}\n")).collect::<String>()).unwrap();
    path
}

#[test]
fn own_bars_are_appended_and_stay_in_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 8, 1, &[]);
    let hours = write_changed_hours(&minutes);
    let stage = folder.path().join("stage");
    let cut = "2018-01-05 12:00";
    let parts = |name: &str, is_part: &dyn Fn(&str) -> bool| {
        [&minutes, &hours].map(|file| part(file, &stage.join(name), is_part)).to_vec()
    };
    let (old, new) = (parts("old", &|time| time < cut), parts("new", &|time| time >= cut));
    let made_of = |bars| hourly_recipe(bars, true);
    let out = stage.join("series.h5");
    let before = ingest(&made_of(old), &out, &Host::silent()).unwrap();
    // The files may lie in another folder now.
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&stage, &elsewhere).unwrap();
    let new: Vec<PathBuf> = new.iter().map(|file| elsewhere.join(file.strip_prefix(&stage).unwrap())).collect();
    let out = elsewhere.join("series.h5");
    let after = append(&made_of(new.clone()), &["own-bars".to_owned()], &out, &Host::silent()).unwrap();
    let appended = &after.json["appended"];
    assert_eq!((appended["rewritten"].as_array().unwrap().len(), appended["files"].as_array().unwrap().len()), (0, 2));
    assert!(after.json["samples"].as_u64() > before.json["samples"].as_u64());
    let own = |report: &CommandReport, count: &str| {
        report.json["source"]["instruments"][0]["own"][0][count].as_u64().unwrap()
    };
    assert!(own(&after, "used") > own(&before, "used") && own(&after, "different") > own(&before, "different"));
    assert_eq!(own(&after, "made"), 0);
    leak::prove(&out, &leak::Options { samples: 4, ..leak::Options::default() }, &Host::silent()).unwrap();
    let again = append(&made_of(new), &[], &out, &Host::silent()).unwrap();
    assert_eq!(again.json["appended"]["samples"], 0);
}

/// An hour that was half over when its file was written counted as a whole one, and was refused
/// beside the whole one.
#[test]
fn the_last_own_bar_of_a_file_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 8, 1, &[]);
    let cut = "2018-01-05 12:30";
    let old_minutes = part(&minutes, &folder.path().join("old"), |time| time < cut);
    let old_hours = write_longer(&old_minutes, Timeframe::H1, |_, _| {});
    let made_of = |bars: Vec<PathBuf>, own_bars| Recipe { stride: 1, ..hourly_recipe(bars, own_bars) };
    let expected = made_of(vec![minutes.clone()], false).align_streamed().unwrap();
    assert_equal(&made_of(vec![minutes.clone(), old_hours.clone()], true).align_streamed().unwrap(), &expected);

    let own = |report: &CommandReport| {
        let own = &report.json["source"]["instruments"][0]["own"][0];
        ["different", "unfinished"].map(|count| own[count].as_u64().unwrap())
    };
    let appended = |name: &str, new: Vec<PathBuf>| {
        let out = folder.path().join(name);
        let before =
            ingest(&made_of(vec![old_minutes.clone(), old_hours.clone()], true), &out, &Host::silent()).unwrap();
        assert_eq!(own(&before), [0, 1]);
        assert!(before.text.contains("; the last own bar may be unfinished and is not used"), "{}", before.text);
        let after = append(&made_of(new, true), &[], &out, &Host::silent()).unwrap();
        assert!(after.json["samples"].as_u64() > before.json["samples"].as_u64());
        leak::prove(&out, &leak::Options { samples: 4, ..leak::Options::default() }, &Host::silent()).unwrap();
        after
    };
    let later = part(&minutes, &folder.path().join("later"), |time| time >= cut);
    assert_eq!(own(&appended("later.h5", vec![later])), [0, 1]);
    let new_minutes = part(&minutes, &folder.path().join("new"), |time| time >= "2018-01-04");
    // The hour with which the old file ends is whole in the new one.
    let change = |_: usize, row: &mut [String]| {
        if row[0] == "2018-01-05 12:00" {
            close_at_another_price(row);
        }
    };
    let new_hours = write_longer(&new_minutes, Timeframe::H1, change);
    let new = vec![new_minutes, new_hours];
    assert_eq!(own(&appended("new.h5", new.clone())), [1, 1]);
    let hours = write_longer(&minutes, Timeframe::H1, change);
    let expected = made_of(vec![minutes.clone(), hours], true).align_streamed().unwrap();
    let old = vec![old_minutes.clone(), old_hours.clone()];
    for files in [[old.clone(), new.clone()], [new, old]] {
        let recipe = Recipe { overlaps: Overlaps::EqualOnce, ..made_of(files.concat(), true) };
        assert_equal(&recipe.align_streamed().unwrap(), &expected);
    }
}

/// A file of days of which one carries a time of day was taken for more of the minutes.
#[test]
fn an_own_day_that_carries_a_time_of_day_is_that_of_its_date() {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 8, 1, &[]);
    let aligned = |time: &str| {
        let days = write_longer(&minutes, Timeframe::D1, |place, row| {
            if place == 2 {
                close_at_another_price(row);
                row[0] = row[0].replace("00:00", time);
            }
        });
        recipe(vec![minutes.clone(), days], true).align_streamed().unwrap()
    };
    assert_equal(&aligned("15:30"), &aligned("00:00"));
}

/// An own file that was exported again under its name was refused: its last bar of before is used
/// now. The minutes may have gone on after it.
#[test]
fn an_own_file_may_be_exported_again() {
    for cut in ["2018-01-05 12:00", "2018-01-05 12:30"] {
        export_hours_again(cut);
    }
}

/// Appends to a series of minutes before `cut` and hours before 12:00, whose file goes on since.
fn export_hours_again(cut: &str) {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 8, 1, &[]);
    let hours = write_longer(&minutes, Timeframe::H1, |_, row| {
        if row[0] == "2018-01-05 11:00" {
            close_at_another_price(row);
        }
    });
    let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
    let before = [(&minutes, cut), (&hours, "2018-01-05 12:00")].map(|(file, end)| part(file, &old, |time| time < end));
    let out = folder.path().join("series.h5");
    ingest(&hourly_recipe(before.to_vec(), true), &out, &Host::silent()).unwrap();
    part(&hours, &old, |_| true);
    let new = part(&minutes, &new, |time| time >= cut);
    append(&hourly_recipe(vec![new], true), &[], &out, &Host::silent()).unwrap();
    leak::prove(&out, &leak::Options { samples: 4, ..leak::Options::default() }, &Host::silent()).unwrap();
}

/// The refusal of own bars that come after their minutes named a hole or a clock, and not them.
#[test]
fn own_bars_that_come_after_their_minutes_are_refused_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 8, 1, &[]);
    let hours = write_changed_hours(&minutes);
    let cut = "2018-01-05 12:00";
    let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
    let before = [&minutes, &hours].map(|file| part(file, &old, |time| time < cut));
    let [new_minutes, new_hours] = [&minutes, &hours].map(|file| part(file, &new, |time| time >= cut));
    let out = folder.path().join("series.h5");
    ingest(&hourly_recipe(before.to_vec(), true), &out, &Host::silent()).unwrap();
    append(&hourly_recipe(vec![new_minutes], true), &[], &out, &Host::silent()).unwrap();
    let error = append(&hourly_recipe(vec![new_hours], true), &[], &out, &Host::silent()).unwrap_err().to_string();
    assert!(error.contains("(own bars of times of which it has those that were made, a hole"), "{error}");
}

/// Hours of another instrument were taken, with a warning.
#[test]
fn own_bars_of_another_instrument_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 8, 1, &[]);
    let hours = write_longer(&minutes, Timeframe::H1, |_, row| {
        for price in &mut row[1..5] {
            *price = format!("{:.5}", 100.0 * price.parse::<f64>().unwrap());
        }
    });
    let recipe = hourly_recipe(vec![minutes, hours], true);
    let error = ingest(&recipe, &folder.path().join("series.h5"), &Host::silent()).unwrap_err().to_string();
    assert!(error.contains("EURUSD: its own H1 bars have other prices than the M1 bars make: 0 of"), "{error}");
}

/// Days of a broker were compared with days of UTC, and nothing said which clock makes them alike.
#[test]
fn a_warning_names_the_clock_of_own_days() {
    let folder = tempfile::tempdir().unwrap();
    let minutes = bars(folder.path(), "EURUSD_M1.csv", 22, 1, &[]);
    let text = fs::read_to_string(&minutes).unwrap();
    let header = text.lines().next().unwrap();
    let broker = |row: &str| format!("{}{}\n", moved(&row[..16], 120), &row[row.find(',').unwrap()..]);
    fs::write(&minutes, format!("{header}\n{}", text.lines().skip(1).map(broker).collect::<String>())).unwrap();
    let files = vec![write_longer(&minutes, Timeframe::D1, |_, _| {}), minutes];
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let row = |row: &str| {
            let (date, rest) = row.split_once(' ').unwrap();
            format!("{},{rest}\n", date.replace('-', "."))
        };
        fs::write(file, text.lines().skip(1).map(row).collect::<String>()).unwrap();
    }
    let text = |bins: &str| {
        let recipe =
            Recipe { timeframes: windows("M1:20,D1:2"), bins: bins.parse().unwrap(), ..recipe(files.clone(), true) };
        ingest(&recipe, &folder.path().join("series.h5"), &Host::silent()).unwrap().text
    };
    let (other, own) = (text("UTC"), text("new-york+7"));
    assert!(other.contains("add `--bins new-york+7`"), "{other}");
    assert!(!own.contains("add `--bins"), "{own}");
}

/// A time such as `2018-01-02 16:00`, by some minutes later.
fn moved(time: &str, minutes: i64) -> String {
    let time: jiff::civil::DateTime = time.replace(' ', "T").parse().unwrap();
    (time + jiff::SignedDuration::from_mins(minutes)).strftime("%Y-%m-%d %H:%M").to_string()
}
