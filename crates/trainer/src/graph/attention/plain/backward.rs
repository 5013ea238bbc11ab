#![forbid(unsafe_code)]

use super::At;
use super::forward::masks;
use super::memory::{LayerMemory, Scratch};
use super::score::{ScoreGradients, Scores, scored};
use crate::graph::GraphView;
use crate::graph::attention::Nodes;
use crate::graph::attention::dropout::GraphMask;
use crate::graph::attention::edges::edges_to;
use crate::graph::attention::layer::{Layer, Scoring};
use crate::model::scalar::Scalar;
use crate::model::tensor::{Slot, TensorSet};
use crate::reference::matmul::{Matrix, Output, multiply};

/// One layer backwards: `scratch.d_y`, the gradient of what it gave to the next, becomes
/// `scratch.d_x`, that of what it was given.
pub(super) fn layer_backward<S: Scalar>(
    at: At<'_>,
    parameters: &TensorSet<S>,
    nodes: Nodes<'_, S>,
    memory: &LayerMemory<S>,
    scratch: &mut Scratch<S>,
    gradients: &mut TensorSet<S>,
) {
    let (layer, count) = (at.layer(), nodes.graph.nodes());
    let sizes = layer.sizes;
    let masks = masks(at, &nodes);
    let len = count * sizes.width();
    let d_y = &mut scratch.d_y.as_mut_slice()[..len];
    if !at.is_last() {
        let slopes = memory.y.as_slice()[..len].iter().map(|&y| at.attention.config.activation.slope(y));
        d_y.iter_mut().zip(slopes).for_each(|(d, slope)| *d *= slope);
    }
    for row in d_y.chunks_exact(sizes.width()) {
        add(gradients.slot_mut(layer.bias), row);
    }
    let d_x = &mut scratch.d_x.as_mut_slice()[..count * sizes.input];
    d_x.fill(S::ZERO);
    let x = (&memory.x.as_slice()[..count * sizes.input], sizes.input);
    if let Some(slot) = layer.residual {
        unproject(parameters, slot, x.0, x.1, d_y, d_x, gradients);
    }

    attend_backward(at, parameters, &nodes.graph, masks.1, memory, scratch, gradients);
    let (d_from, d_to) = (scratch.d_from.as_slice(), scratch.d_to.as_slice());
    let d_x = &mut scratch.d_x.as_mut_slice()[..count * sizes.input];
    let maps: &[(Slot, Option<Slot>, &[S])] = match layer.scoring {
        Scoring::Gat { weight, .. } => &[(weight, None, d_from)],
        Scoring::GatV2 { from, to, .. } => &[(from[0], Some(from[1]), d_from), (to[0], Some(to[1]), d_to)],
    };
    for &(weight, bias, d) in maps {
        let d = &d[..count * sizes.projected()];
        unproject(parameters, weight, x.0, x.1, d, d_x, gradients);
        let rows = d.chunks_exact(sizes.projected());
        bias.into_iter().for_each(|slot| rows.clone().for_each(|row| add(gradients.slot_mut(slot), row)));
    }
    if let Some(mask) = masks.0 {
        let factors = (0..d_x.len()).map(|index| mask.factor((index / sizes.input, index % sizes.input)));
        d_x.iter_mut().zip(factors).for_each(|(d, factor)| *d *= S::from_f64(factor));
    }
}

