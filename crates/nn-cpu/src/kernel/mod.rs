//! Arithmetic of the CPU engine: products and cells on panel-major matrices, for several
//! instruction sets.
//!
//! A *panel* is sixteen columns of a matrix, row after row: `[panel][row][16]`, panels a stride
//! apart. Gates, states, weights and gradients all lie so; one layout serves as the operand that is
//! broadcast, as the one that is loaded and as the result of every product, and none is ever
//! repacked.
//!
//! This folder is the crate's second place with unsafe code, after `matmul.rs`. The functions of
//! this file and of `cell` are safe: they check that the slices hold what the sizes say and pick
//! the instruction set; the kernels rely on that.

#![allow(
    unsafe_code,
    reason = "SIMD kernels take raw pointers; the safe functions in front of them check the bounds first"
)]

pub(crate) mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod bf16;
mod cell;
mod dropout;
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod prefetch;
mod product;
pub(crate) mod quantized;

use std::ops::Range;

pub(crate) use cell::{
    CellGradients, GateLayout, Prefetch, StatesMut, Step, activate, cell_backward, cells, forward, forward_units,
};
pub(crate) use megabatch_gpu_core::isa::Isa;
pub(crate) use prefetch::{PanelRows, PrefetchRows};

use bf16::{Bf16Isa, Operand};
use megabatch_gpu_core::isa::InstructionSet;
use megabatch_nn::model::Mask;

/// Columns of a panel.
pub(crate) const PANEL: usize = 16;

/// Start of a panel-major matrix in its slice, and the distance of its panels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PanelStride {
    pub(crate) start: usize,
    pub(crate) stride: usize,
}

impl PanelStride {
    /// The same matrix from row `row` on.
    pub(crate) fn row(self, row: usize) -> PanelStride {
        PanelStride { start: self.start + row * PANEL, ..self }
    }

    /// Matrix from panel `panel` on.
    pub(crate) fn panel(self, panel: usize) -> PanelStride {
        PanelStride { start: self.start + panel * self.stride, ..self }
    }

    /// Panics unless `len` numbers hold `panels` panels of `rows` rows.
    fn check(self, len: usize, panels: usize, rows: usize) {
        let end = panels.checked_sub(1).map(|last| self.start + last * self.stride + rows * PANEL);
        assert!(end.is_none_or(|end| end <= len), "{panels} panels of {rows} rows at {self:?} in {len} numbers");
    }
}

/// A panel-major matrix to read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a>(pub(crate) &'a [f32], pub(crate) PanelStride);

impl View<'_> {
    /// Matrix from panel `panel` on.
    pub(crate) fn panel(self, panel: usize) -> Self {
        View(self.0, self.1.panel(panel))
    }
}

/// A panel-major matrix to write.
pub(crate) struct ViewMut<'a>(pub(crate) &'a mut [f32], pub(crate) PanelStride);

impl ViewMut<'_> {
    /// Matrix from panel `panel` on.
    pub(crate) fn panel(&mut self, panel: usize) -> ViewMut<'_> {
        ViewMut(&mut *self.0, self.1.panel(panel))
    }
}

/// Initial value of the sums of a product.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    /// Zero.
    Zero,
    /// This row [panels · 16], for every row.
    Row(&'a [f32]),
    /// These rows [rows, panels · 16].
    Rows(View<'a>),
    /// Current value of the result.
    Result,
}

impl Start<'_> {
    /// The same from a panel and a row on.
    fn part(self, panel: usize, row: usize) -> Self {
        match self {
            Start::Row(row) => Start::Row(&row[panel * PANEL..]),
            Start::Rows(View(values, place)) => Start::Rows(View(values, place.panel(panel).row(row))),
            Start::Zero | Start::Result => self,
        }
    }

    /// Start of the first panel's first row, null for the result itself, and the strides of panels
    /// and rows.
    ///
    /// # Panics
    /// If a slice is shorter than so many panels and rows.
    fn steps(self, panels: usize, rows: usize) -> (*const f32, usize, usize) {
        match self {
            Start::Zero => (ZERO.as_ptr(), 0, 0),
            Start::Result => (std::ptr::null(), 0, 0),
            Start::Row(row) => (row[..panels * PANEL].as_ptr(), PANEL, 0),
            Start::Rows(View(values, place)) => {
                place.check(values.len(), panels, rows);
                (values[place.start..].as_ptr(), place.stride, PANEL)
            }
        }
    }
}

