//! A GRU and a head against NumPy in double precision, see `gru_fixture.py`.

use std::collections::BTreeMap;

use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Cell, Model, ModelConfig, SampleShape, TensorSet, Timeframe};
use megabatch_reference::{Inputs, LayerState, Reference, loss};
use safetensors::SafeTensors;

/// Only the order of sums differs.
const TOLERANCE: f64 = 1e-13;

fn compare(name: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= TOLERANCE * (1.0 + expected.abs()), "{name}: {found} for {expected}");
    }
}

#[test]
fn a_gru_computes_what_numpy_does() {
    let bytes = include_bytes!("gru_float64.safetensors");
    let values = |data: &[u8]| -> Vec<f64> {
        data.chunks_exact(8).map(|number| f64::from_le_bytes(number.try_into().unwrap())).collect()
    };
    let file = SafeTensors::deserialize(bytes).unwrap().tensors().into_iter();
    let file: BTreeMap<String, Vec<f64>> = file.map(|(name, view)| (name, values(view.data()))).collect();

    let (samples, hidden, outputs) = (3, 5, 2);
    let timeframe = Timeframe { name: String::new(), steps: 7, features: 4 };
    let config = ModelConfig { cell: Cell::Gru, hidden, layers: 2, ..ModelConfig::default() };
    let model = Model::new(SampleShape { timeframes: vec![timeframe], outputs }, config).unwrap();
    let zeros = TensorSet::zeros(&Device::cpu().scope("fixture"), model.layout()).unwrap();
    let mut reference = Reference::new(&model, &zeros);
    for (name, _) in model.layout().tensors() {
        reference.parameter_mut(name).unwrap().copy_from_slice(&file[&format!("param.{name}")]);
    }
    let mut inputs = Inputs::from_windows(model.shape(), samples, [file["input.x"].clone()]);
    let layers = file["input.h0"].chunks_exact(samples * hidden);
    inputs.timeframes[0].initial =
        layers.map(|state| LayerState { hidden: state.to_vec(), cell: Vec::new() }).collect();

    let found = reference.forward(&inputs);
    compare("y", &found.outputs, &file["out.y"]);
    let last = found.states[0].iter().flat_map(|layer| layer.hidden[layer.hidden.len() - samples * hidden..].to_vec());
    compare("hn", &last.collect::<Vec<_>>(), &file["out.hn"]);
    let loss = loss(Loss::Mse, &found.outputs, &file["input.target"], outputs);
    compare("loss", &[loss.mean], &file["out.loss"]);
    let gradients = reference.gradients(&inputs, &loss.gradient);
    for (name, gradient) in &gradients.parameters {
        compare(name, gradient, &file[&format!("grad.{name}")]);
    }
    compare("x", &gradients.bars[0], &file["grad.input.x"]);
    let initial = gradients.initial[0].iter().flat_map(|state| state.hidden.clone());
    compare("h0", &initial.collect::<Vec<_>>(), &file["grad.input.h0"]);
}
