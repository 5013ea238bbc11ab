//! The recurrence of LSTM layers with W_hh in eight bits, forward alone: for inference.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/recurrence_bytes.rs"]
mod cpu;

use megabatch_amp::QuantizedMatrix;
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, Scope, arguments};
use megabatch_nn::Result;

use super::GATES;
use super::bytes::{DeviceInt8Matrix, DeviceInt8Rows, multiply_at, scales_of};
use super::cell;
use super::operand::Operand;
use super::recurrence_states::States;
use super::recurrent_weights::{block_units, is_of_a_block};
use super::work_list::WorkList;

/// W_hh of every sequence of a work list in eight bits.
#[derive(Debug)]
pub struct RecurrentInt8 {
    hidden: usize,
    sequences: usize,
    form: WeightsForm,
}

/// The form in which they are read.
#[derive(Debug)]
enum WeightsForm {
    Persistent(Int8Fragments),
    /// Each matrix by itself, and the states of a step of one sequence.
    StepByStep(Vec<DeviceInt8Matrix>, DeviceInt8Rows),
}

/// For the persistent kernels, of all sequences.
#[derive(Debug)]
struct Int8Fragments {
    units: usize,
    /// `[sequences, HP / 8 warps, HP / 32, 2, 32 lanes, 16]`.
    bytes: Buffer<i8>,
    /// `[sequences, H, 4]`.
    scales: Buffer<f32>,
}

impl RecurrentInt8 {
    /// The matrices `[4H, H]` of the sequences in PyTorch's order of gates, on the device of
    /// `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    ///
    /// # Panics
    /// If there is none, or their shapes differ.
    pub fn new(scope: &Scope, matrices: &[QuantizedMatrix]) -> Result<Self> {
        let [gates, hidden] = matrices[0].shape();
        assert!(
            matrices.iter().all(|matrix| matrix.shape() == [gates, hidden]) && gates == GATES * hidden,
            "[4H, H] each"
        );
        let form = match scope.device() {
            Device::Cuda(_) | Device::Planning(_) if is_of_a_block(hidden) => {
                WeightsForm::Persistent(Int8Fragments::new(scope, matrices)?)
            }
            _ => {
                let each = matrices.iter().map(|matrix| DeviceInt8Matrix::new(scope, matrix)).collect::<Result<_>>()?;
                WeightsForm::StepByStep(each, DeviceInt8Rows::empty(scope)?)
            }
        };
        Ok(RecurrentInt8 { hidden, sequences: matrices.len(), form })
    }

    fn scope(&self) -> &Scope {
        match &self.form {
            WeightsForm::Persistent(fragments) => fragments.bytes.scope(),
            WeightsForm::StepByStep(_, rows) => rows.scope(),
        }
    }
}

impl Int8Fragments {
    fn new(scope: &Scope, matrices: &[QuantizedMatrix]) -> Result<Self> {
        let hidden = matrices[0].shape()[1];
        let bytes: Vec<i8> = matrices.iter().flat_map(fragments).collect();
        let scales: Vec<f32> = matrices.iter().flat_map(scales_of).collect();
        let (bytes, scales) = (Buffer::from_slice(scope, &bytes)?, Buffer::from_slice(scope, &scales)?);
        Ok(Int8Fragments { units: block_units(hidden), bytes, scales })
    }
}

/// W_hh in the order in which the lanes of the persistent kernels hold it, with zeros out of range.
/// Warp w has the gates of units 8 w … 8 w + 7: i above f, then g above o, by 32 columns at a time.
/// Four bytes are a register: see `multiply_add` of mma.cuh.
fn fragments(matrix: &QuantizedMatrix) -> impl Iterator<Item = i8> {
    let hidden = matrix.shape()[1];
    let units = block_units(hidden);
    (0..4 * units * units).map(move |k| {
        let (byte, register, lane, pairs) = (k % 4, k / 4 % 4, k / 16 % 32, k / 512 % 2);
        let (step, warp) = (k / 1024 % (units / 32), k / (32 * units));
        let (unit, gate) = (8 * warp + lane / 4, 2 * pairs + register % 2);
        let column = 32 * step + 4 * (lane % 4) + byte + register / 2 * 16;
        if unit < hidden && column < hidden { matrix.at(gate * hidden + unit, column) } else { 0 }
    })
}

