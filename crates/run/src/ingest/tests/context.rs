//! Bars of other instruments in files, and the time from which they are seen.

use super::*;

/// A day by the number of days since Monday 2018-01-01.
fn date(day: usize) -> String {
    crate::text::utc((17_532 + day as i64) * DAY_NS)[..10].to_owned()
}

/// Days from then on to the weekday at a place among weekdays.
fn weekday(place: usize) -> usize {
    place / 5 * 7 + place % 5
}

fn price(place: usize) -> usize {
    100 + place * 7 % 11
}

/// Writes bars of these times and closes.
fn write_rows(path: PathBuf, rows: Vec<(String, usize)>) -> PathBuf {
    let line = |(time, close): (String, usize)| format!("{time},{close},{},{},{close},9\n", close + 1, close - 1);
    let lines: String = rows.into_iter().map(line).collect();
    fs::write(&path, format!("date,open,high,low,close,volume\n{lines}")).unwrap();
    path
}

/// The close of the first bar that sees the difference between two files of `symbol`, in hours
/// since Monday 2018-01-01, and the clock of dates of a context.
fn seen_first(bars: &Path, symbol: &str, files: [&PathBuf; 2], timeframe: &str) -> (i64, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("series.h5");
    let rows = |path: &PathBuf| -> Vec<(i64, Vec<u32>)> {
        let recipe = Recipe {
            bars: vec![bars.to_owned()],
            context: vec![ContextFile { symbol: symbol.to_owned(), path: path.clone() }],
            timeframes: windows(&format!("{timeframe}:2")),
            features: "log_return".parse().unwrap(),
            target: TargetKind::LogReturn,
            horizon: 1,
            scaling: Scaling::None,
            ..Recipe::default()
        };
        ingest(&recipe, &out, &Host::silent()).unwrap();
        let series = SeriesFile::open(&out, &Device::cpu().scope("test")).unwrap().read().unwrap();
        let own = &series.timeframes[0];
        let row = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
        own.close_time.iter().copied().zip(own.values.chunks_exact(own.feature_names.len()).map(row)).collect()
    };
    let [as_it_was, changed] = files.map(rows);
    let differs = as_it_was.iter().zip(&changed).find(|(one, other)| one != other);
    let (close_time, _) = differs.expect("the context is seen").0;
    let day_zone = FunctionInputs::read(&out).unwrap().timing.day_zone;
    (close_time / (DAY_NS / 24) - 17_532 * 24, day_zone.map(|zone| zone.to_string()))
}

/// A row of the context that carried a time of day moved all of its days by one.
#[test]
fn a_day_of_a_context_that_carries_a_time_of_day_is_that_of_its_date() {
    let folder = tempfile::tempdir().unwrap();
    let own = days(folder.path().join("KO.csv"), 0..60, |_, date| date.to_owned());
    let values = |name: &str, stamp: &dyn Fn(usize, &str) -> String| {
        let recipe = Recipe {
            bars: vec![own.clone()],
            context: vec![ContextFile { symbol: "SPY".to_owned(), path: days(folder.path().join(name), 0..60, stamp) }],
            timeframes: windows("D1:5"),
            features: "log_return".parse().unwrap(),
            target: TargetKind::LogReturn,
            horizon: 1,
            scaling: Scaling::None,
            zone: Some("America/New_York".parse().unwrap()),
            ..Recipe::default()
        };
        let out = folder.path().join("series.h5");
        ingest(&recipe, &out, &Host::silent()).unwrap();
        let series = SeriesFile::open(&out, &Device::cpu().scope("test")).unwrap().read().unwrap();
        series.timeframes[0].values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>()
    };
    let expected = values("dates.csv", &|_, date| date.to_owned());
    for (place, time) in [(59, "15:30"), (20, "09:30")] {
        let live = |k: usize, date: &str| if k == place { format!("{date} {time}") } else { date.to_owned() };
        assert_eq!(values("live.csv", &live), expected, "{time}");
    }
}

