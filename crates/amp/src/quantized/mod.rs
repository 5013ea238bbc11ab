//! Products with weights in eight bits, for inference.
//!
//! ```text
//! w ≈ scale[n] · q[n][k]        scale[n] = max|w[n]| / 127, of each output channel n, once
//! x ≈ scale[b] · q[b][k]        scale[b] = max|x[b]| / 127, of each row b, in each product
//! y[b][n] = (Σ q[b][k] · q[n][k]) · scale[b] · scale[n]
//! ```
//!
//! The sum is exact, in 32 bits: all forms of the kernel give the same bits. (Symmetric
//! quantisation by the largest magnitude, as in Jacob et al., "Quantization and training of neural
//! networks for efficient integer-arithmetic-only inference", 2018, without the zero point.)

mod accuracy;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "calls of vector instructions")]
mod avx2;
mod kernel;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "calls of vector instructions")]
mod vnni;

pub use accuracy::Accuracy;

use crate::error::{Error, Result};
use crate::trace::first_non_finite;
use kernel::{BIAS, KernelForm, PANEL, PackedWeights};
use megabatch_gpu_core::isa::{Isa, Loops};

/// Magnitude of the largest quantised number.
const GREATEST: f32 = 127.0;

/// Inputs up to which no sum of products overflows: each is at most 255 · 127.
const INPUTS_MAX: usize = 65_536;

/// Rows of activations quantised at a time: 32 KB with 512 inputs.
const ROWS: usize = 64;

/// A matrix of weights, `[outputs, inputs]` as in `torch.nn.Linear`, in eight bits.
#[derive(Clone, Debug)]
pub struct QuantizedMatrix {
    packed: PackedWeights,
    /// One an output.
    scales: Vec<f32>,
}

impl QuantizedMatrix {
    /// Quantises `weights`, `[outputs, inputs]`, row-major.
    ///
    /// # Errors
    /// [`Error::NotFiniteWeight`] where a weight is infinite or NaN, [`Error::Setting`] for more
    /// than 65,536 inputs, of which sums could overflow.
    ///
    /// # Panics
    /// If there are not outputs · inputs weights.
    pub fn quantize(weights: &[f32], outputs: usize, inputs: usize) -> Result<Self> {
        assert_eq!(weights.len(), outputs * inputs, "weights of [{outputs}, {inputs}]");
        if inputs > INPUTS_MAX {
            return Err(Error::setting("inputs", &inputs, "at most 65536 to a quantised matrix"));
        }
        if let Some(index) = first_non_finite(weights) {
            return Err(Error::NotFiniteWeight { output: index / inputs, input: index % inputs });
        }
        let mut rows = vec![0; outputs * inputs];
        let scales = (0..outputs).map(|n| {
            let row = n * inputs..(n + 1) * inputs;
            Isa::best().run(Quantize { from: &weights[row.clone()], to: &mut rows[row] })
        });
        let scales = scales.collect();
        Ok(QuantizedMatrix { packed: PackedWeights::new(&rows, outputs, inputs), scales })
    }

    /// Numbers of outputs and inputs.
    pub fn shape(&self) -> [usize; 2] {
        self.packed.shape
    }

    /// Bytes of the weights and their scales.
    pub fn bytes(&self) -> usize {
        self.packed.weights.len() + 8 * self.packed.shape[0]
    }

    /// The quantised weight of an output and an input, from -127 to 127.
    ///
    /// # Panics
    /// If there is no such output or input.
    pub fn at(&self, output: usize, input: usize) -> i8 {
        let [outputs, inputs] = self.shape();
        assert!(output < outputs && input < inputs, "[{output}, {input}] of [{outputs}, {inputs}]");
        self.packed.at(output, input)
    }

    /// Scale of the quantised weights, one per output.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// The dequantised weights, `[outputs, inputs]`, row-major.
    pub fn dequantized(&self) -> Vec<f32> {
        let [outputs, inputs] = self.shape();
        let at = |n: usize, k: usize| f32::from(self.packed.at(n, k)) * self.scales[n];
        (0..outputs).flat_map(|n| (0..inputs).map(move |k| at(n, k))).collect()
    }

