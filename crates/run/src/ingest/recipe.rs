//! Recipe of a series file: the files, how they are read, and the series made of them. `ingest`
//! takes it and writes it into the file; `leak` reads it there and makes the series again,
//! `predict --follow` goes on with it.

mod bins;
#[cfg(test)]
#[path = "tests/in_memory.rs"]
pub(crate) mod in_memory;
mod lists;
pub(crate) mod provenance;
mod recordings;
mod streamed;
mod windows;
mod words;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use megabatch_bars::{
    AGE_IN_CONTEXT, ColumnFeature, ColumnTargets, DateOrder, Feature, FormatName, GapPolicy, OnError, Overlaps, Prices,
    ReadOptions, Repeats, Scaling, SeriesSpec, StampedAt, SymbolPattern, TargetKind, Timeframe, Weekends, Window, Zone,
};
use megabatch_chunk_io::{AttributeValue, SeriesFile};
use megabatch_gpu_core::Device;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::host::Observer;
use crate::ingest::folder_files::FolderFiles;
use crate::ingest::provenance::{LISTS, symbols_in};
use crate::text::{DAY_NS, Duration};

pub use bins::Bins;
pub(in crate::ingest) use bins::recorded_clock;
pub use lists::{ContextFile, FeatureList, PipSizes, column_name, symbol_name};
pub(crate) use recordings::Recordings;
pub(crate) use streamed::{StreamedRecordings, fit, instruments_of};
pub use windows::{SampleRange, Windows};

/// The clock of bars whose times have no offset.
#[derive(Clone, Debug, PartialEq)]
pub struct BarClock {
    /// Its zone.
    pub zone: Zone,
    /// True if the user stated it, false if it was told by the files.
    pub is_stated: bool,
}

/// Bars, windows, features and targets of a series file.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Files of bars, in any order, or folders of them. Files of several symbols become several
    /// instruments.
    pub bars: Vec<PathBuf>,
    /// Files of bid bars, or folders of them; with --ask they give mean prices and a spread.
    pub bid: Vec<PathBuf>,
    /// Files of ask bars, or folders of them.
    pub ask: Vec<PathBuf>,
    /// Symbol; taken from the files' names if `None`.
    pub symbol: Option<String>,
    /// Where the symbol stands in the files' names.
    pub symbol_pattern: Option<SymbolPattern>,
    /// Size of a pip in units of the price; known for currency pairs, and not needed where neither
    /// target nor features are in pips.
    pub pip_size: Option<PipSizes>,
    /// Format of the files; recognised if `None`.
    pub format: Option<FormatName>,
    /// Order of day and month in dates with the year last [default: the only one that fits all
    /// dates].
    pub date_order: Option<DateOrder>,
    /// Meaning of a bar's timestamp.
    pub time: StampedAt,
    /// Zone of the timestamps; if `None`, UTC for ISO timestamps, and for others found from the
    /// weekly closes.
    pub zone: Option<Zone>,
    /// The clocks by which the files of a series were read, by format, if the recipe is that of the
    /// series. That of a format stays where no known clock fits the weekly closes.
    pub known_zones: BTreeMap<FormatName, Zone>,
    /// The clock of days and weeks whose files tell none, if the recipe is that of a context whose
    /// bars have a clock behind UTC.
    pub day_zone: Option<Zone>,
    /// The symbols of a series, if the recipe is that of the series.
    pub known_symbols: Vec<String>,
    /// The symbols whose rows are read of files that have rows of others too.
    pub file_symbols: BTreeMap<PathBuf, Vec<String>>,
    /// Timeframe of the bars; found from their spacing if `None`.
    pub base: Option<Timeframe>,
    /// Prices as they were quoted, or adjusted for splits and dividends.
    pub prices: Prices,
    /// Rule for rows that cannot be used as they stand.
    pub on_error: OnError,
    /// Which of several rows of one time stays.
    pub repeats: Repeats,
    /// Rule for files of one symbol that cover the same time.
    pub overlaps: Overlaps,
    /// Which bars of several instruments are read.
    pub calendar: Calendar,
    /// Window of each timeframe in bars.
    pub timeframes: Windows,
    /// Clock at whose multiples of a timeframe bars start that are made from shorter ones.
    pub bins: Bins,
    /// True if bars of longer timeframes that have files of their own are taken as they are.
    pub own_bars: bool,
    /// Features of a bar. Columns of functions come last, and are known once these were called.
    pub features: FeatureList,
    /// Bars of other instruments, whose features stand beside those of each.
    pub context: Vec<ContextFile>,
    /// Columns that functions see and that are no features.
    pub function_columns: Vec<ColumnFeature>,
    /// Future bars that decide the targets.
    pub horizon: usize,
    /// The quantity that is predicted for each future bar, or columns.
    pub target: TargetKind,
    /// Column of the times of the bars that decide targets which are columns; the horizon does if
    /// `None`.
    pub label_end: Option<String>,
    /// Column of the weight of a sample in the loss of training; all count alike if `None`.
    pub weight: Option<String>,
    /// Base bars from one sample to the next. Above 1, several instruments share one grid of times,
    /// and each has samples at those at which it has a bar.
    pub stride: usize,
    /// Longest gap between bars that windows may reach across; a longer one ends a segment.
    pub longest_hole: Duration,
    /// Rule for windows across weekends.
    pub weekends: Weekends,
    /// How features are scaled.
    pub scaling: Scaling,
    /// Share of the samples, the earliest, on which the scaling is fitted: the first number of
    /// `data.split`.
    pub train_fraction: f64,
}

