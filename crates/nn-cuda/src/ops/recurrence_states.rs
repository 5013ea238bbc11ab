//! Inputs, states and gradients of the recurrence.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;

use super::GATES;
use super::capacity::ensure_capacity;
use super::group;
use super::operand::Operand;
use super::recurrent_weights::{RecurrentWeights, is_of_a_block, persistent_units};
use super::scratch::Scratch;
use super::work_list::WorkList;

/// Inputs of the recurrence.
#[derive(Clone, Copy, Debug)]
pub struct RecurrenceInputs<'a, T: Operand> {
    /// W_hh of each sequence.
    pub weights: &'a RecurrentWeights<T>,
    /// x · W_ihᵀ + b_ih + b_hh, `[rows, H, 4]`, the rows of all sequences.
    pub projected: &'a Buffer<f32>,
}

/// States that the recurrence keeps, sequence after sequence; behind it there may be room for more.
#[derive(Debug)]
pub struct States<T: Operand> {
    /// `[Σ (T + 1)·B, H]`: the states before the first step, which are the caller's to set, then
    /// those after each.
    pub hidden: Buffer<T>,
    /// Cell states, laid out as the hidden states, in f32.
    pub cell: Buffer<f32>,
    /// `[Σ T·B, H, 4]`: the gates after their functions.
    pub gates: Buffer<T::SavedGate>,
    /// For what blocks tell each other or, on the general path, the products of a step.
    pub(super) scratch: Scratch,
}

impl<T: Operand> States<T> {
    /// Buffers for the states of a list, zero before the first step.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn zeros(scope: &Scope, list: &WorkList) -> Result<Self> {
        let [states, gates] = lens(list.rows(), list.windows(), list.hidden());
        let (hidden, cell) = (Buffer::zeros(scope, states)?, Buffer::zeros(scope, states)?);
        let gates = Buffer::zeros(scope, gates)?;
        Ok(States { hidden, cell, gates, scratch: Scratch::empty(scope)? })
    }

    /// Ensures capacity for the states of a list; what was there may be lost.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn ensure_capacity(&mut self, list: &WorkList) -> Result<()> {
        self.reserve_hidden(list.rows(), list.windows(), list.hidden())?;
        self.reserve_cells_and_gates(list.rows(), list.windows(), list.hidden())
    }

    /// Ensures capacity for the hidden states of so many rows and windows.
    pub(crate) fn reserve_hidden(&mut self, rows: usize, windows: usize, hidden: usize) -> Result<()> {
        let [states, _] = lens(rows, windows, hidden);
        ensure_capacity(&mut self.hidden, states)
    }

    /// Ensures capacity for the cell states and gates of so many rows and windows.
    pub(crate) fn reserve_cells_and_gates(&mut self, rows: usize, windows: usize, hidden: usize) -> Result<()> {
        let [states, gates] = lens(rows, windows, hidden);
        ensure_capacity(&mut self.cell, states)?;
        ensure_capacity(&mut self.gates, gates)
    }

    /// Exchanges the buffers of cell states and gates with those of `other`.
    pub(crate) fn swap_cells_and_gates(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.cell, &mut other.cell);
        std::mem::swap(&mut self.gates, &mut other.gates);
    }

    /// Takes what a GPU needs between the launches of a list whose sequences have so many windows
    /// at most. Where sums `may_differ`, any of the ways to take them may be the fastest.
    pub(crate) fn reserve_scratch(&mut self, windows: &[usize], hidden: usize, may_differ: bool) -> Result<()> {
        let units = persistent_units::<T>(hidden);
        if units.is_none_or(|units| may_differ && !is_of_a_block(units)) {
            self.scratch.reserve::<f32>(product_len(windows.iter().copied().max().unwrap_or(0), hidden))?;
        }
        units.map_or(Ok(()), |units| self.scratch.reserve::<u32>(group::arrived_max(windows, units)))
    }

    /// Sets the states before the first step to zero.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says.
    ///
    /// # Panics
    /// If there is no room for the list.
    pub fn start_from_zero(&mut self, list: &WorkList) -> Result<()> {
        for place in list.places() {
            let (start, len) = (place.states(0) * list.hidden(), place.windows as usize * list.hidden());
            self.hidden.set_zero_at(start, len)?;
            self.cell.set_zero_at(start, len)?;
        }
        Ok(())
    }

    pub(super) fn assert_fit(&self, list: &WorkList) {
        let [states, gates] = lens(list.rows(), list.windows(), list.hidden());
        let lens = [self.hidden.len(), self.cell.len(), self.gates.len()];
        assert!(lens.iter().zip([states, states, gates]).all(|(&len, needed)| len >= needed), "states of the list");
        [self.hidden.scope(), self.cell.scope(), self.gates.scope()]
            .iter()
            .for_each(|scope| list.device().assert_beside(scope.device()));
    }
}

