//! Clocks of the files of a series and of those that are appended.

use super::*;

/// Hours of six weeks of winter on a broker's clock, two hours ahead of UTC all year, and of six
/// weeks of summer.
fn hours_of_a_broker(folder: &Path) -> [PathBuf; 2] {
    [six_weeks(folder, "EURUSD-winter.csv", "2018-01-08", 0), six_weeks(folder, "EURUSD-summer.csv", "2018-05-07", -1)]
}

/// Hours of six weeks that begin `first_hour` hours after midnight of a Monday and last five days.
fn six_weeks(folder: &Path, name: &str, monday: &str, first_hour: i64) -> PathBuf {
    let monday: jiff::civil::Date = monday.parse().unwrap();
    let hours = (0..6 * 7 * 24).filter(|hour| hour % (7 * 24) < 5 * 24);
    let row = |hour: i64| {
        let time = monday.at(0, 0, 0, 0) + jiff::Span::new().hours(hour + first_hour);
        let open = 1.2 + 0.01 * (hour as f64 * 0.7).sin();
        let (time, high, low) = (time.strftime("%Y.%m.%d,%H:%M"), open + 0.01, open - 0.01);
        format!("{time},{open:.5},{high:.5},{low:.5},{open:.5},{}\n", 100 + hour % 7)
    };
    let path = folder.join(name);
    fs::write(&path, hours.map(row).collect::<String>()).unwrap();
    path
}

/// A recipe of hours.
fn hourly(file: &Path, bins: &str) -> Recipe {
    Recipe {
        timeframes: windows("H1:6,H4:2"),
        horizon: 2,
        features: "log_return,body".parse().unwrap(),
        bins: bins.parse().unwrap(),
        ..base(vec![file.to_owned()])
    }
}

/// The winter of a broker fits several clocks. The summer decided for another one than the bins
/// had. Bins by a third clock, to which neither matters, were refused too.
#[test]
fn another_clock_than_that_of_the_bins_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [winter, summer] = hours_of_a_broker(folder.path());
    let out = folder.path().join("series.h5");
    for (bins, is_refused) in [("exchange", true), ("new-york+7", true), ("UTC", false), ("America/New_York", false)] {
        let hours = |file: &PathBuf| hourly(file, bins);
        let report = ingest(&hours(&winter), &out, &Host::silent()).unwrap();
        assert!(report.text.contains("times are new-york+7 (5 of 5 weeks"), "{}", report.text);
        let before = fs::read(&out).unwrap();
        let found = append(&hours(&summer), &[], &out, &Host::silent());
        if !is_refused {
            let report = found.unwrap();
            let files = &report.json["source"]["instruments"][0]["files"];
            assert_eq!([&files[0]["zone"], &files[1]["zone"]], ["+02:00", "+02:00"]);
            continue;
        }
        let error = found.unwrap_err();
        let said = error.to_string();
        assert_eq!(error.kind(), Kind::Data, "{said}");
        assert!(said.contains("EURUSD-winter.csv: its times were read as new-york+7 when"), "{said}");
        assert!(said.contains("its clock is +02:00 (10 of 10 weeks") && said.contains("zone stated"), "{said}");
        assert!(fs::read(&out).unwrap() == before, "the series was changed");
    }
}

/// A summer in a file a week was read by the clock of the winter, an hour off.
#[test]
fn weekends_between_new_files_show_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let [winter, summer] = hours_of_a_broker(folder.path());
    let out = folder.path().join("series.h5");
    ingest(&hourly(&winter, "UTC"), &out, &Host::silent()).unwrap();
    let week = |k: usize| part(&summer, &format!("EURUSD-{k}.csv"), 120 * k..120 * (k + 1));
    let weeks = Recipe { bars: (0..6).map(week).collect(), ..hourly(&summer, "UTC") };
    let report = append(&weeks, &[], &out, &Host::silent()).unwrap();
    let files = listed(&report.json["source"]["instruments"][0], "files");
    let zones: Vec<_> = files.map(|file| file["zone"].as_str().unwrap()).collect();
    assert_eq!(zones, ["+02:00"; 7], "{}", report.text);
    assert!(report.text.contains("10 of 10 weeks"), "{}", report.text);
}

