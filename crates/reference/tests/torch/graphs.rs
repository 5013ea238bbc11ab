//! torch_geometric.nn.GATConv and GATv2Conv. A case is a model without an encoder over one graph.
//! Where attention does not give the outputs itself, the head is the identity.

use std::collections::BTreeMap;

use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Encoder, GraphConfig, GraphOutput, Model, ModelConfig, Readout, SampleShape, Timeframe};
use megabatch_reference::{Graph, GraphDropout, Inputs, loss};
use serde::Deserialize;

use crate::fixture::{File, folder, largest, reference};

/// Only the order of sums differs.
const TOLERANCE: f64 = 1e-12;

/// The sizes of a case; its metadata hold the fields of [`GraphConfig`] as well.
#[derive(Deserialize)]
struct Case {
    nodes: usize,
    features: usize,
    attributes: usize,
    outputs: usize,
    #[serde(flatten)]
    others: serde_json::Map<String, serde_json::Value>,
}

impl Case {
    fn graph_config(&self) -> GraphConfig {
        let others = self.others.clone().into_iter().filter(|(name, _)| !["graph", "adam"].contains(&name.as_str()));
        serde_json::from_value(serde_json::Value::Object(others.collect())).unwrap()
    }

    fn model(&self) -> Model {
        let graph = self.graph_config();
        let outputs = if graph.output == GraphOutput::Attention { self.outputs } else { graph.heads * graph.hidden };
        let timeframes = vec![Timeframe { name: String::new(), steps: 1, features: self.features }];
        let config = ModelConfig {
            encoder: Encoder::LastBar,
            graph: Some(graph),
            graph_edge_attributes: self.attributes,
            readout: Some(Readout::Node),
            ..ModelConfig::default()
        };
        Model::new(SampleShape { timeframes, outputs }, config).unwrap()
    }
}

#[test]
fn graph_attention_computes_what_pytorch_geometric_does() {
    let file = File::read(&folder("nn-cpu").join("attention/torch_fixture.safetensors"));
    let cases: BTreeMap<String, Case> = serde_json::from_str(&file.metadata["cases"]).unwrap();
    assert_eq!(cases.len(), 30, "the fixture has 15 cases of two kinds");
    for (name, case) in &cases {
        check(&file, name, case);
    }
    // Steps of Adam are the trainer's.
    file.check_all_seen(|name| name.contains("/step"));
}

fn check(file: &File, name: &str, case: &Case) {
    let model = case.model();
    let tensor_values = |tensor: &str| file.tensor(&format!("{name}/{tensor}"));
    let nodes = |tensor: &str| tensor_values(tensor).iter().map(|&node| node as usize).collect();
    let number = |name: &str| file.metadata[name].parse::<u64>().unwrap();
    let dropout = GraphDropout { seed: number("seed"), step: number("step"), graph: number("graph") as usize };
    let attributes = if case.attributes > 0 { tensor_values("attributes").to_vec() } else { Vec::new() };
    let dropout = (case.graph_config().dropout > 0.0).then_some(dropout);
    let graph = Graph { nodes: case.nodes, src: nodes("col"), dst: nodes("row"), attributes, dropout };
    let mut inputs = Inputs::from_windows(model.shape(), case.nodes, [tensor_values("x").to_vec()]);
    inputs.graphs = vec![graph];

    let width = model.outputs();
    let identity: Vec<f64> = (0..width * width).map(|i| if i % (width + 1) == 0 { 1.0 } else { 0.0 }).collect();
    let zeros = vec![0.0; width];
    let torch_name = |prefix: &str, parameter: &str| format!("{prefix}.{}", parameter.replace("graph.", "convs."));
    let reference = reference(&model, |parameter| match parameter {
        "head.weight" => &identity,
        "head.bias" => &zeros,
        _ => tensor_values(&torch_name("param", parameter)),
    });

    let outputs = reference.forward(&inputs).outputs;
    file.compare(&format!("{name}/y"), &outputs, TOLERANCE);
    let loss = loss(Loss::Mse, &outputs, tensor_values("target"), width);
    let gradients = reference.gradients(&inputs, &loss.gradient);
    file.compare(&format!("{name}/grad_x"), &gradients.bars[0], TOLERANCE);
    let parameters = || gradients.parameters.iter().filter(|(parameter, _)| !parameter.starts_with("head."));
    let largest_gradient =
        parameters().map(|(parameter, _)| largest(tensor_values(&torch_name("grad", parameter)))).fold(0.0, f64::max);
    for (parameter, gradient) in parameters() {
        let tensor = torch_name("grad", parameter);
        // The gradients of scores are differences, which a softmax makes sum to zero: they are as
        // exact as the numbers that they are differences of.
        let is_difference = ["att", "lin_r", "lin_edge"].iter().any(|part| parameter.contains(part));
        let largest_beside = if is_difference { largest_gradient } else { largest(tensor_values(&tensor)) };
        file.compare_beside(largest_beside, &format!("{name}/{tensor}"), gradient, TOLERANCE);
    }
}
