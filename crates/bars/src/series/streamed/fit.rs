//! Scalers, and the facts of a series besides its arrays.

use std::ops::ControlFlow;
use std::path::Path;

use rayon::prelude::*;

use super::columns::ColumnsFile;
use super::cursor::TrackCursor;
use super::{Observe, SampleInstants, SeriesPlan, StreamedInstrument, segment_indices};
use crate::bar_source::pieces_of;
use crate::bars::Bars;
use crate::error::excluded::refused;
use crate::error::{Error, Result};
use crate::series::Segment;
use crate::series::feature::Feature;
use crate::series::scale::{Scaler, Scaling};
use crate::series::scalers::{Scalers, TimeframeScaler};
use crate::series::spec::{SeriesSpec, Window};
use crate::series::warnings::{self, ConstantFeature, InstrumentSize};
use crate::time::timeframe::Timeframe;

/// A series without its arrays of bars and samples.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SeriesHeader {
    /// The timeframe of the bars that the series is made from.
    pub base: Timeframe,
    /// Number of samples N.
    pub samples: usize,
    /// Times at which there are samples.
    pub instants: SampleInstants,
    /// One entry a timeframe, shortest first.
    pub timeframes: Vec<TimeframeHeader>,
    /// Scalers of the features.
    pub scalers: Scalers,
    /// The segments that have samples: `[S]`.
    pub segments: Vec<Segment>,
    /// The segments that are too short for one sample.
    pub excluded: Vec<Segment>,
    /// Warnings about the data, for people.
    pub warnings: Vec<String>,
}

/// One timeframe of a [`SeriesHeader`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TimeframeHeader {
    /// The timeframe and the length of its window.
    pub window: Window,
    /// Number of rows.
    pub rows: usize,
    /// First row of each instrument and, last, the number of rows: `[I + 1]`.
    pub instrument_start: Vec<i64>,
    /// First row of each segment that has samples: `[S]`.
    pub segment_start: Vec<i64>,
}

impl SeriesHeader {
    /// The names of the instruments.
    pub fn instruments(&self) -> &[String] {
        &self.scalers.instruments
    }

    /// The features in the order of their columns.
    pub fn features(&self) -> &[Feature] {
        &self.scalers.features
    }
}

impl SeriesPlan<'_> {
    /// Fits the scalers, an instrument at a time on each thread.
    ///
    /// # Errors
    /// [`Error::Spool`] and [`Error::Interrupted`].
    pub fn fit(&self, observe: Observe<'_>) -> Result<SeriesHeader> {
        let places = (0..self.instruments.len()).into_par_iter().with_max_len(1);
        let fitted = places.map(|place| self.fit_instrument(place, observe)).collect::<Result<Vec<_>>>()?;
        let names: Vec<&str> = self.instruments.iter().map(|one| one.name).collect();
        let mut constant = Vec::new();
        let mut scalers = Vec::with_capacity(self.windows.len());
        for (k, Window { timeframe, .. }) in self.windows.iter().enumerate() {
            let mut scaler = TimeframeScaler { timeframe: *timeframe, center: Vec::new(), scale: Vec::new() };
            for (place, scalers) in fitted.iter().enumerate() {
                let own = &scalers[k];
                scaler.center.extend(&own.center);
                scaler.scale.extend(&own.scale);
                let place = format!("{}{timeframe}", warnings::whose(&names, place));
                let named = |feature: &Feature| ConstantFeature { feature: feature.clone(), place: place.clone() };
                constant.extend(own.constant.iter().map(named));
            }
            scalers.push(scaler);
        }
        let everywhere = self.windows.len() * names.len();
        let constant = warnings::constant_warnings(&self.spec.features, &constant, everywhere);
        let scalers = Scalers {
            kind: self.spec.scaling,
            fit_end_time: self.fit_end_time,
            instruments: names.iter().map(|&name| name.to_owned()).collect(),
            features: self.spec.features.clone(),
            timeframes: scalers,
        };
        Ok(self.header(scalers, constant))
    }

    /// Takes scalers of before, those of these instruments and timeframes, instead of fitting any;
    /// `constant` are the warnings about constant features that came with them.
    ///
    /// # Errors
    /// [`Error::Scalers`] for scalers of something else.
    pub fn with_scalers(&self, scalers: &Scalers, constant: Vec<String>) -> Result<SeriesHeader> {
        let names: Vec<&str> = self.instruments.iter().map(|one| one.name).collect();
        Ok(self.header(scalers.chosen(&names, self.spec)?, constant))
    }

    fn header(&self, scalers: Scalers, constant: Vec<String>) -> SeriesHeader {
        let names: Vec<&str> = self.instruments.iter().map(|one| one.name).collect();
        let (segments, excluded) = self.segments();
        let size = |index: &super::SegmentIndex| InstrumentSize { segments: index.segments.len(), bars: index.bars() };
        let sizes: Vec<InstrumentSize> = self.segment_indices.iter().map(size).collect();
        let mut warnings = warnings::excluded_warnings(&names, &sizes, &excluded, self.spec.holes);
        warnings.extend(constant);
        SeriesHeader {
            base: self.base,
            samples: self.samples(),
            instants: self.instants.clone(),
            timeframes: (0..self.windows.len()).map(|k| self.timeframe_header(k)).collect(),
            scalers,
            segments,
            excluded,
            warnings,
        }
    }

    fn timeframe_header(&self, timeframe: usize) -> TimeframeHeader {
        let look_back = self.spec.look_back();
        let (mut instrument_start, mut segment_start, mut rows) = (Vec::new(), Vec::new(), 0);
        for (index, samples) in self.segment_indices.iter().zip(&self.samples) {
            instrument_start.push(rows as i64);
            for (segment, _) in index.segments.iter().zip(samples).filter(|(_, samples)| **samples > 0) {
                segment_start.push(rows as i64);
                rows += segment.rows(timeframe, look_back);
            }
        }
        instrument_start.push(rows as i64);
        TimeframeHeader { window: self.windows[timeframe], rows, instrument_start, segment_start }
    }

    pub(super) fn cursors(&self, place: usize) -> Result<Vec<TrackCursor>> {
        let StreamedInstrument { bars, pip_size, .. } = self.instruments[place];
        let cursor = |&window: &Window| {
            let cursor = TrackCursor::new(window, self.base, self.spec, pip_size)?;
            Ok(cursor.with_own_bars(bars.own_bars(window.timeframe)))
        };
        self.windows.iter().map(cursor).collect()
    }

    /// Scaler of each timeframe of an instrument.
    fn fit_instrument(&self, place: usize, observe: Observe<'_>) -> Result<Vec<Scaler>> {
        let (source, end) = (self.instruments[place].bars, self.instruments[place].bars_to_fit(self.fit_end_time)?);
        let width = self.spec.features.len();
        let mut tracks = Vec::with_capacity(self.windows.len());
        for cursor in self.cursors(place)? {
            tracks.push(FittedTrack { cursor, columns: ColumnsFile::create(self.folder, width)?, rows: Vec::new() });
        }
        let mut bars = Bars::with_capacity(self.base, 0);
        for segment in self.segment_indices[place].segments.iter().filter(|segment| segment.bars.start < end) {
            tracks.iter_mut().for_each(|track| track.cursor.restart());
            for piece in pieces_of(segment.bars.start..segment.bars.end.min(end)) {
                source.read(piece, &mut bars)?;
                if self.is_spread() {
                    tracks.par_iter_mut().with_max_len(1).try_for_each(|track| track.push(&bars))?;
                } else {
                    tracks.iter_mut().try_for_each(|track| track.push(&bars))?;
                }
                if observe(bars.len()).is_break() {
                    return Err(Error::Interrupted);
                }
            }
        }
        let scaler = |track: &mut FittedTrack| {
            track.flush()?;
            track.columns.fit(self.spec.scaling, &self.spec.features)
        };
        tracks.iter_mut().map(scaler).collect()
    }
}

