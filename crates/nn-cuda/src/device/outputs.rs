//! Outputs of a layer in all timeframes, as their readers find them.

use megabatch_gpu_core::Buffer;

use crate::ops::{Operand, RowGranularity, TensorSlice, WorkList};

/// The hidden states of a layer, `[Σ (T + 1)·B, H]` of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outputs<'a, T: Operand> {
    pub(super) list: &'a WorkList,
    pub(super) hidden: &'a Buffer<T>,
}

/// Rows of H numbers each.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputRows<'a, T: Operand> {
    pub(super) part: TensorSlice<'a, T>,
    pub(super) rows: usize,
}

impl<'a, T: Operand> Outputs<'a, T> {
    /// Outputs of timeframe `k` after each step, `[T·B, H]`.
    pub(super) fn all(self, k: usize) -> OutputRows<'a, T> {
        let [steps, windows] = self.list.steps_and_windows(k);
        self.after(k, 0, steps * windows)
    }

    /// Outputs of timeframe `k` after the last step, `[B, H]`.
    pub(super) fn last(self, k: usize) -> OutputRows<'a, T> {
        let [steps, windows] = self.list.steps_and_windows(k);
        self.after(k, steps - 1, windows)
    }

    fn after(self, k: usize, step: usize, rows: usize) -> OutputRows<'a, T> {
        let start = self.list.states_row_after(k, step) * self.list.hidden();
        OutputRows { part: TensorSlice { buffer: self.hidden, start }, rows }
    }

    /// Start of the values of timeframe `k` after each step in arrays `[Σ T·B, H]`.
    pub(super) fn start_of_all(self, k: usize) -> usize {
        self.list.gates_row(k) * self.list.hidden()
    }

    /// The same of those after the last step, in arrays `[Σ B, H]`.
    pub(super) fn start_of_last(self, k: usize) -> usize {
        self.list.first_window(k) * self.list.hidden()
    }

    /// Vectors of timeframe `k`, and their start among all.
    pub(super) fn vector_rows(self, k: usize, vectors: RowGranularity) -> (OutputRows<'a, T>, usize) {
        match vectors {
            RowGranularity::OfWindows => (self.last(k), self.start_of_last(k)),
            RowGranularity::OfSteps => (self.all(k), self.start_of_all(k)),
        }
    }

    /// The numbers of the timeframes.
    pub(super) fn timeframes(self) -> std::ops::Range<usize> {
        0..self.list.sequences()
    }
}
