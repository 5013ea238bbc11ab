//! The bars around a sample, and what it sees of them.

use std::ops::Range;
use std::sync::Arc;

use crate::bar_source::{BarSource, partition_point, pieces_of};
use crate::bars::Bars;
use crate::error::Result;
use crate::error::look_ahead::LookAheadEffect;
use crate::series::feature::Feature;
use crate::series::instrument::checked_base;
use crate::series::scale::scale_rows;
use crate::series::scalers::{Scalers, TimeframeScaler};
use crate::series::spec::{SeriesSpec, Window};
use crate::series::streamed::StreamedInstrument;
use crate::series::streamed::cursor::TrackCursor;
use crate::time::bin_clock::BinClock;
use crate::time::timeframe::Timeframe;

/// The features of one timeframe, and their scaler.
#[derive(Clone, Debug)]
struct Track {
    timeframe: Timeframe,
    seq_len: usize,
    cursor: TrackCursor,
    center: Vec<f64>,
    scale: Vec<f64>,
}

/// The state of an instrument's features before one of its bars. It goes on and not back.
pub(super) struct Past<'a> {
    instrument: StreamedInstrument<'a>,
    tracks: Vec<Track>,
    /// Place of the bar that comes next.
    next: usize,
    /// Bars that were read last.
    bars: Bars,
}

/// Bars around a sample and the state of features before them.
pub(super) struct Recent {
    pub(super) bars: Bars,
    /// Own bars of each timeframe around the sample; none for a timeframe without.
    pub(super) own: Vec<Bars>,
    /// Bars of the segment before them.
    pub(super) before: usize,
    /// The bar at whose close the sample stands.
    pub(super) sample: usize,
    tracks: Vec<Track>,
}

/// Windows of a sample.
pub(super) struct Sight {
    pub(super) timeframes: Vec<Timeframe>,
    pub(super) features: Vec<Feature>,
    /// One entry a timeframe: `[seq_len, F]`.
    pub(super) windows: Vec<Vec<f32>>,
}

impl<'a> Past<'a> {
    /// Before the first bar of `instrument`.
    ///
    /// # Errors
    /// As [`SeriesStream::new`](crate::SeriesStream::new).
    pub(super) fn new(instrument: StreamedInstrument<'a>, spec: &SeriesSpec, scalers: &Scalers) -> Result<Self> {
        let base = checked_base(&[instrument.without_bars()])?;
        let none = Bars::with_capacity(base, 0);
        let scalers = scalers.chosen(&[instrument.name], spec)?;
        let track = |(window, scaler): (Window, TimeframeScaler)| {
            let Window { timeframe, seq_len } = window;
            let cursor = TrackCursor::new(window, base, spec, instrument.pip_size)?;
            let cursor = cursor.with_own_bars(instrument.bars.own_bars(timeframe));
            Ok(Track { timeframe, seq_len, cursor, center: scaler.center, scale: scaler.scale })
        };
        let tracks = spec.checked_windows()?.into_iter().zip(scalers.timeframes).map(track);
        Ok(Past { instrument, tracks: tracks.collect::<Result<_>>()?, next: 0, bars: none })
    }

