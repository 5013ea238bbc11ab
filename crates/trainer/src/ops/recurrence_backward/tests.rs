use half::{bf16, f16};
use megabatch_simt::Arg;

use super::super::harness::{HARNESS, noise};
use super::super::recurrence::tests::{Example, assert_close, tolerance};
use super::super::recurrent_weights::{fragments_by_kernel, persistent_units};
use super::super::work_list::TileWindows;
use super::*;

/// Gradients from above, after every step or after the last alone.
fn gradients<T: Operand>(list: &WorkList, after_every_step: bool) -> Gradients<T> {
    let scope = Device::cpu().scope("test");
    let mut of = Gradients::zeros(&scope, list).unwrap();
    of.hidden.copy_from(&noise("d_hidden", of.hidden.len(), 1.0)).unwrap();
    of.cell.copy_from(&noise("d_cell", of.cell.len(), 1.0)).unwrap();
    let len = list.rows() * list.hidden();
    of.outputs = after_every_step.then(|| Buffer::from_slice(&scope, &noise("d_outputs", len, 1.0)).unwrap());
    of
}

fn run_by_kernel<T: Operand>(of: &Example<T>, gradients: &mut Gradients<T>) {
    let units = persistent_units::<T>(of.list.hidden()).unwrap();
    let ([_, fragments], (name, launch)) = (fragments_by_kernel(&of.weights), kernel::<T>("backward", &of.list, units));
    let mut arguments = [
        Arg::from(of.list.on_device.places.as_slice()),
        Arg::from(of.list.on_device.tiles.as_slice()),
        Arg::from(of.list.hidden() as u32),
        Arg::from(&fragments[..]),
        Arg::from(of.states.cell.as_slice()),
        Arg::from(bytemuck::cast_slice::<T::Kept, [T::Kept; 4]>(of.states.gates.as_slice())),
        gradients.outputs.as_ref().map_or(Arg::null(), |outputs| Arg::from(outputs.as_slice())),
        Arg::from(gradients.hidden.as_mut_slice()),
        Arg::from(gradients.cell.as_mut_slice()),
        Arg::from(bytemuck::cast_slice_mut::<T, [T; 4]>(gradients.gates.as_mut_slice())),
    ];
    HARNESS.run(&name, launch, &mut arguments);
}

fn check<T: Operand>(hidden: usize, tile: TileWindows, after_every_step: bool) {
    let mut example = Example::<T>::new(hidden, tile);
    example.run_on_cpu();
    let [mut expected, mut found] = [(); 2].map(|()| gradients::<T>(&example.list, after_every_step));
    recurrence_backward(&example.list, &example.weights, &example.states, &mut expected).unwrap();
    run_by_kernel(&example, &mut found);
    let (what, most) = (|part| format!("{part} of {hidden} units in {}, {tile:?}", T::SUFFIX), tolerance::<T>());
    assert_close(found.gates.as_slice(), expected.gates.as_slice(), most, &what("gates' gradients"));
    assert_close(found.hidden.as_slice(), expected.hidden.as_slice(), most, &what("first hidden states' gradients"));
    assert_close(found.cell.as_slice(), expected.cell.as_slice(), most, &what("first cell states' gradients"));
}

#[test]
fn the_persistent_kernels_give_the_cpus_gradients() {
    for (hidden, tile) in [(1, TileWindows::Eight), (20, TileWindows::Sixteen), (33, TileWindows::Eight)] {
        check::<bf16>(hidden, tile, true);
        check::<f16>(hidden, tile, false);
    }
    check::<f16>(32, TileWindows::Eight, true);
    check::<bf16>(64, TileWindows::Sixteen, false);
    check::<bf16>(128, TileWindows::Eight, true);
    check::<f16>(101, TileWindows::Sixteen, true);
}
