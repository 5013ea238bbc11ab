//! Functions of the program, whose columns are features of a series.
//!
//! Files keep the names of their columns and a fingerprint of their source, and not the functions:
//! `append` and `leak` are given them again.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use megabatch_bars::{
    BarFunctions, BarSource, ColumnTargets, ContextReach, Error as BarsError, Excluded, Feature, FunctionAnswers,
    FunctionBars, FunctionColumn, FunctionFault, OnError, SeriesSpec, SpooledBars, TargetKind, TargetOrigin, Timeframe,
    WithFunctions, prove_functions, shared_features,
};
use serde_json::Value;

use super::Recipe;
use super::context::ContextInstruments;
use super::context_timing::{CONTEXT, context_timing, late_days_notes};
use super::function_account::FunctionAccount;
use super::function_inputs::{context_symbol, missing_context};
use super::recipe::{ContextFile, StreamedRecordings};
use super::spool::SpoolFolder;
use super::warm_up::ContextLoss;
use super::work::Pass;
use crate::error::{Error, Result};
use crate::host::Host;

/// The bars of a series, and the recipe with all its features.
pub(crate) struct ReadBars {
    pub(crate) recipe: Recipe,
    pub(crate) recordings: StreamedRecordings,
    /// Account of functions, where the program has any.
    pub(crate) functions: Option<FunctionAccount>,
}

/// The use that is made of functions.
#[derive(Clone, Copy)]
pub(crate) enum FunctionUse<'a> {
    /// A series is made: its features are what they give.
    New,
    /// The series in a file goes on: they must give what it has.
    Kept(&'a Path),
    /// The series in a file is proven: they are replayed, too, with this seed.
    Proven(&'a Path, u64),
}

impl FunctionUse<'_> {
    /// Beginning of a call in Python that takes functions.
    fn call(self) -> &'static str {
        match self {
            FunctionUse::Proven(..) => "mb.leak(dataset",
            FunctionUse::New | FunctionUse::Kept(_) => "dataset.append(bars",
        }
    }
}

impl Recipe {
    /// Refuses functions of the host, and frames of other instruments, beside context in files.
    ///
    /// # Errors
    /// A usage error that says what to give.
    pub(super) fn require_one_context(&self, usage: FunctionUse<'_>, host: &Host<'_>) -> Result<()> {
        let Some(ContextFile { symbol, path }) = self.context.first().filter(|_| host.functions.is_some()) else {
            return Ok(());
        };
        Err(Error::usage(match usage {
            FunctionUse::New => {
                "context in files and functions do not go together: give the bars of other instruments as frames beside functions".to_owned()
            }
            FunctionUse::Kept(series) | FunctionUse::Proven(series, _) => format!(
                "{}: the bars of {symbol} came from a file, {}: leave frames and functions out; where that file is another now, give its path, as {}, context={{\"{symbol}\": \"FILE\"}})",
                series.display(),
                path.display(),
                usage.call()
            ),
        }))
    }

