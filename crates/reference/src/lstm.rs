//! Cell of torch.nn.LSTM.

use crate::cell::{GateProducts, State};

/// One step:
///
/// ```text
/// i = σ(W_ii x + b_ii + W_hi h + b_hi)      c' = f ⊙ c + i ⊙ g
/// f = σ(W_if x + b_if + W_hf h + b_hf)      h' = o ⊙ tanh(c')
/// g = tanh(W_ig x + b_ig + W_hg h + b_hg)
/// o = σ(W_io x + b_io + W_ho h + b_ho)
/// ```
pub(crate) fn step<'t>(products: GateProducts<'t>, before: State<'t>) -> State<'t> {
    let gate = |k: usize| products.input(k) + products.recurrent(k);
    let (i, f, g, o) = (gate(0).sigmoid(), gate(1).sigmoid(), gate(2).tanh(), gate(3).sigmoid());
    let cell = f * before.cell.expect("an LSTM has a cell state") + i * g;
    State { hidden: o * cell.tanh(), cell: Some(cell) }
}
