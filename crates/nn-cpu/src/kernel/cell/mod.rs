//! Recurrent cells, on slices: the pointwise part of a step, forward and backward.
//!
//! A cell is a file with its [`GateLayout`] and its equations, such as [`lstm`]; everything else
//! computes with these two. Its equations begin after both products: a gate may scale h · W_hhᵀ of
//! another, as a GRU's reset gate does, but not h itself. Units that fill up the last panel are
//! zeros and stay so.

mod gru;
pub(super) mod kernels;
mod lstm;

use megabatch_gpu_core::isa::InstructionSet;
use megabatch_nn::model::Cell;

#[cfg(target_arch = "aarch64")]
use super::neon;
use super::{Isa, PANEL, View, ViewMut, dispatch, portable};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// Panels of a cell's gates for sixteen units: sums of products, then gates, then gradients.
///
/// W_ih, W_hh and the biases have H rows for each gate, in PyTorch's order. The panels of the
/// products of a gate's rows are listed here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GateLayout {
    /// A multiple of 4: 8-bit products take four panels at once.
    pub(crate) panels: usize,
    /// Panel of each gate's x · W_ihᵀ + b_ih.
    pub(crate) input: &'static [usize],
    /// Panel of each gate's h · W_hhᵀ + b_hh.
    pub(crate) recurrent: &'static [usize],
}

impl GateLayout {
    pub(crate) fn new(cell: Cell) -> Self {
        match cell {
            Cell::Lstm => lstm::GATES,
            Cell::Gru => gru::GATES,
        }
    }
}

/// Arguments of the kernel `forward`: gates [panels][rows][16] at their stride, hidden and, unless
/// the cell has none, cell [2 · rows][16] (before, then after the step), none overlapping another.
pub(super) struct Forward {
    kind: Cell,
    rows: usize,
    gates: *mut f32,
    gates_stride: usize,
    hidden: *mut f32,
    cell: *mut f32,
    /// True if it prefetches the same rows of the next step, which follow these.
    asks_ahead: bool,
}

/// Arguments of the kernel `forward_units`: those of `forward` for every panel of units, gates
/// [units · panels][rows][16], hidden and cell [units][2 · rows][16] at their strides.
pub(super) struct ForwardUnits {
    kind: Cell,
    units: usize,
    rows: usize,
    gates: *mut f32,
    gates_stride: usize,
    hidden: *mut f32,
    hidden_stride: usize,
    cell: *mut f32,
    cell_stride: usize,
}

/// Arguments of the kernel `activate`: gates [panels][rows][16] at their stride, none overlapping
/// another.
pub(super) struct Activate {
    kind: Cell,
    rows: usize,
    gates: *mut f32,
    gates_stride: usize,
}

/// Arguments of the kernel `cells`: gates [panels][rows][16] at their stride and cell [2 ·
/// rows][16] (before, then after the step), which does not overlap them.
pub(super) struct CellsArguments {
    kind: Cell,
    rows: usize,
    gates: *const f32,
    gates_stride: usize,
    cell: *mut f32,
}

/// Arguments of the kernel `cell_backward`: gates, d_gates and, unless it is null, sums
/// [panels][rows][16] at their strides, hidden and, unless the cell has none, cell [2 · rows][16]
/// (before, then after the step), d_hidden and d_skip [rows][16], none that is written overlapping
/// another, but for d_gates that are the gates themselves. Those of the step before lie in front of
/// gates and states, and are prefetched with `asks_ahead`.
pub(super) struct CellBackwardArguments {
    kind: Cell,
    rows: usize,
    gates: *const f32,
    gates_stride: usize,
    hidden: *const f32,
    cell: *const f32,
    d_hidden: *const f32,
    d_skip: *mut f32,
    d_gates: *mut f32,
    d_gates_stride: usize,
    sums: *mut f32,
    sums_stride: usize,
    asks_ahead: bool,
}

