//! A recurrent cell for sixteen units of every window of a step, forward and backward: the loops
//! over windows and units around a cell's [`Equations`].
//!
//! Departures from one loop over the windows:
//!
//! 1. Forward goes over the windows twice: gate, state and its function in one iteration are a
//!    chain of more than a hundred cycles, of which a CPU overlaps fewer than three.
//! 2. Forward of few windows goes over all units twice instead, for the same reason.
//! 3. Where products are too short to bring the next step's rows to the second-level cache, see
//!    [`prefetch`](crate::kernel::prefetch), the cell asks for them row by row.
//! 4. Backward sets what has vanished to zero, see [`flush`](crate::flush::flush).

#![allow(unsafe_code, reason = "instructions of the CPU")]

use megabatch_nn::model::Cell;

use super::gru::Gru;
use super::lstm::Lstm;
use super::{Activate, CellBackwardArguments, CellsArguments, Forward, ForwardUnits};
use crate::flush::NEGLIGIBLE;
use crate::kernel::PANEL;
use crate::kernel::lanes::Lanes;

/// The pointwise equations of a cell, for sixteen units of one window.
///
/// # Safety
/// The caller of any function has the instruction set of V, and the pointers reach sixteen numbers
/// each that nothing else reads or writes meanwhile: of gates in every panel; of states before and,
/// but for `backward`, after the step; of `d_skip`. Cell states are not reached without
/// [`HAS_CELL_STATE`](Equations::HAS_CELL_STATE).
pub(super) trait Equations {
    /// Panels of its gates.
    const PANELS: usize;
    /// True if it has a cell state beside the hidden state.
    const HAS_CELL_STATE: bool;
    /// A number or row for each panel.
    type Panels<T>: IntoIterator<Item = T>;

    /// The functions of gates that depend on no other gate, in place.
    unsafe fn activate<V: Lanes>(gates: Gates);

    /// The functions of the others, in place, after [`activate`](Equations::activate).
    unsafe fn activate_dependent<V: Lanes>(gates: Gates);

    /// The functions of the others likewise, and the states after the step.
    unsafe fn advance<V: Lanes>(gates: Gates, states: States);

    /// The cell state after the step alone.
    unsafe fn advance_cell<V: Lanes>(gates: Gates, states: States);

    /// The gradients of the gates before their functions, from the gates after them and the
    /// gradient `d_hidden` of the hidden state after the step.
    ///
    /// With a cell state, `d_skip` is its gradient: on entry after the step, on return before it.
    /// Without one, `d_skip` is only written: the part of the gradient of the hidden state before
    /// the step that does not pass through a gate's product.
    unsafe fn backward<V: Lanes>(gates: Gates, states: States, d_hidden: V, d_skip: *mut f32) -> Self::Panels<V>;
}

/// Gates of one window: a panel lies `stride` numbers behind the one before it.
#[derive(Clone, Copy)]
pub(super) struct Gates {
    first: *mut f32,
    stride: usize,
}

impl Gates {
    /// # Safety
    /// As [`Equations`].
    #[inline(always)]
    pub(super) unsafe fn load<V: Lanes>(self, panel: usize) -> V {
        // SAFETY: the contract is the same.
        unsafe { V::load(self.first.wrapping_add(panel * self.stride)) }
    }

    /// # Safety
    /// As [`Equations`].
    #[inline(always)]
    pub(super) unsafe fn store<V: Lanes>(self, panel: usize, values: V) {
        // SAFETY: the contract is the same.
        unsafe { values.store(self.first.wrapping_add(panel * self.stride)) }
    }
}

/// States of one window before a step; those after it lie `step` numbers behind.
#[derive(Clone, Copy)]
pub(super) struct States {
    pub(super) hidden: *mut f32,
    pub(super) cell: *mut f32,
    pub(super) step: usize,
}

/// Runs `$body` with the equations of a cell as `$equations`.
macro_rules! with_equations {
    ($cell:expr, $equations:ident => $body:expr) => {
        match $cell {
            Cell::Lstm => {
                type $equations = Lstm;
                $body
            }
            Cell::Gru => {
                type $equations = Gru;
                $body
            }
        }
    };
}

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`Forward`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(in crate::kernel) unsafe fn forward<V: Lanes>(s: &Forward) {
    // SAFETY: the contract is the same.
    unsafe {
        with_equations!(s.kind, E => match s.asks_ahead {
            false => forward_rows::<E, V, false>(s),
            true => forward_rows::<E, V, true>(s),
        });
    }
}

#[inline(always)]
unsafe fn forward_rows<E: Equations, V: Lanes, const AHEAD: bool>(s: &Forward) {
    // SAFETY: rows 0..rows of the gates and of the states lie where the contract of `Forward` says;
    // those of the next step are not touched.
    unsafe {
        let step = s.rows * PANEL;
        for row in 0..s.rows {
            E::activate::<V>(Gates { first: s.gates.wrapping_add(row * PANEL), stride: s.gates_stride });
        }
        for row in 0..s.rows {
            let at = row * PANEL;
            let gates = Gates { first: s.gates.wrapping_add(at), stride: s.gates_stride };
            let states = States { hidden: s.hidden.wrapping_add(at), cell: s.cell.wrapping_add(at), step };
            E::advance::<V>(gates, states);
            if AHEAD {
                let next = at + step;
                (0..E::PANELS).for_each(|panel| V::prefetch(s.gates.wrapping_add(panel * s.gates_stride + next)));
                if E::HAS_CELL_STATE {
                    V::prefetch(s.cell.wrapping_add(next + step));
                }
                V::prefetch(s.hidden.wrapping_add(next + step));
            }
        }
    }
}

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`ForwardUnits`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(in crate::kernel) unsafe fn forward_units<V: Lanes>(s: &ForwardUnits) {
    // SAFETY: the contract is the same.
    unsafe { with_equations!(s.kind, E => forward_unit_rows::<E, V>(s)) }
}

