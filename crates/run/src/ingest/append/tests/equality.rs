//! A series to which bars were appended is, byte for byte, that of all bars with its scalers.

use std::collections::BTreeSet;

use megabatch_bars::{Feature, OnError, TargetKind, Weekends};
use megabatch_chunk_io::SeriesFile;
use megabatch_gpu_core::Device;
use proptest::prelude::*;

use super::*;
use crate::ingest::provenance::KeptScaler;
use crate::ingest::tests::{column_features, with_columns};
use crate::ingest::{Calendar, FeatureList, Overlaps, Scaling};
use crate::text::{Duration, utc};

/// Recipes whose samples before a moment are decided by the bars before it, and then two that all
/// instruments share.
fn changed(recipe: &mut Recipe, which: usize) {
    match which {
        0 => {}
        1 => recipe.weekends = Weekends::NotSpanned,
        2 => recipe.target = TargetKind::Increment,
        3 => recipe.timeframes = windows("M5:24,H1:6"),
        4 => recipe.on_error = OnError::Skip,
        5 => recipe.on_error = OnError::Repair,
        6 => recipe.scaling = Scaling::Standard,
        10 => {
            recipe.timeframes = windows("M1:30,H4:4");
            recipe.features = FeatureList(vec![Feature::Body]);
            recipe.bins = "new-york+7".parse().unwrap();
        }
        7 => recipe.longest_hole = Duration { ns: 120_000_000_000 },
        8 => recipe.calendar = Calendar::Common,
        _ => recipe.stride = 7,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn appended_bars_give_the_series_of_all_bars(
        shares in prop::array::uniform3(0.6f64..0.999), overlap in 0usize..300, which in 0usize..11,
        is_one in any::<bool>(), is_twice in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // The second has a hole, and the third gets no bars.
        let count = if is_one { 1 } else { 3 };
        let all: Vec<PathBuf> =
            [("EURUSD-all.csv", 1, 0..0), ("GBPUSD-all.csv", 2, 4_000..4_100), ("USDJPY-all.csv", 3, 0..0)]
                .into_iter()
                .take(count)
                .map(|(name, seed, lost)| bars(folder.path(), name, 10, seed, std::slice::from_ref(&lost)))
                .collect();
        if which == 4 || which == 5 {
            let text = fs::read_to_string(&all[0]).unwrap();
            let defective: String = text.lines().enumerate().map(|(k, row)| if k % 997 == 500 { "20180101 nothing\n".to_owned() } else { format!("{row}\n") }).collect();
            fs::write(&all[0], defective).unwrap();
        }
        let (mut old, mut new) = (Vec::new(), [Vec::new(), Vec::new()]);
        for (k, whole) in all.iter().enumerate() {
            let symbol = ["EURUSD", "GBPUSD", "USDJPY"][k];
            let rows = rows_in(whole);
            let cut = (shares[k] * rows as f64) as usize;
            old.push(part(whole, &format!("{symbol}-old.csv"), 0..cut));
            if k < 2 {
                let middle = if is_twice { cut + (rows - cut) / 2 } else { rows };
                new[0].push(part(whole, &format!("{symbol}-new.csv"), cut.saturating_sub(overlap)..middle));
                if is_twice {
                    new[1].push(part(whole, &format!("{symbol}-newest.csv"), middle - overlap.min(middle)..rows));
                }
            }
        }
        let mut recipe = base(old);
        changed(&mut recipe, which);
        let out = at("series.h5");
        ingest(&recipe, &out, &Host::silent()).unwrap();
        let scalers = ExistingSeries::open(&out).unwrap().scalers;
        for new in new.iter().filter(|new| !new.is_empty()) {
            let before = fs::read(&out).unwrap();
            match appended(new, &out) {
                Ok(_) => {}
                // What instruments share, others' bars change.
                Err(error) if (8..10).contains(&which) && !is_one => {
                    let said = error.to_string();
                    prop_assert!(said.contains("would"), "{said}");
                    prop_assert!(fs::read(&out).unwrap() == before);
                    return Ok(());
                }
                Err(error) => panic!("{which}: {error}"),
            }
            prop_assert_eq!(&ExistingSeries::open(&out).unwrap().scalers, &scalers);
            if recipe.calendar == Calendar::All || is_one {
                prop_assert!(fs::read(&out).unwrap() == ingested_anew(&out, &scalers), "{}: other bytes", which);
            }
        }
        let options = leak::Options { samples: 2, ..leak::Options::default() };
        leak::prove(&out, &options, &Host::silent()).unwrap();
        prop_assert!(names_in(folder.path()).iter().all(|name| !name.starts_with('.')));
    }
}

/// The bars of one instrument end before the training span does, and those that come later lie in
/// it: its scaler stays, and `leak` fits it on the bars of then.
#[test]
fn bars_that_come_late_within_the_training_span_change_no_scaler() {
    let folder = tempfile::tempdir().unwrap();
    let all =
        [("EURUSD-all.csv", 1), ("GBPUSD-all.csv", 2)].map(|(name, seed)| bars(folder.path(), name, 10, seed, &[]));
    let rows = rows_in(&all[0]);
    let old = part(&all[0], "EURUSD-old.csv", 0..rows / 2);
    let out = folder.path().join("series.h5");
    ingest(&base(vec![old, part(&all[1], "GBPUSD-old.csv", 0..rows_in(&all[1]))]), &out, &Host::silent()).unwrap();
    let scalers = ExistingSeries::open(&out).unwrap().scalers;
    for (name, range) in [("EURUSD-new.csv", rows / 2..rows * 3 / 4), ("EURUSD-newest.csv", rows * 3 / 4..rows)] {
        appended(&[part(&all[0], name, range)], &out).unwrap();
        let kept = ExistingSeries::open(&out).unwrap();
        assert_eq!(kept.scalers, scalers);
        let KeptScaler { fit_end_time, fitted_until } = kept.kept_scaler();
        assert_eq!(fitted_until.keys().collect::<Vec<_>>(), ["EURUSD"]);
        assert!(fitted_until["EURUSD"] < fit_end_time);
        leak::prove(&out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
    }
}

/// Every array of a file under its name, as the bits of its numbers.
fn arrays(path: &Path) -> Vec<(String, Vec<u64>)> {
    let file = SeriesFile::open(path, &Device::cpu().scope("test")).unwrap();
    let series = file.read().unwrap();
    let whole = |numbers: &[i64]| numbers.iter().map(|number| number.cast_unsigned()).collect::<Vec<u64>>();
    let bits = |numbers: &[f32]| numbers.iter().map(|number| number.to_bits().into()).collect::<Vec<u64>>();
    let mut arrays = vec![
        ("/samples/time".to_owned(), whole(&series.sample_time)),
        ("/samples/reach_time".to_owned(), whole(&series.sample_reach_time)),
        ("/samples/label_end_time".to_owned(), whole(&series.sample_label_end_time)),
        ("/samples/weight".to_owned(), bits(&series.sample_weight)),
        ("/targets".to_owned(), bits(&series.targets)),
    ];
    if let Some(instruments) = &series.instruments {
        arrays.push(("/instruments".to_owned(), instruments.names.join(",").bytes().map(u64::from).collect()));
        let sample_instruments: Vec<i64> =
            instruments.sample_instrument.iter().map(|&place| i64::from(place)).collect();
        arrays.push(("/samples/instrument".to_owned(), whole(&sample_instruments)));
    }
    for timeframe in &series.timeframes {
        let name = &timeframe.name;
        arrays.push((format!("/series/{name}/values"), bits(&timeframe.values)));
        arrays.push((format!("/series/{name}/close_time"), whole(&timeframe.close_time)));
        arrays.push((format!("/series/{name}/instrument_start"), whole(&timeframe.instrument_start)));
        arrays.push((format!("/series/{name}/segment_start"), whole(&timeframe.segment_start)));
        arrays.push((format!("/samples/end/{name}"), whole(&timeframe.sample_end)));
        let scaler = timeframe.scaler.as_ref().unwrap();
        for (array, numbers) in [("center", &scaler.center), ("scale", &scaler.scale)] {
            let bits = numbers.iter().map(|number| number.to_bits()).collect();
            arrays.push((format!("/scaler/{name}/{array}"), bits));
        }
    }
    arrays
}

/// A day is cut off at several places, within an hour and four hours, and appended; the series of
/// all bars that `ingest` makes with the same scalers has the same arrays.
#[test]
fn the_arrays_are_those_of_a_series_that_was_ingested_whole() {
    let folder = tempfile::tempdir().unwrap();
    let symbols = ["EURUSD", "GBPUSD", "USDJPY"];
    let all: Vec<PathBuf> = symbols
        .iter()
        .zip([&[][..], &[4_000..4_100, 9_100..9_400], &[]])
        .zip(1..)
        .map(|((symbol, lost), seed)| bars(folder.path(), &format!("{symbol}-all.csv"), 12, seed, lost))
        .collect();
    let defective = folder.path().join("EURUSD-defective.csv");
    let text = fs::read_to_string(&all[0]).unwrap();
    let row = |(k, row): (usize, &str)| match k % 997 {
        500 => "20180101 nothing\n".to_owned(),
        501 => format!("{row}\n{row}\n"),
        _ => format!("{row}\n"),
    };
    fs::write(&defective, text.lines().enumerate().map(row).collect::<String>()).unwrap();
    let one = &all[..1];
    type Change = fn(&mut Recipe);
    let cases: [(&str, &[PathBuf], Change); 7] = [
        ("one", one, |_| {}),
        ("one with a stride", one, |recipe| recipe.stride = 3),
        ("split at weekends", one, |recipe| recipe.weekends = Weekends::NotSpanned),
        ("increments", one, |recipe| recipe.target = TargetKind::Increment),
        ("repaired", std::slice::from_ref(&defective), |recipe| recipe.on_error = OnError::Repair),
        ("three", &all, |_| {}),
        ("by a broker's clock", std::slice::from_ref(&all[0]), |recipe| recipe.bins = "new-york+7".parse().unwrap()),
    ];
    for (label, files, change) in cases {
        // The last minute before the weekend, of a bin of one, five and 60 minutes, and in between.
        for cut in [7_000, 7_103, 7_117, 7_176, 8_500] {
            let mut recipe = Recipe { timeframes: windows("M1:30,M5:6,H1:3,H4:2"), ..base(Vec::new()) };
            let features = [Feature::LogReturn, Feature::Rsi14, Feature::RelativeVolume, Feature::DaySin];
            recipe.features = FeatureList(features.to_vec());
            change(&mut recipe);
            let (mut old, mut new) = (Vec::new(), Vec::new());
            for (file, symbol) in files.iter().zip(symbols) {
                old.push(part(file, &format!("{symbol}-old.csv"), 0..cut));
                new.push(part(file, &format!("{symbol}-new.csv"), cut..rows_in(file)));
            }
            let [out, whole] = ["out.h5", "whole.h5"].map(|name| folder.path().join(name));
            ingest(&Recipe { bars: old.clone(), ..recipe.clone() }, &out, &Host::silent()).unwrap();
            let before = ExistingSeries::open(&out).unwrap();
            let (samples, fit_end) = (before.samples(), before.scalers.fit_end_time);
            drop(before);
            let report = append(&base(new.clone()), &[], &out, &Host::silent()).unwrap();

            // The fraction of all samples that ends where that of the old ones did.
            let series = ExistingSeries::open(&out).unwrap();
            let mut times = vec![0; series.samples()];
            series.read_sample_times(&mut times);
            drop(series);
            let share = |times: &[i64]| {
                let trained = times.iter().filter(|time| **time < fit_end).count();
                (trained as f64 + 0.5) / times.len() as f64
            };
            let instants: Vec<i64> = times.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            recipe.train_fraction = share(&times).max(share(&instants));
            ingest(&Recipe { bars: [old, new].concat(), ..recipe }, &whole, &Host::silent()).unwrap();
            let expected = ExistingSeries::open(&whole).unwrap();
            assert_eq!(expected.scalers.fit_end_time, fit_end, "{label}: the training span");
            drop(expected);
            for ((name, found), (_, expected)) in arrays(&out).into_iter().zip(arrays(&whole)) {
                assert!(found == expected, "{label}, cut {cut}: {name}");
            }
            assert_eq!(report.json["samples"].as_u64(), Some(times.len() as u64));
            assert!(times.len() > samples, "{label}: no sample came into being");
        }
    }
}

/// Columns of new bars follow those of before, which proves itself.
#[test]
fn columns_are_appended_and_proven() {
    let folder = tempfile::tempdir().unwrap();
    let all = bars(folder.path(), "EURUSD-all.csv", 9, 1, &[]);
    let part = |rows, name: &str| with_columns(&all, rows, name);
    let (old, new) = (part(0..7_100, "EURUSD-old.csv"), part(7_000..20_000, "EURUSD-new.csv"));
    let [out, whole] = ["out.h5", "whole.h5"].map(|name| folder.path().join(name));
    let recipe = Recipe {
        features: column_features(),
        scaling: Scaling::None,
        overlaps: Overlaps::EqualOnce,
        ..base(vec![old])
    };
    ingest(&recipe, &out, &Host::silent()).unwrap();
    append(&base(vec![new.clone()]), &[], &out, &Host::silent()).unwrap();
    let both = Recipe { bars: vec![recipe.bars[0].clone(), new], ..recipe };
    let report = ingest(&both, &whole, &Host::silent()).unwrap();
    assert_eq!(report.json["unused_columns"], serde_json::json!(["note"]));
    for ((name, found), (_, expected)) in arrays(&out).into_iter().zip(arrays(&whole)) {
        assert!(found == expected, "{name}");
    }
    let proven = leak::prove(&out, &leak::Options::default(), &Host::silent()).unwrap();
    assert!(proven.text.contains("not proven: the columns own.\n"), "{}", proven.text);
}

/// Samples whose targets the last bars of before did not reach come into being.
#[test]
fn samples_whose_targets_were_not_known_come_into_being() {
    let stage = Stage::new();
    let times = |path: &Path| {
        let series = ExistingSeries::open(path).unwrap();
        let mut times = vec![0; series.samples()];
        series.read_sample_times(&mut times);
        times
    };
    let before = times(&stage.out);
    appended(&[stage.rest(CUT)], &stage.out).unwrap();
    let after = times(&stage.out);
    let text = fs::read_to_string(&stage.old).unwrap();
    // Each of the last bars, of which there were fewer than the horizon has after them.
    let opens = text.lines().rev().take(5).map(|row| &row[..16]);
    let has = |times: &[i64], open: &str| times.iter().any(|time| utc(time - 60_000_000_000).starts_with(open));
    for open in opens {
        assert!(!has(&before, open) && has(&after, open), "{open}");
    }
}
