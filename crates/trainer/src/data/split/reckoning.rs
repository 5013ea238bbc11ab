//! Bounds of the look-back and the horizon of samples, from their times, for files that do not have
//! them.
//!
//! A file of samples without the bars between them still bounds both: every sample stands in a bar
//! of its own timeframe, so that bars are at least as dense as samples. A bound is never on the
//! wrong side: a window reaches back no further than its bound, and a label ends no later.

use std::ops::Range;

/// A number of consecutive bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarCount {
    /// Number of bars.
    pub bars: usize,
    /// Time that one bar covers, ns; 1 where each sample has a bar of its own, whatever the bars'
    /// length.
    pub bar_ns: i64,
}

/// Sample times by calendar. The samples of one instrument share a calendar of bars.
#[derive(Clone, Debug)]
pub struct SampleCalendars {
    /// Distinct times, ascending within a calendar, one calendar after the other.
    times: Vec<i64>,
    /// The part of `times` of each calendar.
    calendars: Vec<Range<usize>>,
    /// `[N]` place of each sample's time in `times`.
    place: Vec<usize>,
}

impl SampleCalendars {
    /// The calendars of samples at `time_ns`. `calendar` has the number of each sample's calendar;
    /// without it all samples share one.
    ///
    /// # Panics
    /// If there is not one number a sample.
    pub fn new(time_ns: &[i64], calendar: Option<&[i32]>) -> Self {
        assert!(calendar.is_none_or(|calendar| calendar.len() == time_ns.len()), "one calendar a sample");
        let calendar_of = |sample: usize| calendar.map_or(0, |calendar| calendar[sample]);
        let mut order: Vec<usize> = (0..time_ns.len()).collect();
        order.sort_by_key(|&sample| (calendar_of(sample), time_ns[sample]));
        let mut calendars = SampleCalendars { times: vec![], calendars: vec![], place: vec![0; time_ns.len()] };
        let mut previous = None;
        for sample in order {
            let (own, time) = (calendar_of(sample), time_ns[sample]);
            if previous.map(|(calendar, _)| calendar) != Some(own) {
                calendars.calendars.push(calendars.times.len()..calendars.times.len());
            }
            if previous != Some((own, time)) {
                calendars.times.push(time);
                calendars.calendars.last_mut().expect("one was begun").end += 1;
            }
            calendars.place[sample] = calendars.times.len() - 1;
            previous = Some((own, time));
        }
        calendars
    }

    /// `[N]` a sample time at least `count` bars before each sample; `None` if the calendar begins
    /// later.
    ///
    /// The bar that opened `count.bars` before the one in which the sample stands opened no earlier
    /// than `count.bar_ns` before that time.
    pub fn back(&self, count: BarCount) -> Vec<Option<i64>> {
        let mut step = vec![None; self.times.len()];
        for calendar in &self.calendars {
            let mut after = calendar.start;
            for place in calendar.clone() {
                let limit = self.times[place].saturating_sub(count.bar_ns);
                while self.times[after] <= limit {
                    after += 1;
                }
                step[place] = (after > calendar.start).then(|| after - 1);
            }
        }
        self.times_after(step, count.bars)
    }

    /// `[N]` a sample time at least `count` bars after each sample; `None` if the calendar ends
    /// earlier.
    ///
    /// The bar that lies `count.bars` after the one in which the sample stands closed no later than
    /// `count.bar_ns` after that time, and at that time at the latest where samples stand at
    /// closes.
    pub fn ahead(&self, count: BarCount) -> Vec<Option<i64>> {
        let mut step = vec![None; self.times.len()];
        for calendar in &self.calendars {
            let mut next = calendar.start;
            for place in calendar.clone() {
                let limit = self.times[place].saturating_add(count.bar_ns);
                while next < calendar.end && self.times[next] < limit {
                    next += 1;
                }
                step[place] = (next < calendar.end).then_some(next);
            }
        }
        self.times_after(step, count.bars)
    }

    /// The times `count` steps from each sample. Steps are squared, so that a window of hundreds of
    /// bars takes a few passes.
    fn times_after(&self, mut step: Vec<Option<usize>>, mut count: usize) -> Vec<Option<i64>> {
        let mut reached: Vec<Option<usize>> = (0..self.times.len()).map(Some).collect();
        while count > 0 {
            if count % 2 == 1 {
                reached.iter_mut().for_each(|place| *place = place.and_then(|place| step[place]));
            }
            step = step.iter().map(|place| place.and_then(|place| step[place])).collect();
            count /= 2;
        }
        self.place.iter().map(|&place| reached[place].map(|place| self.times[place])).collect()
    }
}

