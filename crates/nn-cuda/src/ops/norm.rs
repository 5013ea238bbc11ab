//! Layer normalisation of rows, as torch.nn.LayerNorm: y = γ · x̂ + β with x̂ = (x - mean) /
//! √(variance + 1e-5), the variance being the mean square of what is left of x after the mean. Sums
//! over a row and over rows have a fixed order, so that the bits are the same on every device.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/norm.rs"]
mod cpu;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};
use megabatch_nn::Result;

use super::matmul::add_parts;
use super::operand::{Operand, TensorSlice};
use super::product_kind::Output;
use super::scratch::Scratch;

/// Warps of a block, and rows and columns of one that adds columns: those of norm.cu.
const WARPS: usize = 8;
const ROWS: usize = 256;
const COLUMNS: usize = 32;

const PTX: &str = megabatch_gpu_core::ptx!("norm");

/// Scale and shift of normalised rows, `[width]` each.
#[derive(Clone, Copy, Debug)]
pub struct NormWeights<'a> {
    /// γ.
    pub weight: TensorSlice<'a, f32>,
    /// β.
    pub bias: TensorSlice<'a, f32>,
}

/// Inputs of the backward pass of a norm.
#[derive(Clone, Copy, Debug)]
pub struct Normed<'a, T: Operand> {
    /// Number of rows.
    pub rows: usize,
    /// Numbers in a row.
    pub width: usize,
    /// The rows before the norm, `[rows, width]`.
    pub x: TensorSlice<'a, T>,
    /// Moments from [`layer_norm`].
    pub moments: &'a Buffer<f32>,
    /// γ, `[width]`.
    pub weight: TensorSlice<'a, f32>,
}

/// Writes the rows of `x` `[rows, width]` after the norm to `to` from its start on, rounded to its
/// type: that of `x`, or f32. `moments` `[rows, 2]` gets the mean of each row and one over its
/// standard deviation, for the backward pass.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
///
/// # Panics
/// If a buffer ends too early for the shape, and if they are on several devices.
pub fn layer_norm<From: Operand, To: Operand>(
    x: TensorSlice<'_, From>,
    weights: NormWeights<'_>,
    rows: usize,
    width: usize,
    to: &mut Buffer<To>,
    start: usize,
    moments: &mut Buffer<f32>,
) -> Result<()> {
    let device = to.scope().device().clone();
    x.assert_has(rows * width, &device);
    [weights.weight, weights.bias].iter().for_each(|part| part.assert_has(width, &device));
    TensorSlice { buffer: to, start }.assert_has(rows * width, &device);
    TensorSlice::from(&*moments).assert_has(2 * rows, &device);
    match &device {
        Device::Cuda(device) => {
            let name = kernel::<From, To>();
            let kernel = Kernel { module: "nn/norm", ptx: PTX, name: &name };
            let (weight, bias) = (weights.weight.address(), weights.bias.address());
            let to = TensorSlice { buffer: to, start }.address();
            let arguments =
                arguments![x.address(), weight, bias, to, moments.address(), rows as u64, width as u32, share(width)];
            // SAFETY: a warp reads a row of `x`, and writes one of `to` and its moments, which the
            // buffers were seen to have. What is submitted to the default stream later runs after
            // it.
            Ok(unsafe { kernel.submit(device, launch_by_row(rows), &arguments) }?)
        }
        _ => cpu_arm!({
            let [weight, bias] = [weights.weight, weights.bias].map(|part| &part.elements()[..width]);
            let to = &mut to.as_mut_slice()[start..][..rows * width];
            cpu::layer_norm(&x.elements()[..rows * width], weight, bias, to, moments.as_mut_slice());
        }),
    }
}

