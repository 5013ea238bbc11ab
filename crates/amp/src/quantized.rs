//! Weights in eight bits, for inference.
//!
//! ```text
//! w ≈ scale[n] · q[n][k]        scale[n] = max|w[n]| / 127, of each output channel n, once
//! ```
//!
//! (Symmetric quantisation by the largest magnitude, as in Jacob et al., "Quantization and training
//! of neural networks for efficient integer-arithmetic-only inference", 2018, without the zero
//! point.)

use crate::accuracy::Accuracy;
use crate::error::{Error, Result};
use crate::trace::first_non_finite;
use megabatch_gpu_core::isa::{Isa, Loops};

/// Magnitude of the largest quantised number.
const GREATEST: f32 = 127.0;

/// Inputs up to which a sum of products with quantised activations fits 32 bits: each product is at
/// most 255 · 127.
const INPUTS_MAX: usize = 65_536;

/// A matrix of weights, `[outputs, inputs]` as in `torch.nn.Linear`, in eight bits.
#[derive(Clone, Debug)]
pub struct QuantizedMatrix {
    /// `[outputs, inputs]`, row-major.
    weights: Vec<i8>,
    /// One an output.
    scales: Vec<f32>,
    inputs: usize,
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
            Isa::best().run(Quantize { weights: &weights[row.clone()], quantized: &mut rows[row] })
        });
        let scales = scales.collect();
        Ok(QuantizedMatrix { weights: rows, scales, inputs })
    }

    /// Numbers of outputs and inputs.
    pub fn shape(&self) -> [usize; 2] {
        [self.scales.len(), self.inputs]
    }

    /// The quantised weight of an output and an input, from -127 to 127.
    ///
    /// # Panics
    /// If there is no such output or input.
    pub fn at(&self, output: usize, input: usize) -> i8 {
        let [outputs, inputs] = self.shape();
        assert!(output < outputs && input < inputs, "[{output}, {input}] of [{outputs}, {inputs}]");
        self.weights[output * inputs + input]
    }

    /// Scale of the quantised weights, one per output.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// The dequantised weights, `[outputs, inputs]`, row-major.
    pub fn dequantized(&self) -> Vec<f32> {
        let rows = self.weights.chunks_exact(self.inputs.max(1)).zip(&self.scales);
        rows.flat_map(|(row, scale)| row.iter().map(move |&q| f32::from(q) * scale)).collect()
    }

    /// Accuracy against `weights`, from which it was made.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn accuracy(&self, weights: &[f32]) -> Accuracy {
        Accuracy::new(weights, &self.dequantized())
    }
}

/// Quantises a row of finite weights and gives its scale: 0 where all are so small that 127 over
/// the largest overflows.
struct Quantize<'a> {
    weights: &'a [f32],
    quantized: &'a mut [i8],
}

impl Loops for Quantize<'_> {
    type Output = f32;

    #[inline(always)]
    fn run(self) -> f32 {
        /// Added to a number below 2²² and taken away, it leaves the nearest integer.
        const ROUNDING: f32 = 12_582_912.0;
        let greatest = self.weights.iter().fold(0.0f32, |greatest, weight| greatest.max(weight.abs()));
        let inverse = GREATEST / greatest;
        if !inverse.is_finite() {
            self.quantized.fill(0);
            return 0.0;
        }
        for (&weight, quantized) in self.weights.iter().zip(self.quantized) {
            let rounded = weight * inverse + ROUNDING;
            *quantized = rounded.to_bits() as i8;
        }
        greatest / GREATEST
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn channels_have_scales_of_their_own() {
        let weights = [1e-6f32, -2e-6, 3e6, 1e6, 0.0, 0.0];
        let matrix = QuantizedMatrix::quantize(&weights, 3, 2).unwrap();
        let close = |(found, exact): (&f32, &f32)| (found - exact).abs() <= exact.abs() * 0.01;
        assert!(matrix.dequantized().iter().zip(&weights).all(close), "{:?}", matrix.dequantized());
        assert_eq!(matrix.shape(), [3, 2]);
        assert_eq!([matrix.at(0, 0), matrix.at(0, 1), matrix.at(1, 0), matrix.at(2, 1)], [64, -127, 127, 0]);
        assert_eq!(matrix.scales(), [2e-6 / 127.0, 3e6 / 127.0, 0.0]);
    }

    #[test]
    fn weights_are_as_accurate_as_their_bits() {
        let weights: Vec<f32> = (0..128 * 256).map(|k| (k as f32 * 0.7).sin() * (k as f32 * 1.3).cos()).collect();
        let accuracy = QuantizedMatrix::quantize(&weights, 128, 256).unwrap().accuracy(&weights);
        // Errors are uniform within half a step of 1/127, 1/440 in the root of the mean square,
        // beside 1/2 of the numbers.
        assert!((accuracy.sqnr_db - 46.8).abs() < 1.0, "{accuracy}");
        assert!(accuracy.max_error <= 0.5 / 127.0 * 1.001, "{accuracy}");
    }

    #[test]
    fn what_cannot_be_quantised_is_refused() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = QuantizedMatrix::quantize(&[0.0, 1.0, 2.0, 3.0, bad, 5.0], 2, 3).unwrap_err();
            assert_eq!(error, Error::NotFiniteWeight { output: 1, input: 1 });
        }
        let error = QuantizedMatrix::quantize(&vec![0.0; INPUTS_MAX + 1], 1, INPUTS_MAX + 1).unwrap_err();
        assert!(error.to_string().starts_with("inputs: "), "{error}");
        // The least number, whose inverse overflows.
        let least = QuantizedMatrix::quantize(&[f32::from_bits(1), 0.0], 1, 2).unwrap();
        assert_eq!((least.scales(), least.at(0, 0)), (&[0.0][..], 0));
        for shape in [[3, 0], [0, 3]] {
            assert_eq!(QuantizedMatrix::quantize(&[], shape[0], shape[1]).unwrap().shape(), shape);
        }
    }

    proptest! {
        /// A row is scaled by 127 over its largest magnitude and rounded to the nearest, ties to
        /// even.
        #[test]
        fn agrees_with_the_formula(weights in prop::collection::vec(-1.0f32..1.0, 1..70), exponent in -30i32..30) {
            let weights: Vec<f32> = weights.into_iter().map(|weight| weight * 2f32.powi(exponent)).collect();
            let matrix = QuantizedMatrix::quantize(&weights, 1, weights.len()).unwrap();
            let greatest = weights.iter().fold(0.0f32, |greatest, weight| greatest.max(weight.abs()));
            prop_assert_eq!(matrix.scales(), [greatest / 127.0]);
            let inverse = if greatest == 0.0 { 0.0 } else { 127.0 / greatest };
            for (k, weight) in weights.iter().enumerate() {
                prop_assert_eq!(i32::from(matrix.at(0, k)), (weight * inverse).round_ties_even() as i32);
            }
        }
    }
}
