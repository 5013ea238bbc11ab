//! W_ih as the recurrence reads it where it projects rows itself.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/input_weights.rs"]
mod cpu;

use std::marker::PhantomData;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Scope, arguments};
use megabatch_nn::Result;

use super::GATES;
use super::operand::{Operand, TensorSlice};
use super::recurrent_weights::{PTX, is_of_a_block, persistent_units};
use super::work_list::WorkList;

/// Numbers of a row up to which the recurrence projects it: those of recurrence_of_rows.cu.
const WIDEST: usize = 64;

/// Numbers that a product takes at a time.
const DEPTH: usize = 16;

/// W_ih of every sequence of a work list, and the sums of both biases: on a GPU in the order in
/// which the lanes of the kernel's warps load it. To be set after every step of the optimizer.
#[derive(Debug)]
pub struct InputWeights<T: Operand> {
    hidden: usize,
    /// F of each sequence.
    features: Vec<usize>,
    /// `[H, 4, F]` of each on the CPU.
    #[cfg(feature = "conformance")]
    pub(super) rows: Vec<Buffer<T>>,
    /// On a GPU, two elements a number.
    pub(super) fragments: Buffer<u32>,
    /// `[sequences, H, 4]`.
    pub(super) bias: Buffer<f32>,
    operands: PhantomData<T>,
}

impl<T: Operand> InputWeights<T> {
    /// True if the recurrence can project rows of such widths for layers of H hidden units: 16
    /// bits, even H ≤ 128, F ≤ 64.
    pub fn are_possible(hidden: usize, features: &[usize]) -> bool {
        let is_narrow = |&features: &usize| (1..=WIDEST).contains(&features);
        T::IS_NARROW && persistent_units::<T>(hidden).is_some_and(is_of_a_block) && features.iter().all(is_narrow)
    }

    /// Weights of zero, for sequences whose rows have so many numbers.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    ///
    /// # Panics
    /// If they are not [possible](InputWeights::are_possible).
    pub fn zeros(scope: &Scope, hidden: usize, features: &[usize]) -> Result<Self> {
        assert!(InputWeights::<T>::are_possible(hidden, features), "{hidden} units that read {features:?} numbers");
        let is_on_gpu = !matches!(scope.device(), Device::Cpu(_));
        let len = if is_on_gpu { features.len() * fragments_len::<T>(hidden, features) } else { 0 };
        Ok(InputWeights {
            hidden,
            features: features.to_vec(),
            #[cfg(feature = "conformance")]
            rows: cpu::rows(scope, hidden, features)?,
            fragments: Buffer::zeros(scope, len)?,
            bias: Buffer::zeros(scope, features.len() * GATES * hidden)?,
            operands: PhantomData,
        })
    }

    /// Weights of zero where they are [possible](InputWeights::are_possible).
    pub(crate) fn where_possible(scope: &Scope, hidden: usize, features: &[usize]) -> Result<Option<Self>> {
        let are_possible = InputWeights::<T>::are_possible(hidden, features);
        are_possible.then(|| InputWeights::zeros(scope, hidden, features)).transpose()
    }

