//! Products and states of a step of a cell.

use crate::tape::Var;

/// Hidden state and, for an LSTM, cell state.
#[derive(Clone, Copy)]
pub(crate) struct State<'t> {
    pub(crate) hidden: Var<'t>,
    pub(crate) cell: Option<Var<'t>>,
}

/// Products of a step, [N, GH] each.
#[derive(Clone, Copy)]
pub(crate) struct GateProducts<'t> {
    pub(crate) hidden: usize,
    pub(crate) input: Var<'t>,
    pub(crate) recurrent: Var<'t>,
}

impl<'t> GateProducts<'t> {
    /// W_ih x + b_ih of a gate, [N, H].
    pub(crate) fn input(self, gate: usize) -> Var<'t> {
        self.input.slice(gate * self.hidden..(gate + 1) * self.hidden)
    }

    /// W_hh h + b_hh of a gate, [N, H].
    pub(crate) fn recurrent(self, gate: usize) -> Var<'t> {
        self.recurrent.slice(gate * self.hidden..(gate + 1) * self.hidden)
    }
}