/// Goes from d_y to the gradients of the nodes' maps, and adds those of the attention vectors and
/// of the edges' map.
fn attend_backward<S: Scalar>(
    at: At<'_>,
    parameters: &TensorSet<S>,
    graph: &GraphView<'_>,
    mask: Option<GraphMask>,
    memory: &LayerMemory<S>,
    scratch: &mut Scratch<S>,
    gradients: &mut TensorSet<S>,
) {
    let (layer, config) = (at.layer(), &at.attention.config);
    let sizes = layer.sizes;
    let inputs = scored(memory);
    let scores = Scores::new(&layer.scoring, layer.edge_weight, sizes, config.negative_slope, parameters, inputs);
    for sums in [&mut scratch.d_from, &mut scratch.d_to, &mut scratch.d_attention, &mut scratch.d_edge_weight] {
        sums.as_mut_slice().fill(S::ZERO);
    }
    let (d_source, rest) = scratch.d_attention.as_mut_slice().split_at_mut(sizes.projected());
    let (d_target, d_edge) = rest.split_at_mut(sizes.projected());
    let mut sums = ScoreGradients {
        attention: [d_source, d_target, d_edge],
        edge_weight: scratch.d_edge_weight.as_mut_slice(),
        from: scratch.d_from.as_mut_slice(),
        to: scratch.d_to.as_mut_slice(),
    };
    let d_y = scratch.d_y.as_slice();
    let d_coefficients = scratch.d_coefficients.as_mut_slice();
    let projected = &mut scratch.edge.as_mut_slice()[..sizes.projected()];
    let coefficient = |place: usize, head: usize| memory.coefficients.as_slice()[place * sizes.heads + head];
    for i in 0..graph.nodes() {
        let edges = || edges_to(graph, config.self_loops, i);
        for head in 0..sizes.heads {
            let mut dot = S::ZERO;
            for edge in edges() {
                let factor = S::from_f64(mask.map_or(1.0, |mask| mask.factor((head, edge.place))));
                let mut d_coefficient = S::ZERO;
                for unit in 0..sizes.units {
                    let (column, share) = at.output::<S>(head, unit);
                    let d = share * factor * d_y[i * sizes.width() + column];
                    let from = edge.from * sizes.projected() + head * sizes.units + unit;
                    d_coefficient += d * scores.from[from];
                    sums.from[from] += d * coefficient(edge.place, head);
                }
                d_coefficients[edge.place * sizes.heads + head] = d_coefficient;
                dot += d_coefficient * coefficient(edge.place, head);
            }
            for edge in edges() {
                let d = d_coefficients[edge.place * sizes.heads + head] - dot;
                scores.project(graph, (i, edge), projected);
                let d_score = coefficient(edge.place, head) * d;
                scores.backward(graph, edge, i, head, projected, d_score, &mut sums);
            }
        }
    }
    add_scoring(layer, &sums, gradients);
}

fn add_scoring<S: Scalar>(layer: &Layer, sums: &ScoreGradients<'_, S>, gradients: &mut TensorSet<S>) {
    let vectors = match layer.scoring {
        Scoring::Gat { source, target, edge_attention, .. } => [Some(source), Some(target), edge_attention],
        Scoring::GatV2 { attention, .. } => [Some(attention), None, None],
    };
    for (slot, sums) in vectors.into_iter().zip(&sums.attention) {
        slot.into_iter().for_each(|slot| add(gradients.slot_mut(slot), sums));
    }
    layer.edge_weight.into_iter().for_each(|slot| add(gradients.slot_mut(slot), sums.edge_weight));
}

/// y = x · Wᵀ backwards: adds to the gradients of W, at `slot`, and of x [N, F].
fn unproject<S: Scalar>(
    parameters: &TensorSet<S>,
    slot: Slot,
    x: &[S],
    width: usize,
    d_y: &[S],
    d_x: &mut [S],
    gradients: &mut TensorSet<S>,
) {
    let (rows, weight) = (x.len() / width, parameters.slot(slot));
    let columns = weight.len() / width;
    let d_y = Matrix::new(d_y, rows, columns);
    multiply(d_y.transposed(), Matrix::new(x, rows, width), Output::Add, gradients.slot_mut(slot));
    multiply(d_y, Matrix::new(weight, columns, width), Output::Add, d_x);
}

/// Adds as many terms as there are sums.
fn add<S: Scalar>(sums: &mut [S], terms: &[S]) {
    sums.iter_mut().zip(terms).for_each(|(sum, &term)| *sum += term);
}
