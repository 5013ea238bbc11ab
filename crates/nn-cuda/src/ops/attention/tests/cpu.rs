#![forbid(unsafe_code)]

//! Operations of attention on the CPU.

use megabatch_nn::graph::NO_EDGE;
use megabatch_nn::model::Mask;

use super::{Attended, AttentionSizes, OutputStart, Scored};

impl AttentionSizes {
    /// The column of the output that a unit of a head goes to.
    fn column(self, head: usize, unit: usize) -> usize {
        if self.averaged == 1 { unit } else { head * self.units as usize + unit }
    }

    /// The share of the output that a head makes.
    fn share(self) -> f32 {
        if self.averaged == 1 { 1.0 / self.heads as f32 } else { 1.0 }
    }

    fn leaky(self, x: f32) -> f32 {
        if x > 0.0 { x } else { self.slope * x }
    }

    fn leaky_slope(self, x: f32) -> f32 {
        if x > 0.0 { 1.0 } else { self.slope }
    }

    /// H, C and U.
    fn wide(self) -> [usize; 3] {
        [self.heads, self.units, self.score_units].map(|size| size as usize)
    }
}

impl Attended<'_> {
    /// Place and giver of the edges that a node receives.
    fn edges_to(&self, node: usize) -> impl Iterator<Item = (usize, usize)> {
        let edges = &self.lists.edges;
        let places = edges.starts[node] as usize..edges.starts[node + 1] as usize;
        places
            .map(|place| (place, edges.from[place]))
            .filter(|edge| edge.1 != NO_EDGE)
            .map(|(place, j)| (place, j as usize))
    }

    /// Place and receiver of the edges that a node gives.
    fn edges_from(&self, node: usize) -> impl Iterator<Item = (usize, usize)> {
        let lists = &self.lists.edges;
        let edges = lists.src_starts[node] as usize..lists.src_starts[node + 1] as usize;
        edges.map(|edge| (lists.places[edge] as usize, lists.to[edge] as usize))
    }

    fn nodes(&self) -> std::ops::Range<usize> {
        0..self.sizes.nodes as usize
    }

    fn mask(&self) -> Option<Mask> {
        self.mask.map(|(masks, mask)| masks.as_slice()[mask].into())
    }

    /// Factor of a coefficient.
    fn factor(&self, coefficient: f32) -> f32 {
        match self.mask() {
            _ if coefficient.is_sign_negative() => 0.0,
            Some(mask) => mask.scale as f32,
            None => 1.0,
        }
    }
}

impl Scored<'_> {
    fn weight(&self, k: usize) -> f32 {
        self.vector.map_or(1.0, |vector| vector.elements()[k])
    }

    /// Argument of LeakyReLU in column `k`, for the edge at `place` from node `j` to node `i`.
    fn joined(&self, attended: Attended<'_>, i: usize, j: usize, place: usize, k: usize) -> f32 {
        let (width, attributes) = (attended.sizes.scored(), attended.sizes.attributes as usize);
        let z = self.src.as_slice()[j * width + k] + self.dst.as_slice()[i * width + k];
        let row = self.edge_weight.map_or(&[][..], |weight| &weight.elements()[k * attributes..][..attributes]);
        let own = &attended.lists.edges.attributes[place * attributes..][..attributes];
        row.iter().zip(own).fold(z, |z, (weight, attribute)| z + weight * attribute)
    }

    /// The slope of a score in that.
    fn slope(&self, attended: Attended<'_>, i: usize, j: usize, place: usize, k: usize) -> f32 {
        self.weight(k) * attended.sizes.leaky_slope(self.joined(attended, i, j, place, k))
    }
}

/// Dots of the heads of `values` with those of a vector.
pub(super) fn node_dots(sizes: AttentionSizes, values: &[f32], vector: &[f32], to: &mut [f32]) {
    let units = sizes.units as usize;
    for (at, to) in to[..sizes.node_heads()].iter_mut().enumerate() {
        let own = &vector[at % sizes.heads as usize * units..][..units];
        *to = own.iter().zip(&values[at * units..]).map(|(a, b)| a * b).sum();
    }
}

pub(super) fn coefficients(attended: Attended<'_>, scored: Scored<'_>, to: &mut [f32]) {
    let [heads, _, units] = attended.sizes.wide();
    to[..attended.lens()[1]].fill(0.0);
    for (i, head) in attended.nodes().flat_map(|i| (0..heads).map(move |head| (i, head))) {
        let columns = || head * units..(head + 1) * units;
        let places: Vec<usize> = attended.edges_to(i).map(|(place, _)| place * heads + head).collect();
        for (place, j) in attended.edges_to(i) {
            let term = |k| scored.weight(k) * attended.sizes.leaky(scored.joined(attended, i, j, place, k));
            to[place * heads + head] = columns().map(term).sum();
        }
        let most =
            places.iter().fold(f32::NEG_INFINITY, |most, &place| if to[place] > most { to[place] } else { most });
        places.iter().for_each(|&place| to[place] = (to[place] - most).exp());
        let sum: f32 = places.iter().map(|&place| to[place]).sum();
        let graph = attended.lists.edges.graphs[attended.lists.edges.graph_of[i] as usize];
        for place in places {
            let local = place / heads - graph.place as usize;
            let drops = attended.mask().is_some_and(|mask| mask.factor(graph.index as usize, head, local) == 0.0);
            to[place] = if drops { -(to[place] / sum) } else { to[place] / sum };
        }
    }
}

