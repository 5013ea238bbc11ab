use crate::bars::Bar;
use crate::clean::gap::GapPolicy;
use crate::clean::gaps::Gap;
use crate::error::Result;
use crate::series::binning::Binning;
use crate::series::feature_stream::FeatureStream;
use crate::series::instrument::{Instrument, checked_base};
use crate::series::scale::scale_rows;
use crate::series::scalers::{Scalers, TimeframeScaler};
use crate::series::spec::{SeriesSpec, Window};
use crate::time::timeframe::Timeframe;

/// The series of one instrument, bar by bar: each base bar gives the rows of all timeframes that
/// have closed with it.
///
/// Rows, segments and full windows are, to the last bit, those that
/// [`align_with`](crate::align_with) makes of all bars at once, but what a bar gives depends on
/// nothing that follows it: rows of segments that turn out too short for a sample are given too,
/// and there are neither targets nor strides. What is kept of the past is bounded by the longest
/// look-back of a feature, however many bars come.
#[derive(Clone, Debug)]
pub struct SeriesStream {
    base: Timeframe,
    holes: GapPolicy,
    /// When the last bar closed.
    last_close_time: Option<i64>,
    timeframes: Vec<TimeframeStream>,
}

/// Results of one base bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeriesStep {
    /// True if a segment begins with the bar: nothing goes on from the rows before it.
    pub begins_segment: bool,
    /// The hole before the bar that began the segment; `None` within a segment, and at the first
    /// bar of all.
    pub hole: Option<Gap>,
    /// When the bar closes, in nanoseconds since 1970 UTC: the time of its sample.
    pub close_time: i64,
    /// True if the windows of all timeframes are full, so that a sample stands at the bar.
    pub has_full_windows: bool,
}

#[derive(Clone, Debug)]
struct TimeframeStream {
    window: Window,
    binning: Binning,
    features: FeatureStream,
    center: Vec<f64>,
    scale: Vec<f64>,
    /// The rows that closed with the last base bar: `[n, F]`, n at most 2.
    closed: Vec<f32>,
    /// Rows of the segment so far.
    rows: usize,
}

impl SeriesStream {
    /// The series of `instrument`, scaled by what `scalers` has of it, before its first bar. The
    /// instrument's `bars` tell their timeframe and nothing else: push them to go on from them.
    ///
    /// # Errors
    /// As [`align_with`](crate::align_with), but for those of single bars.
    pub fn new(instrument: Instrument<'_>, spec: &SeriesSpec, scalers: &Scalers) -> Result<Self> {
        let base = checked_base(&[instrument])?;
        let scalers = scalers.chosen(&[instrument.name], spec)?;
        let stream = |(window, scaler): (Window, TimeframeScaler)| {
            Ok(TimeframeStream {
                window,
                binning: Binning::new(window.timeframe, base)?,
                features: FeatureStream::new(window.timeframe, &spec.features, instrument.pip_size),
                center: scaler.center,
                scale: scaler.scale,
                closed: Vec::new(),
                rows: 0,
            })
        };
        let timeframes = spec.checked_windows()?.into_iter().zip(scalers.timeframes).map(stream);
        Ok(SeriesStream {
            base,
            holes: spec.holes,
            last_close_time: None,
            timeframes: timeframes.collect::<Result<_>>()?,
        })
    }

    /// Takes the next base bar, which has closed.
    ///
    /// # Errors
    /// [`Error::Straddles`](crate::Error::Straddles); the stream then cannot go on.
    ///
    /// # Panics
    /// When the bar does not open after the last one.
    pub fn push(&mut self, bar: &Bar) -> Result<SeriesStep> {
        let duration_ns = self.base.duration_ns();
        let gap = self.last_close_time.map(|last| {
            assert!(last - duration_ns < bar.open_time, "bars are in order of time");
            Gap { from: last, to: bar.open_time }
        });
        let hole = gap.filter(|&gap| self.holes.forbids(gap));
        let begins_segment = gap.is_none() || hole.is_some();
        let close_time = bar.open_time + duration_ns;
        self.last_close_time = Some(close_time);
        for timeframe in &mut self.timeframes {
            if begins_segment {
                timeframe.restart();
            }
            timeframe.push(bar)?;
        }
        let has_full_windows = self.timeframes.iter().all(|timeframe| timeframe.rows >= timeframe.window.seq_len);
        Ok(SeriesStep { begins_segment, hole, close_time, has_full_windows })
    }

