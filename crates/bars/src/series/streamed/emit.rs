//! The arrays of a series, a piece at a time.

use rayon::prelude::*;

use super::cursor::TrackCursor;
use super::{Observe, SampleSelector, SeriesHeader, SeriesPlan};
use crate::bar_source::{PIECE_BARS, pieces_of_len};
use crate::bars::Bars;
use crate::context_reach::ContextReach;
use crate::error::Error;
use crate::series::scale::scale_rows;
use crate::series::target::Labels;
use crate::time::timestamp::display_utc;

/// Targets, or features of one timeframe, that are held at once.
const PIECE_NUMBERS: usize = 1 << 20;

/// Consecutive rows and samples of a series.
///
/// Sample n sees, of each timeframe, the rows `end[n] + 1 - seq_len ..= end[n]`: the last bars of
/// its segment that have closed at `sample_time[n]` or before. Instruments stand one after the
/// other in all arrays of a series, and within each its segments in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SeriesPiece {
    /// Rows of each timeframe.
    pub timeframes: Vec<TimeframePiece>,
    /// Place of the first sample in the series.
    pub first_sample: usize,
    /// Close time of each sample's base bar, in nanoseconds since 1970 UTC: `[n]`, increasing
    /// within an instrument.
    pub sample_time: Vec<i64>,
    /// Instrument of each sample, from 0: `[n]`.
    pub sample_instrument: Vec<i32>,
    /// Open time of the earliest bar that each sample depends on in any timeframe: `[n]`.
    ///
    /// It is the first bar of the sample's windows or, before it, of the look-back of the features:
    /// their longest warm-up. A bin that opened before its segment counts from where the segment
    /// begins, unless its bar was given and not made. Of other instruments, all bars count
    /// that their features read, from the first bar of a window on, until they have ended: see
    /// [`ContextReach`].
    ///
    /// Recursive features (EMA, Wilder's mean) have no earliest bar: each bar's weight fades by a
    /// constant factor a bar and never becomes zero. All bars before the look-back together weigh
    /// (1 - w) to the power look-back + 1 in a mean of weight w: with the 49 bars of the default
    /// features, 2.5 % in `rsi_14` and `atr_14`, 2.1 % in the slow mean of `macd`; with all
    /// features, 13.5 % in `ema_50_distance`. A purge by this time is exact for windowed features,
    /// and removes all but that share of recursive ones. No look-back lets a later bar into an
    /// earlier sample.
    pub receptive_start: Vec<i64>,
    /// Close time of the last base bar that decides each sample's targets: `[n]`.
    pub label_end_time: Vec<i64>,
    /// Weight of each sample: `[n]`; empty where all count alike.
    pub weight: Vec<f32>,
    /// Targets of each sample, NaN where they are not known: `[n, K]`.
    pub targets: Vec<f32>,
}

/// Rows of one timeframe in a [`SeriesPiece`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TimeframePiece {
    /// Place of the first row in the series.
    pub first_row: usize,
    /// Scaled features: `[rows, F]`.
    pub values: Vec<f32>,
    /// When each row's bar closes: `[rows]`.
    pub close_time: Vec<i64>,
    /// Row of the last bar of the window of each sample of the piece: `[n]`.
    pub end: Vec<i64>,
}

impl SeriesPiece {
    /// Empties the piece, the next of the same instrument.
    fn advance(&mut self, width: usize) {
        self.first_sample += self.sample_time.len();
        for timeframe in &mut self.timeframes {
            timeframe.first_row += timeframe.values.len() / width;
            timeframe.values.clear();
            timeframe.close_time.clear();
            timeframe.end.clear();
        }
        self.sample_time.clear();
        self.sample_instrument.clear();
        self.receptive_start.clear();
        self.label_end_time.clear();
        self.weight.clear();
        self.targets.clear();
    }

    /// Rows of a timeframe or samples, whichever are more.
    fn len(&self) -> usize {
        let rows = self.timeframes.iter().map(|timeframe| timeframe.close_time.len());
        rows.chain([self.sample_time.len()]).max().unwrap_or(0)
    }
}

