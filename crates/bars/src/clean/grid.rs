//! Single rows whose time is off the grid of the others: a minute bar at 10:59:15.
//!
//! Nearly all bars of a file open at one phase of their length. A row between two on that grid that
//! is off it is a slip. A stretch of rows off the grid is none: clocks and sessions change.

use std::collections::HashMap;
use std::ops::Range;

use crate::error::Result;
use crate::error::row_error::{RowError, RowFix};
use crate::parse::bar_file::BarFile;
use crate::parse::lines::text_of_line;
use crate::parse::row::RowFault;
use crate::parse::row_store::RowStore;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{RowTime, display_duration};

/// Smallest share of rows at one phase that makes it the grid.
const GRID_SHARE_MIN: f64 = 0.95;
/// A row is moved to the grid by at most this share of a bar.
const MOVE_MAX: f64 = 0.25;

/// Grid of the times of a file.
#[derive(Clone, Copy, Debug)]
struct Grid {
    base_ns: i64,
    phase_ns: i64,
}

impl Grid {
    /// The grid of rows, if nearly all of them are on one and some are not.
    fn from_rows(rows: &RowStore, base: Timeframe) -> Option<Self> {
        let base_ns = base.duration_ns();
        let mut counts: HashMap<i64, u64> = HashMap::new();
        for stamp in rows.stamps() {
            *counts.entry(stamp.ns().rem_euclid(base_ns)).or_default() += 1;
        }
        let (&phase_ns, &count) = counts.iter().max_by_key(|(phase_ns, count)| (**count, -**phase_ns))?;
        let is_grid = counts.len() > 1 && count as f64 >= GRID_SHARE_MIN * rows.len() as f64;
        is_grid.then_some(Grid { base_ns, phase_ns })
    }

    /// Time from the nearest place on the grid.
    fn late_ns(self, stamp: RowTime) -> i64 {
        let late_ns = (stamp.ns() - self.phase_ns).rem_euclid(self.base_ns);
        if 2 * late_ns > self.base_ns { late_ns - self.base_ns } else { late_ns }
    }
}

/// Treatment of one row off the grid.
struct OffGrid {
    index: usize,
    line: u64,
    late_ns: i64,
    /// True if its place on the grid is near and free.
    can_move: bool,
}

/// Repairs, drops or refuses the single rows of a file that are off the grid; true if there are
/// any. Daily bars have no grid.
pub(crate) fn settle_off_grid(source: &mut BarFile, base: Timeframe) -> Result<bool> {
    if base >= Timeframe::D1 {
        return Ok(false);
    }
    let Some(grid) = Grid::from_rows(&source.rows, base) else { return Ok(false) };
    let slips = slips(&source.rows, grid);
    let (mut moved, mut dropped): (HashMap<usize, i64>, Vec<Range<usize>>) = (HashMap::new(), Vec::new());
    for OffGrid { index, line, late_ns, can_move } in &slips {
        if *can_move && source.ledger.repairs() {
            source.ledger.fix(*line, RowFix::OnGrid);
            moved.insert(*index, *late_ns);
            continue;
        }
        source.ledger.refuse(*line, off_grid(*late_ns, base), |path| text_of_line(path, *line))?;
        dropped.push(*index..*index + 1);
    }
    if !moved.is_empty() {
        let mut index = 0;
        source.rows.update(|row| {
            if let Some(late_ns) = moved.get(&index) {
                row.stamp = row.stamp.earlier_by(*late_ns);
            }
            index += 1;
        })?;
    }
    if !dropped.is_empty() {
        source.rows = source.rows.without(&dropped)?;
    }
    Ok(!slips.is_empty())
}

/// Rows off the grid between two on it.
fn slips(rows: &RowStore, grid: Grid) -> Vec<OffGrid> {
    let is_on = |index: usize| index >= rows.len() || grid.late_ns(rows.stamp(index)) == 0;
    let is_slip = |index: &usize| !is_on(*index) && index.checked_sub(1).is_none_or(is_on) && is_on(index + 1);
    let slip = |index: usize| {
        let stamp = rows.stamp(index);
        let late_ns = grid.late_ns(stamp);
        let place = stamp.ns() - late_ns;
        let follows = index.checked_sub(1).is_none_or(|before| rows.stamp(before).ns() < place);
        let is_free = follows && (index + 1 >= rows.len() || place < rows.stamp(index + 1).ns());
        let can_move = is_free && late_ns.abs() as f64 <= MOVE_MAX * grid.base_ns as f64;
        OffGrid { index, line: rows.get(index).line, late_ns, can_move }
    };
    (0..rows.len()).filter(is_slip).map(slip).collect()
}

fn off_grid(late_ns: i64, base: Timeframe) -> RowFault {
    let side = if late_ns > 0 { "late" } else { "early" };
    let by = display_duration(late_ns.abs());
    let expected = format!("a time on the grid of the other {base} bars (this one is {by} {side})");
    RowFault { kind: RowError::OffGrid, expected }
}
