//! Products with weights in eight bits, for inference; the arithmetic and its bits are those of the
//! CPU engine.
//!
//! ```text
//! w[n][k] ≈ scale[n] · q[n][k]                          -127 ≤ q ≤ 127, of each output n, once
//! x[r][k] ≈ scale[r] · (128 · high[r][k] + low[r][k])   -64 ≤ high < 64, 0 ≤ low < 128, of each
//!                                                       row r, in each product
//! c[r][n] = start[n]
//!         + (128 · Σ high[r][k] · q[n][k] + Σ low[r][k] · q[n][k]) · (scale[r] · scale[n])
//! ```
//!
//! Both sums are exact, in 32 bits: on a GPU of tensor cores for bytes, which take two products a
//! number where those for 16 bits take one, and go twice as fast.

use megabatch_amp::QuantizedMatrix;
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, Scope, arguments};

use super::capacity::ensure_capacity;
use super::operand::{Operand, Part};
use crate::error::Result;

/// Inner indices of a tile of the product: that of bytes.cu.
const DEPTH: usize = 32;

/// Rows and columns of the output that a block takes, and threads of a block: those of bytes.cu.
const SIDE: usize = 64;
const THREADS: u32 = 128;

/// Threads that quantise a row.
const WARP: usize = 32;

/// Magnitude of the largest quantised number of a row: 64 · 128 - 1.
const GREATEST: f32 = 8191.0;

const PTX: &str = megabatch_gpu_core::ptx!("bytes");

/// A matrix `[N, K]` in eight bits, the rows of a layer's gates unit by unit as everywhere here.
#[derive(Debug)]
pub struct DeviceByteMatrix {
    depth: usize,
    /// `[N, padded]`, zeros from K on.
    bytes: Buffer<i8>,
    /// `[N]`.
    scales: Buffer<f32>,
}

/// Rows `[M, K]` of fourteen bits a number; those of the largest product so far have room.
#[derive(Debug)]
pub struct DeviceByteRows {
    rows: usize,
    depth: usize,
    /// `[M, 2, padded]`: high bytes, then low ones, zeros from K on.
    bytes: Buffer<i8>,
    /// `[M]`.
    scales: Buffer<f32>,
}

impl DeviceByteMatrix {
    /// `matrix` `[4H, K]`, whose rows are in PyTorch's order of gates, on the device of `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory).
    pub fn new(scope: &Scope, matrix: &QuantizedMatrix) -> Result<Self> {
        let [outputs, depth] = matrix.shape();
        let (hidden, padded) = (outputs / 4, padded(depth));
        let row = |n: usize| row_of(hidden, n);
        let byte = |at: usize| if at % padded < depth { matrix.at(row(at / padded), at % padded) } else { 0 };
        let bytes: Vec<i8> = (0..outputs * padded).map(byte).collect();
        let scales: Vec<f32> = scales_of(matrix).collect();
        Ok(DeviceByteMatrix {
            depth,
            bytes: Buffer::from_slice(scope, &bytes)?,
            scales: Buffer::from_slice(scope, &scales)?,
        })
    }

    /// N, K.
    pub fn shape(&self) -> [usize; 2] {
        [self.scales.len(), self.depth]
    }

    /// Row `n` and its scale, on the CPU.
    pub(super) fn row(&self, n: usize) -> (&[i8], f32) {
        let padded = padded(self.depth);
        (&self.bytes.as_slice()[n * padded..][..padded], self.scales.as_slice()[n])
    }

    /// Addresses of the bytes and the scales.
    fn addresses(&self) -> [u64; 2] {
        [self.bytes.address(), self.scales.address()]
    }
}

impl DeviceByteRows {
    /// No row so far, with memory on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory).
    pub fn empty(scope: &Scope) -> Result<Self> {
        Ok(DeviceByteRows { rows: 0, depth: 0, bytes: Buffer::zeros(scope, 0)?, scales: Buffer::zeros(scope, 0)? })
    }

