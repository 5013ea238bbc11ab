//! The cell of an LSTM, on slices.

pub(super) mod kernels;

use megabatch_nn::model::lstm::GATES;

use super::{Isa, PANEL, View, ViewMut, dispatch, portable};
#[cfg(target_arch = "x86_64")]
use megabatch_gpu_core::isa::InstructionSet;

use super::{avx2, avx512};

/// Arguments of the kernel `forward`: gates [4][rows][16] at their stride, cell [2 · rows][16]
/// (before, then after the step) and hidden_after [rows][16], none overlapping another.
pub(super) struct Forward {
    rows: usize,
    gates: *mut f32,
    gates_stride: usize,
    cell: *mut f32,
    hidden_after: *mut f32,
    /// True if it prefetches the same rows of the next step, which follow these.
    asks_ahead: bool,
}

/// Arguments of the kernel `forward_units`: those of `forward` for every panel of units: gates [4 ·
/// units][rows][16], cell [units][2 · rows][16] and hidden_after [units][rows][16] at their
/// strides, none overlapping another.
pub(super) struct ForwardUnits {
    units: usize,
    rows: usize,
    gates: *mut f32,
    gates_stride: usize,
    cell: *mut f32,
    cell_stride: usize,
    hidden_after: *mut f32,
    hidden_stride: usize,
}

/// Arguments of the kernel `activate`: gates [4][rows][16] at their stride, none overlapping
/// another.
pub(super) struct Activate {
    rows: usize,
    gates: *mut f32,
    gates_stride: usize,
}

/// Arguments of the kernel `cells`: gates [4][rows][16] at their stride and cell [2 · rows][16]
/// (before, then after the step), which does not overlap them.
pub(super) struct CellsArguments {
    rows: usize,
    gates: *const f32,
    gates_stride: usize,
    cell: *mut f32,
}

/// Arguments of the kernel `cell_backward`: gates, d_gates and, unless it is null, sums
/// [4][rows][16] at their strides, cell [2 · rows][16] (before, then after the step), d_hidden and
/// d_cell [rows][16], none that is written overlapping another, but for d_gates that are the gates
/// themselves. `hidden` is null or the states before the step, of which nothing is read: those of
/// the step before it lie in front of them, as do the gates' and cells', and are prefetched.
pub(super) struct CellBackwardArguments {
    rows: usize,
    gates: *const f32,
    gates_stride: usize,
    cell: *const f32,
    hidden: *const f32,
    d_hidden: *const f32,
    d_cell: *mut f32,
    d_gates: *mut f32,
    d_gates_stride: usize,
    sums: *mut f32,
    sums_stride: usize,
}

/// Rows that the cell prefetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefetch {
    Nothing,
    /// The rows of the step that is computed next.
    NextStep,
}

/// One step of sixteen units of `rows` windows: `gates` [rows, 4 · 16], before their functions, are
/// replaced by themselves after them; `cell` holds the state before the step in `rows` rows and
/// receives the one after it in the `rows` that follow; `hidden_after` [rows, 16] is written.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn forward(
    isa: Isa,
    rows: usize,
    gates: &mut ViewMut<'_>,
    cell: &mut ViewMut<'_>,
    hidden_after: &mut ViewMut<'_>,
    prefetch: Prefetch,
) {
    gates.1.check(gates.0.len(), GATES, rows);
    cell.1.check(cell.0.len(), 1, 2 * rows);
    hidden_after.1.check(hidden_after.0.len(), 1, rows);
    let arguments = Forward {
        rows,
        gates: gates.0[gates.1.start..].as_mut_ptr(),
        gates_stride: gates.1.stride,
        cell: cell.0[cell.1.start..].as_mut_ptr(),
        hidden_after: hidden_after.0[hidden_after.1.start..].as_mut_ptr(),
        asks_ahead: prefetch == Prefetch::NextStep,
    };
    assert!(gates.1.stride >= rows * PANEL, "gates overlap");
    dispatch!(isa, forward, &arguments);
}

/// [`forward`] of all `units` panels of units, whose gates are [units · 4] panels: to the same
/// bits, and faster for few rows.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn forward_units(
    isa: Isa,
    units: usize,
    rows: usize,
    gates: &mut ViewMut<'_>,
    cell: &mut ViewMut<'_>,
    hidden_after: &mut ViewMut<'_>,
) {
    gates.1.check(gates.0.len(), GATES * units, rows);
    cell.1.check(cell.0.len(), units, 2 * rows);
    hidden_after.1.check(hidden_after.0.len(), units, rows);
    assert!(gates.1.stride >= rows * PANEL && cell.1.stride >= 2 * rows * PANEL, "gates or states overlap");
    let arguments = ForwardUnits {
        units,
        rows,
        gates: gates.0[gates.1.start..].as_mut_ptr(),
        gates_stride: gates.1.stride,
        cell: cell.0[cell.1.start..].as_mut_ptr(),
        cell_stride: cell.1.stride,
        hidden_after: hidden_after.0[hidden_after.1.start..].as_mut_ptr(),
        hidden_stride: hidden_after.1.stride,
    };
    dispatch!(isa, forward_units, &arguments);
}

