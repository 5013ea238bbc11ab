//! The module of docs/reference/weights.md: layer norm, pooling and fusion by attention, each
//! parameter under its own name.

use std::collections::BTreeMap;

use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Cell, Fusion, Model, ModelConfig, Pooling, SampleShape, Timeframe};
use megabatch_reference::{Inputs, loss};
use serde::Deserialize;

use crate::fixture::{File, folder, reference};

/// Only the order of sums differs. Norms divide by a spread of a tenth.
const TOLERANCE: f64 = 1e-12;

/// A case as the file's metadata describe it.
#[derive(Deserialize)]
struct Case {
    samples: usize,
    /// T and F by name.
    timeframes: BTreeMap<String, [usize; 2]>,
    outputs: usize,
    model: Arguments,
}

/// The arguments of the module.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    cell: Option<Cell>,
    hidden: usize,
    layers: Option<usize>,
    bias: Option<bool>,
    layer_norm: Option<bool>,
    pooling_heads: Option<usize>,
    fusion_heads: Option<usize>,
    fusion_feed_forward: Option<usize>,
}

impl Case {
    /// The timeframes in the order of the module, shortest first.
    fn shape(&self) -> SampleShape {
        let timeframe = |name: &str| {
            let &[steps, features] = self.timeframes.get(name)?;
            Some(Timeframe { name: name.to_owned(), steps, features })
        };
        let timeframes = ["", "M1", "M5", "M15", "H1", "H4"].into_iter().filter_map(timeframe).collect();
        SampleShape { timeframes, outputs: self.outputs }
    }

    fn config(&self) -> ModelConfig {
        let model = &self.model;
        let feed_forward = model.fusion_feed_forward.unwrap_or(4);
        ModelConfig {
            cell: model.cell.unwrap_or_default(),
            hidden: model.hidden,
            layers: model.layers.unwrap_or(1),
            bias: model.bias.unwrap_or(true),
            layer_norm: model.layer_norm.unwrap_or(false),
            pooling: model.pooling_heads.map_or(Pooling::Last, |heads| Pooling::Attention { heads }),
            fusion: model.fusion_heads.map_or(Fusion::Concat, |heads| Fusion::Attention { heads, feed_forward }),
            ..ModelConfig::default()
        }
    }
}

#[test]
fn models_compute_what_the_module_does() {
    let file = File::read(&folder("trainer").join("weights/torch_float64.safetensors"));
    let cases: BTreeMap<String, Case> = serde_json::from_str(&file.metadata["cases"]).unwrap();
    assert_eq!(cases.len(), 15);
    for (name, case) in &cases {
        check(&file, name, case);
    }
    // Steps of AdamW are the trainer's.
    file.check_all_seen(|name| ["/after.", "/loss1", "/loss2"].iter().any(|part| name.contains(part)));
}

fn check(file: &File, name: &str, case: &Case) {
    let model = Model::new(case.shape(), case.config()).unwrap();
    let timeframes = &model.shape().timeframes;
    let windows = timeframes.iter().map(|timeframe| file.tensor(&format!("{name}/input.{}", timeframe.name)).to_vec());
    let inputs = Inputs::from_windows(model.shape(), case.samples, windows);
    let reference = reference(&model, |parameter| file.tensor(&format!("{name}/param.{parameter}")));

    let outputs = reference.forward(&inputs);
    file.compare(&format!("{name}/y"), &outputs.outputs, TOLERANCE);
    if model.config().pooling != Pooling::Last {
        for (timeframe, weights) in timeframes.iter().zip(&outputs.pooling_weights) {
            file.compare(&format!("{name}/weights.{}", timeframe.name), weights, TOLERANCE);
        }
    }
    if model.config().fusion != Fusion::Concat {
        file.compare(&format!("{name}/fusion_weights"), &outputs.fusion_weights, TOLERANCE);
    }
    let loss = loss(Loss::Mse, &outputs.outputs, file.tensor(&format!("{name}/target")), case.outputs);
    file.compare(&format!("{name}/loss0"), &[loss.mean], TOLERANCE);
    for (parameter, gradient) in reference.gradients(&inputs, &loss.gradient).parameters {
        file.compare(&format!("{name}/grad.{parameter}"), &gradient, TOLERANCE);
    }
}
