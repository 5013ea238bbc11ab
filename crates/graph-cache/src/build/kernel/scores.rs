//! Sixteen rows of a product Z·Zᵀ in single precision, and the search for a row's large numbers.
//!
//! ```text
//! scores:     for row r of a panel, column c:    to[r][c] = start[c] + Σ_t z[r, t] · z[c, t]
//! kth_group:  the k-th largest of G numbers; number g is the largest row[c] with c mod G = g
//! at_least:   the columns c with row[c] ≥ limit, ascending
//! ```
//!
//! Both operands of the product are the same panels: sixteen rows of Z, `[panel][t][16]`. A tile of
//! a few rows and one or two panels is summed in registers over the whole depth. Each sum of the
//! product is formed twice, once for either end. In return no more than sixteen rows exist at a
//! time, which stay in the first-level cache until they are searched.

#![allow(unsafe_code, reason = "instructions of the CPU")]
#![allow(clippy::needless_range_loop, reason = "the indices are rows and panels of a tile, counted at compile time")]

use super::lanes::Lanes;
use super::{AtLeastArguments, GroupArguments, PANEL, ScoreArguments};

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`ScoreArguments`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn scores<V: Lanes>(s: &ScoreArguments) {
    for panel in (0..s.columns / PANEL).step_by(V::PANELS) {
        for row in (0..PANEL).step_by(V::ROWS) {
            // SAFETY: the number of panels is even, so that all panels of the tile exist; its rows
            // divide sixteen.
            unsafe {
                match (V::ROWS, V::PANELS) {
                    (8, 2) => tile::<V, 8, 2>(s, row, panel),
                    (4, 1) => tile::<V, 4, 1>(s, row, panel),
                    (2, 1) => tile::<V, 2, 1>(s, row, panel),
                    _ => unreachable!("every shape of a tile has its line"),
                }
            }
        }
    }
}

/// R rows of P panels from `row` and `panel` on.
#[inline(always)]
unsafe fn tile<V: Lanes, const R: usize, const P: usize>(s: &ScoreArguments, row: usize, panel: usize) {
    // SAFETY: rows and panels lie inside the product, whose pointers reach them by its contract.
    unsafe {
        let start = s.start.add(panel * PANEL);
        let mut sums = [[V::splat(0.0); P]; R];
        for r in 0..R {
            for q in 0..P {
                sums[r][q] = V::load(start.add(q * PANEL));
            }
        }
        let stride = s.depth * PANEL;
        let mut a = s.rows.add(row);
        let mut b = s.panels.add(panel * stride);
        for _ in 0..s.depth {
            let mut columns = [V::splat(0.0); P];
            for q in 0..P {
                columns[q] = V::load(b.wrapping_add(q * stride));
            }
            for r in 0..R {
                let factor = V::splat(*a.wrapping_add(r));
                for q in 0..P {
                    sums[r][q] = factor.mul_add(columns[q], sums[r][q]);
                }
            }
            a = a.wrapping_add(PANEL);
            b = b.wrapping_add(PANEL);
        }
        for r in 0..R {
            for q in 0..P {
                sums[r][q].store(s.to.add((row + r) * s.columns + (panel + q) * PANEL));
            }
        }
    }
}

/// The k-th largest of a few numbers. Each is compared with all, sixteen at a time, which is
/// cheaper than a selection algorithm for so few.
///
/// # Safety
/// The pointers of `g` reach all that its sizes say, see [`GroupArguments`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn kth_group<V: Lanes>(g: &GroupArguments) -> f32 {
    // SAFETY: columns and groups are whole panels, and no fewer columns than groups.
    unsafe {
        for group in (0..g.groups).step_by(PANEL) {
            let mut largest = V::load(g.row.add(group));
            for column in (group + g.groups..g.columns).step_by(g.groups) {
                largest = largest.larger(V::load(g.row.add(column)));
            }
            largest.store(g.largest.add(group));
        }
        let mut kth = V::splat(f32::NEG_INFINITY);
        for group in (0..g.groups).step_by(PANEL) {
            let sixteen = V::load(g.largest.add(group));
            let as_large = counts_as_large::<V>(g, sixteen);
            kth = kth.larger(sixteen.where_at_least(as_large, V::splat(g.k as f32)));
        }
        kth.largest()
    }
}

/// Count over all groups of values at least as large as each of sixteen. In two sums, as the
/// additions of one wait for each other.
///
/// # Safety
/// As [`kth_group`], whose first loop has run.
#[inline(always)]
unsafe fn counts_as_large<V: Lanes>(g: &GroupArguments, sixteen: V) -> V {
    // SAFETY: the groups are whole panels, and so an even number.
    unsafe {
        let mut counts = [V::splat(0.0); 2];
        for place in (0..g.groups).step_by(2) {
            for (next, count) in counts.iter_mut().enumerate() {
                *count = count.counting(V::splat(*g.largest.add(place + next)), sixteen);
            }
        }
        V::splat(1.0).mul_add(counts[0], counts[1])
    }
}

/// Number of places written.
///
/// # Safety
/// The pointers of `l` reach all that its sizes say, see [`AtLeastArguments`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn at_least<V: Lanes>(l: &AtLeastArguments) -> usize {
    let mut found = 0;
    for first in (0..l.columns).step_by(PANEL) {
        // SAFETY: the columns are whole panels, and `to` has room for as many places as there are
        // columns: as no more were found than were looked at, sixteen from `found` on too.
        unsafe {
            let mask = V::load(l.row.add(first)).at_least(V::splat(l.limit));
            V::write_places(mask, first as u32, l.to.add(found));
            found += mask.count_ones() as usize;
        }
    }
    found
}
