//! Sums of columns, such as the gradient of a bias over the rows of a batch.
//!
//! The order is part of the definition, so that the bits are the same on every device. Of 256 rows,
//! lane `j` of 8 starts at zero and takes rows `j`, `j + 8`, … in turn; lanes are added to the
//! first one in order, and so are the sums of every 256 rows to what the output holds.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/column_sums.rs"]
mod cpu;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};
use megabatch_nn::Result;

use super::matmul::add_parts;
use super::operand::{Operand, TensorSlice};
use super::product_kind::Output;
use super::scratch::Scratch;

/// Rows and columns of a block, and its threads for each column: those of column_sums.cu.
const ROWS: usize = 256;
const COLUMNS: usize = 32;
const LANES: usize = 8;

/// Adds the sums of the columns of `x` `[rows, columns]` to the `columns` elements of `to` from its
/// start on, in f32.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of a launch, or that there
/// is no memory for the sums of every 256 rows, in `scratch`.
///
/// # Panics
/// If a buffer ends too early for the shape, and if they are on several devices.
pub fn add_column_sums<T: Operand>(
    x: TensorSlice<'_, T>,
    rows: usize,
    columns: usize,
    to: &mut Buffer<f32>,
    start: usize,
    scratch: &mut Scratch,
) -> Result<()> {
    let device = to.scope().device().clone();
    x.assert_has(rows * columns, &device);
    TensorSlice { buffer: to, start }.assert_has(columns, &device);
    scratch.assert_beside(&device);
    match &device {
        Device::Cuda(device) => cuda(device, x, rows, columns, TensorSlice { buffer: to, start }.address(), scratch),
        _ => cpu_arm!(cpu::add_column_sums(x.elements(), rows, columns, &mut to.as_mut_slice()[start..][..columns])),
    }
}

/// Scratch length for the column sums of up to `rows` rows.
pub(crate) fn column_sum_partials_len(rows: usize, columns: usize) -> usize {
    rows.div_ceil(ROWS) * columns
}

fn cuda<T: Operand>(
    device: &Cuda,
    x: TensorSlice<'_, T>,
    rows: usize,
    columns: usize,
    to: u64,
    scratch: &mut Scratch,
) -> Result<()> {
    let parts = scratch.address_of::<f32>(column_sum_partials_len(rows, columns))?;
    let name = kernel::<T>();
    let kernel = Kernel { module: "nn/column_sums", ptx: megabatch_gpu_core::ptx!("column_sums"), name: &name };
    let arguments = arguments![x.address(), parts, rows as u64, columns as u32];
    // SAFETY: a block reads within the shape, which the operands were seen to have, and writes sums
    // of its own; these are read after that, in the order of the default stream.
    unsafe {
        kernel.submit(device, launch(rows, columns), &arguments)?;
        add_parts(device, parts, rows.div_ceil(ROWS), to, columns, Output::Add)
    }
}

fn kernel<T: Operand>() -> String {
    format!("column_sums_{}", T::SUFFIX)
}

fn launch(rows: usize, columns: usize) -> Option<Launch> {
    let blocks = Launch::for_blocks(rows.div_ceil(ROWS) * columns.div_ceil(COLUMNS));
    blocks.map(|launch| launch.with_threads((COLUMNS * LANES) as u32))
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, noise};
    use super::*;

    fn check<T: Operand>(rows: usize, columns: usize) {
        let scope = Device::cpu().scope("test");
        let x: Vec<T> = noise("x", rows * columns + 2, 2.0).into_iter().map(T::narrow).collect();
        let x = Buffer::from_slice(&scope, &x).unwrap();
        let before = noise("to", columns + 1, 1.0);
        let mut expected = Buffer::from_slice(&scope, &before).unwrap();
        add_column_sums(
            TensorSlice { buffer: &x, start: 2 },
            rows,
            columns,
            &mut expected,
            1,
            &mut Scratch::empty(&scope).unwrap(),
        )
        .unwrap();

        let (mut parts, mut found) = (vec![f32::NAN; rows.div_ceil(ROWS) * columns], before[1..].to_vec());
        let mut arguments = [
            Arg::from(&x.as_slice()[2..]),
            Arg::from(&mut parts[..]),
            Arg::from(rows as u64),
            Arg::from(columns as u32),
        ];
        HARNESS.run(&kernel::<T>(), launch(rows, columns), &mut arguments);
        let numbers = [Arg::from(columns as u64), Arg::from(rows.div_ceil(ROWS) as u32), Arg::from(1u32)];
        let arguments = [Arg::from(&parts[..]), Arg::from(&mut found[..])].into_iter().chain(numbers);
        HARNESS.run("add_parts", Launch::for_threads(columns), &mut arguments.collect::<Vec<_>>());
        assert_eq!(found, expected.as_slice()[1..], "{rows} x {columns} {}", T::SUFFIX);
        assert_eq!(expected.as_slice()[0], before[0]);
        for (column, (sum, before)) in expected.as_slice()[1..].iter().zip(&before[1..]).enumerate() {
            let term = |row: usize| f64::from(x.as_slice()[2 + row * columns + column].widen());
            let plain = (0..rows).map(term).sum::<f64>() + f64::from(*before);
            assert!((f64::from(*sum) - plain).abs() < 1e-4, "{sum} for {plain}");
        }
    }

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        for shape in [[0, 3], [1, 1], [7, 33], [256, 2], [257, 32], [700, 5]] {
            check::<f32>(shape[0], shape[1]);
            check::<f16>(shape[0], shape[1]);
            check::<bf16>(shape[0], shape[1]);
        }
    }
}
