//! Cell of a GRU, as torch.nn.GRU has it.
//!
//! ```text
//! forward:   r, z = sigmoid;  n = tanh(x_n + r·h_n);  h' = n + z·(h - n)
//!            with x_n = W_in·x + b_in and h_n = W_hn·h + b_hn, which are two panels
//! backward:  dx_n = dh'·(1 - z)·(1 - n²);   dh_n = dx_n·r
//!            dr = dx_n·h_n·r·(1 - r);       dz = dh'·(h - n)·z·(1 - z)
//!            dh = dh'·z, beside what comes through the gates
//! ```
//!
//! n takes the place of x_n. W_hh is zero in the panel of x_n and W_ih in that of h_n: a step costs
//! the products of an LSTM's.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use super::GateLayout;
use super::kernels::{Equations, Gates, States, flush};
use crate::kernel::lanes::{Lanes, sigmoid, tanh};

/// The products of n are apart: r multiplies one of them.
pub(super) const GATES: GateLayout = GateLayout { panels: 4, input: &[R, Z, N], recurrent: &[R, Z, H_N] };

const R: usize = 0;
const Z: usize = 1;
const N: usize = 2;
const H_N: usize = 3;

pub(super) struct Gru;

impl Equations for Gru {
    const PANELS: usize = GATES.panels;
    const HAS_CELL_STATE: bool = false;
    type Panels<T> = [T; GATES.panels];

    #[inline(always)]
    unsafe fn activate<V: Lanes>(gates: Gates) {
        // SAFETY: the contract is the same.
        unsafe {
            for gate in [R, Z] {
                gates.store(gate, sigmoid(gates.load::<V>(gate)));
            }
        }
    }

    #[inline(always)]
    unsafe fn activate_dependent<V: Lanes>(gates: Gates) {
        // SAFETY: the contract is the same.
        unsafe { gates.store(N, tanh(gates.load::<V>(R).mul_add(gates.load(H_N), gates.load(N)))) }
    }

    #[inline(always)]
    unsafe fn advance<V: Lanes>(gates: Gates, states: States) {
        // SAFETY: the contract is the same.
        unsafe {
            Self::activate_dependent::<V>(gates);
            let (z, n) = (gates.load::<V>(Z), gates.load(N));
            z.mul_add(V::load(states.hidden).sub(n), n).store(states.hidden.wrapping_add(states.step));
        }
    }

    #[inline(always)]
    unsafe fn advance_cell<V: Lanes>(_: Gates, _: States) {}

    #[inline(always)]
    unsafe fn backward<V: Lanes>(gates: Gates, states: States, d_h: V, d_skip: *mut f32) -> [V; GATES.panels] {
        // SAFETY: the contract is the same.
        unsafe {
            let one = V::splat(1.0);
            let [r, z, n, h_n] = [gates.load::<V>(R), gates.load(Z), gates.load(N), gates.load(H_N)];
            let before = V::load(states.hidden);
            flush(d_h.mul(z)).store(d_skip);
            let d_n = d_h.mul(one.sub(z)).mul(n.mul_sub_from(n, one));
            [d_n.mul(h_n).mul(r).mul(one.sub(r)), d_h.mul(before.sub(n)).mul(z).mul(one.sub(z)), d_n, d_n.mul(r)]
        }
    }
}
