use std::ops::Range;

use megabatch_bars::{AlignedSeries, Bars, Error, Scalers, Scaling, align, align_with};
use proptest::prelude::*;

use crate::made_up::{Draw, MINUTE_NS, bars, base_bar, bits, instrument, part, torn_draws, torn_spec};

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
fn concatenated(series: &[AlignedSeries]) -> AlignedSeries {
    let mut whole = series[0].clone();
    for next in &series[1..] {
        let samples = whole.len();
        whole.sample_time.extend(&next.sample_time);
        whole.sample_instrument.extend(&next.sample_instrument);
        whole.label_end_time.extend(&next.label_end_time);
        whole.targets.extend(&next.targets);
        whole.segments.extend(next.segments.iter().cloned().map(|mut segment| {
            segment.samples = segment.samples.start + samples..segment.samples.end + samples;
            segment
        }));
        for (whole, next) in whole.timeframes.iter_mut().zip(&next.timeframes) {
            let rows = whole.close_time.len() as i64;
            whole.end.extend(next.end.iter().map(|end| end + rows));
            whole.segment_start.extend(next.segment_start.iter().map(|start| start + rows));
            whole.instrument_start[1] += next.close_time.len() as i64;
            whole.values.extend(&next.values);
            whole.open_time.extend(&next.open_time);
            whole.close_time.extend(&next.close_time);
            whole.warm_up_open_time.extend(&next.warm_up_open_time);
        }
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
        let scalers = Scalers::fit(&[instrument(&bars)], &spec, 0).unwrap();
        let together = align_with(&[instrument(&bars)], &spec, &scalers);
        let stretches = stretches(&bars);
        let alone: Vec<AlignedSeries> = stretches
            .iter()
            .filter_map(|stretch| align_with(&[instrument(&part(&bars, stretch.clone()))], &spec, &scalers).ok())
            .collect();
        let Ok(mut together) = together else {
            prop_assert!(alone.is_empty());
            return Ok(());
        };
        let excluded = std::mem::take(&mut together.excluded);
        prop_assert_eq!(excluded.len() + alone.len(), stretches.len());
        prop_assert_eq!(together.warnings.len(), usize::from(!excluded.is_empty()));
        together.warnings.clear();
        for (a, b) in together.timeframes.iter().zip(&concatenated(&alone).timeframes) {
            prop_assert_eq!(bits(&a.values), bits(&b.values));
        }
        prop_assert_eq!(together, concatenated(&alone));
    }

    /// From the first bar that a sample depends on to the last bar of its horizon there is no
    /// forbidden hole; bars of a timeframe never go back in time; and no row is there for nothing.
    #[test]
    fn no_sample_reaches_across_a_hole(draws in torn_draws()) {
        let bars = bars(&draws);
        let Ok(series) = align(&[instrument(&bars)], &torn_spec(Scaling::None)) else { return Ok(()) };
        let stretches = stretches(&bars);
        let starts = series.receptive_starts();
        prop_assert_eq!(starts.len(), series.len());
        for (n, &start) in starts.iter().enumerate() {
            let t = base_bar(&bars, &series, n);
            let stretch = stretches.iter().find(|stretch| stretch.contains(&t)).unwrap();
            prop_assert!(start >= bars.open_time[stretch.start] && t + 5 < stretch.end);
        }
        for timeframe in &series.timeframes {
            prop_assert!(timeframe.close_time.is_sorted_by(|a, b| a < b));
            for (place, segment) in series.segments.iter().enumerate() {
                let rows = timeframe.segment_start[place] as usize;
                prop_assert!(timeframe.close_time[rows] > segment.open_time);
                prop_assert!(timeframe.end[segment.samples.start] as usize + 1 - timeframe.seq_len >= rows);
                let next = timeframe.segment_start.get(place + 1).map_or(timeframe.close_time.len(), |&next| next as usize);
                prop_assert!(timeframe.close_time[next - 1] <= segment.close_time);
            }
        }
    }

    /// Without a forbidden hole the rule changes nothing.
    #[test]
    fn one_segment_is_the_whole_recording(draws in crate::made_up::draws(600)) {
        let bars = bars(&draws);
        let mut spec = torn_spec(Scaling::Robust);
        spec.holes.longest_ns = 38 * MINUTE_NS;
        let limited = align(&[instrument(&bars)], &spec).unwrap();
        spec.holes.longest_ns = i64::MAX;
        let unlimited = align(&[instrument(&bars)], &spec).unwrap();
        prop_assert_eq!((limited.segments.len(), limited.excluded.len()), (1, 0));
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
    assert_eq!((lens(&series.segments), lens(&series.excluded)), (vec![400, 500], vec![20, 3]));
    assert!(series.excluded.iter().all(|segment| segment.samples.is_empty()));
    assert_eq!(
        series.warnings[0],
        "2 of 4 segments are too short for one sample, so that 23 of 923 bars are left out; holes of more than 4 min end a segment"
    );
    let minutes = &series.timeframes[0];
    assert_eq!((minutes.close_time.len(), &minutes.segment_start[..]), (900 - 2 * 14, &[0, 400 - 14][..]));
    assert_eq!((minutes.look_back, minutes.warm_up_open_time.len()), (14, 2 * 14));
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
            "MADEUP: too few bars for one sample in any of 3 segments, the longest of which has 200 bars: before the last 5"
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
    let second = quarters.segment_start[1] as usize;
    let bin = |open_time: i64| open_time.div_euclid(15 * MINUTE_NS);
    assert_eq!(bin(bars.open_time[last]), bin(bars.open_time[first]));
    // The bin is not among the first segment's rows; the second segment begins with it.
    assert_eq!(bin(quarters.open_time[second - 1]), bin(bars.open_time[last]) - 1);
    assert_eq!(bin(quarters.warm_up_open_time[14]), bin(bars.open_time[first]));
    assert_eq!(series.segments[1].open_time, bars.open_time[first]);
}
