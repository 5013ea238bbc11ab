//! Files of graphs that are built once: by one process or several, killed or not, and what becomes
//! of them.

mod batches;
mod building;
mod directory;
mod processes;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use megabatch_graph_cache::{Builder, Graph, Identity, Result, Schema, TargetLevel, Targets};

/// Graphs that look random and are functions of their index and a seed. Within a run, a graph also
/// depends on how far it is from the run's beginning, as one that is made of those before it does.
pub(crate) struct MadeUp {
    seed: u64,
    schema: Schema,
    keys: Vec<String>,
    run_length: usize,
    /// Number of graphs built.
    built: AtomicUsize,
}

impl MadeUp {
    pub(crate) fn new(seed: u64, count: usize, run_length: usize) -> Self {
        let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let schema = Schema {
            weighted: true,
            edge_attributes: strings(&["distance"]),
            targets: strings(&["up"]),
            target_level: TargetLevel::Node,
            ..Schema::default()
        };
        let keys = (0..count).map(|index| format!("day {index}")).collect();
        MadeUp { seed, schema, keys, run_length, built: AtomicUsize::new(0) }
    }

    pub(crate) fn built(&self) -> usize {
        self.built.swap(0, Relaxed)
    }

    fn graph(&self, index: usize, in_run: usize) -> Result<Graph> {
        self.built.fetch_add(1, Relaxed);
        let mut state = self.seed ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % below
        };
        let nodes = 2 + random(30);
        let edges: Vec<_> = (0..3 * nodes).map(|k| (random(nodes), random(nodes), k as f32)).collect();
        let graph = Graph::from_edges(&self.schema, (0..nodes).collect(), &edges)?;
        let distance = vec![in_run as f32; edges.len()];
        let targets = Targets::Nodes((0..nodes).map(|node| node as f32 / 8.0).collect());
        Ok(Graph { edge_attributes: distance, targets, known_time: Some(index as i64), ..graph })
    }
}

impl Builder for MadeUp {
    fn identity(&self) -> Identity {
        let parameters = format!("{{\"seed\":{}}}", self.seed);
        Identity { data: Identity::hash([]), builder: "made-up/1".to_owned(), parameters }
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn keys(&self) -> &[String] {
        &self.keys
    }

    fn run_length(&self) -> usize {
        self.run_length
    }

    fn build(&self, index: usize) -> Result<Graph> {
        self.graph(index, 0)
    }

    fn build_run(&self, run: std::ops::Range<usize>, sink: &mut dyn FnMut(usize, Graph) -> Result<()>) -> Result<()> {
        assert_eq!(run.start % self.run_length, 0, "runs begin at multiples of their length");
        run.clone().try_for_each(|index| sink(index, self.graph(index, index - run.start)?))
    }
}
