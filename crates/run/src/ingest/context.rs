//! Bars of other instruments in files, whose features stand beside those of a series.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::PathBuf;

use megabatch_bars::{
    self as bars, AGE_IN_CONTEXT, BarFunctions, BarSource as _, Bars, BinClock, ColumnFeature, ContextBars,
    ContextReach, ContextTiming, Error as BarsError, Feature, FunctionCall, FunctionColumn, FunctionTargets,
    ReadSummary, SpooledBars, TargetKind, Timeframe, Zone, bars_after_context, context_bars, context_reach,
    context_start, names_in_context, shared_features,
};
use xxhash_rust::xxh3::Xxh3;

use super::context_timing::{CONTEXT, timed_recipe};
use super::recipe::{Calendar, ContextFile, FeatureList, PipSizes, Recipe, StreamedRecordings};
use super::spool::SpoolFolder;
use crate::error::{Context as _, Error, Result};
use crate::host::Host;
use crate::text::{plural, utc};

/// Instruments whose bars are in memory.
pub(super) struct ContextInstruments(Vec<ContextInstrument>);

struct ContextInstrument {
    symbol: String,
    /// Its file, and the fingerprint of the bytes that were read.
    file: (PathBuf, String),
    bars: Bars,
    /// Features that a series of this recipe and the instrument have in common.
    features: Vec<Feature>,
}

impl ContextInstruments {
    /// Reads the files of `recipe`, by its rules for rows and by `timing`.
    ///
    /// # Errors
    /// Errors of reading, which name the instrument.
    pub(super) fn read(recipe: &Recipe, timing: &ContextTiming, folder: &SpoolFolder, host: &Host<'_>) -> Result<Self> {
        let read = |file: &ContextFile| {
            let reading = timed_recipe(recipe, &file.symbol, timing);
            let instrument = ContextInstrument::read(&reading, file, folder, host);
            instrument.with_context(|| format!("{CONTEXT}{}", file.symbol))
        };
        recipe.context.iter().map(read).collect::<Result<_>>().map(ContextInstruments)
    }

    /// Notes those that end before the bars beside which they stand.
    ///
    /// # Errors
    /// Bars that cannot be read.
    pub(super) fn note_ends(&self, beside: &StreamedRecordings, host: &Host<'_>) -> Result<()> {
        let symbols = beside.recordings.symbols();
        for own in &self.0 {
            for (symbol, bars) in symbols.iter().zip(&beside.bars) {
                let after = bars_after_context(bars, &own.bars)?;
                let Some(last) = own.bars.len().checked_sub(1).filter(|_| after > 0) else { continue };
                let count = plural(after, &format!("{} bar", bars.timeframe()));
                host.observer.note(&format!(
                    "warning: {CONTEXT}{}: its bars end at {}, {count} before those of {symbol}: from there on its last values are seen; give newer bars of it",
                    own.symbol,
                    utc(own.bars.close_time(last))
                ));
                break;
            }
        }
        Ok(())
    }

    /// Fingerprints of their files as they were read, by path.
    pub(super) fn file_fingerprints(&self) -> BTreeMap<PathBuf, String> {
        self.0.iter().map(|own| own.file.clone()).collect()
    }

    /// Number of bars of each, by symbol.
    pub(super) fn bar_counts(&self) -> BTreeMap<String, usize> {
        self.0.iter().map(|own| (own.symbol.clone(), own.bars.len())).collect()
    }
}

