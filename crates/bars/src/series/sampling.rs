//! Positions of samples.

use std::ops::Range;

use crate::error::excluded::Excluded;
use crate::error::{BarShortage, Error};
use crate::series::Segment;
use crate::series::instrument::SegmentBars;
use crate::series::unscaled_series::UnscaledSeries;
use crate::series::warnings::{self, InstrumentSize};

/// The samples of all instruments.
pub(crate) struct SampleLayout {
    /// The base bars at which each segment's samples stand; none in a segment too short.
    pub(crate) bars: Vec<Vec<usize>>,
    /// Every segment, with its samples.
    pub(crate) segments: Vec<Segment>,
    /// Close time of each sample's base bar.
    pub(crate) time: Vec<i64>,
    /// Instrument of each sample.
    pub(crate) instrument: Vec<i32>,
}

/// Sample times that several instruments share when samples have a stride.
///
/// They are every stride-th of the times at which a bar of any instrument opens, from the first
/// after which the windows of one are full. Counted along each instrument's own bars, samples would
/// drift apart wherever one lacks a bar. No later bar decides if a time is one of them.
struct CommonGrid {
    opens: Vec<i64>,
    stride: usize,
}

impl CommonGrid {
    /// `None` for a stride of 1 or one instrument.
    fn of(unscaled: &UnscaledSeries<'_>) -> Option<Self> {
        let stride = unscaled.spec.stride;
        if stride == 1 || unscaled.instruments.len() == 1 {
            return None;
        }
        let first = (0..unscaled.pieces.len()).filter_map(|segment| {
            let piece = &unscaled.pieces[segment];
            let first = unscaled.first_full(segment)?;
            Some(unscaled.instruments[piece.instrument].bars.open_time[first])
        });
        let first = first.min()?;
        let bars = unscaled.instruments.iter().flat_map(|instrument| &instrument.bars.open_time);
        let mut opens: Vec<i64> = bars.copied().filter(|&open_time| open_time >= first).collect();
        opens.sort_unstable();
        opens.dedup();
        Some(CommonGrid { opens, stride })
    }

    fn contains(&self, open_time: i64) -> bool {
        self.opens.binary_search(&open_time).is_ok_and(|place| place % self.stride == 0)
    }
}

impl UnscaledSeries<'_> {
    /// Puts samples at base bars of each segment at which all windows are full and a horizon
    /// follows: at every stride-th.
    pub(crate) fn place(&self) -> SampleLayout {
        let count = self.pieces.len();
        let mut layout = SampleLayout {
            bars: Vec::with_capacity(count),
            segments: Vec::with_capacity(count),
            time: vec![],
            instrument: vec![],
        };
        let grid = CommonGrid::of(self);
        for (segment, piece) in self.pieces.iter().enumerate() {
            let (bars, instrument) = (self.instruments[piece.instrument].bars, piece.instrument as i32);
            let range = self.sample_range(segment);
            let samples: Vec<usize> = match &grid {
                None => range.step_by(self.spec.stride).collect(),
                Some(grid) => range.filter(|&t| grid.contains(bars.open_time[t])).collect(),
            };
            let start = layout.time.len();
            layout.time.extend(samples.iter().map(|&t| bars.close_time(t)));
            layout.instrument.resize(layout.time.len(), instrument);
            layout.segments.push(Segment {
                instrument,
                bars: piece.bars.len(),
                open_time: bars.open_time[piece.bars.start],
                close_time: bars.close_time(piece.bars.end - 1),
                samples: start..layout.time.len(),
            });
            layout.bars.push(samples);
        }
        layout
    }

    /// The instruments without a sample, and what each lacks.
    pub(crate) fn without_samples(&self, layout: &SampleLayout) -> Vec<Excluded> {
        let has_none = |&place: &usize| layout.bars[self.segments_of(place)].iter().all(Vec::is_empty);
        let excluded = |place: usize| self.excluded(place, self.too_short(place));
        (0..self.instruments.len()).filter(has_none).map(excluded).collect()
    }

    pub(crate) fn excluded(&self, instrument: usize, reason: Error) -> Excluded {
        Excluded { symbol: self.instruments[instrument].name.to_owned(), reason }
    }

    /// The base bars of a segment at which samples may stand. A window that is full stays full, so
    /// that they are one run.
    fn sample_range(&self, segment: usize) -> Range<usize> {
        let piece = &self.pieces[segment].bars;
        let after_last = piece.end.saturating_sub(self.spec.horizon).max(piece.start);
        self.first_full(segment).map_or(after_last, |first| first.min(after_last))..after_last
    }

    /// The first base bar of a segment by whose close all windows are full, if there is one.
    fn first_full(&self, segment: usize) -> Option<usize> {
        let SegmentBars { instrument, bars: piece } = &self.pieces[segment];
        let full_at: Option<Vec<i64>> = self.tracks.iter().map(|track| track.full_at(segment)).collect();
        let full_at = full_at?.into_iter().max()?;
        let open_time = &self.instruments[*instrument].bars.open_time[piece.clone()];
        let first = open_time.partition_point(|open_time| open_time + self.base.duration_ns() < full_at);
        (first < piece.len()).then_some(piece.start + first)
    }

    /// Bars missing in the instrument's longest segment, as an error.
    fn too_short(&self, instrument: usize) -> Error {
        let segments = self.segments_of(instrument);
        let longest = segments.clone().max_by_key(|&segment| self.pieces[segment].bars.len());
        let piece = longest.map_or(0..0, |segment| self.pieces[segment].bars.clone());
        let bars = self.instruments[instrument].bars;
        // The last base bar that has a full horizon.
        let last = piece.len().checked_sub(self.spec.horizon + 1).map(|last| bars.close_time(piece.start + last));
        let closed = |k: usize| longest.zip(last).map_or(0, |(segment, time)| self.tracks[k].closed_at(segment, time));
        let shortage = |k: usize| BarShortage {
            timeframe: self.tracks[k].window.timeframe,
            bars: closed(k),
            needed: self.spec.look_back() + self.tracks[k].window.seq_len,
        };
        Error::TooShort {
            instrument: self.instruments[instrument].name.to_owned(),
            horizon: self.spec.horizon,
            segments: segments.len(),
            longest: piece.len(),
            shortages: (0..self.tracks.len()).map(shortage).collect(),
        }
    }

    /// A warning an instrument of whose segments some are too short.
    pub(crate) fn excluded_warnings(&self, excluded: &[Segment]) -> Vec<String> {
        let size = |place: usize| InstrumentSize {
            segments: self.segments_of(place).len(),
            bars: self.instruments[place].bars.len(),
        };
        let sizes: Vec<InstrumentSize> = (0..self.instruments.len()).map(size).collect();
        warnings::of_excluded(&self.names(), &sizes, excluded, self.spec.holes)
    }
}
