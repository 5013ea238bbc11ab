//! The recurrence of LSTM layers in f32 on a GPU, for layers whose W_hh one block of threads holds:
//! all steps of all timeframes in one launch.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, arguments};
use megabatch_nn::Result;

use super::operand::Operand;
use super::recurrence_states::{Gradients, States};
use super::recurrent_weights::Fragments;
use super::work_list::WorkList;

pub(super) const PTX: &str = megabatch_gpu_core::ptx!("recurrence_f32");

/// Windows of a block by those of a tile, and of every block where a GPU has one for each window.
const TILE_SHARE: usize = 4;
const SINGLE: usize = 1;

/// Numbers of W_hh that a thread holds in registers, for blocks of one window and for others.
const REGISTER_NUMBERS: [usize; 2] = [160, 168];

/// Runs every window of a list from its first step to its last.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
pub(super) fn forward<T: Operand>(
    device: &Cuda,
    list: &WorkList,
    fragments: &Fragments,
    projected: &Buffer<f32>,
    states: &mut States<T>,
) -> Result<()> {
    let shape = BlockShape::choose("forward", device, list, fragments.units)?;
    let name = shape.kernel_name("forward");
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
    Ok(unsafe { kernel.submit(device, shape.launch(list), &arguments) }?)
}

/// Backward pass from the last step of every window to its first.
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
    let shape = BlockShape::choose("backward", device, list, fragments.units)?;
    let name = shape.kernel_name("backward");
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
    Ok(unsafe { kernel.submit(device, shape.launch(list), &arguments) }?)
}

/// Units that a block is made for, and its windows.
#[derive(Clone, Copy, Debug)]
struct BlockShape {
    units: usize,
    windows: usize,
}

impl BlockShape {
    /// The shape for a list: a window a block where all of these run at once, else by the tile. The
    /// numbers are the same.
    fn choose(direction: &str, device: &Cuda, list: &WorkList, units: usize) -> Result<Self> {
        let single = BlockShape { units, windows: SINGLE };
        let name = single.kernel_name(direction);
        let kernel = Kernel { module: "nn/recurrence_f32", ptx: PTX, name: &name };
        let has_one_each =
            (list.tiles() * list.tile_windows()) as u64 <= kernel.resident_blocks(device, single.threads())?;
        Ok(if has_one_each { single } else { BlockShape::by_tile(list, units) })
    }

    fn by_tile(list: &WorkList, units: usize) -> Self {
        BlockShape { units, windows: list.tile_windows() / TILE_SHARE }
    }

    fn threads(self) -> u32 {
        2 * self.units as u32
    }

    fn kernel_name(self, direction: &str) -> String {
        format!("{direction}_f32_{}_{}", self.units, self.windows)
    }

    /// Grid of a kernel of either direction, with shared memory for the rest of W_hh and for the
    /// numbers of a step: h before and after it, or the gates' gradients.
    fn launch(self, list: &WorkList) -> Option<Launch> {
        let held = REGISTER_NUMBERS[usize::from(self.windows > SINGLE)];
        let rest = (2 * self.units).saturating_sub(held) * self.threads() as usize;
        let bytes = (rest + self.windows * 4 * self.units) * size_of::<f32>();
        let launch = Launch::for_blocks(list.tiles() * list.tile_windows() / self.windows)?;
        Some(launch.with_threads(self.threads()).with_shared_bytes(bytes as u32))
    }
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

    /// Windows of a block.
    #[derive(Clone, Copy, Debug)]
    enum Windows {
        Single,
        ByTile,
    }

    fn shape(list: &WorkList, windows: Windows) -> BlockShape {
        let units = persistent_units::<f32>(list.hidden()).unwrap();
        match windows {
            Windows::Single => BlockShape { units, windows: SINGLE },
            Windows::ByTile => BlockShape::by_tile(list, units),
        }
    }

    fn geometry(list: &WorkList, shape: BlockShape) -> Geometry {
        let launch = shape.launch(list).unwrap();
        let (blocks, threads) = launch.into();
        Geometry { dynamic_shared_bytes: launch.shared_bytes() as usize, ..Geometry::linear(blocks, threads) }
    }

    fn run_forward(example: &mut Example<f32>, windows: Windows) {
        let [packed, _] = f32_fragments_by_kernel(&example.weights);
        let shape = shape(&example.list, windows);
        let (geometry, name) = (geometry(&example.list, shape), shape.kernel_name("forward"));
        let numbers = [example.list.tile_windows() as u32, example.list.hidden() as u32];
        let mut arguments = example.arguments(&numbers, Arg::from(&packed[..]));
        HARNESS.launch(&name, geometry, &mut arguments);
    }

    fn run_backward(example: &Example<f32>, gradients: &mut Gradients<f32>, windows: Windows) {
        let [_, packed] = f32_fragments_by_kernel(&example.weights);
        let list = &example.list;
        let shape = shape(list, windows);
        let name = shape.kernel_name("backward");
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
        HARNESS.launch(&name, geometry(list, shape), &mut arguments);
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
            run_forward(&mut found, Windows::ByTile);
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
            run_backward(&example, &mut found, Windows::ByTile);
            let what = |part| format!("{part} of {hidden} units, {tile:?}");
            assert_close(found.gates.as_slice(), expected.gates.as_slice(), TOLERANCE, &what("gates' gradients"));
            assert_close(found.hidden.as_slice(), expected.hidden.as_slice(), TOLERANCE, &what("gradients of h"));
            assert_close(found.cell.as_slice(), expected.cell.as_slice(), TOLERANCE, &what("gradients of c"));
        }
    }

    #[test]
    fn blocks_of_one_two_and_four_windows_give_the_same_bits() {
        for hidden in [1, 50, 128] {
            let run = |tile, windows| {
                let mut example = Example::<f32>::new(hidden, tile);
                run_forward(&mut example, windows);
                let mut back = gradients(&example.list, true);
                run_backward(&example, &mut back, windows);
                [&example.states.hidden, &example.states.cell, &back.gates, &back.hidden, &back.cell]
                    .map(|numbers| numbers.to_vec().unwrap())
            };
            let expected = run(TileWindows::Eight, Windows::Single);
            assert_eq!(run(TileWindows::Eight, Windows::ByTile), expected, "two windows, {hidden} units");
            assert_eq!(run(TileWindows::Sixteen, Windows::ByTile), expected, "four windows, {hidden} units");
        }
    }

    #[test]
    fn shared_memory_is_within_what_every_gpu_has() {
        let list = Example::<f32>::new(128, TileWindows::Sixteen).list;
        for windows in [1, 2, 4] {
            // 99 KiB on GPUs of compute capability 8.6 and 8.9.
            assert!(BlockShape { units: 128, windows }.launch(&list).unwrap().shared_bytes() <= 99 << 10);
        }
    }
}
