//! Rows of gates in PyTorch's order, gate by gate, and in that of the operations here, unit by unit.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, arguments};

use super::operand::Operand;
use crate::error::Result;

const PTX: &str = include_str!("gate_rows.ptx");

/// Weights or biases `from` row `start` on, `[4, H, K]` in PyTorch's order, to `to` `[H, 4, K]`, rounded to its type; `shape` is H and K.
///
/// # Errors
/// [`Error::Memory`](crate::Error::Memory): what the device says of the launch.
///
/// # Panics
/// If `to` is not of this shape, if `from` ends too early, and if they are on two devices.
pub fn interleave<T: Operand>(
    (from, start): (&Buffer<f32>, usize),
    to: &mut Buffer<T>,
    [hidden, width]: [usize; 2],
) -> Result<()> {
    assert_eq!(to.len(), 4 * hidden * width, "four gates of {hidden} units");
    assert!(start + to.len() <= from.len(), "weights that are interleaved end with their buffer");
    from.scope().device().assert_beside(to.scope().device());
    match to.scope().device().clone() {
        Device::Cuda(device) => {
            let name = format!("interleave_{}", T::SUFFIX);
            let kernel = Kernel { module: "trainer/gate_rows", ptx: PTX, name: &name };
            let from = from.address() + (start * size_of::<f32>()) as u64;
            let arguments = arguments![from, to.address(), hidden as u64, width as u64];
            // SAFETY: a thread reads one of the numbers from `start` on, which `from` was seen to have, and writes one of `to`. What is submitted to
            // the default stream later runs after it.
            Ok(unsafe { kernel.submit(&device, Launch::over(to.len()), &arguments) }?)
        }
        _ => {
            let from = &from.as_slice()[start..][..to.len()];
            for (k, to) in to.as_mut_slice().iter_mut().enumerate() {
                *to = T::narrow(from[separated(k, [hidden, width])]);
            }
            Ok(())
        }
    }
}

/// Adds gradients `from` `[H, 4, K]` to those in PyTorch's order, `[4, H, K]` in `to` from element `start` on.
///
/// # Errors
/// As [`interleave`].
///
/// # Panics
/// As [`interleave`].
pub fn add_separated(from: &Buffer<f32>, (to, start): (&mut Buffer<f32>, usize), shape: [usize; 2]) -> Result<()> {
    let [hidden, width] = shape;
    assert_eq!(from.len(), 4 * hidden * width, "four gates of {hidden} units");
    assert!(start + from.len() <= to.len(), "gradients that are separated end with their buffer");
    from.scope().device().assert_beside(to.scope().device());
    match to.scope().device().clone() {
        Device::Cuda(device) => {
            let kernel = Kernel { module: "trainer/gate_rows", ptx: PTX, name: "add_separated" };
            let to = to.address() + (start * size_of::<f32>()) as u64;
            let arguments = arguments![from.address(), to, hidden as u64, width as u64];
            // SAFETY: a thread reads one number of `from` and changes one of those from `start` on, which `to` was seen to have, each thread another.
            Ok(unsafe { kernel.submit(&device, Launch::over(from.len()), &arguments) }?)
        }
        _ => {
            let to = &mut to.as_mut_slice()[start..];
            from.as_slice().iter().enumerate().for_each(|(k, term)| to[separated(k, shape)] += term);
            Ok(())
        }
    }
}

/// Where number `k` of `[H, 4, K]` stands in `[4, H, K]`.
fn separated(k: usize, [hidden, width]: [usize; 2]) -> usize {
    let (row, column) = (k / width, k % width);
    (row % 4 * hidden + row / 4) * width + column
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use megabatch_simt::Arg;

    use super::super::harness::HARNESS;
    use super::*;

    #[test]
    fn the_kernels_move_what_the_cpu_moves() {
        let scope = Device::cpu().scope("test");
        for [hidden, width] in [[1, 1], [3, 2], [17, 5]] {
            let numbers: Vec<f32> = (0..4 * hidden * width + 3).map(|k| 1.0 + k as f32 / 64.0).collect();
            let from = Buffer::from_slice(&scope, &numbers).unwrap();
            let mut to = Buffer::<bf16>::zeros(&scope, 4 * hidden * width).unwrap();
            interleave((&from, 3), &mut to, [hidden, width]).unwrap();
            assert_eq!(to.as_slice()[width].to_f32(), bf16::from_f32(numbers[3 + hidden * width]).to_f32());

            let mut found = vec![bf16::ZERO; to.len()];
            let shape = [hidden as u64, width as u64];
            let mut arguments =
                [Arg::from(&numbers[3..]), Arg::from(&mut found[..]), Arg::from(shape[0]), Arg::from(shape[1])];
            HARNESS.run("interleave_bf16", Launch::over(to.len()), &mut arguments);
            assert_eq!(found, to.as_slice());

            let wide = Buffer::from_slice(&scope, &numbers[3..]).unwrap();
            let mut sums = from.try_clone().unwrap();
            add_separated(&wide, (&mut sums, 3), [hidden, width]).unwrap();
            let mut found = numbers[3..].to_vec();
            let mut arguments =
                [Arg::from(wide.as_slice()), Arg::from(&mut found[..]), Arg::from(shape[0]), Arg::from(shape[1])];
            HARNESS.run("add_separated", Launch::over(wide.len()), &mut arguments);
            assert_eq!(found, &sums.as_slice()[3..]);
        }
    }
}
