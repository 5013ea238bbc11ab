//! bf16 by chance on a device.

use half::bf16;
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Result, arguments};

use crate::stochastic::{BLOCK, LANES, Noise};

/// Rounds `from` to one of the two neighbours in bf16, with the bits of [`crate::round_stochastic`]
/// on every device.
///
/// # Errors
/// What the device says of the launch.
///
/// # Panics
/// If the lengths differ, or the buffers are on two devices.
pub fn round_stochastic(from: &Buffer<f32>, to: &mut Buffer<bf16>, noise: Noise) -> Result<()> {
    assert_eq!(from.len(), to.len(), "numbers are rounded to as many");
    from.scope().device().assert_beside(to.scope().device());
    match to.scope().device().clone() {
        Device::Cuda(device) => {
            let kernel =
                Kernel { module: "amp/round", ptx: megabatch_gpu_core::ptx!("round"), name: "round_stochastic" };
            let (Noise { seed, step, .. }, [block, skipped]) = (noise, first_block(noise));
            let len = from.len() as u64;
            let arguments = arguments![from.address(), to.address(), len, seed, step, block, skipped as u32];
            // SAFETY: a thread reads and writes elements below `len`, which both buffers have, each
            // thread others. What is submitted to the default stream later runs after it.
            unsafe { kernel.submit(&device, launch(from.len(), noise), &arguments) }
        }
        _ => {
            crate::round_stochastic(from.as_slice(), to.as_mut_slice(), noise);
            Ok(())
        }
    }
}

/// The block of elements that the first one is in, and how many of them come before it.
fn first_block(noise: Noise) -> [u64; 2] {
    [noise.first_index / BLOCK as u64, noise.first_index % BLOCK as u64]
}

/// A thread for each counter.
fn launch(len: usize, noise: Noise) -> Option<Launch> {
    let blocks = (first_block(noise)[1] as usize + len).div_ceil(BLOCK);
    Launch::over(if len == 0 { 0 } else { blocks * LANES })
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::harness::HARNESS;
    use super::*;

    #[test]
    fn the_kernel_has_the_cpus_bits() {
        for (first_index, len) in [(0, 0), (0, 1), (127, 2), (128, 128), (130, 3000), (u64::MAX / 2, 500)] {
            let noise = Noise { seed: 0x0123_4567_89ab_cdef, step: 11 << 33, first_index };
            let from: Vec<f32> = (0..len as u32).map(|k| f32::from_bits(k.wrapping_mul(2_654_435_761))).collect();
            let mut expected = vec![bf16::ZERO; len];
            crate::round_stochastic(&from, &mut expected, noise);
            let mut found = vec![bf16::ZERO; len];
            let [block, skipped] = first_block(noise);
            let mut arguments = vec![Arg::from(&from[..]), Arg::from(&mut found[..])];
            arguments.extend([len as u64, noise.seed, noise.step, block].map(Arg::from));
            arguments.push(Arg::from(skipped as u32));
            HARNESS.run("round_stochastic", launch(len, noise), &mut arguments);
            let bits = |numbers: &[bf16]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<u16>>();
            assert_eq!(bits(&found), bits(&expected), "{len} from {first_index} on");
        }
    }
}
