//! Cell of an LSTM.
//!
//! ```text
//! forward:   i, f, o = sigmoid, g = tanh;  c' = f·c + i·g;  h' = o·tanh(c')
//! backward:  dc' += dh'·o·(1 - tanh²c');   dc = dc'·f
//!            di = dc'·g·i·(1 - i);         df = dc'·c·f·(1 - f)
//!            dg = dc'·i·(1 - g²);          do = dh'·tanh(c')·o·(1 - o)
//! ```
//!
//! Backward computes tanh c' anew, which is cheaper than to keep and to load it.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use super::GateLayout;
use super::kernels::{Equations, Gates, States, flush};
use crate::kernel::lanes::{Lanes, sigmoid, tanh};

/// Each gate is one sum of both products.
pub(super) const GATES: GateLayout = GateLayout { panels: 4, input: &[I, F, G, O], recurrent: &[I, F, G, O] };

const I: usize = 0;
const F: usize = 1;
const G: usize = 2;
const O: usize = 3;

pub(super) struct Lstm;

impl Equations for Lstm {
    const PANELS: usize = GATES.panels;
    const HAS_CELL_STATE: bool = true;
    type Panels<T> = [T; GATES.panels];

    #[inline(always)]
    unsafe fn activate<V: Lanes>(gates: Gates) {
        // SAFETY: the contract is the same.
        unsafe {
            for gate in [I, F, O] {
                gates.store(gate, sigmoid(gates.load::<V>(gate)));
            }
            gates.store(G, tanh(gates.load::<V>(G)));
        }
    }

    #[inline(always)]
    unsafe fn activate_dependent<V: Lanes>(_: Gates) {}

    #[inline(always)]
    unsafe fn advance<V: Lanes>(gates: Gates, states: States) {
        // SAFETY: the contract is the same.
        unsafe {
            let cell = cell_after::<V>(gates, states);
            cell.store(states.cell.wrapping_add(states.step));
            gates.load::<V>(O).mul(tanh(cell)).store(states.hidden.wrapping_add(states.step));
        }
    }

    #[inline(always)]
    unsafe fn advance_cell<V: Lanes>(gates: Gates, states: States) {
        // SAFETY: the contract is the same.
        unsafe { cell_after::<V>(gates, states).store(states.cell.wrapping_add(states.step)) }
    }

    #[inline(always)]
    unsafe fn backward<V: Lanes>(gates: Gates, states: States, d_h: V, d_skip: *mut f32) -> [V; GATES.panels] {
        // SAFETY: the contract is the same.
        unsafe {
            let one = V::splat(1.0);
            let [i, f, g, o] = [gates.load::<V>(I), gates.load(F), gates.load(G), gates.load(O)];
            let before = V::load(states.cell);
            let tanh_c = tanh(V::load(states.cell.wrapping_add(states.step)));
            let d_h_o = d_h.mul(o);
            let d_c = flush(tanh_c.mul(tanh_c).mul_sub_from(d_h_o, d_h_o).add(V::load(d_skip)));
            d_c.mul(f).store(d_skip);
            [
                d_c.mul(g).mul(i).mul(one.sub(i)),
                d_c.mul(before).mul(f).mul(one.sub(f)),
                d_c.mul(i).mul(g.mul_sub_from(g, one)),
                d_h.mul(tanh_c).mul(o).mul(one.sub(o)),
            ]
        }
    }
}

/// c' = f · c + i · g.
///
/// # Safety
/// As [`Equations::advance`].
#[inline(always)]
unsafe fn cell_after<V: Lanes>(gates: Gates, states: States) -> V {
    // SAFETY: the contract is the same.
    unsafe { gates.load::<V>(F).mul_add(V::load(states.cell), gates.load::<V>(I).mul(gates.load(G))) }
}
