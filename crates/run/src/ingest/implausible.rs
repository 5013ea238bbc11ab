//! Warnings about columns and targets that correlate with returns as no honest ones do.

use std::fmt::Display;

use megabatch_bars::{SeriesSpec, StreamedInstrument, foresight, late_targets};

use crate::error::Result;
use crate::text::plural;

/// An instrument of which a column is in doubt.
struct Doubt<'a> {
    symbol: &'a str,
    correlation: f64,
    reason: String,
}

/// Warnings about columns that know returns to come and targets that their horizon does not
/// decide, one each.
pub(crate) fn warnings(instruments: &[StreamedInstrument<'_>], spec: &SeriesSpec) -> Result<Vec<String>> {
    let (columns, targets) = (spec.columns(), spec.target_kind.columns());
    let origin = if spec.target_kind.is_function() { "function" } else { "column" };
    let mut by_column: Vec<Vec<Doubt<'_>>> = columns.iter().map(|_| Vec::new()).collect();
    let mut by_target: Vec<Vec<Doubt<'_>>> = targets.iter().map(|_| Vec::new()).collect();
    let doubt = |symbol, correlation, reason: &dyn Display| Doubt { symbol, correlation, reason: reason.to_string() };
    for one in instruments {
        if !columns.is_empty() {
            for found in foresight(one.bars, columns.len())? {
                by_column[found.column].push(doubt(one.name, found.correlation, &found));
            }
        }
        for found in late_targets(one.bars, spec)? {
            by_target[found.target].push(doubt(one.name, found.correlation, &found));
        }
    }
    let looks_ahead = columns.iter().zip(&by_column);
    let looks_ahead =
        looks_ahead.filter_map(|(name, doubts)| warning(&format!("does column:{name} look ahead?"), doubts));
    let is_late = targets.iter().zip(&by_target);
    let is_late = is_late.filter_map(|(name, doubts)| {
        warning(&format!("is the target {origin}:{name} decided later than the horizon says?"), doubts)
    });
    Ok(looks_ahead.chain(is_late).collect())
}

/// The warning about a column: its strongest doubt, and the number of others.
fn warning(question: &str, doubts: &[Doubt<'_>]) -> Option<String> {
    let strongest = doubts.iter().max_by(|one, other| one.correlation.abs().total_cmp(&other.correlation.abs()))?;
    let others = match doubts.len() - 1 {
        0 => String::new(),
        others => format!("; {} likewise", plural(others, "other instrument")),
    };
    Some(format!("{}: {question} {}{others}", strongest.symbol, strongest.reason))
}
