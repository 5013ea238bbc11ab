//! The recurrence of LSTM layers in f32 on a GPU, for layers whose W_hh one block of threads holds:
//! all steps of all timeframes in one launch.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, arguments};

use super::operand::Operand;
use super::recurrence::States;
use super::recurrence_backward::Gradients;
use super::recurrent_weights::Fragments;
use super::work_list::WorkList;
use crate::error::Result;

pub(super) const PTX: &str = megabatch_gpu_core::ptx!("recurrence_f32");

/// Blocks that share a tile's windows.
const TILE_BLOCKS: usize = 4;

/// Numbers of W_hh that a thread holds in registers, and those that it has in all for 128 units.
const REGISTER_NUMBERS: usize = 168;

/// Runs every window of a list from its first step to its last.
///
/// # Errors
/// [`Error::Memory`](crate::Error::Memory): what the device says of the launch.
pub(super) fn forward<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    fragments: &Fragments,
    projected: &Buffer<f32>,
    states: &mut States<T>,
) -> Result<()> {
    let name = kernel_name("forward", list, fragments.units);
    let kernel = Kernel { module: "nn/recurrence_f32", ptx: PTX, name: &name };
    let (places, tiles, first) =
        (list.on_device.places.address(), list.on_device.tiles.address(), list.on_device.first.address());
    let [tile_windows, hidden] = [list.tile_windows() as u32, list.hidden() as u32];
    let (packed, projected) = (fragments.forward.address(), projected.address());
    let (hiddens, cell, gates) = (states.hidden.address(), states.cell.address(), states.gates.address());
    let arguments = arguments![places, tiles, tile_windows, hidden, packed, projected, first, hiddens, cell, gates];
    // SAFETY: the list was made of rows within the projected inputs, and `recurrence` has seen that
    // all arrays have its lengths; a block writes the states and gates of its own windows. What is
    // submitted to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, launch(list, fragments.units), &arguments) }?)
}

/// Goes back from the last step of every window to its first.
///
/// # Errors
/// As [`forward`].
pub(super) fn backward<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    fragments: &Fragments,
    states: &States<T>,
    gradients: &mut Gradients<T>,
) -> Result<()> {
    let name = kernel_name("backward", list, fragments.units);
    let kernel = Kernel { module: "nn/recurrence_f32", ptx: PTX, name: &name };
    let (places, tiles) = (list.on_device.places.address(), list.on_device.tiles.address());
    let [tile_windows, hidden] = [list.tile_windows() as u32, list.hidden() as u32];
    let (packed, cell, gates) = (fragments.backward.address(), states.cell.address(), states.gates.address());
    let d_outputs = gradients.outputs.as_ref().map_or(0, Buffer::address);
    let (d_hidden, d_cell, d_gates) = (gradients.hidden.address(), gradients.cell.address(), gradients.gates.address());
    let arguments =
        arguments![places, tiles, tile_windows, hidden, packed, cell, gates, d_outputs, d_hidden, d_cell, d_gates];
    // SAFETY: `recurrence_backward` has seen that all arrays have the lengths of the list; a block
    // writes the gradients of its own windows. What is submitted to the default stream later runs
    // after it.
    Ok(unsafe { kernel.submit(device, launch(list, fragments.units), &arguments) }?)
}

/// Windows of a block.
fn block_windows(list: &WorkList) -> usize {
    list.tile_windows() / TILE_BLOCKS
}

/// Name of a kernel.
fn kernel_name(direction: &str, list: &WorkList, units: usize) -> String {
    format!("{direction}_f32_{units}_{}", block_windows(list))
}

