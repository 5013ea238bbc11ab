//! The bars that a recipe reads, in files: see [`SpoolFolder`].

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use megabatch_bars::{
    BarSource, Bars, BinClock, CommonSpool, OnError, OwnBars, ReadOptions, ReadSummary, Recording, SeriesHeader,
    SeriesPlan, SeriesSpec, SpooledBars, SpooledRecording, StreamedInstrument, SymbolRead, SymbolRows, Timeframe,
    Universe, UsableSymbols, listed, spool_common_times, usable,
};
use rayon::prelude::*;

use super::bins::file_clocks;
use super::recordings::{Recordings, by_symbol, common_times_warning, one_sided};
use super::{Calendar, Recipe};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::ingest::provenance::{Fingerprints, KeptScaler, fingerprint};
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
    /// Reads the bars into `folder`, several symbols at once. A file with rows of several symbols
    /// is read, and its fingerprint taken, once for all of them.
    pub(crate) fn read_streamed(&self, folder: &SpoolFolder, host: &Host<'_>) -> Result<StreamedRecordings> {
        let options = self.read_options();
        let mut rows = SymbolRows::in_folder(folder.path())?;
        let go_on = |_| match host.cancel.is_requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let groups = self.symbol_files(|path| rows.add(path, &options, &go_on))?;
        let split = rows.files().map(|path| Ok((path.to_owned(), fingerprint(path)?)));
        let fingerprints = Fingerprints::known(split.collect::<Result<_>>()?);
        let files_a_symbol = options.own_bars.len() + if self.calendar == Calendar::Common { 2 } else { 1 };
        allow_open_files(files_a_symbol * groups.len());
        let size = |files: &SymbolFiles| -> u64 {
            let whole = |path: &PathBuf| path.metadata().map_or(0, |found| found.len());
            let read = |path: &PathBuf| rows.bytes(path, &files.symbol).unwrap_or_else(|| whole(path));
            files.bars.iter().chain(&files.ask).map(read).sum()
        };
        let sizes: Vec<u64> = groups.iter().map(size).collect();
        let pass = Pass::begin(host, "read", "bytes", sizes.iter().sum());
        // Each symbol is stated. A copy of all for each of thousands would cost more than its bars.
        let one_symbol = ReadOptions { known_symbols: Vec::new(), ..options.clone() };
        let parsing = Parsing { options: &one_symbol, rows: &rows, fingerprints: &fingerprints };
        let together = groups.par_iter().zip(&sizes).with_max_len(1);
        let parsed = together.map(|(files, &size)| {
            let parsed = parsing.parse(files, folder, &pass)?;
            if parsed.as_ref().is_ok_and(|parsed| parsed.is_found) {
                pass.skip(size);
            }
            Ok(SymbolRead { symbol: files.symbol.clone(), read: parsed })
        });
        let parsed = parsed.collect::<Result<Vec<_>>>()?;
        drop((pass, rows));
        let bins = self.bins_of(&parsed)?;
        let with_own_bars = |SymbolRead { symbol, read }: SymbolRead<Parsed>| {
            let read = read.and_then(|parsed| parsed.with_own_bars(&bins, folder.path()));
            SymbolRead { symbol, read }
        };
        let parsed: Vec<_> = parsed.into_par_iter().with_max_len(1).map(with_own_bars).collect();
        let UsableSymbols { recordings: parsed, excluded } = match self.bid.is_empty() {
            true => usable(parsed, self.on_error)?,
            false => {
                let recordings = parsed.into_iter().map(|symbol| symbol.read).collect::<megabatch_bars::Result<_>>()?;
                UsableSymbols { recordings, excluded: Vec::new() }
            }
        };
        let mut universe = Universe::default();
        universe.excluded = excluded;
        let (mut bars, mut fingerprints) = (Vec::new(), fingerprints);
        for Parsed { recording, fingerprints: own, .. } in parsed {
            let SpooledRecording { symbol, bars: spooled, mut summary, .. } = recording;
            let warning = other_bins_warning(&summary, &bins);
            summary.warnings.extend(warning);
            let none = Bars::with_capacity(summary.base, 0);
            universe.recordings.push(Recording { symbol, bars: none, summary });
            bars.push(spooled);
            fingerprints.extend(own);
        }
        let own = universe.recordings.iter().map(|recording| recording.summary.own.len());
        if self.own_bars && own.sum::<usize>() == 0 {
            let timeframes: Vec<String> = options.own_bars.iter().map(ToString::to_string).collect();
            return Err(Error::usage(format!(
                "own bars: of {}, no symbol has a file beside that of its shortest bars; give such files, as EURUSD_M1.csv and EURUSD_H1.csv are, or leave own bars out",
                listed(&timeframes)
            )));
        }
        if self.calendar == Calendar::Common {
            bars = keep_common_times(&mut universe, &bars, folder.path())?;
        }
        let sources: Vec<&dyn BarSource> = bars.iter().map(|bars| bars as &dyn BarSource).collect();
        let recordings = self.with_pip_sizes(universe, &sources)?;
        Ok(StreamedRecordings { recordings, bars, fingerprints })
    }

    /// The clock of the bins of the bars that were read; UTC if none could be, which is an error
    /// elsewhere.
    fn bins_of(&self, read: &[SymbolRead<Parsed>]) -> Result<BinClock> {
        let parsed: Vec<&Parsed> = read.iter().filter_map(|symbol| symbol.read.as_ref().ok()).collect();
        if parsed.is_empty() {
            return Ok(BinClock::default());
        }
        self.bin_clock(&file_clocks(parsed.into_iter().map(|parsed| &parsed.recording.summary)))
    }

    /// The files of each symbol, in the order of the symbols. `symbols_in` gives those of a file.
    fn symbol_files(
        &self,
        mut symbols_in: impl FnMut(&Path) -> megabatch_bars::Result<Vec<String>>,
    ) -> Result<Vec<SymbolFiles>> {
        if self.bid.is_empty() {
            let files = |(symbol, bars)| SymbolFiles { symbol, bars, ask: Vec::new() };
            return Ok(by_symbol(&self.bars, symbols_in)?.into_iter().map(files).collect());
        }
        let mut asks = by_symbol(&self.ask, &mut symbols_in)?;
        let mut groups = Vec::new();
        for (symbol, bars) in by_symbol(&self.bid, &mut symbols_in)? {
            let ask = asks.remove(&symbol).ok_or_else(|| one_sided(&symbol, "bid", "ask"))?;
            groups.push(SymbolFiles { symbol, bars, ask });
        }
        match asks.into_keys().next() {
            Some(symbol) => Err(one_sided(&symbol, "ask", "bid")),
            None => Ok(groups),
        }
    }
}

