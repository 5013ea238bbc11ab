//! W_hh as the recurrence reads it.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Scope, arguments};
use megabatch_nn::Result;

use super::GATES;
use super::gate_rows::{GateRows, GateTensor, interleave};
use super::operand::{Operand, TensorSlice};
use super::work_list::WorkList;

pub(super) const PTX: &str = megabatch_gpu_core::ptx!("recurrent_weights");

/// Units up to which a block of threads holds all of W_hh in its registers.
const BLOCK_UNITS: usize = 128;

/// Units up to which a group of blocks does.
const GROUP_UNITS: usize = 512;

/// W_hh of every sequence of a work list: `[sequences, H, 4, H]` and, for the persistent kernels,
/// the same in the order in which the lanes of their warps hold it. To be set after every step of
/// the optimizer.
#[derive(Debug)]
pub struct RecurrentWeights<T: Operand> {
    hidden: usize,
    sequences: usize,
    parameter_rows: GateRows,
    rows: Buffer<T>,
    pub(super) fragments: Option<Fragments>,
}

/// For the persistent kernels: of 16 bits two elements a number, of f32 the bits of one.
#[derive(Debug)]
pub(super) struct Fragments {
    pub(super) units: usize,
    pub(super) forward: Buffer<u32>,
    pub(super) backward: Buffer<u32>,
}