/// Days and weeks of a context that end at New York's midnights were seen five hours before that,
/// beside shorter bars.
#[test]
fn a_day_or_a_week_of_a_context_is_seen_once_it_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, rows: Vec<(String, usize)>| write_rows(folder.path().join(name), rows);
    let hours = (0..40 * 120).map(|k| (format!("{} {:02}:00", date(weekday(k / 24)), k % 24), price(k)));
    let hours = write("AAA.csv", hours.collect());
    let days = write("BBB.csv", (0..40 * 5).map(|k| (date(weekday(k)), price(k))).collect());
    let weeks = write("CCC.csv", (0..40).map(|k| (date(7 * k), price(k))).collect());
    let coins = write("BTCUSD.csv", (0..40 * 7).map(|k| (date(k), price(k))).collect());
    let pairs = [("EURUSD.csv", ""), ("GBPUSD.csv", " 00:00:00-05:00")].map(|(name, time)| {
        let rows = (0..40 * 5).map(|k| (format!("{}{time}", date(weekday(k))), price(k)));
        write(name, rows.collect())
    });
    let pair_weeks = [("AUDUSD.csv", ""), ("NZDUSD.csv", " 00:00:00-05:00")].map(|(name, time)| {
        let rows = (0..40).map(|k| (format!("{}{time}", date(7 * k)), price(k)));
        write(name, rows.collect())
    });
    // The bar at place 20 is another one: of Monday 2018-01-29, or of the week from day 140 on.
    let context = |name: &str, count: usize, day: &dyn Fn(usize) -> usize| -> [PathBuf; 2] {
        [0, 50].map(|more| {
            let close = |k: usize| price(k) + if k == 20 { more } else { 0 };
            let rows = (0..count).map(|k| (format!("{} 00:00:00-05:00", date(day(k))), close(k)));
            write(&format!("{name}{more}.csv"), rows.collect())
        })
    };
    let (context_days, context_weeks) = (context("SPYD", 40 * 5, &weekday), context("SPYW", 40, &|k| 7 * k));
    // Hours from Monday 2018-01-01 on.
    for (bars, symbol, [path, other], timeframe, seen_first_hour) in [
        (&hours, "SPY", &context_days, "H1", 29 * 24 + 5),
        (&hours, "SPY", &context_days, "D1", 30 * 24),
        (&days, "SPY", &context_days, "D1", 29 * 24),
        (&hours, "SPY", &context_weeks, "W1", 22 * 7 * 24),
        (&days, "SPY", &context_weeks, "W1", 22 * 7 * 24),
        (&weeks, "SPY", &context_weeks, "W1", 21 * 7 * 24),
        // Currencies and coins trade until the end.
        (&days, "EURUSD", &context_days, "D1", 30 * 24),
        (&weeks, "BTCUSD", &context_weeks, "W1", 22 * 7 * 24),
        // So do those that they stand beside, and end at midnight in UTC, unless they are dated in
        // New York, too.
        (&coins, "SPY", &context_days, "D1", 30 * 24),
        (&pairs[0], "SPY", &context_days, "D1", 30 * 24),
        (&pairs[1], "SPY", &context_days, "D1", 29 * 24),
        (&pair_weeks[0], "SPY", &context_weeks, "W1", 22 * 7 * 24),
        (&pair_weeks[1], "SPY", &context_weeks, "W1", 21 * 7 * 24),
    ] {
        let (found, clock) = seen_first(bars, symbol, [path, other], timeframe);
        assert_eq!(found, seen_first_hour, "{} {symbol} {timeframe}", bars.display());
        assert_eq!(clock, None);
    }
}

/// A share's days at New York's midnights stood a day late beside days of a coin, without a word.
#[test]
fn days_of_a_context_that_are_seen_a_bar_later_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, rows: Vec<(String, usize)>| write_rows(folder.path().join(name), rows);
    let days = |zone: &str| (0..200).map(|k| (format!("{}{zone}", date(weekday(k))), price(k))).collect::<Vec<_>>();
    let in_new_york = " 00:00:00-05:00";
    let coins = write("BTCUSD.csv", (0..280).map(|k| (date(k), price(k))).collect());
    let shares = write("KO.csv", days(""));
    let (early, dated) = (write("SPY.csv", days(in_new_york)), write("dates.csv", days("")));
    let in_tokyo = write("tokyo.csv", days(" 00:00:00+09:00"));
    for (bars, symbol, path, is_told) in [
        (&coins, "SPY", &early, true),
        (&coins, "SPY", &dated, false),
        (&coins, "N225", &in_tokyo, false),
        // It may have trades until then.
        (&coins, "EURUSD", &early, false),
        (&shares, "SPY", &early, false),
    ] {
        let recipe = Recipe {
            bars: vec![bars.clone()],
            context: vec![ContextFile { symbol: symbol.to_owned(), path: path.clone() }],
            timeframes: windows("D1:2"),
            features: "log_return".parse().unwrap(),
            target: TargetKind::LogReturn,
            horizon: 1,
            scaling: Scaling::None,
            ..Recipe::default()
        };
        let notes = Notes::default();
        ingest(&recipe, &folder.path().join("series.h5"), &Host { observer: &notes, ..Host::silent() }).unwrap();
        let notes = notes.0.into_inner().unwrap();
        let told: Vec<&String> = notes.iter().filter(|note| note.contains("are seen a bar later")).collect();
        assert_eq!(told.len(), usize::from(is_told), "{symbol} {}: {notes:?}", bars.display());
        assert!(
            told.iter().all(|note| note.starts_with("note: context SPY: its bars end 5 h 0 min after")),
            "{told:?}"
        );
    }
}

