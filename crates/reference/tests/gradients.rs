//! Gradients of random small models against finite differences, in every option of the encoder, of
//! graphs and of losses; and what sequences, reads and dropout mean.

use megabatch_gpu_core::Device;
use megabatch_nn::loss::{Classes, Loss};
use megabatch_nn::model::{
    AttentionKind, Cell, Dropout, Encoder, Fusion, GraphActivation, GraphConfig, GraphOutput, Model, ModelConfig,
    Pooling, Readout, SampleShape, Timeframe,
};
use megabatch_reference::parts::{self, Parameter};
use megabatch_reference::{
    Graph, GraphDropout, Inputs, LayerState, LossValue, Read, Reference, Sequences, loss, loss_of_graphs,
};
use proptest::prelude::*;

/// Numbers in (-1, 1) without pattern: the sines of a growing argument.
fn numbers(seed: u64, len: usize) -> Vec<f64> {
    (0..len).map(|i| (i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin()).collect()
}

/// The model with random parameters, none of which is zero, where activations have their kink.
fn reference(model: &Model) -> Reference {
    let mut parameters = model.initial_parameters(&Device::cpu().scope("gradients"), 3).unwrap();
    let shifts = numbers(77, model.layout().len());
    parameters.values_mut().iter_mut().zip(shifts).for_each(|(value, shift)| *value += 0.05 * shift as f32);
    Reference::new(model, &parameters)
}

fn shape(windows: &[(usize, usize)], outputs: usize) -> SampleShape {
    let timeframe = |k: usize, steps, features| Timeframe { name: format!("T{k}"), steps, features };
    let timeframes = windows.iter().enumerate().map(|(k, &(steps, features))| timeframe(k, steps, features));
    SampleShape { timeframes: timeframes.collect(), outputs }
}

/// A model and all that its loss depends on.
struct Problem {
    reference: Reference,
    inputs: Inputs,
    targets: Vec<f64>,
    width: usize,
    loss: Loss,
}

impl Problem {
    fn value(&self) -> LossValue {
        let outputs = self.reference.forward(&self.inputs).outputs;
        if self.inputs.graphs.is_empty() {
            return loss(self.loss, &outputs, &self.targets, self.width);
        }
        // Each graph has as many rows of outputs as it has of targets.
        let rows = self.targets.len() / self.width;
        let per_graph = |graph: &Graph| if rows == self.inputs.graphs.len() { 1 } else { graph.nodes };
        let (mut outputs, mut targets, mut graphs) = (outputs.as_slice(), self.targets.as_slice(), Vec::new());
        let each = outputs.len() / rows;
        for graph in &self.inputs.graphs {
            let (y, other_outputs) = outputs.split_at(per_graph(graph) * each);
            let (own, other_targets) = targets.split_at(per_graph(graph) * self.width);
            graphs.push((y, own));
            (outputs, targets) = (other_outputs, other_targets);
        }
        loss_of_graphs(self.loss, &graphs, self.width)
    }

    /// Checks all gradients, at up to six numbers of each tensor.
    fn check(&mut self) {
        let gradients = self.reference.gradients(&self.inputs, &self.value().gradient);
        for (name, gradient) in &gradients.parameters {
            self.check_tensor(name, gradient, |case| case.reference.parameter_mut(name).unwrap());
        }
        for (k, gradient) in gradients.bars.iter().enumerate() {
            self.check_tensor("bars", gradient, |case| &mut case.inputs.timeframes[k].bars);
            for layer in 0..self.inputs.timeframes[k].initial.len() {
                let state = &gradients.initial[k][layer];
                self.check_tensor("h", &state.hidden, |case| &mut case.inputs.timeframes[k].initial[layer].hidden);
                self.check_tensor("c", &state.cell, |case| &mut case.inputs.timeframes[k].initial[layer].cell);
            }
        }
    }

    /// By central differences over two steps, whose error is the step's fourth power times a fifth
    /// derivative, beside a rounding of 1e-16 divided by the step; norms of nearly equal numbers
    /// need the smaller step. Where a kink lies within it, one side is right up to a still smaller
    /// step times a second derivative.
    fn check_tensor(&mut self, name: &str, gradient: &[f64], place: impl Fn(&mut Self) -> &mut [f64]) {
        for index in (0..gradient.len()).step_by(gradient.len().div_ceil(6).max(1)) {
            let (centre, found) = (place(self)[index], gradient[index]);
            let mut loss_at = |x: f64| {
                place(self)[index] = x;
                self.value().mean
            };
            let mut apart = |x: f64, steps: f64| loss_at(centre + x * steps) - loss_at(centre - x * steps);
            let mut central = |step: f64| (8.0 * apart(step, 1.0) - apart(step, 2.0)) / (12.0 * step);
            let mut tried = vec![(central(1e-5), 2e-8)];
            if !is_near(&tried, found) {
                tried.push((central(1e-6), 2e-7));
                let middle = loss_at(centre);
                tried.push(((loss_at(centre + 1e-7) - middle) / 1e-7, 3e-6));
                tried.push(((middle - loss_at(centre - 1e-7)) / 1e-7, 3e-6));
            }
            place(self)[index] = centre;
            assert!(is_near(&tried, found), "{name}[{index}]: {found} and slopes of {tried:?}");
        }
    }
}

/// True if one of these slopes is as near to `gradient` as its tolerance beside it.
fn is_near(slopes: &[(f64, f64)], gradient: f64) -> bool {
    slopes.iter().any(|&(slope, tolerance)| (slope - gradient).abs() < tolerance * (1.0 + slope.abs()))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_gradient_of_a_model_is_the_slope_of_its_loss(
        windows in prop::collection::vec((1usize..5, 1usize..4), 1..3),
        (hidden, layers, outputs) in (1usize..7, 1usize..3, 1usize..4),
        [bias, layer_norm, fuses, carries, drops, shares, gru] in any::<[bool; 7]>(),
        (samples, pooling, loss) in (1usize..4, 0usize..3, 0usize..4),
    ) {
        let pooling = [Pooling::Last, Pooling::attention(hidden), Pooling::Attention { heads: hidden }][pooling];
        // Norms of a few nearly equal numbers have slopes that no step is small enough for.
        let (layer_norm, fuses) = (layer_norm && hidden > 3, fuses && hidden > 3);
        let fusion = if fuses { Fusion::Attention { heads: hidden, feed_forward: 2 } } else { Fusion::Concat };
        let levels = serde_json::from_str("[0.2, 0.9]").unwrap();
        let loss = [Loss::Mse, Loss::Huber { delta: 0.5 }, Loss::Quantile { levels }, Loss::Classes(Classes::Labels(3))]
            [loss];
        let cell = if gru { Cell::Gru } else { Cell::Lstm };
        let config = ModelConfig { cell, hidden, layers, bias, layer_norm, pooling, fusion, ..ModelConfig::default() };
        let model = Model::new(shape(&windows, outputs), config.for_loss(loss)).unwrap();
        let sequences = |k: usize, steps: usize, features: usize| {
            // Sequences that are longer than a window, of which samples read several steps.
            let (count, steps) = if shares { (1, steps + samples) } else { (samples, steps) };
            let read = |sample: usize| match shares {
                true => Read { sequence: 0, step: steps - 1 - sample },
                false => Read { sequence: sample, step: steps - 1 },
            };
            let state = |layer: usize| LayerState {
                hidden: numbers(20 + layer as u64, count * hidden),
                cell: numbers(30 + layer as u64, count * hidden),
            };
            Sequences {
                bars: numbers(k as u64, count * steps * features),
                ends: (0..count).map(|sequence| 480 + sequence / 2).collect(),
                initial: (0..layers).filter(|_| carries).map(state).collect(),
                reads: (0..samples).map(read).collect(),
            }
        };
        let timeframes = windows.iter().enumerate().map(|(k, &(steps, features))| sequences(k, steps, features));
        let targets = match loss {
            Loss::Classes(_) => (0..samples * outputs).map(|i| (i % 3) as f64).collect(),
            _ => numbers(99, samples * outputs),
        };
        let mut problem = Problem {
            reference: reference(&model),
            inputs: Inputs {
                timeframes: timeframes.collect(),
                dropout: drops.then(|| Dropout::for_step(0.4, 3, 14).unwrap()),
                ..Inputs::default()
            },
            targets,
            width: outputs,
            loss,
        };
        problem.targets.iter_mut().skip(1).step_by(3).for_each(|target| *target = f64::NAN);
        problem.check();
    }

    #[test]
    fn every_gradient_of_a_model_over_graphs_is_the_slope_of_its_loss(
        windows in prop::collection::vec((1usize..4, 1usize..4), 1..3),
        sizes in prop::collection::vec((1usize..6, prop::collection::vec((any::<usize>(), any::<usize>()), 0..10)), 1..3),
        (hidden, graph_layers, heads, outputs) in (1usize..4, 1usize..3, 1usize..3, 1usize..4),
        [lstm, attends, v2, relu, attention_head, residual, drops, self_loops] in any::<[bool; 8]>(),
        (sees_attributes, negative_slope) in (any::<bool>(), 0.01f64..0.5),
        readout in prop::sample::select(vec![Readout::Node, Readout::Mean, Readout::Sum, Readout::Max]),
        loss in 0usize..4,
    ) {
        let loss = [Loss::Mse, Loss::CrossEntropy, Loss::RankPairwise, Loss::RankListwise { temperature: 0.5 }][loss];
        prop_assume!(readout == Readout::Node || !loss.ranks());
        let graph = GraphConfig {
            attention: if v2 { AttentionKind::GatV2 } else { AttentionKind::Gat },
            layers: graph_layers,
            heads,
            hidden: 3,
            output: if attention_head { GraphOutput::Attention } else { GraphOutput::Linear },
            output_heads: heads,
            activation: if relu { GraphActivation::Relu } else { GraphActivation::Elu },
            residual,
            dropout: 0.3,
            attention_dropout: 0.2,
            negative_slope,
            self_loops,
        };
        let config = ModelConfig {
            encoder: if lstm { Encoder::Recurrent } else { Encoder::LastBar },
            hidden,
            graph: attends.then_some(graph),
            graph_edge_attributes: if sees_attributes { 2 } else { 0 },
            readout: Some(readout),
            ..ModelConfig::default()
        };
        let model = Model::new(shape(&windows, outputs), config).unwrap();
        let graph = |index: usize, nodes: usize, edges: &[(usize, usize)]| {
            let mut edges: Vec<_> = edges.iter().map(|&(dst, src)| (dst % nodes, src % nodes)).collect();
            edges.sort();
            Graph {
                nodes,
                src: edges.iter().map(|edge| edge.1).collect(),
                dst: edges.iter().map(|edge| edge.0).collect(),
                attributes: numbers(5 + index as u64, edges.len() * 2),
                dropout: drops.then_some(GraphDropout { seed: 3, step: 14, graph: index }),
            }
        };
        let graphs: Vec<Graph> =
            sizes.iter().enumerate().map(|(index, (nodes, edges))| graph(index, *nodes, edges)).collect();
        let nodes: usize = graphs.iter().map(|graph| graph.nodes).sum();
        let rows = if readout == Readout::Node { nodes } else { graphs.len() };
        let bars = windows.iter().enumerate().map(|(k, &(steps, features))| numbers(k as u64, nodes * steps * features));
        let mut problem = Problem {
            reference: reference(&model),
            inputs: Inputs { graphs, ..Inputs::from_windows(model.shape(), nodes, bars) },
            targets: numbers(99, rows * outputs),
            width: outputs,
            loss,
        };
        problem.targets.iter_mut().skip(2 * outputs).take(1).for_each(|target| *target = f64::NAN);
        problem.check();
    }
}

#[test]
fn losses_of_graphs_by_hand() {
    let nan = f64::NAN;
    let (ln2, e) = (2f64.ln(), std::f64::consts::E);
    for (loss, y, targets, width, expected) in [
        (Loss::Mse, &[1.0, 2.0, 9.0, 9.0][..], &[0.0, 0.0, nan, 0.0][..], 2, 2.5),
        (Loss::CrossEntropy, &[3.0, 3.0, 9.0, 0.0], &[1.0, 0.0, nan, nan], 2, ln2),
        (Loss::CrossEntropy, &[1000.0, 0.0], &[1.0, 0.0], 2, 0.0),
        // Pairs (1, 0), (2, 0), (2, 1), of which the last one has equal outputs.
        (Loss::RankPairwise, &[0.0, 1.0, 1.0], &[0.0, 1.0, 2.0], 1, (2.0 * (1.0 + 1.0 / e).ln() + ln2) / 3.0),
        (Loss::RankPairwise, &[0.0, 1.0], &[4.0, 4.0], 1, 0.0),
        (Loss::RankPairwise, &[1000.0, 0.0], &[0.0, 1.0], 1, 1000.0),
        (Loss::RankListwise { temperature: 1.0 }, &[1.0, 1.0], &[0.0, 5.0], 1, ln2),
        // One labelled row has no rank.
        (Loss::RankListwise { temperature: 1.0 }, &[1.0, 1.0], &[nan, 5.0], 1, 0.0),
    ] {
        let found = loss_of_graphs(loss, &[(y, targets)], width);
        assert!((found.mean - expected).abs() < 1e-12, "{loss:?}: {} for {expected}", found.mean);
    }
    // The mean over the terms of both: 4, 1 and 1 of two graphs, not the mean of the graphs' means.
    let graphs: [(&[f64], &[f64]); 2] = [(&[2.0, 1.0], &[0.0, 0.0]), (&[3.0, 9.0], &[0.0, nan])];
    let found = loss_of_graphs(Loss::Mse, &graphs, 1);
    assert!((found.mean - 14.0 / 3.0).abs() < 1e-12, "{}", found.mean);
    assert_eq!(found.gradient[3], 0.0);
}

/// The head is the identity, so that the readouts of two graphs are those of their nodes' bars.
#[test]
fn graphs_are_read_by_hand() {
    for (readout, expected) in [
        (Readout::Node, vec![1.0, -2.0, 3.0, -4.0, 2.0, -2.0, 7.0, 8.0]),
        (Readout::Mean, vec![2.0, -8.0 / 3.0, 7.0, 8.0]),
        (Readout::Sum, vec![6.0, -8.0, 7.0, 8.0]),
        (Readout::Max, vec![3.0, -2.0, 7.0, 8.0]),
    ] {
        let config = ModelConfig { encoder: Encoder::LastBar, readout: Some(readout), ..ModelConfig::default() };
        let mut reference = reference(&Model::new(shape(&[(1, 2)], 2), config).unwrap());
        reference.parameter_mut("head.weight").unwrap().copy_from_slice(&[1.0, 0.0, 0.0, 1.0]);
        reference.parameter_mut("head.bias").unwrap().fill(0.0);
        let bars = vec![1.0, -2.0, 3.0, -4.0, 2.0, -2.0, 7.0, 8.0];
        let graphs = [3, 1].map(|nodes| Graph { nodes, ..Graph::default() }).to_vec();
        let inputs = Inputs { graphs, ..Inputs::from_windows(&shape(&[(1, 2)], 2), 4, [bars]) };
        let found = reference.forward(&inputs).outputs;
        let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(found.len() == expected.len() && apart < 1e-14, "{readout:?}: {found:?}");
    }
}

/// A model of one window of pooling and fusion is these parts by themselves.
#[test]
fn parts_compute_what_they_do_in_a_model() {
    let (pooling, fusion) = (Pooling::attention(6), Fusion::Attention { heads: 3, feed_forward: 2 });
    let config = ModelConfig { hidden: 6, pooling, fusion, ..ModelConfig::default() };
    let model = Model::new(shape(&[(4, 2)], 6), config).unwrap();
    let parameters = model.initial_parameters(&Device::cpu().scope("parts"), 3).unwrap();
    let part = |name: &str| {
        let own = parameters.tensors().filter(|(tensor, ..)| tensor.starts_with(name));
        own.map(|(tensor, shape, values)| Parameter {
            name: tensor.replace(".T0", ""),
            shape: shape.to_vec(),
            values: values.iter().copied().map(f64::from).collect(),
        })
        .collect()
    };
    let inputs = Inputs::from_windows(model.shape(), 1, [numbers(1, 8)]);
    let mut reference = Reference::new(&model, &parameters);
    let identity = (0..36).map(|i| if i % 7 == 0 { 1.0 } else { 0.0 }).collect::<Vec<_>>();
    reference.parameter_mut("head.weight").unwrap().copy_from_slice(&identity);
    reference.parameter_mut("head.bias").unwrap().fill(0.0);
    let (outputs, d_outputs) = (reference.forward(&inputs), numbers(9, 6));
    let gradients = reference.gradients(&inputs, &d_outputs);

    let pooled = parts::pooling(part("pooling"), 3, &outputs.sequences[0], &[0.0; 6]).result;
    let fused = parts::fusion(part("fusion"), 3, 12, &pooled, &d_outputs);
    let pooled = parts::pooling(part("pooling"), 3, &outputs.sequences[0], &fused.d_input);
    assert_eq!((&pooled.result, &fused.result), (&outputs.encodings, &outputs.outputs));
    assert_eq!((&pooled.weights, &fused.weights), (&outputs.pooling_weights[0], &outputs.fusion_weights));
    for (name, gradient) in fused.d_parameters.iter().chain(&pooled.d_parameters) {
        assert_eq!(gradient, &gradients.parameters[&name.replace("pooling", "pooling.T0")], "{name}");
    }

    let parameter = |name: &str, values: &[f64]| Parameter {
        name: format!("norm.{name}"),
        shape: vec![values.len()],
        values: values.to_vec(),
    };
    let norm = vec![parameter("weight", &[2.0, 3.0]), parameter("bias", &[0.5, -0.5])];
    let normed = parts::layer_norm(norm, 2, &[1.0, 5.0, 7.0, 7.0], &[1.0, 1.0, 1.0, 2.0]);
    let unit = 2.0 / 4.00001f64.sqrt();
    let expected = [0.5 - 2.0 * unit, 3.0 * unit - 0.5, 0.5, -0.5];
    assert!(normed.result.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-14));
    assert_eq!(normed.d_parameters["norm.bias"], [2.0, 3.0]);
}

