//! Proof that functions of the user do not look ahead.
//!
//! ```text
//! all bars   ......................................   called twice: one answer
//! cut        ........................|                the bars end at a cut, or go on with
//!            ........................|xxxxxxxxxxxxx   other values
//! window           ........|.....                     the same within short windows, at many cuts
//! ```
//!
//! Values of bars before a cut must stay the same. A window begins anew for a function, so that
//! both calls of a comparison begin at the same bar. Short calls are cheap: many cuts find what
//! looks ahead at few bars only. Some cuts are drawn, and some stand where leaks are usual: at the
//! end of a day, before a hole, and after the bars of the largest volume, range and change.

use std::cell::LazyCell;
use std::ops::Range;

use crate::bars::Bars;
use crate::clean::gap::GapPolicy;
use crate::error::function_fault::{FunctionFault, OtherEnd};
use crate::error::look_ahead::Perturbation;
use crate::error::{Error, Result};
use crate::proof::perturb::{OtherFuture, SplitMix64};
use crate::series::functions::{
    BarFunctions, FunctionAnswers, FunctionBars, FunctionCall, FunctionColumn, FunctionTargets,
};
use crate::series::rounding::{Tolerance, is_same};
use crate::series::streamed::Observe;
use crate::time::bin_clock::BinClock;
use crate::time::timestamp::DAY_NS;

/// Cuts of all bars of a timeframe.
const LONG_CUTS: usize = 3;
/// Windows of a timeframe, of all instruments together, and cuts of each.
const WINDOWS: usize = 24;
const CUTS: usize = 8;
/// Bars of a window beside four times the warm-up.
const WINDOW_BARS: usize = 192;
/// Account of a proof of functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionProof {
    /// Calls of functions.
    pub calls: usize,
    /// Cuts at which values were compared.
    pub cuts: usize,
}

/// Proves that what `functions` gave for `bars`, `answers`, does not depend on bars that had not
/// closed, as far as replaying them shows: features on none after their own, targets on none after
/// the end of their label. The bars are those of one of `instruments` instruments, which share the
/// windows. `observe` gets the number of calls.
///
/// # Errors
/// [`Error::Function`] for a value that changes, and for two answers to the same call;
/// [`Error::Interrupted`].
pub fn prove_functions(
    bars: &FunctionBars,
    answers: &FunctionAnswers,
    functions: &dyn BarFunctions,
    horizon: usize,
    instruments: usize,
    seed: u64,
    observe: Observe<'_>,
) -> Result<FunctionProof> {
    let windows = WINDOWS.div_ceil(instruments).max(2);
    let base = answers.targets.as_ref().map(|_| bars.base_bars());
    let targets: Option<Vec<FunctionColumn>> = answers.targets.as_ref().map(|own| own.iter().cloned().collect());
    let ends = match &answers.targets {
        Some(FunctionTargets { label_end: None, .. }) => Answer::Targets { horizon: Some(horizon) },
        _ => Answer::Targets { horizon: None },
    };
    let features = bars.calls().zip(&answers.features).map(|(call, known)| (call, known, Answer::Features));
    let targets = base.iter().zip(&targets).map(|(base, known)| (bars.base_call(base), known, ends));
    let mut account = FunctionProof::default();
    for (call, known, answer) in features.chain(targets) {
        let random = SplitMix64(seed);
        let mut replay = Replay { call, known, answer, functions, observe, random, account, failed: None };
        replay.prove(windows)?;
        account = replay.account;
    }
    Ok(account)
}

/// Kind of columns that are replayed.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// Known when their bars close.
    Features,
    /// Known by the horizon in bars after their own, or else by the last column.
    Targets { horizon: Option<usize> },
}

impl Answer {
    /// Least horizon of a target at `place` that bars from `cut` on decide; `None` where no horizon
    /// says when it is known.
    fn horizon_min(self, place: usize, cut: usize) -> Option<usize> {
        matches!(self, Answer::Targets { horizon: Some(_) }).then_some(cut - place)
    }

