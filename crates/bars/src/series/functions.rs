//! Columns that functions of the user compute from the bars of each timeframe.
//!
//! ```text
//! base bars  | | | | | | | | | |
//! bins       [ bin 0 ] [ bin 1 ]      the function is called with all bins of a timeframe
//! values         a         b          it gives one value a bin
//! column     a a a a a b b b b b      all base bars of a bin have its value, which is read where
//!                                     the bin closes
//! ```
//!
//! Base bars before every column has a value are the warm-up. They are dropped up to a bar at which
//! a bin of every timeframe begins, so that the bins after it are those that the functions saw.

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::ops::Range;
use std::path::Path;

use crate::bar_source::BarSource;
use crate::bars::{Bar, Bars};
use crate::context_reach::ContextReach;
use crate::error::function_fault::FunctionFault;
use crate::error::row_error::OnError;
use crate::error::{Error, Result};
use crate::series::binning::Binning;
use crate::series::column_feature::{ColumnFeature, ColumnRule};
use crate::series::context::ContextTiming;
use crate::series::spec::{SeriesSpec, Window};
use crate::spool::{SpoolWriter, SpooledBars};
use crate::time::bin_clock::BinClock;
use crate::time::timeframe::Timeframe;

/// Functions of a user's program, which compute features from bars.
pub trait BarFunctions: Sync {
    /// Reads the bars of other instruments by `timing`, or again if it is another one than before.
    /// Their columns and fingerprints are asked for afterwards.
    ///
    /// # Errors
    /// As [`BarFunctions::columns`].
    fn read_context(&self, _timing: &ContextTiming) -> Result<()> {
        Ok(())
    }

    /// The columns of all functions for the bars of one timeframe of one instrument, always in the
    /// same order: one value a bar, NaN where there is none.
    ///
    /// # Errors
    /// [`Error::Function`] with the reason.
    fn columns(&self, call: &FunctionCall<'_>) -> Result<Vec<FunctionColumn>>;

    /// True if values may depend on bars before their own. If not, the first call has all bars so
    /// far, and later ones may have new bars alone.
    fn needs_all_bars(&self) -> bool {
        true
    }

    /// Reach of the other instruments that they look up, beside bars of `timeframe`. How far back
    /// functions look themselves nobody knows.
    ///
    /// # Errors
    /// As [`BarFunctions::columns`].
    fn context_reach(&self, _timeframe: Timeframe, _bins: &BinClock) -> Result<Vec<ContextReach>> {
        Ok(Vec::new())
    }

    /// True if one of them gives targets.
    fn has_targets(&self) -> bool;

    /// Targets of base bars. It is called if [`BarFunctions::has_targets`].
    ///
    /// # Errors
    /// [`Error::Function`] with the reason.
    fn targets(&self, call: &FunctionCall<'_>) -> Result<FunctionTargets>;

    /// Library of the frames in which they get bars, such as `pandas`.
    fn frames(&self) -> &str;

    /// Name of each function, and a fingerprint of its source.
    fn fingerprints(&self) -> Vec<(String, String)>;
}

/// Bars with which functions are called.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCall<'a> {
    /// The instrument.
    pub instrument: &'a str,
    /// The bars, which have closed.
    pub bars: &'a Bars,
    /// Names of the further columns of the bars.
    pub columns: &'a [String],
    /// Clock of the bins of the series.
    pub bins: &'a BinClock,
}

/// A column that a function gave.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionColumn {
    /// Name of the function.
    pub function: String,
    /// Name of the column.
    pub name: String,
    /// A value a bar.
    pub values: Vec<f64>,
    /// True for numbers of single precision.
    pub is_single: bool,
}

/// Targets that a function gave.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionTargets {
    /// A value a base bar each, NaN where it is not known.
    pub columns: Vec<FunctionColumn>,
    /// When the bar closes that decides them, in nanoseconds since 1970 UTC and whole seconds; NaN
    /// where nobody knows. The horizon says it where there is none.
    pub label_end: Option<FunctionColumn>,
}

