//! Functions of a series whose bars come one by one: they are called with its last bars.

use crate::bars::{Bar, Bars};
use crate::error::Result;
use crate::error::function_fault::FunctionFault;
use crate::series::functions::{BarFunctions, FunctionBars, FunctionCall, FunctionColumn};
use crate::series::rounding::Tolerance;
use crate::time::bin_clock::BinClock;

/// The shortest tail that is tried, in bars; each further one is as many times as long.
const TAIL_BARS_MIN: usize = 64;
const TAIL_GROWTH: usize = 4;
/// Places at which a tail must give the values of all bars.
const ENDS: usize = 6;
/// Part of the values and of their spread by which a tail may miss them: means that never forget
/// fade.
const TAIL_SHARE: f64 = 1e-6;

/// The last bars of each timeframe of one instrument, and the functions that see them.
pub struct FunctionTail<'a> {
    functions: &'a dyn BarFunctions,
    instrument: String,
    /// Names of the further columns that functions see.
    columns: Vec<String>,
    clock: BinClock,
    /// Columns of the files among the features.
    own: usize,
    /// Columns that functions gave in one timeframe.
    given: Vec<FunctionColumn>,
    tails: Vec<Tail>,
}

struct Tail {
    /// The last bars, as functions see them.
    recent: Bars,
    /// Number of bars that functions read.
    len: usize,
}

impl<'a> FunctionTail<'a> {
    /// The tail of `bars`, for which `functions` gave the columns `features`. As many bars are kept
    /// as give the values of all bars at several places.
    ///
    /// # Errors
    /// [`Error::Function`](crate::Error::Function).
    pub fn new(bars: &FunctionBars, features: &[Vec<FunctionColumn>], functions: &'a dyn BarFunctions) -> Result<Self> {
        let mut tails = Vec::with_capacity(features.len());
        for (call, known) in bars.calls().zip(features) {
            let (all, len) = (call.bars.len(), tail_len(&call, known, functions)?);
            tails.push(Tail { recent: call.bars.part(all - len.min(all)..all), len });
        }
        Ok(FunctionTail {
            functions,
            instrument: bars.instrument().to_owned(),
            columns: bars.columns().to_vec(),
            clock: bars.clock().clone(),
            own: bars.own_columns(),
            given: features.first().map_or(Vec::new(), |columns| {
                columns.iter().map(|column| FunctionColumn { values: Vec::new(), ..column.clone() }).collect()
            }),
            tails,
        })
    }

    /// Makes room for the columns of functions in a base bar, between those of the files and those
    /// that only functions see.
    pub fn widen(&self, bar: &mut Bar) {
        let (own, seen) = bar.columns.split_at(self.own);
        let slots = std::iter::repeat_n(f64::NAN, self.given.len() * self.tails.len());
        bar.columns = own.iter().copied().chain(slots).chain(seen.iter().copied()).collect();
    }

    /// Calls the functions for a bar of the timeframe at place `timeframe` that has closed, and
    /// puts in their values.
    ///
    /// # Errors
    /// [`Error::Function`](crate::Error::Function), also for a bar without a value.
    pub fn complete(&mut self, timeframe: usize, bar: &mut Bar) -> Result<()> {
        let count = self.tails.len();
        let slots = self.own + self.given.len() * count;
        let seen = bar.columns[..self.own].iter().chain(&bar.columns[slots..]).copied().collect();
        let Tail { recent, len } = &mut self.tails[timeframe];
        recent.push(Bar { columns: seen, ..bar.clone() });
        if recent.len() > len.saturating_mul(2) {
            *recent = recent.part(recent.len() - *len..recent.len());
        }
        let (columns, bins) = (&self.columns, &self.clock);
        let call = FunctionCall { instrument: &self.instrument, bars: recent, columns, bins };
        let found = self.functions.columns(&call)?;
        call.require_same_columns(&found, &self.given)?;
        for (place, column) in found.iter().enumerate() {
            let value = call.last_value(column)?;
            bar.columns[self.own + place * count + timeframe] = value;
        }
        Ok(())
    }
}

/// Number of last bars for which functions give the values of all bars; without limit for those
/// that need them all.
fn tail_len(call: &FunctionCall<'_>, known: &[FunctionColumn], functions: &dyn BarFunctions) -> Result<usize> {
    let all = call.bars.len();
    let tolerances: Vec<Tolerance> = known.iter().map(|column| Tolerance::with_share(column, TAIL_SHARE)).collect();
    let mut len = TAIL_BARS_MIN;
    while len < all {
        if gives_the_same(call, known, &tolerances, functions, len)? {
            return Ok(len);
        }
        len *= TAIL_GROWTH;
    }
    Ok(usize::MAX)
}

fn gives_the_same(
    call: &FunctionCall<'_>,
    known: &[FunctionColumn],
    tolerances: &[Tolerance],
    functions: &dyn BarFunctions,
    len: usize,
) -> Result<bool> {
    let all = call.bars.len();
    for step in 0..ENDS {
        let end = all - (all - len) * step / ENDS;
        let tail = call.bars.part(end - len..end);
        let found = match functions.columns(&FunctionCall { bars: &tail, ..*call }) {
            // Some need many bars.
            Err(error) if matches!(error.function_fault(), Some(FunctionFault::Failed(_))) => return Ok(false),
            found => found?,
        };
        call.require_same_columns(&found, known)?;
        for ((column, tolerance), found) in known.iter().zip(tolerances).zip(&found) {
            let is_same = found.values.last().is_some_and(|&last| tolerance.allows(column.values[end - 1], last));
            if !is_same {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
