//! Sums over the edges of nodes, and products of nodes' rows.
//!
//! ```text
//! gather:     for node i, edge e to j:   to[i] += number of e · from[j]
//! dots:       for node i, edge e to j:   number of e = nodes[i] · ends[j]
//! node_dots:  for node i:                number of i = values[i] · vector
//! spread:     for node i:                d_values[i] += d of i · vector
//!                                        d_vector += d of i · values[i]
//! ```
//!
//! Departures: a few panels of a head at a time, whose sums stay in registers over all edges of a
//! node and whose rows, of all nodes, stay in the caches; more panels a time would read the edges
//! less often, but rows from further away.

#![allow(unsafe_code, reason = "instructions of the CPU")]
#![allow(clippy::needless_range_loop, reason = "the indices are panels of a tile, counted at compile time")]

use super::arguments::{EdgeDots, Gather, NodeDots, Spread};
use crate::kernel::PANEL;
use crate::kernel::lanes::Lanes;

/// The panels of a head in tiles of up to four: the first of each and how many. Three are two and
/// one.
pub(super) fn tiles(panels: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let tile = match panels - first {
            0 => return None,
            1 => 1,
            2 | 3 => 2,
            _ => 4,
        };
        first += tile;
        Some((first - tile, tile))
    })
}

/// # Safety
/// The pointers of `g` reach all that its sizes say, see [`Gather`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn gather<V: Lanes>(g: &Gather<'_>) {
    for (panel, panels) in tiles(g.panels) {
        // SAFETY: these panels are among those of the arguments.
        unsafe {
            match panels {
                1 => gather_tile::<V, 1>(g, panel),
                2 => gather_tile::<V, 2>(g, panel),
                _ => gather_tile::<V, 4>(g, panel),
            }
        }
    }
}

#[inline(always)]
unsafe fn gather_tile<V: Lanes, const P: usize>(g: &Gather<'_>, panel: usize) {
    let numbers = g.head.values.as_ptr().wrapping_add(g.head.index);
    // SAFETY: nodes and edges are those of the walk, whose ends are nodes; there are rows of all
    // nodes in these panels, and numbers of all edges.
    unsafe {
        let (from, to) = (g.from.add(panel * g.from_stride), g.to.add(panel * g.to_stride));
        let ends = g.walk.ends().as_ptr();
        for (node, edges) in g.walk.edges_of_each().enumerate() {
            let to = to.add(node * PANEL);
            let mut sums = [V::splat(0.0); P];
            for p in 0..P {
                sums[p] = V::load(to.add(p * g.to_stride));
            }
            for edge in edges {
                let number = V::splat(*numbers.add(edge * g.head.group));
                let row = from.add(*ends.add(edge) as usize * PANEL);
                for p in 0..P {
                    sums[p] = number.mul_add(V::load(row.add(p * g.from_stride)), sums[p]);
                }
            }
            for p in 0..P {
                sums[p].store(to.add(p * g.to_stride));
            }
        }
    }
}

/// # Safety
/// The pointers of `d` reach all that its sizes say, see [`EdgeDots`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn dots<V: Lanes>(d: &mut EdgeDots<'_>) {
    for (panel, panels) in tiles(d.panels) {
        // SAFETY: these panels are among those of the arguments.
        unsafe {
            match (panel, panels) {
                (0, 1) => dots_tile::<V, 1, true>(d, panel),
                (0, 2) => dots_tile::<V, 2, true>(d, panel),
                (0, _) => dots_tile::<V, 4, true>(d, panel),
                (_, 1) => dots_tile::<V, 1, false>(d, panel),
                (_, 2) => dots_tile::<V, 2, false>(d, panel),
                (_, _) => dots_tile::<V, 4, false>(d, panel),
            }
        }
    }
}

/// The share of some panels, which is the first or is added to that of those before.
#[inline(always)]
unsafe fn dots_tile<V: Lanes, const P: usize, const FIRST: bool>(d: &mut EdgeDots<'_>, panel: usize) {
    let numbers = d.to.values.as_mut_ptr().wrapping_add(d.to.index);
    // SAFETY: as in `gather_tile`.
    unsafe {
        let (nodes, others) = (d.nodes.add(panel * d.nodes_stride), d.ends.add(panel * d.ends_stride));
        let ends = d.walk.ends().as_ptr();
        for (node, edges) in d.walk.edges_of_each().enumerate() {
            let mut own = [V::splat(0.0); P];
            for p in 0..P {
                own[p] = V::load(nodes.add(p * d.nodes_stride + node * PANEL));
            }
            for edge in edges {
                let row = others.add(*ends.add(edge) as usize * PANEL);
                let mut products = own[0].mul(V::load(row));
                for p in 1..P {
                    products = own[p].mul_add(V::load(row.add(p * d.ends_stride)), products);
                }
                let number = numbers.add(edge * d.to.group);
                *number = if FIRST { products.sum() } else { *number + products.sum() };
            }
        }
    }
}

/// # Safety
/// The pointers of `d` reach all that its sizes say, see [`NodeDots`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn node_dots<V: Lanes>(d: &mut NodeDots<'_>) {
    let numbers = d.to.values.as_mut_ptr().wrapping_add(d.to.index);
    // SAFETY: there are rows and numbers of all nodes; the vector has whole panels.
    unsafe {
        for node in 0..d.nodes {
            let mut products = V::splat(0.0);
            for panel in 0..d.vector.len() / PANEL {
                let row = V::load(d.values.add(panel * d.values_stride + node * PANEL));
                products = row.mul_add(V::load(d.vector.as_ptr().add(panel * PANEL)), products);
            }
            *numbers.add(node * d.to.group) = products.sum();
        }
    }
}

/// # Safety
/// The pointers of `s` reach all that its sizes say, see [`Spread`]; the CPU has the
/// instruction set of V.
#[inline(always)]
pub(super) unsafe fn spread<V: Lanes>(s: &mut Spread<'_>) {
    let numbers = s.d.values.as_ptr().wrapping_add(s.d.index);
    // SAFETY: there are rows and numbers of all nodes; both vectors have as many whole panels.
    unsafe {
        for panel in 0..s.vector.len() / PANEL {
            let vector = V::load(s.vector.as_ptr().add(panel * PANEL));
            let d_vector = s.d_vector.as_mut_ptr().add(panel * PANEL);
            let mut sum = V::load(d_vector);
            for node in 0..s.nodes {
                let d = V::splat(*numbers.add(node * s.d.group));
                sum = d.mul_add(V::load(s.values.add(panel * s.values_stride + node * PANEL)), sum);
                let d_values = s.d_values.add(panel * s.d_values_stride + node * PANEL);
                d.mul_add(vector, V::load(d_values)).store(d_values);
            }
            sum.store(d_vector);
        }
    }
}