    /// Reads the bars into `folder`, and puts in the columns that functions of the host compute
    /// from the bars of each timeframe. These are called for one instrument after the other, each
    /// with all its bars in memory.
    ///
    /// # Errors
    /// A usage error for a recipe with columns of functions where the host has none; data errors
    /// for columns that are not those of the file, and values that cannot be features.
    pub(crate) fn read_with_functions(
        &self,
        usage: FunctionUse<'_>,
        folder: &SpoolFolder,
        host: &Host<'_>,
    ) -> Result<ReadBars> {
        if self.own_bars && (host.functions.is_some() || !self.context.is_empty()) {
            return Err(Error::usage(
                "own bars do not go together with functions and bars of other instruments, which see the bars that the shortest make: leave one of them out",
            ));
        }
        self.require_one_context(usage, host)?;
        let known = self.known();
        let mut recordings = match (usage, host.functions) {
            // Targets that functions compute have no pips.
            (FunctionUse::New, Some(functions)) if functions.has_targets() => {
                Recipe { target: TargetKind::LogReturn, ..self.clone() }.read_streamed(folder, host)?
            }
            _ => self.read_streamed(folder, host)?,
        };
        let recipe = self.with_known_bins(&recordings.recordings.universe.recordings)?;
        let timing = context_timing(&recordings.recordings.universe.recordings);
        let context = match self.context.is_empty() {
            true => None,
            false => Some(ContextInstruments::read(&recipe, &timing, folder, host)?),
        };
        if let Some(functions) = host.functions {
            functions.read_context(&timing)?;
        }
        if let Some(context) = &context {
            // Later their files may have more rows.
            recordings.fingerprints.extend(context.file_fingerprints());
            // A proof tells again nothing that was told when the series was made.
            if !matches!(usage, FunctionUse::Proven(..)) {
                context.note_ends(&recordings, host)?;
            }
        }
        let functions = context.as_ref().map(|context| context as &dyn BarFunctions).or(host.functions);
        let call = usage.call();
        if let FunctionUse::Kept(path) | FunctionUse::Proven(path, _) = usage
            && let Some(reason) = missing_context(&Recipe::as_written(path)?.0, functions, call)
        {
            return Err(Error::usage(format!("{}: {reason}", path.display())));
        }
        let Some(functions) = functions else {
            return match known.is_empty() {
                true => Ok(ReadBars { recipe, recordings, functions: None }),
                false => Err(Error::usage(known.advice(call))),
            };
        };
        if matches!(usage, FunctionUse::New) {
            let notes = late_days_notes(&recordings.recordings.universe.recordings, &timing, functions)?;
            notes.iter().for_each(|note| host.observer.note(note));
        }
        let expected = match usage {
            FunctionUse::New => None,
            FunctionUse::Kept(path) | FunctionUse::Proven(path, _) => Some((path, known)),
        };
        let mut adding = Adding {
            recipe: recipe.without_functions(),
            functions,
            folder,
            host,
            expected,
            account: FunctionAccount {
                frames: functions.frames().to_owned(),
                fingerprints: functions.fingerprints().into_iter().collect(),
                timing,
                context_bars: context.as_ref().map_or_else(BTreeMap::new, ContextInstruments::bar_counts),
                ..FunctionAccount::default()
            },
        };
        let recordings = adding.all(recordings, usage)?;
        let Adding { mut recipe, account, .. } = adding;
        recipe.features.0.extend(account.columns.iter().map(|(name, _)| Feature::from_function(name)));
        if let Some((names, has_label_end)) = &account.targets {
            let (names, origin) = (names.clone(), TargetOrigin::Function);
            recipe.target = TargetKind::Columns(ColumnTargets { names, label_end: None, origin });
            recipe.label_end = has_label_end.then(|| LABEL_END.to_owned());
        }
        Ok(ReadBars { recipe, recordings, functions: Some(account) })
    }
}

impl Recipe {
    /// Reads the bars into `folder`, for a proof without the functions of the series at `path`,
    /// whose account is `provenance`: 0 stands in the place of each of their features, and no
    /// target of theirs is known.
    ///
    /// # Errors
    /// A usage error for a series whose dropped bars only functions tell; those of reading.
    pub(crate) fn read_without_functions(
        &self,
        path: &Path,
        provenance: &Value,
        folder: &SpoolFolder,
        host: &Host<'_>,
    ) -> Result<ReadBars> {
        let account = &provenance["functions"];
        if self.on_error != OnError::Fail {
            return Err(Error::usage(format!(
                "{}: bars without a value of its functions were dropped: prove it in Python, as mb.leak(dataset{})",
                path.display(),
                self.known().arguments()
            )));
        }
        let StreamedRecordings { recordings, bars, fingerprints } = self.read_streamed(folder, host)?;
        let (plain, spec) = (self.without_functions().spec(), self.spec());
        let begin = |symbol: &str| account["warm_up_bars"][symbol].as_u64().unwrap_or(0) as usize;
        let one = |(symbol, bars): (String, SpooledBars)| -> Result<SpooledBars> {
            let seen = FunctionBars::read(&symbol, &bars, &plain, &self.function_columns)?;
            drop(bars);
            Ok(seen.with_unknown_columns(begin(&symbol), &spec, folder.path())?)
        };
        let bars = recordings.symbols().into_iter().zip(bars).map(one).collect::<Result<_>>()?;
        let recordings = StreamedRecordings { recordings, bars, fingerprints };
        Ok(ReadBars { recipe: self.clone(), recordings, functions: None })
    }