/// Replaces the gradient of normalised rows, `d` `[rows, width]` from element `start` on, by that
/// of the rows, and adds those of γ and β to the `width` elements of `gradients` from each of
/// `starts` on.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of a launch, or that there
/// is no memory for the sums of every 256 rows, in `scratch`.
///
/// # Panics
/// If a buffer ends too early for the shape, and if they are on several devices.
pub fn layer_norm_backward<T: Operand>(
    normed: Normed<'_, T>,
    d: &mut Buffer<f32>,
    start: usize,
    gradients: &mut Buffer<f32>,
    starts: [usize; 2],
    scratch: &mut Scratch,
) -> Result<()> {
    let (device, Normed { rows, width, .. }) = (d.scope().device().clone(), normed);
    normed.x.assert_has(rows * width, &device);
    normed.weight.assert_has(width, &device);
    TensorSlice::from(normed.moments).assert_has(2 * rows, &device);
    TensorSlice { buffer: d, start }.assert_has(rows * width, &device);
    starts.iter().for_each(|&start| TensorSlice { buffer: gradients, start }.assert_has(width, &device));
    scratch.assert_beside(&device);
    match &device {
        Device::Cuda(device) => cuda_backward(device, normed, d, start, gradients, starts, scratch),
        _ => cpu_arm!({
            let d = &mut d.as_mut_slice()[start..][..rows * width];
            cpu::layer_norm_backward(normed, d, gradients.as_mut_slice(), starts);
        }),
    }
}

/// Scratch length for [`layer_norm_backward`] of up to `rows` rows.
pub(crate) fn norm_partials_len(rows: usize, width: usize) -> usize {
    2 * rows.div_ceil(ROWS) * width
}

fn cuda_backward<T: Operand>(
    device: &Cuda,
    normed: Normed<'_, T>,
    d: &mut Buffer<f32>,
    start: usize,
    gradients: &mut Buffer<f32>,
    starts: [usize; 2],
    scratch: &mut Scratch,
) -> Result<()> {
    let Normed { rows, width, .. } = normed;
    let chunks = rows.div_ceil(ROWS);
    let parts = scratch.address_of::<f32>(norm_partials_len(rows, width))?;
    let names = ["norm_columns", "norm_backward"].map(|name| format!("{name}_{}", T::SUFFIX));
    let [columns, backward] = [0, 1].map(|k| Kernel { module: "nn/norm", ptx: PTX, name: &names[k] });
    let (x, moments, weight) = (normed.x.address(), normed.moments.address(), normed.weight.address());
    let d = TensorSlice { buffer: d, start }.address();
    let column_arguments = arguments![x, moments, d, parts, rows as u64, width as u32];
    let backward_arguments = arguments![x, weight, moments, d, rows as u64, width as u32, share(width)];
    // SAFETY: blocks read within the shape, which the buffers were seen to have, and write parts of
    // their own, or a row of `d` by each warp. The launches run one after another in the order of
    // the default stream.
    unsafe {
        columns.submit(device, launch_by_column(rows, width), &column_arguments)?;
        for (which, start) in starts.into_iter().enumerate() {
            let parts = parts + (which * chunks * width * size_of::<f32>()) as u64;
            let to = TensorSlice { buffer: gradients, start }.address();
            add_parts(device, parts, chunks, to, width, Output::Add)?;
        }
        Ok(backward.submit(device, launch_by_row(rows), &backward_arguments)?)
    }
}

/// A warp for each row.
fn launch_by_row(rows: usize) -> Option<Launch> {
    Launch::for_blocks(rows.div_ceil(WARPS)).map(|launch| launch.with_threads(32 * WARPS as u32))
}

fn launch_by_column(rows: usize, width: usize) -> Option<Launch> {
    let blocks = Launch::for_blocks(rows.div_ceil(ROWS) * width.div_ceil(COLUMNS));
    blocks.map(|launch| launch.with_threads((COLUMNS * WARPS) as u32))
}

fn kernel<From: Operand, To: Operand>() -> String {
    assert!(From::SUFFIX == To::SUFFIX || !To::IS_NARROW, "normalised rows are of their type, or of f32");
    format!("norm_{}_{}", From::SUFFIX, To::SUFFIX)
}