/// Dates were taken for days of UTC where each row of the bars states an offset: they were seen
/// five hours before they had ended.
#[test]
fn dates_of_a_context_end_by_the_offset_that_the_bars_state() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, rows: Vec<(String, usize)>| write_rows(folder.path().join(name), rows);
    // The day at place 20 is another one: Monday 2018-01-29.
    let [days, others] = [0, 50].map(|more| {
        let close = |k: usize| price(k) + if k == 20 { more } else { 0 };
        write(&format!("SPY{more}.csv"), (0..40 * 5).map(|k| (date(weekday(k)), close(k))).collect())
    });
    // New York's summer has the offset -04:00.
    for (offsets, clock, hours) in [
        ([""; 2], None, 0),
        (["+00:00"; 2], None, 0),
        (["+02:00"; 2], None, 0),
        (["-05:00"; 2], Some("-05:00"), 5),
        (["-05:00", "-04:00"], Some("-05:00"), 5),
    ] {
        let time = |k: usize| format!("{} {:02}:00:00{}", date(weekday(k / 24)), k % 24, offsets[k / (20 * 120)]);
        let bars = write("AAA.csv", (0..40 * 120).map(|k| (time(k), price(k))).collect());
        let found = seen_first(&bars, "SPY", [&days, &others], "H1");
        assert_eq!(found, (29 * 24 + hours, clock.map(str::to_owned)), "{offsets:?}");
    }
}

/// Days and weeks of dates were seen four or five hours before they had ended, where the clock of
/// the bars was found and not stated.
#[test]
fn dates_of_a_context_are_those_of_the_clock_that_the_bars_were_found_to_have() {
    let folder = tempfile::tempdir().unwrap();
    let date = |day: i64| crate::text::utc(day * DAY_NS)[..10].to_owned();
    let price = |k: i64| 100 + k * 7 % 11;
    // Weeks from Sunday 17:00 in New York on, of which the first is 2017-12-31, until July.
    let hour = |k: i64| {
        let hour = 17_531 * 24 + k / 120 * 7 * 24 + 17 + k % 120;
        (date(hour / 24), hour % 24, price(k))
    };
    let in_histdata = |k: i64| {
        let (date, hour, price) = hour(k);
        let day = date.replace('-', "");
        format!("{day} {hour:02}0000;{price}.0;{}.0;{}.0;{price}.0;0\n", price + 1, price - 1)
    };
    let hours = folder.path().join("EURUSD.csv");
    fs::write(&hours, (0..30 * 120).map(in_histdata).collect::<String>()).unwrap();
    let dated = |name: &str, days: &dyn Fn(i64) -> i64, count: i64| -> PathBuf {
        let line = |k: i64| format!("{},{p},{},{},{p},9\n", date(days(k)), price(k) + 1, price(k) - 1, p = price(k));
        let path = folder.path().join(name);
        fs::write(&path, format!("date,open,high,low,close,volume\n{}", (0..count).map(line).collect::<String>()))
            .unwrap();
        path
    };
    // From Monday 2018-01-01 on.
    let days = dated("GBPUSD_days.csv", &|k| 17_532 + k / 5 * 7 + k % 5, 30 * 5);
    let weeks = dated("GBPUSD_weeks.csv", &|k| 17_532 + 7 * k, 30);
    for context in [days, weeks] {
        let values = |zone: Option<&str>| -> (serde_json::Value, Vec<u32>) {
            let recipe = Recipe {
                bars: vec![hours.clone()],
                context: vec![ContextFile { symbol: "GBPUSD".to_owned(), path: context.clone() }],
                timeframes: windows("H1:2"),
                features: "log_return".parse().unwrap(),
                target: TargetKind::LogReturn,
                horizon: 1,
                scaling: Scaling::None,
                zone: zone.map(|zone| zone.parse().unwrap()),
                ..Recipe::default()
            };
            let out = folder.path().join("series.h5");
            let report = ingest(&recipe, &out, &Host::silent()).unwrap();
            let clock = report.json["source"]["instruments"][0]["files"][0]["zone"].clone();
            // Frames that are followed with are read by it.
            let ContextTiming { beside, day_zone } = FunctionInputs::read(&out).unwrap().timing;
            assert_eq!((beside, day_zone.map(|zone| zone.to_string()).as_deref()), (Timeframe::H1, clock.as_str()));
            let proof = crate::leak::Options { samples: 2, ..crate::leak::Options::default() };
            crate::leak::prove(&out, &proof, &Host::silent()).unwrap();
            let series = SeriesFile::open(&out, &Device::cpu().scope("test")).unwrap().read().unwrap();
            (clock, series.timeframes[0].values.iter().map(|value| value.to_bits()).collect())
        };
        let found = values(None);
        assert_eq!(found.0, "America/New_York");
        assert!(found == values(Some("America/New_York")), "{}", context.display());
    }
}

