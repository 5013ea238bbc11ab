//! GATv2, whose LeakyReLU stands before the attention vector, so that there is work for every edge
//! and unit.
//!
//! ```text
//! z of e = from[j] + to[i] + W_e a_e                    for edge e, which i receives from j
//! scores:   number of e = attention · LeakyReLU(z)
//! rows:     d_to[i] = Σ_e dz of e;  dW_e += Σ_e dz · a_e
//!           d_attention += Σ_e d_score · LeakyReLU(z)
//! columns:  d_from[j] = Σ_e (coefficient of e · d_y[i] + dz of e)
//!           with dz = d_score · attention · (1 where z > 0, else the slope)
//! ```
//!
//! Departure: z is computed anew by each of the three from rows that are in the caches; kept for
//! all edges, it would be most of the memory.

#![allow(unsafe_code, reason = "instructions of the CPU")]
#![allow(clippy::needless_range_loop, reason = "the indices are panels of a tile, counted at compile time")]

use super::arguments::{Joint, JointColumns, JointRows, JointScores};
use super::gather::tiles;
use crate::kernel::PANEL;
use crate::kernel::lanes::{Lanes, leaky};

/// z of an edge in P panels from `panel` on: `own` + the row of `end` in `others`, a matrix at
/// `stride`, + W_e a_e at `place`.
#[inline(always)]
unsafe fn joined<V: Lanes, const P: usize>(
    joint: &Joint<'_>,
    panel: usize,
    own: &[V; P],
    others: *const f32,
    stride: usize,
    end: usize,
    place: usize,
) -> [V; P] {
    // SAFETY: the caller's panels, node and place are among those that the wrappers have checked.
    unsafe {
        let mut z = *own;
        for p in 0..P {
            z[p] = z[p].add(V::load(others.add((panel + p) * stride + end * PANEL)));
        }
        for a in 0..joint.width {
            let attribute = V::splat(*joint.attributes.as_ptr().add(place * joint.width + a));
            let weights = joint.edge_weight.as_ptr().add(a * joint.edge_stride + panel * PANEL);
            for p in 0..P {
                z[p] = attribute.mul_add(V::load(weights.add(p * PANEL)), z[p]);
            }
        }
        z
    }
}

/// P rows of sixteen, `stride` apart.
#[inline(always)]
unsafe fn load<V: Lanes, const P: usize>(from: *const f32, stride: usize) -> [V; P] {
    // SAFETY: the caller's pointer reaches them.
    unsafe {
        let mut rows = [V::splat(0.0); P];
        for p in 0..P {
            rows[p] = V::load(from.add(p * stride));
        }
        rows
    }
}

/// # Safety
/// The slices of `s` hold what its sizes say, see [`JointScores`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn joint_scores<V: Lanes>(s: &mut JointScores<'_>) {
    for (panel, panels) in tiles(s.joint.panels) {
        // SAFETY: these panels are among those of the arguments.
        unsafe {
            match (panel, panels) {
                (0, 1) => scores_tile::<V, 1, true>(s, panel),
                (0, 2) => scores_tile::<V, 2, true>(s, panel),
                (0, _) => scores_tile::<V, 4, true>(s, panel),
                (_, 1) => scores_tile::<V, 1, false>(s, panel),
                (_, 2) => scores_tile::<V, 2, false>(s, panel),
                (_, _) => scores_tile::<V, 4, false>(s, panel),
            }
        }
    }
}

/// The share of some panels, which is the first or is added to that of those before.
#[inline(always)]
unsafe fn scores_tile<V: Lanes, const P: usize, const FIRST: bool>(s: &mut JointScores<'_>, panel: usize) {
    let joint = &s.joint;
    let numbers = s.to.values.as_mut_ptr().wrapping_add(s.to.index);
    let (from, to) = (joint.from.0[joint.from.1.start..].as_ptr(), joint.to.0[joint.to.1.start..].as_ptr());
    // SAFETY: nodes and edges are those of the walk, whose ends are nodes; there is all that the
    // panels need of each.
    unsafe {
        let slope = V::splat(joint.slope);
        let attention: [V; P] = load(joint.attention.as_ptr().add(panel * PANEL), PANEL);
        for (node, edges) in s.walk.edges_of_each().enumerate() {
            let own = load(to.add(panel * joint.to.1.stride + node * PANEL), joint.to.1.stride);
            for edge in edges {
                let end = *s.walk.ends().as_ptr().add(edge) as usize;
                let z: [V; P] = joined(joint, panel, &own, from, joint.from.1.stride, end, edge);
                let mut products = attention[0].mul(leaky(z[0], slope));
                for p in 1..P {
                    products = attention[p].mul_add(leaky(z[p], slope), products);
                }
                let number = numbers.add(edge * s.to.group);
                *number = if FIRST { products.sum() } else { *number + products.sum() };
            }
        }
    }
}

/// # Safety
/// The slices and pointers of `r` reach what its sizes say, see [`JointRows`]; the CPU has
/// the instruction set of V.
#[inline(always)]
pub(super) unsafe fn joint_rows<V: Lanes>(r: &mut JointRows<'_>) {
    for (panel, panels) in tiles(r.joint.panels) {
        // SAFETY: these panels are among those of the arguments.
        unsafe {
            match panels {
                1 => rows_tile::<V, 1>(r, panel),
                2 => rows_tile::<V, 2>(r, panel),
                _ => rows_tile::<V, 4>(r, panel),
            }
        }
    }
}