    /// Takes the rows `[M, K]` of `x`. A row with an infinity or a NaN has the scale NaN, and one
    /// of which 8191 over the largest number overflows, 0.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory): what the device says of the launch, or that there
    /// is no memory for more rows than ever.
    ///
    /// # Panics
    /// If `x` ends too early or is on another device; on a GPU, if it is not in single precision,
    /// which products in eight bits go with.
    pub fn quantize<T: Operand>(&mut self, x: Part<'_, T>, shape: [usize; 2]) -> Result<()> {
        let device = self.bytes.scope().device().clone();
        x.assert_has(shape[0] * shape[1], &device);
        self.ensure_capacity(shape[0], shape[1])?;
        match &device {
            Device::Cuda(device) => {
                assert!(!T::IS_NARROW, "rows in {}", T::SUFFIX);
                // SAFETY: the rows were seen to be there.
                unsafe { self.quantize_at(device, x.address()) }
            }
            _ => {
                let [rows, depth] = shape;
                let to = self.bytes.as_mut_slice().chunks_exact_mut(2 * padded(depth)).zip(self.scales.as_mut_slice());
                for (row, (bytes, scale)) in (0..rows).zip(to) {
                    let of_row: Vec<f32> = x.elements()[row * depth..][..depth].iter().map(|x| x.widen()).collect();
                    *scale = quantize_row(&of_row, bytes);
                }
                Ok(())
            }
        }
    }

    /// Scope on which their memory is booked.
    pub(super) fn scope(&self) -> &Scope {
        self.bytes.scope()
    }

    /// Sees to it that there is room for rows `[M, K]`, which are to be quantised next.
    pub(super) fn ensure_capacity(&mut self, rows: usize, depth: usize) -> Result<()> {
        (self.rows, self.depth) = (rows, depth);
        ensure_capacity(&mut self.bytes, rows * 2 * padded(depth))?;
        ensure_capacity(&mut self.scales, rows)
    }

    /// Takes the rows at an address, in single precision.
    ///
    /// # Safety
    /// There are as many as [`DeviceByteRows::ensure_capacity`] was asked for.
    pub(super) unsafe fn quantize_at(&mut self, device: &Cuda, x: u64) -> Result<()> {
        let kernel = Kernel { module: "nn/bytes", ptx: PTX, name: "quantize" };
        let (rows, depth, padded) = (self.rows as u64, self.depth as u32, padded(self.depth) as u32);
        let arguments = arguments![x, self.bytes.address(), self.scales.address(), rows, depth, padded];
        // SAFETY: a warp reads a row, which is there as the caller promised, and writes its own
        // bytes and scale, for which there is room. What is submitted to the default stream later
        // runs after it.
        Ok(unsafe { kernel.submit(device, Launch::over(self.rows * WARP), &arguments) }?)
    }
}

/// Writes the product of `x` `[M, K]` and `weights` `[N, K]` to `out` from element `at` on, `[M,
/// N]`; every row starts from `start` `[N]`, such as a bias.
///
/// # Errors
/// [`Error::Memory`](crate::Error::Memory): what the device says of the launch.
///
/// # Panics
/// If K differs, a buffer ends too early for the shape, or arrays are on several devices.
pub fn multiply_bytes(
    x: &DeviceByteRows,
    weights: &DeviceByteMatrix,
    start: Option<Part<'_, f32>>,
    out: &mut Buffer<f32>,
    at: usize,
) -> Result<()> {
    let ([outputs, depth], device) = (weights.shape(), out.scope().device().clone());
    assert_eq!(x.depth, depth, "inputs of the rows, and of the weights");
    [&x.scales, &weights.scales].iter().for_each(|of| device.assert_beside(of.scope().device()));
    Part { buffer: out, start: at }.assert_has(x.rows * outputs, &device);
    start.iter().for_each(|start| start.assert_has(outputs, &device));
    match &device {
        Device::Cuda(device) => {
            let start = start.map_or(0, |start| start.address());
            // SAFETY: the buffers were seen to have the lengths of the shape.
            unsafe { multiply_at(device, x, weights, start, Part { buffer: out, start: at }.address()) }
        }
        _ => {
            let rows = out.as_mut_slice()[at..].chunks_exact_mut(outputs).take(x.rows);
            for (r, out) in rows.enumerate() {
                let padded = padded(depth);
                let (row, row_scale) = (&x.bytes.as_slice()[r * 2 * padded..][..2 * padded], x.scales.as_slice()[r]);
                for (n, out) in out.iter_mut().enumerate() {
                    let (bytes, scale) = weights.row(n);
                    *out = product_of(row, row_scale, bytes, scale) + start.map_or(0.0, |start| start.elements()[n]);
                }
            }
            Ok(())
        }
    }
}