/// Runs every window of a list from its first step to its last, as
/// [`recurrence`](super::recurrence()) does, from `projected` inputs `[rows, H, 4]`; the hidden
/// states of a window are quantised after each step, all of its units by one scale. Gates are kept
/// on the general path and on the CPU alone.
///
/// On a GPU this is one launch with H ≤ 128, and three for every step beyond.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of a launch; that there is
/// no memory, on the scope of the weights, for a step of the general path.
///
/// # Panics
/// If anything has not room for the list, and if arrays are on several devices; on a GPU, if states
/// are not in single precision.
pub fn recurrence_int8<T: Operand>(
    list: &WorkList,
    weights: &mut RecurrentInt8,
    projected: &Buffer<f32>,
    states: &mut States<T>,
) -> Result<()> {
    states.assert_fit(list);
    assert!(!T::IS_NARROW || matches!(list.device(), Device::Cpu(_)), "states in {}", T::SUFFIX);
    assert!(projected.len() >= list.projected_rows() * GATES * list.hidden(), "projected inputs of the list");
    assert_eq!((weights.hidden, weights.sequences), (list.hidden(), list.places().len()), "weights of the list");
    [projected.scope(), weights.scope()].iter().for_each(|scope| list.device().assert_beside(scope.device()));
    match (list.device(), &mut weights.form) {
        (Device::Cuda(device), WeightsForm::Persistent(fragments)) => {
            persistent(device, list, fragments, projected, states)
        }
        (Device::Cuda(device), WeightsForm::StepByStep(matrices, rows)) => {
            step_by_step(device, list, matrices, rows, projected, states)
        }
        _ => cpu_arm!(cpu::recurrence_int8(list, weights, projected, states)),
    }
}

fn persistent<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    fragments: &Int8Fragments,
    projected: &Buffer<f32>,
    states: &mut States<T>,
) -> Result<()> {
    let (name, launch) = kernel(list, fragments.units);
    let kernel =
        Kernel { module: "nn/recurrence_bytes", ptx: megabatch_gpu_core::ptx!("recurrence_bytes"), name: &name };
    let (places, tiles, first) =
        (list.on_device.places.address(), list.on_device.tiles.address(), list.on_device.first.address());
    let (bytes, scales, projected) = (fragments.bytes.address(), fragments.scales.address(), projected.address());
    let (hidden, cell) = (states.hidden.address(), states.cell.address());
    let arguments = arguments![places, tiles, list.hidden() as u32, bytes, scales, projected, first, hidden, cell];
    // SAFETY: the list was made of rows within the projected inputs, and all arrays were seen to
    // have its lengths; a block writes the states of its own windows. What is submitted to the
    // default stream later runs after it.
    Ok(unsafe { kernel.submit(device, launch, &arguments) }?)
}

/// Name and grid of the persistent kernel.
fn kernel(list: &WorkList, units: usize) -> (String, Option<Launch>) {
    let launch = Launch::for_blocks(list.tiles()).map(|launch| launch.with_threads(4 * units as u32));
    (format!("forward_bytes_{units}_{}", list.tile_windows()), launch)
}

