//! Where the edges of a batch come from.

use anyhow::Result;
use megabatch_graph_cache::{Builder, Graph, GraphFile};
use megabatch_segment::{Compressed, Csc, Csr};
use megabatch_trainer::GraphView;

/// Graphs, asked for one at a time.
pub(super) trait Topology {
    /// The edges of a graph, for as long as no other is asked for.
    fn graph(&mut self, index: usize) -> Result<GraphView<'_>>;
}

/// A graph with its edges by both their ends.
struct Whole {
    graph: Graph,
    by_column: Compressed<u32>,
}

impl Whole {
    fn of(graph: Graph) -> Result<Self> {
        let by_column = graph.csr()?.transposed()?;
        Ok(Whole { graph, by_column })
    }

    fn view(&self) -> Result<GraphView<'_>> {
        let Compressed { offsets, indices, edges } = &self.by_column;
        Ok(GraphView {
            csr: Csr::new(&self.graph.row_ptr, &self.graph.col, self.graph.len())?,
            csc: Csc::new((offsets, indices, edges), self.graph.len())?,
            attributes: &self.graph.weights,
        })
    }
}

/// Built whenever it is asked for.
pub(super) struct Rebuilt<'b> {
    builder: &'b dyn Builder,
    last: Option<Whole>,
}

impl<'b> Rebuilt<'b> {
    pub(super) fn new(builder: &'b dyn Builder) -> Self {
        Rebuilt { builder, last: None }
    }
}

impl Topology for Rebuilt<'_> {
    fn graph(&mut self, index: usize) -> Result<GraphView<'_>> {
        let built = Whole::of(self.builder.build(index)?)?;
        self.last.insert(built).view()
    }
}

/// In a file that is mapped.
pub(super) struct Cached(pub(super) GraphFile);

impl Topology for Cached {
    fn graph(&mut self, index: usize) -> Result<GraphView<'_>> {
        let stored = self.0.graph(index)?;
        let attributes = stored.weights().as_f32().expect("the file was written with f32");
        Ok(GraphView { csr: stored.csr(), csc: stored.csc(), attributes })
    }
}

/// In memory of their own.
pub(super) struct InMemory(Vec<Whole>);

impl InMemory {
    pub(super) fn new(builder: &dyn Builder) -> Result<Self> {
        let graphs = (0..builder.keys().len()).map(|index| Whole::of(builder.build(index)?));
        Ok(InMemory(graphs.collect::<Result<_>>()?))
    }
}

impl Topology for InMemory {
    fn graph(&mut self, index: usize) -> Result<GraphView<'_>> {
        self.0[index].view()
    }
}