impl ContextInstrument {
    fn read(recipe: &Recipe, file: &ContextFile, folder: &SpoolFolder, host: &Host<'_>) -> Result<Self> {
        let without_columns = |feature: &&Feature| feature.as_column().is_none();
        let own = &recipe.without_functions().features.0;
        let plain: Vec<Feature> = own.iter().filter(without_columns).cloned().collect();
        let mut read = read_bars(recipe, file, &plain, &[], folder, host)?;
        let summary = &read.recordings.universe.recordings[0].summary;
        for warning in summary.warnings.iter().chain(&clock_doubt(summary, recipe.zone.as_ref())) {
            host.observer.note(&format!("warning: {CONTEXT}{}: {warning}", file.symbol));
        }
        let named = summary.files.iter();
        let columns: Vec<String> = named.flat_map(|file| file.unused_columns.clone()).collect();
        let features = shared_features(own, &|column| columns.iter().any(|known| known == column));
        if features.iter().any(|feature| feature.as_column().is_some()) {
            read = read_bars(recipe, file, &features, &[], folder, host)?;
        }
        let bars = in_memory(&read.bars[0])?;
        let fingerprint = read.fingerprints.get(&file.path)?;
        Ok(ContextInstrument { symbol: file.symbol.clone(), file: (file.path.clone(), fingerprint), bars, features })
    }

    /// The features at each bar of a call. The instrument's bars begin with those that its
    /// features read at the first bar of the call. They end with those of the call, so that nothing
    /// else is seen where these end earlier.
    fn columns(&self, call: &FunctionCall<'_>) -> bars::Result<Vec<FunctionColumn>> {
        let own = call.bars;
        let column = |name: &str, values: Vec<f64>| FunctionColumn {
            function: format!("{CONTEXT}{}", self.symbol),
            name: format!("{}.{name}", self.symbol),
            values,
            is_single: false,
        };
        let Some(last) = own.len().checked_sub(1) else {
            return Ok(names_in_context(&self.features)
                .into_iter()
                .chain([AGE_IN_CONTEXT])
                .map(|name| column(name, Vec::new()))
                .collect());
        };
        let (base, opens, until_ns) = (self.bars.timeframe, &self.bars.open_time, own.close_time(last));
        let start = context_start(base, opens, &self.features, own.timeframe, call.bins, own.close_time(0))?;
        let seen = start..opens.partition_point(|&time| time < until_ns);
        let mut part = Bars::with_capacity(self.bars.timeframe, seen.len());
        self.bars.read(seen, &mut part)?;
        let context = context_bars(&part, &self.features, own.timeframe, call.bins, until_ns)?;
        let close_times: Vec<i64> = (0..own.len()).map(|bar| own.close_time(bar)).collect();
        let places = context.last_closed(&close_times);
        let ContextBars { bars, features } = &context;
        let looked_up = |(name, values): (&str, &Vec<f64>)| {
            let values = places.iter().map(|place| place.map_or(f64::NAN, |place| values[place]));
            column(name, values.collect())
        };
        let mut columns: Vec<FunctionColumn> =
            names_in_context(&self.features).into_iter().zip(features).map(looked_up).collect();
        let bar_ns = own.timeframe.duration_ns() as f64;
        let ages = places.iter().zip(&close_times).map(|(place, close_time)| match place {
            Some(place) => (close_time - bars.close_time(*place)) as f64 / bar_ns,
            None => f64::NAN,
        });
        columns.push(column(AGE_IN_CONTEXT, ages.collect()));
        Ok(columns)
    }

    /// A hash of the bars.
    fn fingerprint(&self) -> String {
        let Bars { open, high, low, close, volume, spread, columns, open_time, .. } = &self.bars;
        let mut hash = Xxh3::new();
        open_time.iter().for_each(|time| hash.update(&time.to_le_bytes()));
        for numbers in [open, high, low, close, volume, spread].into_iter().chain(columns) {
            numbers.iter().for_each(|number| hash.update(&number.to_le_bytes()));
        }
        format!("{:032x}", hash.digest128())
    }
}

