//! The bars that a recipe reads, and the series that they make.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use megabatch_bars::{BarSource, Bars, Error as BarsError, Excluded, Recording, Universe, listed, pip_size_of};

use super::Recipe;
use super::lists::PipSizes;
use crate::error::{Error, Result};

/// The bars of the instruments that can be used, with the size of a pip of each, and the
/// instruments that cannot.
pub(crate) struct Recordings {
    pub(crate) universe: Universe,
    /// Pip size of each instrument; 1 if the series has no pips.
    pub(crate) pip_sizes: Vec<f64>,
}

impl Recordings {
    /// Moves instruments to those that are excluded.
    pub(crate) fn exclude(&mut self, left_out: Vec<Excluded>) {
        let is_kept = |symbol: &String| left_out.iter().all(|Excluded { symbol: lacking, .. }| lacking != symbol);
        let kept: Vec<bool> = self.universe.recordings.iter().map(|recording| is_kept(&recording.symbol)).collect();
        let (mut kept_recordings, mut kept_sizes) = (kept.iter(), kept.iter());
        self.universe.recordings.retain(|_| kept_recordings.next() == Some(&true));
        self.pip_sizes.retain(|_| kept_sizes.next() == Some(&true));
        self.universe.excluded.extend(left_out);
        self.universe.excluded.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    }
}

impl Recipe {
    /// Finds the pip size of each instrument from its `bars`.
    pub(super) fn with_pip_sizes(&self, universe: Universe, bars: &[&dyn BarSource]) -> Result<Recordings> {
        self.require_known_symbols(&universe)?;
        self.require_known_sizes(&universe.recordings)?;
        let sizes = universe.recordings.iter().zip(bars).map(|(recording, bars)| {
            let size = self.pip_size_of(&recording.symbol)?;
            // Common times may leave no bar.
            if self.pip_size.is_none() && self.spec().uses_pips() && !bars.is_empty() {
                require_fitting_pip(&recording.symbol, size, middle_close(*bars)?)?;
            }
            Ok(size)
        });
        let pip_sizes = sizes.collect::<Result<_>>()?;
        Ok(Recordings { universe, pip_sizes })
    }

    /// The files of each symbol, which are opened for that; none where a name does not fit the
    /// pattern of symbols, which reading them says.
    pub(crate) fn files_by_symbol(&self) -> BTreeMap<String, Vec<PathBuf>> {
        let files: Vec<PathBuf> = self.files().into_iter().map(Path::to_owned).collect();
        let options = self.read_options();
        by_symbol(&files, |path| options.symbols_of(path)).unwrap_or_default()
    }

    /// Refuses a size for an unknown symbol: it is probably misspelled. One that was left out is
    /// known.
    fn require_known_symbols(&self, universe: &Universe) -> Result<()> {
        let Some(PipSizes::BySymbol(sizes)) = &self.pip_size else { return Ok(()) };
        let symbols: Vec<&str> = universe.recordings.iter().map(|recording| recording.symbol.as_str()).collect();
        let is_left_out = |symbol: &str| universe.excluded.iter().any(|excluded| excluded.symbol == symbol);
        match sizes.keys().find(|symbol| !symbols.contains(&symbol.as_str()) && !is_left_out(symbol.as_str())) {
            None => Ok(()),
            Some(unknown) => Err(Error::usage(format!(
                "--pip-size: no bars are of the symbol {unknown}; there are {}",
                symbols.join(", ")
            ))),
        }
    }