#[inline(always)]
unsafe fn rows_tile<V: Lanes, const P: usize>(r: &mut JointRows<'_>, panel: usize) {
    let joint = &r.joint;
    let d_scores = r.d_scores.values.as_ptr().wrapping_add(r.d_scores.index);
    let (from, to) = (joint.from.0[joint.from.1.start..].as_ptr(), joint.to.0[joint.to.1.start..].as_ptr());
    // SAFETY: as in `scores_tile`; gradients have the sizes of what they are of.
    unsafe {
        let slope = V::splat(joint.slope);
        let attention: [V; P] = load(joint.attention.as_ptr().add(panel * PANEL), PANEL);
        let d_attention_at = r.d_attention.as_mut_ptr().add(panel * PANEL);
        let mut d_attention: [V; P] = load(d_attention_at, PANEL);
        for (node, edges) in r.walk.edges_of_each().enumerate() {
            let own = load(to.add(panel * joint.to.1.stride + node * PANEL), joint.to.1.stride);
            let mut d_to = [V::splat(0.0); P];
            for edge in edges {
                let end = *r.walk.ends().as_ptr().add(edge) as usize;
                let z: [V; P] = joined(joint, panel, &own, from, joint.from.1.stride, end, edge);
                let d_score = V::splat(*d_scores.add(edge * r.d_scores.group));
                let mut d_z = [V::splat(0.0); P];
                for p in 0..P {
                    d_attention[p] = d_score.mul_add(leaky(z[p], slope), d_attention[p]);
                    let d = d_score.mul(attention[p]);
                    d_z[p] = d.where_positive(z[p], d.mul(slope));
                    d_to[p] = d_to[p].add(d_z[p]);
                }
                for a in 0..joint.width {
                    let attribute = V::splat(*joint.attributes.as_ptr().add(edge * joint.width + a));
                    let sums = r.d_edge_weight.as_mut_ptr().add(a * joint.edge_stride + panel * PANEL);
                    for p in 0..P {
                        let sum = sums.add(p * PANEL);
                        attribute.mul_add(d_z[p], V::load(sum)).store(sum);
                    }
                }
            }
            for p in 0..P {
                d_to[p].store(r.d_to.add((panel + p) * r.d_to_stride + node * PANEL));
            }
        }
        for p in 0..P {
            d_attention[p].store(d_attention_at.add(p * PANEL));
        }
    }
}

/// # Safety
/// The slices and pointers of `c` reach what its sizes say, see [`JointColumns`]; the CPU has
/// the instruction set of V.
#[inline(always)]
pub(super) unsafe fn joint_columns<V: Lanes>(c: &JointColumns<'_>) {
    for (panel, panels) in tiles(c.joint.panels) {
        // SAFETY: these panels are among those of the arguments.
        unsafe {
            match panels {
                1 => columns_tile::<V, 1>(c, panel),
                2 => columns_tile::<V, 2>(c, panel),
                _ => columns_tile::<V, 4>(c, panel),
            }
        }
    }
}

#[inline(always)]
unsafe fn columns_tile<V: Lanes, const P: usize>(c: &JointColumns<'_>, panel: usize) {
    let joint = &c.joint;
    let coefficients = c.coefficients.values.as_ptr().wrapping_add(c.coefficients.index);
    let d_scores = c.d_scores.values.as_ptr().wrapping_add(c.d_scores.index);
    let (from, to) = (joint.from.0[joint.from.1.start..].as_ptr(), joint.to.0[joint.to.1.start..].as_ptr());
    // SAFETY: as in `scores_tile`, with the nodes' parts exchanged; places are below the numbers of
    // edges in both heads.
    unsafe {
        let slope = V::splat(joint.slope);
        let attention: [V; P] = load(joint.attention.as_ptr().add(panel * PANEL), PANEL);
        for (node, edges) in c.walk.edges_of_each().enumerate() {
            let own = load(from.add(panel * joint.from.1.stride + node * PANEL), joint.from.1.stride);
            let mut sums = [V::splat(0.0); P];
            for edge in edges {
                let end = *c.walk.ends().as_ptr().add(edge) as usize;
                let place = *c.places.as_ptr().add(edge) as usize;
                let z: [V; P] = joined(joint, panel, &own, to, joint.to.1.stride, end, place);
                let coefficient = V::splat(*coefficients.add(place * c.coefficients.group));
                let d_score = V::splat(*d_scores.add(place * c.d_scores.group));
                let d_y = c.d_y.add(panel * c.d_y_stride + end * PANEL);
                for p in 0..P {
                    sums[p] = coefficient.mul_add(V::load(d_y.add(p * c.d_y_stride)), sums[p]);
                    let d = d_score.mul(attention[p]);
                    sums[p] = sums[p].add(d.where_positive(z[p], d.mul(slope)));
                }
            }
            for p in 0..P {
                sums[p].store(c.d_from.add((panel + p) * c.d_from_stride + node * PANEL));
            }
        }
    }
}
