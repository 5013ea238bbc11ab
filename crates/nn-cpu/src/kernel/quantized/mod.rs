//! Products with weights in eight bits, for inference.
//!
//! ```text
//! w[n][k] ≈ scale[n] · q[n][k]                          -127 ≤ q ≤ 127, of each output n, once
//! x[r][k] ≈ scale[r] · (128 · high[r][k] + low[r][k])   -64 ≤ high < 64, 0 ≤ low < 128, of each
//!                                                       row r, in each product
//! c[r][n] = start + (128 · Σ high[r][k] · q[n][k] + Σ low[r][k] · q[n][k]) · (scale[r] · scale[n])
//! ```
//!
//! A number of a row is fourteen bits in two bytes: where the weights are what a product waits for,
//! the second byte costs next to nothing, and what is left of the error is the weights'. Seven bits
//! a byte, since AVX2 adds pairs of products in sixteen: 2 · 127 · 127 fits, 2 · 255 · 127 would
//! not.
//!
//! The sums are exact, in 32 bits, and what follows them is the same few operations everywhere: all
//! instruction sets give the same bits.

#![allow(unsafe_code, reason = "instructions of the CPU")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512_vnni;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
mod dots;
#[cfg(target_arch = "x86_64")]
mod halves;
mod isa;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_i8mm;
mod portable;

pub(crate) use isa::Int8Isa;

use super::{PANEL, PanelOrder, PanelStride, Start, View, ViewMut};
use isa::InstructionSet;

/// Inputs whose products are added at once, by all instruction sets but one: [`Int8Isa::group`].
const GROUP: usize = 4;

/// Panels of outputs: the gates of sixteen units.
pub(crate) const PANELS: usize = 4;

/// Inputs up to which no sum overflows: each product is at most 127 · 127.
const DEPTH_MAX: usize = 65_536;

/// Weights of a low byte in a high one.
const BASE: f32 = 128.0;

/// Offset of high bytes, which makes them non-negative.
pub(crate) const BIAS: i32 = 64;

/// Magnitude of the largest quantised number of a row: 64 · 128 - 1.
const GREATEST: f32 = 8191.0;

/// Inputs with those that fill the last panel up.
pub(crate) fn padded(depth: usize) -> usize {
    depth.next_multiple_of(PANEL)
}

/// The place of the weight of an output and an input among those of [`Int8Weights`].
pub(crate) fn place_of(isa: Int8Isa, padded: usize, output: usize, input: usize) -> usize {
    let len = isa.group();
    let group = (output / PANEL * padded + input) / len;
    (group * PANEL + output % PANEL) * len + input % len
}

/// Weights in eight bits as an instruction set reads them: panels of sixteen outputs, in each
/// `[padded / group][16][group]`, zeros where there is no input.
#[derive(Clone, Copy)]
pub(crate) struct Int8Weights<'a> {
    pub(crate) weights: &'a [i8],
    /// [panels][16]
    pub(crate) scales: &'a [f32],
    /// -64 · Σ q of each output, which takes the bias of the high bytes back. [panels][16]
    pub(crate) offsets: &'a [i32],
}

/// Rows in two bytes a number, `[rows][2][padded]`: biased high bytes, then low ones.
#[derive(Clone, Copy)]
pub(crate) struct Int8Rows<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) scales: &'a [f32],
}

/// Arguments of the kernel `product`: x [rows][2][padded] of a scale each, weights [panels][padded
/// / group][16][group] of a scale and an offset each output, c [panels][rows][16] at its stride,
/// and `start` [16] every `start_stride` numbers for each panel and every `start_row` for each row,
/// or null to start from c. Panels are a multiple of four; c overlaps none of the others.
#[derive(Clone, Copy)]
struct Int8ProductArguments {
    rows: usize,
    padded: usize,
    panels: usize,
    x: *const u8,
    x_scales: *const f32,
    weights: *const i8,
    scales: *const f32,
    offsets: *const i32,
    start: *const f32,
    start_stride: usize,
    start_row: usize,
    c: *mut f32,
    c_stride: usize,
    order: PanelOrder,
}

/// Arguments of the kernel `quantize`: a matrix [rows, depth], of a scale each row and [2][padded]
/// bytes.
struct Quantize<'a> {
    depth: usize,
    from: View<'a>,
    bytes: &'a mut [u8],
    scales: &'a mut [f32],
}

/// Compiles the kernels for one implementation of `RowSums`, with the instructions that it needs.
macro_rules! byte_entry_points {
    ($sums:ty $(, $features:literal)?) => {
        megabatch_gpu_core::entry_point!($sums, [$($features)?], dots => product(&super::Int8ProductArguments));

        /// # Safety
        /// The CPU has the instruction set of the sums; nothing else is asked for.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn quantize(q: &mut super::Quantize<'_>) {
            super::quantize_rows(q);
        }
    };
}
use byte_entry_points;

/// Calls a kernel of the instruction set that `$isa` proves.
macro_rules! dispatch {
    ($isa:expr, $kernel:ident, $arguments:expr) => {
        // SAFETY: `Int8Isa` proves that the CPU has the instruction set; the function around
        // this checked that every pointer reaches what the sizes say, and its borrows are exclusive
        // where the kernel writes.
        unsafe {
            match $isa.instruction_set() {
                InstructionSet::Portable => portable::$kernel($arguments),
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx2 => avx2::$kernel($arguments),
                #[cfg(target_arch = "x86_64")]
                InstructionSet::AvxVnni => avx_vnni::$kernel($arguments),
                #[cfg(target_arch = "x86_64")]
                InstructionSet::Avx512Vnni => avx512_vnni::$kernel($arguments),
                #[cfg(target_arch = "aarch64")]
                InstructionSet::NeonDotprod => neon::$kernel($arguments),
                #[cfg(target_arch = "aarch64")]
                InstructionSet::NeonI8mm => neon_i8mm::$kernel($arguments),
            }
        }
    };
}