/// Bars that are used if there are several instruments. An instrument is listed from its first bar
/// until it has had none for four weeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calendar {
    /// Every bar of every instrument.
    All,
    /// Bars at times at which at least half of the listed instruments have one; of two instruments,
    /// every bar.
    Common,
}

impl Default for Recipe {
    /// No files; closed bars of five timeframes, and 36 targets in pips.
    fn default() -> Self {
        Recipe {
            bars: Vec::new(),
            bid: Vec::new(),
            ask: Vec::new(),
            symbol: None,
            symbol_pattern: None,
            pip_size: None,
            format: None,
            date_order: None,
            time: StampedAt::Open,
            zone: None,
            known_zones: BTreeMap::new(),
            day_zone: None,
            known_symbols: Vec::new(),
            file_symbols: BTreeMap::new(),
            base: None,
            prices: Prices::AdjustedIfGiven,
            on_error: OnError::Fail,
            repeats: Repeats::Refuse,
            overlaps: Overlaps::Refuse,
            calendar: Calendar::All,
            timeframes: Windows::default(),
            bins: Bins::default(),
            own_bars: false,
            features: FeatureList(Feature::DEFAULT.to_vec()),
            context: Vec::new(),
            function_columns: Vec::new(),
            horizon: 36,
            target: TargetKind::Cumulative,
            label_end: None,
            weight: None,
            stride: 1,
            longest_hole: Duration { ns: 4 * DAY_NS },
            weekends: Weekends::Spanned,
            scaling: Scaling::Robust,
            train_fraction: 0.7,
        }
    }
}

