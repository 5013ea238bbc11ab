use half::{bf16, f16};
use megabatch_gpu_core::Scope;
use megabatch_simt::Arg;

use super::super::batch_upload::BatchUploader;
use super::super::harness::{HARNESS, noise};
use super::super::input_weights::fragments_by_kernel as input_fragments_by_kernel;
use super::super::recurrence::tests::{Example, assert_close, tolerance};
use super::super::recurrent_weights::{fragments_by_kernel, persistent_units};
use super::super::work_list::TileWindows;
use super::*;

/// A list with weights and states whose sequences read rows of so many numbers: more windows than a
/// tile has, a single step, a single window, none.
struct RowsExample<T: Operand> {
    example: Example<T>,
    input: InputWeights<T>,
    rows: Buffer<T>,
}

fn numbers<T: Operand>(scope: &Scope, name: &'static str, len: usize, most: f32) -> Buffer<T> {
    Buffer::from_slice(scope, &noise(name, len, most).into_iter().map(T::narrow).collect::<Vec<_>>()).unwrap()
}

impl<T: Operand> RowsExample<T> {
    fn new(hidden: usize, tile: TileWindows, features: [usize; 4]) -> Self {
        let mut example = Example::<T>::new(hidden, tile);
        let scope = example.states.cell.scope().clone();
        let mut input = InputWeights::zeros(&scope, hidden, &features).unwrap();
        let (mut rows, mut end) = (Vec::new(), 0);
        for (k, &features) in features.iter().enumerate() {
            let weight = numbers::<T>(&scope, "weight_ih", 4 * hidden * features, 1.0 / (features as f32).sqrt());
            let bias = numbers::<f32>(&scope, "bias", 4 * hidden, 0.5);
            // The third has no bias.
            input.set(k, (&weight).into(), (k != 2).then_some((&bias).into())).unwrap();
            rows.push((end, features));
            end += example.list.projected_rows_of(k) * features + 3;
        }
        example.list.read_rows(&rows);
        let mut uploader = BatchUploader::new(&scope).unwrap();
        let mut upload = uploader.upload();
        example.list.enqueue(&mut upload).unwrap();
        upload.send().unwrap();
        RowsExample { example, input, rows: numbers(&scope, "rows", end, 1.5) }
    }

    fn run_on_cpu(&mut self) {
        let RowsExample { example, input, rows } = self;
        recurrence_of_rows(&example.list, &RowInputs { weights: &example.weights, input, rows }, &mut example.states)
            .unwrap();
    }

    fn run_by_kernel(&mut self) {
        let RowsExample { example, input, rows } = self;
        let units = persistent_units::<T>(example.list.hidden()).unwrap();
        let ([fragments, _], (name, launch)) =
            (fragments_by_kernel(&example.weights), kernel::<T>("rows", &example.list, units));
        let (input_fragments, bias) = input_fragments_by_kernel(input);
        let mut arguments = example.list.arguments(&[example.list.hidden() as u32]);
        arguments.extend([
            Arg::from(&fragments[..]),
            Arg::from(rows.as_slice()),
            Arg::from(&input_fragments[..]),
            Arg::from(bytemuck::cast_slice::<f32, [f32; 4]>(&bias)),
            Arg::from(input.doublings()),
            Arg::from(example.list.on_device.first.as_slice()),
            Arg::from(example.states.hidden.as_mut_slice()),
            Arg::from(example.states.cell.as_mut_slice()),
            Arg::from(bytemuck::cast_slice_mut::<T::SavedGate, [T::SavedGate; 4]>(example.states.gates.as_mut_slice())),
        ]);
        HARNESS.run(&name, launch, &mut arguments);
    }
}

fn check<T: Operand>(hidden: usize, tile: TileWindows, features: [usize; 4]) {
    let [mut expected, mut found] = [0; 2].map(|_| RowsExample::<T>::new(hidden, tile, features));
    expected.run_on_cpu();
    found.run_by_kernel();
    let what = |part| format!("{part} of {hidden} units over {features:?} in {}, {tile:?}", T::SUFFIX);
    let (found, expected, most) = (&found.example.states, &expected.example.states, tolerance::<T>());
    assert_close(found.hidden.as_slice(), expected.hidden.as_slice(), most, &what("hidden states"));
    assert_close(found.cell.as_slice(), expected.cell.as_slice(), most, &what("cell states"));
    assert_close(found.gates.as_slice(), expected.gates.as_slice(), most, &what("gates"));
}

#[test]
fn the_kernels_project_as_the_cpu_does() {
    let [four, eight, sixteen] = [TileWindows::Four, TileWindows::Eight, TileWindows::Sixteen];
    check::<bf16>(2, eight, [1, 1, 1, 1]);
    check::<f16>(20, four, [5, 1, 16, 3]);
    check::<bf16>(34, four, [16, 17, 5, 1]);
    check::<bf16>(128, four, [64, 16, 5, 1]);
    check::<f16>(20, sixteen, [5, 1, 16, 3]);
    check::<bf16>(34, eight, [16, 17, 5, 1]);
    check::<f16>(64, sixteen, [33, 5, 1, 2]);
    check::<f16>(102, eight, [5, 64, 33, 1]);
    check::<bf16>(128, sixteen, [64, 16, 5, 1]);
    check::<f16>(128, eight, [12, 16, 5, 1]);
}