#[inline(always)]
unsafe fn forward_unit_rows<E: Equations, V: Lanes>(s: &ForwardUnits) {
    // SAFETY: the gates and states of every panel of units lie where the contract of `ForwardUnits`
    // says.
    unsafe {
        let (step, stride) = (s.rows * PANEL, s.gates_stride);
        let gates = |unit: usize| s.gates.wrapping_add(E::PANELS * unit * stride);
        for unit in 0..s.units {
            for row in 0..s.rows {
                E::activate::<V>(Gates { first: gates(unit).wrapping_add(row * PANEL), stride });
            }
        }
        for unit in 0..s.units {
            let (hidden, cell) =
                (s.hidden.wrapping_add(unit * s.hidden_stride), s.cell.wrapping_add(unit * s.cell_stride));
            for row in 0..s.rows {
                let at = row * PANEL;
                let states = States { hidden: hidden.wrapping_add(at), cell: cell.wrapping_add(at), step };
                E::advance::<V>(Gates { first: gates(unit).wrapping_add(at), stride }, states);
            }
        }
    }
}

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`Activate`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(in crate::kernel) unsafe fn activate<V: Lanes>(s: &Activate) {
    // SAFETY: the contract is the same.
    unsafe { with_equations!(s.kind, E => activate_rows::<E, V>(s)) }
}

#[inline(always)]
unsafe fn activate_rows<E: Equations, V: Lanes>(s: &Activate) {
    // SAFETY: rows 0..rows of the gates lie where the contract of `Activate` says.
    unsafe {
        for row in 0..s.rows {
            E::activate::<V>(Gates { first: s.gates.wrapping_add(row * PANEL), stride: s.gates_stride });
        }
        for row in 0..s.rows {
            E::activate_dependent::<V>(Gates { first: s.gates.wrapping_add(row * PANEL), stride: s.gates_stride });
        }
    }
}

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`CellsArguments`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(in crate::kernel) unsafe fn cells<V: Lanes>(s: &CellsArguments) {
    // SAFETY: the contract is the same.
    unsafe { with_equations!(s.kind, E => cell_rows::<E, V>(s)) }
}

#[inline(always)]
unsafe fn cell_rows<E: Equations, V: Lanes>(s: &CellsArguments) {
    // SAFETY: rows 0..rows of the gates and of the states lie where the contract of
    // `CellsArguments` says.
    unsafe {
        for row in 0..s.rows {
            let at = row * PANEL;
            let gates = Gates { first: s.gates.wrapping_add(at).cast_mut(), stride: s.gates_stride };
            let cell = s.cell.wrapping_add(at);
            E::advance_cell::<V>(gates, States { hidden: std::ptr::null_mut(), cell, step: s.rows * PANEL });
        }
    }
}

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`CellBackwardArguments`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(in crate::kernel) unsafe fn cell_backward<V: Lanes>(s: &CellBackwardArguments) {
    // SAFETY: the contract is the same.
    unsafe {
        with_equations!(s.kind, E => match (s.sums.is_null(), s.asks_ahead) {
            (true, false) => cell_backward_rows::<E, V, false, false>(s),
            (true, true) => cell_backward_rows::<E, V, false, true>(s),
            (false, false) => cell_backward_rows::<E, V, true, false>(s),
            (false, true) => cell_backward_rows::<E, V, true, true>(s),
        });
    }
}

#[inline(always)]
unsafe fn cell_backward_rows<E: Equations, V: Lanes, const SUMS: bool, const AHEAD: bool>(s: &CellBackwardArguments) {
    // SAFETY: rows 0..rows of the gates, of their gradients, of the states and, with SUMS, of the
    // sums lie where the contract of `CellBackwardArguments` says; those of the step before are not
    // touched.
    unsafe {
        let step = s.rows * PANEL;
        for row in 0..s.rows {
            let at = row * PANEL;
            let gates = Gates { first: s.gates.wrapping_add(at).cast_mut(), stride: s.gates_stride };
            let states =
                States { hidden: s.hidden.wrapping_add(at).cast_mut(), cell: s.cell.wrapping_add(at).cast_mut(), step };
            if AHEAD {
                (0..E::PANELS).for_each(|panel| {
                    V::prefetch(gates.first.wrapping_add(panel * s.gates_stride).wrapping_sub(step));
                });
                if E::HAS_CELL_STATE {
                    V::prefetch(states.cell.wrapping_sub(step));
                }
                V::prefetch(states.hidden.wrapping_sub(step));
            }
            let d_hidden = flush(V::load(s.d_hidden.wrapping_add(at)));
            let d_gates = E::backward::<V>(gates, states, d_hidden, s.d_skip.wrapping_add(at));
            for (panel, d) in d_gates.into_iter().enumerate() {
                let d = flush(d);
                d.store(s.d_gates.wrapping_add(panel * s.d_gates_stride + at));
                if SUMS {
                    let sum = s.sums.wrapping_add(panel * s.sums_stride + at);
                    V::load(sum).add(d).store(sum);
                }
            }
        }
    }
}

/// Zero in place of what is negligible.
///
/// # Safety
/// The caller has the instruction set of V.
#[inline(always)]
pub(super) unsafe fn flush<V: Lanes>(x: V) -> V {
    // SAFETY: arithmetic on values only; the caller has the instruction set of V.
    unsafe { x.zero_where_less(x.abs(), V::splat(NEGLIGIBLE)) }
}
