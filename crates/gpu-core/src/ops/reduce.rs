//! Sums and maxima of rows, the same bits on every device and at every time.
//!
//! The order of the arithmetic is part of the definition. A row is cut into chunks of 8192
//! elements. In a chunk, lane `j` of 256 starts from the identity (0 for a sum, −∞ for a maximum)
//! and takes elements `j`, `j + 256`, … in turn, in f32; then the upper half of the lanes is folded
//! onto the lower, lane `j + 128` onto `j`, and so on down to one. The results of a row's chunks
//! are a row of f32, which is reduced in the same way until one number is left.
//!
//! A maximum treats NaN as the greatest element.

#![allow(unsafe_code, reason = "kernels are launched")]

use bytemuck::Pod;
use half::{bf16, f16};

use crate::buffer::Buffer;
use crate::convert;
use crate::device::{Cuda, Device};
use crate::error::Result;
use crate::kernel::{Arguments, Kernel, Launch};

const LANES: usize = 256;
const CHUNK: usize = 8192;

/// Reduction of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum; 0 of an empty row.
    Sum,
    /// The greatest element; −∞ of an empty row.
    Max,
}

/// An element type that rows are reduced from: f32, f16, bf16.
pub trait Reducible: Pod + private::Sealed {
    /// Name of the type in the kernels of `reduce.cu`.
    #[doc(hidden)]
    const SUFFIX: &'static str;

    /// The elements in f32; converted into `buffer` if they have another type.
    #[doc(hidden)]
    fn widened<'a>(elements: &'a [Self], buffer: &'a mut [f32]) -> &'a [f32];
}

mod private {
    pub trait Sealed {}
}

/// Reduces each row of `x`, `[rows, columns]`, to an element of `out`, `[rows]`.
///
/// # Errors
/// Errors of [`Buffer::zeros`], where a row has more than 8192 elements: the results of the chunks
/// need memory on the scope of `out`. Errors of the launch.
///
/// # Panics
/// If the length of `x` is not that of `out` times a number of columns; with no rows, if `x` has
/// elements.
pub fn reduce<T: Reducible>(reduction: Reduction, x: &Buffer<T>, out: &mut Buffer<f32>) -> Result<()> {
    let (rows, len) = (out.len(), x.len());
    let columns = len.checked_div(rows).unwrap_or(0);
    assert_eq!(rows * columns, len, "{len} elements are not {rows} rows of the same length");
    x.scope().device().assert_beside(out.scope().device());
    match out.scope().device().clone() {
        Device::Cpu(_) => cpu(reduction, x.as_slice(), columns, out.as_mut_slice()),
        Device::Cuda(device) => cuda(&device, reduction, x, columns, out)?,
    }
    Ok(())
}

/// Passes over the results of chunks until each row has one.
fn cuda<T: Reducible>(
    device: &Cuda,
    reduction: Reduction,
    x: &Buffer<T>,
    columns: usize,
    out: &mut Buffer<f32>,
) -> Result<()> {
    let chunks = chunk_count(columns);
    if chunks == 1 {
        return pass(device, reduction, x, columns, out);
    }
    let mut partial = Buffer::zeros(out.scope(), out.len() * chunks)?;
    pass(device, reduction, x, columns, &mut partial)?;
    cuda(device, reduction, &partial, chunks, out)
}

/// Reduces each chunk of `x`, `[rows, columns]`, to an element of `out`, `[rows, chunks]`.
fn pass<T: Reducible>(
    device: &Cuda,
    reduction: Reduction,
    x: &Buffer<T>,
    columns: usize,
    out: &mut Buffer<f32>,
) -> Result<()> {
    let name = kernel::<T>(reduction);
    let kernel = Kernel { module: "reduce", ptx: crate::ptx!("reduce"), name: &name };
    let arguments = Arguments::new()
        .with_value("x", x.address())
        .with_value("out", out.address())
        .with_value("columns", columns as u64)
        .with_value("chunks", chunk_count(columns) as u32);
    // SAFETY: a block reads within its chunk of a row of `x` and writes its own element of `out`,
    // of which there are as many as blocks; what is submitted to the default stream later, the
    // memory's next use included, runs after it.
    unsafe { kernel.submit(device, Launch::for_blocks(out.len()), &arguments) }
}