/// Hours of a context in UTC were read by the zone of the bars, without a word.
#[test]
fn hours_of_a_context_without_an_offset_are_doubted_beside_a_stated_zone() {
    let folder = tempfile::tempdir().unwrap();
    let hours = |name: &str, offset: &str| {
        let time = |k: usize| format!("{} {:02}:00:00{offset}", date(weekday(k / 24)), k % 24);
        write_rows(folder.path().join(name), (0..24 * 40).map(|k| (time(k), price(k))).collect())
    };
    let (own, wall, utc) = (hours("AAA.csv", ""), hours("wall.csv", ""), hours("utc.csv", "+00:00"));
    let days = write_rows(folder.path().join("days.csv"), (0..40).map(|k| (date(weekday(k)), price(k))).collect());
    for (path, zone, is_doubted) in [
        (&wall, Some("+02:00"), true),
        (&wall, Some("UTC"), false),
        (&wall, None, false),
        (&utc, Some("+02:00"), false),
        (&days, Some("+02:00"), false),
    ] {
        let recipe = Recipe {
            bars: vec![own.clone()],
            context: vec![ContextFile { symbol: "SPY".to_owned(), path: path.clone() }],
            timeframes: windows("H1:2"),
            features: "log_return".parse().unwrap(),
            target: TargetKind::LogReturn,
            horizon: 1,
            scaling: Scaling::None,
            zone: zone.map(|zone| zone.parse().unwrap()),
            ..Recipe::default()
        };
        let notes = Notes::default();
        ingest(&recipe, &folder.path().join("series.h5"), &Host { observer: &notes, ..Host::silent() }).unwrap();
        let told = "warning: context SPY: its times have no offset and are read in the zone +02:00, as those of the";
        let notes = notes.0.lock().unwrap();
        let count = notes.iter().filter(|note| note.starts_with(told)).count();
        assert_eq!(count, usize::from(is_doubted), "{} {zone:?}: {notes:?}", path.display());
    }
}

/// The refusal asked for all bars of the context, which had them.
#[test]
fn an_append_tells_that_the_clock_of_the_bars_has_moved_the_dates_of_a_context() {
    let folder = tempfile::tempdir().unwrap();
    let hours = |name: &str, days: std::ops::Range<usize>, offset: &str| {
        let time = |k: usize| format!("{} {:02}:00:00{offset}", date(weekday(k / 24)), k % 24);
        fs::create_dir(folder.path().join(name)).unwrap();
        let rows = (24 * days.start..24 * days.end).map(|k| (time(k), price(k)));
        write_rows(folder.path().join(name).join("AAA.csv"), rows.collect())
    };
    // New York's summer, and the winter after.
    let (summer, winter) = (hours("summer", 0..60, "-04:00"), hours("winter", 60..80, "-05:00"));
    let context = write_rows(folder.path().join("SPY.csv"), (0..80).map(|k| (date(weekday(k)), price(k))).collect());
    let recipe = Recipe {
        bars: vec![summer],
        context: vec![ContextFile { symbol: "SPY".to_owned(), path: context }],
        timeframes: windows("H1:2"),
        features: "log_return".parse().unwrap(),
        target: TargetKind::LogReturn,
        horizon: 1,
        scaling: Scaling::None,
        ..Recipe::default()
    };
    let out = folder.path().join("series.h5");
    ingest(&recipe, &out, &Host::silent()).unwrap();
    let added = Recipe { bars: vec![winter], ..Recipe::default() };
    let error = append(&added, &[], &out, &Host::silent()).unwrap_err().to_string();
    let (clocks, remedy) =
        ("of the clock -05:00 beside H1 bars now, and were of the clock -04:00", "ingest all files anew");
    assert!(error.starts_with("context SPY: ") && error.contains(clocks) && error.ends_with(remedy), "{error}");
}

