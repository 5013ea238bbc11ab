//! The oracle of `ingest` and `leak`: bars and series in memory.

use std::io;

use megabatch_bars::{
    AlignedSeries, BarSource, Bars, CommonTimes, Instrument, OnError, ReadOptions, Recording, Scaling, TimeframeSeries,
    Universe, align, align_usable, on_common_times, read_all, read_pair,
};
use megabatch_chunk_io::{Instruments, Scaler, Series, SeriesTimeframe};
use serde_json::Value;

use super::recordings::{Recordings, by_symbol, common_times_warning, one_sided};
use super::{Calendar, Recipe};
use crate::adapters::series::{Origin, attributes};
use crate::error::Result;
use crate::ingest::provenance::{Fingerprints, SeriesProvenance, provenance_json};

impl Recordings {
    /// The recordings as they are aligned.
    pub(crate) fn instruments(&self) -> Vec<Instrument<'_>> {
        let together = self.universe.recordings.iter().zip(&self.pip_sizes);
        together
            .map(|(Recording { symbol, bars, .. }, &pip_size)| Instrument { name: symbol, bars, pip_size })
            .collect()
    }

    /// The series that the recipe makes of them. With errors skipped, an instrument that cannot be
    /// used is excluded.
    pub(crate) fn align(&mut self, recipe: &Recipe) -> Result<AlignedSeries> {
        let spec = recipe.spec();
        if recipe.on_error == OnError::Fail {
            return Ok(align(&self.instruments(), &spec)?);
        }
        let (series, left_out) = align_usable(&self.instruments(), &spec)?;
        self.exclude(left_out);
        Ok(series)
    }
}

impl Recipe {
    /// Reads the bars.
    pub(crate) fn read(&self) -> Result<Recordings> {
        let options = self.read_options();
        let mut universe =
            if self.bid.is_empty() { read_all(&self.bars, &options)? } else { self.read_pairs(&options)? };
        if self.calendar == Calendar::Common {
            keep_common_times(&mut universe)?;
        }
        let bars: Vec<Bars> = universe.recordings.iter().map(|recording| recording.bars.clone()).collect();
        let sources: Vec<&dyn BarSource> = bars.iter().map(|bars| bars as &dyn BarSource).collect();
        self.with_pip_sizes(universe, &sources)
    }

    fn read_pairs(&self, options: &ReadOptions) -> Result<Universe> {
        let (bids, mut asks) = (by_symbol(&self.bid, options)?, by_symbol(&self.ask, options)?);
        let mut universe = Universe::default();
        for (symbol, bid) in bids {
            let ask = asks.remove(&symbol).ok_or_else(|| one_sided(&symbol, "bid", "ask"))?;
            let own = ReadOptions { symbol: Some(symbol), ..options.clone() };
            universe.recordings.push(read_pair(&bid, &ask, &own)?);
        }
        match asks.into_keys().next() {
            Some(symbol) => Err(one_sided(&symbol, "ask", "bid")),
            None => Ok(universe),
        }
    }
}

/// Drops the bars at times at which few instruments have one, and warns of them in the summaries.
fn keep_common_times(universe: &mut Universe) -> Result<()> {
    let instruments: Vec<(&str, &Bars)> =
        universe.recordings.iter().map(|recording| (recording.symbol.as_str(), &recording.bars)).collect();
    let CommonTimes { bars, dropped, .. } = on_common_times(&instruments)?;
    for ((recording, bars), dropped) in universe.recordings.iter_mut().zip(bars).zip(dropped) {
        recording.summary.warnings.extend(common_times_warning(dropped, recording.bars.len()));
        recording.bars = bars;
    }
    Ok(())
}

/// The provenance of a series file.
pub(crate) fn provenance(recipe: &Recipe, recordings: &Recordings, aligned: &AlignedSeries) -> io::Result<Value> {
    let AlignedSeries { segments, excluded, warnings, .. } = aligned;
    provenance_json(
        recipe,
        recordings,
        SeriesProvenance { segments, excluded, warnings, kept_scaler: None },
        &Fingerprints::default(),
    )
}

/// The series as it is written to disk.
pub(crate) fn series_file(aligned: AlignedSeries, origin: Origin<'_>) -> Series {
    let (scaling, fit_end_time) = (aligned.scaling, aligned.fit_end_time);
    let attributes = attributes(aligned.base, &aligned.instruments, origin);
    let sample_reach_time = aligned.receptive_starts();
    let several = aligned.instruments.len() > 1;
    let instruments =
        several.then_some(Instruments { names: aligned.instruments, sample_instrument: aligned.sample_instrument });
    let timeframes = aligned.timeframes.into_iter().map(|timeframe| {
        let mut series = series_timeframe(timeframe, scaling, fit_end_time);
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
        sample_time: aligned.sample_time,
        sample_reach_time,
        sample_label_end_time: aligned.label_end_time,
        targets: aligned.targets,
        instruments,
        attributes,
    }
}

fn series_timeframe(timeframe: TimeframeSeries, scaling: Scaling, fit_end_time: i64) -> SeriesTimeframe {
    SeriesTimeframe {
        name: timeframe.timeframe.to_string(),
        steps: timeframe.seq_len,
        feature_names: timeframe.feature_names().into_iter().map(str::to_owned).collect(),
        values: timeframe.values,
        close_time: timeframe.close_time,
        sample_end: timeframe.end,
        instrument_start: timeframe.instrument_start,
        segment_start: timeframe.segment_start,
        scaler: Some(Scaler {
            kind: scaling.to_string(),
            center: timeframe.center,
            scale: timeframe.scale,
            fit_end_time,
        }),
    }
}