    /// Accuracy against `weights`, from which it was made.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn accuracy(&self, weights: &[f32]) -> Accuracy {
        Accuracy::of(weights, &self.dequantized())
    }

    /// `out` = `x` · weightsᵀ, with `x` `[B, inputs]` and `out` `[B, outputs]`, row-major. A row
    /// with an infinity or a NaN gives a row of NaN.
    ///
    /// # Panics
    /// If `x` is not whole rows, or `out` not as many.
    pub fn multiply(&self, x: &[f32], out: &mut [f32]) {
        self.multiply_by(KernelForm::best(), x, out);
    }

    fn multiply_by(&self, form: KernelForm, x: &[f32], out: &mut [f32]) {
        let [outputs, inputs] = self.shape();
        if outputs == 0 || inputs == 0 {
            return out.fill(0.0);
        }
        assert!(x.len().is_multiple_of(inputs), "{} numbers in rows of {inputs}", x.len());
        assert_eq!(x.len() / inputs, out.len() / outputs, "rows of x, and of the product");
        let padded = self.packed.padded_inputs();
        let mut activations = vec![BIAS; ROWS.min(x.len() / inputs) * padded];
        let mut signed = vec![0; inputs];
        let mut row_scales = Vec::with_capacity(ROWS);
        for (x, out) in x.chunks(ROWS * inputs).zip(out.chunks_mut(ROWS * outputs)) {
            row_scales.clear();
            for (x, row) in x.chunks_exact(inputs).zip(activations.chunks_exact_mut(padded)) {
                row_scales.push(Isa::best().run(Quantize { from: x, to: &mut signed }));
                // The dot-product instructions take one operand unsigned.
                row.iter_mut().zip(&signed).for_each(|(biased, &q)| *biased = (q as u8).wrapping_add(BIAS));
            }
            let scales = (row_scales.as_slice(), self.scales.as_slice());
            form.multiply(
                &self.packed,
                &activations[..row_scales.len() * padded],
                &mut Scaled { scales, outputs, out },
            );
        }
    }
}

/// Destination of the kernel's sums, and their factors.
struct Scaled<'a> {
    /// Scales of rows and of outputs.
    scales: (&'a [f32], &'a [f32]),
    outputs: usize,
    out: &'a mut [f32],
}

impl Scaled<'_> {
    /// Scales and stores the sums of a row with the outputs of a panel; a panel may go beyond the
    /// last output.
    #[inline(always)]
    fn take(&mut self, row: usize, panel: usize, sums: &[i32; PANEL]) {
        let first = panel * PANEL;
        let outputs = first..self.outputs.min(first + PANEL);
        let scales = &self.scales.1[outputs.clone()];
        let out = &mut self.out[row * self.outputs..][outputs];
        for ((out, sum), scale) in out.iter_mut().zip(sums).zip(scales) {
            *out = *sum as f32 * (self.scales.0[row] * scale);
        }
    }
}

/// Quantises a row and gives its scale: NaN where a number is not finite, and 0 where all are so
/// small that 127 over the largest overflows.
struct Quantize<'a> {
    from: &'a [f32],
    to: &'a mut [i8],
}

impl Loops for Quantize<'_> {
    type Output = f32;

    #[inline(always)]
    fn run(self) -> f32 {
        /// Added to a number below 2²² and taken away, it leaves the nearest integer.
        const ROUNDING: f32 = 12_582_912.0;
        // As integers, magnitudes have the order of the numbers, and NaN stands above infinity.
        let greatest = self.from.iter().fold(0, |greatest, x| greatest.max(x.to_bits() & 0x7fff_ffff));
        let greatest = f32::from_bits(greatest);
        let inverse = GREATEST / greatest;
        if !greatest.is_finite() || !inverse.is_finite() {
            self.to.fill(0);
            return if greatest.is_finite() { 0.0 } else { f32::NAN };
        }
        for (&x, to) in self.from.iter().zip(self.to) {
            let rounded = x * inverse + ROUNDING;
            *to = rounded.to_bits() as i8;
        }
        greatest / GREATEST
    }
}

#[cfg(test)]
mod tests;