/// Grid of a kernel of either direction, with shared memory for the rest of W_hh and for the
/// numbers of a step: h before and after it, or the gates' gradients.
fn launch(list: &WorkList, units: usize) -> Option<Launch> {
    let threads = 2 * units;
    let rest = (2 * units).saturating_sub(REGISTER_NUMBERS) * threads;
    let numbers = rest + block_windows(list) * 4 * units;
    let launch = Launch::of_blocks(list.tiles() * TILE_BLOCKS)?;
    Some(launch.with_threads(threads as u32).with_shared_bytes((numbers * size_of::<f32>()) as u32))
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::{Buffer, Device};
    use megabatch_simt::{Arg, Geometry};

    use super::super::harness::{HARNESS, noise};
    use super::super::recurrence::tests::{Example, assert_close};
    use super::super::recurrence_backward::recurrence_backward;
    use super::super::recurrent_weights::{f32_fragments_by_kernel, persistent_units};
    use super::super::work_list::TileWindows;
    use super::*;

    /// By another order of sums, and by exponentials of single precision.
    const TOLERANCE: f32 = 1e-5;

    fn geometry(list: &WorkList) -> Geometry {
        let launch = launch(list, persistent_units::<f32>(list.hidden()).unwrap()).unwrap();
        let (blocks, threads) = launch.into();
        Geometry { dynamic_shared_bytes: launch.shared_bytes() as usize, ..Geometry::linear(blocks, threads) }
    }

    fn run_forward(example: &mut Example<f32>) {
        let [packed, _] = f32_fragments_by_kernel(&example.weights);
        let (geometry, units) = (geometry(&example.list), persistent_units::<f32>(example.list.hidden()).unwrap());
        let name = kernel_name("forward", &example.list, units);
        let numbers = [example.list.tile_windows() as u32, example.list.hidden() as u32];
        let mut arguments = example.arguments_of_f32(&numbers, &packed);
        HARNESS.launch(&name, geometry, &mut arguments);
    }

    fn run_backward(example: &Example<f32>, gradients: &mut Gradients<f32>) {
        let [_, packed] = f32_fragments_by_kernel(&example.weights);
        let list = &example.list;
        let name = kernel_name("backward", list, persistent_units::<f32>(list.hidden()).unwrap());
        let mut arguments = list.arguments(&[list.tile_windows() as u32, list.hidden() as u32]);
        arguments.extend([
            Arg::from(&packed[..]),
            Arg::from(example.states.cell.as_slice()),
            Arg::from(bytemuck::cast_slice::<f32, [f32; 4]>(example.states.gates.as_slice())),
            gradients.outputs.as_ref().map_or(Arg::null(), |outputs| Arg::from(outputs.as_slice())),
            Arg::from(gradients.hidden.as_mut_slice()),
            Arg::from(gradients.cell.as_mut_slice()),
            Arg::from(bytemuck::cast_slice_mut::<f32, [f32; 4]>(gradients.gates.as_mut_slice())),
        ]);
        HARNESS.launch(&name, geometry(list), &mut arguments);
    }

    fn gradients(list: &WorkList, has_outputs: bool) -> Gradients<f32> {
        let scope = Device::cpu().scope("test");
        let mut gradients = Gradients::zeros(&scope, list).unwrap();
        gradients.hidden.copy_from(&noise("d_hidden", gradients.hidden.len(), 1.0)).unwrap();
        gradients.cell.copy_from(&noise("d_cell", gradients.cell.len(), 1.0)).unwrap();
        let len = list.rows() * list.hidden();
        gradients.outputs = has_outputs.then(|| Buffer::from_slice(&scope, &noise("d_outputs", len, 1.0)).unwrap());
        gradients
    }

    const CASES: [(usize, TileWindows); 6] = [
        (1, TileWindows::Eight),
        (20, TileWindows::Sixteen),
        (32, TileWindows::Eight),
        (61, TileWindows::Sixteen),
        (101, TileWindows::Eight),
        (128, TileWindows::Sixteen),
    ];

    #[test]
    fn states_are_the_cpus() {
        for (hidden, tile) in CASES {
            let [mut expected, mut found] = [(); 2].map(|()| Example::<f32>::new(hidden, tile));
            expected.run_on_cpu();
            run_forward(&mut found);
            let what = |part| format!("{part} of {hidden} units, {tile:?}");
            let (found, expected) = (&found.states, &expected.states);
            assert_close(found.hidden.as_slice(), expected.hidden.as_slice(), TOLERANCE, &what("hidden states"));
            assert_close(found.cell.as_slice(), expected.cell.as_slice(), TOLERANCE, &what("cell states"));
            assert_close(found.gates.as_slice(), expected.gates.as_slice(), TOLERANCE, &what("gates"));
        }
    }

    #[test]
    fn gradients_are_the_cpus() {
        for (hidden, tile) in CASES {
            let mut example = Example::<f32>::new(hidden, tile);
            example.run_on_cpu();
            let [mut expected, mut found] = [(); 2].map(|()| gradients(&example.list, hidden % 2 == 0));
            recurrence_backward(&example.list, &example.weights, &example.states, &mut expected).unwrap();
            run_backward(&example, &mut found);
            let what = |part| format!("{part} of {hidden} units, {tile:?}");
            assert_close(found.gates.as_slice(), expected.gates.as_slice(), TOLERANCE, &what("gates' gradients"));
            assert_close(found.hidden.as_slice(), expected.hidden.as_slice(), TOLERANCE, &what("gradients of h"));
            assert_close(found.cell.as_slice(), expected.cell.as_slice(), TOLERANCE, &what("gradients of c"));
        }
    }

    #[test]
    fn blocks_of_two_and_of_four_windows_give_the_same_bits() {
        let run = |tile| {
            let mut example = Example::<f32>::new(50, tile);
            run_forward(&mut example);
            let mut back = gradients(&example.list, true);
            run_backward(&example, &mut back);
            [&example.states.hidden, &example.states.cell, &back.gates, &back.hidden, &back.cell]
                .map(|numbers| numbers.to_vec().unwrap())
        };
        assert_eq!(run(TileWindows::Eight), run(TileWindows::Sixteen));
    }

    #[test]
    fn shared_memory_is_within_what_every_gpu_has() {
        for tile in [TileWindows::Eight, TileWindows::Sixteen] {
            let example = Example::<f32>::new(128, tile);
            // 99 KiB on GPUs of compute capability 8.6 and 8.9.
            assert!(launch(&example.list, 128).unwrap().shared_bytes() <= 99 << 10);
        }
    }
}