/// Quantises the first rows of `from` [rows, depth], as many as there is room for in `scales`, each
/// with 2 · [`padded`] of the `bytes`. A row with an infinity or a NaN has the scale NaN, and one
/// of which 8191 over the largest number overflows, 0.
///
/// # Panics
/// If a slice is shorter than these sizes.
pub(crate) fn quantize(isa: Int8Isa, depth: usize, from: View<'_>, bytes: &mut [u8], scales: &mut [f32]) {
    from.1.check(from.0.len(), depth.div_ceil(PANEL), scales.len());
    let bytes = &mut bytes[..scales.len() * 2 * padded(depth)];
    let mut arguments = Quantize { depth, from, bytes, scales };
    dispatch!(isa, quantize, &mut arguments);
}

/// `start` [rows, panels · 16] + `x` [rows, depth] · `weights`, for the rows that [`quantize`]
/// made and weights that were packed for the instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Int8Product<'a> {
    pub(crate) depth: usize,
    pub(crate) panels: usize,
    pub(crate) start: Start<'a>,
    pub(crate) x: Int8Rows<'a>,
    pub(crate) weights: Int8Weights<'a>,
}

/// Writes a product to `to` [rows, panels · 16], panel after panel as `order` says.
///
/// # Panics
/// If a slice is shorter than the sizes, the depth is 0 or more than 65,536, or the panels are
/// not whole units.
pub(crate) fn product(isa: Int8Isa, product: Int8Product<'_>, to: &mut ViewMut<'_>, order: PanelOrder) {
    let Int8Product { depth, panels, start, x, weights } = product;
    assert!((1..=DEPTH_MAX).contains(&depth) && panels.is_multiple_of(PANELS), "{depth} inputs, {panels} panels");
    let (rows, padded) = (x.scales.len(), padded(depth));
    assert!(x.bytes.len() >= rows * 2 * padded, "{} bytes of {rows} rows", x.bytes.len());
    assert!(weights.weights.len() >= panels * padded * PANEL, "{} weights", weights.weights.len());
    to.1.check(to.0.len(), panels, rows);
    let (start, start_stride, start_row) = start.steps(panels, rows);
    let arguments = Int8ProductArguments {
        rows,
        padded,
        panels,
        x: x.bytes.as_ptr(),
        x_scales: x.scales.as_ptr(),
        weights: weights.weights.as_ptr(),
        scales: weights.scales[..panels * PANEL].as_ptr(),
        offsets: weights.offsets[..panels * PANEL].as_ptr(),
        start,
        start_stride,
        start_row,
        c: to.0[to.1.start..].as_mut_ptr(),
        c_stride: to.1.stride,
        order,
    };
    dispatch!(isa, product, &arguments);
}

/// Inlined into a function compiled for an instruction set, which turns the loops over sixteen into
/// vectors.
#[inline(always)]
fn quantize_rows(q: &mut Quantize<'_>) {
    /// Added to a number below 2²² and taken away, it leaves the nearest integer, in the lowest
    /// bits.
    const ROUNDING: f32 = 12_582_912.0;
    let padded = padded(q.depth);
    let rows = q.scales.iter_mut().zip(q.bytes.chunks_exact_mut(2 * padded));
    for (row, (scale, bytes)) in rows.enumerate() {
        let place: PanelStride = q.from.1.row(row);
        let lanes = |panel: usize| -> [f32; PANEL] {
            let at = place.panel(panel).start;
            let values: [f32; PANEL] = q.from.0[at..at + PANEL].try_into().expect("a row of a panel");
            let left = q.depth - panel * PANEL;
            // What fills the last panel up may be anything.
            if left >= PANEL { values } else { std::array::from_fn(|i| if i < left { values[i] } else { 0.0 }) }
        };
        // As integers, magnitudes have the order of the numbers, and NaN stands above infinity.
        let mut greatest = [0; PANEL];
        for panel in 0..padded / PANEL {
            let values = lanes(panel);
            greatest = std::array::from_fn(|i| greatest[i].max(values[i].to_bits() & 0x7fff_ffff));
        }
        let greatest = f32::from_bits(greatest.into_iter().fold(0, u32::max));
        let inverse = GREATEST / greatest;
        let (factor, row_scale) = match (greatest.is_finite(), inverse.is_finite()) {
            (true, true) => (inverse, greatest / GREATEST),
            (finite, _) => (0.0, if finite { 0.0 } else { f32::NAN }),
        };
        *scale = row_scale;
        let (high, low) = bytes.split_at_mut(padded);
        for panel in 0..padded / PANEL {
            let quantized = lanes(panel).map(|x| (x * factor + ROUNDING).to_bits());
            let own = panel * PANEL..(panel + 1) * PANEL;
            // In fourteen bits of two's complement, turning the topmost one adds 64 · 128.
            let high_bytes = quantized.map(|q| ((q >> 7) & 127) as u8 ^ BIAS as u8);
            high[own.clone()].copy_from_slice(&high_bytes);
            low[own].copy_from_slice(&quantized.map(|q| (q & 127) as u8));
        }
    }
}

#[cfg(test)]
mod tests;