    pub(super) fn source(&self) -> &'a dyn BarSource {
        self.instrument.bars
    }

    /// Goes on to the bar at `place`, which lies in the segment that begins at `segment_start`.
    pub(super) fn advance_to(&mut self, place: usize, segment_start: usize) -> Result<()> {
        if self.next < segment_start {
            self.tracks.iter_mut().for_each(|track| track.cursor.restart());
            self.next = segment_start;
        }
        for piece in pieces_of(self.next..place) {
            self.instrument.bars.read(piece, &mut self.bars)?;
            self.tracks.iter_mut().try_for_each(|track| track.cursor.skip(&self.bars))?;
        }
        self.next = self.next.max(place);
        Ok(())
    }

    /// The bars of `range`, which begins where the past ends, around the sample at the close of the
    /// one at place `sample` among them. `bins` is the clock of own bars.
    pub(super) fn recent(
        &self,
        range: Range<usize>,
        sample: usize,
        segment_start: usize,
        bins: &BinClock,
    ) -> Result<Recent> {
        assert_eq!(range.start, self.next, "the past ends where recent bars begin");
        let mut bars = Bars::with_capacity(self.bars.timeframe, 0);
        self.instrument.bars.read(range.clone(), &mut bars)?;
        let own = self.tracks.iter().map(|track| self.own_around(track.timeframe, &bars, bins));
        let (own, before) = (own.collect::<Result<_>>()?, range.start - segment_start);
        Ok(Recent { bars, own, before, sample, tracks: self.tracks.clone() })
    }

    /// Own bars in the bins of `bars`, and the one before them: its bin closes with the first of
    /// `bars` if the last ones of that bin are missing.
    fn own_around(&self, timeframe: Timeframe, bars: &Bars, bins: &BinClock) -> Result<Bars> {
        let mut own = Bars::with_capacity(timeframe, 0);
        let source = self.instrument.bars.own_bars(timeframe);
        if let (Some(source), [first_open, .., last_open]) = (source, &bars.open_time[..]) {
            let first_bin = bins.bin(timeframe, *first_open);
            let first = partition_point(&*source, |open_time| open_time < first_bin.start)?.saturating_sub(1);
            let end = partition_point(&*source, |open_time| open_time <= *last_open)?;
            source.read(first..end.max(first), &mut own)?;
            own.bins = bins.clone();
        }
        Ok(own)
    }
}

impl Recent {
    /// Windows of the sample in `bars` and `own` bars: these, or others that are the same up to the
    /// sample. `None` without full windows, or without a full horizon in its segment.
    pub(super) fn sight(&self, bars: &Bars, own: &[Bars], spec: &SeriesSpec) -> Result<Option<Sight>> {
        self.sight_at(self.sample, bars, own, spec)
    }

    /// Windows of a sample at the close of the bar at place `sample`.
    pub(super) fn sight_at(
        &self,
        sample: usize,
        bars: &Bars,
        own: &[Bars],
        spec: &SeriesSpec,
    ) -> Result<Option<Sight>> {
        // The bars begin within the segment of the sample.
        let end = spec.holes.segments(bars).first().map_or(0, |segment| segment.end);
        if sample + spec.bars_after_sample() >= end {
            return Ok(None);
        }
        let width = spec.features.len();
        let mut windows = Vec::with_capacity(self.tracks.len());
        for (track, own) in self.tracks.iter().zip(own) {
            let own = (!own.is_empty()).then(|| Arc::new(own.clone()) as Arc<dyn BarSource + Send>);
            let mut cursor = track.cursor.clone().with_own_bars(own);
            let (rows_before, mut values) = (cursor.rows(), Vec::new());
            cursor.push(bars, end, &mut values, &mut Vec::new())?;
            if !cursor.is_full(sample) {
                return Ok(None);
            }
            scale_rows(&mut values, &track.center, &track.scale);
            let after = cursor.reach(sample).rows - rows_before;
            windows.push(values[(after - track.seq_len) * width..after * width].to_vec());
        }
        let timeframes = self.tracks.iter().map(|track| track.timeframe).collect();
        Ok(Some(Sight { timeframes, features: spec.features.clone(), windows }))
    }
}

impl Sight {
    /// The first value in which `after` is not the same, bit for bit.
    pub(super) fn difference(&self, after: &Sight) -> Option<LookAheadEffect> {
        let pairs = self.timeframes.iter().zip(self.windows.iter().zip(&after.windows));
        pairs.into_iter().find_map(|(&timeframe, (window, after_window))| {
            let place = window.iter().zip(after_window).position(|(a, b)| a.to_bits() != b.to_bits())?;
            let row = place / self.features.len();
            let feature = self.features[place % self.features.len()].name().to_owned();
            Some(LookAheadEffect::Value { timeframe, row, feature, before: window[place], after: after_window[place] })
        })
    }
}
