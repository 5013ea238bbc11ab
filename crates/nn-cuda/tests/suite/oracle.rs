use megabatch_nn::model::{Model, ModelConfig, SampleShape, Timeframe};
use megabatch_reference::{Inputs, LayerState, Read, Reference, wide};

use super::*;

/// The layer in double precision, from operands rounded to `T`: a model of each timeframe, whose
/// samples read every step of every window.
fn expected<T: Operand>(example: &Example) -> LayerResults {
    let rounded = |values: &[f32]| values.iter().map(|&x| T::narrow(x).widen()).collect::<Vec<f32>>();
    let single = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let hidden = example.hidden;
    let mut layer = LayerResults {
        hidden: Vec::new(),
        cell: Vec::new(),
        d_weight_ih: Vec::new(),
        d_weight_hh: Vec::new(),
        d_bias: Vec::new(),
        d_first: [Vec::new(), Vec::new()],
    };
    for (s, (steps, first)) in TIMEFRAMES.into_iter().enumerate() {
        let timeframe = Timeframe { name: String::new(), steps, features: WIDTH };
        let shape = SampleShape { timeframes: vec![timeframe], outputs: hidden };
        let model = Model::new(shape, ModelConfig { hidden, ..ModelConfig::default() }).unwrap();
        let (weight_ih, weight_hh) = (rounded(&example.weight_ih[s]), rounded(&example.weight_hh[s]));
        let zeros = vec![0.0; 4 * hidden];
        let reference = Reference::with_identity_head(&model, |name| match name {
            "lstm.weight_ih_l0" => &weight_ih,
            "lstm.weight_hh_l0" => &weight_hh,
            "lstm.bias_ih_l0" => &example.bias[s],
            _ => &zeros,
        });

        let (bars, windows) = (rounded(&example.bars[s]), first.len());
        let window = |&first: &u32| bars[first as usize * WIDTH..][..steps * WIDTH].to_vec();
        let windows_of: Vec<f32> = first.iter().flat_map(window).collect();
        let mut inputs = Inputs::from_windows(model.shape(), windows, [wide(&windows_of)]);
        let reads = (0..steps).flat_map(|step| (0..windows).map(move |sequence| Read { sequence, step }));
        inputs.timeframes[0].reads = reads.collect();
        let zeros = vec![0.0; windows * hidden];
        inputs.timeframes[0].initial = vec![LayerState { hidden: zeros.clone(), cell: zeros.clone() }];
        let states = reference.forward(&inputs).states.swap_remove(0).swap_remove(0);
        layer.hidden.extend(single(&zeros));
        layer.hidden.extend(single(&states.hidden));
        layer.cell.extend(single(&zeros));
        layer.cell.extend(single(&states.cell));

        let gradients = reference.gradients(&inputs, &wide(&example.d_outputs[s]));
        layer.d_weight_ih.extend(single(&gradients.parameters["lstm.weight_ih_l0"]));
        layer.d_weight_hh.extend(single(&gradients.parameters["lstm.weight_hh_l0"]));
        layer.d_bias.extend(single(&gradients.parameters["lstm.bias_ih_l0"]));
        layer.d_first[0].extend(single(&gradients.initial[0][0].hidden));
        layer.d_first[1].extend(single(&gradients.initial[0][0].cell));
    }
    layer
}

fn check<T: Operand>(tolerance: f32) {
    for hidden in [1, 7, 20, 64] {
        let example = Example::new(hidden);
        let found = example.run::<T>(&Device::cpu(), TileWindows::Eight).unwrap();
        found.assert_close(&expected::<T>(&example), tolerance, &format!("{hidden} units in {}", T::SUFFIX));
    }
}

/// In f32, six steps of sums of up to 64 terms; in 16 bits, hidden states and the gradients of
/// gates are rounded at every step, to 11 bits or to 8, and gates to 11.
#[test]
fn the_cpu_gives_the_oracles_layer() {
    check::<f32>(1e-5);
    check::<f16>(2e-3);
    check::<bf16>(2e-2);
}