/// Order in which a product reads the panels of b.
///
/// Steps that read the same panels, more than a cache holds, take them from either end in turn:
/// what was read last is still there and read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PanelOrder {
    Ascending,
    Descending,
}

impl PanelOrder {
    /// The order at step `t`: ascending and descending in turn, so that the panels read last, which
    /// are still cached, are read first.
    pub(crate) fn for_step(t: usize) -> Self {
        if t.is_multiple_of(2) { PanelOrder::Ascending } else { PanelOrder::Descending }
    }

    /// 0..count in its order.
    #[inline(always)]
    pub(crate) fn over(self, count: usize) -> impl Iterator<Item = usize> {
        (0..count).map(move |i| if self == PanelOrder::Ascending { i } else { count - 1 - i })
    }
}

/// Arguments of the kernel `product`: a [rows, depth], b [panels][depth][16] and c
/// [panels][rows][16] at their strides, and `start` [16], every `start_stride` numbers for each
/// panel and every `start_row` for each row, or null to start from c. c overlaps none of the
/// others.
#[derive(Clone, Copy)]
struct ProductArguments {
    rows: usize,
    depth: usize,
    panels: usize,
    start: *const f32,
    start_stride: usize,
    start_row: usize,
    a: *const f32,
    a_stride: usize,
    b: *const f32,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    order: PanelOrder,
    /// Prefetches of the product.
    prefetch: PrefetchRows,
}

/// Arguments of the kernel `outer`: rows in some places, and c [panels][columns][16] at its stride,
/// which overlaps none of them.
#[derive(Clone, Copy)]
struct Outer<'a> {
    columns: usize,
    panels: usize,
    rows: &'a [OuterRows],
    c: *mut f32,
    c_stride: usize,
    /// Prefetches of the product.
    prefetch: &'a [PanelRows],
}

/// Rows of the kernel `outer` in one place: a [rows, columns] and d [panels][rows][16] at their
/// strides.
#[derive(Clone, Copy)]
struct OuterRows {
    rows: usize,
    a: *const f32,
    a_stride: usize,
    d: *const f32,
    d_stride: usize,
}

/// Arguments of the kernel `add`: c and d [panels][rows][16] at their strides, which do not
/// overlap.
#[derive(Clone, Copy)]
struct AddedRows {
    rows: usize,
    panels: usize,
    d: *const f32,
    d_stride: usize,
    c: *mut f32,
    c_stride: usize,
}

/// Arguments of the kernel `draw`, for the units from `first_unit` on: `to` [steps][windows][16], a
/// window an end.
struct Draw<'a> {
    mask: Mask,
    scale: f32,
    first_unit: usize,
    steps: Range<usize>,
    ends: &'a [usize],
    to: &'a mut [f32],
}

/// Compiles the kernels for one implementation of `Lanes`, with the instructions that it needs.
macro_rules! entry_points {
    ($lanes:ty $(, $features:literal)?) => {
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], product => product(&super::ProductArguments));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], product => outer(&super::Outer<'_>));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], product => add(&super::AddedRows));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], cell::kernels => forward(&super::cell::Forward));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], cell::kernels => forward_units(&super::cell::ForwardUnits));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], cell::kernels => activate(&super::cell::Activate));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], cell::kernels => cells(&super::cell::CellsArguments));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], cell::kernels => cell_backward(&super::cell::CellBackwardArguments));

        /// # Safety
        /// The CPU has the instruction set of the lanes; nothing else is asked for.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn draw(d: &mut super::Draw<'_>) {
            super::dropout::draw(d);
        }
    };
}
use entry_points;

/// Calls a kernel of the instruction set that `$isa` proves.
macro_rules! dispatch {
    ($isa:expr, $kernel:ident, $arguments:expr) => {
        // SAFETY: `Isa` proves that the CPU has the instruction set; the function around this
        // checked that every pointer reaches what the sizes say, and its borrows are exclusive
        // where the kernel writes.
        unsafe {
            match $isa.instruction_set() {
                InstructionSet::Portable => portable::$kernel($arguments),
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 => avx2::$kernel($arguments),
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512 => avx512::$kernel($arguments),
                #[cfg(target_arch = "aarch64")]
                InstructionSet::Neon => neon::$kernel($arguments),
            }
        }
    };
}