impl SeriesPlan<'_> {
    /// Computes the arrays and hands them to `sink`, those of each instrument in order and of
    /// several instruments at once.
    ///
    /// # Errors
    /// [`Error::Spool`], [`Error::Interrupted`] and those of `sink`.
    pub fn write<E: From<Error> + Send>(
        &self,
        header: &SeriesHeader,
        observe: Observe<'_>,
        sink: &(dyn Fn(&SeriesPiece) -> Result<(), E> + Sync),
    ) -> Result<(), E> {
        let places = (0..self.instruments.len()).into_par_iter().with_max_len(1);
        places.try_for_each(|place| self.write_instrument(place, header, observe, sink))
    }

    fn write_instrument<E: From<Error> + Send>(
        &self,
        place: usize,
        header: &SeriesHeader,
        observe: Observe<'_>,
        sink: &(dyn Fn(&SeriesPiece) -> Result<(), E> + Sync),
    ) -> Result<(), E> {
        let (source, index) = (self.instruments[place].bars, &self.segment_indices[place]);
        // Targets of long horizons are more than bars.
        let piece_bars = (PIECE_NUMBERS / self.spec.horizon.max(self.spec.features.len())).clamp(64, PIECE_BARS);
        let mut writer = InstrumentWriter::new(self, place, header)?;
        let mut bars = Bars::with_capacity(self.base, 0);
        for (segment, found) in index.segments.iter().enumerate() {
            if self.samples[place][segment] == 0 {
                if observe(found.bars.len()).is_break() {
                    return Err(Error::Interrupted.into());
                }
                continue;
            }
            writer.begin();
            for piece in pieces_of_len(found.bars.clone(), piece_bars) {
                let count = piece.len();
                let with_horizon = (piece.end + self.spec.horizon).min(found.bars.end);
                source.read(piece.start..with_horizon, &mut bars)?;
                writer.push(segment, piece.start, &bars, count)?;
                if writer.piece.len() >= piece_bars {
                    sink(&writer.piece)?;
                    writer.piece.advance(self.spec.features.len());
                }
                if observe(count).is_break() {
                    return Err(Error::Interrupted.into());
                }
            }
            writer.end(segment);
        }
        sink(&writer.piece)
    }
}

/// The next piece of one instrument.
struct InstrumentWriter<'a> {
    plan: &'a SeriesPlan<'a>,
    place: usize,
    tracks: Vec<ScaledTrack<'a>>,
    selector: SampleSelector<'a>,
    labels: Labels,
    piece: SeriesPiece,
    chosen: Vec<usize>,
}

/// One timeframe and its scaler.
struct ScaledTrack<'a> {
    cursor: TrackCursor,
    center: &'a [f64],
    scale: &'a [f64],
    /// Reach of other instruments.
    context: &'a [ContextReach],
    /// Row of the segment's first.
    segment_row: usize,
}

impl<'a> InstrumentWriter<'a> {
    fn new(plan: &'a SeriesPlan<'a>, place: usize, header: &'a SeriesHeader) -> Result<Self, Error> {
        let width = plan.spec.features.len();
        let own = place * width..(place + 1) * width;
        let scalers = &header.scalers.timeframes;
        let bars = plan.instruments[place].bars;
        let track = |(cursor, scaler): (TrackCursor, &'a crate::series::scalers::TimeframeScaler)| ScaledTrack {
            cursor,
            center: &scaler.center[own.clone()],
            scale: &scaler.scale[own.clone()],
            context: bars.context_reach(scaler.timeframe),
            segment_row: 0,
        };
        let piece = SeriesPiece {
            timeframes: header
                .timeframes
                .iter()
                .map(|timeframe| TimeframePiece {
                    first_row: timeframe.instrument_start[place] as usize,
                    ..TimeframePiece::default()
                })
                .collect(),
            first_sample: plan.samples[..place].iter().flatten().sum(),
            ..SeriesPiece::default()
        };
        Ok(InstrumentWriter {
            plan,
            place,
            tracks: plan.cursors(place)?.into_iter().zip(scalers).map(track).collect(),
            selector: plan.selector(place),
            labels: Labels::new(
                plan.spec.target_kind.clone(),
                plan.spec.first_target_column(),
                plan.spec.bars_after_sample(),
                plan.instruments[place].pip_size,
            ),
            piece,
            chosen: Vec::new(),
        })
    }

    /// Row of timeframe `timeframe` that comes next.
    fn next_row(&self, timeframe: usize) -> usize {
        let piece = &self.piece.timeframes[timeframe];
        piece.first_row + piece.close_time.len()
    }