    /// Names of the columns of functions among features and targets.
    pub(crate) fn function_names(&self) -> Vec<String> {
        let Known { features, targets } = self.known();
        features.into_iter().chain(targets).collect()
    }

    /// Columns of functions.
    fn known(&self) -> Known {
        let targets = if self.target.is_function() { self.target.columns().to_vec() } else { Vec::new() };
        Known { features: self.spec().functions(), targets }
    }
}

/// The other instrument whose first values come last, if they come after those of all functions.
fn longest_context(warm_ups: &BTreeMap<String, usize>) -> Option<&str> {
    let (function, _) = warm_ups.iter().max_by_key(|(function, bars)| (**bars, context_symbol(function).is_none()))?;
    context_symbol(function)
}

/// Name of the column of the ends of labels.
const LABEL_END: &str = "label_end";

/// Columns of functions in a series.
#[derive(PartialEq)]
struct Known {
    features: Vec<String>,
    targets: Vec<String>,
}

impl Known {
    fn is_empty(&self) -> bool {
        self.features.is_empty() && self.targets.is_empty()
    }

    /// Arguments of Python that give the functions again, each after a comma.
    fn arguments(&self) -> String {
        let arguments = [(&self.features, ", features=[function]"), (&self.targets, ", target=function")];
        arguments.iter().filter(|(names, _)| !names.is_empty()).map(|(_, argument)| *argument).collect()
    }

    /// Sentence that says how a call in Python, of which `call` is the beginning, is given the
    /// functions again.
    fn advice(&self, call: &str) -> String {
        format!("{self} are columns of functions: give these in Python, as {call}{})", self.arguments())
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [("features", &self.features), ("targets", &self.targets)];
        let named: Vec<String> = named
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("the {what} {}", names.join(", ")))
            .collect();
        if named.is_empty() { f.write_str("no columns") } else { f.write_str(&named.join(" and ")) }
    }
}

/// Failure for one instrument.
enum Failure {
    /// Its bars, or functions of them.
    Bars(BarsError),
    Other(Error),
}

impl From<BarsError> for Failure {
    fn from(error: BarsError) -> Self {
        Failure::Bars(error)
    }
}

/// Work of adding the columns of functions to bars.
struct Adding<'a> {
    /// Without functions.
    recipe: Recipe,
    functions: &'a dyn BarFunctions,
    folder: &'a SpoolFolder,
    host: &'a Host<'a>,
    /// Columns of the series at a path, which goes on or is proven.
    expected: Option<(&'a Path, Known)>,
    account: FunctionAccount,
}