/// Everything that functions gave for the bars of one instrument.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionAnswers {
    /// Columns of features by timeframe, shortest first.
    pub features: Vec<Vec<FunctionColumn>>,
    /// Targets of base bars.
    pub targets: Option<FunctionTargets>,
}

impl FunctionTargets {
    /// All columns, the end of labels last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &FunctionColumn> {
        self.columns.iter().chain(&self.label_end)
    }
}

/// All bars of one instrument, as functions see them.
#[derive(Debug)]
pub struct FunctionBars {
    instrument: String,
    /// Names of the further columns that functions see.
    columns: Vec<String>,
    base: Bars,
    /// Columns of `base` that functions do not see.
    hidden: Range<usize>,
    segments: Vec<Range<usize>>,
    clock: BinClock,
    /// Bins of each timeframe, shortest first.
    timeframes: Vec<Bins>,
}

/// Closed bars of one timeframe.
#[derive(Debug)]
struct Bins {
    bars: Bars,
    /// Base bars of each.
    places: Vec<Range<usize>>,
}

/// Values of functions by base bar.
struct Placed {
    /// One entry a column and timeframe.
    slots: Vec<Vec<f64>>,
    /// The first bar after the warm-up.
    begin: usize,
    /// The first bar at which all columns of a function have a value, by function.
    begins: BTreeMap<String, usize>,
    /// False for bars without a value.
    is_kept: Vec<bool>,
}

/// Bars with the columns of functions.
#[derive(Debug)]
pub struct WithFunctions {
    /// The bars.
    pub bars: SpooledBars,
    /// Base bars of the warm-up, which were dropped.
    pub warm_up: usize,
    /// Base bars before all columns of a function have a value, by function.
    pub warm_up_by_function: BTreeMap<String, usize>,
    /// Base bars that were dropped later, as they have no value.
    pub without_value: usize,
}

impl FunctionBars {
    /// Reads all bars of `source`. They have the columns of `spec`, of which functions see those
    /// among the features, and between its targets and the end of labels those that only functions
    /// see, `seen`.
    ///
    /// # Errors
    /// Errors of reading; [`Error::NotAMultiple`] and [`Error::Straddles`].
    pub fn read(instrument: &str, source: &dyn BarSource, spec: &SeriesSpec, seen: &[ColumnFeature]) -> Result<Self> {
        let mut base = Bars::with_capacity(source.timeframe(), source.len());
        source.read(0..source.len(), &mut base)?;
        let segments = spec.holes.segments(&base);
        let own = spec.columns().len();
        let targets = own..own + usize::from(spec.weight.is_some()) + spec.target_kind.columns().len();
        let mut rules = spec.column_rules();
        rules.resize(targets.end, ColumnRule::Last);
        rules.extend(seen.iter().map(ColumnFeature::rule));
        let mut columns = spec.columns();
        columns.extend(seen.iter().map(|column| column.column().to_owned()));
        let bins = |window: &Window| {
            let mut bins = Bins::new(&base, window.timeframe, &spec.bins, &segments, &rules)?;
            bins.bars.columns.truncate(rules.len());
            bins.bars.columns.drain(targets.clone());
            Ok(bins)
        };
        let timeframes = spec.sorted_windows().iter().map(bins).collect::<Result<_>>()?;
        let instrument = instrument.to_owned();
        let clock = spec.bins.clone();
        Ok(FunctionBars { instrument, columns, base, hidden: targets.clone(), segments, clock, timeframes })
    }

    pub(crate) fn instrument(&self) -> &str {
        &self.instrument
    }

    /// Clock of the bins of the series.
    pub(crate) fn clock(&self) -> &BinClock {
        &self.clock
    }

    /// Names of the further columns that functions see.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// When each bar of a timeframe closes, the shortest of which is at place 0.
    pub fn close_times(&self, timeframe: usize) -> Vec<i64> {
        let bars = &self.timeframes[timeframe].bars;
        (0..bars.len()).map(|bar| bars.close_time(bar)).collect()
    }

    /// Number of those that are features.
    pub(crate) fn own_columns(&self) -> usize {
        self.hidden.start
    }

