use half::{bf16, f16};
use megabatch_simt::Arg;

use super::super::group;
use super::super::harness::{HARNESS, noise};
use super::super::recurrence::tests::{Example, assert_close, tolerance};
use super::super::recurrent_weights::{fragments_by_kernel, persistent_units};
use super::super::work_list::TileWindows;
use super::*;

/// Gradients from above, after every step or after the last alone.
fn gradients<T: Operand>(list: &WorkList, after_every_step: bool) -> Gradients<T> {
    let scope = Device::cpu().scope("test");
    let mut gradients = Gradients::zeros(&scope, list).unwrap();
    gradients.hidden.copy_from(&noise("d_hidden", gradients.hidden.len(), 1.0)).unwrap();
    gradients.cell.copy_from(&noise("d_cell", gradients.cell.len(), 1.0)).unwrap();
    let len = list.rows() * list.hidden();
    gradients.outputs = after_every_step.then(|| Buffer::from_slice(&scope, &noise("d_outputs", len, 1.0)).unwrap());
    gradients
}

fn run_by_kernel<T: Operand>(example: &Example<T>, gradients: &mut Gradients<T>) {
    let units = persistent_units::<T>(example.list.hidden()).unwrap();
    let ([_, fragments], (name, launch)) =
        (fragments_by_kernel(&example.weights), kernel::<T>("backward", &example.list, units));
    let mut arguments = arguments(example, &[example.list.hidden() as u32], &fragments, gradients);
    HARNESS.run(&name, launch, &mut arguments);
}

/// The work, `numbers`, and the arrays that all kernels have.
fn arguments<'a, T: Operand>(
    example: &'a Example<T>,
    numbers: &[u32],
    fragments: &'a [[u32; 4]],
    gradients: &'a mut Gradients<T>,
) -> Vec<Arg<'a>> {
    let mut arguments = example.list.arguments(numbers);
    arguments.extend([
        Arg::from(fragments),
        Arg::from(example.states.cell.as_slice()),
        Arg::from(bytemuck::cast_slice::<T::SavedGate, [T::SavedGate; 4]>(example.states.gates.as_slice())),
        gradients.outputs.as_ref().map_or(Arg::null(), |outputs| Arg::from(outputs.as_slice())),
        Arg::from(gradients.hidden.as_mut_slice()),
        Arg::from(gradients.cell.as_mut_slice()),
        Arg::from(bytemuck::cast_slice_mut::<T, [T; 4]>(gradients.gates.as_mut_slice())),
    ]);
    arguments
}

/// By so many groups of blocks.
fn run_by_groups<T: Operand>(example: &Example<T>, gradients: &mut Gradients<T>, groups: usize) {
    let units = persistent_units::<T>(example.list.hidden()).unwrap();
    let ([_, fragments], shares) = (fragments_by_kernel(&example.weights), group::Shares::split(&example.list, groups));
    let mut arrived = vec![0u32; shares.groups * group::blocks(units)];
    let mut arguments = arguments(example, &shares.numbers(&example.list), &fragments, gradients);
    arguments.push(Arg::from(&mut arrived[..]));
    let launch = group::launch(shares.groups, units).unwrap();
    HARNESS.run_cooperative(&group::kernel_name::<T>("backward", units), launch, &mut arguments);
}

/// Steps after which hidden states have gradients from above.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    EveryStep,
    LastStep,
}

fn check<T: Operand>(hidden: usize, given: Given, tile: TileWindows, run: impl Fn(&Example<T>, &mut Gradients<T>)) {
    let mut example = Example::<T>::new(hidden, tile);
    example.run_on_cpu();
    let [mut expected, mut found] = [(); 2].map(|()| gradients::<T>(&example.list, given == Given::EveryStep));
    recurrence_backward(&example.list, &example.weights, &example.states, &mut expected).unwrap();
    run(&example, &mut found);
    let (what, most) = (|part| format!("{part} of {hidden} units in {}, {tile:?}", T::SUFFIX), tolerance::<T>());
    assert_close(found.gates.as_slice(), expected.gates.as_slice(), most, &what("gates' gradients"));
    assert_close(found.hidden.as_slice(), expected.hidden.as_slice(), most, &what("first hidden states' gradients"));
    assert_close(found.cell.as_slice(), expected.cell.as_slice(), most, &what("first cell states' gradients"));
}

#[test]
fn the_persistent_kernels_give_the_cpus_gradients() {
    for (hidden, tile) in [(2, TileWindows::Four), (20, TileWindows::Sixteen), (34, TileWindows::Eight)] {
        check::<bf16>(hidden, Given::EveryStep, tile, run_by_kernel);
        check::<f16>(hidden, Given::LastStep, tile, run_by_kernel);
    }
    check::<f16>(32, Given::EveryStep, TileWindows::Eight, run_by_kernel);
    check::<bf16>(64, Given::LastStep, TileWindows::Sixteen, run_by_kernel);
    check::<bf16>(128, Given::EveryStep, TileWindows::Eight, run_by_kernel);
    check::<f16>(102, Given::EveryStep, TileWindows::Sixteen, run_by_kernel);
    check::<bf16>(128, Given::EveryStep, TileWindows::Four, run_by_kernel);
    check::<f16>(50, Given::LastStep, TileWindows::Four, run_by_kernel);
}

#[test]
fn groups_of_blocks_give_the_cpus_gradients() {
    check::<bf16>(129, Given::EveryStep, TileWindows::Eight, |example, found| run_by_groups(example, found, 1));
    check::<f16>(256, Given::LastStep, TileWindows::Sixteen, |example, found| run_by_groups(example, found, 2));
    check::<bf16>(200, Given::EveryStep, TileWindows::Eight, |example, found| run_by_groups(example, found, 3));
    check::<f16>(331, Given::EveryStep, TileWindows::Eight, |example, found| run_by_groups(example, found, 1));
    check::<bf16>(512, Given::LastStep, TileWindows::Eight, |example, found| run_by_groups(example, found, 2));
}

#[test]
fn groups_give_the_same_bits_however_windows_are_dealt_out() {
    let run = |groups, tile| {
        let mut example = Example::<bf16>::new(136, tile);
        example.run_on_cpu();
        let mut found = gradients::<bf16>(&example.list, true);
        run_by_groups(&example, &mut found, groups);
        (found.gates.to_vec().unwrap(), found.hidden.to_vec().unwrap(), found.cell.to_vec().unwrap())
    };
    let expected = run(1, TileWindows::Eight);
    for (groups, tile) in [(4, TileWindows::Eight), (1, TileWindows::Sixteen), (2, TileWindows::Sixteen)] {
        assert_eq!(run(groups, tile), expected, "{groups} groups, {tile:?}");
    }
}