pub(super) fn gather_heads(
    attended: Attended<'_>,
    coefficients: &[f32],
    values: &[f32],
    start: OutputStart<'_>,
    y: &mut [f32],
) {
    let ([heads, units, _], projected, width) =
        (attended.sizes.wide(), attended.sizes.projected(), attended.sizes.width());
    for (i, row) in y.chunks_exact_mut(width.max(1)).enumerate() {
        if let OutputStart::Bias(bias) = start {
            row.copy_from_slice(&bias.elements()[..width]);
        }
        for (head, unit) in (0..heads).flat_map(|head| (0..units).map(move |unit| (head, unit))) {
            let term = |(place, j): (usize, usize)| {
                let coefficient = coefficients[place * heads + head];
                coefficient * attended.factor(coefficient) * values[j * projected + head * units + unit]
            };
            row[attended.sizes.column(head, unit)] +=
                attended.sizes.share() * attended.edges_to(i).map(term).sum::<f32>();
        }
    }
}

pub(super) fn score_gradients(
    attended: Attended<'_>,
    coefficients: &[f32],
    values: &[f32],
    d_y: &[f32],
    d_scores: &mut [f32],
) {
    let ([heads, units, _], projected, width) =
        (attended.sizes.wide(), attended.sizes.projected(), attended.sizes.width());
    d_scores[..attended.lens()[1]].fill(0.0);
    for (i, head) in attended.nodes().flat_map(|i| (0..heads).map(move |head| (i, head))) {
        let d_row = &d_y[i * width + attended.sizes.column(head, 0)..][..units];
        let mut dot = 0.0;
        for (place, j) in attended.edges_to(i) {
            let (at, value) = (place * heads + head, &values[j * projected + head * units..][..units]);
            let sum: f32 = d_row.iter().zip(value).map(|(d, value)| d * value).sum();
            d_scores[at] = attended.sizes.share() * attended.factor(coefficients[at]) * sum;
            dot += d_scores[at] * coefficients[at].abs();
        }
        for (place, _) in attended.edges_to(i) {
            let at = place * heads + head;
            d_scores[at] = coefficients[at].abs() * (d_scores[at] - dot);
        }
    }
}

/// Contributions of the edges that nodes receive to the gradients of `dst`, of the vector and
/// of the edges' weight, `[N, H · U]` and once for each attribute.
pub(super) fn receiver_gradients(
    attended: Attended<'_>,
    scored: Scored<'_>,
    d_scores: &[f32],
    d_dst: &mut [f32],
    vector_rows: &mut [f32],
    edge_rows: &mut [f32],
) {
    let ([heads, _, units], width, attributes) =
        (attended.sizes.wide(), attended.sizes.scored(), attended.sizes.attributes as usize);
    for (i, k) in attended.nodes().flat_map(|i| (0..width).map(move |k| (i, k))) {
        let at = i * width + k;
        let edge_term =
            |place: usize, j: usize| d_scores[place * heads + k / units] * scored.slope(attended, i, j, place, k);
        d_dst[at] = attended.edges_to(i).map(|(place, j)| edge_term(place, j)).sum();
        if scored.vector.is_some() {
            let leaky = |(place, j)| attended.sizes.leaky(scored.joined(attended, i, j, place, k));
            vector_rows[at] = attended.edges_to(i).map(|edge| d_scores[edge.0 * heads + k / units] * leaky(edge)).sum();
        }
        for a in 0..attributes {
            let attribute = |place: usize| attended.lists.edges.attributes[place * attributes + a];
            let terms = attended.edges_to(i).map(|(place, j)| edge_term(place, j) * attribute(place));
            edge_rows[at * attributes + a] = terms.sum();
        }
    }
}

pub(super) fn value_gradients(attended: Attended<'_>, coefficients: &[f32], d_y: &[f32], d_values: &mut [f32]) {
    let ([heads, units, _], projected, width) =
        (attended.sizes.wide(), attended.sizes.projected(), attended.sizes.width());
    for (j, k) in attended.nodes().flat_map(|j| (0..projected).map(move |k| (j, k))) {
        let (head, unit) = (k / units, k % units);
        let term = |(place, i): (usize, usize)| {
            let coefficient = coefficients[place * heads + head];
            coefficient * attended.factor(coefficient) * d_y[i * width + attended.sizes.column(head, unit)]
        };
        d_values[j * projected + k] = attended.sizes.share() * attended.edges_from(j).map(term).sum::<f32>();
    }
}

pub(super) fn src_gradients(attended: Attended<'_>, scored: Scored<'_>, d_scores: &[f32], adds: bool, to: &mut [f32]) {
    let ([heads, _, units], width) = (attended.sizes.wide(), attended.sizes.scored());
    for (j, k) in attended.nodes().flat_map(|j| (0..width).map(move |k| (j, k))) {
        let edge_term =
            |place: usize, i: usize| d_scores[place * heads + k / units] * scored.slope(attended, i, j, place, k);
        let before = if adds { to[j * width + k] } else { 0.0 };
        to[j * width + k] = attended.edges_from(j).fold(before, |sum, (place, i)| sum + edge_term(place, i));
    }
}

/// From the gradients of GAT's numbers of nodes, `[N, H]`, to those of the values, which are added,
/// and to what each node gives to that of a vector.
pub(super) fn node_dot_gradients(
    sizes: AttentionSizes,
    values: &[f32],
    vector: &[f32],
    d: &[f32],
    d_values: &mut [f32],
    rows: &mut [f32],
) {
    let (units, projected) = (sizes.units as usize, sizes.projected());
    for at in 0..sizes.nodes as usize * projected {
        d_values[at] += d[at / units] * vector[at % projected];
        rows[at] = d[at / units] * values[at];
    }
}