use dispatch;

/// Zeros for products that start from zero.
static ZERO: [f32; PANEL] = [0.0; PANEL];

/// `start` [rows, panels · 16] + `a` [rows, depth] · `b` [panels][depth][16].
#[derive(Clone, Copy)]
pub(crate) struct PanelProduct<'a> {
    pub(crate) rows: usize,
    pub(crate) depth: usize,
    pub(crate) panels: usize,
    pub(crate) start: Start<'a>,
    pub(crate) a: View<'a>,
    pub(crate) b: &'a [f32],
}

impl PanelProduct<'_> {
    /// Some panels of some rows of the product, in single precision.
    pub(crate) fn part(self, panels: &Range<usize>, rows: &Range<usize>) -> Self {
        PanelProduct {
            rows: rows.len(),
            panels: panels.len(),
            start: self.start.part(panels.start, rows.start),
            a: View(self.a.0, self.a.1.row(rows.start)),
            b: &self.b[panels.start * self.depth * PANEL..],
            ..self
        }
    }

    /// Arguments of a kernel that writes the product to `to` [rows, panels · 16]: it sums `summed`
    /// words of a row of a, and a panel of b has `b_rows` rows.
    ///
    /// # Panics
    /// If a slice is shorter than the sizes, or the depth is 0.
    fn arguments(&self, summed: usize, b_rows: usize, to: &mut ViewMut<'_>) -> ProductArguments {
        let PanelProduct { rows, depth, panels, start, a, b } = *self;
        assert!(depth > 0, "a product over nothing");
        a.1.check(a.0.len(), summed.div_ceil(PANEL), rows);
        let b_place = PanelStride { start: 0, stride: b_rows * PANEL };
        b_place.check(b.len(), panels, b_rows);
        to.1.check(to.0.len(), panels, rows);
        let (start, start_stride, start_row) = start.steps(panels, rows);
        ProductArguments {
            rows,
            depth: summed,
            panels,
            start,
            start_stride,
            start_row,
            a: a.0[a.1.start..].as_ptr(),
            a_stride: a.1.stride,
            b: b.as_ptr(),
            b_stride: b_place.stride,
            c: to.0[to.1.start..].as_mut_ptr(),
            c_stride: to.1.stride,
            order: PanelOrder::Ascending,
            prefetch: PrefetchRows::default(),
        }
    }
}

/// Writes a product to `to` [rows, panels · 16].
///
/// # Panics
/// If a slice is shorter than the sizes, or the depth is 0.
pub(crate) fn product(isa: Isa, product: PanelProduct<'_>, to: &mut ViewMut<'_>) {
    product_with(isa, product, to, PanelOrder::Ascending, PrefetchRows::default());
}

/// [`product`], which goes over the panels as `order` says and has the rows of `prefetch` brought
/// to the second-level cache meanwhile.
///
/// # Panics
/// As `product` does.
pub(crate) fn product_with(
    isa: Isa,
    product: PanelProduct<'_>,
    to: &mut ViewMut<'_>,
    order: PanelOrder,
    prefetch: PrefetchRows,
) {
    let arguments = ProductArguments { order, prefetch, ..product.arguments(product.depth, product.depth, to) };
    dispatch!(isa, product, &arguments);
}

/// Rows of both factors of [`outer_of`] that lie in one place: `a` [rows, columns] and `d` [rows,
/// panels · 16].
#[derive(Clone, Copy)]
pub(crate) struct FactorRows<'a> {
    pub(crate) rows: usize,
    pub(crate) a: View<'a>,
    pub(crate) d: View<'a>,
}

impl FactorRows<'_> {
    /// # Panics
    /// If a slice is shorter than these sizes.
    fn arguments(&self, columns: usize, panels: usize) -> OuterRows {
        let FactorRows { rows, a, d } = *self;
        a.1.check(a.0.len(), columns.div_ceil(PANEL), rows);
        d.1.check(d.0.len(), panels, rows);
        let (a_at, d_at) = (&a.0[a.1.start..], &d.0[d.1.start..]);
        OuterRows { rows, a: a_at.as_ptr(), a_stride: a.1.stride, d: d_at.as_ptr(), d_stride: d.1.stride }
    }
}