fn share(width: usize) -> f32 {
    1.0 / width as f32
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_reference::parts::{self, Parameter};
    use megabatch_reference::wide;
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, noise};
    use super::*;

    /// Rows before a norm and their weights; gradients of the rows after it; gradients of weight
    /// and bias before these are added.
    struct Example<T: Operand> {
        shape: [usize; 2],
        x: Buffer<T>,
        parameters: Buffer<f32>,
        d: Vec<f32>,
        gradients: Vec<f32>,
    }

    impl<T: Operand> Example<T> {
        fn new(rows: usize, width: usize) -> Self {
            let scope = Device::cpu().scope("test");
            let x: Vec<T> = noise("x", rows * width, 2.0).into_iter().map(|x| T::narrow(x + 1.0)).collect();
            Example {
                shape: [rows, width],
                x: Buffer::from_slice(&scope, &x).unwrap(),
                parameters: Buffer::from_slice(&scope, &noise("weights", 2 * width, 2.0)).unwrap(),
                d: noise("d", rows * width, 1.0),
                gradients: noise("gradients", 2 * width + 1, 1.0),
            }
        }

        fn weights(&self) -> NormWeights<'_> {
            let [weight, bias] = [0, self.shape[1]].map(|start| TensorSlice { buffer: &self.parameters, start });
            NormWeights { weight, bias }
        }

        /// Rows after the norm, in f32, and moments.
        fn forward<To: Operand>(&self) -> (Vec<f32>, Buffer<f32>) {
            let ([rows, width], scope) = (self.shape, Device::cpu().scope("test"));
            let mut expected = Buffer::<To>::zeros(&scope, rows * width).unwrap();
            let mut moments = Buffer::zeros(&scope, 2 * rows).unwrap();
            layer_norm((&self.x).into(), self.weights(), self.shape[0], self.shape[1], &mut expected, 0, &mut moments)
                .unwrap();
            let (mut found, mut kept) = (vec![To::narrow(9.0); rows * width], vec![9.0f32; 2 * rows]);
            let [weight, bias] =
                [self.weights().weight, self.weights().bias].map(|part| Arg::from(&part.elements()[..width]));
            let numbers = [Arg::from(rows as u64), Arg::from(width as u32), Arg::from(share(width))];
            let arguments =
                [Arg::from(self.x.as_slice()), weight, bias, Arg::from(&mut found[..]), Arg::from(&mut kept[..])];
            let mut arguments: Vec<_> = arguments.into_iter().chain(numbers).collect();
            HARNESS.run(&kernel::<T, To>(), launch_by_row(rows), &mut arguments);
            drop(arguments);
            let wide = |values: &[To]| values.iter().map(|x| x.widen()).collect::<Vec<f32>>();
            assert_eq!(wide(&found), wide(expected.as_slice()), "{:?} {}", self.shape, kernel::<T, To>());
            assert_eq!(kept, moments.as_slice());
            (wide(&found), moments)
        }

        /// Gradients of the rows, and of weight and bias.
        fn backward(&self, moments: &Buffer<f32>) -> (Vec<f32>, Vec<f32>) {
            let ([rows, width], scope) = (self.shape, Device::cpu().scope("test"));
            let normed = Normed { rows, width, x: (&self.x).into(), moments, weight: self.weights().weight };
            let mut expected = Buffer::from_slice(&scope, &self.d).unwrap();
            let mut gradients = Buffer::from_slice(&scope, &self.gradients).unwrap();
            let (starts, mut scratch) = ([1 + width, 1], Scratch::empty(&scope).unwrap());
            layer_norm_backward(normed, &mut expected, 0, &mut gradients, starts, &mut scratch).unwrap();

            let chunks = rows.div_ceil(ROWS);
            let (mut parts, mut found) = (vec![f32::NAN; 2 * chunks * width], self.d.clone());
            let numbers = || [Arg::from(rows as u64), Arg::from(width as u32)];
            let arguments = [self.x.as_slice()].map(Arg::from).into_iter();
            let arguments =
                arguments.chain([Arg::from(moments.as_slice()), Arg::from(&found[..]), Arg::from(&mut parts[..])]);
            let mut arguments: Vec<_> = arguments.chain(numbers()).collect();
            HARNESS.run(
                &format!("norm_columns_{}", T::SUFFIX),
                launch_by_column(self.shape[0], self.shape[1]),
                &mut arguments,
            );
            drop(arguments);
            for (which, start) in [1 + width, 1].into_iter().enumerate() {
                for column in 0..width {
                    let part = |chunk: usize| parts[(which * chunks + chunk) * width + column];
                    let sum = (0..chunks).fold(self.gradients[start + column], |sum, chunk| sum + part(chunk));
                    assert_eq!(sum, gradients.as_slice()[start + column], "{:?}, gradient {which}", self.shape);
                }
            }
            let arguments =
                [Arg::from(self.x.as_slice()), Arg::from(&self.weights().weight.elements()[..width])].into_iter();
            let arguments =
                arguments.chain([Arg::from(moments.as_slice()), Arg::from(&mut found[..])]).chain(numbers());
            let mut arguments: Vec<_> = arguments.chain([Arg::from(share(width))]).collect();
            HARNESS.run(&format!("norm_backward_{}", T::SUFFIX), launch_by_row(rows), &mut arguments);
            drop(arguments);
            assert_eq!(found, expected.as_slice(), "{:?} {}", self.shape, T::SUFFIX);
            (found, gradients.as_slice().to_vec())
        }

        /// The definition, in double precision.
        fn assert_near_the_definition(&self) {
            let width = self.shape[1];
            let parameter = |name: &str, values: &[f32]| Parameter {
                name: format!("norm.{name}"),
                shape: vec![width],
                values: wide(values),
            };
            let (weight, bias) = self.parameters.as_slice().split_at(width);
            let parameters = vec![parameter("weight", weight), parameter("bias", bias)];
            let x: Vec<f32> = self.x.as_slice().iter().map(|x| x.widen()).collect();
            let expected = parts::layer_norm(parameters, width, &wide(&x), &wide(&self.d));

            let (found, moments) = self.forward::<f32>();
            let (found_d, found_gradients) = self.backward(&moments);
            let close = |found: &[f32], expected: &[f64], tolerance: f64| {
                let off = |(found, expected): (&f32, &f64)| {
                    (f64::from(*found) - expected).abs() > tolerance * (1.0 + expected.abs())
                };
                assert!(!found.iter().zip(expected).any(off), "{:?}: {found:?} for {expected:?}", self.shape);
            };
            close(&found, &expected.result, 1e-5);
            close(&found_d, &expected.d_input, 1e-4);
            let sums = |name: &str, start: usize| -> Vec<f64> {
                let before = wide(&self.gradients[start..start + width]).into_iter();
                before.zip(&expected.d_parameters[name]).map(|(before, term)| before + term).collect()
            };
            close(&found_gradients[1 + width..], &sums("norm.weight", 1 + width), 1e-4);
            close(&found_gradients[1..=width], &sums("norm.bias", 1), 1e-4);
        }
    }

    #[test]
    fn the_kernels_have_the_cpus_bits_and_these_are_near_the_definition() {
        for shape in [[1, 2], [3, 32], [9, 33], [300, 5], [17, 130]] {
            Example::<f32>::new(shape[0], shape[1]).assert_near_the_definition();
            Example::<f16>::new(shape[0], shape[1]).assert_near_the_definition();
            Example::<bf16>::new(shape[0], shape[1]).assert_near_the_definition();
            Example::<f16>::new(shape[0], shape[1]).forward::<f16>();
            Example::<bf16>::new(shape[0], shape[1]).forward::<bf16>();
        }
    }

    #[test]
    fn no_rows_are_nothing() {
        let example = Example::<f32>::new(0, 4);
        let (_, moments) = example.forward::<f32>();
        assert_eq!(example.backward(&moments).1, example.gradients);
    }
}