    /// Names all symbols whose pip is not known, rather than one at a time, and the files whose
    /// names they are taken from.
    fn require_known_sizes(&self, recordings: &[Recording]) -> Result<()> {
        let has_none = |recording: &&Recording| self.pip_size_of(&recording.symbol).is_err();
        let unknown: Vec<&Recording> = recordings.iter().filter(has_none).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let symbols: Vec<&str> = unknown.iter().map(|recording| recording.symbol.as_str()).collect();
        let error = self.unknown_pip_size(symbols.join("`, `"));
        let files = unknown.iter().filter_map(|recording| recording.summary.files.first());
        let names = files.filter_map(|file| file.path.file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.dedup();
        Err(if self.symbol.is_some() || names.is_empty() { error } else { error.context(listed(&names)) })
    }

    /// The error of symbols whose pip is not known. Where the features alone are in pips, other
    /// targets would not help.
    fn unknown_pip_size(&self, symbol: String) -> Error {
        let spec = self.spec();
        if spec.has_targets_in_pips() {
            return Error::from(BarsError::UnknownPipSize { symbol });
        }
        let features: Vec<String> = spec.features_in_pips().into_iter().map(ToString::to_string).collect();
        Error::usage(format!(
            "the pip size of `{symbol}` is not known, and features are in pips: leave {} out of `--features`, or give the size \
             with `--pip-size`, such as 0.01 for a share; use `--symbol` where a file's name does not tell the pair",
            features.join(" and ")
        ))
    }

    fn pip_size_of(&self, symbol: &str) -> Result<f64> {
        match &self.pip_size {
            Some(PipSizes::All(size)) => return Ok(*size),
            Some(PipSizes::BySymbol(sizes)) => {
                if let Some(size) = sizes.get(symbol) {
                    return Ok(*size);
                }
            }
            None => {}
        }
        if self.spec().uses_pips() { Ok(pip_size_of(symbol)?) } else { Ok(1.0) }
    }
}

/// Pips that the price of a currency pair has: a yen is some 60 pips of a dollar, and a dollar some
/// 400,000 of a lira.
const PRICE_PIPS: std::ops::RangeInclusive<f64> = 20.0..=2e6;

/// The close of the bar in the middle.
fn middle_close(bars: &dyn BarSource) -> Result<f64> {
    let middle = bars.len() / 2;
    let mut one = Bars::with_capacity(bars.timeframe(), 1);
    bars.read(middle..middle + 1, &mut one)?;
    Ok(one.close[0])
}

/// Refuses prices that are not in units of the currency, by which the pip is known.
fn require_fitting_pip(symbol: &str, pip_size: f64, close: f64) -> Result<()> {
    let pips = close / pip_size;
    if PRICE_PIPS.contains(&pips) {
        return Ok(());
    }
    let close = if (1e-6..1e15).contains(&close) { close.to_string() } else { format!("{close:e}") };
    Err(Error::data(format!(
        "{symbol}: a close of {close} is {pips:.3e} pips of {pip_size}: expected {} to {:.0}, as prices of currency pairs \
         have; if the prices are in points or otherwise scaled, divide them, or state the size of a pip in their unit with \
         --pip-size; or take `--target log_return`",
        PRICE_PIPS.start(),
        PRICE_PIPS.end()
    )))
}

pub(super) fn common_times_warning(dropped: usize, all: usize) -> Option<String> {
    (dropped > 0).then(|| {
        format!(
            "{dropped} of {all} bars dropped: fewer than half of the instruments that are listed then have one (`--calendar common`)"
        )
    })
}

/// The files of each symbol. `symbols_in` gives the symbols of a file.
pub(super) fn by_symbol(
    paths: &[PathBuf],
    mut symbols_in: impl FnMut(&Path) -> megabatch_bars::Result<Vec<String>>,
) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut by_symbol: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in paths {
        for symbol in symbols_in(path)? {
            by_symbol.entry(symbol).or_default().push(path.clone());
        }
    }
    Ok(by_symbol)
}

pub(super) fn one_sided(symbol: &str, there: &str, missing: &str) -> crate::error::Error {
    Error::usage(format!(
        "{symbol} has bars of the {there} and none of the {missing}: give both sides of every symbol; symbols are taken from the files' \
         names, or from --symbol"
    ))
}
