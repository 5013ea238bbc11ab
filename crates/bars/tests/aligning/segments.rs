use std::ops::Range;

use megabatch_bars::{Bars, Error, Scaling};
use proptest::prelude::*;

use crate::drawn::{Draw, MINUTE_NS, bars, base_bar, bits, instrument, part, torn_draws, torn_spec};
use crate::whole::{WholeSeries, align};

/// Stretches of bars without a hole of more than four minutes, found one bar at a time.
fn stretches(bars: &Bars) -> Vec<Range<usize>> {
    let mut stretches: Vec<Range<usize>> = Vec::new();
    for k in 0..bars.len() {
        match stretches.last_mut() {
            Some(last) if bars.open_time[k] - bars.close_time(k - 1) <= 4 * MINUTE_NS => last.end = k + 1,
            _ => stretches.push(k..k + 1),
        }
    }
    stretches
}

/// Puts series of one instrument behind each other.
fn concatenated(series: &[WholeSeries]) -> WholeSeries {
    let mut whole = series[0].clone();
    for next in &series[1..] {
        let samples = whole.len();
        whole.sample_time.extend(&next.sample_time);
        whole.sample_instrument.extend(&next.sample_instrument);
        whole.label_end_time.extend(&next.label_end_time);
        whole.weight.extend(&next.weight);
        whole.targets.extend(&next.targets);
        whole.receptive_start.extend(&next.receptive_start);
        whole.header.segments.extend(next.header.segments.iter().cloned().map(|mut segment| {
            segment.samples = segment.samples.start + samples..segment.samples.end + samples;
            segment
        }));
        for (header, next) in whole.header.timeframes.iter_mut().zip(&next.header.timeframes) {
            header.segment_start.extend(next.segment_start.iter().map(|start| start + header.rows as i64));
            header.instrument_start[1] += next.rows as i64;
            header.rows += next.rows;
        }
        for (whole, next) in whole.timeframes.iter_mut().zip(&next.timeframes) {
            let rows = whole.close_time.len() as i64;
            whole.end.extend(next.end.iter().map(|end| end + rows));
            whole.values.extend(&next.values);
            whole.close_time.extend(&next.close_time);
        }
        whole.header.samples += next.header.samples;
    }
    whole
}

proptest! {
    /// A segment is a recording of its own: aligned together they are what each is alone, one
    /// behind the other.
    #[test]
    fn segments_are_recordings_of_their_own(draws in torn_draws(), stride in 1usize..5) {
        let bars = bars(&draws);
        let mut spec = torn_spec(Scaling::None);
        spec.stride = stride;
        let together = align(&[instrument(&bars)], &spec);
        let stretches = stretches(&bars);
        let alone: Vec<WholeSeries> = stretches
            .iter()
            .filter_map(|stretch| align(&[instrument(&part(&bars, stretch.clone()))], &spec).ok())
            .collect();
        let Ok(mut together) = together else {
            prop_assert!(alone.is_empty());
            return Ok(());
        };
        let excluded = std::mem::take(&mut together.header.excluded);
        prop_assert_eq!(excluded.len() + alone.len(), stretches.len());
        let excluded_warnings = together.header.warnings.iter().filter(|warning| warning.contains("too short"));
        prop_assert_eq!(excluded_warnings.count(), usize::from(!excluded.is_empty()));
        let mut expected = concatenated(&alone);
        for (a, b) in together.timeframes.iter().zip(&expected.timeframes) {
            prop_assert_eq!(bits(&a.values), bits(&b.values));
        }
        // The training span and the instants are those of all segments together.
        expected.header.scalers.fit_end_time = together.header.scalers.fit_end_time;
        expected.header.instants = together.header.instants.clone();
        expected.header.warnings = together.header.warnings.clone();
        prop_assert_eq!(together, expected);
    }

    /// From the first bar that a sample depends on to the last bar of its horizon there is no
    /// forbidden hole; bars of a timeframe never go back in time; and no row is there for nothing.
    #[test]
    fn no_sample_reaches_across_a_hole(draws in torn_draws()) {
        let bars = bars(&draws);
        let Ok(series) = align(&[instrument(&bars)], &torn_spec(Scaling::None)) else { return Ok(()) };
        let stretches = stretches(&bars);
        let starts = &series.receptive_start;
        prop_assert_eq!(starts.len(), series.len());
        for (n, &start) in starts.iter().enumerate() {
            let t = base_bar(&bars, &series, n);
            let stretch = stretches.iter().find(|stretch| stretch.contains(&t)).unwrap();
            prop_assert!(start >= bars.open_time[stretch.start] && t + 5 < stretch.end);
        }
        for (timeframe, header) in series.timeframes.iter().zip(&series.header.timeframes) {
            prop_assert!(timeframe.close_time.is_sorted_by(|a, b| a < b));
            for (place, segment) in series.header.segments.iter().enumerate() {
                let rows = header.segment_start[place] as usize;
                prop_assert!(timeframe.close_time[rows] > segment.open_time);
                prop_assert!(timeframe.end[segment.samples.start] as usize + 1 - timeframe.window.seq_len >= rows);
                let next = header.segment_start.get(place + 1).map_or(timeframe.close_time.len(), |&next| next as usize);
                prop_assert!(timeframe.close_time[next - 1] <= segment.close_time);
            }
        }
    }

    /// Without a forbidden hole the rule changes nothing.
    #[test]
    fn one_segment_is_the_whole_recording(draws in crate::drawn::draws(600)) {
        let bars = bars(&draws);
        let mut spec = torn_spec(Scaling::Robust);
        spec.holes.longest_ns = 38 * MINUTE_NS;
        let limited = align(&[instrument(&bars)], &spec).unwrap();
        spec.holes.longest_ns = i64::MAX;
        let unlimited = align(&[instrument(&bars)], &spec).unwrap();
        prop_assert_eq!((limited.header.segments.len(), limited.header.excluded.len()), (1, 0));
        prop_assert_eq!(limited, unlimited);
    }
}