/// Days of a context that were too few for its features had "no value at any bar", and one bar was
/// to state its timeframe, which no option takes.
#[test]
fn a_context_of_too_few_bars_is_told_how_many_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let bars = days(folder.path().join("KO.csv"), 0..200, |_, date| date.to_owned());
    for (count, features, says) in [
        (43, "default", "and there are 43 up to the end of these bars: give "),
        (2, "log_return_12", "at bar 13 of it, and there are 2 up to the end of these bars: give 13 bars or more"),
        (1, "log_return_12", "context SPY: no two bars have different times: "),
        (1, "log_return_12", "one bar is too few, and the first value of the features is at bar 13: give 13 bars"),
        (1, "body", "at bar 2: give 2 bars or more of one timeframe"),
    ] {
        let path = days(folder.path().join("SPY.csv"), 0..count, |_, date| date.to_owned());
        let recipe = Recipe {
            bars: vec![bars.clone()],
            context: vec![ContextFile { symbol: "SPY".to_owned(), path }],
            timeframes: windows("D1:5"),
            features: features.parse().unwrap(),
            target: TargetKind::LogReturn,
            horizon: 1,
            ..Recipe::default()
        };
        let error = ingest(&recipe, &folder.path().join("series.h5"), &Host::silent()).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains("--base"), "{count} {features}: {error}");
    }
}

/// A context had no value until as many of its bars stood beside the others as its features read,
/// however many it had before.
#[test]
fn earlier_bars_of_a_context_are_the_warm_up_of_its_features() {
    let folder = tempfile::tempdir().unwrap();
    let hours = |name: &str, days: std::ops::Range<usize>| {
        let time = |k: usize| format!("{} {:02}:00", date(weekday(k / 24)), k % 24);
        fs::create_dir(folder.path().join(name)).unwrap();
        let rows = (24 * days.start..24 * days.end).map(|k| (time(k), price(k)));
        write_rows(folder.path().join(name).join("AAA.csv"), rows.collect())
    };
    // Each begins with a Monday.
    let (all, first, second) = (hours("all", 300..500), hours("first", 300..450), hours("second", 450..500));
    let out = folder.path().join("series.h5");
    let ingested = |bars: &PathBuf, first_day: usize| {
        let rows = (first_day..500).map(|k| (date(weekday(k)), price(k)));
        let path = write_rows(folder.path().join(format!("SPY{first_day}.csv")), rows.collect());
        let recipe = Recipe {
            bars: vec![bars.clone()],
            context: vec![ContextFile { symbol: "SPY".to_owned(), path }],
            timeframes: windows("H1:2"),
            features: "log_return_12,body".parse().unwrap(),
            target: TargetKind::LogReturn,
            horizon: 1,
            scaling: Scaling::None,
            ..Recipe::default()
        };
        let report = ingest(&recipe, &out, &Host::silent()).unwrap();
        report.json["functions"]["warm_up_bars"]["AAA"].as_u64().unwrap()
    };
    let read = || SeriesFile::open(&out, &Device::cpu().scope("test")).unwrap().read().unwrap();

    assert_eq!(ingested(&all, 0), 0);
    let whole = read();
    let rows = &whole.timeframes[0];
    let place = rows.feature_names.iter().position(|name| name == "function:SPY.log_return_12").unwrap();
    for (values, &close_time) in rows.values.chunks_exact(rows.feature_names.len()).zip(&rows.close_time) {
        let has_closed = |day: &usize| (17_532 + weekday(*day) as i64 + 1) * DAY_NS <= close_time;
        let last = (0..500).rev().find(has_closed).unwrap();
        let expected = (price(last) as f64 / price(last - 12) as f64).ln();
        assert!((f64::from(values[place]) - expected).abs() < 1e-6, "{close_time} {last}: {values:?} {expected}");
    }
    // The first sample, of a Monday's afternoon, reads a Friday and the twelve days before it.
    let reach_days = (whole.sample_time[0] - whole.sample_reach_time[0]) as f64 / DAY_NS as f64;
    assert!((19.0..20.0).contains(&reach_days), "{reach_days}");
    let proof = crate::leak::Options { samples: 2, ..crate::leak::Options::default() };
    let report = crate::leak::prove(&out, &proof, &Host::silent()).unwrap();
    assert_eq!(report.json["split"]["splits"], 1);

    // No more than the features read are used, and none is missing.
    assert_eq!(ingested(&all, 287), 0);
    assert!(read() == Series { attributes: read().attributes, ..whole.clone() });
    // Friday's is not enough, and the next day ends after 24 hours.
    assert_eq!(ingested(&all, 288), 23);

    assert_eq!(ingested(&first, 0), 0);
    append(&Recipe { bars: vec![second], ..Recipe::default() }, &[], &out, &Host::silent()).unwrap();
    let mut appended = read();
    // Scalers stay those of the first bars.
    for (own, all) in appended.timeframes.iter_mut().zip(&whole.timeframes) {
        own.scaler.clone_from(&all.scaler);
    }
    assert!(appended == Series { attributes: appended.attributes.clone(), ..whole });
    crate::leak::prove(&out, &proof, &Host::silent()).unwrap();
}

