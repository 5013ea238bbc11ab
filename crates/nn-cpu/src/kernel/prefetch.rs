//! Prefetches of a product: rows that the next step will read or write.
//!
//! A product is bound by its multiplications and leaves the memory idle; the cell's kernels are
//! bound by the memory. A core waits for so few rows at a time (the fill buffers of its first-level
//! cache, 16 of them) that asking for many at once takes as long as fetching them.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use super::lanes::Words;
use super::{PANEL, PanelStride, View};

/// Rows of up to three matrices, in the order in which they are asked for. Nothing is read: they
/// may lie anywhere.
#[derive(Clone, Copy, Default)]
pub(crate) struct PrefetchRows {
    matrices: [PanelRows; 3],
    used: usize,
}

/// The first rows of each of some panels.
#[derive(Clone, Copy)]
pub(crate) struct PanelRows {
    from: *const f32,
    stride: usize,
    panels: usize,
    rows: usize,
}

impl Default for PanelRows {
    fn default() -> Self {
        PanelRows { from: std::ptr::null(), stride: 0, panels: 0, rows: 0 }
    }
}

impl PanelRows {
    /// The first `rows` rows of `panels` panels of a matrix.
    pub(crate) fn new(View(values, place): View<'_>, panels: usize, rows: usize) -> Self {
        PanelRows { from: values.as_ptr().wrapping_add(place.start), stride: place.stride, panels, rows }
    }
}

impl PrefetchRows {
    /// Besides, the first `rows` rows of `panels` panels at `place` in `values`.
    pub(crate) fn and(mut self, values: &[f32], place: PanelStride, panels: usize, rows: usize) -> Self {
        self.matrices[self.used] = PanelRows::new(View(values, place), panels, rows);
        self.used += 1;
        self
    }

    /// The rows as a product asks for them that has `turns` opportunities.
    pub(super) fn cursor(&self, turns: usize) -> PrefetchCursor<'_> {
        PrefetchCursor::over(&self.matrices, turns)
    }
}

/// Position of a product among the rows that it prefetches.
pub(super) struct PrefetchCursor<'a> {
    /// Remaining matrices; of the first, the panels before `panel` and in it the rows before `row`
    /// are done.
    matrices: &'a [PanelRows],
    panel: usize,
    row: usize,
    in_turn: usize,
}

impl<'a> PrefetchCursor<'a> {
    /// The rows of `matrices` as a product asks for them that has `turns` opportunities.
    pub(super) fn over(matrices: &'a [PanelRows], turns: usize) -> Self {
        let rows: usize = matrices.iter().map(|matrix| matrix.panels * matrix.rows).sum();
        let mut all = PrefetchCursor { matrices, panel: 0, row: 0, in_turn: rows.div_ceil(turns.max(1)) };
        all.skip_done();
        all
    }
}

impl PrefetchCursor<'_> {
    /// Asks for the rows of `turns` turns.
    ///
    /// # Safety
    /// The CPU has the instruction set of V.
    #[inline(always)]
    pub(super) unsafe fn take<V: Words>(&mut self, turns: usize) {
        for _ in 0..self.in_turn * turns {
            let Some(row) = self.next() else { return };
            // SAFETY: the caller has the instruction set of V; any address may be asked for.
            unsafe { V::prefetch(row) };
        }
    }

    /// Goes on to the next matrix that has rows left.
    #[inline(always)]
    fn skip_done(&mut self) {
        while let [matrix, rest @ ..] = self.matrices
            && (self.panel >= matrix.panels || matrix.rows == 0)
        {
            (self.matrices, self.panel) = (rest, 0);
        }
    }
}

impl Iterator for PrefetchCursor<'_> {
    type Item = *const f32;

    #[inline(always)]
    fn next(&mut self) -> Option<*const f32> {
        let matrix = self.matrices.first()?;
        let row = matrix.from.wrapping_add(self.panel * matrix.stride + self.row * PANEL);
        self.row += 1;
        if self.row == matrix.rows {
            (self.panel, self.row) = (self.panel + 1, 0);
            self.skip_done();
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_asked_for_once_and_in_few_enough_turns() {
        let values = [0.0f32; 20 * PANEL];
        let place = |row: usize, rows: usize| PanelStride { start: row * PANEL, stride: rows * PANEL };
        let prefetch = PrefetchRows::default().and(&values, place(1, 4), 2, 3).and(&values, place(0, 9), 0, 5).and(
            &values,
            place(9, 1),
            3,
            1,
        );
        let expected = [1, 2, 3, 5, 6, 7, 9, 10, 11].map(|row| values.as_ptr().wrapping_add(row * PANEL));
        for (turns, in_turn) in [(0, 9), (1, 9), (2, 5), (4, 3), (9, 1), (100, 1)] {
            let rows = prefetch.cursor(turns);
            assert_eq!(rows.in_turn, in_turn, "{turns} turns");
            assert_eq!(rows.collect::<Vec<_>>(), expected, "{turns} turns");
        }
    }

    #[test]
    fn nothing_is_asked_for_unless_there_is_something() {
        let values = [0.0f32; PANEL];
        let place = PanelStride { start: 0, stride: PANEL };
        assert_eq!(PrefetchRows::default().cursor(3).next(), None);
        assert_eq!(PrefetchRows::default().and(&values, place, 1, 0).cursor(3).next(), None);
    }
}