/// Runs of plain minutes with an hour's hole before each.
fn runs(lens: &[usize]) -> Bars {
    let mut draws: Vec<Draw> = Vec::new();
    for len in lens {
        let start = draws.len();
        draws.extend((0..*len).map(|k| (1, (k as f64 * 0.3).sin(), 0.1, 0.2, 1.0 + (k % 5) as f64)));
        draws[start].0 = 60;
    }
    bars(&draws)
}

#[test]
fn segments_that_are_too_short_are_told_and_leave_no_rows() {
    let bars = runs(&[400, 20, 500, 3]);
    let series = align(&[instrument(&bars)], &torn_spec(Scaling::Robust)).unwrap();
    let lens = |segments: &[megabatch_bars::Segment]| segments.iter().map(|segment| segment.bars).collect::<Vec<_>>();
    assert_eq!((lens(&series.header.segments), lens(&series.header.excluded)), (vec![400, 500], vec![20, 3]));
    assert!(series.header.excluded.iter().all(|segment| segment.samples.is_empty()));
    assert_eq!(
        series.header.warnings[0],
        "2 of 4 segments are too short for one sample, so that 23 of 923 bars are left out; holes of more than 4 min end a segment"
    );
    let minutes = &series.header.timeframes[0];
    assert_eq!((minutes.rows, &minutes.segment_start[..]), (900 - 2 * 14, &[0, 400 - 14][..]));
    assert_eq!(minutes.instrument_start, [0, 900 - 2 * 14]);
}

#[test]
fn where_every_segment_is_too_short_the_longest_is_named() {
    let bars = runs(&[100, 200, 150]);
    let error = align(&[instrument(&bars)], &torn_spec(Scaling::Robust)).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::TooShort { segments: 3, longest: 200, .. }), "{message}");
    assert!(
        message.starts_with(
            "DRAWN: too few bars for one sample in any of 3 segments, the longest of which has 200 bars: before the last 5"
        ),
        "{message}"
    );
    assert!(message.contains("M15 has 13 bars and needs 17") && message.ends_with("or span longer holes"), "{message}");
}

/// A hole that lies within one bin of M15, from minute 1,000,395 to 1,000,410.
#[test]
fn a_bin_belongs_to_one_segment() {
    let mut draws: Vec<Draw> = (0..800).map(|k| (1, (f64::from(k) * 0.3).sin(), 0.1, 0.2, 1.0)).collect();
    // The first bar opens at minute 1,000,001, so that these two open at 1,000,397 and 1,000,404.
    let (last, first) = (396, 397);
    draws[first].0 = 7;
    let bars = bars(&draws);
    let series = align(&[instrument(&bars)], &torn_spec(Scaling::None)).unwrap();
    let quarters = &series.timeframes[2];
    let second = series.header.timeframes[2].segment_start[1] as usize;
    let bin = |open_time: i64| open_time.div_euclid(15 * MINUTE_NS);
    assert_eq!(bin(bars.open_time[last]), bin(bars.open_time[first]));
    // The bin is not among the first segment's rows. The second segment begins with it, the first
    // of the fourteen bars in which its features warm up.
    assert_eq!(bin(quarters.open_time()[second - 1]), bin(bars.open_time[last]) - 1);
    assert_eq!(bin(quarters.open_time()[second]), bin(bars.open_time[first]) + 14);
    assert_eq!(series.header.segments[1].open_time, bars.open_time[first]);
}