fn cpu<T: Reducible>(reduction: Reduction, x: &[T], columns: usize, out: &mut [f32]) {
    let mut chunks = Vec::new();
    for (row, out) in out.iter_mut().enumerate() {
        let row = &x[row * columns..][..columns];
        chunks.clear();
        chunks.extend(chunks_of(row).map(|chunk| reduce_chunk(reduction, chunk)));
        while chunks.len() > 1 {
            chunks = chunks_of(&chunks).map(|chunk| reduce_chunk(reduction, chunk)).collect();
        }
        *out = chunks[0];
    }
}

/// The chunks of a row; an empty row has one, which is empty.
fn chunks_of<T>(row: &[T]) -> impl Iterator<Item = &[T]> {
    let empty = row.is_empty().then_some(row);
    empty.into_iter().chain(row.chunks(CHUNK))
}

fn reduce_chunk<T: Reducible>(reduction: Reduction, chunk: &[T]) -> f32 {
    match reduction {
        Reduction::Sum => fold(chunk, 0.0, |a, b| a + b),
        Reduction::Max => fold(chunk, f32::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a }),
    }
}

fn fold<T: Reducible>(chunk: &[T], identity: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [identity; LANES];
    let mut buffer = [0.0; LANES];
    for elements in chunk.chunks(LANES) {
        let elements = T::widened(elements, &mut buffer[..elements.len()]);
        lanes.iter_mut().zip(elements).for_each(|(lane, &element)| *lane = combine(*lane, element));
    }
    let mut half = LANES / 2;
    while half > 0 {
        let (lower, upper) = lanes.split_at_mut(half);
        lower.iter_mut().zip(upper).for_each(|(lower, upper)| *lower = combine(*lower, *upper));
        half /= 2;
    }
    lanes[0]
}

impl private::Sealed for f32 {}
impl private::Sealed for f16 {}
impl private::Sealed for bf16 {}

impl Reducible for f32 {
    const SUFFIX: &'static str = "f32";

    fn widened<'a>(elements: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        elements
    }
}

impl Reducible for f16 {
    const SUFFIX: &'static str = "f16";

    fn widened<'a>(elements: &'a [f16], buffer: &'a mut [f32]) -> &'a [f32] {
        convert::f16_to_f32(elements, buffer);
        buffer
    }
}

impl Reducible for bf16 {
    const SUFFIX: &'static str = "bf16";

    fn widened<'a>(elements: &'a [bf16], buffer: &'a mut [f32]) -> &'a [f32] {
        convert::bf16_to_f32(elements, buffer);
        buffer
    }
}

/// The kernel that reduces rows of a type.
fn kernel<T: Reducible>(reduction: Reduction) -> String {
    let name = match reduction {
        Reduction::Sum => "sum",
        Reduction::Max => "max",
    };
    format!("{name}_{}", T::SUFFIX)
}

