//! Gradients of the plain form against finite differences, in double precision, over random small
//! models and graphs.

use std::sync::Arc;

use megabatch_gpu_core::Device;
use megabatch_nn::cpu::graph_attention::{NodeGradients, Nodes, Passes};
use megabatch_nn::graph::GraphDropout;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{
    AttentionKind, GraphActivation, GraphAttention, GraphConfig, GraphOutput, Layout, TensorSet,
};
use megabatch_trainer::AttentionMemory;
use proptest::prelude::*;

use crate::made_up::{OwnedGraph, numbers};

/// Attention and all that its loss depends on.
struct Problem {
    attention: GraphAttention,
    graph: OwnedGraph,
    parameters: TensorSet<f64>,
    x: Vec<f64>,
    targets: Vec<f64>,
    dropout: Option<GraphDropout>,
}

impl Problem {
    fn nodes(&self) -> Nodes<'_, f64> {
        Nodes { graph: self.graph.view(), x: &self.x, dropout: self.dropout }
    }

    fn loss(&self, memory: &mut AttentionMemory<f64>) -> f64 {
        let y = self.attention.forward(&self.parameters, self.nodes(), memory);
        Loss::Mse.sum(y, &self.targets) / self.targets.len() as f64
    }

    /// Checks `gradient` of the numbers that `place` finds, by central differences at up to 12 of
    /// them.
    fn check(&mut self, memory: &mut AttentionMemory<f64>, gradient: &[f64], place: impl Fn(&mut Self) -> &mut [f64]) {
        const STEP: f64 = 1e-6;
        for index in (0..gradient.len()).step_by(gradient.len().div_ceil(12).max(1)) {
            let at = place(self)[index];
            let mut loss_at = |x: f64| {
                place(self)[index] = x;
                self.loss(memory)
            };
            let (after, before) = (loss_at(at + STEP), loss_at(at - STEP));
            let slope = (after - before) / (2.0 * STEP);
            place(self)[index] = at;
            // The loss's rounding of 1e-16 divided by the step, and curvature, which dropout's
            // factors raise to hundreds; no slope of LeakyReLU or ReLU jumps within a step of these
            // numbers.
            let scale = 1.0 + slope.abs() + before;
            assert!((slope - gradient[index]).abs() < 1e-6 * scale, "{slope} and {}", gradient[index]);
        }
    }
}

fn configs() -> impl Strategy<Value = GraphConfig> {
    let kinds = prop_oneof![Just(AttentionKind::Gat), Just(AttentionKind::GatV2)];
    let outputs = prop_oneof![Just(GraphOutput::Linear), Just(GraphOutput::Attention)];
    let activations = prop_oneof![Just(GraphActivation::Elu), Just(GraphActivation::Relu)];
    let rate = || prop_oneof![Just(0.0f32), 0.1f32..0.7];
    let sizes = (1usize..4, 1usize..4, 1usize..4, 1usize..4);
    let choices = (kinds, outputs, activations, any::<bool>(), any::<bool>());
    (sizes, choices, rate(), rate(), 0.01f64..0.5).prop_map(
        |(
            (layers, heads, hidden, output_heads),
            (kind, output, activation, residual, self_loops),
            dropout,
            attention_dropout,
            negative_slope,
        )| GraphConfig {
            kind,
            layers,
            heads,
            hidden,
            output,
            output_heads,
            activation,
            residual,
            dropout,
            attention_dropout,
            negative_slope,
            self_loops,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_gradient_is_the_slope_of_the_loss(
        config in configs(),
        (nodes, density) in (1usize..8, 0.0f64..0.9),
        (width, attributes, outputs) in (1usize..5, 0usize..3, 1usize..4),
        seed in 0u64..1000,
    ) {
        let scope = Device::cpu().scope("gradients");
        let mut layout = Layout::default();
        let attention = GraphAttention::new(config, width, attributes, outputs, &mut layout);
        let mut parameters = TensorSet::zeros(&scope, &Arc::new(layout)).unwrap();
        attention.initial(seed, &mut parameters);
        // With biases of zero a node that receives nothing would stand on the edge of ReLU.
        let noise = numbers(seed + 4, parameters.values().len());
        parameters.values_mut().iter_mut().zip(noise).for_each(|(x, noise)| *x += 0.2 * noise);
        let mut problem = Problem {
            graph: OwnedGraph::random(seed, nodes, density, attributes),
            x: numbers(seed + 2, nodes * width),
            targets: numbers(seed + 3, nodes * attention.width()),
            dropout: Some(GraphDropout::of_step(seed, 5, 17)),
            attention,
            parameters,
        };
        let capacity = (nodes, problem.nodes().graph.edges());
        let mut memory = problem.attention.memory(&scope, capacity.0, capacity.1, Passes::ForwardAndBackward).unwrap();
        let y = problem.attention.forward(&problem.parameters, problem.nodes(), &mut memory).to_vec();
        let mut d_output = vec![0.0; y.len()];
        Loss::Mse.gradient(&y, &problem.targets, y.len(), &mut d_output);
        let mut d_x = vec![f64::NAN; problem.x.len()];
        let mut gradients = TensorSet::zeros(&scope, problem.parameters.layout()).unwrap();
        let node_gradients = NodeGradients { d_output: &d_output, d_x: Some(&mut d_x) };
        problem.attention.backward(&problem.parameters, problem.nodes(), node_gradients, &mut gradients, &mut memory);

        let mut probe = problem.attention.memory(&scope, capacity.0, capacity.1, Passes::Forward).unwrap();
        for (name, _, gradient) in gradients.tensors() {
            problem.check(&mut probe, gradient, |problem| problem.parameters.get_mut(name).unwrap());
        }
        problem.check(&mut probe, &d_x, |problem| &mut problem.x);
    }
}
