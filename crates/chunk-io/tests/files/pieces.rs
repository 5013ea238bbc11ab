//! A series that is written piece by piece has the bytes of one that is written whole.

use std::fs;

use megabatch_chunk_io::{
    BarRows, Error, SampleRows, Series, SeriesDescription, SeriesWriter, Storage, TimeframeDescription, WindowEnds,
    WriteOptions, write_series, write_series_in_pieces,
};
use proptest::prelude::*;

use crate::made::{self, Plan, timeframe};

fn description(series: &Series) -> SeriesDescription {
    let description = |timeframe: &megabatch_chunk_io::SeriesTimeframe| TimeframeDescription {
        name: timeframe.name.clone(),
        steps: timeframe.steps,
        feature_names: timeframe.feature_names.clone(),
        bars: timeframe.close_time.len(),
        instrument_start: timeframe.instrument_start.clone(),
        segment_start: timeframe.segment_start.clone(),
        scaler: timeframe.scaler.clone(),
    };
    SeriesDescription {
        timeframes: series.timeframes.iter().map(description).collect(),
        samples: series.sample_time.len(),
        horizons: series.targets.len() / series.sample_time.len(),
        has_weights: !series.sample_weight.is_empty(),
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

/// Rows of an instrument: of each timeframe the next bar, and the next sample.
struct Progress {
    bars: Vec<usize>,
    sample: usize,
}

/// Bars of an instrument in a timeframe.
fn bars_of(timeframe: &megabatch_chunk_io::SeriesTimeframe, instrument: usize) -> std::ops::Range<usize> {
    match &timeframe.instrument_start[..] {
        [] => 0..timeframe.close_time.len(),
        starts => starts[instrument] as usize..starts[instrument + 1] as usize,
    }
}

/// Samples of an instrument.
fn samples_of(series: &Series, instrument: usize) -> std::ops::Range<usize> {
    let Some(all) = &series.instruments else { return 0..series.sample_time.len() };
    let before = |own: &i32| (*own as usize) < instrument;
    let first = all.sample_instrument.partition_point(before);
    first..first + all.sample_instrument[first..].iter().filter(|&&own| own as usize == instrument).count()
}

/// Writes what an instrument has up to a time.
fn write_until(
    writer: &SeriesWriter<'_>,
    series: &Series,
    instrument: usize,
    until: i64,
    progress: &mut Progress,
) -> Result<(), Error> {
    let own = samples_of(series, instrument);
    let samples = progress.sample..own.start + series.sample_time[own].partition_point(|&time| time <= until);
    let instruments = series.instruments.as_ref().map_or(&[][..], |all| &all.sample_instrument[samples.clone()]);
    for (place, timeframe) in series.timeframes.iter().enumerate() {
        let (own, width) = (bars_of(timeframe, instrument), timeframe.feature_names.len());
        let end = own.start + timeframe.close_time[own].partition_point(|&time| time <= until);
        let bars = progress.bars[place]..end;
        writer.write_bars(&BarRows {
            timeframe: place,
            first: bars.start,
            values: &timeframe.values[bars.start * width..bars.end * width],
            close_time: &timeframe.close_time[bars],
        })?;
        progress.bars[place] = end;
        writer.write_ends(&WindowEnds {
            timeframe: place,
            first: samples.start,
            ends: &timeframe.sample_end[samples.clone()],
            time: &series.sample_time[samples.clone()],
            instrument: instruments,
        })?;
    }
    let horizons = series.targets.len() / series.sample_time.len();
    progress.sample = samples.end;
    writer.write_samples(&SampleRows {
        first: samples.start,
        time: &series.sample_time[samples.clone()],
        reach_time: &series.sample_reach_time[samples.clone()],
        label_end_time: &series.sample_label_end_time[samples.clone()],
        weight: series.sample_weight.get(samples.clone()).unwrap_or_default(),
        targets: &series.targets[samples.start * horizons..samples.end * horizons],
        instrument: instruments,
    })
}

/// Writes all of `series` in pieces that take `step_ns`, instruments in turns of one piece; the
/// turns go round from `turn` on.
fn write_all(writer: &SeriesWriter<'_>, series: &Series, step_ns: i64, turn: usize) -> Result<(), Error> {
    let instruments = series.instruments.as_ref().map_or(1, |all| all.names.len());
    let begin = |instrument| Progress {
        bars: series.timeframes.iter().map(|timeframe| bars_of(timeframe, instrument).start).collect(),
        sample: samples_of(series, instrument).start,
    };
    let mut progress: Vec<Progress> = (0..instruments).map(begin).collect();
    let all_times = series.timeframes.iter().flat_map(|timeframe| &timeframe.close_time).chain(&series.sample_time);
    let last = *all_times.max().unwrap();
    let mut until = 0;
    while until < last {
        until = (until + step_ns).min(last);
        for k in 0..instruments {
            let instrument = (k + turn) % instruments;
            write_until(writer, series, instrument, until, &mut progress[instrument])?;
        }
    }
    Ok(())
}

const MINUTE_NS: i64 = 60_000_000_000;

proptest! {
    #[test]
    fn the_file_is_that_of_the_whole_series(
        bars in prop::collection::vec(9_usize..300, 1..4), horizons in 1_usize..40, features in 1_usize..30, rows in 1_usize..90,
        turn in 0_usize..3,
    ) {
        let timeframes = vec![timeframe("M1", 1, 4, features), timeframe("M5", 5, 1, features)];
        let series = series(&Plan { timeframes, base_bars: bars, horizons });
        let folder = tempfile::tempdir().unwrap();
        let [whole, pieces] = ["whole.h5", "pieces.h5"].map(|name| folder.path().join(name));
        write_series(&whole, &series, &WriteOptions { storage: Storage::Contiguous }).unwrap();
        write_series_in_pieces(&pieces, &description(&series), |writer| {
            write_all(writer, &series, rows as i64 * MINUTE_NS, turn)
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
    let cases: [(Change, &str); 12] = [
        (|series| series.timeframes[0].values[5] = f32::NAN, "NaN for"),
        (|series| series.targets[3] = f32::INFINITY, "/targets[1]: expected finite numbers"),
        (|series| series.sample_reach_time[2] = i64::MAX, "/samples/reach_time[2]"),
        (|series| series.sample_weight[3] = -0.5, "/samples/weight[3]"),
        (|series| series.timeframes[1].steps = 0, "seq_len: expected at least 1"),
        (
            |series| series.timeframes[0].scaler.as_mut().unwrap().scale[0] = f64::NAN,
            "expected finite numbers, found NaN",
        ),
        (
            |series| series.timeframes[0].close_time[8] -= 2 * MINUTE_NS,
            "/series/M1/close_time[8]: expected a time after",
        ),
        (|series| series.timeframes[0].sample_end[3] -= 1, "/samples/end/M1[3]: expected the last bar closed"),
        (|series| series.timeframes[1].sample_end[2] = -1, "/samples/end/M5[2]: expected the last bar of a window"),
        (|series| series.timeframes[0].segment_start = vec![0, 12, 40], "begins with bar 12"),
        (|series| series.timeframes[0].segment_start = vec![0], "an entry 40, where an instrument begins"),
        (|series| series.instruments.as_mut().unwrap().sample_instrument[2] = 9, "/samples/instrument[2]"),
    ];
    for (change, message) in cases {
        for minutes in [1, 7, 1000] {
            let mut broken = series.clone();
            change(&mut broken);
            let written = write_series_in_pieces(&path, &description(&broken), |writer| {
                write_all(writer, &broken, minutes * MINUTE_NS, 0)
            });
            let error = written.unwrap_err().to_string();
            assert!(error.contains(message), "{minutes} minutes: {error}");
        }
    }
    let mut open_bar = series.clone();
    open_bar.timeframes[1].sample_end[3] += 1;
    for (minutes, message) in [
        (1000, "/samples/end/M5[3]: expected a bar that had closed at the sample's time"),
        (1, "a window of M5 that ends with bar 2 asked for, but bars 0 to 1 were written last"),
    ] {
        let written = write_series_in_pieces(&path, &description(&open_bar), |writer| {
            write_all(writer, &open_bar, minutes * MINUTE_NS, 0)
        });
        assert!(written.unwrap_err().to_string().contains(message), "{minutes} minutes");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn rows_that_are_missing_or_out_of_order_leave_no_file() {
    let series = series(&Plan::two_instruments());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    type Fill<'a> = &'a dyn Fn(&SeriesWriter<'_>) -> Result<(), Error>;
    let write = |fill: Fill<'_>| {
        write_series_in_pieces(&path, &description(&series), |writer| fill(writer)).unwrap_err().to_string()
    };
    let bars = |first: usize, count: usize| BarRows {
        timeframe: 0,
        first,
        values: &series.timeframes[0].values[first * 3..(first + count) * 3],
        close_time: &series.timeframes[0].close_time[first..first + count],
    };
    let ends = WindowEnds {
        timeframe: 0,
        first: 0,
        ends: &series.timeframes[0].sample_end[..1],
        time: &series.sample_time[..1],
        instrument: &[0],
    };
    let cases: [(Fill<'_>, &str); 5] = [
        (&|writer| writer.write_bars(&bars(5, 9)), "bars 5 to 13 of M1 asked for, but bar 0 of 0 to 40 comes next"),
        (&|writer| writer.write_bars(&bars(0, 41)), "they are not of one instrument"),
        (&|writer| writer.write_ends(&ends), "a window of M1 that ends with bar 9"),
        (
            &|writer| {
                writer.write_bars(&bars(0, 40))?;
                writer.write_bars(&bars(0, 40))
            },
            "bar 40 of 0 to 40 comes next",
        ),
        (&|writer| writer.write_bars(&bars(0, 40)), "a file of"),
    ];
    for (fill, message) in cases {
        let error = write(fill);
        assert!(error.contains(message), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
