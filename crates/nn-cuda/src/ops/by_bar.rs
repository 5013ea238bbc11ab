//! Gradients of gates by bar: what all windows that read a bar send back to it.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/by_bar.rs"]
mod cpu;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, arguments};
use megabatch_nn::Result;

use super::GATES;
use super::operand::Operand;
use super::work_list::WorkList;

/// The sum over the windows of sequence `sequence` of what they send back to each of its projected
/// rows: `d_gates` `[Σ T·B, H, 4]` of the whole list → `to` `[rows, H, 4]`. Row r of window b's
/// step t is `first[b] + t`. Terms are added in f32 in the order of the windows, so that the bits
/// are the same on every device; a row that no window reads becomes zero. dW_ih and db of a first
/// layer are one small product of the result.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
///
/// # Panics
/// If there is no room for the list; if the sequence's rows are not bars, or its windows do not
/// ascend; and if arrays are on several devices.
pub fn sum_per_bar<T: Operand>(
    list: &WorkList,
    sequence: usize,
    d_gates: &Buffer<T>,
    to: &mut Buffer<f32>,
) -> Result<()> {
    let (place, hidden) = (list.places()[sequence], list.hidden());
    let first = list.first(&place);
    assert!(place.row_step == 1 && first.is_sorted(), "gradients are summed over windows of bars in ascending order");
    assert!(d_gates.len() >= list.rows() * GATES * hidden, "gates of all steps");
    let rows = list.projected_rows_of(sequence);
    assert!(to.len() >= rows * GATES * hidden, "a row for each bar");
    list.device().assert_beside(to.scope().device());
    list.device().assert_beside(d_gates.scope().device());
    match list.device() {
        Device::Cuda(device) => {
            let name = format!("by_bar_{}", T::SUFFIX);
            let kernel = Kernel { module: "nn/by_bar", ptx: megabatch_gpu_core::ptx!("by_bar"), name: &name };
            let (places, first) = (list.on_device.places.address(), list.on_device.first.address());
            let (d_gates, to) = (d_gates.address(), to.address());
            let arguments = arguments![places, sequence as u32, hidden as u32, first, d_gates, to, rows as u32];
            // SAFETY: a window's step is one of the list's rows, which `d_gates` was seen to have;
            // a thread writes four numbers of `to`. What is submitted to the default stream later
            // runs after it.
            Ok(unsafe { kernel.submit(device, Launch::for_threads(rows * hidden), &arguments) }?)
        }
        _ => cpu_arm!(cpu::sum_per_bar(list, sequence, d_gates.as_slice(), to.as_mut_slice())),
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, noise};
    use super::super::uploaded::work_list;
    use super::super::work_list::{Sequence, TileWindows};
    use super::*;

    fn check<T: Operand>(hidden: usize) {
        let scope = Device::cpu().scope("test");
        let sequence_with = |steps, first, projected_rows| Sequence { steps, first, row_step: 1, projected_rows };
        // Among them bars that more windows read than are loaded at once.
        let many: Vec<u32> = (0..21).collect();
        let sequences = [
            sequence_with(1, &[2, 2][..], 4),
            sequence_with(5, &[0, 1, 2, 9, 20, 21], 30),
            sequence_with(3, &[], 2),
            sequence_with(19, &many, 40),
        ];
        let list = work_list(&scope, hidden, TileWindows::Eight, &sequences).unwrap();
        let d_gates: Vec<T> = noise("d", list.rows() * GATES * hidden, 3.0).into_iter().map(T::narrow).collect();
        let d_gates = Buffer::from_slice(&scope, &d_gates).unwrap();
        for (sequence, sequence_steps) in sequences.iter().enumerate() {
            let mut expected =
                Buffer::from_slice(&scope, &vec![9.0; sequence_steps.projected_rows * GATES * hidden]).unwrap();
            sum_per_bar(&list, sequence, &d_gates, &mut expected).unwrap();
            let mut found = vec![7.0f32; expected.len()];
            let mut arguments = [
                Arg::from(list.on_device.places.as_slice()),
                Arg::from(sequence as u32),
                Arg::from(hidden as u32),
                Arg::from(list.on_device.first.as_slice()),
                Arg::from(bytemuck::cast_slice::<T, [T; 4]>(d_gates.as_slice())),
                Arg::from(bytemuck::cast_slice_mut::<f32, [f32; 4]>(&mut found)),
                Arg::from(sequence_steps.projected_rows as u32),
            ];
            let launch = Launch::for_threads(sequence_steps.projected_rows * hidden);
            HARNESS.run(&format!("by_bar_{}", T::SUFFIX), launch, &mut arguments);
            assert_eq!(found, expected.as_slice(), "sequence {sequence}, {hidden} units, {}", T::SUFFIX);
        }
    }

    #[test]
    fn the_kernel_has_the_cpus_bits() {
        for hidden in [1, 3, 40] {
            check::<f32>(hidden);
            check::<f16>(hidden);
            check::<bf16>(hidden);
        }
    }
}
