//! Rows of gates in PyTorch's order, gate by gate, and in that of the operations here, unit by
//! unit; of many tensors at once.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/gate_rows.rs"]
mod cpu;

use bytemuck::{Pod, Zeroable};
use megabatch_gpu_core::kernel::{BLOCK_THREADS, Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Scope, arguments};
use megabatch_nn::Result;

use super::GATES;
use super::operand::Operand;

const PTX: &str = megabatch_gpu_core::ptx!("gate_rows");

/// Weights or biases of layers with H units, `[4, H, K]` in PyTorch's order among all parameters
/// and `[H, 4, stride]` in an array of their own. There, numbers from K of a row on stay as they
/// are.
#[derive(Debug)]
pub struct GateRows {
    hidden: usize,
    tensors: Vec<GateEntry>,
    /// The same on the device.
    table: Buffer<GateEntry>,
    blocks: usize,
}

/// One tensor.
#[derive(Clone, Copy, Debug)]
pub struct GateTensor {
    /// Its first element among all parameters.
    pub start: usize,
    /// Start of a second tensor of the same shape: then the values stored unit by unit are the sum
    /// of both, or the gradient of each.
    pub other: Option<usize>,
    /// Its first element in the array.
    pub place: usize,
    /// K.
    pub width: usize,
    /// Elements from a row of the array to the next one, K or more.
    pub stride: usize,
}

/// `GateTensor` of gate_rows.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
struct GateEntry {
    start: u64,
    other: u64,
    place: u64,
    stride: u64,
    width: u32,
    first_block: u32,
}

/// No second tensor.
const NONE: u64 = u64::MAX;

impl GateRows {
    /// These tensors of layers with H = `hidden` units.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    ///
    /// # Panics
    /// If rows are wider than their stride.
    pub fn new(scope: &Scope, hidden: usize, rows: &[GateTensor]) -> Result<Self> {
        let mut blocks = 0;
        let tensor = |&GateTensor { start, other, place, width, stride }: &GateTensor| {
            assert!(width <= stride, "rows of {width}, {stride} apart");
            let first_block = blocks as u32;
            blocks += (GATES * hidden * width).div_ceil(BLOCK_THREADS as usize);
            let other = other.map_or(NONE, |other| other as u64);
            let [start, place, stride] = [start, place, stride].map(|size| size as u64);
            GateEntry { start, other, place, stride, width: width as u32, first_block }
        };
        let tensors: Vec<GateEntry> = rows.iter().map(tensor).collect();
        Ok(GateRows { hidden, table: Buffer::from_slice(scope, &tensors)?, tensors, blocks })
    }

    /// Elements of a tensor in PyTorch's order.
    fn len(&self, entry: &GateEntry) -> usize {
        GATES * self.hidden * entry.width as usize
    }

    /// Panics where what lies gate by gate, of so many elements, ends too early, or what lies unit
    /// by unit.
    fn assert_within(&self, separated: usize, interleaved: usize) {
        for entry in &self.tensors {
            let starts = [entry.start, if entry.other == NONE { entry.start } else { entry.other }];
            let ends = starts.map(|start| start as usize + self.len(entry));
            assert!(ends[0].max(ends[1]) <= separated, "{ends:?}: gates end with their buffer, of {separated}");
            let end = entry.place as usize + GATES * self.hidden * entry.stride as usize;
            assert!(end <= interleaved, "{end}: units end with their buffer, of {interleaved}");
        }
    }
}

/// Brings the tensors of `rows` from PyTorch's order in `from` to that of the operations in `to`,
/// rounded to its type; what is between K and the stride of a row stays as it is.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
///
/// # Panics
/// If a buffer ends too early, and if they are on several devices.
pub fn interleave<T: Operand>(rows: &GateRows, from: &Buffer<f32>, to: &mut Buffer<T>) -> Result<()> {
    rows.assert_within(from.len(), to.len());
    let device = to.scope().device().clone();
    [from.scope(), rows.table.scope()].iter().for_each(|scope| device.assert_beside(scope.device()));
    match &device {
        Device::Cuda(_) => {
            let name = format!("interleave_{}", T::SUFFIX);
            // SAFETY: a thread reads its number of each of the tensors, which `from` was seen to
            // have, and writes the one of `to` that is its own.
            unsafe { launch(rows, &name, from.address(), to.address()) }
        }
        _ => cpu_arm!(cpu::interleave(rows, from.as_slice(), to.as_mut_slice())),
    }
}

