//! Sources of the edges of a batch.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use megabatch_graph_cache::build::Panel;
use megabatch_graph_cache::{Builder, Graph, GraphFile};
use megabatch_nn::graph::GraphView;

use crate::adapters::edges::Edges;
use crate::error::{Context as _, Error, Result};

/// Graphs, asked for one at a time.
pub(super) trait Topology {
    /// The edges of a graph, for as long as no other is asked for.
    fn graph(&mut self, index: usize) -> Result<GraphView<'_>>;
}

/// Built whenever it is asked for.
pub(super) struct Rebuilt<'b> {
    builder: &'b dyn Builder,
    last: Option<Edges>,
}

impl<'b> Rebuilt<'b> {
    pub(super) fn new(builder: &'b dyn Builder) -> Self {
        Rebuilt { builder, last: None }
    }
}

impl Topology for Rebuilt<'_> {
    fn graph(&mut self, index: usize) -> Result<GraphView<'_>> {
        let built = Edges::from_graph(self.builder.build(index)?)?;
        Ok(self.last.insert(built).view()?)
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
pub(super) struct InMemory(Vec<Edges>);

impl InMemory {
    pub(super) fn new(builder: &dyn Builder) -> Result<Self> {
        let graphs = (0..builder.keys().len()).map(|index| Edges::from_graph(builder.build(index)?));
        Ok(InMemory(graphs.collect::<Result<_>>()?))
    }
}

impl Topology for InMemory {
    fn graph(&mut self, index: usize) -> Result<GraphView<'_>> {
        Ok(self.0[index].view()?)
    }
}

/// Built by another program, the usual script for instance, whenever it is asked for.
///
/// For each graph the program reads from its standard input, in little-endian order, N, W and k as
/// u32 and the returns [N, W] as f32, row-major; and answers on its standard output with the k
/// neighbours of each node, [N, k] u32.
pub(super) struct Asked<'p> {
    program: Child,
    panel: Panel<'p>,
    window: usize,
    k: usize,
    last: Option<Edges>,
}

impl<'p> Asked<'p> {
    /// Starts `command`, split at blanks.
    pub(super) fn new(command: &str, panel: Panel<'p>, window: usize, k: usize) -> Result<Self> {
        let mut words = command.split_whitespace();
        let name = words.next().ok_or_else(|| Error::failed("--rebuild-with: no program"))?;
        let mut program = Command::new(name);
        program.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = program.spawn().with_context(|| format!("--rebuild-with: cannot start {name}"))?;
        Ok(Asked { program, panel, window, k, last: None })
    }

    /// The neighbours of each node, [N, k].
    fn ask(&mut self, index: usize) -> Result<Vec<u32>> {
        let nodes = self.panel.names().len();
        let mut question: Vec<u8> = Vec::with_capacity(4 * (3 + nodes * self.window));
        for number in [nodes, self.window, self.k] {
            question.extend((number as u32).to_le_bytes());
        }
        for node in 0..nodes {
            let returns = &self.panel.series(node)[index..][..self.window];
            question.extend(returns.iter().flat_map(|&value| (value as f32).to_le_bytes()));
        }
        let mut answer = vec![0; 4 * nodes * self.k];
        let (Some(to), Some(from)) = (&mut self.program.stdin, &mut self.program.stdout) else {
            unreachable!("both ends were asked for")
        };
        to.write_all(&question).context("--rebuild-with: the program does not read")?;
        to.flush()?;
        from.read_exact(&mut answer).context("--rebuild-with: the program does not answer")?;
        Ok(answer.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes"))).collect())
    }
}

impl Topology for Asked<'_> {
    fn graph(&mut self, index: usize) -> Result<GraphView<'_>> {
        let col = self.ask(index)?;
        let nodes = self.panel.names().len();
        let row_ptr = (0..=nodes).map(|row| (row * self.k) as u32).collect();
        // Scripts of this kind leave the weights out.
        let (nodes, weights) = ((0..nodes as u32).collect(), vec![1.0; col.len()]);
        Ok(self.last.insert(Edges::from_graph(Graph { nodes, row_ptr, col, weights, ..Graph::default() })?).view()?)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // It ends when nothing more can come.
        self.program.stdin = None;
        let _ = self.program.wait();
    }
}
