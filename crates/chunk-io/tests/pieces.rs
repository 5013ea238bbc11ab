//! A series that is written piece by piece has the bytes of one that is written whole.

mod made;

use std::fs;

use made::{Plan, timeframe};
use megabatch_chunk_io::{
    BarRows, Error, SampleRows, Series, SeriesDescription, SeriesWriter, Storage, TimeframeDescription, WriteOptions,
    write_series, write_series_in_pieces,
};
use proptest::prelude::*;

fn description(series: &Series) -> SeriesDescription {
    let of = |timeframe: &megabatch_chunk_io::SeriesTimeframe| TimeframeDescription {
        name: timeframe.name.clone(),
        steps: timeframe.steps,
        feature_names: timeframe.feature_names.clone(),
        bars: timeframe.close_time.len(),
        instrument_start: timeframe.instrument_start.clone(),
        segment_start: timeframe.segment_start.clone(),
        scaler: timeframe.scaler.clone(),
    };
    SeriesDescription {
        timeframes: series.timeframes.iter().map(of).collect(),
        samples: series.sample_time.len(),
        horizons: series.targets.len() / series.sample_time.len(),
        instruments: series.instruments.as_ref().map(|instruments| instruments.names.clone()),
        attributes: series.attributes.clone(),
    }
}

/// A series with all that `ingest` writes.
fn series(plan: &Plan) -> Series {
    let mut series = made::series(plan);
    series.sample_reach_time = series.sample_time.iter().map(|time| time - 7).collect();
    series.sample_label_end_time = series.sample_time.iter().map(|time| time + 9).collect();
    series
}

/// Writes the rows from `first` on of everything, `count` bars or samples.
fn write_rows(writer: &SeriesWriter<'_>, series: &Series, first: usize, count: usize) -> Result<(), Error> {
    let cut = |len: usize| first.min(len)..(first + count).min(len);
    let samples = cut(series.sample_time.len());
    for (place, timeframe) in series.timeframes.iter().enumerate() {
        let (bars, width) = (cut(timeframe.close_time.len()), timeframe.feature_names.len());
        // Bars of two instruments are not one piece.
        for bar in bars {
            writer.write_bars(&BarRows {
                timeframe: place,
                first: bar,
                values: &timeframe.values[bar * width..(bar + 1) * width],
                close_time: &timeframe.close_time[bar..=bar],
            })?;
        }
        writer.write_ends(place, samples.start, &timeframe.sample_end[samples.clone()])?;
    }
    let horizons = series.targets.len() / series.sample_time.len();
    let instrument = series.instruments.as_ref().map_or(&[][..], |all| &all.sample_instrument[samples.clone()]);
    writer.write_samples(&SampleRows {
        first: samples.start,
        time: &series.sample_time[samples.clone()],
        reach_time: &series.sample_reach_time[samples.clone()],
        label_end_time: &series.sample_label_end_time[samples.clone()],
        targets: &series.targets[samples.start * horizons..samples.end * horizons],
        instrument,
    })
}

proptest! {
    #[test]
    fn the_file_is_that_of_the_whole_series(
        bars in prop::collection::vec(9_usize..300, 1..4), horizons in 1_usize..40, features in 1_usize..30, rows in 1_usize..90,
        backward in any::<bool>(),
    ) {
        let timeframes = vec![timeframe("M1", 1, 4, features), timeframe("M5", 5, 1, features)];
        let series = series(&Plan { timeframes, base_bars: bars, horizons });
        let folder = tempfile::tempdir().unwrap();
        let [whole, pieces] = ["whole.h5", "pieces.h5"].map(|name| folder.path().join(name));
        write_series(&whole, &series, &WriteOptions { storage: Storage::Contiguous }).unwrap();
        let most = series.timeframes.iter().map(|timeframe| timeframe.close_time.len()).max().unwrap();
        let mut firsts: Vec<usize> = (0..most).step_by(rows).collect();
        if backward {
            firsts.reverse();
        }
        write_series_in_pieces(&pieces, &description(&series), |writer| {
            firsts.iter().try_for_each(|&first| write_rows(writer, &series, first, rows))
        })
        .unwrap();
        prop_assert!(fs::read(&whole).unwrap() == fs::read(&pieces).unwrap(), "other bytes");
    }
}

#[test]
fn what_breaks_a_rule_leaves_no_file() {
    let series = series(&Plan::two_instruments());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    type Change = fn(&mut Series);
    let cases: [(Change, &str); 5] = [
        (|series| series.timeframes[0].values[5] = f32::NAN, "NaN for"),
        (|series| series.targets[3] = f32::INFINITY, "/targets[1]: expected finite numbers"),
        (|series| series.sample_reach_time[2] = i64::MAX, "/samples/reach_time[2]"),
        (|series| series.timeframes[1].steps = 0, "seq_len: expected at least 1"),
        (
            |series| series.timeframes[0].scaler.as_mut().unwrap().scale[0] = f64::NAN,
            "expected finite numbers, found NaN",
        ),
    ];
    for (change, message) in cases {
        let mut broken = series.clone();
        change(&mut broken);
        let written = write_series_in_pieces(&path, &description(&broken), |writer| {
            write_rows(writer, &broken, 0, usize::MAX / 2)
        });
        let error = written.unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let short = write_series_in_pieces(&path, &description(&series), |writer| write_rows(writer, &series, 1, 1000));
    assert!(matches!(short, Err(Error::BadRequest { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
