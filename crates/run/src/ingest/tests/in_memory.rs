//! The oracle of `ingest` and `leak`: bars are read into memory, and the pieces of a series are put
//! together before they are written.

use std::io;
use std::ops::ControlFlow;
use std::sync::Mutex;

use megabatch_bars::{
    BarSource as _, Bars, OnError, Recording, Scalers, SeriesHeader, SeriesPiece, SeriesPlan, SeriesSpec,
    StreamedInstrument, TimeframePiece,
};
use megabatch_chunk_io::{Instruments, Scaler, Series, SeriesTimeframe};
use serde_json::Value;
use tempfile::TempDir;

use super::provenance::{SeriesProvenance, provenance_json};
use super::{Recipe, Recordings, StreamedRecordings, instruments_of};
use crate::adapters::series::{Origin, attributes};
use crate::error::Result;
use crate::host::Host;
use crate::ingest::provenance::Fingerprints;
use crate::ingest::spool::SpoolFolder;

/// A series whose pieces are put together.
pub(crate) struct WholeSeries {
    pub(crate) header: SeriesHeader,
    pub(crate) arrays: SeriesPiece,
}

fn go_on(_: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn temporary_folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

impl WholeSeries {
    fn new(plan: &SeriesPlan<'_>, header: SeriesHeader) -> Result<Self> {
        let pieces = Mutex::new(Vec::new());
        let sink = |piece: &SeriesPiece| -> Result<()> {
            pieces.lock().expect("nobody panics with the lock held").push(piece.clone());
            Ok(())
        };
        plan.write(&header, &go_on, &sink)?;
        let mut pieces = pieces.into_inner().expect("nobody panics with the lock held");
        // Instruments are written side by side.
        pieces.sort_by_key(|piece| (piece.first_sample, piece.timeframes[0].first_row));
        let mut arrays = SeriesPiece::default();
        arrays.timeframes.resize(header.timeframes.len(), TimeframePiece::default());
        for piece in pieces {
            for (all, own) in arrays.timeframes.iter_mut().zip(piece.timeframes) {
                all.values.extend(own.values);
                all.close_time.extend(own.close_time);
                all.end.extend(own.end);
            }
            arrays.sample_time.extend(piece.sample_time);
            arrays.sample_instrument.extend(piece.sample_instrument);
            arrays.receptive_start.extend(piece.receptive_start);
            arrays.label_end_time.extend(piece.label_end_time);
            arrays.weight.extend(piece.weight);
            arrays.targets.extend(piece.targets);
        }
        Ok(WholeSeries { header, arrays })
    }
}

impl Recordings {
    /// The recordings as they are aligned.
    pub(crate) fn instruments(&self) -> Vec<StreamedInstrument<'_>> {
        let together = self.universe.recordings.iter().zip(&self.pip_sizes);
        together
            .map(|(Recording { symbol, bars, .. }, &pip_size)| StreamedInstrument {
                name: symbol,
                bars,
                pip_size,
                fitted_until: None,
            })
            .collect()
    }

    /// The series that the recipe makes of them. With errors skipped, an instrument that cannot be
    /// used is excluded.
    pub(crate) fn align(&mut self, recipe: &Recipe) -> Result<WholeSeries> {
        let (spec, folder) = (recipe.spec(), temporary_folder());
        let (series, left_out) = {
            let (instruments, observe) = (self.instruments(), go_on);
            let (plan, left_out) = match recipe.on_error {
                OnError::Fail => (SeriesPlan::new(&instruments, &spec, None, folder.path(), &observe)?, Vec::new()),
                _ => SeriesPlan::from_usable(&instruments, &spec, None, folder.path(), &observe)?,
            };
            (WholeSeries::new(&plan, plan.fit(&observe)?)?, left_out)
        };
        self.exclude(left_out);
        Ok(series)
    }

    /// Their series, scaled by given scalers.
    pub(crate) fn align_with(&self, spec: &SeriesSpec, scalers: &Scalers) -> Result<WholeSeries> {
        let (folder, end) = (temporary_folder(), Some(scalers.fit_end_time));
        let plan = SeriesPlan::new(&self.instruments(), spec, end, folder.path(), &go_on)?;
        WholeSeries::new(&plan, plan.with_scalers(scalers, Vec::new())?)
    }
}

