//! Numbers of edges and heads: scores, their softmax over the edges that a node receives, and back.
//!
//! Everything here is worked on a group of heads and the edges of some nodes at a time. A group's
//! numbers for an edge lie side by side: [P][G].

use crate::kernel::attention::{self as kernel, Walk};
use crate::kernel::{Isa, PANEL};

/// Calls a function of a constant number of heads.
macro_rules! by_group {
    ($group:expr, $function:ident($($argument:expr),+ $(,)?)) => {
        match $group {
            1 => $function::<1>($($argument),+),
            2 => $function::<2>($($argument),+),
            4 => $function::<4>($($argument),+),
            8 => $function::<8>($($argument),+),
            _ => $function::<16>($($argument),+),
        }
    };
}

/// Scores of GAT, for one group of heads.
#[derive(Clone, Copy)]
pub(super) struct LinearScores<'a> {
    /// att_src · v of all nodes [N, G], and att_dst · v of those that are walked.
    pub(super) source: &'a [f32],
    pub(super) target: &'a [f32],
    /// Attributes of the edges that are walked [P, A], and what scores take of them [A, G].
    pub(super) attributes: &'a [f32],
    pub(super) width: usize,
    pub(super) weight: &'a [f32],
    pub(super) slope: f32,
}

/// LeakyReLU of the sum of an edge's terms, in `to` [P, G].
pub(super) fn scores(group: usize, walk: Walk<'_>, linear: LinearScores<'_>, to: &mut [f32]) {
    by_group!(group, scores_of(walk, linear, to));
}

/// The sum of an edge's terms.
#[inline(always)]
fn sum_of<const G: usize>(linear: &LinearScores<'_>, source: [f32; G], target: [f32; G], place: usize) -> [f32; G] {
    let mut sums: [f32; G] = std::array::from_fn(|k| source[k] + target[k]);
    let attributes = &linear.attributes[place * linear.width..][..linear.width];
    for (&attribute, weights) in attributes.iter().zip(linear.weight.as_chunks::<G>().0) {
        (0..G).for_each(|k| sums[k] += attribute * weights[k]);
    }
    sums
}