impl<T: Operand> RecurrentWeights<T> {
    /// Weights of zero for layers of H hidden units, one a sequence, which begin at these elements
    /// of the parameters.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn zeros(scope: &Scope, hidden: usize, starts: &[usize]) -> Result<Self> {
        let (sequences, len) = (starts.len(), GATES * hidden * hidden);
        let is_on_gpu = !matches!(scope.device(), Device::Cpu(_));
        let units = if is_on_gpu { persistent_units::<T>(hidden) } else { None };
        let tensor = |(s, &start): (usize, &usize)| GateTensor {
            start,
            other: None,
            place: s * len,
            width: hidden,
            stride: hidden,
        };
        Ok(RecurrentWeights {
            hidden,
            sequences,
            parameter_rows: GateRows::new(scope, hidden, &starts.iter().enumerate().map(tensor).collect::<Vec<_>>())?,
            rows: Buffer::zeros(scope, sequences * len)?,
            fragments: units.map(|units| Fragments::zeros::<T>(scope, units, sequences)).transpose()?,
        })
    }

    /// The weight of a sequence, `[H, 4, H]`.
    pub(super) fn matrix(&self, sequence: u32) -> TensorSlice<'_, T> {
        TensorSlice { buffer: &self.rows, start: sequence as usize * GATES * self.hidden * self.hidden }
    }

    /// Sets all weights to those of `parameters`, `[4H, H]` each in PyTorch's order, rounded to
    /// this type.
    ///
    /// # Errors
    /// As [`interleave`].
    ///
    /// # Panics
    /// As [`interleave`].
    pub fn set(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        interleave(&self.parameter_rows, parameters, &mut self.rows)?;
        match (&mut self.fragments, parameters.scope().device()) {
            (Some(fragments), Device::Cuda(device)) => {
                let (len, name) = (fragments.forward.len(), kernel::<T>(fragments.units));
                let kernel = Kernel { module: "nn/recurrent_weights", ptx: PTX, name: &name };
                let (forward, backward) = (fragments.forward.address(), fragments.backward.address());
                let (hidden, units) = (self.hidden as u32, fragments.units as u32);
                let arguments = arguments![self.rows.address(), forward, backward, hidden, units, len as u32];
                // SAFETY: a thread reads elements of its sequence's [4H, H] of `rows`, and writes
                // one number in each of the two. What is submitted to the default stream later runs
                // after it.
                Ok(unsafe { kernel.submit(device, Launch::for_threads(len), &arguments) }?)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn assert_fit(&self, list: &WorkList) {
        assert_eq!((self.hidden, self.sequences), (list.hidden(), list.places().len()), "weights of the list");
        list.device().assert_beside(self.rows.scope().device());
    }
}

impl Fragments {
    /// True if one block holds them, not a group.
    pub(super) fn are_of_a_block(&self) -> bool {
        is_of_a_block(self.units)
    }

    fn zeros<T: Operand>(scope: &Scope, units: usize, sequences: usize) -> Result<Self> {
        let len = sequences * Fragments::len_of::<T>(units);
        Ok(Fragments { units, forward: Buffer::zeros(scope, len)?, backward: Buffer::zeros(scope, len)? })
    }

    /// Numbers of a sequence.
    fn len_of<T: Operand>(units: usize) -> usize {
        units * units * size_of::<T>()
    }
}

/// Units that the persistent kernel for H is made for, if there is one: 32, 64, 128 and, of 16
/// bits, 256, 384 or 512. Those of 16 bits that a block holds are read two at a time, so that H is
/// even.
pub(super) fn persistent_units<T: Operand>(hidden: usize) -> Option<usize> {
    if !is_of_a_block(hidden) {
        let units = hidden.next_multiple_of(BLOCK_UNITS);
        return (T::IS_NARROW && units <= GROUP_UNITS).then_some(units);
    }
    (!T::IS_NARROW || hidden.is_multiple_of(2)).then(|| block_units(hidden))
}

/// Units that the kernels of one block are made for, of which the smallest that has H.
pub(super) fn block_units(hidden: usize) -> usize {
    hidden.next_power_of_two().max(32)
}

/// True if one block of threads holds all of W_hh of so many units, not a group.
pub(super) fn is_of_a_block(units: usize) -> bool {
    units <= BLOCK_UNITS
}

fn kernel<T: Operand>(units: usize) -> String {
    let group_prefix = if is_of_a_block(units) { "" } else { "group_" };
    format!("{group_prefix}fragments_{}", T::SUFFIX)
}

/// Result of [`RecurrentWeights::set`] on a GPU, for the tests of the persistent kernels:
#[cfg(test)]
pub(super) fn fragments_by_kernel<T: Operand>(weights: &RecurrentWeights<T>) -> [Vec<[u32; 4]>; 2] {
    use megabatch_simt::Arg;

    let units = persistent_units::<T>(weights.hidden).unwrap();
    let len = weights.sequences * Fragments::len_of::<T>(units);
    let (mut forward, mut backward) = (vec![0u32; len], vec![0u32; len]);
    let mut arguments = [
        Arg::from(weights.rows.as_slice()),
        Arg::from(&mut forward[..]),
        Arg::from(&mut backward[..]),
        Arg::from(weights.hidden as u32),
        Arg::from(units as u32),
        Arg::from(len as u32),
    ];
    super::harness::HARNESS.run(&kernel::<T>(units), Launch::for_threads(len), &mut arguments);
    [forward, backward].map(|numbers| bytemuck::cast_slice::<u32, [u32; 4]>(&numbers).to_vec())
}

/// The same in f32.
#[cfg(test)]
pub(super) fn f32_fragments_by_kernel(weights: &RecurrentWeights<f32>) -> [Vec<[f32; 4]>; 2] {
    use megabatch_simt::Arg;

    let units = persistent_units::<f32>(weights.hidden).unwrap();
    let len = weights.sequences * Fragments::len_of::<f32>(units);
    let (mut forward, mut backward) = (vec![0f32; len], vec![0f32; len]);
    let mut arguments =
        vec![Arg::from(weights.rows.as_slice()), Arg::from(&mut forward[..]), Arg::from(&mut backward[..])];
    arguments.extend([weights.hidden, units, len].map(|number| Arg::from(number as u32)));
    super::harness::HARNESS.run(&kernel::<f32>(units), Launch::for_threads(len), &mut arguments);
    [forward, backward].map(|numbers| bytemuck::cast_slice::<f32, [f32; 4]>(&numbers).to_vec())
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn a_kernel_is_found_for_every_width_that_fits() {
        let cases =
            [(2, 32), (32, 32), (34, 64), (66, 128), (128, 128), (129, 256), (257, 384), (385, 512), (512, 512)];
        for (hidden, units) in cases {
            assert_eq!(persistent_units::<bf16>(hidden), Some(units));
        }
        assert_eq!((persistent_units::<f16>(513), persistent_units::<f32>(129)), (None, None));
        assert_eq!((persistent_units::<bf16>(33), persistent_units::<f32>(33)), (None, Some(64)));
        assert_eq!((persistent_units::<f32>(8), persistent_units::<f32>(128)), (Some(32), Some(128)));
    }
}