/// Bars of the shortest timeframe of a series whose labels count shorter bars, which the series
/// does not have.
#[derive(Clone, Copy, Debug)]
pub struct LongerBars<'a> {
    /// Close time of each bar, ascending within an instrument.
    pub close_time_ns: &'a [i64],
    /// `[I + 1]` first bar of each instrument and, last, the number of bars; empty for one
    /// instrument.
    pub instrument_start: &'a [i64],
    /// First bar of each segment, ascending; empty where every instrument is one. Labels end within
    /// their segment.
    pub segment_start: &'a [i64],
    /// `[I]` when the last short bar of each instrument closed, where that is known.
    pub instrument_end_ns: &'a [Option<i64>],
}

impl LongerBars<'_> {
    /// When a label ends at the latest that looks `bars` short bars ahead of a sample of
    /// `instrument`, whose last closed bar is `end`; `None` where the bars end earlier.
    ///
    /// Each of these bars has a short bar at least. The one that is open at the sample's time may
    /// have none that is still to come.
    pub fn label_end(&self, instrument: usize, end: usize, bars: usize) -> Option<i64> {
        let start = |place: usize| self.instrument_start.get(place).map(|&start| start as usize);
        let instrument_end = start(instrument + 1).unwrap_or(self.close_time_ns.len());
        let next_segment = self.segment_start.partition_point(|&start| start as usize <= end);
        let segment_end = self.segment_start.get(next_segment).map_or(instrument_end, |&start| start as usize);
        let segment_end = segment_end.min(instrument_end);
        match end.saturating_add(bars).saturating_add(1) {
            last if last < segment_end => Some(self.close_time_ns[last]),
            // Short bars go on after the last bar that closed; the next segment begins after them.
            _ if segment_end < instrument_end => Some(self.close_time_ns[segment_end]),
            _ => self.instrument_end_ns.get(instrument).copied().flatten(),
        }
    }
}

