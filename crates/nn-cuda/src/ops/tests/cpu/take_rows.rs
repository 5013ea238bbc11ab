//! Rows of a table on the CPU.

use super::{Operand, Table, TableRows};

pub(super) fn take_rows<T: Operand>(table_rows: &TableRows<'_>, narrow: &mut [T], wide: &mut [f32]) {
    match table_rows.table {
        Table::Fp32(values) => take_from(values.as_slice(), table_rows, narrow, wide),
        Table::Rounded(bytes) => take_from::<T, T>(bytemuck::cast_slice(bytes.as_slice()), table_rows, narrow, wide),
    }
}

fn take_from<From: Operand, T: Operand>(
    table: &[From],
    table_rows: &TableRows<'_>,
    narrow: &mut [T],
    wide: &mut [f32],
) {
    let &TableRows { rows, count, bars, width, stride, .. } = table_rows;
    let to = narrow.chunks_exact_mut(stride).zip(wide.chunks_exact_mut(stride));
    let taken = rows.as_slice()[..count].iter().flat_map(|&row| (row as usize * bars..).take(bars));
    for (bar, (narrow, wide)) in taken.zip(to) {
        let from = &table[bar * width..][..width];
        let padded = from.iter().map(|from| from.widen()).chain(std::iter::repeat(0.0));
        for ((from, narrow), wide) in padded.zip(narrow).zip(wide) {
            *narrow = T::narrow(from);
            *wide = narrow.widen();
        }
    }
}
