#![forbid(unsafe_code)]

use super::At;
use super::memory::LayerMemory;
use super::score::Scores;
use crate::graph::GraphView;
use crate::graph::attention::Nodes;
use crate::graph::attention::dropout::GraphMask;
use crate::graph::attention::edges::{Origin, edges_to};
use crate::graph::attention::layer::Scoring;
use crate::model::scalar::Scalar;
use crate::model::tensor::{Slot, TensorSet};
use crate::reference::matmul::{Matrix, Output, multiply};

/// One layer, from `input` [N, F], which may be longer, to `memory.y`.
pub(super) fn layer_forward<S: Scalar>(
    at: At<'_>,
    parameters: &TensorSet<S>,
    nodes: Nodes<'_, S>,
    input: &[S],
    memory: &mut LayerMemory<S>,
    edge: &mut [S],
) {
    let (graph, layer, config) = (nodes.graph, at.layer(), &at.attention.config);
    let (count, sizes) = (graph.nodes(), layer.sizes);
    let masks = masks(at, &nodes);
    let x = &mut memory.x.as_mut_slice()[..count * sizes.input];
    drop_numbers(masks.0, sizes.input, &input[..x.len()], x);

    let to_len = if memory.to.is_empty() { 0 } else { count * sizes.projected() };
    let from = &mut memory.from.as_mut_slice()[..count * sizes.projected()];
    let to = &mut memory.to.as_mut_slice()[..to_len];
    project(parameters, &layer.scoring, x, sizes.input, from, to);
    mean_attributes(&graph, config.self_loops, sizes.attributes, memory.loops.as_mut_slice());
    let y = &mut memory.y.as_mut_slice()[..count * sizes.width()];
    y.chunks_exact_mut(sizes.width()).for_each(|row| row.copy_from_slice(parameters.slot(layer.bias)));
    if let Some(slot) = layer.residual {
        let weight = Matrix::new(parameters.slot(slot), sizes.width(), sizes.input).transposed();
        let x = Matrix::new(&memory.x.as_slice()[..count * sizes.input], count, sizes.input);
        multiply(x, weight, Output::Add, y);
    }

    let inputs = (memory.from.as_slice(), memory.to.as_slice(), memory.loops.as_slice());
    let scores = Scores::new(&layer.scoring, layer.edge_weight, sizes, config.negative_slope, parameters, inputs);
    for i in 0..count {
        attend(at, &graph, i, &scores, memory.coefficients.as_mut_slice(), edge);
        for edge in edges_to(&graph, config.self_loops, i) {
            for head in 0..sizes.heads {
                let factor = masks.1.map_or(1.0, |mask| mask.factor((head, edge.place)));
                let coefficient = memory.coefficients.as_slice()[edge.place * sizes.heads + head] * S::from_f64(factor);
                for unit in 0..sizes.units {
                    let (column, share) = at.output::<S>(head, unit);
                    let value = scores.from[edge.from * sizes.projected() + head * sizes.units + unit];
                    y[i * sizes.width() + column] += share * coefficient * value;
                }
            }
        }
    }
    if !at.is_last() {
        y.iter_mut().for_each(|y| *y = config.activation.of(*y));
    }
}

/// The masks of the layer's input and of its coefficients.
pub(super) fn masks<S>(at: At<'_>, nodes: &Nodes<'_, S>) -> (Option<GraphMask>, Option<GraphMask>) {
    let config = &at.attention.config;
    let input = nodes.dropout.and_then(|dropout| dropout.input(at.l, config.dropout));
    (input, nodes.dropout.and_then(|dropout| dropout.attention(at.l, config.attention_dropout)))
}

fn drop_numbers<S: Scalar>(mask: Option<GraphMask>, width: usize, from: &[S], to: &mut [S]) {
    for (index, (to, &from)) in to.iter_mut().zip(from).enumerate() {
        let factor = mask.map_or(1.0, |mask| mask.factor((index / width, index % width)));
        *to = from * S::from_f64(factor);
    }
}

/// GAT's one map of the nodes, or GATv2's two.
fn project<S: Scalar>(
    parameters: &TensorSet<S>,
    scoring: &Scoring,
    x: &[S],
    width: usize,
    from: &mut [S],
    to: &mut [S],
) {
    let linear = |weight: Slot, bias: Option<Slot>, y: &mut [S]| {
        let columns = y.len() / (x.len() / width).max(1);
        match bias {
            Some(bias) => y.chunks_exact_mut(columns.max(1)).for_each(|row| row.copy_from_slice(parameters.slot(bias))),
            None => y.fill(S::ZERO),
        }
        let weight = parameters.slot(weight);
        let weight = Matrix::new(weight, weight.len() / width, width).transposed();
        multiply(Matrix::new(x, x.len() / width, width), weight, Output::Add, y);
    };
    match *scoring {
        Scoring::Gat { weight, .. } => linear(weight, None, from),
        Scoring::GatV2 { from: [weight_from, bias_from], to: [weight_to, bias_to], .. } => {
            linear(weight_from, Some(bias_from), from);
            linear(weight_to, Some(bias_to), to);
        }
    }
}

/// The mean of the attributes of the edges that each node receives from others; zero where there is
/// none.
fn mean_attributes<S: Scalar>(graph: &GraphView<'_>, self_loops: bool, width: usize, to: &mut [S]) {
    if width == 0 || !self_loops {
        return;
    }
    for (node, mean) in to.chunks_exact_mut(width).enumerate().take(graph.nodes()) {
        mean.fill(S::ZERO);
        let mut count = 0.0;
        for edge in edges_to(graph, self_loops, node) {
            if let Origin::Given(row) = edge.origin {
                let attributes = &graph.attributes[row * width..(row + 1) * width];
                mean.iter_mut().zip(attributes).for_each(|(sum, &a)| *sum += S::from_f64(f64::from(a)));
                count += 1.0;
            }
        }
        let count = S::from_f64(f64::max(count, 1.0));
        mean.iter_mut().for_each(|sum| *sum = *sum / count);
    }
}

/// The coefficients of the edges that node `i` receives: the softmax of their scores.
fn attend<S: Scalar>(
    at: At<'_>,
    graph: &GraphView<'_>,
    i: usize,
    scores: &Scores<'_, S>,
    coefficients: &mut [S],
    projected: &mut [S],
) {
    let (heads, self_loops) = (scores.sizes.heads, at.attention.config.self_loops);
    let projected = &mut projected[..scores.sizes.projected()];
    for edge in edges_to(graph, self_loops, i) {
        scores.project(graph, (i, edge), projected);
        for head in 0..heads {
            coefficients[edge.place * heads + head] = scores.score(i, edge.from, projected, head);
        }
    }
    for head in 0..heads {
        let places = || edges_to(graph, self_loops, i).map(|edge| edge.place * heads + head);
        let largest = places().map(|place| coefficients[place]).reduce(|a, b| if b > a { b } else { a });
        let mut sum = S::ZERO;
        for place in places() {
            coefficients[place] = (coefficients[place] - largest.unwrap_or(S::ZERO)).exp();
            sum += coefficients[place];
        }
        places().for_each(|place| coefficients[place] = coefficients[place] / sum);
    }
}