    /// The timeframes and their windows, shortest first.
    pub fn windows(&self) -> impl ExactSizeIterator<Item = Window> + '_ {
        self.timeframes.iter().map(|timeframe| timeframe.window)
    }

    /// Bars of timeframe `timeframe` that must close before its window is full: those in which
    /// features warm up, and those of the window.
    ///
    /// # Panics
    /// When there is no such timeframe.
    pub fn bars_needed(&self, timeframe: usize) -> usize {
        let TimeframeStream { window, features, rows, .. } = &self.timeframes[timeframe];
        (features.warm_up_left() + window.seq_len).saturating_sub(*rows)
    }

    /// The scaled rows of timeframe `timeframe` that closed with the last base bar, `[n, F]`: none
    /// or one, or two where the last bars of the bin before were missing.
    ///
    /// # Panics
    /// When there is no such timeframe.
    pub fn closed(&self, timeframe: usize) -> &[f32] {
        &self.timeframes[timeframe].closed
    }
}

impl TimeframeStream {
    fn restart(&mut self) {
        self.binning.restart();
        self.features.restart();
        self.rows = 0;
    }

    fn push(&mut self, bar: &Bar) -> Result<()> {
        self.closed.clear();
        for bar in self.binning.push(bar)?.into_iter().flatten() {
            self.rows += usize::from(self.features.push(bar, &mut self.closed));
        }
        scale_rows(&mut self.closed, &self.center, &self.scale);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bars::Bars;
    use crate::clean::gap::Weekends;
    use crate::error::Error;
    use crate::series::AlignedSeries;
    use crate::series::align::{align, align_with};
    use crate::series::feature::Feature;
    use crate::series::target::TargetKind;
    use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS};

    fn spec(features: Vec<Feature>) -> SeriesSpec {
        let windows = [(Timeframe::M1, 7), (Timeframe::M5, 4), (Timeframe::M15, 2), (Timeframe::H4, 1)];
        SeriesSpec {
            windows: windows.map(|(timeframe, seq_len)| Window { timeframe, seq_len }).to_vec(),
            features,
            horizon: 2,
            target_kind: TargetKind::LogReturn,
            holes: GapPolicy { longest_ns: 2 * HOUR_NS, weekends: Weekends::NotSpanned },
            ..SeriesSpec::default()
        }
    }