impl Recipe {
    /// The series of bars in files.
    pub(crate) fn align_streamed(&self) -> Result<WholeSeries> {
        let folder = temporary_folder();
        let spool = SpoolFolder::open(&folder.path().join("series"))?;
        let StreamedRecordings { recordings, bars, .. } = self.read_streamed(&spool, &Host::silent())?;
        let (symbols, spec) = (recordings.symbols(), self.spec());
        let instruments = instruments_of(&symbols, &bars, &recordings.pip_sizes, None);
        let plan = SeriesPlan::new(&instruments, &spec, None, folder.path(), &go_on)?;
        WholeSeries::new(&plan, plan.fit(&go_on)?)
    }

    /// Reads the bars, by way of a temporary folder.
    pub(crate) fn read(&self) -> Result<Recordings> {
        let folder = temporary_folder();
        let spool = SpoolFolder::open(&folder.path().join("series"))?;
        let StreamedRecordings { mut recordings, bars, .. } = self.read_streamed(&spool, &Host::silent())?;
        for (recording, spooled) in recordings.universe.recordings.iter_mut().zip(&bars) {
            recording.bars = Bars::with_capacity(spooled.timeframe(), spooled.len());
            spooled.read(0..spooled.len(), &mut recording.bars)?;
        }
        Ok(recordings)
    }
}

/// The provenance of a series file.
pub(crate) fn provenance(recipe: &Recipe, recordings: &Recordings, series: &WholeSeries) -> io::Result<Value> {
    let SeriesHeader { segments, excluded, warnings, .. } = &series.header;
    provenance_json(
        recipe,
        recordings,
        SeriesProvenance { segments, excluded, warnings, kept_scaler: None },
        &Fingerprints::default(),
    )
}

/// The series as it is written to disk.
pub(crate) fn series_file(series: WholeSeries, origin: Origin<'_>) -> Series {
    let WholeSeries { header, arrays } = series;
    let attributes = attributes(header.base, header.instruments(), origin);
    let several = header.instruments().len() > 1;
    let names = header.instruments().to_vec();
    let instruments = several.then_some(Instruments { names, sample_instrument: arrays.sample_instrument });
    let together = arrays.timeframes.into_iter().zip(&header.timeframes).zip(&header.scalers.timeframes);
    let timeframes = together.map(|((arrays, timeframe), scaler)| {
        let mut series = SeriesTimeframe {
            name: timeframe.window.timeframe.to_string(),
            steps: timeframe.window.seq_len,
            feature_names: header.features().iter().map(|feature| feature.name().to_owned()).collect(),
            values: arrays.values,
            close_time: arrays.close_time,
            sample_end: arrays.end,
            instrument_start: timeframe.instrument_start.clone(),
            segment_start: timeframe.segment_start.clone(),
            scaler: Some(Scaler {
                kind: header.scalers.kind.to_string(),
                center: scaler.center.clone(),
                scale: scaler.scale.clone(),
                fit_end_time: header.scalers.fit_end_time,
            }),
        };
        // Where the layout has a shorter way to say the same, it is taken.
        if series.segment_start.len() + 1 == series.instrument_start.len() {
            series.segment_start.clear();
        }
        if !several {
            series.instrument_start.clear();
        }
        series
    });
    Series {
        timeframes: timeframes.collect(),
        sample_time: arrays.sample_time,
        sample_reach_time: arrays.receptive_start,
        sample_label_end_time: arrays.label_end_time,
        sample_weight: arrays.weight,
        targets: arrays.targets,
        instruments,
        attributes,
    }
}
