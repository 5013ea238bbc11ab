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

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu.rs"]
pub(super) mod cpu;

use megabatch_amp::QuantizedMatrix;
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, Scope, arguments};
use megabatch_nn::Result;

use super::GATES;
use super::capacity::ensure_capacity;
use super::operand::{Operand, TensorSlice};

/// Inner indices of a tile of the product: that of bytes.cu.
const DEPTH: usize = 32;

/// Rows and columns of the output that a block takes, and threads of a block: those of bytes.cu.
const SIDE: usize = 64;
const THREADS: u32 = 128;

/// Threads that quantise a row.
const WARP: usize = 32;

const PTX: &str = megabatch_gpu_core::ptx!("bytes");

/// A matrix `[N, K]` in eight bits, the rows of a layer's gates unit by unit as everywhere here.
#[derive(Debug)]
pub struct DeviceInt8Matrix {
    depth: usize,
    /// `[N, padded]`, zeros from K on.
    bytes: Buffer<i8>,
    /// `[N]`.
    scales: Buffer<f32>,
}

/// Rows `[M, K]` of fourteen bits a number; those of the largest product so far have room.
#[derive(Debug)]
pub struct DeviceInt8Rows {
    rows: usize,
    depth: usize,
    /// `[M, 2, padded]`: high bytes, then low ones, zeros from K on.
    bytes: Buffer<i8>,
    /// `[M]`.
    scales: Buffer<f32>,
}

impl DeviceInt8Matrix {
    /// `matrix` `[4H, K]`, whose rows are in PyTorch's order of gates, on the device of `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn new(scope: &Scope, matrix: &QuantizedMatrix) -> Result<Self> {
        let [outputs, depth] = matrix.shape();
        let (hidden, padded) = (outputs / 4, padded(depth));
        let row = |n: usize| row_of(hidden, n);
        let byte = |at: usize| if at % padded < depth { matrix.at(row(at / padded), at % padded) } else { 0 };
        let bytes: Vec<i8> = (0..outputs * padded).map(byte).collect();
        let scales: Vec<f32> = scales_of(matrix).collect();
        Ok(DeviceInt8Matrix {
            depth,
            bytes: Buffer::from_slice(scope, &bytes)?,
            scales: Buffer::from_slice(scope, &scales)?,
        })
    }

    /// The same for rows `[M, depth]` whose numbers from K on are zeros.
    ///
    /// # Panics
    /// If they end before K, or past the last tile of it.
    #[must_use]
    pub fn for_rows_of(self, depth: usize) -> Self {
        assert!((self.depth..=padded(self.depth)).contains(&depth), "rows of {depth} for {} inputs", self.depth);
        DeviceInt8Matrix { depth, ..self }
    }

    /// N, K.
    pub fn shape(&self) -> [usize; 2] {
        [self.scales.len(), self.depth]
    }

    /// Addresses of the bytes and the scales.
    fn addresses(&self) -> [u64; 2] {
        [self.bytes.address(), self.scales.address()]
    }
}

