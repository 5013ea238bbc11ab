//! Functions of a series whose bars come one by one.

use crate::bars::{Bar, Bars};
use crate::error::Result;
use crate::series::functions::{BarFunctions, FunctionBars, FunctionCall, FunctionColumn};
use crate::time::bin_clock::BinClock;

/// All closed bars of each timeframe of one instrument, and the functions that see them. They are
/// called with all, as when a series is made: how many bars a value depends on is not known. Those
/// that do not [need all](BarFunctions::needs_all_bars) are called with the new bar.
pub struct FunctionStream<'a> {
    functions: &'a dyn BarFunctions,
    instrument: String,
    /// Names of the further columns that functions see.
    columns: Vec<String>,
    clock: BinClock,
    /// Columns of the files among the features.
    own: usize,
    /// Columns that functions gave in one timeframe.
    given: Vec<FunctionColumn>,
    /// Bars of each timeframe, as functions see them: all, or the last one that came.
    timeframes: Vec<Bars>,
}

impl<'a> FunctionStream<'a> {
    /// The stream after `bars`, for which `functions` gave the columns `features`.
    pub fn new(bars: &FunctionBars, features: &[Vec<FunctionColumn>], functions: &'a dyn BarFunctions) -> Self {
        let seen = |call: FunctionCall<'_>| match functions.needs_all_bars() {
            true => call.bars.clone(),
            false => call.bars.part(0..0),
        };
        FunctionStream {
            functions,
            instrument: bars.instrument().to_owned(),
            columns: bars.columns().to_vec(),
            clock: bars.clock().clone(),
            own: bars.own_columns(),
            given: features.first().map_or(Vec::new(), |columns| {
                columns.iter().map(|column| FunctionColumn { values: Vec::new(), ..column.clone() }).collect()
            }),
            timeframes: bars.calls().map(seen).collect(),
        }
    }

    /// Makes room for the columns of functions in a base bar, between those of the files and those
    /// that only functions see.
    pub fn widen(&self, bar: &mut Bar) {
        let (own, seen) = bar.columns.split_at(self.own);
        let slots = std::iter::repeat_n(f64::NAN, self.given.len() * self.timeframes.len());
        bar.columns = own.iter().copied().chain(slots).chain(seen.iter().copied()).collect();
    }

    /// Calls the functions for a bar of the timeframe at place `timeframe` that has closed, and
    /// puts in their values.
    ///
    /// # Errors
    /// [`Error::Function`](crate::Error::Function), also for a bar without a value.
    pub fn complete(&mut self, timeframe: usize, bar: &mut Bar) -> Result<()> {
        let count = self.timeframes.len();
        let slots = self.own + self.given.len() * count;
        let seen = bar.columns[..self.own].iter().chain(&bar.columns[slots..]).copied().collect();
        let bars = &mut self.timeframes[timeframe];
        if !self.functions.needs_all_bars() {
            bars.truncate(0);
        }
        bars.push(Bar { columns: seen, ..bar.clone() });
        let (columns, bins) = (&self.columns, &self.clock);
        let call = FunctionCall { instrument: &self.instrument, bars, columns, bins };
        let found = self.functions.columns(&call)?;
        call.require_same_columns(&found, &self.given)?;
        for (place, column) in found.iter().enumerate() {
            let value = call.last_value(column)?;
            bar.columns[self.own + place * count + timeframe] = value;
        }
        Ok(())
    }
}