/// Scalers of one instrument, fitted up to a given time.
///
/// # Errors
/// [`Error::Invalid`], [`Error::NotAMultiple`] and [`Error::Straddles`] as for [`SeriesPlan::new`];
/// [`Error::TooFewToFit`] for less than a window of bars; [`Error::Spool`] and
/// [`Error::Interrupted`].
pub(crate) fn fit_until(
    instrument: StreamedInstrument<'_>,
    spec: &SeriesSpec,
    fit_end_time: i64,
    folder: &Path,
    observe: Observe<'_>,
) -> Result<Scalers> {
    let windows = spec.checked_windows()?;
    let counted = segment_indices(&[instrument], spec, &windows, &|_| ControlFlow::Continue(()))?;
    let plan = SeriesPlan::without_samples(vec![instrument], spec, windows, counted, folder);
    let plan = SeriesPlan { fit_end_time, ..plan };
    if spec.scaling != Scaling::None
        && let Some(lacking) = plan.too_few_to_fit(0)?
    {
        return Err(refused(0, vec![lacking]));
    }
    let fitted = plan.fit_instrument(0, observe)?;
    let timeframe = |(window, scaler): (&Window, Scaler)| {
        let Scaler { center, scale, .. } = scaler;
        TimeframeScaler { timeframe: window.timeframe, center, scale }
    };
    Ok(Scalers {
        kind: spec.scaling,
        fit_end_time,
        instruments: vec![instrument.name.to_owned()],
        features: spec.features.clone(),
        timeframes: plan.windows.iter().zip(fitted).map(timeframe).collect(),
    })
}

/// Rows that are held until they are written together.
const HELD_ROWS: usize = 1 << 13;

/// One timeframe whose rows are collected.
struct FittedTrack {
    cursor: TrackCursor,
    columns: ColumnsFile,
    rows: Vec<f32>,
}

impl FittedTrack {
    fn push(&mut self, bars: &Bars) -> Result<()> {
        let mut close_time = Vec::new();
        self.cursor.push(bars, bars.len(), &mut self.rows, &mut close_time)?;
        self.cursor.forget();
        if self.rows.len() >= HELD_ROWS * self.columns.width() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.columns.push(&self.rows)?;
        self.rows.clear();
        Ok(())
    }
}