/// `sums` [panels][columns][16] += `a` [rows, columns]ᵀ · `d` [rows, panels · 16].
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn outer(isa: Isa, rows: usize, columns: usize, panels: usize, a: View<'_>, d: View<'_>, sums: &mut [f32]) {
    add_outer(isa, columns, panels, &[FactorRows { rows, a, d }.arguments(columns, panels)], &[], sums);
}

/// [`outer`] of rows in several places, one place after the other: to the same bits as if they
/// followed one another. It has the rows of `prefetch` brought to the second-level cache meanwhile.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn outer_of(
    isa: Isa,
    columns: usize,
    panels: usize,
    rows: &[FactorRows<'_>],
    prefetch: &[PanelRows],
    sums: &mut [f32],
) {
    let rows: Vec<_> = rows.iter().map(|rows| rows.arguments(columns, panels)).collect();
    add_outer(isa, columns, panels, &rows, prefetch, sums);
}

/// # Panics
/// If `sums` is shorter than these sizes.
fn add_outer(isa: Isa, columns: usize, panels: usize, rows: &[OuterRows], prefetch: &[PanelRows], sums: &mut [f32]) {
    let c_place = PanelStride { start: 0, stride: columns * PANEL };
    c_place.check(sums.len(), panels, columns);
    let arguments = Outer { columns, panels, rows, c: sums.as_mut_ptr(), c_stride: c_place.stride, prefetch };
    dispatch!(isa, outer, &arguments);
}

/// Adds `rows` rows of `panels` panels of `terms` to those of `sums`.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn add_rows(isa: Isa, rows: usize, panels: usize, terms: View<'_>, sums: &mut ViewMut<'_>) {
    terms.1.check(terms.0.len(), panels, rows);
    sums.1.check(sums.0.len(), panels, rows);
    let arguments = AddedRows {
        rows,
        panels,
        d: terms.0[terms.1.start..].as_ptr(),
        d_stride: terms.1.stride,
        c: sums.0[sums.1.start..].as_mut_ptr(),
        c_stride: sums.1.stride,
    };
    dispatch!(isa, add, &arguments);
}

/// Instruction sets of products outside of recurrent layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductIsa {
    pub(crate) isa: Isa,
    /// For operands that are rounded to bf16; `None` for single precision.
    pub(crate) bf16_isa: Option<Bf16Isa>,
}

/// [`product`] by one of these instruction sets.
///
/// # Panics
/// As `product` does.
pub(crate) fn product_by(isa: ProductIsa, operands: PanelProduct<'_>, to: &mut ViewMut<'_>) {
    let Some(bf16_isa) = isa.bf16_isa else { return product(isa.isa, operands, to) };
    let PanelProduct { rows, depth, panels, start, a, b } = operands;
    let b = View(b, PanelStride { start: 0, stride: depth * PANEL });
    let (a, b) = (Operand::panels(rows, depth, a), Operand::panels(depth, panels * PANEL, b));
    bf16::multiply_panels(bf16_isa, a, b, start, to);
}

/// [`outer`] by one of these instruction sets.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn outer_by(
    isa: ProductIsa,
    rows: usize,
    columns: usize,
    panels: usize,
    a: View<'_>,
    d: View<'_>,
    sums: &mut [f32],
) {
    let Some(bf16_isa) = isa.bf16_isa.filter(|_| rows > 0) else {
        return outer(isa.isa, rows, columns, panels, a, d, sums);
    };
    let (a, d) = (Operand::panels(rows, columns, a).transposed(), Operand::panels(rows, panels * PANEL, d));
    let mut sums = ViewMut(sums, PanelStride { start: 0, stride: columns * PANEL });
    bf16::multiply_panels(bf16_isa, a, d, Start::Result, &mut sums);
}

/// Mask factors of the outputs of sixteen units, `first_unit` and those after it, at each of
/// `steps` for the windows that end at `ends`: `to` [steps · windows, 16].
///
/// # Panics
/// If `to` is shorter than these sizes.
pub(crate) fn draw(isa: Isa, mask: Mask, first_unit: usize, steps: Range<usize>, ends: &[usize], to: &mut ViewMut<'_>) {
    let rows = steps.len() * ends.len();
    to.1.check(to.0.len(), 1, rows);
    let to = &mut to.0[to.1.start..][..rows * PANEL];
    let mut arguments = Draw { mask, scale: mask.scale as f32, first_unit, steps, ends, to };
    dispatch!(isa, draw, &mut arguments);
}

#[cfg(test)]
mod tests;
