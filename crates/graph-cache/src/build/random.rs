//! Randomly rewired graphs with the same degrees: a baseline for graph models.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::builder::{Builder, Identity};
use crate::error::Result;
use crate::graph::Graph;
use crate::schema::Schema;

/// The graphs of another builder with random neighbours.
///
/// Nodes, features, targets and the time from which a graph may be used stay as they are. Every
/// node keeps its number of neighbours, which are drawn evenly among all other nodes, none twice;
/// an edge from a node to itself stays. Weights and attributes stay with the receiving node, in
/// their order, so that their distribution stays and they say nothing about the sender. A model
/// that gains more from the graphs than from these gains it from the choice of neighbours.
///
/// Draws are a function of the seed, the graph's key and the node alone. Subsets are Floyd's
/// (Bentley & Floyd, *A sample of brilliance*, Comm. ACM 30(9), 1987), numbers those of
/// `SplitMix64` (Steele, Lea & Flood, *Fast splittable pseudorandom number generators*, 2014),
/// whose n-th is computed from n.
pub struct Rewired<'a> {
    graphs: &'a dyn Builder,
    seed: u64,
}

impl<'a> Rewired<'a> {
    /// The graphs of `graphs`, drawn from `seed`.
    pub fn new(graphs: &'a dyn Builder, seed: u64) -> Self {
        Rewired { graphs, seed }
    }

    fn rewired(&self, index: usize, mut graph: Graph) -> Graph {
        let draws = Draws { seed: xxh3_64_with_seed(self.graphs.keys()[index].as_bytes(), self.seed) };
        let nodes = graph.len();
        for node in 0..nodes {
            let row = graph.row_ptr[node] as usize..graph.row_ptr[node + 1] as usize;
            let columns = &mut graph.col[row];
            let has_loop = columns.contains(&(node as u32));
            let mut neighbours = draws.others(node, nodes, columns.len() - usize::from(has_loop));
            if has_loop {
                neighbours.insert(node as u32);
            }
            columns.iter_mut().zip(neighbours).for_each(|(column, neighbour)| *column = neighbour);
        }
        graph
    }
}

impl Builder for Rewired<'_> {
    fn identity(&self) -> Identity {
        let Identity { data, builder, parameters } = self.graphs.identity();
        let graph_parameters = serde_json::from_str(&parameters).unwrap_or(Value::String(parameters));
        let parameters = json!({ "graphs": graph_parameters, "seed": self.seed }).to_string();
        Identity { data, builder: format!("rewired/1 of {builder}"), parameters }
    }

    fn schema(&self) -> &Schema {
        self.graphs.schema()
    }

    fn keys(&self) -> &[String] {
        self.graphs.keys()
    }

    fn build(&self, index: usize) -> Result<Graph> {
        Ok(self.rewired(index, self.graphs.build(index)?))
    }

    fn run_length(&self) -> usize {
        self.graphs.run_length()
    }

    fn build_run(&self, run: Range<usize>, sink: &mut dyn FnMut(usize, Graph) -> Result<()>) -> Result<()> {
        self.graphs.build_run(run, &mut |index, graph| sink(index, self.rewired(index, graph)))
    }
}

/// Random numbers of one graph.
struct Draws {
    seed: u64,
}

impl Draws {
    /// `count` of the `nodes` but for `node`, which are more than that, in order.
    fn others(&self, node: usize, nodes: usize, count: usize) -> BTreeSet<u32> {
        let others = nodes - 1;
        let mut chosen = BTreeSet::new();
        for last in others - count..others {
            let drawn = self.below(last + 1, node, last);
            let place = if chosen.insert(drawn as u32) { continue } else { last };
            chosen.insert(place as u32);
        }
        // Places among the others become nodes.
        chosen.into_iter().map(|place| place + u32::from(place as usize >= node)).collect()
    }