/// Rows that the cell prefetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefetch {
    Nothing,
    /// The rows of the step that is computed next.
    NextStep,
}

/// States of sixteen units: before a step in `rows` rows, and after it in the `rows` that follow.
pub(crate) struct StatesMut<'a> {
    pub(crate) hidden: ViewMut<'a>,
    /// Anything for a cell without a cell state.
    pub(crate) cell: ViewMut<'a>,
}

impl StatesMut<'_> {
    /// Start of the hidden and of the cell states; the latter is null for a cell without.
    ///
    /// # Panics
    /// If a slice is shorter than `units` panels of 2 · `rows` rows.
    fn pointers(&mut self, cell: Cell, units: usize, rows: usize) -> [*mut f32; 2] {
        let start = |ViewMut(values, at): &mut ViewMut<'_>| {
            at.check(values.len(), units, 2 * rows);
            values[at.start..].as_mut_ptr()
        };
        [start(&mut self.hidden), if cell.has_cell_state() { start(&mut self.cell) } else { std::ptr::null_mut() }]
    }
}

/// One step of sixteen units of `rows` windows: `gates` [rows, panels · 16], before their
/// functions, are replaced by themselves after them; `states` after the step are written.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn forward(
    isa: Isa,
    kind: Cell,
    rows: usize,
    gates: &mut ViewMut<'_>,
    mut states: StatesMut<'_>,
    prefetch: Prefetch,
) {
    gates.1.check(gates.0.len(), GateLayout::new(kind).panels, rows);
    let [hidden, cell] = states.pointers(kind, 1, rows);
    let arguments = Forward {
        kind,
        rows,
        gates: gates.0[gates.1.start..].as_mut_ptr(),
        gates_stride: gates.1.stride,
        hidden,
        cell,
        asks_ahead: prefetch == Prefetch::NextStep,
    };
    assert!(gates.1.stride >= rows * PANEL, "gates overlap");
    dispatch!(isa, forward, &arguments);
}

/// [`forward`] of all `units` panels of units, whose gates follow one another: to the same bits,
/// and faster for few rows.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn forward_units(
    isa: Isa,
    kind: Cell,
    units: usize,
    rows: usize,
    gates: &mut ViewMut<'_>,
    mut states: StatesMut<'_>,
) {
    gates.1.check(gates.0.len(), GateLayout::new(kind).panels * units, rows);
    let [hidden, cell] = states.pointers(kind, units, rows);
    let (hidden_stride, cell_stride) = (states.hidden.1.stride, states.cell.1.stride);
    let is_apart = |stride: usize| stride >= 2 * rows * PANEL;
    assert!(gates.1.stride >= rows * PANEL, "gates overlap");
    assert!(is_apart(hidden_stride) && (cell.is_null() || is_apart(cell_stride)), "states overlap");
    let arguments = ForwardUnits {
        kind,
        units,
        rows,
        gates: gates.0[gates.1.start..].as_mut_ptr(),
        gates_stride: gates.1.stride,
        hidden,
        hidden_stride,
        cell,
        cell_stride,
    };
    dispatch!(isa, forward_units, &arguments);
}

/// The gates of [`forward`] alone: `gates` [rows, panels · 16], before their functions, are
/// replaced by themselves after them.
///
/// # Panics
/// If the slice is shorter than these sizes.
pub(crate) fn activate(isa: Isa, kind: Cell, rows: usize, gates: &mut ViewMut<'_>) {
    gates.1.check(gates.0.len(), GateLayout::new(kind).panels, rows);
    assert!(gates.1.stride >= rows * PANEL, "gates overlap");
    let (first, gates_stride) = (gates.0[gates.1.start..].as_mut_ptr(), gates.1.stride);
    dispatch!(isa, activate, &Activate { kind, rows, gates: first, gates_stride });
}

