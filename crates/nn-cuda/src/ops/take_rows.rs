//! Rows of a table that is on the device, such as the bars that the windows of a batch cover.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/take_rows.rs"]
mod cpu;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Scope, arguments};
use megabatch_nn::Result;

use super::operand::{Operand, TensorSlice};

/// Numbers of a table.
#[derive(Clone, Copy, Debug)]
pub enum Table<'a> {
    /// In single precision.
    Fp32(&'a Buffer<f32>),
    /// Rounded before: bytes of numbers of the type that rows are rounded to.
    Rounded(&'a Buffer<u8>),
}

impl Table<'_> {
    /// Name of the numbers' type in the kernels, for rows that are rounded to `T`.
    fn suffix<T: Operand>(self) -> &'static str {
        match self {
            Table::Fp32(_) => f32::SUFFIX,
            Table::Rounded(_) => T::SUFFIX,
        }
    }

    fn scope(&self) -> &Scope {
        match self {
            Table::Fp32(values) => values.scope(),
            Table::Rounded(bytes) => bytes.scope(),
        }
    }

    fn address(&self) -> u64 {
        match self {
            Table::Fp32(values) => values.address(),
            Table::Rounded(bytes) => bytes.address(),
        }
    }
}

/// A table, and which of its rows are taken.
#[derive(Clone, Copy, Debug)]
pub struct TableRows<'a> {
    /// `[.., bars, width]`, row-major.
    pub table: Table<'a>,
    /// Numbers of the rows; the first `count` are taken.
    pub rows: &'a Buffer<u32>,
    /// Rows that are taken.
    pub count: usize,
    /// Bars of a row.
    pub bars: usize,
    /// Elements of a bar.
    pub width: usize,
    /// Elements from a bar of the outputs to the next one; zeros are behind a bar's own.
    pub stride: usize,
}

/// Writes the rows `[count, bars, stride]` rounded to `T`, from element `start` of `narrow` on, and
/// the same numbers in single precision: products with bars read the former, those with sums by bar
/// the latter.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
///
/// # Panics
/// If a buffer ends too early, if bars are wider than the outputs', and if buffers are on several
/// devices. On the CPU, if there is no such row; on a GPU the numbers are the caller's to keep in
/// range.
pub fn take_rows<T: Operand>(
    table_rows: &TableRows<'_>,
    narrow: &mut Buffer<T>,
    start: usize,
    wide: &mut Buffer<f32>,
) -> Result<()> {
    let &TableRows { table, rows, count, bars, width, stride } = table_rows;
    assert!(width <= stride, "bars of {width} in those of {stride}");
    let len = count * bars * stride;
    assert!(
        count <= rows.len() && start + len <= narrow.len() && len <= wide.len(),
        "room for {count} rows of {bars} bars of {stride}"
    );
    let device = wide.scope().device().clone();
    [table.scope(), rows.scope(), narrow.scope()].iter().for_each(|scope| device.assert_beside(scope.device()));
    match &device {
        Device::Cuda(device) => {
            let name = format!("take_rows_{}_{}", table.suffix::<T>(), T::SUFFIX);
            let kernel = Kernel { module: "nn/take_rows", ptx: megabatch_gpu_core::ptx!("take_rows"), name: &name };
            let narrow = TensorSlice { buffer: &*narrow, start }.address();
            let (table, rows, wide) = (table.address(), rows.address(), wide.address());
            let arguments =
                arguments![table, rows, narrow, wide, count as u64, bars as u64, width as u64, stride as u64];
            // SAFETY: a thread reads at most an element of a row that the table has, as the caller
            // promised, and writes one of the first `len` of both outputs. What is submitted to the
            // default stream later runs after it.
            Ok(unsafe { kernel.submit(device, Launch::for_threads(len), &arguments) }?)
        }
        _ => cpu_arm!(cpu::take_rows(table_rows, &mut narrow.as_mut_slice()[start..], wide.as_mut_slice())),
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, noise};
    use super::*;

    /// Takes rows of the `table` of noise, of numbers of `From`: rounded, and in single precision.
    fn take<From: Operand, T: Operand>(rows: &[u32], bars: usize, width: usize, stride: usize) -> (Vec<T>, Vec<f32>) {
        let (scope, count) = (Device::cpu().scope("test"), rows.len());
        let mut numbers = vec![From::narrow(0.0); 9 * bars * width];
        From::narrow_all(&noise("table", numbers.len(), 3.0), &mut numbers);
        let values = Buffer::from_slice(&scope, &numbers.iter().map(|x| x.widen()).collect::<Vec<_>>()).unwrap();
        let bytes = Buffer::from_slice(&scope, bytemuck::cast_slice(&numbers)).unwrap();
        // What was there is in the way of zeros.
        let mut wide_found = vec![7.0f32; count * bars * stride + 1];
        let mut narrow_found = vec![T::narrow(7.0); wide_found.len()];
        let mut narrow = Buffer::from_slice(&scope, &narrow_found).unwrap();
        let mut wide = Buffer::from_slice(&scope, &wide_found).unwrap();
        let rows = Buffer::from_slice(&scope, rows).unwrap();
        let table = if From::IS_NARROW { Table::Rounded(&bytes) } else { Table::Fp32(&values) };
        let table_rows = TableRows { table, rows: &rows, count, bars, width, stride };
        take_rows(&table_rows, &mut narrow, 0, &mut wide).unwrap();
        let taken = rows.as_slice().iter().flat_map(|&row| (row as usize * bars..).take(bars));
        for (k, bar) in taken.enumerate() {
            let expected = T::narrow(values.as_slice()[bar * width]).widen();
            let found = &wide.as_slice()[k * stride..][..stride];
            assert_eq!(found[0], expected);
            assert!(found[width..].iter().all(|&padding| padding == 0.0), "{found:?}");
        }
        let mut arguments = [
            Arg::from(&numbers[..]),
            Arg::from(rows.as_slice()),
            Arg::from(&mut narrow_found[..]),
            Arg::from(&mut wide_found[..]),
            Arg::from(count as u64),
            Arg::from(bars as u64),
            Arg::from(width as u64),
            Arg::from(stride as u64),
        ];
        let name = format!("take_rows_{}_{}", From::SUFFIX, T::SUFFIX);
        HARNESS.run(&name, Launch::for_threads(count * bars * stride), &mut arguments);
        assert_eq!(bytemuck::cast_slice::<T, u8>(&narrow_found), bytemuck::cast_slice::<T, u8>(narrow.as_slice()));
        assert_eq!(wide_found, wide.as_slice());
        (narrow_found, wide_found)
    }

    /// A table that was rounded before gives the bits of one in single precision.
    fn check<T: Operand>(rows: &[u32], bars: usize, width: usize, stride: usize) {
        let [(narrow, wide), (narrow_before, wide_before)] =
            [take::<f32, T>(rows, bars, width, stride), take::<T, T>(rows, bars, width, stride)];
        assert_eq!(bytemuck::cast_slice::<T, u8>(&narrow), bytemuck::cast_slice::<T, u8>(&narrow_before));
        assert_eq!(wide, wide_before);
    }

    #[test]
    fn the_kernel_takes_the_cpus_rows() {
        let all = [(&[][..], 3, 8), (&[8], 1, 1), (&[0, 3, 3, 8, 1], 17, 24), (&[2; 70], 5, 5), (&[2; 70], 5, 8)];
        for (rows, width, stride) in all {
            for bars in [1, 3] {
                check::<f32>(rows, bars, width, stride);
                check::<f16>(rows, bars, width, stride);
                check::<bf16>(rows, bars, width, stride);
            }
        }
    }
}