/// Adds the gradients `from`, which lie unit by unit, to those in PyTorch's order in `to`.
///
/// # Errors
/// As [`interleave`].
///
/// # Panics
/// As [`interleave`].
pub fn add_separated(rows: &GateRows, from: &Buffer<f32>, to: &mut Buffer<f32>) -> Result<()> {
    rows.assert_within(to.len(), from.len());
    let device = to.scope().device().clone();
    [from.scope(), rows.table.scope()].iter().for_each(|scope| device.assert_beside(scope.device()));
    match &device {
        // SAFETY: a thread reads its number of `from` and changes the one of each tensor of `to`
        // that is its own.
        Device::Cuda(_) => unsafe { launch(rows, "add_separated", from.address(), to.address()) },
        _ => cpu_arm!(cpu::add_separated(rows, from.as_slice(), to.as_mut_slice())),
    }
}

/// # Safety
/// A thread may touch at the two addresses what the kernel has it touch, and nothing else writes
/// that meanwhile. What is submitted to the default stream later runs after it.
unsafe fn launch(rows: &GateRows, name: &str, from: u64, to: u64) -> Result<()> {
    let Device::Cuda(device) = rows.table.scope().device() else { unreachable!("the table is beside the buffers") };
    let kernel = Kernel { module: "nn/gate_rows", ptx: PTX, name };
    let arguments = arguments![rows.table.address(), rows.tensors.len() as u32, rows.hidden as u64, from, to];
    // SAFETY: as the caller promised; the table has so many tensors, whose blocks follow one
    // another.
    Ok(unsafe { kernel.submit(device, Launch::for_blocks(rows.blocks), &arguments) }?)
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use megabatch_simt::Arg;

    use super::super::harness::HARNESS;
    use super::*;

    fn run(rows: &GateRows, name: &str, from_and_to: [Arg<'_>; 2]) {
        let (count, hidden) = (Arg::from(rows.tensors.len() as u32), Arg::from(rows.hidden as u64));
        let mut arguments = vec![Arg::from(rows.table.as_slice()), count, hidden];
        arguments.extend(from_and_to);
        HARNESS.run(name, Launch::for_blocks(rows.blocks), &mut arguments);
    }

    #[test]
    fn the_kernels_move_what_the_cpu_moves() {
        let scope = Device::cpu().scope("test");
        for [hidden, width, stride] in [[1, 1, 1], [3, 2, 2], [17, 5, 8], [17, 5, 5], [2, 7, 16]] {
            let (len, padded_len) = (GATES * hidden * width, GATES * hidden * stride);
            // One alone, one of two, one of no width, with room between them.
            let rows = [
                GateTensor { start: 3, other: None, place: 1, width, stride },
                GateTensor { start: 0, other: None, place: 0, width: 0, stride: 0 },
                GateTensor {
                    start: len + 5,
                    other: Some(len + GATES * hidden + 5),
                    place: padded_len + 2,
                    width: 1,
                    stride: 1,
                },
            ];
            let rows = GateRows::new(&scope, hidden, &rows).unwrap();
            let numbers: Vec<f32> = (0..len + 8 * hidden + 6).map(|k| 1.0 + k as f32 / 64.0).collect();
            let from = Buffer::from_slice(&scope, &numbers).unwrap();
            // What was there stays between rows.
            let mut found = vec![bf16::from_f32(-7.0); padded_len + GATES * hidden + 3];
            let mut to = Buffer::from_slice(&scope, &found).unwrap();
            interleave(&rows, &from, &mut to).unwrap();
            // The second gate of the first unit.
            assert_eq!(to.as_slice()[1 + stride].to_f32(), bf16::from_f32(numbers[3 + hidden * width]).to_f32());
            let sum = numbers[len + 5 + hidden] + numbers[len + 5 + 5 * hidden];
            assert_eq!(to.as_slice()[padded_len + 2 + 1].to_f32(), bf16::from_f32(sum).to_f32());
            let padding = to.as_slice()[1..][..padded_len].chunks_exact(stride).flat_map(|row| &row[width..]);
            assert!(padding.into_iter().all(|&x| x.to_f32() == -7.0));

            run(&rows, "interleave_bf16", [Arg::from(&numbers[..]), Arg::from(&mut found[..])]);
            assert_eq!(found, to.as_slice());

            let unit_by_unit: Vec<f32> = (0..to.len()).map(|k| k as f32).collect();
            let mut sums = from.try_clone().unwrap();
            add_separated(&rows, &Buffer::from_slice(&scope, &unit_by_unit).unwrap(), &mut sums).unwrap();
            assert_eq!(sums.as_slice()[3 + hidden * width], numbers[3 + hidden * width] + (1 + stride) as f32);
            let mut found = numbers.clone();
            run(&rows, "add_separated", [Arg::from(&unit_by_unit[..]), Arg::from(&mut found[..])]);
            assert_eq!(found, sums.as_slice());
        }
    }
}