/// The product on a GPU, with a start at an address, or 0 for none, to another.
///
/// # Safety
/// There are `[N]` and `[M, N]` numbers there, and nothing else touches the latter meanwhile.
pub(super) unsafe fn multiply_at(
    device: &Cuda,
    x: &DeviceByteRows,
    weights: &DeviceByteMatrix,
    start: u64,
    out: u64,
) -> Result<()> {
    let kernel = Kernel { module: "nn/bytes", ptx: PTX, name: "product_of_bytes" };
    let ([outputs, depth], [bytes, scales]) = (weights.shape(), weights.addresses());
    let (rows, columns, padded) = (x.rows as u64, outputs as u64, padded(depth) as u64);
    let arguments = arguments![x.bytes.address(), x.scales.address(), bytes, scales, start, out, rows, columns, padded];
    // SAFETY: rows and weights have the lengths of their shapes, and what is at the other addresses
    // the caller promised. A block writes its own tile.
    Ok(unsafe { kernel.submit(device, launch(x.rows, outputs), &arguments) }?)
}

fn launch(rows: usize, outputs: usize) -> Option<Launch> {
    Launch::of_blocks(rows.div_ceil(SIDE) * outputs.div_ceil(SIDE)).map(|launch| launch.with_threads(THREADS))
}

/// The row of PyTorch's order of gates that comes `n`th where they lie unit by unit: of unit `n /
/// 4`, gate `n % 4`.
fn row_of(hidden: usize, n: usize) -> usize {
    n % 4 * hidden + n / 4
}

/// The scales of a matrix `[4H, K]`, unit by unit, `[H, 4]`.
pub(super) fn scales_of(matrix: &QuantizedMatrix) -> impl Iterator<Item = f32> {
    let outputs = matrix.shape()[0];
    (0..outputs).map(move |n| matrix.scales()[row_of(outputs / 4, n)])
}

/// Inputs with those that fill the last tile up.
pub(super) fn padded(depth: usize) -> usize {
    depth.next_multiple_of(DEPTH)
}

/// Quantises a row to `[2, padded]`; its scale.
pub(super) fn quantize_row(x: &[f32], to: &mut [i8]) -> f32 {
    /// Added to a number below 2²² and taken away, it leaves the nearest integer.
    const ROUNDING: f32 = 12_582_912.0;
    // As integers, magnitudes have the order of the numbers, and NaN stands above infinity.
    let greatest = f32::from_bits(x.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0));
    let inverse = GREATEST / greatest;
    let (factor, scale) = match (greatest.is_finite(), inverse.is_finite()) {
        (true, true) => (inverse, greatest / GREATEST),
        (true, false) => (0.0, 0.0),
        (false, _) => (0.0, f32::NAN),
    };
    to.fill(0);
    let (high, low) = to.split_at_mut(to.len() / 2);
    for ((x, high), low) in x.iter().zip(high).zip(low) {
        let number = (x * factor + ROUNDING) - ROUNDING;
        (*high, *low) = ((number as i32 >> 7) as i8, (number as i32 & 127) as i8);
    }
    scale
}

/// The product of a quantised row and a row of weights, each with its scale.
pub(super) fn product_of(row: &[i8], row_scale: f32, weights: &[i8], scale: f32) -> f32 {
    let (high, low) = row.split_at(row.len() / 2);
    let sum = |of: &[i8]| of.iter().zip(weights).map(|(&x, &w)| i32::from(x) * i32::from(w)).sum::<i32>() as f32;
    (sum(high) * 128.0 + sum(low)) * (row_scale * scale)
}

#[cfg(test)]
pub(super) mod tests;