    /// The places before `cut` of the values that are known by then.
    fn places(self, known: &[FunctionColumn], bars: &Bars, cut: usize) -> Vec<usize> {
        match self {
            Answer::Features => (0..cut).collect(),
            Answer::Targets { horizon: Some(horizon) } => (0..cut.saturating_sub(horizon)).collect(),
            Answer::Targets { horizon: None } => {
                let end = bars.close_time(cut - 1) as f64;
                let ends = known.last().map_or(&[][..], |column| &column.values);
                (0..cut).filter(|&place| ends[place] <= end).collect()
            }
        }
    }
}

/// Calls of functions for one timeframe.
struct Replay<'a> {
    call: FunctionCall<'a>,
    /// Columns that they gave for all bars.
    known: &'a [FunctionColumn],
    answer: Answer,
    functions: &'a dyn BarFunctions,
    observe: Observe<'a>,
    random: SplitMix64,
    account: FunctionProof,
    /// The first error of functions for fewer bars than all.
    failed: Option<Error>,
}

impl Replay<'_> {
    fn prove(&mut self, windows: usize) -> Result<()> {
        let len = self.call.bars.len();
        let again = self.columns(self.call.bars)?;
        self.call.require_same_columns(&again, self.known)?;
        self.require_one_answer(&again)?;
        for _ in 0..LONG_CUTS {
            let cut = len / 4 + self.random.below((len - len / 4).max(1));
            self.compare(0..len, self.known, cut)?;
        }
        let value = |column: &FunctionColumn| column.values.iter().position(|value| !value.is_nan());
        let warm_up = self.known.iter().filter_map(value).max().unwrap_or(0);
        let reach = match self.answer {
            Answer::Features => 4 * warm_up,
            Answer::Targets { horizon } => 4 * warm_up + 2 * horizon.unwrap_or(self.longest_label()),
        };
        let window_len = (reach + WINDOW_BARS).min(len);
        for _ in 0..windows {
            let start = self.random.below(len - window_len + 1);
            self.prove_window(start..start + window_len, warm_up)?;
        }
        match (self.account.cuts, self.failed.take()) {
            (0, Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Bars that the longest label spans, where a column says when labels end.
    fn longest_label(&self) -> usize {
        let (bars, ends) = (self.call.bars, self.known.last().map_or(&[][..], |column| &column.values));
        let spans = ends.iter().zip(&bars.open_time).filter(|(end, _)| !end.is_nan());
        let longest_ns = spans.map(|(end, open_time)| *end as i64 - open_time).max().unwrap_or(0);
        usize::try_from(longest_ns / bars.timeframe.duration_ns()).unwrap_or(0)
    }

    /// Compares at cuts within a window.
    fn prove_window(&mut self, window: Range<usize>, warm_up: usize) -> Result<()> {
        let bars = self.call.bars.part(window.clone());
        let Some(known) = self.attempt(&bars)? else { return Ok(()) };
        for cut in self.cuts(&bars, warm_up) {
            self.compare(window.clone(), &known, cut)?;
        }
        Ok(())
    }

    /// Places of cuts in `bars`: usual ones of leaks, and others at random.
    fn cuts(&mut self, bars: &Bars, warm_up: usize) -> Vec<usize> {
        let first = (warm_up + 1).min(bars.len());
        let later = || first + 1..bars.len();
        let largest = |size: &dyn Fn(usize) -> f64| later().max_by(|&a, &b| size(a - 1).total_cmp(&size(b - 1)));
        let time = |place: usize| bars.open_time[place];
        let ends_day = |&place: &usize| time(place).div_euclid(DAY_NS) != time(place - 1).div_euclid(DAY_NS);
        let mut cuts: Vec<usize> = [
            largest(&|place| bars.volume[place]),
            largest(&|place| bars.high[place] - bars.low[place]),
            largest(&|place| (bars.close[place] - bars.open[place]).abs()),
            later().max_by_key(|&place| time(place) - time(place - 1)),
            later().find(ends_day),
        ]
        .into_iter()
        .flatten()
        .collect();
        while cuts.len() < CUTS && first < bars.len() {
            cuts.push(first + self.random.below(bars.len() - first));
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// Requires that the values of `window` before its bar `cut` are those that are `known` for the
    /// whole window, when the window ends there, and when it goes on with other values.
    fn compare(&mut self, window: Range<usize>, known: &[FunctionColumn], cut: usize) -> Result<()> {
        let bars = self.call.bars.part(window);
        if cut == 0 || cut >= bars.len() {
            return Ok(());
        }
        let future = OtherFuture {
            random: SplitMix64(self.random.next()),
            perturbation: Perturbation::Values,
            time: bars.close_time(cut - 1),
            bars_min: 0,
            bins: BinClock::default(),
            holes: GapPolicy::default(),
        };
        for (other, end) in [(bars.part(0..cut), OtherEnd::Missing), (future.replace_in(&bars), OtherEnd::Replaced)] {
            let Some(found) = self.attempt(&other)? else { continue };
            self.call.require_same_columns(&found, known)?;
            self.account.cuts += 1;
            let places = self.answer.places(known, &bars, cut);
            for (column, found) in known.iter().zip(&found) {
                if found.values.len() != other.len() {
                    let (found_len, name) = (found.values.len(), column.name.clone());
                    let fault = FunctionFault::Len { column: name, found: found_len, bars: other.len() };
                    return Err(self.call.fault(&column.function, fault));
                }
                // Nearly all values are the same to the last bit, and need none.
                let tolerance = LazyCell::new(|| Tolerance::new(column, &found.values));
                let differs = |&place: &usize| {
                    let (before, after) = (column.values[place], found.values[place]);
                    !is_same(before, after) && !tolerance.allows(before, after)
                };
                if let Some(place) = places.iter().copied().find(|place| differs(place)) {
                    let (before, after) = (column.values[place], found.values[place]);
                    return Err(self.call.fault(
                        &column.function,
                        FunctionFault::LookAhead {
                            column: column.name.clone(),
                            open_time: bars.open_time[place],
                            last_open_time: bars.open_time[cut - 1],
                            future: end,
                            before,
                            after,
                            tolerance: tolerance.between(before, after),
                            horizon_min: self.answer.horizon_min(place, cut),
                        },
                    ));
                }
            }
        }
        Ok(())
    }

    fn require_one_answer(&self, again: &[FunctionColumn]) -> Result<()> {
        for (first, second) in self.known.iter().zip(again) {
            let is_same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            let differs = first.values.iter().zip(&second.values).position(|pair| !is_same(pair));
            if let Some(place) = differs {
                let fault = FunctionFault::TwoAnswers {
                    column: first.name.clone(),
                    open_time: self.call.bars.open_time[place],
                    found: [first.values[place], second.values[place]],
                };
                return Err(self.call.fault(&first.function, fault));
            }
        }
        Ok(())
    }

    /// Columns for fewer bars; `None` where functions fail, as some need many.
    fn attempt(&mut self, bars: &Bars) -> Result<Option<Vec<FunctionColumn>>> {
        match self.columns(bars) {
            Err(error) if matches!(error.function_fault(), Some(FunctionFault::Failed(_))) => {
                self.failed.get_or_insert(error);
                Ok(None)
            }
            columns => columns.map(Some),
        }
    }

    fn columns(&mut self, bars: &Bars) -> Result<Vec<FunctionColumn>> {
        self.account.calls += 1;
        if (self.observe)(1).is_break() {
            return Err(Error::Interrupted);
        }
        let call = FunctionCall { bars, ..self.call };
        match self.answer {
            Answer::Features => self.functions.columns(&call),
            Answer::Targets { .. } => {
                let FunctionTargets { columns, label_end } = self.functions.targets(&call)?;
                Ok(columns.into_iter().chain(label_end).collect())
            }
        }
    }
}