/// Chunks of a row of `columns` elements: blocks of the kernel, and columns of its result.
fn chunk_count(columns: usize) -> usize {
    columns.div_ceil(CHUNK).max(1)
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;
    use proptest::prelude::*;

    use super::super::HARNESS;
    use super::*;

    /// One pass of the kernel: [rows, columns] → [rows, chunks].
    fn by_kernel<T: Reducible>(reduction: Reduction, x: &[T], rows: usize, columns: usize) -> Vec<f32> {
        let chunks = chunk_count(columns);
        let mut out = vec![0.0f32; rows * chunks];
        let launch = Launch::for_blocks(rows * chunks);
        let mut arguments =
            [Arg::from(x), Arg::from(&mut out[..]), Arg::from(columns as u64), Arg::from(chunks as u32)];
        HARNESS.run(&kernel::<T>(reduction), launch, &mut arguments);
        out
    }

    /// Equal bits on the CPU and by the kernel, but for the bits of a NaN.
    fn check<T: Reducible>(x: &[T], rows: usize) {
        let columns = x.len().checked_div(rows).unwrap_or(0);
        for reduction in [Reduction::Sum, Reduction::Max] {
            let scope = Device::cpu().scope("test");
            let mut expected = Buffer::<f32>::zeros(&scope, rows).unwrap();
            reduce(reduction, &Buffer::from_slice(&scope, x).unwrap(), &mut expected).unwrap();

            let mut found = by_kernel(reduction, x, rows, columns);
            while found.len() > rows {
                let columns = found.len() / rows;
                found = by_kernel(reduction, &found, rows, columns);
            }
            for (found, expected) in found.iter().zip(expected.as_slice()) {
                let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(
                    same,
                    "{reduction:?} of {rows} x {columns} {}: {found:e} where {expected:e} is right",
                    T::SUFFIX
                );
            }
        }
    }

    fn noise(len: usize) -> Vec<f32> {
        (0..len as u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 20) as f32 - 7.0).collect()
    }

    #[test]
    fn rows_of_every_length_near_a_lane_and_a_chunk() {
        for columns in [0, 1, 2, 31, 32, 33, 255, 256, 257, 8191, 8192, 8193, 20_000] {
            for rows in [0, 1, 3] {
                let x = noise(rows * columns);
                check(&x, rows);
                check(&x.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>(), rows);
                check(&x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>(), rows);
            }
        }
    }

    #[test]
    fn values_that_are_not_ordinary() {
        let nan = f32::NAN;
        let cases: [(&[f32], f32, f32); 8] = [
            (&[], 0.0, f32::NEG_INFINITY),
            (&[-0.0], 0.0, -0.0),
            (&[f32::INFINITY, 1.0], f32::INFINITY, f32::INFINITY),
            (&[f32::INFINITY, f32::NEG_INFINITY], nan, f32::INFINITY),
            (&[1.0, nan, 3.0], nan, nan),
            (&[nan], nan, nan),
            (&[f32::MAX, f32::MAX], f32::INFINITY, f32::MAX),
            (&[f32::from_bits(1), f32::from_bits(1)], f32::from_bits(2), f32::from_bits(1)),
        ];
        for (x, sum, max) in cases {
            check(x, 1);
            let reduced = |reduction| {
                let mut out = [0.0];
                cpu(reduction, x, x.len(), &mut out);
                out[0]
            };
            assert_eq!(reduced(Reduction::Sum).to_bits() & 0x7fc0_0000, sum.to_bits() & 0x7fc0_0000, "{x:?}");
            assert!(reduced(Reduction::Max) == max || reduced(Reduction::Max).is_nan() && max.is_nan(), "{x:?}");
        }
    }

    /// The error of the fixed order is bounded by the depth of its tree, not by the length of the
    /// row.
    #[test]
    fn a_long_sum_is_close_to_that_in_f64() {
        let x = noise(1 << 20);
        let mut out = [0.0];
        cpu(Reduction::Sum, &x, x.len(), &mut out);
        let exact: f64 = x.iter().map(|&x| f64::from(x)).sum();
        let magnitude: f64 = x.iter().map(|&x| f64::from(x.abs())).sum();
        // A lane adds 32 times, 8 levels fold the lanes; 128 chunks take one more pass of at most
        // 9: 49 roundings.
        assert!((f64::from(out[0]) - exact).abs() <= 49.0 * f64::from(f32::EPSILON) / 2.0 * magnitude);
    }

    proptest! {
        #[test]
        fn any_bits_in_any_shape(bits in prop::collection::vec(any::<u32>(), 0..2000), rows in 1usize..5) {
            let columns = bits.len() / rows;
            check::<f32>(&bytemuck::cast_slice(&bits)[..rows * columns], rows);
            check::<f16>(&bytemuck::cast_slice(&bits)[..rows * columns], rows);
            check::<bf16>(&bytemuck::cast_slice(&bits)[..rows * columns], rows);
        }
    }
}
