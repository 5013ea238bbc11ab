//! Arithmetic of the search for neighbours: products in single precision propose candidates, sums
//! in double precision give their values.
//!
//! Only this folder of the builders has unsafe code. The functions of this file are safe: they
//! check slices against sizes and choose the instruction set; the kernels rely on that.

#![allow(
    unsafe_code,
    reason = "SIMD kernels take raw pointers; the safe functions of this file check the bounds first"
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod exact;
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod scores;

pub(crate) use exact::sum;
use megabatch_gpu_core::isa::{InstructionSet, Isa};

/// Rows of a panel: `[panel][depth][16]` is how the operands of products lie.
pub(crate) const PANEL: usize = 16;

/// Panels come in pairs.
pub(crate) const COLUMNS_TOGETHER: usize = 2 * PANEL;

/// Partial sums of a sum in double precision; rows are padded with zeros to a multiple.
pub(crate) const LANES: usize = 8;

/// Groups that single precision counts one by one.
pub(crate) const GROUPS_MAX: usize = 1 << 24;

/// Measure between two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowMeasure {
    /// Σ x·y
    Product,
    /// Σ (x − y)²
    SquaredDistance,
}

/// Arguments of the kernel `scores`: rows [depth][16], panels [columns / 16][depth][16], start
/// [columns], to [16][columns], which overlaps none of the others; an even number of panels.
struct ScoreArguments {
    depth: usize,
    columns: usize,
    rows: *const f32,
    panels: *const f32,
    start: *const f32,
    to: *mut f32,
}

/// Arguments of the kernel `at_least`: row [columns], whole panels, and `to` with room for as many
/// places.
struct AtLeastArguments {
    columns: usize,
    row: *const f32,
    limit: f32,
    to: *mut u32,
}

/// Arguments of the kernel `kth_group`: row [columns], largest [groups] for its own use; whole
/// panels both, and no more groups than columns or [`GROUPS_MAX`].
struct GroupArguments {
    columns: usize,
    groups: usize,
    k: usize,
    row: *const f32,
    largest: *mut f32,
}

/// Arguments of the kernel `between`: rows [.., stride], the stride a multiple of eight; `to` as
/// long as `columns`.
struct MeasureArguments<'a> {
    measure: RowMeasure,
    rows: &'a [f64],
    stride: usize,
    row: u32,
    columns: &'a [u32],
    to: &'a mut [f64],
}

/// Compiles the kernels for one implementation of `Lanes`, with the instructions that it needs.
macro_rules! entry_points {
    ($lanes:ty, $exact:ty $(, $features:literal)?) => {
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], scores => scores(&super::ScoreArguments));
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], scores => at_least(&super::AtLeastArguments) -> usize);
        megabatch_gpu_core::entry_point!($lanes, [$($features)?], scores => kth_group(&super::GroupArguments) -> f32);
        megabatch_gpu_core::entry_point!($exact, [$($features)?], exact => between(&mut super::MeasureArguments<'_>));
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

/// `to` [16, columns] = `start` [columns] + the product of panel `panel` with all of `panels`,
/// which are `depth` deep.
///
/// # Panics
/// If a slice has another length than these sizes say, or columns are no pairs of panels.
pub(crate) fn scores(isa: Isa, panels: &[f32], depth: usize, panel: usize, start: &[f32], to: &mut [f32]) {
    let columns = start.len();
    assert!(columns.is_multiple_of(COLUMNS_TOGETHER), "{columns} columns are no pairs of panels");
    assert_eq!(panels.len(), columns * depth, "panels of {columns} columns and {depth} rows");
    assert_eq!(to.len(), PANEL * columns, "sixteen rows of {columns} columns");
    let rows = panels[panel * depth * PANEL..][..depth * PANEL].as_ptr();
    let arguments =
        ScoreArguments { depth, columns, rows, panels: panels.as_ptr(), start: start.as_ptr(), to: to.as_mut_ptr() };
    dispatch!(isa, scores, &arguments);
}

/// The places in `row` of the numbers that are `limit` or more, ascending, in the front of `to`;
/// how many they are.
///
/// # Panics
/// If the row is no whole number of panels or longer than `to`.
pub(crate) fn at_least(isa: Isa, row: &[f32], limit: f32, to: &mut [u32]) -> usize {
    assert!(row.len().is_multiple_of(PANEL) && row.len() <= to.len(), "{} columns", row.len());
    let arguments = AtLeastArguments { columns: row.len(), row: row.as_ptr(), limit, to: to.as_mut_ptr() };
    dispatch!(isa, at_least, &arguments)
}

/// Deals the columns of `row` into as many groups as `largest` has places, and writes the largest
/// of each group there. Returns the k-th largest of these.
///
/// # Panics
/// If columns or groups are no whole panels, or the groups more than the columns or [`GROUPS_MAX`],
/// or fewer than k.
pub(crate) fn kth_group(isa: Isa, row: &[f32], k: usize, largest: &mut [f32]) -> f32 {
    let (columns, groups) = (row.len(), largest.len());
    assert!(columns.is_multiple_of(PANEL) && groups.is_multiple_of(PANEL), "{columns} columns in {groups} groups");
    assert!(k <= groups && groups <= columns.min(GROUPS_MAX), "the {k}th of {groups} groups of {columns} columns");
    let arguments = GroupArguments { columns, groups, k, row: row.as_ptr(), largest: largest.as_mut_ptr() };
    dispatch!(isa, kth_group, &arguments)
}

/// `to`: the measure between row `row` and each of `columns`, of `rows` with `stride` numbers each.
/// The same bits on every CPU.
///
/// # Panics
/// If there is no such row or column, or the stride is no multiple of eight.
pub(crate) fn between(
    isa: Isa,
    measure: RowMeasure,
    rows: &[f64],
    stride: usize,
    row: u32,
    columns: &[u32],
    to: &mut [f64],
) {
    assert!(stride.is_multiple_of(LANES), "rows of {stride}");
    assert_eq!(columns.len(), to.len());
    let mut arguments = MeasureArguments { measure, rows, stride, row, columns, to };
    dispatch!(isa, between, &mut arguments);
}

#[cfg(test)]
mod tests;
