use half::{bf16, f16};
use megabatch_gpu_core::{Buffer, Scope};
use megabatch_simt::Arg;

use super::super::group;
use super::super::harness::{HARNESS, noise};
use super::super::recurrent_weights::{RecurrentWeights, fragments_by_kernel, persistent_units};
use super::super::uploaded::work_list;
use super::super::work_list::{Sequence, TileWindows};
use super::*;

/// A list of H units with weights, projected inputs and states to begin from.
pub(in super::super) struct Example<T: Operand> {
    pub(in super::super) list: WorkList,
    pub(in super::super) weights: RecurrentWeights<T>,
    projected: Buffer<f32>,
    pub(in super::super) states: States<T>,
}

/// Overlapping windows, one more than a tile has; a single step; a single window whose rows are
/// those of a layer below; no window at all.
pub(in super::super) fn sequences(scope: &Scope, hidden: usize, tile: TileWindows) -> WorkList {
    let windows: Vec<u32> = (0..9).collect();
    let sequence = |steps, first, row_step, projected_rows| Sequence { steps, first, row_step, projected_rows };
    let sequences = [
        sequence(3, &windows[..], 1, 11),
        sequence(1, &[0, 0], 1, 1),
        sequence(4, &[0], 3, 10),
        sequence(2, &[], 1, 2),
    ];
    work_list(scope, hidden, tile, &sequences).unwrap()
}

impl<T: Operand> Example<T> {
    pub(in super::super) fn new(hidden: usize, tile: TileWindows) -> Self {
        let scope = Device::cpu().scope("test");
        let list = sequences(&scope, hidden, tile);
        let starts: Vec<usize> = (0..list.sequences()).map(|s| s * 4 * hidden * hidden).collect();
        let mut weights = RecurrentWeights::zeros(&scope, hidden, &starts).unwrap();
        let reach = 1.0 / (hidden as f32).sqrt();
        let numbers = noise("weights", list.sequences() * 4 * hidden * hidden, reach);
        weights.set(&Buffer::from_slice(&scope, &numbers).unwrap()).unwrap();
        let projected = noise("projected", list.projected_rows() * 4 * hidden, 2.0);
        let projected = Buffer::from_slice(&scope, &projected).unwrap();
        let mut states = States::zeros(&scope, &list).unwrap();
        // Also what is to be overwritten.
        let before = noise("states", states.cell.len(), 0.8);
        states.cell.copy_from(&before).unwrap();
        states.hidden.copy_from(&before.into_iter().map(T::narrow).collect::<Vec<_>>()).unwrap();
        Example { list, weights, projected, states }
    }

    pub(in super::super) fn run_on_cpu(&mut self) {
        let inputs = RecurrenceInputs { weights: &self.weights, projected: &self.projected };
        recurrence(&self.list, &inputs, &mut self.states).unwrap();
    }

    fn run_by_kernel(&mut self) {
        let units = persistent_units::<T>(self.list.hidden()).unwrap();
        let ([fragments, _], (name, launch)) =
            (fragments_by_kernel(&self.weights), kernel::<T>("forward", &self.list, units));
        let mut arguments = self.arguments(&[self.list.hidden() as u32], Arg::from(&fragments[..]));
        HARNESS.run(&name, launch, &mut arguments);
    }

    /// The arguments that all kernels have; `weights` in the layout that the kernel reads.
    pub(in super::super) fn arguments<'a>(&'a mut self, numbers: &[u32], weights: Arg<'a>) -> Vec<Arg<'a>> {
        let mut arguments = self.list.arguments(numbers);
        arguments.extend([
            weights,
            Arg::from(bytemuck::cast_slice::<f32, [f32; 4]>(self.projected.as_slice())),
            Arg::from(self.list.on_device.first.as_slice()),
            Arg::from(self.states.hidden.as_mut_slice()),
            Arg::from(self.states.cell.as_mut_slice()),
            Arg::from(bytemuck::cast_slice_mut::<T::SavedGate, [T::SavedGate; 4]>(self.states.gates.as_mut_slice())),
        ]);
        arguments
    }