    /// The base bars as a function of targets sees them.
    pub(crate) fn base_bars(&self) -> Bars {
        let mut bars = self.base.clone();
        bars.columns.drain(self.hidden.clone());
        bars.columns.truncate(self.columns.len());
        bars
    }

    /// The call of a function of targets with `bars`.
    pub(crate) fn base_call<'a>(&'a self, bars: &'a Bars) -> FunctionCall<'a> {
        FunctionCall { instrument: &self.instrument, bars, columns: &self.columns, bins: &self.clock }
    }

    /// The call of functions for each timeframe, shortest first.
    pub(crate) fn calls(&self) -> impl ExactSizeIterator<Item = FunctionCall<'_>> {
        self.timeframes.iter().map(|bins| FunctionCall {
            instrument: &self.instrument,
            bars: &bins.bars,
            columns: &self.columns,
            bins: &self.clock,
        })
    }

    /// Calls `functions` once a timeframe, and for targets.
    ///
    /// # Errors
    /// [`Error::Function`], also where timeframes give different columns.
    pub fn call(&self, functions: &dyn BarFunctions) -> Result<FunctionAnswers> {
        let mut all: Vec<Vec<FunctionColumn>> = Vec::with_capacity(self.timeframes.len());
        for call in self.calls() {
            let columns = functions.columns(&call)?;
            if let Some(first) = all.first() {
                call.require_same_columns(&columns, first)?;
            }
            all.push(columns);
        }
        let targets = functions.has_targets().then(|| self.call_for_targets(functions)).transpose()?;
        Ok(FunctionAnswers { features: all, targets })
    }

    fn call_for_targets(&self, functions: &dyn BarFunctions) -> Result<FunctionTargets> {
        let base = self.base_bars();
        let call = self.base_call(&base);
        let targets = functions.targets(&call)?;
        for column in targets.iter() {
            call.first_value(column)?;
            if let Some(place) = column.values.iter().position(|value| value.is_infinite()) {
                call.require_dropped(column, place, OnError::Fail)?;
            }
        }
        Ok(targets)
    }

    /// Puts the columns that [`FunctionBars::call`] gave into the bars, those of features behind
    /// those of the files, and takes out those that only functions see. The bars lie in a temporary
    /// file of `folder`. Bars without a value after the warm-up are dropped, unless `on_error`
    /// fails.
    ///
    /// # Errors
    /// [`Error::Function`] for a column without values, or with a bar without one;
    /// [`Error::Spool`].
    pub fn with_columns(
        self,
        answers: &FunctionAnswers,
        spec: &SeriesSpec,
        on_error: OnError,
        folder: &Path,
    ) -> Result<WithFunctions> {
        let Placed { slots, begin, begins, is_kept } = self.placed(&answers.features, on_error)?;
        let targets = answers.targets.iter().flat_map(FunctionTargets::iter).map(|column| &column.values);
        let columns = self.in_order(slots.iter(), spec.target_kind.label_end().is_some(), targets);
        let mut writer = SpoolWriter::unnamed(folder, self.base.timeframe, columns.len())?;
        self.bars_with(&columns, begin, &is_kept).try_for_each(|bar| writer.push(bar))?;
        let without_value = self.base.len() - begin - writer.len();
        Ok(WithFunctions { bars: writer.finish()?, warm_up: begin, warm_up_by_function: begins, without_value })
    }

    /// The bars from place `begin` on as [`FunctionBars::with_columns`] gives them, for functions
    /// that are not at hand: 0 for each of their features, and targets that are not known.
    ///
    /// # Errors
    /// [`Error::Spool`].
    pub fn with_unknown_columns(self, begin: usize, spec: &SeriesSpec, folder: &Path) -> Result<SpooledBars> {
        let [zeros, unknown] = [0.0, f64::NAN].map(|value| vec![value; self.base.len()]);
        let slots = repeat_n(&zeros, spec.functions().len() * self.timeframes.len());
        let (is_given, has_label_end) = (spec.target_kind.is_function(), spec.target_kind.label_end().is_some());
        let targets = if is_given { spec.target_kind.columns().len() + usize::from(has_label_end) } else { 0 };
        let columns = self.in_order(slots, has_label_end && !is_given, repeat_n(&unknown, targets));
        let mut writer = SpoolWriter::unnamed(folder, self.base.timeframe, columns.len())?;
        self.bars_with(&columns, begin, &vec![true; self.base.len()]).try_for_each(|bar| writer.push(bar))?;
        writer.finish()
    }

    /// Columns in the order of a series: those of features, `slots` of functions, the weight,
    /// targets and the ends of labels, each of the files and then of functions.
    fn in_order<'a>(
        &'a self,
        slots: impl Iterator<Item = &'a Vec<f64>>,
        files_have_label_end: bool,
        targets: impl Iterator<Item = &'a Vec<f64>>,
    ) -> Vec<&'a Vec<f64>> {
        let columns = &self.base.columns;
        let label_end = &columns[columns.len() - usize::from(files_have_label_end)..];
        let (own, hidden) = (&columns[..self.hidden.start], &columns[self.hidden.clone()]);
        own.iter().chain(slots).chain(hidden).chain(label_end).chain(targets).collect()
    }

    /// The base bars from place `begin` on that are kept, with other columns.
    fn bars_with<'a>(
        &'a self,
        columns: &'a [&Vec<f64>],
        begin: usize,
        is_kept: &'a [bool],
    ) -> impl Iterator<Item = Bar> + 'a {
        (begin..self.base.len()).filter(|&index| is_kept[index]).map(|index| {
            let columns = columns.iter().map(|column| column[index]).collect();
            Bar { columns, ..self.base.without_columns(index) }
        })
    }

    /// The bars with the columns of features that [`FunctionBars::call`] gave, between those of the
    /// files and those that only functions see, as [`FunctionStream`](crate::FunctionStream) goes
    /// on with them.
    ///
    /// # Errors
    /// [`Error::Function`] for a column without values, or with a bar without one.
    pub fn followed(&self, features: &[Vec<FunctionColumn>], spec: &SeriesSpec, on_error: OnError) -> Result<Bars> {
        let Placed { slots, begin, is_kept, .. } = self.placed(features, on_error)?;
        let (own, seen) = self.base.columns.split_at(spec.columns().len());
        let columns: Vec<&Vec<f64>> = own.iter().chain(&slots).chain(seen).collect();
        let mut bars = Bars::with_capacity(self.base.timeframe, self.base.len() - begin);
        self.bars_with(&columns, begin, &is_kept).for_each(|bar| bars.push(bar));
        Ok(bars)
    }

    /// Places the values of features at base bars.
    fn placed(&self, features: &[Vec<FunctionColumn>], on_error: OnError) -> Result<Placed> {
        let mut slots: Vec<Vec<f64>> = Vec::new();
        let mut is_kept = vec![true; self.base.len()];
        let mut begins: BTreeMap<String, usize> = BTreeMap::new();
        let functions = features.first().map_or(0, Vec::len);
        for place in 0..functions {
            for (bins, (call, columns)) in self.timeframes.iter().zip(self.calls().zip(features)) {
                let column = &columns[place];
                let begin = call.first_value(column)?;
                // Bars before the first bin of all are no warm-up.
                let first = if begin == 0 { 0 } else { bins.places[begin].start };
                let latest = begins.entry(column.function.clone()).or_default();
                *latest = first.max(*latest);
                let mut slot = vec![f64::NAN; self.base.len()];
                for (bin, range) in bins.places.iter().enumerate().skip(begin) {
                    slot[range.clone()].fill(column.values[bin]);
                    if !column.values[bin].is_finite() {
                        call.require_dropped(column, bin, on_error)?;
                        is_kept[range.clone()].fill(false);
                    }
                }
                slots.push(slot);
            }
        }
        let first = begins.values().copied().max().unwrap_or(0);
        Ok(Placed { slots, begin: self.common_start(first), begins, is_kept })
    }

    /// The first base bar from `first` on with which a bin of every timeframe begins.
    fn common_start(&self, first: usize) -> usize {
        if first == 0 {
            return 0;
        }
        let times = &self.base.open_time;
        let begins = |&place: &usize| {
            let begins_segment = self.segments.iter().any(|segment| segment.start == place);
            let bin = |bins: &Bins, place: usize| bins.bars.bins.bin(bins.bars.timeframe, times[place]);
            let begins_bins = || self.timeframes.iter().all(|bins| bin(bins, place) != bin(bins, place - 1));
            begins_segment || begins_bins()
        };
        (first..self.base.len()).find(begins).unwrap_or(self.base.len())
    }
}