/// A doubt about times without an offset that are read by the `stated` clock, which may be that of
/// the bars beside these alone. A day tells no clock.
pub(super) fn clock_doubt(summary: &ReadSummary, stated: Option<&Zone>) -> Option<String> {
    let zone = stated.filter(|zone| summary.base < Timeframe::D1 && **zone != Zone::utc())?;
    let is_read_by_it = summary.files.iter().any(|file| file.zone.as_ref() == Some(zone));
    is_read_by_it.then(|| {
        format!(
            "its times have no offset and are read in the zone {zone}, as those of the bars; where they are of another clock, give times with an offset, such as +00:00"
        )
    })
}

/// All bars of a spool.
pub(super) fn in_memory(spooled: &SpooledBars) -> bars::Result<Bars> {
    let mut bars = Bars::with_capacity(spooled.timeframe(), spooled.len());
    spooled.read(0..spooled.len(), &mut bars)?;
    Ok(bars)
}

/// Reads the bars of `file`, with the columns among `features`, and behind them those of `seen`,
/// which may be without a value.
pub(super) fn read_bars(
    recipe: &Recipe,
    file: &ContextFile,
    features: &[Feature],
    seen: &[ColumnFeature],
    folder: &SpoolFolder,
    host: &Host<'_>,
) -> Result<StreamedRecordings> {
    let reading = Recipe {
        bars: vec![file.path.clone()],
        bid: Vec::new(),
        ask: Vec::new(),
        symbol: Some(file.symbol.clone()),
        symbol_pattern: None,
        pip_size: Some(PipSizes::All(1.0)),
        format: None,
        date_order: None,
        known_zones: BTreeMap::new(),
        base: None,
        calendar: Calendar::All,
        features: FeatureList(features.to_vec()),
        function_columns: seen.to_vec(),
        target: TargetKind::LogReturn,
        label_end: None,
        weight: None,
        context: Vec::new(),
        ..recipe.clone()
    };
    let read = reading.read_streamed(folder, host).and_then(|mut read| {
        match (read.bars.is_empty(), read.recordings.universe.excluded.pop()) {
            (true, Some(excluded)) => Err(excluded.reason.into()),
            (true, None) => Err(Error::data(format!("{}: expected bars, found none", file.path.display()))),
            (false, _) => Ok(read),
        }
    });
    read.map_err(|error| with_bars_needed(error, features))
}

/// The error of bars that do not tell their timeframe, which cannot be stated for another
/// instrument, with the number of bars that `features` need.
fn with_bars_needed(error: Error, features: &[Feature]) -> Error {
    let Some(BarsError::UnknownBase { found }) = error.source().and_then(|cause| cause.downcast_ref()) else {
        return error;
    };
    let needed = features.iter().map(Feature::warm_up).max().unwrap_or(0).max(1) + 1;
    Error::data(format!(
        "{found}: the spacing of bars tells their timeframe, so that one bar is too few, and the first value of the features is at bar {needed}: give {needed} bars or more of one timeframe"
    ))
}

impl BarFunctions for ContextInstruments {
    fn columns(&self, call: &FunctionCall<'_>) -> bars::Result<Vec<FunctionColumn>> {
        let columns = self.0.iter().map(|instrument| instrument.columns(call));
        Ok(columns.collect::<bars::Result<Vec<_>>>()?.concat())
    }

    fn context_reach(&self, timeframe: Timeframe, bins: &BinClock) -> bars::Result<Vec<ContextReach>> {
        let reach = |ContextInstrument { symbol, bars, features, .. }: &ContextInstrument| {
            context_reach(symbol, bars.timeframe, &bars.open_time, features, timeframe, bins)
        };
        self.0.iter().map(reach).collect()
    }

    fn has_targets(&self) -> bool {
        false
    }

    fn targets(&self, call: &FunctionCall<'_>) -> bars::Result<FunctionTargets> {
        panic!("{} is asked for targets of context", call.instrument)
    }

    fn frames(&self) -> &str {
        "files"
    }

    fn fingerprints(&self) -> Vec<(String, String)> {
        self.0.iter().map(|own| (format!("{CONTEXT}{}", own.symbol), own.fingerprint())).collect()
    }
}
