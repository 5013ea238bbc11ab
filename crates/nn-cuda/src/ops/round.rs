//! Numbers in f32 rounded to those that a 16-bit type has, where they lie.

#![allow(unsafe_code, reason = "kernels are launched")]

use std::ops::Range;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, arguments};
use megabatch_nn::Result;

use super::operand::{Operand, TensorSlice};

/// Rounds every element of `x` to the nearest that `T` has, ties to even, and leaves it in f32; f32
/// stays as it is. That is what a run in 16 bits makes of the gradients that one layer hands to the
/// one below.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
pub fn round_to<T: Operand>(x: &mut Buffer<f32>) -> Result<()> {
    let all = 0..x.len();
    round_part::<T>(x, all)
}

/// The same of the elements of a range.
///
/// # Errors
/// As [`round_to`].
///
/// # Panics
/// If the buffer ends before the range.
pub fn round_part<T: Operand>(x: &mut Buffer<f32>, range: Range<usize>) -> Result<()> {
    let (device, len) = (x.scope().device().clone(), range.len());
    TensorSlice { buffer: x, start: range.start }.assert_has(len, &device);
    match device {
        _ if !T::IS_NARROW => Ok(()),
        Device::Cuda(device) => {
            let name = kernel::<T>();
            let kernel = Kernel { module: "nn/round", ptx: megabatch_gpu_core::ptx!("round"), name: &name };
            let arguments = arguments![TensorSlice { buffer: x, start: range.start }.address(), len as u64];
            // SAFETY: a thread changes one of the elements, which the buffer was seen to have. What
            // is submitted to the default stream later runs after it.
            Ok(unsafe { kernel.submit(&device, Launch::for_threads(len), &arguments) }?)
        }
        _ => cpu_arm!(x.as_mut_slice()[range].iter_mut().for_each(|x| *x = T::narrow(*x).widen())),
    }
}

fn kernel<T: Operand>() -> String {
    format!("round_{}", T::SUFFIX)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, noise};
    use super::*;

    fn check<T: Operand>(numbers: &[f32]) {
        let mut expected = Buffer::from_slice(&Device::cpu().scope("test"), numbers).unwrap();
        round_to::<T>(&mut expected).unwrap();
        let mut found = numbers.to_vec();
        let mut arguments = [Arg::from(&mut found[..]), Arg::from(numbers.len() as u64)];
        HARNESS.run(&kernel::<T>(), Launch::for_threads(numbers.len()), &mut arguments);
        assert_eq!(found, expected.as_slice(), "{}", T::SUFFIX);
        assert!(numbers.len() < 2 || found != numbers);
        let middle = numbers.len() / 3..numbers.len() / 2;
        let mut part = Buffer::from_slice(&Device::cpu().scope("test"), numbers).unwrap();
        round_part::<T>(&mut part, middle.clone()).unwrap();
        let within = |k: usize| if middle.contains(&k) { found[k] } else { numbers[k] };
        assert_eq!(part.as_slice(), (0..numbers.len()).map(within).collect::<Vec<_>>(), "a range");
    }

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        for len in [0, 1, 1000] {
            let mut numbers = noise("x", len, 70_000.0);
            numbers.iter_mut().step_by(3).for_each(|x| *x *= 1e-10);
            check::<f16>(&numbers);
            check::<bf16>(&numbers);
        }
    }
}