/// A model of two layers over windows of 6 bars, and inputs of one sequence of 9.
fn two_layers(pooling: Pooling) -> (Reference, Inputs) {
    let config = ModelConfig { hidden: 6, layers: 2, pooling, ..ModelConfig::default() };
    let model = Model::new(shape(&[(6, 2)], 2), config).unwrap();
    let reads = [5, 7, 8].map(|step| Read { sequence: 0, step }).to_vec();
    let sequences = Sequences { bars: numbers(1, 18), ends: vec![480], initial: Vec::new(), reads };
    (reference(&model), Inputs { timeframes: vec![sequences], ..Inputs::default() })
}

/// A sequence that is read at several steps is as many sequences, each up to its step.
#[test]
fn each_sample_reads_its_own_step() {
    for pooling in [Pooling::Last, Pooling::attention(6)] {
        let (reference, inputs) = two_layers(pooling);
        let together = reference.forward(&inputs).outputs;
        for (sample, read) in inputs.timeframes[0].reads.iter().enumerate() {
            let mut alone = inputs.clone();
            alone.timeframes[0].bars.truncate((read.step + 1) * 2);
            alone.timeframes[0].reads = vec![*read];
            assert_eq!(reference.forward(&alone).outputs, together[2 * sample..][..2]);
        }
    }
}