/// The edges of each node.
fn nodes(walk: Walk<'_>) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> + '_ {
    walk.edges_of_each().enumerate()
}

fn scores_of<const G: usize>(walk: Walk<'_>, linear: LinearScores<'_>, to: &mut [f32]) {
    let (source, target) = (linear.source.as_chunks::<G>().0, linear.target.as_chunks::<G>().0);
    let to = to.as_chunks_mut::<G>().0;
    for (node, edges) in nodes(walk) {
        for (place, &end) in edges.clone().zip(&walk.ends()[edges]) {
            let sums = sum_of(&linear, source[end as usize], target[node], place);
            to[place] = sums.map(|x| if x > 0.0 { x } else { linear.slope * x });
        }
    }
}

/// Scores [P, G] become coefficients: their softmax over the edges of each node.
pub(super) fn softmax(isa: Isa, group: usize, walk: Walk<'_>, values: &mut [f32]) {
    by_group!(group, subtract_largest(walk, values));
    let (rows, rest) = values.as_chunks_mut::<PANEL>();
    kernel::exp(isa, rows.as_flattened_mut());
    if !rest.is_empty() {
        let mut row = [0.0; PANEL];
        row[..rest.len()].copy_from_slice(rest);
        kernel::exp(isa, &mut row);
        rest.copy_from_slice(&row[..rest.len()]);
    }
    by_group!(group, divide_by_sum(walk, values));
}

fn subtract_largest<const G: usize>(walk: Walk<'_>, values: &mut [f32]) {
    let values = values.as_chunks_mut::<G>().0;
    for (_, edges) in nodes(walk) {
        let values = &mut values[edges];
        let largest = values.iter().fold([f32::NEG_INFINITY; G], |largest, x| {
            std::array::from_fn(|k| if x[k] > largest[k] { x[k] } else { largest[k] })
        });
        values.iter_mut().for_each(|x| (0..G).for_each(|k| x[k] -= largest[k]));
    }
}

fn divide_by_sum<const G: usize>(walk: Walk<'_>, values: &mut [f32]) {
    let values = values.as_chunks_mut::<G>().0;
    for (_, edges) in nodes(walk) {
        let values = &mut values[edges];
        let sums = values.iter().fold([0.0; G], |sums: [f32; G], x| std::array::from_fn(|k| sums[k] + x[k]));
        values.iter_mut().for_each(|x| (0..G).for_each(|k| x[k] /= sums[k]));
    }
}

/// Gradients `d` [P, G] of what the coefficients became, times `factors` [P, G] if there are any,
/// turn into those of the scores.
pub(super) fn softmax_backward(
    group: usize,
    walk: Walk<'_>,
    coefficients: &[f32],
    factors: Option<&[f32]>,
    d: &mut [f32],
) {
    by_group!(group, softmax_backward_of(walk, coefficients, factors, d));
}

fn softmax_backward_of<const G: usize>(walk: Walk<'_>, coefficients: &[f32], factors: Option<&[f32]>, d: &mut [f32]) {
    let (coefficients, d) = (coefficients.as_chunks::<G>().0, d.as_chunks_mut::<G>().0);
    let factors = factors.map(|factors| factors.as_chunks::<G>().0);
    for (_, edges) in nodes(walk) {
        let (coefficients, d) = (&coefficients[edges.clone()], &mut d[edges.clone()]);
        if let Some(factors) = factors {
            d.iter_mut().zip(&factors[edges]).for_each(|(d, factor)| (0..G).for_each(|k| d[k] *= factor[k]));
        }
        let mut dots = [0.0; G];
        for (d, coefficient) in d.iter().zip(coefficients) {
            (0..G).for_each(|k| dots[k] += d[k] * coefficient[k]);
        }
        for (d, coefficient) in d.iter_mut().zip(coefficients) {
            (0..G).for_each(|k| d[k] = coefficient[k] * (d[k] - dots[k]));
        }
    }
}

/// Gradients `d` [P, G] of GAT's scores turn into those of the sums that LeakyReLU was applied to;
/// `d_target` [N, G] are their sums by node.
pub(super) fn scores_backward(
    group: usize,
    walk: Walk<'_>,
    linear: LinearScores<'_>,
    d: &mut [f32],
    d_target: &mut [f32],
) {
    by_group!(group, scores_backward_of(walk, linear, d, d_target));
}

fn scores_backward_of<const G: usize>(walk: Walk<'_>, linear: LinearScores<'_>, d: &mut [f32], d_target: &mut [f32]) {
    let (source, target) = (linear.source.as_chunks::<G>().0, linear.target.as_chunks::<G>().0);
    let (d, d_target) = (d.as_chunks_mut::<G>().0, d_target.as_chunks_mut::<G>().0);
    for (node, edges) in nodes(walk) {
        let mut total = [0.0; G];
        for (place, &end) in edges.clone().zip(&walk.ends()[edges]) {
            let sums = sum_of(&linear, source[end as usize], target[node], place);
            for k in 0..G {
                d[place][k] *= if sums[k] > 0.0 { 1.0 } else { linear.slope };
                total[k] += d[place][k];
            }
        }
        d_target[node] = total;
    }
}

/// The sums `to` [nodes, G] of numbers [P, G] of all edges by the node that gives; `walk` is by it,
/// and `places` are its edges'.
pub(super) fn sums_by_column(group: usize, walk: Walk<'_>, places: &[u32], values: &[f32], to: &mut [f32]) {
    by_group!(group, sums_by_column_of(walk, places, values, to));
}

fn sums_by_column_of<const G: usize>(walk: Walk<'_>, places: &[u32], values: &[f32], to: &mut [f32]) {
    let (values, to) = (values.as_chunks::<G>().0, to.as_chunks_mut::<G>().0);
    for (node, edges) in nodes(walk) {
        to[node] = places[edges]
            .iter()
            .fold([0.0; G], |sums: [f32; G], &place| std::array::from_fn(|k| sums[k] + values[place as usize][k]));
    }
}

/// Numbers [P, G] in the order of `places`.
pub(super) fn reorder(group: usize, places: &[u32], from: &[f32], to: &mut [f32]) {
    by_group!(group, reorder_of(places, from, to));
}

fn reorder_of<const G: usize>(places: &[u32], from: &[f32], to: &mut [f32]) {
    let from = from.as_chunks::<G>().0;
    to.as_chunks_mut::<G>().0.iter_mut().zip(places).for_each(|(to, &place)| *to = from[place as usize]);
}

/// Adds to `sums` [A, G] the gradients of what scores take of the attributes [P, A], from `d` [P,
/// G].
pub(super) fn attributes_backward(group: usize, attributes: &[f32], width: usize, d: &[f32], sums: &mut [f32]) {
    by_group!(group, attributes_backward_of(attributes, width, d, sums));
}

fn attributes_backward_of<const G: usize>(attributes: &[f32], width: usize, d: &[f32], sums: &mut [f32]) {
    for (attributes, d) in attributes.chunks_exact(width).zip(d.as_chunks::<G>().0) {
        for (&attribute, sums) in attributes.iter().zip(sums.as_chunks_mut::<G>().0) {
            (0..G).for_each(|k| sums[k] += attribute * d[k]);
        }
    }
}
