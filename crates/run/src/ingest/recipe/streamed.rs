//! The bars that a recipe reads, in files: see [`SpoolFolder`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use megabatch_bars::{
    BarSource, Bars, CommonSpool, OnError, ReadOptions, Recording, SeriesHeader, SeriesPlan, SeriesSpec, SpooledBars,
    SpooledRecording, StreamedInstrument, SymbolRead, Universe, UsableSymbols, read_pair_spooled, read_spooled,
    spool_common_times, usable,
};
use rayon::prelude::*;

use super::recordings::{Recordings, by_symbol, common_times_warning, one_sided};
use super::{Calendar, Recipe};
use crate::error::Result;
use crate::host::Host;
use crate::ingest::provenance::{Fingerprints, KeptScaler};
use crate::ingest::spool::{Parsed, SpoolFolder, SymbolFiles, allow_open_files};
use crate::ingest::work::Pass;

/// The bars of the instruments that can be used, in files.
pub(crate) struct StreamedRecordings {
    /// Symbols and summaries; their bars are empty.
    pub(crate) recordings: Recordings,
    /// The bars of each.
    pub(crate) bars: Vec<SpooledBars>,
    pub(crate) fingerprints: Fingerprints,
}

/// Instruments with these names, bars and pip sizes, and with `kept` scalers if given.
pub(crate) fn instruments_of<'a>(
    symbols: &'a [String],
    bars: &'a [SpooledBars],
    pip_sizes: &[f64],
    kept: Option<&KeptScaler>,
) -> Vec<StreamedInstrument<'a>> {
    let together = symbols.iter().zip(bars).zip(pip_sizes);
    let instrument = |((name, bars), &pip_size): ((&'a String, &'a SpooledBars), &f64)| {
        let fitted_until = kept.and_then(|kept| kept.fitted_until.get(name).copied());
        StreamedInstrument { name, bars, pip_size, fitted_until }
    };
    together.map(instrument).collect()
}

impl Recordings {
    /// The names of the instruments.
    pub(crate) fn symbols(&self) -> Vec<String> {
        self.universe.recordings.iter().map(|one| one.symbol.clone()).collect()
    }

    /// The plan of the series that `recipe` makes of `instruments`. With errors skipped, an
    /// instrument that cannot be used is excluded. `kept` scalers end the training span.
    pub(crate) fn plan<'a>(
        &mut self,
        recipe: &Recipe,
        instruments: &[StreamedInstrument<'a>],
        spec: &'a SeriesSpec,
        kept: Option<&KeptScaler>,
        folder: &'a SpoolFolder,
        host: &Host<'_>,
    ) -> Result<SeriesPlan<'a>> {
        let fit_end_time = kept.map(|kept| kept.fit_end_time);
        let counting = Pass::begin(host, "count", "bars", instruments.iter().map(|one| one.bars.len() as u64).sum());
        let observe = |bars: usize| counting.advance(bars as u64);
        if recipe.on_error == OnError::Fail {
            return Ok(SeriesPlan::new(instruments, spec, fit_end_time, folder.path(), &observe)?);
        }
        let (plan, excluded) = SeriesPlan::from_usable(instruments, spec, fit_end_time, folder.path(), &observe)?;
        self.exclude(excluded);
        Ok(plan)
    }
}

/// Scalers of `plan`, and what its series holds besides its arrays.
pub(crate) fn fit(plan: &SeriesPlan<'_>, host: &Host<'_>) -> Result<SeriesHeader> {
    let fitting = Pass::begin(host, "fit", "bars", plan.bars_to_fit()? as u64);
    Ok(plan.fit(&|bars| fitting.advance(bars as u64))?)
}

