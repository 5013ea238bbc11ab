use std::ops::Range;

use crate::bars::Bars;
use crate::error::Result;
use crate::series::feature_table::FeatureTable;
use crate::series::instrument::{Instrument, SegmentBars};
use crate::series::resample::resample_part;
use crate::series::scale::scale_rows;
use crate::series::scalers::TimeframeScaler;
use crate::series::spec::{SeriesSpec, Window};

/// One timeframe of all instruments: the bars of every segment as features, segment by segment.
pub(crate) struct Track {
    pub(crate) window: Window,
    /// Features of the bars after each segment's warm-up: `[rows, F]`.
    pub(crate) values: Vec<f32>,
    /// When the bar of each row opens.
    pub(crate) open_time: Vec<i64>,
    /// When the bar of each row closes.
    pub(crate) close_time: Vec<i64>,
    /// The part of each segment.
    pub(crate) parts: Vec<SegmentPart>,
    /// Number of features F.
    width: usize,
}

/// Bars of one segment in a track.
pub(crate) struct SegmentPart {
    /// When each bar of the warm-up opens; of all bars if they are fewer.
    pub(crate) warm_up_open_time: Vec<i64>,
    /// The rows of the others.
    pub(crate) rows: Range<usize>,
}

impl Track {
    /// Resamples and computes the features of each piece by itself.
    pub(crate) fn of(
        instruments: &[Instrument<'_>],
        pieces: &[SegmentBars],
        spec: &SeriesSpec,
        window: Window,
    ) -> Result<Self> {
        let mut track = Track {
            window,
            values: Vec::new(),
            open_time: Vec::new(),
            close_time: Vec::new(),
            parts: Vec::with_capacity(pieces.len()),
            width: spec.features.len(),
        };
        for piece in pieces {
            let Instrument { bars, pip_size, .. } = instruments[piece.instrument];
            let bars = resample_part(bars, piece.bars.clone(), window.timeframe)?;
            track.push(&bars, FeatureTable::of(&bars, &spec.features, pip_size));
        }
        Ok(track)
    }

    fn push(&mut self, bars: &Bars, table: FeatureTable) {
        let start = self.close_time.len();
        let (warm_up, rows) = bars.open_time.split_at(table.warm_up);
        self.open_time.extend_from_slice(rows);
        self.close_time.extend((table.warm_up..bars.len()).map(|index| bars.close_time(index)));
        self.parts.push(SegmentPart { warm_up_open_time: warm_up.to_vec(), rows: start..self.close_time.len() });
        if self.values.is_empty() {
            self.values = table.values;
        } else {
            self.values.extend_from_slice(&table.values);
        }
    }

    /// When a segment's first window is full, if it ever is.
    pub(crate) fn full_at(&self, segment: usize) -> Option<i64> {
        self.close_time[self.parts[segment].rows.clone()].get(self.window.seq_len - 1).copied()
    }

    /// Number of a segment's bars, the warm-up included, that have closed at `time` or before.
    pub(crate) fn closed_at(&self, segment: usize, time: i64) -> usize {
        let SegmentPart { warm_up_open_time, rows } = &self.parts[segment];
        let duration_ns = self.window.timeframe.duration_ns();
        let warm_up = warm_up_open_time.partition_point(|open_time| open_time + duration_ns <= time);
        warm_up + self.close_time[rows.clone()].partition_point(|&close_time| close_time <= time)
    }

    /// The rows of consecutive segments that have closed at `time` or before, which must be theirs
    /// in order of time.
    pub(crate) fn values_closed_at(&self, segments: Range<usize>, time: i64) -> &[f32] {
        let rows = self.rows_of(segments);
        let closed = self.close_time[rows.clone()].partition_point(|&close_time| close_time <= time);
        &self.values[rows.start * self.width..(rows.start + closed) * self.width]
    }

    /// Row of the last bar that has closed at each of the increasing times, all within one segment
    /// that has a full window by then.
    pub(crate) fn last_closed<'a>(&'a self, segment: usize, times: &'a [i64]) -> impl Iterator<Item = i64> + 'a {
        let rows = self.parts[segment].rows.clone();
        let mut after = rows.start;
        times.iter().map(move |&time| {
            while after < rows.end && self.close_time[after] <= time {
                after += 1;
            }
            after as i64 - 1
        })
    }

    /// Scales the rows of one instrument's segments.
    pub(crate) fn scale(&mut self, segments: Range<usize>, scaler: &TimeframeScaler, instrument: usize) {
        let rows = self.rows_of(segments);
        let own = instrument * self.width..(instrument + 1) * self.width;
        let values = &mut self.values[rows.start * self.width..rows.end * self.width];
        scale_rows(values, &scaler.center[own.clone()], &scaler.scale[own]);
    }

    /// Leaves out the segments that are not kept.
    pub(crate) fn retain(&mut self, is_kept: &[bool]) {
        let mut kept = 0;
        let mut is_kept = is_kept.iter();
        self.parts.retain_mut(|part| {
            let keeps = *is_kept.next().expect("there is an answer for each segment");
            if keeps {
                let rows = part.rows.clone();
                self.open_time.copy_within(rows.clone(), kept);
                self.close_time.copy_within(rows.clone(), kept);
                self.values.copy_within(rows.start * self.width..rows.end * self.width, kept * self.width);
                part.rows = kept..kept + rows.len();
                kept = part.rows.end;
            }
            keeps
        });
        self.open_time.truncate(kept);
        self.close_time.truncate(kept);
        self.values.truncate(kept * self.width);
    }

    fn rows_of(&self, segments: Range<usize>) -> Range<usize> {
        let parts = &self.parts[segments];
        match (parts.first(), parts.last()) {
            (Some(first), Some(last)) => first.rows.start..last.rows.end,
            _ => 0..0,
        }
    }
}