/// Cell states of [`forward`], from `gates` [rows, panels · 16] after their functions: `cell` holds
/// the state before the step in `rows` rows and receives the one after it in the `rows` that
/// follow.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn cells(isa: Isa, kind: Cell, rows: usize, gates: View<'_>, cell: &mut ViewMut<'_>) {
    gates.1.check(gates.0.len(), GateLayout::new(kind).panels, rows);
    cell.1.check(cell.0.len(), 1, 2 * rows);
    let arguments = CellsArguments {
        kind,
        rows,
        gates: gates.0[gates.1.start..].as_ptr(),
        gates_stride: gates.1.stride,
        cell: cell.0[cell.1.start..].as_mut_ptr(),
    };
    dispatch!(isa, cells, &arguments);
}

/// Inputs of [`cell_backward`] for sixteen units.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    /// Gates [rows, panels · 16] after their functions; `None` where their gradients take their
    /// place.
    pub(crate) gates: Option<View<'a>>,
    /// Hidden states before and after the step in 2 · `rows` rows.
    pub(crate) hidden: View<'a>,
    /// Cell states likewise; anything for a cell without.
    pub(crate) cell: View<'a>,
    /// Gradient of the hidden state after the step [rows, 16].
    pub(crate) d_hidden: View<'a>,
    /// Prefetch of the rows of the step before.
    pub(crate) prefetch: Prefetch,
}

/// Outputs of [`cell_backward`] for sixteen units.
pub(crate) struct CellGradients<'a> {
    /// Gradient of a state that does not pass the gates, [rows, 16]: from that of the cell state
    /// after the step to that of the state before it. A cell without a cell state writes here what
    /// its hidden state before the step receives beside the gates' part.
    pub(crate) d_skip: ViewMut<'a>,
    /// The gradients of the gates before their functions, which are written: [rows, panels · 16].
    pub(crate) d_gates: ViewMut<'a>,
    /// Sums that they are also added to: [rows, panels · 16].
    pub(crate) sums: Option<ViewMut<'a>>,
}

/// [`forward`] backwards.
///
/// # Panics
/// If a slice is shorter than the sizes say.
pub(crate) fn cell_backward(isa: Isa, kind: Cell, rows: usize, step: Step<'_>, to: CellGradients<'_>) {
    let (Step { gates, hidden, cell, d_hidden, prefetch }, CellGradients { d_skip, d_gates, sums }) = (step, to);
    let panels = GateLayout::new(kind).panels;
    if let Some(gates) = gates {
        gates.1.check(gates.0.len(), panels, rows);
    }
    let states = |View(values, at): View<'_>| {
        at.check(values.len(), 1, 2 * rows);
        values[at.start..].as_ptr()
    };
    d_hidden.1.check(d_hidden.0.len(), 1, rows);
    d_skip.1.check(d_skip.0.len(), 1, rows);
    d_gates.1.check(d_gates.0.len(), panels, rows);
    let (sums, sums_stride) = sums.map_or((std::ptr::null_mut(), 0), |sums| {
        sums.1.check(sums.0.len(), panels, rows);
        (sums.0[sums.1.start..].as_mut_ptr(), sums.1.stride)
    });
    let to_gates = d_gates.0[d_gates.1.start..].as_mut_ptr();
    let (gates, gates_stride) = match gates {
        Some(View(gates, at)) => (gates[at.start..].as_ptr(), at.stride),
        None => (to_gates.cast_const(), d_gates.1.stride),
    };
    let arguments = CellBackwardArguments {
        kind,
        rows,
        gates,
        gates_stride,
        hidden: states(hidden),
        cell: if kind.has_cell_state() { states(cell) } else { std::ptr::null() },
        d_hidden: d_hidden.0[d_hidden.1.start..].as_ptr(),
        d_skip: d_skip.0[d_skip.1.start..].as_mut_ptr(),
        d_gates: to_gates,
        d_gates_stride: d_gates.1.stride,
        sums,
        sums_stride,
        asks_ahead: prefetch == Prefetch::NextStep,
    };
    dispatch!(isa, cell_backward, &arguments);
}