impl Recipe {
    /// Refuses a recipe that reads no bars, or bars of two kinds, or names symbols in two ways, or
    /// has columns of bid and ask.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_whole() {
            return Err(Error::usage(
                "a recipe reads either files of bars or those of the bid and of the ask, and takes their symbol from one place",
            ));
        }
        if self.label_end.is_some() && self.target.file_columns().is_empty() {
            return Err(Error::usage(format!(
                "--label-end: the labels of `--target {}` end by themselves; it goes with `--target column:NAME`",
                self.target
            )));
        }
        let mut symbols: Vec<&str> = self.context.iter().map(|file| file.symbol.as_str()).collect();
        symbols.sort_unstable();
        if let Some(twice) = symbols.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::usage(format!("--context: {} is there twice; give each instrument once", twice[0])));
        }
        if self.own_bars && !self.bid.is_empty() {
            return Err(Error::usage(
                "bid and ask apart have no bars of longer timeframes of their own: leave own bars out, or give files of bars",
            ));
        }
        let columns = self.spec().columns();
        let own = columns.iter().chain(self.target.file_columns()).chain(&self.weight);
        if let Some(column) = own.into_iter().next().filter(|_| !self.bid.is_empty()) {
            return Err(Error::usage(format!(
                "column:{column}: bid and ask apart have a column each, and none of their mean; join them before, or leave the column out"
            )));
        }
        Ok(())
    }

    /// Every file that is read.
    pub(crate) fn files(&self) -> Vec<&Path> {
        self.bars.iter().chain(&self.bid).chain(&self.ask).map(PathBuf::as_path).collect()
    }

    /// The path of every file that is read, and of those of other instruments.
    fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let context = self.context.iter_mut().map(|file| &mut file.path);
        self.bars.iter_mut().chain(&mut self.bid).chain(&mut self.ask).chain(context)
    }

    /// The recipe with the files of bars that stand in its folders in their place. Files of other
    /// symbols than a stated one are left out, which a note says.
    pub(crate) fn with_files_of_folders(mut self, observer: &dyn Observer) -> Result<Self> {
        let symbol = self.symbol.as_deref();
        for paths in [&mut self.bars, &mut self.bid, &mut self.ask] {
            let mut files = Vec::with_capacity(paths.len());
            for path in &*paths {
                let found = FolderFiles::find(path, symbol)?;
                symbol.and_then(|symbol| found.note(path, symbol)).iter().for_each(|note| observer.note(note));
                files.extend(found.read);
            }
            *paths = files;
        }
        Ok(self)
    }

    /// The recipe with absolute paths.
    ///
    /// # Errors
    /// An I/O error if the current folder is not known, or a path is empty.
    pub(in crate::ingest) fn with_absolute_paths(&self) -> io::Result<Self> {
        let mut recipe = self.clone();
        for path in recipe.paths_mut() {
            *path = std::path::absolute(&*path)?;
        }
        for (path, symbols) in std::mem::take(&mut recipe.file_symbols) {
            recipe.file_symbols.insert(std::path::absolute(path)?, symbols);
        }
        Ok(recipe)
    }

    pub(crate) fn read_options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            date_order: self.date_order,
            zone: self.zone.clone(),
            fallback_zone: None,
            known_zones: self.known_zones.clone(),
            day_zone: self.day_zone.clone(),
            known_symbols: self.known_symbols.clone(),
            file_symbols: self.file_symbols.clone(),
            stamped_at: self.time,
            base: self.base,
            prices: self.prices,
            on_error: self.on_error,
            repeats: self.repeats,
            overlaps: self.overlaps,
            symbol: self.symbol.clone(),
            symbol_pattern: self.symbol_pattern.clone(),
            columns: self.spec().columns(),
            target_columns: self.lenient_columns(),
            label_end_column: self.label_end.clone().filter(|_| !self.target.is_function()),
            own_bars: self.own_timeframes(),
            beside: self.timeframes.0.iter().map(|&(timeframe, _)| timeframe).min(),
        }
    }

    /// Timeframes whose bars are taken from files of their own, where there are such files.
    fn own_timeframes(&self) -> Vec<Timeframe> {
        if self.own_bars { self.timeframes.0.iter().map(|&(timeframe, _)| timeframe).collect() } else { Vec::new() }
    }

    /// Refuses `purpose` of the series at `path` where bars of longer timeframes were given, which
    /// are not made again.
    ///
    /// # Errors
    /// A usage error.
    pub(crate) fn refuse_own_bars(&self, path: &Path, purpose: &str) -> Result<()> {
        match self.own_bars {
            false => Ok(()),
            true => Err(Error::usage(format!(
                "{}: it has bars of longer timeframes as their own files give them, and {purpose}: `ingest` all files anew without own bars for that",
                path.display()
            ))),
        }
    }

    /// Columns that may be without a value: the weight, targets, and those that only functions see.
    fn lenient_columns(&self) -> Vec<String> {
        let seen = self.function_columns.iter().map(|column| column.column().to_owned());
        self.weight.iter().chain(self.target.file_columns()).cloned().chain(seen).collect()
    }

    /// The recipe without features and targets of functions.
    pub(crate) fn without_functions(&self) -> Self {
        let mut recipe = self.clone();
        recipe.features.0.retain(|feature| feature.as_function().is_none());
        if recipe.target.is_function() {
            (recipe.target, recipe.label_end) = (TargetKind::default(), None);
        }
        recipe
    }

    /// The context of the series at `path`, with the files `given` in place of those of the same
    /// instruments.
    ///
    /// # Errors
    /// A usage error for an instrument that the series does not have, or has from a frame.
    pub(crate) fn context_with(&self, given: &[ContextFile], path: &Path) -> Result<Vec<ContextFile>> {
        let (mut context, frames) = (self.context.clone(), self.spec().functions());
        for file in given {
            let own = context.iter_mut().find(|own| own.symbol == file.symbol).ok_or_else(|| {
                let (series, symbol) = (path.display(), &file.symbol);
                Error::usage(match frames.contains(&format!("{symbol}.{AGE_IN_CONTEXT}")) {
                    true => format!(
                        "--context {file}: the bars of {symbol} came to {series} in a frame; give a frame of them again, in Python, as context={{\"{symbol}\": frame}}"
                    ),
                    false => format!("--context {file}: {series} has no features of {symbol}; ingest all files anew"),
                })
            })?;
            own.path.clone_from(&file.path);
        }
        Ok(context)
    }

    /// Definition of the series.
    pub(crate) fn spec(&self) -> SeriesSpec {
        let window = |&(timeframe, seq_len): &(Timeframe, usize)| Window { timeframe, seq_len };
        SeriesSpec {
            windows: self.timeframes.0.iter().map(window).collect(),
            bins: self.bins.clock(),
            features: self.features.0.clone(),
            horizon: self.horizon,
            target_kind: match &self.target {
                TargetKind::Columns(targets) => {
                    TargetKind::Columns(ColumnTargets { label_end: self.label_end.clone(), ..targets.clone() })
                }
                computed => computed.clone(),
            },
            weight: self.weight.clone(),
            stride: self.stride,
            scaling: self.scaling,
            train_fraction: self.train_fraction,
            holes: GapPolicy { longest_ns: self.longest_hole.ns, weekends: self.weekends },
        }
    }

    /// The clock of the bars of the series file at `path`, and its symbols. The clock is the one
    /// that was stated, else the one that all its files were read by. `None` where these have
    /// several, or offsets with their times.
    ///
    /// # Errors
    /// A data error for a file that `ingest` did not write.
    pub fn clock_and_symbols(path: &Path) -> Result<(Option<BarClock>, Vec<String>)> {
        let (provenance, recipe) = Recipe::as_written(path)?;
        let symbols = symbols_in(&provenance, LISTS[0]);
        if let Some(zone) = recipe.zone {
            return Ok((Some(BarClock { zone, is_stated: true }), symbols));
        }
        let zone = recorded_clock(&provenance);
        let clock = zone.map(|zone| zone.parse().map(|zone| BarClock { zone, is_stated: false })).transpose()?;
        Ok((clock, symbols))
    }

    /// The account of its bars in the series file at `path`, and the recipe in it.
    pub(super) fn from_file(path: &Path) -> Result<(Value, Self)> {
        Recipe::recorded(path, source_attribute(path)?.as_ref())
    }

    /// The account of its bars in the series file at `path`, and the recipe in it, with the paths
    /// that were recorded, wherever the files are now.
    pub(super) fn as_written(path: &Path) -> Result<(Value, Self)> {
        Recipe::parsed(path, source_attribute(path)?.as_ref())
    }

    /// The account of its bars in the series file at `path`, which is its attribute `source`, and
    /// the recipe in it. Files that were moved with the series have their present paths.
    pub(crate) fn recorded(path: &Path, source: Option<&AttributeValue>) -> Result<(Value, Self)> {
        let (mut provenance, mut recipe) = Recipe::parsed(path, source)?;
        provenance::find_moved_files(path, &mut provenance, &mut recipe);
        Ok((provenance, recipe))
    }

    fn parsed(path: &Path, source: Option<&AttributeValue>) -> Result<(Value, Self)> {
        let provenance: Value = match source {
            Some(AttributeValue::Text(text)) => serde_json::from_str(text).unwrap_or_default(),
            _ => Value::Null,
        };
        let words: Option<Vec<String>> = serde_json::from_value(provenance["recipe"].clone()).ok();
        let mut recipe = words.and_then(|words| Recipe::from_words(&words)).ok_or_else(|| {
            Error::data(format!(
                "{}: /@source: expected the recipe by which `ingest` made the file, found none; make it again from its bars",
                path.display()
            ))
        })?;
        recipe.known_zones = bins::recorded_zones(&provenance);
        recipe.known_symbols = LISTS.iter().flat_map(|list| symbols_in(&provenance, list)).collect();
        Ok((provenance, recipe))
    }
}

/// The attribute `source` of the series file at `path`.
fn source_attribute(path: &Path) -> Result<Option<AttributeValue>> {
    let file = SeriesFile::open(path, &Device::cpu().scope("recipe"))?;
    Ok(file.attribute("source")?)
}