impl Bins {
    fn new(
        base: &Bars,
        timeframe: Timeframe,
        clock: &BinClock,
        segments: &[Range<usize>],
        rules: &[ColumnRule],
    ) -> Result<Self> {
        let mut binning = Binning::new(timeframe, base.timeframe, clock, rules.to_vec())?;
        let mut bars = binning.no_bars();
        bars.ensure_columns(base.columns.len());
        let (mut places, mut bar) = (Vec::new(), Bar::default());
        for segment in segments {
            binning.restart();
            let before = bars.len();
            for index in segment.clone() {
                base.copy_into(index, &mut bar);
                binning.push(&bar, |bin| bars.push(bin))?;
            }
            let times = &base.open_time[segment.clone()];
            let place = |time: i64| segment.start + times.partition_point(|&open_time| open_time < time);
            let own = before..bars.len();
            places.extend(own.map(|bin| place(bars.open_time[bin])..place(bars.close_time(bin))));
        }
        Ok(Bins { bars, places })
    }
}

impl FunctionCall<'_> {
    pub(crate) fn fault(&self, function: &str, fault: FunctionFault) -> Error {
        let (function, instrument) = (function.to_owned(), self.instrument.to_owned());
        Error::Function { function, instrument, timeframe: self.bars.timeframe, fault: Box::new(fault) }
    }

    /// The first bar with a value, if the column has a value a bar and any.
    fn first_value(&self, column: &FunctionColumn) -> Result<usize> {
        self.require_len(column)?;
        let first = column.values.iter().position(|value| !value.is_nan());
        first.ok_or_else(|| self.fault(&column.function, FunctionFault::NoValue { column: column.name.clone() }))
    }

    /// Requires a value a bar.
    fn require_len(&self, column: &FunctionColumn) -> Result<()> {
        let (found, bars) = (column.values.len(), self.bars.len());
        if found == bars {
            return Ok(());
        }
        Err(self.fault(&column.function, FunctionFault::Len { column: column.name.clone(), found, bars }))
    }

    /// The value of the last bar.
    pub(crate) fn last_value(&self, column: &FunctionColumn) -> Result<f64> {
        self.require_len(column)?;
        let place = self.bars.len() - 1;
        if !column.values[place].is_finite() {
            self.require_dropped(column, place, OnError::Fail)?;
        }
        Ok(column.values[place])
    }

    fn require_dropped(&self, column: &FunctionColumn, place: usize, on_error: OnError) -> Result<()> {
        if on_error != OnError::Fail {
            return Ok(());
        }
        let (open_time, found) = (self.bars.open_time[place], column.values[place]);
        let to_the_end = column.values[place..].iter().all(|value| !value.is_finite());
        let fault = FunctionFault::Value { column: column.name.clone(), place, open_time, found, to_the_end };
        Err(self.fault(&column.function, fault))
    }

    pub(crate) fn require_same_columns(&self, found: &[FunctionColumn], expected: &[FunctionColumn]) -> Result<()> {
        let names =
            |columns: &[FunctionColumn]| -> Vec<String> { columns.iter().map(|column| column.name.clone()).collect() };
        let [found_names, expected_names] = [found, expected].map(names);
        if found_names == expected_names {
            return Ok(());
        }
        let differs = found.iter().zip(&expected_names).find(|(column, expected)| column.name != **expected);
        let function = differs.map(|(column, _)| column).or(found.last()).or(expected.last());
        let function = function.map_or("functions", |column| column.function.as_str());
        Err(self.fault(function, FunctionFault::Columns { found: found_names, expected: expected_names }))
    }
}
