//! torch.nn.LSTM and a head: the 16 cases of `fixtures/torch` in double precision.

use std::fs;

use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Model, ModelConfig, SampleShape, Timeframe};
use megabatch_reference::{Inputs, LayerState, LayerStates, loss};
use serde::Deserialize;

use crate::fixture::{File, folder, reference};

const TIMEFRAMES: [&str; 5] = ["M1", "M5", "M15", "H1", "H4"];

/// Only the order of sums differs, over up to 60 steps that feed each other.
const TOLERANCE: f64 = 1e-12;

/// A case as the fixture's metadata describe it.
#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
struct Case {
    b: usize,
    t: usize,
    f: usize,
    h: usize,
    l: usize,
    o: usize,
    #[serde(rename = "tfs")]
    timeframes: Option<Vec<usize>>,
    #[serde(rename = "bias")]
    bias: u8,
    #[serde(rename = "carry")]
    carry: u8,
}

impl Case {
    fn model(&self) -> Model {
        let timeframe = |name: &str, steps| Timeframe { name: name.to_owned(), steps, features: self.f };
        let timeframes = match &self.timeframes {
            None => vec![timeframe("", self.t)],
            Some(steps) => TIMEFRAMES.into_iter().zip(steps).map(|(name, &steps)| timeframe(name, steps)).collect(),
        };
        let config = ModelConfig { hidden: self.h, layers: self.l, bias: self.bias == 1, ..ModelConfig::default() };
        Model::new(SampleShape { timeframes, outputs: self.o }, config).unwrap()
    }

    /// The fixture's name of what belongs to timeframe `k`.
    fn timeframe_tensor(&self, name: &str, k: usize) -> String {
        if self.timeframes.is_some() { format!("{name}.{k}") } else { name.to_owned() }
    }
}

/// PyTorch's name in the fixtures of our parameter `name`: `head` is `fc`, and timeframes are
/// numbered.
fn torch_name(name: &str) -> String {
    let named = TIMEFRAMES.iter().enumerate().find_map(|(k, timeframe)| {
        name.strip_prefix(&format!("lstm.{timeframe}.")).map(|rest| format!("lstms.{k}.{rest}"))
    });
    named.unwrap_or_else(|| name.replace("head.", "fc."))
}

#[test]
fn lstms_compute_what_pytorch_does() {
    let files = fs::read_dir(folder("trainer").join("fixtures/torch")).unwrap().map(|entry| entry.unwrap().path());
    let double: Vec<_> = files.filter(|path| path.to_str().unwrap().ends_with("float64.safetensors")).collect();
    assert_eq!(double.len(), 16);
    for path in double {
        let file = File::read(&path);
        check(&file, &serde_json::from_str(&file.metadata["case"]).unwrap());
        // Clipping and optimizer steps are the trainer's.
        let is_left =
            |name: &str| ["clipped.", "adam.", "step", "grad_norm"].iter().any(|prefix| name.starts_with(prefix));
        file.check_all_seen(is_left);
    }
}

fn check(file: &File, case: &Case) {
    let model = case.model();
    let timeframes = 0..model.shape().timeframes.len();
    let windows = timeframes.clone().map(|k| file.tensor(&case.timeframe_tensor("input.x", k)).to_vec());
    let mut inputs = Inputs::from_windows(model.shape(), case.b, windows);
    if case.carry == 1 {
        let layers = |name| file.tensor(name).chunks_exact(case.b * case.h).map(<[f64]>::to_vec);
        let states = layers("input.h0").zip(layers("input.c0"));
        inputs.timeframes[0].initial = states.map(|(hidden, cell)| LayerState { hidden, cell }).collect();
    }
    let reference = reference(&model, |name| file.tensor(&format!("param.{}", torch_name(name))));

    let outputs = reference.forward(&inputs);
    file.compare("out.y", &outputs.outputs, TOLERANCE);
    let last = |kind: fn(&LayerStates) -> &[f64]| -> Vec<f64> {
        let layers = outputs.states.iter().flatten();
        layers.flat_map(|states| kind(states).rchunks_exact(case.b * case.h).next().unwrap().to_vec()).collect()
    };
    file.compare("out.hn", &last(|states| &states.hidden), TOLERANCE);
    file.compare("out.cn", &last(|states| &states.cell), TOLERANCE);
    if case.timeframes.is_none() {
        let rows = (0..case.b).flat_map(|b| (0..case.t).map(move |t| (t * case.b + b) * case.h));
        let batch_first: Vec<f64> = rows.flat_map(|row| outputs.sequences[0][row..row + case.h].to_vec()).collect();
        file.compare("out.seq", &batch_first, TOLERANCE);
    }

    let loss = loss(Loss::Mse, &outputs.outputs, file.tensor("input.target"), case.o);
    file.compare("out.loss", &[loss.mean], TOLERANCE);
    let gradients = reference.gradients(&inputs, &loss.gradient);
    for (name, gradient) in &gradients.parameters {
        file.compare(&format!("grad.{}", torch_name(name)), gradient, TOLERANCE);
    }
    for k in timeframes {
        file.compare(&case.timeframe_tensor("grad.input.x", k), &gradients.bars[k], TOLERANCE);
    }
    if case.carry == 1 {
        let initial = &gradients.initial[0];
        let hidden: Vec<f64> = initial.iter().flat_map(|state| state.hidden.clone()).collect();
        let cell: Vec<f64> = initial.iter().flat_map(|state| state.cell.clone()).collect();
        file.compare("grad.input.h0", &hidden, TOLERANCE);
        file.compare("grad.input.c0", &cell, TOLERANCE);
    }
}
