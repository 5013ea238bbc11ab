//! Gradients of whole models over graphs against finite differences, in double precision: encoder,
//! attention, readout, head and loss.

use std::sync::Arc;

use megabatch_gpu_core::{Device, Scope};
use megabatch_segment::{Compressed, Csc};
use proptest::prelude::*;

use super::*;
use crate::loss::{Loss, labelled_rows};
use crate::model::dropout::Dropout;
use crate::model::fusion::Fusion;
use crate::model::graph::{AttentionKind, GraphActivation, GraphConfig};
use crate::model::pooling::Pooling;
use crate::model::{Model, SampleShape, Timeframe};
use crate::reference::lstm::InputGradients;
use crate::reference::pass::Pass;

/// Numbers in (-1, 1) without pattern: the sines of a growing argument.
fn numbers(seed: u64, len: usize) -> Vec<f64> {
    (0..len).map(|i| (i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin()).collect()
}

/// A model over one graph and all that its loss depends on.
struct Problem {
    model: Model,
    parameters: TensorSet,
    windows: Vec<Vec<f64>>,
    targets: Vec<f64>,
    loss: Loss,
    nodes: usize,
    by_row: Compressed<u32>,
    by_column: Compressed<u32>,
    attributes: Vec<f32>,
    drops: bool,
}

impl Problem {
    fn new(scope: &Scope, model: Model, nodes: usize, edges: &[(u32, u32)], loss: Loss, drops: bool) -> Self {
        let (to, from): (Vec<u32>, Vec<u32>) = edges.iter().map(|&(a, b)| (a % nodes as u32, b % nodes as u32)).unzip();
        let by_row = Compressed::from_edges(&to, &from, nodes, nodes).unwrap();
        let by_column = by_row.csr(nodes).unwrap().transposed().unwrap();
        let outputs = model.shape().outputs;
        let mut targets = numbers(99, model.decoder().rows(nodes) * outputs);
        // A node without a label, where there are several.
        targets.iter_mut().skip(2 * outputs).take(1).for_each(|target| *target = f64::NAN);
        let timeframes = &model.shape().timeframes;
        let mut parameters: TensorSet = model.initial_parameters(scope, 3).unwrap();
        // Biases that begin at zero stand where activations have their kink.
        let shifted = parameters.values_mut().iter_mut().zip(numbers(77, model.layout().len()));
        shifted.for_each(|(value, shift)| *value += 0.05 * shift);
        Problem {
            windows: (1..).zip(timeframes).map(|(k, tf)| numbers(k, nodes * tf.steps * tf.features)).collect(),
            attributes: numbers(5, edges.len() * 2).into_iter().map(|x| x as f32).collect(),
            parameters,
            targets,
            loss,
            nodes,
            by_row,
            by_column,
            drops,
            model,
        }
    }

    fn graph(&self) -> GraphShard<'_> {
        let Compressed { offsets, indices, edges } = &self.by_column;
        let csc = Csc::new(offsets, indices, edges, self.nodes).unwrap();
        let view = GraphView { csr: self.by_row.csr(self.nodes).unwrap(), csc, attributes: &self.attributes };
        GraphShard { view, dropout: self.drops.then(|| GraphDropout::of_step(3, 14, 15)) }
    }

    fn forward(&self, pass: &mut Pass<f64>) -> f64 {
        pass.load(self.nodes, self.windows.iter().map(Vec::as_slice));
        if self.drops && !self.model.lstms().is_empty() {
            let ends: Vec<usize> = (0..self.nodes).collect();
            let ends = std::iter::repeat_n(ends.as_slice(), self.windows.len());
            pass.set_dropout(&self.model, Dropout::of_step(0.3, 3, 14).unwrap(), ends);
        }
        pass.forward(&self.model, &self.parameters, Some(self.graph()));
        self.loss.graph_sum(pass.outputs(), &self.targets, self.model.shape().outputs) / self.count() as f64
    }

    fn count(&self) -> usize {
        let outputs = self.model.shape().outputs;
        self.loss.graph_terms(labelled_rows(&self.targets, outputs), outputs).max(1)
    }

    fn gradients(&self, pass: &mut Pass<f64>, scope: &Scope) -> TensorSet {
        let mut gradients = TensorSet::zeros(scope, &Arc::clone(self.model.layout())).unwrap();
        self.forward(pass);
        let (y, d_y) = pass.outputs_and_gradient_mut();
        self.loss.graph_gradient(y, &self.targets, self.model.shape().outputs, self.count(), d_y);
        pass.backward(&self.model, &self.parameters, Some(self.graph()), &mut gradients);
        gradients
    }

    /// Checks the gradient of a tensor by central differences at up to 10 of its numbers.
    fn check(&mut self, pass: &mut Pass<f64>, name: &str, gradient: &[f64]) {
        const STEP: f64 = 1e-6;
        for index in (0..gradient.len()).step_by(gradient.len().div_ceil(10).max(1)) {
            let at = self.parameters.get(name).unwrap()[index];
            let mut loss_at = |x: f64| {
                self.parameters.get_mut(name).unwrap()[index] = x;
                self.forward(pass)
            };
            let [above, middle, below] = [loss_at(at + STEP), loss_at(at), loss_at(at - STEP)];
            let slopes = [(above - middle) / STEP, (middle - below) / STEP, (above - below) / (2.0 * STEP)];
            self.parameters.get_mut(name).unwrap()[index] = at;
            // The step's square times a third derivative, which norms make large, and a rounding of
            // 1e-16 divided by the step; where a kink lies within the step, one side is right up to
            // the step times a second derivative of order 10.
            let apart = slopes.iter().map(|slope| (slope - gradient[index]).abs()).fold(f64::MAX, f64::min);
            assert!(
                apart < 3e-5 * (1.0 + gradient[index].abs()),
                "{name}[{index}]: {slopes:?} and {}",
                gradient[index]
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_gradient_of_a_model_over_a_graph_is_the_slope_of_its_loss(
        windows in prop::collection::vec((1usize..4, 1usize..4), 1..3),
        (nodes, edges) in (1usize..7, prop::collection::vec((any::<u32>(), any::<u32>()), 0..14)),
        (hidden, layers, graph_layers, heads) in (1usize..4, 1usize..3, 1usize..3, 1usize..3),
        [lstm, attends, v2, relu, attention_head, residual, drops, self_loops] in any::<[bool; 8]>(),
        (outputs, sees_attributes) in (1usize..4, any::<bool>()),
        readout in prop::sample::select(vec![Readout::Node, Readout::Mean, Readout::Sum, Readout::Max]),
        (loss, pools, fuses, norm) in (0usize..4, any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let loss = [Loss::Mse, Loss::CrossEntropy, Loss::RankPairwise, Loss::RankListwise { temperature: 0.5 }][loss];
        prop_assume!(loss.check_readout(Some(readout)).is_ok());
        let graph = GraphConfig {
            kind: if v2 { AttentionKind::GatV2 } else { AttentionKind::Gat },
            layers: graph_layers,
            heads,
            hidden: 3,
            output: if attention_head { GraphOutput::Attention } else { GraphOutput::Linear },
            output_heads: heads,
            activation: if relu { GraphActivation::Relu } else { GraphActivation::Elu },
            residual,
            dropout: 0.3,
            attention_dropout: 0.2,
            self_loops,
            ..GraphConfig::default()
        };
        let config = ModelConfig {
            encoder: if lstm { Encoder::Lstm } else { Encoder::LastBar },
            hidden,
            layers,
            layer_norm: norm && lstm,
            pooling: if pools && lstm { Pooling::attention(hidden) } else { Pooling::Last },
            fusion: if fuses && lstm { Fusion::attention(hidden) } else { Fusion::Concat },
            graph: attends.then_some(graph),
            edge_attributes: if sees_attributes { 2 } else { 0 },
            readout: Some(readout),
            ..ModelConfig::default()
        };
        let timeframe = |(k, &(steps, features)): (usize, &(usize, usize))| Timeframe { name: format!("T{k}"), steps, features };
        let shape = SampleShape { timeframes: windows.iter().enumerate().map(timeframe).collect(), outputs };
        let scope = Device::cpu().scope("gradients");
        let mut problem = Problem::new(&scope, Model::new(shape, config).unwrap(), nodes, &edges, loss, drops);
        let room = Capacity { samples: nodes, edges: edges.len(), run: 1 };
        let mut pass = Pass::with_room(&scope, &problem.model, room, InputGradients::Skip).unwrap();
        if lstm {
            pass = pass.with_room_for_dropout(&scope).unwrap();
        }
        let gradients = problem.gradients(&mut pass, &scope);
        for (name, _, gradient) in gradients.tensors() {
            problem.check(&mut pass, name, gradient);
        }
    }
}
