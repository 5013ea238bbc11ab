//! The cell of an LSTM for sixteen units of every window of a step, forward and backward.
//!
//! ```text
//! forward:   i, f, o = sigmoid, g = tanh;  c' = f·c + i·g;  h' = o·tanh(c')
//! backward:  dc' += dh'·o·(1 - tanh²c');   dc = dc'·f
//!            di = dc'·g·i·(1 - i);         df = dc'·c·f·(1 - f)
//!            dg = dc'·i·(1 - g²);          do = dh'·tanh(c')·o·(1 - o)
//! ```
//!
//! Departures:
//!
//! 1. Forward goes over the windows twice: gate, c' and tanh c' in one iteration are a chain of
//!    more than a hundred cycles, of which a CPU overlaps fewer than three.
//! 2. Backward computes tanh c' anew, which is cheaper than to keep and to load it.
//! 3. Forward of few windows goes over all units twice instead, for the same reason.
//! 4. Where products are too short to bring the next step's rows to the second-level cache, see
//!    [`prefetch`](crate::kernel::prefetch), the cell asks for them row by row.
//! 5. Backward sets what has vanished to zero, see [`flush`](crate::flush::flush).

use megabatch_nn::model::lstm::GATES;

use super::{Activate, CellBackwardArguments, CellsArguments, Forward, ForwardUnits};
use crate::flush::NEGLIGIBLE;
use crate::kernel::PANEL;
use crate::kernel::lanes::{Lanes, sigmoid, tanh};

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`Forward`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(in crate::kernel) unsafe fn forward<V: Lanes>(s: &Forward) {
    // SAFETY: the contract is the same.
    unsafe {
        match s.asks_ahead {
            false => forward_rows::<V, false>(s),
            true => forward_rows::<V, true>(s),
        }
    }
}

#[inline(always)]
unsafe fn forward_rows<V: Lanes, const AHEAD: bool>(s: &Forward) {
    // SAFETY: rows 0..rows of the four gates and of the states lie where the contract of `Forward`
    // says; those of the next step are not touched.
    unsafe {
        activate::<V>(&Activate { rows: s.rows, gates: s.gates, gates_stride: s.gates_stride });
        let o = s.gates.wrapping_add(3 * s.gates_stride);
        for row in 0..s.rows {
            let at = row * PANEL;
            let cell = cell_after::<V>(s.gates, s.gates_stride, s.cell, at);
            cell.store(s.cell.wrapping_add(at + s.rows * PANEL));
            V::load(o.wrapping_add(at)).mul(tanh(cell)).store(s.hidden_after.wrapping_add(at));
            if AHEAD {
                let next = at + s.rows * PANEL;
                (0..GATES).for_each(|gate| V::prefetch(s.gates.wrapping_add(gate * s.gates_stride + next)));
                V::prefetch(s.cell.wrapping_add(next + s.rows * PANEL));
                V::prefetch(s.hidden_after.wrapping_add(next));
            }
        }
    }
}

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`ForwardUnits`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(in crate::kernel) unsafe fn forward_units<V: Lanes>(s: &ForwardUnits) {
    // SAFETY: the gates and states of every panel of units lie where the contract of `ForwardUnits`
    // says.
    unsafe {
        let gates = |unit: usize| s.gates.wrapping_add(GATES * unit * s.gates_stride);
        for unit in 0..s.units {
            activate::<V>(&Activate { rows: s.rows, gates: gates(unit), gates_stride: s.gates_stride });
        }
        for unit in 0..s.units {
            let o = gates(unit).wrapping_add(3 * s.gates_stride);
            let (before, after) =
                (s.cell.wrapping_add(unit * s.cell_stride), s.hidden_after.wrapping_add(unit * s.hidden_stride));
            for row in 0..s.rows {
                let at = row * PANEL;
                let cell = cell_after::<V>(gates(unit), s.gates_stride, before, at);
                cell.store(before.wrapping_add(at + s.rows * PANEL));
                V::load(o.wrapping_add(at)).mul(tanh(cell)).store(after.wrapping_add(at));
            }
        }
    }
}

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`Activate`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(in crate::kernel) unsafe fn activate<V: Lanes>(s: &Activate) {
    // SAFETY: rows 0..rows of the four gates lie where the contract of `Activate` says.
    unsafe {
        let [i, f, g, o] = [0, 1, 2, 3].map(|gate| s.gates.wrapping_add(gate * s.gates_stride));
        for row in 0..s.rows {
            let at = row * PANEL;
            for gate in [i, f, o] {
                sigmoid(V::load(gate.wrapping_add(at))).store(gate.wrapping_add(at));
            }
            tanh(V::load(g.wrapping_add(at))).store(g.wrapping_add(at));
        }
    }
}

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`CellsArguments`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(in crate::kernel) unsafe fn cells<V: Lanes>(s: &CellsArguments) {
    // SAFETY: rows 0..rows of the gates and of the states lie where the contract of
    // `CellsArguments` says.
    unsafe {
        for row in 0..s.rows {
            let at = row * PANEL;
            let cell = cell_after::<V>(s.gates, s.gates_stride, s.cell, at);
            cell.store(s.cell.wrapping_add(at + s.rows * PANEL));
        }
    }
}

