//! Where samples stand.

use std::ops::Range;

use crate::draft::Draft;
use crate::error::{Error, Result, Shortage};
use crate::hole::Weekends;
use crate::instrument::Piece;
use crate::series::Segment;
use crate::timestamp::display_duration;

/// The samples of all instruments.
pub(crate) struct Placed {
    /// The base bars at which each segment's samples stand, of which every stride-th is one; empty for a segment too short.
    pub(crate) bars: Vec<Range<usize>>,
    /// Every segment, with its samples.
    pub(crate) segments: Vec<Segment>,
    /// Close time of each sample's base bar.
    pub(crate) time: Vec<i64>,
    /// Instrument of each sample.
    pub(crate) instrument: Vec<i32>,
}

impl Draft<'_> {
    /// Puts a sample at every stride-th base bar of each segment at which all windows are full and a horizon follows.
    pub(crate) fn place(&self) -> Result<Placed> {
        let count = self.pieces.len();
        let mut placed = Placed {
            bars: Vec::with_capacity(count),
            segments: Vec::with_capacity(count),
            time: vec![],
            instrument: vec![],
        };
        for (segment, piece) in self.pieces.iter().enumerate() {
            let (bars, instrument) = (self.instruments[piece.instrument].bars, piece.instrument as i32);
            let range = self.sample_range(segment);
            let start = placed.time.len();
            placed.time.extend(range.clone().step_by(self.spec.stride).map(|t| bars.close_time(t)));
            placed.instrument.resize(placed.time.len(), instrument);
            placed.segments.push(Segment {
                instrument,
                bars: piece.bars.len(),
                open_time: bars.open_time[piece.bars.start],
                close_time: bars.close_time(piece.bars.end - 1),
                samples: start..placed.time.len(),
            });
            placed.bars.push(range);
        }
        for instrument in 0..self.instruments.len() {
            if placed.bars[self.segments_of(instrument)].iter().all(Range::is_empty) {
                return Err(self.too_short(instrument));
            }
        }
        Ok(placed)
    }

    /// The base bars of a segment at which samples may stand. A window that is full stays full, so that they are one run.
    fn sample_range(&self, segment: usize) -> Range<usize> {
        let Piece { instrument, bars: piece } = &self.pieces[segment];
        let after_last = piece.end.saturating_sub(self.spec.horizon).max(piece.start);
        let full_at: Option<Vec<i64>> = self.tracks.iter().map(|track| track.full_at(segment)).collect();
        let Some(full_at) = full_at.and_then(|times| times.into_iter().max()) else { return after_last..after_last };
        let open_time = &self.instruments[*instrument].bars.open_time[piece.start..after_last];
        let first = open_time.partition_point(|open_time| open_time + self.base.duration_ns() < full_at);
        piece.start + first..after_last
    }

    /// Says what the instrument's longest segment lacks.
    fn too_short(&self, instrument: usize) -> Error {
        let segments = self.segments_of(instrument);
        let longest = segments.clone().max_by_key(|&segment| self.pieces[segment].bars.len());
        let piece = longest.map_or(0..0, |segment| self.pieces[segment].bars.clone());
        let bars = self.instruments[instrument].bars;
        // The last base bar that has a full horizon.
        let last = piece.len().checked_sub(self.spec.horizon + 1).map(|last| bars.close_time(piece.start + last));
        let closed = |k: usize| longest.zip(last).map_or(0, |(segment, time)| self.tracks[k].closed_at(segment, time));
        let shortage = |k: usize| Shortage {
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
    pub(crate) fn left_out_warnings(&self, left_out: &[Segment]) -> Vec<String> {
        let warning = |place: usize| {
            let own = left_out.iter().filter(|segment| segment.instrument as usize == place);
            let (count, bars) = own.fold((0, 0), |(count, bars), segment| (count + 1, bars + segment.bars));
            let (segments, all) = (self.segments_of(place).len(), self.instruments[place].bars.len());
            let limit = display_duration(self.spec.holes.longest_ns);
            let weekends = match self.spec.holes.weekends {
                Weekends::Spanned => "",
                Weekends::NotSpanned => " and every weekend",
            };
            (count > 0).then(|| {
                format!(
                    "{}{count} of {segments} segments are too short for one sample, so that {bars} of {all} bars are left out; holes of more than {limit}{weekends} end a segment",
                    self.whose(place)
                )
            })
        };
        (0..self.instruments.len()).filter_map(warning).collect()
    }
}