    fn begin(&mut self) {
        self.labels.restart();
        for timeframe in 0..self.tracks.len() {
            self.tracks[timeframe].segment_row = self.next_row(timeframe);
            self.tracks[timeframe].cursor.restart();
        }
    }

    /// Takes the first `count` of `bars`, those of a segment from place `first` on; their horizon
    /// follows them.
    fn push(&mut self, segment: usize, first: usize, bars: &Bars, count: usize) -> Result<(), Error> {
        self.chosen.clear();
        self.selector.choose(segment, &(first..first + count), &bars.open_time, &mut self.chosen)?;
        let (piece, chosen, labels) = (&mut self.piece, &self.chosen, &mut self.labels);
        let (tracks, timeframes) = (&mut self.tracks, &mut piece.timeframes);
        let (targets, ends) = (&mut piece.targets, &mut piece.label_end_time);
        let mut add_targets = || labels.extend(bars, count, chosen, targets, ends);
        if self.plan.is_spread() {
            let push = || {
                let together = tracks.par_iter_mut().with_max_len(1).zip(timeframes.par_iter_mut());
                together.try_for_each(|(track, piece)| track.push(bars, count, chosen, piece))
            };
            rayon::join(push, add_targets).0?;
        } else {
            let mut together = tracks.iter_mut().zip(timeframes);
            together.try_for_each(|(track, piece)| track.push(bars, count, chosen, piece))?;
            add_targets();
        }
        self.push_weights(bars)?;
        let segment_open = self.plan.segment_indices[self.place].segments[segment].open_time;
        for &index in &self.chosen {
            let earliest = self.tracks.iter().map(|track| {
                let open_time = track.cursor.reach(index).open_time;
                let own = if track.cursor.has_own_bars() { open_time } else { open_time.max(segment_open) };
                track.context_open_time(index).map_or(own, |open_time| open_time.min(own))
            });
            self.piece.receptive_start.push(earliest.min().unwrap_or(segment_open));
            self.piece.sample_time.push(bars.close_time(index));
            self.piece.sample_instrument.push(self.place as i32);
        }
        self.tracks.iter_mut().for_each(|track| track.cursor.forget());
        Ok(())
    }

    /// Adds the weights of the chosen samples.
    fn push_weights(&mut self, bars: &Bars) -> Result<(), Error> {
        let Some(name) = &self.plan.spec.weight else { return Ok(()) };
        let column = &bars.columns[self.plan.spec.first_target_column() - 1];
        for &index in &self.chosen {
            let weight = column[index];
            if weight < 0.0 || weight.is_infinite() {
                return Err(Error::Weight {
                    column: name.clone(),
                    instrument: self.plan.instruments[self.place].name.to_owned(),
                    open_time: display_utc(bars.open_time[index]),
                    weight,
                });
            }
            self.piece.weight.push(if weight.is_nan() { 0.0 } else { weight as f32 });
        }
        Ok(())
    }

    /// Makes sure that a segment has the rows that were counted.
    fn end(&self, segment: usize) {
        let counted = &self.plan.segment_indices[self.place].segments[segment];
        for (timeframe, track) in self.tracks.iter().enumerate() {
            let rows = self.next_row(timeframe) - track.segment_row;
            assert_eq!(rows, counted.rows(timeframe, self.plan.spec.look_back()), "rows of segment {segment}");
        }
    }
}

impl ScaledTrack<'_> {
    fn push(&mut self, bars: &Bars, count: usize, chosen: &[usize], piece: &mut TimeframePiece) -> Result<(), Error> {
        let start = piece.values.len();
        self.cursor.push(bars, count, &mut piece.values, &mut piece.close_time)?;
        scale_rows(&mut piece.values[start..], self.center, self.scale);
        let end = |&index: &usize| (self.segment_row + self.cursor.reach(index).rows) as i64 - 1;
        piece.end.extend(chosen.iter().map(end));
        Ok(())
    }

    /// When the earliest bar of another instrument opens that the window at base bar `index` of the
    /// last piece reads.
    fn context_open_time(&self, index: usize) -> Option<i64> {
        if self.context.is_empty() {
            return None;
        }
        let first_close = self.cursor.first_close(index);
        self.context.iter().filter_map(|reach| reach.open_time(first_close)).min()
    }
}