/// c' = f · c + i · g of the row `at` numbers behind the first.
#[inline(always)]
unsafe fn cell_after<V: Lanes>(gates: *const f32, stride: usize, before: *const f32, at: usize) -> V {
    // SAFETY: the caller's row is one of its gates and states; the caller has the instruction set
    // of V.
    unsafe {
        let gate = |gate: usize| V::load(gates.wrapping_add(gate * stride + at));
        gate(1).mul_add(V::load(before.wrapping_add(at)), gate(0).mul(gate(2)))
    }
}

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`CellBackwardArguments`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(in crate::kernel) unsafe fn cell_backward<V: Lanes>(s: &CellBackwardArguments) {
    // SAFETY: the contract is the same.
    unsafe {
        match (s.sums.is_null(), s.hidden.is_null()) {
            (true, true) => cell_backward_rows::<V, false, false>(s),
            (true, false) => cell_backward_rows::<V, false, true>(s),
            (false, true) => cell_backward_rows::<V, true, false>(s),
            (false, false) => cell_backward_rows::<V, true, true>(s),
        }
    }
}

#[inline(always)]
unsafe fn cell_backward_rows<V: Lanes, const SUMS: bool, const AHEAD: bool>(s: &CellBackwardArguments) {
    // SAFETY: rows 0..rows of the four gates, of their gradients, of the states and, with SUMS, of
    // the sums lie where the contract of `CellBackwardArguments` says; those of the step before are
    // not touched.
    unsafe {
        let one = V::splat(1.0);
        for row in 0..s.rows {
            let at = row * PANEL;
            let gate = |gate: usize| s.gates.wrapping_add(gate * s.gates_stride + at);
            let [i, f, g, o] = [V::load(gate(0)), V::load(gate(1)), V::load(gate(2)), V::load(gate(3))];
            let before = V::load(s.cell.wrapping_add(at));
            let tanh_c = tanh(V::load(s.cell.wrapping_add(at + s.rows * PANEL)));
            let d_h = flush(V::load(s.d_hidden.wrapping_add(at)));
            if AHEAD {
                let back = s.rows * PANEL;
                (0..GATES).for_each(|n| V::prefetch(gate(n).wrapping_sub(back)));
                V::prefetch(s.cell.wrapping_add(at).wrapping_sub(back));
                V::prefetch(s.hidden.wrapping_add(at).wrapping_sub(back));
            }
            let d_cell = s.d_cell.wrapping_add(at);
            let d_h_o = d_h.mul(o);
            let d_c = flush(tanh_c.mul(tanh_c).mul_sub_from(d_h_o, d_h_o).add(V::load(d_cell)));
            d_c.mul(f).store(d_cell);

            let d_gates = [
                d_c.mul(g).mul(i).mul(one.sub(i)),
                d_c.mul(before).mul(f).mul(one.sub(f)),
                d_c.mul(i).mul(g.mul_sub_from(g, one)),
                d_h.mul(tanh_c).mul(o).mul(one.sub(o)),
            ];
            for (gate, d) in d_gates.into_iter().enumerate() {
                let d = flush(d);
                d.store(s.d_gates.wrapping_add(gate * s.d_gates_stride + at));
                if SUMS {
                    let sum = s.sums.wrapping_add(gate * s.sums_stride + at);
                    V::load(sum).add(d).store(sum);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn flush<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic on values only; the caller has the instruction set of V.
    unsafe { x.zero_where_less(x.abs(), V::splat(NEGLIGIBLE)) }
}