impl Adding<'_> {
    /// Adds the columns to every instrument. With errors skipped, one for which a function has no
    /// value at all is excluded.
    fn all(&mut self, read: StreamedRecordings, usage: FunctionUse<'_>) -> Result<StreamedRecordings> {
        let StreamedRecordings { mut recordings, bars, fingerprints } = read;
        let (symbols, count) = (recordings.symbols(), bars.len());
        let pass = Pass::begin(self.host, "functions", "bars", bars.iter().map(|bars| bars.len() as u64).sum());
        let lens: Vec<usize> = bars.iter().map(BarSource::len).collect();
        let reach = self.context_reach()?;
        let (mut kept, mut excluded) = (Vec::with_capacity(count), Vec::new());
        for (place, (symbol, bars)) in symbols.iter().zip(bars).enumerate() {
            let len = bars.len();
            let summary = &recordings.universe.recordings[place].summary;
            let times = summary.first_open_time..summary.last_close_time;
            let found = self.require_context_in(&times, symbol).and_then(|()| self.one(symbol, bars, usage, count));
            match found.map_err(|failure| self.with_context_bars(failure, times.end)) {
                Ok(bars) => kept.push(bars.with_context_reach(Arc::clone(&reach))),
                Err(Failure::Bars(reason))
                    if self.recipe.on_error != OnError::Fail
                        && matches!(
                            reason.function_fault(),
                            Some(
                                FunctionFault::NoValue { .. }
                                    | FunctionFault::TooFewContextBars { .. }
                                    | FunctionFault::ContextEnded { .. }
                            )
                        ) =>
                {
                    excluded.push(Excluded { symbol: symbol.clone(), reason });
                }
                Err(Failure::Bars(error)) => return Err(error.into()),
                Err(Failure::Other(error)) => return Err(error),
            }
            if pass.advance(len as u64).is_break() {
                return Err(BarsError::Interrupted.into());
            }
        }
        if kept.is_empty()
            && let Some(first) = excluded.pop()
        {
            return Err(first.reason.into());
        }
        recordings.exclude(excluded);
        if matches!(usage, FunctionUse::New) {
            self.context_note(&symbols, &lens).iter().for_each(|note| self.host.observer.note(note));
        }
        Ok(StreamedRecordings { recordings, bars: kept, fingerprints })
    }

    /// Refuses other instruments that end before `times`, those of the bars of `symbol`, begin: all
    /// of these would see one value.
    fn require_context_in(&self, times: &Range<i64>, symbol: &str) -> Result<(), Failure> {
        for (&timeframe, reach) in self.account.reach.iter() {
            for own in reach {
                if let Some(close_time) = own.last_close_time()
                    && close_time <= times.start
                {
                    return Err(Failure::Bars(BarsError::Function {
                        function: format!("{CONTEXT}{}", own.symbol()),
                        instrument: symbol.to_owned(),
                        timeframe,
                        fault: Box::new(FunctionFault::ContextEnded { close_time }),
                    }));
                }
            }
        }
        Ok(())
    }

    /// The note on the instrument, of these with so many bars, that loses the largest share of them
    /// before another instrument has values; `None` where none loses many.
    fn context_note(&self, symbols: &[String], lens: &[usize]) -> Option<String> {
        let loss = |(symbol, &len): (&String, &usize)| {
            let context = longest_context(self.account.warm_up_by_function.get(symbol)?)?;
            let dropped = *self.account.warm_up.get(symbol)?;
            Some(ContextLoss { symbol: symbol.clone(), context: context.to_owned(), dropped, bars: len })
        };
        let losses = symbols.iter().zip(lens).filter_map(loss);
        let features = shared_features(&self.recipe.features.0, &|_: &str| true);
        let has_functions = self.account.columns.iter().any(|(_, function)| context_symbol(function).is_none());
        losses.max_by(|one, other| one.share().total_cmp(&other.share()))?.note(&features, has_functions)
    }

    /// The failure of a column without a value, with the bars that another instrument needs and has
    /// up to `until`, the end of the bars beside it.
    fn with_context_bars(&self, mut failure: Failure, until: i64) -> Failure {
        if let Failure::Bars(BarsError::Function { function, timeframe, fault, .. }) = &mut failure
            && let FunctionFault::NoValue { column } = &**fault
            && let Some(symbol) = context_symbol(function)
            && let Some(reach) = self.account.reach.get(&*timeframe)
            && let Some(own) = reach.iter().find(|own| own.symbol() == symbol)
        {
            let (bars, needed) = (own.bars_until(until), own.bars_needed());
            if bars < needed {
                **fault = FunctionFault::TooFewContextBars { column: column.clone(), bars, needed };
            }
        }
        failure
    }

    /// Reach of other instruments, by timeframe.
    fn context_reach(&mut self) -> Result<Arc<BTreeMap<Timeframe, Vec<ContextReach>>>> {
        let (spec, mut reach) = (self.recipe.spec(), BTreeMap::new());
        for window in &spec.windows {
            let found = self.functions.context_reach(window.timeframe, &spec.bins)?;
            found.iter().for_each(|own| self.account.context_reach.add(own));
            reach.insert(window.timeframe, found);
        }
        self.account.reach = Arc::new(reach);
        Ok(Arc::clone(&self.account.reach))
    }

    fn one(
        &mut self,
        symbol: &str,
        bars: SpooledBars,
        usage: FunctionUse<'_>,
        instruments: usize,
    ) -> Result<SpooledBars, Failure> {
        let spec = self.recipe.spec();
        let seen = FunctionBars::read(symbol, &bars, &spec, &self.recipe.function_columns)?;
        drop(bars);
        let answers = seen.call(self.functions)?;
        self.require_same(symbol, &spec, &answers)?;
        if let FunctionUse::Proven(_, seed) = usage {
            let observe = |_| match self.host.cancel.is_requested() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let proof = prove_functions(&seen, &answers, self.functions, spec.horizon, instruments, seed, &observe)?;
            self.account.proof.calls += proof.calls;
            self.account.proof.cuts += proof.cuts;
        }
        let WithFunctions { bars, warm_up, warm_up_by_function, without_value } =
            seen.with_columns(&answers, &spec, self.recipe.on_error, self.folder.path())?;
        self.account.warm_up.insert(symbol.to_owned(), warm_up);
        self.account.warm_up_by_function.insert(symbol.to_owned(), warm_up_by_function);
        self.account.without_value.insert(symbol.to_owned(), without_value);
        Ok(bars)
    }

    /// Requires the columns of the instruments before.
    fn require_same(&mut self, symbol: &str, spec: &SeriesSpec, answers: &FunctionAnswers) -> Result<(), Failure> {
        let name = |column: &FunctionColumn| column.name.clone();
        let columns: Vec<(String, String)> =
            answers.features[0].iter().map(|column| (name(column), column.function.clone())).collect();
        let targets =
            answers.targets.as_ref().map(|own| (own.columns.iter().map(name).collect(), own.label_end.is_some()));
        let own = &mut self.account;
        if own.warm_up.is_empty() {
            let found = Known {
                features: columns.iter().map(|(name, _)| name.clone()).collect(),
                targets: targets.iter().flat_map(|(names, _): &(Vec<String>, bool)| names.clone()).collect(),
            };
            if let Some((path, expected)) = self.expected.as_ref().filter(|(_, expected)| *expected != found) {
                let target = if expected.targets.is_empty() { "" } else { ", and that of targets as target=function" };
                return Err(Failure::Other(Error::data(format!(
                    "{}: it was made with {expected} of functions, and the ones given have {found}: give the functions of then, in the same order{target}",
                    path.display(),
                ))));
            }
            (own.columns, own.targets) = (columns, targets);
            return Ok(());
        }
        if own.columns == columns && own.targets == targets {
            return Ok(());
        }
        let names = |columns: &[(String, String)], targets: &Option<(Vec<String>, bool)>| {
            let label_end = targets.iter().filter(|(_, has)| *has).map(|_| LABEL_END.to_owned());
            let targets = targets.iter().flat_map(|(names, _)| names.clone()).chain(label_end);
            columns.iter().map(|(name, _)| name.clone()).chain(targets).collect()
        };
        Err(Failure::Bars(BarsError::Function {
            function: own.fingerprints.keys().next().cloned().unwrap_or_default(),
            instrument: symbol.to_owned(),
            timeframe: spec.windows[0].timeframe,
            fault: Box::new(FunctionFault::Columns {
                found: names(&columns, &targets),
                expected: names(&own.columns, &own.targets),
            }),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More bars of a context bring nothing where a function has no value before it.
    #[test]
    fn a_context_comes_last_after_all_functions() {
        let longest = |own: [(&str, usize); 3]| {
            let warm_ups = BTreeMap::from(own.map(|(function, bars)| (function.to_owned(), bars)));
            longest_context(&warm_ups).map(str::to_owned)
        };
        let found = [8, 9, 10].map(|bars| longest([("atr", bars), ("context SPY", 9), ("fall", 3)]));
        assert_eq!(found, [Some("SPY".to_owned()), None, None]);
        assert_eq!(longest([("atr", 0), ("context DXY", 7), ("context SPY", 5)]).as_deref(), Some("DXY"));
    }
}