/// Earlier bars of a context give rows that the series did not have, and a hole was blamed.
#[test]
fn an_append_tells_that_a_context_has_earlier_bars_than_then() {
    let folder = tempfile::tempdir().unwrap();
    let stamp = |_: usize, date: &str| date.to_owned();
    let context = |first: usize| days(folder.path().join("SPY.csv"), first..200, stamp);
    let recipe = Recipe {
        bars: vec![days(folder.path().join("KO.csv"), 100..200, stamp)],
        context: vec![ContextFile { symbol: "SPY".to_owned(), path: context(100) }],
        timeframes: windows("D1:5"),
        features: "log_return_12".parse().unwrap(),
        target: TargetKind::LogReturn,
        horizon: 1,
        scaling: Scaling::None,
        ..Recipe::default()
    };
    let out = folder.path().join("series.h5");
    ingest(&recipe, &out, &Host::silent()).unwrap();
    let as_it_was = fs::read(&out).unwrap();
    context(80);
    let error = append(&Recipe::default(), &[], &out, &Host::silent()).unwrap_err().to_string();
    let says = "(bars of another instrument from before those that its features read, a hole";
    assert!(error.contains(says) && error.ends_with("nothing was written; ingest all files anew"), "{error}");
    assert!(fs::read(&out).unwrap() == as_it_was);
}

/// The note named features of the bars alone.
#[test]
fn a_context_without_earlier_bars_is_told_what_it_costs() {
    let folder = tempfile::tempdir().unwrap();
    let stamp = |_: usize, date: &str| date.to_owned();
    let notes_beside = |first: usize| {
        let recipe = Recipe {
            bars: vec![days(folder.path().join("KO.csv"), 100..200, stamp)],
            context: vec![ContextFile {
                symbol: "SPY".to_owned(),
                path: days(folder.path().join("SPY.csv"), first..200, stamp),
            }],
            timeframes: windows("D1:5"),
            features: "log_return_12".parse().unwrap(),
            target: TargetKind::LogReturn,
            horizon: 1,
            scaling: Scaling::None,
            ..Recipe::default()
        };
        let notes = Notes::default();
        ingest(&recipe, &folder.path().join("series.h5"), &Host { observer: &notes, ..Host::silent() }).unwrap();
        notes.0.into_inner().unwrap()
    };
    let says = "KO: 12 of 100 bars are dropped, until the context SPY has values: log_return_12 reads 12 bars of it";
    assert!(notes_beside(100).iter().any(|note| note.starts_with(says)));
    assert!(!notes_beside(88).iter().any(|note| note.contains("the context SPY")));
}

/// Nothing tells bars apart by a value that all of them see.
#[test]
fn a_context_that_ends_before_the_bars_begin_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let stamp = |_: usize, date: &str| date.to_owned();
    let recipe = Recipe {
        bars: vec![days(folder.path().join("KO.csv"), 100..200, stamp)],
        context: vec![ContextFile {
            symbol: "SPY".to_owned(),
            path: days(folder.path().join("SPY.csv"), 0..100, stamp),
        }],
        timeframes: windows("D1:5"),
        features: "log_return".parse().unwrap(),
        target: TargetKind::LogReturn,
        horizon: 1,
        ..Recipe::default()
    };
    let error = ingest(&recipe, &folder.path().join("series.h5"), &Host::silent()).unwrap_err().to_string();
    let says = "the last bar of the other instrument closes at 2018-05-19T00:00:00Z, before these bars begin: give its";
    assert!(error.contains("context SPY: ") && error.contains(says), "{error}");
}
