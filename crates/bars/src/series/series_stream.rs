use crate::bars::Bar;
use crate::clean::gap::GapPolicy;
use crate::clean::gaps::Gap;
use crate::error::Result;
use crate::series::binning::Binning;
use crate::series::column_feature::ColumnFeature;
use crate::series::feature_stream::FeatureStream;
use crate::series::instrument::{Instrument, checked_base};
use crate::series::scale::scale_rows;
use crate::series::scalers::{Scalers, TimeframeScaler};
use crate::series::spec::{SeriesSpec, Window};
use crate::time::timeframe::Timeframe;

/// The series of one instrument, bar by bar: each base bar gives the rows of all timeframes that
/// have closed with it.
///
/// Rows, segments and full windows are, to the last bit, those that a
/// [`SeriesPlan`](crate::SeriesPlan) writes. Nothing depends on later bars: rows of segments that
/// turn out too short for a sample are given too, and there are neither targets nor strides. The
/// memory is that of the longest look-back of a feature, however many bars come.
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
    /// The series of `instrument` before its first bar, scaled by the instrument's own `scalers`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a value out of range;
    /// [`Error::NotAMultiple`](crate::Error::NotAMultiple) for a timeframe that cannot be made of
    /// the bars; [`Error::Scalers`](crate::Error::Scalers) for scalers of something else.
    pub fn new(instrument: Instrument<'_>, spec: &SeriesSpec, scalers: &Scalers) -> Result<Self> {
        SeriesStream::with_columns(instrument, spec, scalers, &[])
    }

    /// The series of bars with further columns behind those of features, which functions see.
    ///
    /// # Errors
    /// As [`SeriesStream::new`].
    pub fn with_columns(
        instrument: Instrument<'_>,
        spec: &SeriesSpec,
        scalers: &Scalers,
        further: &[ColumnFeature],
    ) -> Result<Self> {
        let mut rules = spec.column_rules();
        rules.extend(further.iter().map(ColumnFeature::rule));
        let base = checked_base(&[instrument])?;
        let scalers = scalers.chosen(&[instrument.name], spec)?;
        let stream = |(window, scaler): (Window, TimeframeScaler)| {
            let binning = Binning::new(window.timeframe, base, &spec.bins, rules.clone())?;
            Ok(TimeframeStream {
                window,
                features: FeatureStream::new(binning.no_bars(), spec, instrument.pip_size),
                binning,
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
    /// When the bar does not open after the last one, or has not the columns among the features.
    pub fn push(&mut self, bar: &Bar) -> Result<SeriesStep> {
        self.push_with(bar, &mut |_, _| Ok(()))
    }

    /// Takes the next base bar, and has `complete` set columns of each bar of a timeframe that
    /// closes with it: it gets the timeframe's place, and the bar.
    ///
    /// # Errors
    /// As [`SeriesStream::push`], and those of `complete`.
    ///
    /// # Panics
    /// As [`SeriesStream::push`].
    pub fn push_with(
        &mut self,
        bar: &Bar,
        complete: &mut dyn FnMut(usize, &mut Bar) -> Result<()>,
    ) -> Result<SeriesStep> {
        let duration_ns = self.base.duration_ns();
        let gap = self.last_close_time.map(|last| {
            assert!(last - duration_ns < bar.open_time, "bars are in order of time");
            Gap { from: last, to: bar.open_time }
        });
        let hole = gap.filter(|&gap| self.holes.forbids(gap));
        let begins_segment = gap.is_none() || hole.is_some();
        let close_time = bar.open_time + duration_ns;
        self.last_close_time = Some(close_time);
        for (place, timeframe) in self.timeframes.iter_mut().enumerate() {
            if begins_segment {
                timeframe.restart();
            }
            timeframe.push(bar, &mut |bin| complete(place, bin))?;
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

    fn push(&mut self, bar: &Bar, complete: &mut dyn FnMut(&mut Bar) -> Result<()>) -> Result<()> {
        self.closed.clear();
        let TimeframeStream { binning, features, closed, rows, .. } = self;
        let mut completed = Ok(());
        binning.push(bar, |mut bin| {
            completed = std::mem::replace(&mut completed, Ok(())).and_then(|()| complete(&mut bin));
            *rows += usize::from(features.push(bin, closed));
        })?;
        completed?;
        scale_rows(&mut self.closed, &self.center, &self.scale);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::series::feature::Feature;
    use crate::series::scale::Scaling;
    use crate::time::timestamp::{HOUR_NS, MINUTE_NS};

    const X: Instrument<'_> = Instrument { name: "X", base: Timeframe::M1, pip_size: 1e-4 };

    fn spec(features: Vec<Feature>) -> SeriesSpec {
        let windows = [(Timeframe::M1, 7), (Timeframe::M5, 4)];
        SeriesSpec {
            windows: windows.map(|(timeframe, seq_len)| Window { timeframe, seq_len }).to_vec(),
            features,
            holes: GapPolicy { longest_ns: 2 * HOUR_NS, ..GapPolicy::default() },
            ..SeriesSpec::default()
        }
    }

    fn scalers(spec: &SeriesSpec) -> Scalers {
        let width = spec.features.len();
        let timeframe = |window: &Window| TimeframeScaler {
            timeframe: window.timeframe,
            center: vec![0.0; width],
            scale: vec![1.0; width],
        };
        Scalers {
            kind: Scaling::None,
            fit_end_time: 0,
            instruments: vec![X.name.to_owned()],
            features: spec.features.clone(),
            timeframes: spec.windows.iter().map(timeframe).collect(),
        }
    }

    fn bar(minute: i64) -> Bar {
        let close = 1.2 + (minute % 7) as f64 * 1e-4;
        Bar { open_time: minute * MINUTE_NS, open: 1.2, high: 1.3, low: 1.1, close, ..Bar::default() }
    }

    #[test]
    fn a_hole_is_told_and_the_bars_that_are_needed_after_it_are_counted() {
        let spec = spec(vec![Feature::Rsi14]);
        let mut stream = SeriesStream::new(X, &spec, &scalers(&spec)).unwrap();
        for k in 0..400 {
            let needed = [stream.bars_needed(0), stream.bars_needed(1)];
            let step = stream.push(&bar(if k < 300 { k } else { k + 1_000 })).unwrap();
            assert_eq!(step.has_full_windows, (0..2).all(|k| stream.bars_needed(k) == 0));
            let hole = Gap { from: 300 * MINUTE_NS, to: 1_300 * MINUTE_NS };
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
        let spec = spec(vec![Feature::Body]);
        let scalers = scalers(&spec);
        let other = Instrument { name: "Y", ..X };
        assert!(matches!(SeriesStream::new(other, &spec, &scalers), Err(Error::Scalers { .. })));
        let longer = Instrument { base: Timeframe::H1, ..X };
        assert!(matches!(SeriesStream::new(longer, &spec, &scalers), Err(Error::NotAMultiple { .. })));
        let mut stream = SeriesStream::new(X, &spec, &scalers).unwrap();
        let straddling = Bar { open_time: 5 * MINUTE_NS - 1, ..bar(0) };
        assert!(matches!(stream.push(&straddling), Err(Error::Straddles { .. })));
    }
}