/// A sequence goes on from the states that another one came to.
#[test]
fn states_are_carried_from_one_sequence_to_the_next() {
    let (reference, mut whole) = two_layers(Pooling::Last);
    whole.timeframes[0].reads = vec![Read { sequence: 0, step: 8 }];
    let [mut first, mut second] = [whole.clone(), whole.clone()];
    first.timeframes[0].bars.truncate(8);
    first.timeframes[0].reads[0].step = 3;
    let layers = reference.forward(&first).states.swap_remove(0).into_iter();
    let last = |states: Vec<f64>| states[3 * 6..].to_vec();
    second.timeframes[0].bars.drain(..8);
    second.timeframes[0].reads[0].step = 4;
    second.timeframes[0].initial =
        layers.map(|states| LayerState { hidden: last(states.hidden), cell: last(states.cell) }).collect();
    assert_eq!(reference.forward(&second).outputs, reference.forward(&whole).outputs);
}

/// The upper layer sees the last step alone, and of the lower one's units those that the mask
/// keeps, doubled.
#[test]
fn dropout_multiplies_what_the_layer_above_reads() {
    let (mut reference, mut inputs) = two_layers(Pooling::Last);
    let dropout = Dropout::for_step(0.5, 9, 2).unwrap();
    let mask = dropout.mask("T0", 0);
    inputs.dropout = Some(dropout);
    let kept: Vec<usize> = (0..6).filter(|&unit| mask.factor(480, 8, unit) > 0.0).collect();
    assert!((1..6).contains(&kept.len()), "{kept:?}");
    inputs.timeframes[0].reads = vec![Read { sequence: 0, step: 8 }];
    inputs.timeframes[0].initial = Vec::new();
    // Only the last step counts: the upper layer forgets, and does not see its own states.
    reference.parameter_mut("lstm.T0.weight_hh_l1").unwrap().fill(0.0);
    reference.parameter_mut("lstm.T0.bias_ih_l1").unwrap()[6..12].fill(-1e4);
    let y = reference.forward(&inputs).outputs;
    let d_lower = |unit: usize| {
        let mut changed = reference.clone();
        let weight = changed.parameter_mut("lstm.T0.weight_ih_l1").unwrap();
        weight.iter_mut().skip(unit).step_by(6).for_each(|weight| *weight += 0.1);
        changed.forward(&inputs).outputs != y
    };
    let seen: Vec<usize> = (0..6).filter(|&unit| d_lower(unit)).collect();
    assert_eq!(seen, kept);
    // What is seen is doubled: half of the weights give the same without dropout.
    let mut halved = inputs.clone();
    halved.dropout = None;
    let weight = reference.parameter_mut("lstm.T0.weight_ih_l1").unwrap();
    weight.iter_mut().enumerate().for_each(|(i, weight)| *weight *= if kept.contains(&(i % 6)) { 2.0 } else { 0.0 });
    let found = reference.forward(&halved).outputs;
    assert!(found.iter().zip(&y).all(|(found, expected)| (found - expected).abs() < 1e-12), "{found:?} for {y:?}");
}
