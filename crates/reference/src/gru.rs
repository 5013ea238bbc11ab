//! Cell of torch.nn.GRU.

use crate::cell::{GateProducts, State};

/// One step:
///
/// ```text
/// r = σ(W_ir x + b_ir + W_hr h + b_hr)
/// z = σ(W_iz x + b_iz + W_hz h + b_hz)
/// n = tanh(W_in x + b_in + r ⊙ (W_hn h + b_hn))
/// h' = (1 - z) ⊙ n + z ⊙ h
/// ```
pub(crate) fn step<'t>(products: GateProducts<'t>, before: State<'t>) -> State<'t> {
    let [r, z] = [0, 1].map(|gate| (products.input(gate) + products.recurrent(gate)).sigmoid());
    let n = (products.input(2) + r * products.recurrent(2)).tanh();
    State { hidden: n - z * n + z * before.hidden, cell: None }
}