/// The earlier of two bounds, of which either may be unknown.
pub fn nearer(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn samples_are_counted_back_and_ahead_within_their_calendar() {
        let times = [10, 20, 35, 36, 10, 50];
        let calendars = SampleCalendars::new(&times, Some(&[0, 0, 0, 0, 7, 7]));
        let count = |bars, bar_ns| BarCount { bars, bar_ns };
        assert_eq!(calendars.back(count(2, 1)), [None, None, Some(10), Some(20), None, None]);
        assert_eq!(calendars.back(count(1, 10)), [None, Some(10), Some(20), Some(20), None, Some(10)]);
        assert_eq!(calendars.ahead(count(2, 1)), [Some(35), Some(36), None, None, None, None]);
        assert_eq!(calendars.ahead(count(1, 10)), [Some(20), Some(35), None, None, Some(50), None]);
        assert_eq!(calendars.back(count(0, 1)), times.map(Some));
    }

    #[test]
    fn the_nearer_of_two_bounds_is_the_known_one() {
        assert_eq!((nearer(Some(3), Some(2)), nearer(None, Some(2)), nearer(None, None)), (Some(2), Some(2), None));
    }

    /// Short bars of one instrument and what a series keeps of them.
    #[derive(Debug)]
    struct Recording {
        /// Close times of the short bars by segment.
        segments: Vec<Vec<i64>>,
        /// Length of a longer bar.
        long: i64,
    }

    impl Recording {
        /// Close times of the longer bars of a segment that had closed by its end.
        fn longer(&self, segment: usize) -> Vec<i64> {
            let short = &self.segments[segment];
            let mut close: Vec<i64> =
                short.iter().map(|close| (close + self.long - 1) / self.long * self.long).collect();
            close.dedup();
            close.retain(|close| close <= short.last().unwrap());
            close
        }
    }

    /// Segments of short bars, a unit each, with holes: distances between bars, and a hole before
    /// each segment.
    fn recordings() -> impl Strategy<Value = Recording> {
        let segment = (prop::collection::vec(prop_oneof![6 => Just(1i64), 1 => 2i64..9], 8..60), 1i64..40);
        (prop::collection::vec(segment, 1..4), 2i64..7).prop_map(|(drawn, long)| {
            let mut now = 0;
            let segments = drawn.into_iter().map(|(steps, hole)| {
                now += hole;
                let close = |step: i64| {
                    now += step;
                    now
                };
                steps.into_iter().map(close).collect()
            });
            Recording { segments: segments.collect(), long }
        })
    }

    proptest! {
        /// A reach that is reckoned without the short bars is never shorter than what they tell:
        /// labels of M15 shares in H4 bars ended up to 140 hours too early
        /// (windows of 10 bars, horizon 130), where they were counted as if bins were full.
        #[test]
        fn labels_never_end_earlier_than_they_do(
            recording in recordings(), horizon in 1usize..12, stride in 1usize..4, ends_known in any::<bool>(),
        ) {
            let (mut close_time, mut segment_start) = (Vec::new(), Vec::new());
            let (mut time, mut end, mut exact) = (Vec::new(), Vec::new(), Vec::new());
            for (k, short) in recording.segments.iter().enumerate() {
                let longer = recording.longer(k);
                if longer.is_empty() {
                    continue;
                }
                segment_start.push(close_time.len() as i64);
                let first = short.iter().position(|close| *close >= longer[0]).unwrap();
                for t in (first..short.len().saturating_sub(horizon)).step_by(stride) {
                    let closed = longer.partition_point(|close| *close <= short[t]);
                    time.push(short[t]);
                    end.push(close_time.len() + closed - 1);
                    exact.push(short[t + horizon]);
                }
                close_time.extend(longer);
            }
            // A segment's first longer bar may open within the hole, but closes after it.
            prop_assume!(close_time.is_sorted_by(|a, b| a < b));
            let last = recording.segments.last().and_then(|short| short.last()).copied();
            let bars = LongerBars {
                close_time_ns: &close_time,
                instrument_start: &[],
                segment_start: &segment_start,
                instrument_end_ns: &[last.filter(|_| ends_known)],
            };
            let ahead = SampleCalendars::new(&time, None).ahead(BarCount { bars: horizon, bar_ns: 1 });
            for (n, exact) in exact.iter().enumerate() {
                let by_bars = bars.label_end(0, end[n], horizon);
                for reckoned in [by_bars, ahead[n], nearer(by_bars, ahead[n])].into_iter().flatten() {
                    prop_assert!(reckoned >= *exact, "sample {}: {} before {}", n, reckoned, exact);
                }
                prop_assert!(!ends_known || by_bars.is_some());
            }
            if stride == 1 {
                prop_assert!(ahead.iter().zip(&exact).all(|(ahead, exact)| ahead.is_none_or(|ahead| ahead >= *exact)));
            }
        }

        /// Windows of longer bars, wherever their bins begin, open no earlier than is reckoned from
        /// some of the samples.
        #[test]
        fn windows_never_open_before_what_is_reckoned(
            recording in recordings(), steps in 1usize..8, phase in 0i64..6, kept in prop::collection::vec(any::<bool>(), 240),
        ) {
            let long = recording.long;
            let short: Vec<i64> = recording.segments.concat();
            let bin = |close: i64| (close + phase - 1).div_euclid(long);
            let mut bins: Vec<i64> = short.iter().map(|&close| bin(close)).collect();
            bins.dedup();
            let time: Vec<i64> = short.iter().copied().zip(&kept).filter(|(_, kept)| **kept).map(|(time, _)| time).collect();
            let back = SampleCalendars::new(&time, None).back(BarCount { bars: steps, bar_ns: long });
            for (time, back) in time.iter().zip(back) {
                let Some(back) = back else { continue };
                // The bins before the one that the sample stands in, of which the last `steps` are
                // its window.
                let before = bins.partition_point(|&earlier| earlier < bin(*time));
                let Some(first) = before.checked_sub(steps) else { continue };
                let open = bins[first] * long - phase;
                prop_assert!(back - long <= open, "{} - {} > {}", back, long, open);
            }
        }

        /// A window by bars of its own samples, each of which has one.
        #[test]
        fn a_bar_a_sample_is_counted_exactly(
            steps in prop::collection::vec(1i64..9, 2..80), bars in 0usize..20,
        ) {
            let time: Vec<i64> = steps.iter().scan(0, |now, step| { *now += step; Some(*now) }).collect();
            let calendars = SampleCalendars::new(&time, None);
            let count = BarCount { bars, bar_ns: 1 };
            let (back, ahead) = (calendars.back(count), calendars.ahead(count));
            for n in 0..time.len() {
                prop_assert_eq!(back[n], n.checked_sub(bars).map(|n| time[n]));
                prop_assert_eq!(ahead[n], time.get(n + bars).copied());
            }
        }
    }
}