    /// Minutes from numbers that look random; where `gaps` says so, minutes are missing before one.
    fn bars(count: usize, gaps: &[(usize, i64)]) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::M1, count);
        let (mut open_time, mut close, mut state) = (4 * DAY_NS, 1.2, 1u32);
        for k in 0..count {
            let missing: i64 = gaps.iter().filter(|(at, _)| *at == k).map(|(_, minutes)| minutes).sum();
            open_time += (1 + missing) * MINUTE_NS;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f64::from(state >> 16) / 65_536.0
            };
            let open = close + 1e-4 * (next() - 0.5);
            close = open + 1e-4 * (next() - 0.5);
            let (high, low) = (open.max(close) + 1e-5 * next(), open.min(close) - 1e-5 * next());
            bars.push(Bar { open_time, open, high, low, close, volume: (9.0 * next()).floor(), spread: 1e-5 * next() });
        }
        bars
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    /// Output of a stream by segment: first bar's open, rows of each timeframe, times of samples.
    type Segments = Vec<(i64, Vec<Vec<f32>>, Vec<i64>)>;

    fn streamed(bars: &Bars, spec: &SeriesSpec, scalers: &Scalers) -> Segments {
        let instrument = Instrument { name: "X", bars, pip_size: 1e-4 };
        let mut stream = SeriesStream::new(instrument, spec, scalers).unwrap();
        let mut segments: Segments = Vec::new();
        for k in 0..bars.len() {
            let step = stream.push(&bars.bar(k)).unwrap();
            assert_eq!(step.close_time, bars.close_time(k));
            if step.begins_segment {
                segments.push((bars.open_time[k], vec![Vec::new(); spec.windows.len()], Vec::new()));
            }
            let (_, rows, times) = segments.last_mut().unwrap();
            rows.iter_mut().enumerate().for_each(|(k, rows)| rows.extend_from_slice(stream.closed(k)));
            times.extend(step.has_full_windows.then_some(step.close_time));
        }
        segments
    }

    fn assert_same(series: &AlignedSeries, segments: &Segments, horizon: usize) {
        let with_samples: Vec<_> = segments.iter().filter(|(_, _, times)| times.len() > horizon).collect();
        assert_eq!(with_samples.len(), series.segments.len());
        for (place, ((open_time, rows, times), segment)) in with_samples.into_iter().zip(&series.segments).enumerate() {
            assert_eq!(*open_time, segment.open_time);
            // The last bars of a segment have no future and so no sample.
            assert_eq!(times[..times.len() - horizon], series.sample_time[segment.samples.clone()]);
            for (rows, timeframe) in rows.iter().zip(&series.timeframes) {
                let start = timeframe.segment_start[place] as usize;
                let end =
                    timeframe.segment_start.get(place + 1).map_or(timeframe.close_time.len(), |&end| end as usize);
                let width = timeframe.features.len();
                let expected = &timeframe.values[start * width..end * width];
                assert_eq!(bits(rows), bits(expected), "{} of segment {place}", timeframe.timeframe);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Rows, segments and samples are those of all bars at once, whatever is missing.
        #[test]
        fn agrees_with_all_bars_at_once(
            gaps in prop::collection::vec((0usize..3000, prop_oneof![1i64..9, 100i64..140, 3000i64..3001]), 0..30),
        ) {
            let mut spec = spec(vec![Feature::Rsi14, Feature::LogReturn, Feature::SpreadPips, Feature::WeekCos]);
            // Fifteen bars of H4 would take more bars than these.
            spec.windows.retain(|window| window.timeframe < Timeframe::H4);
            let bars = bars(3000, &gaps);
            let series = align(&[Instrument { name: "X", bars: &bars, pip_size: 1e-4 }], &spec);
            prop_assume!(series.is_ok());
            let series = series.unwrap();
            assert_same(&series, &streamed(&bars, &spec, &series.scalers()), spec.horizon);
        }
    }

    #[test]
    fn all_features_agree_with_all_bars_at_once() {
        let (spec, bars) = (spec(Feature::ALL.to_vec()), bars(30_000, &[(13_000, 7), (14_000, 130), (14_020, 119)]));
        let instrument = Instrument { name: "X", bars: &bars, pip_size: 1e-4 };
        let fitted = align(&[instrument], &spec).unwrap();
        assert_eq!(fitted.segments.len(), 2);
        let scalers = fitted.scalers();
        let series = align_with(&[instrument], &spec, &scalers).unwrap();
        assert_same(&series, &streamed(&bars, &spec, &scalers), spec.horizon);
    }

    #[test]
    fn a_hole_is_told_and_the_bars_that_are_needed_after_it_are_counted() {
        let mut spec = spec(vec![Feature::Rsi14]);
        spec.windows.truncate(2);
        let bars = bars(400, &[(300, 1000)]);
        let instrument = Instrument { name: "X", bars: &bars, pip_size: 1e-4 };
        let scalers = align(&[instrument], &spec).unwrap().scalers();
        let mut stream = SeriesStream::new(instrument, &spec, &scalers).unwrap();
        for k in 0..bars.len() {
            let needed = [stream.bars_needed(0), stream.bars_needed(1)];
            let step = stream.push(&bars.bar(k)).unwrap();
            assert_eq!(step.has_full_windows, (0..2).all(|k| stream.bars_needed(k) == 0));
            let hole = Gap { from: bars.close_time(299), to: bars.open_time[300] };
            assert_eq!(step.hole, (k == 300).then_some(hole), "{k}");
            match k {
                0 => assert_eq!(needed, [14 + 7, 14 + 4]),
                300 => assert_eq!(stream.bars_needed(0), 14 + 7 - 1),
                _ => assert_eq!(stream.bars_needed(0), needed[0].saturating_sub(1)),
            }
        }
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let (spec, bars) = (spec(vec![Feature::Body]), bars(3000, &[]));
        let instrument = Instrument { name: "X", bars: &bars, pip_size: 1e-4 };
        let scalers = align(&[instrument], &spec).unwrap().scalers();
        let other = Instrument { name: "Y", ..instrument };
        assert!(matches!(SeriesStream::new(other, &spec, &scalers), Err(Error::Scalers { .. })));
        let hours = Bars::with_capacity(Timeframe::H1, 0);
        let longer = Instrument { bars: &hours, ..instrument };
        assert!(matches!(SeriesStream::new(longer, &spec, &scalers), Err(Error::NotAMultiple { .. })));
        let mut stream = SeriesStream::new(instrument, &spec, &scalers).unwrap();
        let straddling = Bar { open_time: 5 * MINUTE_NS - 1, ..bars.bar(0) };
        assert!(matches!(stream.push(&straddling), Err(Error::Straddles { .. })));
    }
}