    /// A number from 0 to `end` - 1, uniform up to 2⁻³².
    fn below(&self, end: usize, node: usize, draw: usize) -> usize {
        let counter = (node as u64) << 32 | draw as u64;
        let mut z = self.seed.wrapping_add(counter.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        ((u128::from(z) * end as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two graphs of nine nodes: node r has r % 4 neighbours, and itself where r is even.
    struct Made {
        keys: Vec<String>,
        schema: Schema,
    }

    impl Made {
        fn new() -> Self {
            Made { keys: vec!["a".into(), "b".into()], schema: Schema { weighted: true, ..Schema::default() } }
        }
    }

    impl Builder for Made {
        fn identity(&self) -> Identity {
            Identity { data: 7, builder: "made/1".into(), parameters: "{\"k\":3}".into() }
        }

        fn schema(&self) -> &Schema {
            &self.schema
        }

        fn keys(&self) -> &[String] {
            &self.keys
        }

        fn build(&self, _index: usize) -> Result<Graph> {
            let mut edges = Vec::new();
            for node in 0..9u32 {
                let others = (0..9).filter(|other| *other != node).take(node as usize % 4);
                let own = (node % 2 == 0).then_some(node);
                let mut from: Vec<u32> = others.chain(own).collect();
                from.sort_unstable();
                edges.extend(from.iter().map(|&from| (from, node, from as f32)));
            }
            let graph = Graph::from_edges(&self.schema, (0..9).collect(), &edges)?;
            Ok(Graph { known_time: Some(11), ..graph })
        }
    }

    fn rows(graph: &Graph) -> Vec<&[u32]> {
        let row = |ends: &[u32]| ends[0] as usize..ends[1] as usize;
        graph.row_ptr.windows(2).map(|ends| &graph.col[row(ends)]).collect()
    }

    #[test]
    fn degrees_and_loops_stay_and_neighbours_are_drawn() {
        let made = Made::new();
        let rewired = Rewired::new(&made, 1);
        let (before, after) = (made.build(0).unwrap(), rewired.build(0).unwrap());
        assert_eq!((&after.row_ptr, &after.weights, after.known_time), (&before.row_ptr, &before.weights, Some(11)));
        for (node, row) in rows(&after).into_iter().enumerate() {
            assert!(row.windows(2).all(|pair| pair[0] < pair[1]) && row.iter().all(|&column| column < 9), "{row:?}");
            assert_eq!(row.contains(&(node as u32)), node % 2 == 0, "{node} {row:?}");
        }
        assert_ne!(after.col, before.col);
    }

    #[test]
    fn what_is_drawn_depends_on_seed_and_key_alone() {
        let made = Made::new();
        let columns = |seed: u64, index: usize| Rewired::new(&made, seed).build(index).unwrap().col;
        assert_eq!(columns(1, 0), columns(1, 0));
        assert!(columns(1, 0) != columns(2, 0) && columns(1, 0) != columns(1, 1));
        let rewired = Rewired::new(&made, 1);
        let mut in_a_run = Vec::new();
        let mut sink = |_, graph: Graph| {
            in_a_run.push(graph.col);
            Ok(())
        };
        rewired.build_run(0..2, &mut sink).unwrap();
        assert_eq!(in_a_run, [columns(1, 0), columns(1, 1)]);
        let Identity { data, builder, parameters } = rewired.identity();
        assert_eq!((data, builder.as_str()), (7, "rewired/1 of made/1"));
        assert_eq!(parameters, r#"{"graphs":{"k":3},"seed":1}"#);
        assert_ne!(rewired.identity(), Rewired::new(&made, 2).identity());
    }

    #[test]
    fn every_other_node_is_as_likely() {
        const ROUNDS: u64 = 6_000;
        let mut counts = [0u64; 6];
        for seed in 0..ROUNDS {
            let draws = Draws { seed: xxh3_64_with_seed(b"day", seed) };
            draws.others(2, 6, 3).into_iter().for_each(|node| counts[node as usize] += 1);
        }
        assert_eq!(counts[2], 0);
        // Each of five others is one of three chosen: 3,600 times, with a standard deviation of 38.
        let others = counts.iter().enumerate().filter(|(node, _)| *node != 2);
        others.for_each(|(_, &count)| assert!(count.abs_diff(ROUNDS * 3 / 5) < 5 * 38, "{counts:?}"));
        let all = Draws { seed: 3 }.others(0, 4, 3);
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(Draws { seed: 3 }.others(0, 1, 0).is_empty());
    }
}
