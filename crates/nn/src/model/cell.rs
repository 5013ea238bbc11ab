//! Recurrent cells, as torch.nn has them.

use serde::{Deserialize, Serialize};

/// Cell of the recurrent layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// torch.nn.LSTM, with a hidden and a cell state.
    #[default]
    Lstm,
    /// torch.nn.GRU, with a hidden state alone.
    Gru,
}

impl Cell {
    /// Its name, with which the names of its parameters begin.
    pub const fn name(self) -> &'static str {
        match self {
            Cell::Lstm => "lstm",
            Cell::Gru => "gru",
        }
    }

    /// Number of gates: a layer's weights and biases have H rows for each, in PyTorch's order.
    pub const fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
        }
    }

    /// True if a layer has a cell state beside its hidden state.
    pub const fn has_cell_state(self) -> bool {
        match self {
            Cell::Lstm => true,
            Cell::Gru => false,
        }
    }

    /// Number of states of a layer, H numbers each.
    pub const fn states(self) -> usize {
        if self.has_cell_state() { 2 } else { 1 }
    }
}
