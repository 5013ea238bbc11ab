//! Numbers of a summary of bars, in one pass over them.

use crate::bar_source::BarSource;
use crate::bars::{Bar, Bars};
use crate::clean::gaps::{FarBars, GapCounter, Gaps};
use crate::clean::jumps::{Jump, JumpWindow, PAIR_FACTOR_MIN, UNNAMED_FACTOR_MIN};
use crate::error::Result;
use crate::parse::symbol::is_currency_pair;
use crate::place::for_each_bar;
use crate::read::summary::BarCounts;
use crate::time::zone::Zone;

/// Counts, gaps and jumps of bars.
pub(crate) struct BarProfile {
    pub(crate) first_open_time: i64,
    pub(crate) last_close_time: i64,
    pub(crate) last_bar: Bar,
    pub(crate) counts: BarCounts,
    pub(crate) gaps: Gaps,
    pub(crate) jumps: Vec<Jump>,
    pub(crate) far: Vec<String>,
}

impl BarProfile {
    /// Goes through bars of `symbol` that were read by `clocks`. There is at least one.
    pub(crate) fn new(bars: &dyn BarSource, symbol: &str, clocks: impl IntoIterator<Item = Zone>) -> Result<Self> {
        let duration_ns = bars.timeframe().duration_ns();
        let mut gaps = GapCounter::new(bars.timeframe(), clocks);
        let mut far = FarBars::new(bars.len());
        let mut jumps = JumpWindow::new(match is_currency_pair(symbol) {
            true => PAIR_FACTOR_MIN,
            false => UNNAMED_FACTOR_MIN,
        });
        let mut counts = BarCounts::default();
        let mut first = None;
        for_each_bar(bars, |bar| {
            first.get_or_insert(bar.open_time);
            counts.add(&bar);
            gaps.add(bar.open_time);
            far.add(bar.open_time);
            jumps.add(bar);
            Ok(())
        })?;
        let mut last = Bars::with_capacity(bars.timeframe(), 1);
        bars.read(bars.len() - 1..bars.len(), &mut last)?;
        let last_bar = last.without_columns(0);
        Ok(BarProfile {
            first_open_time: first.expect("there is a bar"),
            last_close_time: last_bar.open_time + duration_ns,
            last_bar,
            counts,
            gaps: gaps.finish(),
            jumps: jumps.finish(),
            far: far.warnings(),
        })
    }
}