impl Recipe {
    /// Reads the bars into `folder`, several symbols at once.
    pub(crate) fn read_streamed(&self, folder: &SpoolFolder, host: &Host<'_>) -> Result<StreamedRecordings> {
        let options = self.read_options();
        let groups = self.symbol_files(&options)?;
        let files_a_symbol = if self.calendar == Calendar::Common { 2 } else { 1 };
        allow_open_files(files_a_symbol * groups.len());
        let size = |path: &PathBuf| path.metadata().map_or(0, |found| found.len());
        let sizes: Vec<u64> = groups.iter().map(|files| files.bars.iter().chain(&files.ask).map(size).sum()).collect();
        let pass = Pass::begin(host, "read", "bytes", sizes.iter().sum());
        let together = groups.par_iter().zip(&sizes).with_max_len(1);
        let parsed = together.map(|(files, &size)| {
            let parsed = parse(files, &options, folder, &pass)?;
            if parsed.as_ref().is_ok_and(|parsed| parsed.is_found) {
                pass.skip(size);
            }
            Ok(SymbolRead { symbol: files.symbol.clone(), read: parsed })
        });
        let parsed = parsed.collect::<Result<Vec<_>>>()?;
        drop(pass);
        let UsableSymbols { recordings: parsed, excluded } = match self.bid.is_empty() {
            true => usable(parsed, self.on_error)?,
            false => {
                let recordings = parsed.into_iter().map(|symbol| symbol.read).collect::<megabatch_bars::Result<_>>()?;
                UsableSymbols { recordings, excluded: Vec::new() }
            }
        };
        let mut universe = Universe::default();
        universe.excluded = excluded;
        let (mut bars, mut fingerprints) = (Vec::new(), BTreeMap::new());
        for Parsed { recording, fingerprints: own, .. } in parsed {
            let SpooledRecording { symbol, bars: spooled, summary } = recording;
            let none = Bars::with_capacity(summary.base, 0);
            universe.recordings.push(Recording { symbol, bars: none, summary });
            bars.push(spooled);
            fingerprints.extend(own);
        }
        if self.calendar == Calendar::Common {
            bars = keep_common_times(&mut universe, &bars, folder.path())?;
        }
        let sources: Vec<&dyn BarSource> = bars.iter().map(|bars| bars as &dyn BarSource).collect();
        let recordings = self.with_pip_sizes(universe, &sources)?;
        Ok(StreamedRecordings { recordings, bars, fingerprints: Fingerprints::known(fingerprints) })
    }

    /// The files of each symbol, in the order of the symbols.
    fn symbol_files(&self, options: &ReadOptions) -> Result<Vec<SymbolFiles>> {
        if self.bid.is_empty() {
            let files = |(symbol, bars)| SymbolFiles { symbol, bars, ask: Vec::new() };
            return Ok(by_symbol(&self.bars, options)?.into_iter().map(files).collect());
        }
        let mut asks = by_symbol(&self.ask, options)?;
        let mut groups = Vec::new();
        for (symbol, bars) in by_symbol(&self.bid, options)? {
            let ask = asks.remove(&symbol).ok_or_else(|| one_sided(&symbol, "bid", "ask"))?;
            groups.push(SymbolFiles { symbol, bars, ask });
        }
        match asks.into_keys().next() {
            Some(symbol) => Err(one_sided(&symbol, "ask", "bid")),
            None => Ok(groups),
        }
    }
}

fn parse(
    files: &SymbolFiles,
    options: &ReadOptions,
    folder: &SpoolFolder,
    pass: &Pass<'_>,
) -> Result<megabatch_bars::Result<Parsed>> {
    let observe = |bytes| pass.advance(bytes);
    // A file may have columns of several symbols.
    let options = &ReadOptions { symbol: Some(files.symbol.clone()), ..options.clone() };
    folder.parsed(files, options, |path| match files.ask.is_empty() {
        true => read_spooled(&files.bars, options, path, &observe),
        false => read_pair_spooled(&files.bars, &files.ask, options, path, &observe),
    })
}

/// Drops the bars at times at which few instruments have one, and warns of them in the summaries.
fn keep_common_times(universe: &mut Universe, bars: &[SpooledBars], folder: &Path) -> Result<Vec<SpooledBars>> {
    let symbols: Vec<&str> = universe.recordings.iter().map(|recording| recording.symbol.as_str()).collect();
    let named: Vec<(&str, &SpooledBars)> = symbols.into_iter().zip(bars).collect();
    let paths: Vec<PathBuf> = (0..bars.len()).map(|k| folder.join(format!("common-{k}.bars"))).collect();
    let common = spool_common_times(&named, &paths, folder)?;
    let mut kept = Vec::with_capacity(common.len());
    for ((recording, before), CommonSpool { bars, dropped, .. }) in universe.recordings.iter_mut().zip(bars).zip(common)
    {
        recording.summary.warnings.extend(common_times_warning(dropped, before.len()));
        kept.push(bars);
    }
    Ok(kept)
}