    /// Sets those of a sequence: `weight` `[H, 4, F]` and `bias` `[H, 4]`, zero where there is
    /// none.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
    ///
    /// # Panics
    /// If a buffer ends too early or is on another device, and if there is no such sequence.
    pub fn set(
        &mut self,
        sequence: usize,
        weight: TensorSlice<'_, T>,
        bias: Option<TensorSlice<'_, f32>>,
    ) -> Result<()> {
        let (gates, features) = (GATES * self.hidden, self.features[sequence]);
        let device = self.bias.scope().device().clone();
        weight.assert_has(gates * features, &device);
        bias.iter().for_each(|bias| bias.assert_has(gates, &device));
        let Device::Cuda(cuda) = &device else { return cpu_arm!(cpu::set(self, sequence, weight, bias)) };
        let (len, name) = (fragments_len::<T>(self.hidden, &self.features), format!("input_fragments_{}", T::SUFFIX));
        let kernel = Kernel { module: "nn/recurrent_weights", ptx: PTX, name: &name };
        let fragments = self.fragments.address() + (sequence * len * size_of::<u32>()) as u64;
        let (from, to) =
            (bias.map_or(0, |bias| bias.address()), self.bias.address() + (sequence * gates * size_of::<f32>()) as u64);
        let [hidden, features, width, len] =
            [self.hidden, features, width(&self.features), len].map(|size| size as u32);
        let arguments = arguments![weight.address(), from, fragments, to, hidden, features, width, len];
        // SAFETY: a thread reads elements of the weight's [4H, F] and one of the bias, and writes
        // one number of the sequence's own in each of the two. What is submitted to the default
        // stream later runs after it.
        Ok(unsafe { kernel.submit(cuda, Launch::for_threads(len as usize), &arguments) }?)
    }

    /// Doublings of 16 to the width that rows are padded to.
    pub(super) fn doublings(&self) -> u32 {
        (width(&self.features) / DEPTH).ilog2()
    }

    pub(super) fn assert_fit(&self, list: &WorkList) {
        let features: Vec<usize> = list.places().iter().map(|place| place.features as usize).collect();
        assert_eq!((self.hidden, &self.features), (list.hidden(), &features), "input weights of the list");
        list.device().assert_beside(self.bias.scope().device());
    }
}

/// Padded width of rows: 16, 32 or 64 numbers.
fn width(features: &[usize]) -> usize {
    features.iter().copied().max().unwrap_or(1).next_power_of_two().max(DEPTH)
}

/// Numbers of a sequence.
fn fragments_len<T: Operand>(hidden: usize, features: &[usize]) -> usize {
    persistent_units::<T>(hidden).map_or(0, |units| 2 * units * width(features))
}

#[cfg(test)]
pub(super) fn fragments_by_kernel<T: Operand>(weights: &InputWeights<T>) -> (Vec<[u32; 4]>, Vec<f32>) {
    use megabatch_simt::Arg;

    let (hidden, len) = (weights.hidden, fragments_len::<T>(weights.hidden, &weights.features));
    let (mut fragments, mut biases) = (Vec::new(), Vec::new());
    for (sequence, rows) in weights.rows.iter().enumerate() {
        let (mut row_fragments, mut bias) = (vec![0u32; len], vec![0.0f32; GATES * hidden]);
        let from = &weights.bias.as_slice()[sequence * GATES * hidden..][..GATES * hidden];
        let numbers = [hidden, weights.features[sequence], width(&weights.features), len];
        let mut arguments = vec![
            Arg::from(rows.as_slice()),
            Arg::from(from),
            Arg::from(&mut row_fragments[..]),
            Arg::from(&mut bias[..]),
        ];
        arguments.extend(numbers.map(|number| Arg::from(number as u32)));
        super::harness::HARNESS.run(
            &format!("input_fragments_{}", T::SUFFIX),
            Launch::for_threads(len),
            &mut arguments,
        );
        drop(arguments);
        fragments.extend_from_slice(bytemuck::cast_slice(&row_fragments));
        biases.extend(bias);
    }
    (fragments, biases)
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn rows_are_padded_to_what_a_product_takes() {
        for (features, doublings) in [(1, 0), (16, 0), (17, 1), (32, 1), (33, 2), (64, 2)] {
            let weights = InputWeights::<bf16>::zeros(&Device::cpu().scope("test"), 6, &[1, features]).unwrap();
            assert_eq!(weights.doublings(), doublings, "{features}");
        }
        for (hidden, features, is_possible) in
            [(128, 64, true), (129, 64, false), (128, 65, false), (2, 0, false), (5, 1, false)]
        {
            assert_eq!(InputWeights::<bf16>::are_possible(hidden, &[1, features]), is_possible, "{hidden} {features}");
        }
        assert!(!InputWeights::<f32>::are_possible(6, &[1]));
    }
}