fn step_by_step<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    matrices: &[DeviceInt8Matrix],
    rows: &mut DeviceInt8Rows,
    projected: &Buffer<f32>,
    states: &mut States<T>,
) -> Result<()> {
    cell::forward_by(device, list, projected, states, |place, h, out| {
        rows.ensure_capacity(place.windows as usize, list.hidden())?;
        // SAFETY: there are the states of the sequence's windows at `h`, and room for their product
        // at `out`.
        unsafe {
            rows.quantize_at(device, h)?;
            multiply_at(device, rows, &matrices[place.weight as usize], 0, out)
        }
    })
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::bytes::tests::matrix;
    use super::super::harness::{HARNESS, noise};
    use super::super::recurrence::tests::{assert_close, sequences};
    use super::super::work_list::TileWindows;
    use super::*;

    /// A list of H units with weights, projected inputs and states to begin from.
    struct Example {
        list: WorkList,
        matrices: Vec<QuantizedMatrix>,
        projected: Buffer<f32>,
        states: States<f32>,
    }

    impl Example {
        fn new(hidden: usize, tile: TileWindows) -> Self {
            let scope = Device::cpu().scope("test");
            let list = sequences(&scope, hidden, tile);
            let matrices =
                (0..list.sequences()).map(|s| matrix(["w 0", "w 1", "w 2", "w 3"][s], [GATES * hidden, hidden]));
            let projected = noise("projected", list.projected_rows() * GATES * hidden, 2.0);
            let mut states = States::zeros(&scope, &list).unwrap();
            let before = noise("states", states.cell.len(), 0.8);
            states.cell.copy_from(&before).unwrap();
            states.hidden.copy_from(&before).unwrap();
            let projected = Buffer::from_slice(&scope, &projected).unwrap();
            Example { matrices: matrices.collect(), list, projected, states }
        }

        fn run_on_cpu(&mut self) {
            let scope = Device::cpu().scope("test");
            let mut weights = RecurrentInt8::new(&scope, &self.matrices).unwrap();
            recurrence_int8(&self.list, &mut weights, &self.projected, &mut self.states).unwrap();
        }

        fn run_by_kernel(&mut self) {
            let fragments = Int8Fragments::new(&Device::cpu().scope("test"), &self.matrices).unwrap();
            let (name, launch) = kernel(&self.list, fragments.units);
            let mut arguments = self.list.arguments(&[self.list.hidden() as u32]);
            arguments.extend([
                Arg::from(bytemuck::cast_slice::<i8, [i8; 16]>(fragments.bytes.as_slice())),
                Arg::from(bytemuck::cast_slice::<f32, [f32; 4]>(fragments.scales.as_slice())),
                Arg::from(bytemuck::cast_slice::<f32, [f32; 4]>(self.projected.as_slice())),
                Arg::from(self.list.on_device.first.as_slice()),
                Arg::from(self.states.hidden.as_mut_slice()),
                Arg::from(self.states.cell.as_mut_slice()),
            ]);
            HARNESS.run(&name, launch, &mut arguments);
        }
    }

    #[test]
    fn the_persistent_kernels_give_the_cpus_states() {
        for (hidden, tile) in [(1, TileWindows::Eight), (20, TileWindows::Sixteen), (33, TileWindows::Eight)]
            .into_iter()
            .chain([(64, TileWindows::Sixteen), (128, TileWindows::Eight), (101, TileWindows::Sixteen)])
        {
            let [mut expected, mut found] = [(); 2].map(|()| Example::new(hidden, tile));
            expected.run_on_cpu();
            found.run_by_kernel();
            let (found, expected) = (&found.states, &expected.states);
            // A state that lies near the middle of two of the 8191 numbers is quantised to either.
            assert_close(found.hidden.as_slice(), expected.hidden.as_slice(), 3e-4, "hidden states");
            assert_close(found.cell.as_slice(), expected.cell.as_slice(), 3e-4, "cell states");
        }
    }

    #[test]
    fn a_plan_books_the_weights_of_a_gpus_kernels() {
        let hidden = 20;
        let matrices = [matrix("w 0", [GATES * hidden, hidden]), matrix("w 1", [GATES * hidden, hidden])];
        let booked_bytes = |take: &dyn Fn(&Scope) -> Result<()>| {
            let device = Device::planning();
            take(&device.scope("plan")).unwrap();
            device.usage().allocated_bytes_peak
        };
        let fragments = booked_bytes(&|scope| Int8Fragments::new(scope, &matrices).map(drop));
        assert!(fragments > matrices.len() * GATES * hidden * hidden, "units that fill up a block are booked");
        assert_eq!(booked_bytes(&|scope| RecurrentInt8::new(scope, &matrices).map(drop)), fragments);
    }

    #[test]
    fn states_in_eight_bits_are_near_those_of_the_weights_as_they_are() {
        use super::super::recurrence::recurrence;
        use super::super::recurrence_states::RecurrenceInputs;
        use super::super::recurrent_weights::RecurrentWeights;

        let (hidden, scope) = (40, Device::cpu().scope("test"));
        let [mut bytes, mut exact] = [(); 2].map(|()| Example::new(hidden, TileWindows::Eight));
        bytes.run_on_cpu();
        let starts: Vec<usize> = (0..exact.matrices.len()).map(|s| s * GATES * hidden * hidden).collect();
        let mut weights = RecurrentWeights::<f32>::zeros(&scope, hidden, &starts).unwrap();
        let dequantized: Vec<f32> = exact.matrices.iter().flat_map(QuantizedMatrix::dequantized).collect();
        weights.set(&Buffer::from_slice(&scope, &dequantized).unwrap()).unwrap();
        let inputs = RecurrenceInputs { weights: &weights, projected: &exact.projected };
        recurrence(&exact.list, &inputs, &mut exact.states).unwrap();
        assert_close(bytes.states.hidden.as_slice(), exact.states.hidden.as_slice(), 1e-3, "hidden states");
    }
}