/// New bars whose weeks end at an hour of no known clock were read as UTC.
#[test]
fn bars_without_a_known_clock_keep_that_of_the_series() {
    let folder = tempfile::tempdir().unwrap();
    let [winter, _] = hours_of_a_broker(folder.path());
    let later = six_weeks(folder.path(), "EURUSD-later.csv", "2018-05-07", 4);
    let out = folder.path().join("series.h5");
    ingest(&hourly(&winter, "UTC"), &out, &Host::silent()).unwrap();
    let report = append(&hourly(&later, "UTC"), &[], &out, &Host::silent()).unwrap();
    let files = &report.json["source"]["instruments"][0]["files"];
    assert_eq!([&files[0]["zone"], &files[1]["zone"]], ["new-york+7", "new-york+7"]);
    assert!(report.text.contains("new-york+7, which is kept from before: no known clock"), "{}", report.text);
    leak::prove(&out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
}

/// Days of a format that the files of before did not have were read by the clock of these. Once a
/// series had files of two clocks, neither went on.
#[test]
fn each_format_goes_on_by_its_own_clock() {
    let folder = tempfile::tempdir().unwrap();
    let [winter, _] = hours_of_a_broker(folder.path());
    // Four days show no clock.
    let days = part(&six_weeks(folder.path(), "EURUSD-weeks.csv", "2018-02-19", 0), "EURUSD-days.csv", 0..96);
    let in_histdata = |row: &str| {
        let (time, numbers) = row.split_at("2018.02.19,00:00".len());
        let time = time.replace(['.', ':'], "").replace(',', " ");
        format!("{time}00{}\n", numbers.replace(',', ";"))
    };
    let text = fs::read_to_string(&days).unwrap();
    fs::write(&days, text.lines().map(in_histdata).collect::<String>()).unwrap();
    let later = six_weeks(folder.path(), "EURUSD-later.csv", "2018-05-07", 4);
    let out = folder.path().join("series.h5");
    ingest(&hourly(&winter, "UTC"), &out, &Host::silent()).unwrap();
    for (file, zones, said) in [
        (&days, &["new-york+7", "-05:00"][..], "histdata file, -05:00, which is assumed: there is no end of a week"),
        (&later, &["new-york+7", "-05:00", "new-york+7"][..], "new-york+7, which is kept from before: no known clock"),
    ] {
        let report = append(&hourly(file, "UTC"), &[], &out, &Host::silent()).unwrap();
        let files = listed(&report.json["source"]["instruments"][0], "files");
        assert_eq!(files.filter_map(|file| file["zone"].as_str()).collect::<Vec<_>>(), zones);
        assert!(report.text.contains(said), "{}", report.text);
        leak::prove(&out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
    }
}

/// The clock by which the files of before were read was refused as a stated zone.
#[test]
fn the_clock_of_the_series_may_be_stated() {
    let folder = tempfile::tempdir().unwrap();
    let [winter, summer] = hours_of_a_broker(folder.path());
    let out = folder.path().join("series.h5");
    ingest(&hourly(&winter, "UTC"), &out, &Host::silent()).unwrap();
    let stated = |zone: &str| {
        let recipe = Recipe { zone: Some(zone.parse().unwrap()), ..hourly(&summer, "UTC") };
        append(&recipe, &["zone".to_owned()], &out, &Host::silent())
    };
    let error = stated("+02:00").unwrap_err();
    assert_eq!(error.kind(), Kind::Usage, "{error}");
    assert!(error.to_string().contains("was made without --zone and is kept so"), "{error}");
    // The summer fits another clock better.
    let report = stated("new-york+7").unwrap();
    let files = &report.json["source"]["instruments"][0]["files"];
    assert_eq!([&files[0]["zone"], &files[1]["zone"]], ["new-york+7", "new-york+7"]);
    leak::prove(&out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
}

/// The error named the clock of the bins, which is UTC.
#[test]
fn bars_that_another_clock_would_move_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [winter, summer] = hours_of_a_broker(folder.path());
    let out = folder.path().join("series.h5");
    // Four days show no clock.
    let days = part(&winter, "EURUSD-days.csv", 0..96);
    ingest(&hourly(&days, "UTC"), &out, &Host::silent()).unwrap();
    let said = append(&hourly(&summer, "UTC"), &[], &out, &Host::silent()).unwrap_err().to_string();
    assert!(said.contains("EURUSD-days.csv: its times were read as UTC when"), "{said}");
    assert!(said.contains("; the bars of before would be at other times; nothing was written"), "{said}");
}