    /// By so many groups of blocks.
    fn run_by_groups(&mut self, groups: usize) {
        let units = persistent_units::<T>(self.list.hidden()).unwrap();
        let ([fragments, _], shares) = (fragments_by_kernel(&self.weights), group::Shares::split(&self.list, groups));
        let mut arrived = vec![0u32; shares.groups * group::blocks(units)];
        let mut arguments = self.arguments(&shares.numbers(&self.list), Arg::from(&fragments[..]));
        arguments.push(Arg::from(&mut arrived[..]));
        let launch = group::launch(shares.groups, units).unwrap();
        HARNESS.run_cooperative(&group::kernel_name::<T>("forward", units), launch, &mut arguments);
    }
}

impl WorkList {
    /// First arguments of every kernel: places, tiles and `numbers`.
    pub(in super::super) fn arguments(&self, numbers: &[u32]) -> Vec<Arg<'_>> {
        let work = [Arg::from(self.on_device.places.as_slice()), Arg::from(self.on_device.tiles.as_slice())];
        work.into_iter().chain(numbers.iter().map(|&number| Arg::from(number))).collect()
    }
}

/// A number that lies near the middle between two of `T` is rounded to either; each step hands on
/// some of that.
pub(in super::super) fn tolerance<T: Operand>() -> f32 {
    if T::SUFFIX == "f16" { 2e-3 } else { 1.2e-2 }
}

pub(in super::super) fn assert_close<T: Operand>(found: &[T], expected: &[T], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (found, expected) = (found.widen(), expected.widen());
        let is_close = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(is_close, "{what}: number {k} is {found} where {expected} is right");
    }
}

fn check<T: Operand>(hidden: usize, tile: TileWindows, run: impl Fn(&mut Example<T>)) {
    let (mut expected, mut found) = (Example::<T>::new(hidden, tile), Example::<T>::new(hidden, tile));
    expected.run_on_cpu();
    run(&mut found);
    let what = |part| format!("{part} of {hidden} units in {}, {tile:?}", T::SUFFIX);
    let (found, expected, most) = (&found.states, &expected.states, tolerance::<T>());
    assert_close(found.hidden.as_slice(), expected.hidden.as_slice(), most, &what("hidden states"));
    assert_close(found.cell.as_slice(), expected.cell.as_slice(), most, &what("cell states"));
    assert_close(found.gates.as_slice(), expected.gates.as_slice(), most, &what("gates"));
}

#[test]
fn the_persistent_kernels_give_the_cpus_states() {
    for (hidden, tile) in [(2, TileWindows::Four), (20, TileWindows::Sixteen), (34, TileWindows::Eight)] {
        check::<bf16>(hidden, tile, Example::run_by_kernel);
        check::<f16>(hidden, tile, Example::run_by_kernel);
    }
    check::<f16>(32, TileWindows::Eight, Example::run_by_kernel);
    check::<bf16>(64, TileWindows::Sixteen, Example::run_by_kernel);
    check::<bf16>(128, TileWindows::Eight, Example::run_by_kernel);
    check::<f16>(102, TileWindows::Sixteen, Example::run_by_kernel);
    check::<bf16>(128, TileWindows::Four, Example::run_by_kernel);
    check::<f16>(50, TileWindows::Four, Example::run_by_kernel);
}

#[test]
fn groups_of_blocks_give_the_cpus_states() {
    check::<bf16>(129, TileWindows::Eight, |example| example.run_by_groups(1));
    check::<f16>(256, TileWindows::Sixteen, |example| example.run_by_groups(2));
    check::<bf16>(200, TileWindows::Eight, |example| example.run_by_groups(3));
    check::<f16>(331, TileWindows::Eight, |example| example.run_by_groups(1));
    check::<bf16>(512, TileWindows::Eight, |example| example.run_by_groups(2));
}

#[test]
fn groups_give_the_same_bits_however_windows_are_dealt_out() {
    let run = |groups, tile| {
        let mut example = Example::<bf16>::new(136, tile);
        example.run_by_groups(groups);
        (
            example.states.hidden.to_vec().unwrap(),
            example.states.cell.to_vec().unwrap(),
            example.states.gates.to_vec().unwrap(),
        )
    };
    let expected = run(1, TileWindows::Eight);
    for (groups, tile) in [(4, TileWindows::Eight), (1, TileWindows::Sixteen), (2, TileWindows::Sixteen)] {
        assert_eq!(run(groups, tile), expected, "{groups} groups, {tile:?}");
    }
}