/// The first half of [`forward`]: `gates` [rows, 4 · 16], before their functions, are replaced by
/// themselves after them.
///
/// # Panics
/// If the slice is shorter than these sizes.
pub(crate) fn activate(isa: Isa, rows: usize, gates: &mut ViewMut<'_>) {
    gates.1.check(gates.0.len(), GATES, rows);
    assert!(gates.1.stride >= rows * PANEL, "gates overlap");
    let arguments = Activate { rows, gates: gates.0[gates.1.start..].as_mut_ptr(), gates_stride: gates.1.stride };
    dispatch!(isa, activate, &arguments);
}

/// Cell states of [`forward`], from `gates` [rows, 4 · 16] after their functions: `cell` holds the
/// state before the step in `rows` rows and receives the one after it in the `rows` that follow.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn cells(isa: Isa, rows: usize, gates: View<'_>, cell: &mut ViewMut<'_>) {
    gates.1.check(gates.0.len(), GATES, rows);
    cell.1.check(cell.0.len(), 1, 2 * rows);
    let arguments = CellsArguments {
        rows,
        gates: gates.0[gates.1.start..].as_ptr(),
        gates_stride: gates.1.stride,
        cell: cell.0[cell.1.start..].as_mut_ptr(),
    };
    dispatch!(isa, cells, &arguments);
}

/// Inputs of [`cell_backward`] for sixteen units: the gates [rows, 4 · 16] after their functions,
/// `None` where their gradients take their place; the cell state before and after the step in 2 ·
/// `rows` rows, the gradient of the hidden state after it [rows, 16]; to have the rows of the step
/// before prefetched, the hidden state before this one [rows, 16].
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) gates: Option<View<'a>>,
    pub(crate) cell: View<'a>,
    pub(crate) d_hidden: View<'a>,
    pub(crate) hidden: Option<View<'a>>,
}

/// Outputs of [`cell_backward`] for sixteen units.
pub(crate) struct CellGradients<'a> {
    /// From the gradient of the cell state after the step to that of the state before it: [rows,
    /// 16].
    pub(crate) d_cell: ViewMut<'a>,
    /// The gradients of the gates before their functions, which are written: [rows, 4 · 16].
    pub(crate) d_gates: ViewMut<'a>,
    /// Sums that they are also added to: [rows, 4 · 16].
    pub(crate) sums: Option<ViewMut<'a>>,
}

/// [`forward`] backwards.
///
/// # Panics
/// If a slice is shorter than the sizes say.
pub(crate) fn cell_backward(isa: Isa, rows: usize, step: Step<'_>, to: CellGradients<'_>) {
    let (Step { gates, cell, d_hidden, hidden }, CellGradients { d_cell, d_gates, sums }) = (step, to);
    if let Some(gates) = gates {
        gates.1.check(gates.0.len(), GATES, rows);
    }
    cell.1.check(cell.0.len(), 1, 2 * rows);
    d_hidden.1.check(d_hidden.0.len(), 1, rows);
    d_cell.1.check(d_cell.0.len(), 1, rows);
    d_gates.1.check(d_gates.0.len(), 4, rows);
    let (sums, sums_stride) = sums.map_or((std::ptr::null_mut(), 0), |sums| {
        sums.1.check(sums.0.len(), GATES, rows);
        (sums.0[sums.1.start..].as_mut_ptr(), sums.1.stride)
    });
    let to_gates = d_gates.0[d_gates.1.start..].as_mut_ptr();
    let (gates, gates_stride) = match gates {
        Some(View(gates, at)) => (gates[at.start..].as_ptr(), at.stride),
        None => (to_gates.cast_const(), d_gates.1.stride),
    };
    let arguments = CellBackwardArguments {
        rows,
        gates,
        gates_stride,
        cell: cell.0[cell.1.start..].as_ptr(),
        hidden: hidden.map_or(std::ptr::null(), |hidden| hidden.0[hidden.1.start..].as_ptr()),
        d_hidden: d_hidden.0[d_hidden.1.start..].as_ptr(),
        d_cell: d_cell.0[d_cell.1.start..].as_mut_ptr(),
        d_gates: to_gates,
        d_gates_stride: d_gates.1.stride,
        sums,
        sums_stride,
    };
    dispatch!(isa, cell_backward, &arguments);
}