/// Numbers of hidden states, and of gates, of so many rows and windows.
fn lens(rows: usize, windows: usize, hidden: usize) -> [usize; 2] {
    [(rows + windows) * hidden, rows * GATES * hidden]
}

/// Numbers of elements of [`Gradients`], those of every output apart.
#[derive(Clone, Copy, Debug)]
struct GradientLens {
    /// Elements of hidden states, and of cell states.
    states: usize,
    gates: usize,
}

impl GradientLens {
    /// The lengths for so many rows and windows.
    fn new(rows: usize, windows: usize, hidden: usize) -> Self {
        GradientLens { states: windows * hidden, gates: rows * GATES * hidden }
    }
}

/// Gradients through the recurrence, sequence after sequence; behind it there may be room for more.
#[derive(Debug)]
pub struct Gradients<T: Operand> {
    /// `[Σ T·B, H]`: of the hidden state after each step, from above; none where only the last one
    /// is read.
    pub outputs: Option<Buffer<f32>>,
    /// `[Σ B, H]`: of the last hidden states; they become those of the first ones.
    pub hidden: Buffer<f32>,
    /// `[Σ B, H]`: of the last cell states; they become those of the first ones.
    pub cell: Buffer<f32>,
    /// `[Σ T·B, H, 4]`: of the gates before their functions, rounded as the products read them that
    /// follow.
    pub gates: Buffer<T>,
    /// For what blocks tell each other.
    pub(super) scratch: Scratch,
}

impl<T: Operand> Gradients<T> {
    /// Zeroed buffers for the gradients of a list of which only the last states are read.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn zeros(scope: &Scope, list: &WorkList) -> Result<Self> {
        let lens = GradientLens::new(list.rows(), list.windows(), list.hidden());
        let (hidden, cell) = (Buffer::zeros(scope, lens.states)?, Buffer::zeros(scope, lens.states)?);
        let gates = Buffer::zeros(scope, lens.gates)?;
        Ok(Gradients { outputs: None, hidden, cell, gates, scratch: Scratch::empty(scope)? })
    }

    /// Ensures capacity for the gradients of a list, those of every output apart; what
    /// was there may be lost.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn ensure_capacity(&mut self, list: &WorkList) -> Result<()> {
        self.reserve(list.rows(), list.windows(), list.hidden())
    }

    /// Ensures capacity for the gradients of so many rows and windows, those of every output apart.
    pub(crate) fn reserve(&mut self, rows: usize, windows: usize, hidden: usize) -> Result<()> {
        let lens = GradientLens::new(rows, windows, hidden);
        ensure_capacity(&mut self.hidden, lens.states)?;
        ensure_capacity(&mut self.cell, lens.states)?;
        ensure_capacity(&mut self.gates, lens.gates)
    }

    /// Takes what a GPU needs between the launches of a list whose sequences have so many windows
    /// at most.
    pub(crate) fn reserve_scratch(&mut self, windows: &[usize], hidden: usize) -> Result<()> {
        let units = persistent_units::<T>(hidden);
        units.map_or(Ok(()), |units| self.scratch.reserve::<u32>(group::arrived_max(windows, units)))
    }

    pub(super) fn assert_fit(&self, list: &WorkList) {
        let GradientLens { states, gates } = GradientLens::new(list.rows(), list.windows(), list.hidden());
        let lens = [self.hidden.len(), self.cell.len(), self.gates.len()];
        let (needed, steps) = ([states, states, gates], list.rows() * list.hidden());
        assert!(lens.iter().zip(needed).all(|(&len, needed)| len >= needed), "gradients of the list");
        assert!(self.outputs.as_ref().is_none_or(|outputs| outputs.len() >= steps), "gradients of every output");
        let outputs = self.outputs.as_ref().map(Buffer::scope);
        let scopes = [self.hidden.scope(), self.cell.scope(), self.gates.scope()].into_iter().chain(outputs);
        scopes.for_each(|scope| list.device().assert_beside(scope.device()));
    }
}

/// Length of one step's product for a sequence of `windows` windows.
pub(super) fn product_len(windows: usize, hidden: usize) -> usize {
    4 * windows * hidden
}