impl DeviceInt8Rows {
    /// No row so far, with memory on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn empty(scope: &Scope) -> Result<Self> {
        Ok(DeviceInt8Rows { rows: 0, depth: 0, bytes: Buffer::zeros(scope, 0)?, scales: Buffer::zeros(scope, 0)? })
    }

    /// Takes the rows `[M, K]` of `x`. A row with an infinity or a NaN has the scale NaN, and one
    /// of which 8191 over the largest number overflows, 0.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch, or that
    /// there is no memory for more rows than ever.
    ///
    /// # Panics
    /// If `x` ends too early or is on another device; on a GPU, if it is not in single precision,
    /// which products in eight bits go with.
    pub fn quantize<T: Operand>(&mut self, x: TensorSlice<'_, T>, shape: [usize; 2]) -> Result<()> {
        let device = self.bytes.scope().device().clone();
        x.assert_has(shape[0] * shape[1], &device);
        self.ensure_capacity(shape[0], shape[1])?;
        match &device {
            Device::Cuda(device) => {
                assert!(!T::IS_NARROW, "rows in {}", T::SUFFIX);
                // SAFETY: the rows were seen to be there.
                unsafe { self.quantize_at(device, x.address()) }
            }
            _ => cpu_arm!(cpu::quantize(self, x)),
        }
    }

    /// Scope on which their memory is booked.
    pub(super) fn scope(&self) -> &Scope {
        self.bytes.scope()
    }

    /// Ensures capacity for rows `[M, K]`, which are to be quantised next.
    pub(super) fn ensure_capacity(&mut self, rows: usize, depth: usize) -> Result<()> {
        (self.rows, self.depth) = (rows, depth);
        ensure_capacity(&mut self.bytes, rows * 2 * padded(depth))?;
        ensure_capacity(&mut self.scales, rows)
    }

    /// Takes the rows at an address, in single precision.
    ///
    /// # Safety
    /// There are as many as [`DeviceInt8Rows::ensure_capacity`] was asked for.
    pub(super) unsafe fn quantize_at(&mut self, device: &Cuda, x: u64) -> Result<()> {
        let kernel = Kernel { module: "nn/bytes", ptx: PTX, name: "quantize" };
        let (rows, depth, padded) = (self.rows as u64, self.depth as u32, padded(self.depth) as u32);
        let arguments = arguments![x, self.bytes.address(), self.scales.address(), rows, depth, padded];
        // SAFETY: a warp reads a row, which is there as the caller promised, and writes its own
        // bytes and scale, for which there is room. What is submitted to the default stream later
        // runs after it.
        Ok(unsafe { kernel.submit(device, Launch::for_threads(self.rows * WARP), &arguments) }?)
    }
}

/// Writes the product of `x` `[M, K]` and `weights` `[N, K]` to `out` from element `at` on, `[M,
/// N]`; every row starts from `start` `[N]`, such as a bias.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
///
/// # Panics
/// If K differs, a buffer ends too early for the shape, or arrays are on several devices.
pub fn multiply_int8(
    x: &DeviceInt8Rows,
    weights: &DeviceInt8Matrix,
    start: Option<TensorSlice<'_, f32>>,
    out: &mut Buffer<f32>,
    at: usize,
) -> Result<()> {
    let ([outputs, depth], device) = (weights.shape(), out.scope().device().clone());
    assert_eq!(x.depth, depth, "inputs of the rows, and of the weights");
    [&x.scales, &weights.scales].iter().for_each(|scales| device.assert_beside(scales.scope().device()));
    TensorSlice { buffer: out, start: at }.assert_has(x.rows * outputs, &device);
    start.iter().for_each(|start| start.assert_has(outputs, &device));
    match &device {
        Device::Cuda(device) => {
            let start = start.map_or(0, |start| start.address());
            // SAFETY: the buffers were seen to have the lengths of the shape.
            unsafe { multiply_at(device, x, weights, start, TensorSlice { buffer: out, start: at }.address()) }
        }
        _ => cpu_arm!(cpu::multiply(x, weights, start, &mut out.as_mut_slice()[at..])),
    }
}

/// The product on a GPU, with a start at an address, or 0 for none, to another.
///
/// # Safety
/// There are `[N]` and `[M, N]` numbers there, and nothing else touches the latter meanwhile.
pub(super) unsafe fn multiply_at(
    device: &Cuda,
    x: &DeviceInt8Rows,
    weights: &DeviceInt8Matrix,
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
    Launch::for_blocks(rows.div_ceil(SIDE) * outputs.div_ceil(SIDE)).map(|launch| launch.with_threads(THREADS))
}

/// The row of PyTorch's order of gates that comes `n`th where they lie unit by unit: of unit `n /
/// 4`, gate `n % 4`.
fn row_of(hidden: usize, n: usize) -> usize {
    n % GATES * hidden + n / GATES
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

#[cfg(test)]
pub(super) mod tests;