/// Parsing of the symbols, one or several at once.
struct Parsing<'a> {
    options: &'a ReadOptions,
    rows: &'a SymbolRows,
    /// Fingerprints of the files whose rows are in `rows`.
    fingerprints: &'a Fingerprints,
}

impl Parsing<'_> {
    fn parse(
        &self,
        files: &SymbolFiles,
        folder: &SpoolFolder,
        pass: &Pass<'_>,
    ) -> Result<megabatch_bars::Result<Parsed>> {
        let observe = |bytes| pass.advance(bytes);
        // A file may have columns of several symbols.
        let options = &ReadOptions { symbol: Some(files.symbol.clone()), ..self.options.clone() };
        folder.parsed(files, options, self.fingerprints, |path| match files.ask.is_empty() {
            true => self.rows.read_spooled(&files.bars, options, path, &observe),
            false => self.rows.read_pair_spooled(&files.bars, &files.ask, options, path, &observe),
        })
    }
}

/// A warning of own bars unlike those that are made in bins of UTC, where the files have another
/// clock.
fn other_bins_warning(summary: &ReadSummary, bins: &BinClock) -> Option<String> {
    let zone = summary.files.iter().find_map(|file| file.zone.as_ref())?.to_string();
    let is_unlike = |own: &&OwnBars| own.summary.base > Timeframe::H1 && own.same < own.different.count;
    let unlike = summary.own.iter().find(is_unlike)?;
    (bins.is_utc() && zone != bins.to_string()).then(|| {
        format!(
            "{} bars are made in bins of {bins}, and times of the files are {zone}: if own bars are made by that clock, add `--bins {zone}`",
            unlike.summary.base
        )
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
