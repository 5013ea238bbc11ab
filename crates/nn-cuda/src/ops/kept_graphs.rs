//! The lists of all graphs of a source, which stay on a device: a batch brings the numbers of its
//! graphs, and the device takes their lists.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu/kept_graphs.rs"]
mod cpu;

use std::ops::Range;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Scope, arguments};
use megabatch_nn::Result;
use megabatch_nn::graph::{BatchEdges, EdgeForm, GraphBatch, GraphStart, Graphs, ListStart, SeenEdges};

use super::graph_lists::{GraphLists, Origin, Selected};

/// Nodes of the graphs that are read at once; more where a single graph has more.
const NODES_AT_ONCE: usize = 1 << 16;

/// Nodes without edges behind `nodes` nodes of all graphs, which pad a batch: one, and up to a
/// sixteenth.
fn padding_nodes(nodes: usize) -> usize {
    nodes / 16 + 2
}

/// [`BatchEdges`] of all graphs of a source, on a device.
#[derive(Debug)]
pub(crate) struct KeptGraphs {
    /// Start of each graph in the lists, and behind the last one the ends.
    graphs: Vec<ListStart>,
    starts: Buffer<u32>,
    from: Buffer<u32>,
    src_starts: Buffer<u32>,
    places: Buffer<u32>,
    to: Buffer<u32>,
    attributes: Buffer<f32>,
    /// A.
    width: usize,
}

impl KeptGraphs {
    /// Brings the edges of all graphs, of which the model sees `seen`, to the device of `scope`.
    ///
    /// # Errors
    /// Whatever keeps the source from reading; [`Error::Memory`](megabatch_nn::Error::Memory).
    ///
    /// # Panics
    /// If there are 2³² nodes and edges or more.
    pub(crate) fn bring(scope: &Scope, graphs: &dyn Graphs, seen: SeenEdges) -> Result<Self> {
        KeptGraphs::bring_in_pieces(scope, graphs, seen, NODES_AT_ONCE)
    }

    fn bring_in_pieces(scope: &Scope, graphs: &dyn Graphs, seen: SeenEdges, nodes_at_once: usize) -> Result<Self> {
        let nodes = graphs.total_nodes();
        let places = seen.places(nodes, graphs.total_edges());
        assert!(u32::try_from(nodes + places).is_ok(), "numbers of 32 bits count nodes and edges of all graphs");
        let mut kept = KeptGraphs::zeros(scope, nodes, places, seen.attributes)?;
        let mut end = ListStart::default();
        let mut first = 0;
        while first < graphs.len() {
            let piece = piece(graphs, first, nodes_at_once);
            first = piece.end;
            let mut edges = GraphBatch::read(graphs, &piece.collect::<Vec<_>>(), EdgeForm::Views)?.lists(seen)?;
            let mut starts: Vec<ListStart> = edges.list_starts().map(|start| start.behind(end)).collect();
            edges.number_from(end);
            kept.put(end, &edges)?;
            end = starts.pop().expect("behind the last graph are the ends");
            kept.graphs.append(&mut starts);
        }
        kept.graphs.push(end);
        let behind = 1 + padding_nodes(nodes);
        kept.starts.copy_from_at(nodes, &vec![end.place; behind])?;
        kept.src_starts.copy_from_at(nodes, &vec![end.edge; behind])?;
        Ok(kept)
    }

    /// Memory on `scope` for so many nodes and places of edges of so many attributes.
    pub(crate) fn zeros(scope: &Scope, nodes: usize, places: usize, attributes: usize) -> Result<Self> {
        let (zeros, starts) = (|len| Buffer::zeros(scope, len), nodes + 1 + padding_nodes(nodes));
        Ok(KeptGraphs {
            graphs: Vec::new(),
            starts: zeros(starts)?,
            from: zeros(places)?,
            src_starts: zeros(starts)?,
            places: zeros(places)?,
            to: zeros(places)?,
            attributes: Buffer::zeros(scope, places * attributes)?,
            width: attributes,
        })
    }

    /// Copies lists to their place among those of all.
    fn put(&mut self, start: ListStart, edges: &BatchEdges) -> Result<()> {
        let ListStart { node, place, edge } = start;
        let [node, place, edge] = [node, place, edge].map(|start| start as usize);
        self.starts.copy_from_at(node, &edges.starts)?;
        self.from.copy_from_at(place, &edges.from)?;
        self.src_starts.copy_from_at(node, &edges.src_starts)?;
        self.places.copy_from_at(edge, &edges.places)?;
        self.to.copy_from_at(edge, &edges.to)?;
        Ok(self.attributes.copy_from_at(place * self.width, &edges.attributes)?)
    }

    /// Has `lists` be those of the graphs `indices`, padded to `nodes` nodes as far as there are
    /// nodes to pad with. [`KeptGraphs::take`] writes them, once the device has what
    /// [`GraphLists::enqueue`] gives it.
    pub(crate) fn select(&self, indices: &[usize], nodes: usize, lists: &mut GraphLists) {
        let (selected, graphs) = self.find(indices, nodes);
        lists.select(selected, graphs);
    }

    /// The graphs `indices` in the lists of all, with the one that pads them to `nodes` nodes, and
    /// the starts of lists of their own.
    fn find(&self, indices: &[usize], nodes: usize) -> (Selected, Vec<GraphStart>) {
        let mut start = ListStart::default();
        let (mut origins, mut graphs) = (Vec::with_capacity(indices.len()), Vec::with_capacity(indices.len() + 1));
        for &index in indices {
            let [ListStart { node, place, edge }, end] = [self.graphs[index], self.graphs[index + 1]];
            graphs.push(GraphStart { index: index as u64, node: start.node, place: start.place });
            origins.push(Origin { node, place, edge, to_edge: start.edge });
            let lens = ListStart { node: end.node - node, place: end.place - place, edge: end.edge - edge };
            start = lens.behind(start);
        }
        graphs.push(GraphStart { index: 0, node: start.node, place: start.place });
        let ListStart { node, place, edge } = self.graphs[self.graphs.len() - 1];
        let padding = nodes.saturating_sub(start.node as usize).min(padding_nodes(node as usize)) as u32;
        if padding > 0 {
            origins.push(Origin { node, place, edge, to_edge: start.edge });
            graphs.push(GraphStart { index: 0, node: start.node + padding, place: start.place });
        }
        (Selected { origins, edges: start.edge as usize, width: self.width }, graphs)
    }

    /// Writes the lists of the graphs that were selected; nothing where the batch brought them.
    pub(crate) fn take(&self, lists: &mut GraphLists) -> Result<()> {
        let Some(selected) = lists.selected.take() else { return Ok(()) };
        let len = (lists.nodes() + 1).max(lists.places()).max(selected.edges);
        match lists.device().clone() {
            Device::Cuda(device) => {
                let to = &lists.on_device;
                let arguments = arguments![
                    self.starts.address(),
                    self.from.address(),
                    self.src_starts.address(),
                    self.places.address(),
                    self.to.address(),
                    self.attributes.address(),
                    to.graphs.address(),
                    to.origins.address(),
                    to.starts.address(),
                    to.from.address(),
                    to.src_starts.address(),
                    to.places.address(),
                    to.to.address(),
                    to.attributes.address(),
                    to.graph_of.address(),
                    selected.origins.len() as u32,
                    selected.edges as u32,
                    self.width as u32
                ];
                let ptx = megabatch_gpu_core::ptx!("kept_graphs");
                let kernel = Kernel { module: "nn/kept_graphs", ptx, name: "take_graphs" };
                // SAFETY: the lists of all have each graph of the batch from its origin on, and
                // those of the batch have room for all nodes, places and edges of its graphs; a
                // thread writes those of its number. What is submitted to the default stream later
                // runs after it.
                Ok(unsafe { kernel.submit(&device, Launch::for_threads(len), &arguments) }?)
            }
            _ => cpu_arm!(cpu::take(self, &selected, lists)),
        }
    }
}

/// Graphs from `first` on that are read at once: of so many nodes, or a single one.
fn piece(graphs: &dyn Graphs, first: usize, nodes_at_once: usize) -> Range<usize> {
    let (mut end, mut nodes) = (first + 1, graphs.nodes(first).len());
    while end < graphs.len() && nodes + graphs.nodes(end).len() <= nodes_at_once {
        nodes += graphs.nodes(end).len();
        end += 1;
    }
    first..end
}

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;
    use std::sync::Arc;

    use megabatch_nn::graph::GraphView;
    use megabatch_simt::Arg;
    use proptest::prelude::*;

    use super::super::BatchUploader;
    use super::super::attention::tests::{GraphExample, graphs};
    use super::super::harness::HARNESS;
    use super::*;

    const ATTRIBUTES: usize = 2;

    /// Graphs of these sizes as a source.
    struct Source {
        sizes: Vec<usize>,
        example: GraphExample,
        nodes: Vec<usize>,
    }

    impl Source {
        fn new(sizes: Vec<usize>) -> Self {
            Source { example: graphs(&sizes, ATTRIBUTES), nodes: (0..40).collect(), sizes }
        }
    }

    impl Graphs for Source {
        fn len(&self) -> usize {
            self.sizes.len()
        }

        fn nodes(&self, graph: usize) -> &[usize] {
            &self.nodes[..self.sizes[graph]]
        }

        fn graph(&self, graph: usize) -> std::result::Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
            Ok(self.example.view(graph))
        }

        fn edge_attributes(&self) -> usize {
            ATTRIBUTES
        }

        fn largest(&self) -> (usize, usize) {
            (40, 1600)
        }

        fn total_edges(&self) -> usize {
            (0..self.sizes.len()).map(|graph| self.example.view(graph).edges()).sum()
        }

        fn labelled(&self, _graph: usize) -> usize {
            unreachable!("lists have no targets")
        }
    }

    /// The lists that the kernel makes.
    fn by_the_kernel(kept: &KeptGraphs, indices: &[usize], expected: &BatchEdges) -> BatchEdges {
        let (selected, starts) = kept.find(indices, expected.graph_of.len());
        let fill = |list: &[u32]| vec![77u32; list.len()];
        let mut found = BatchEdges {
            starts: fill(&expected.starts),
            from: fill(&expected.from),
            src_starts: fill(&expected.src_starts),
            places: fill(&expected.places),
            to: fill(&expected.to),
            attributes: vec![7.0; expected.attributes.len()],
            graph_of: fill(&expected.graph_of),
            graphs: starts.clone(),
        };
        let len = expected.starts.len().max(expected.from.len());
        let mut arguments = [
            Arg::from(kept.starts.as_slice()),
            Arg::from(kept.from.as_slice()),
            Arg::from(kept.src_starts.as_slice()),
            Arg::from(kept.places.as_slice()),
            Arg::from(kept.to.as_slice()),
            Arg::from(kept.attributes.as_slice()),
            Arg::from(&starts[..]),
            Arg::from(&selected.origins[..]),
            Arg::from(&mut found.starts[..]),
            Arg::from(&mut found.from[..]),
            Arg::from(&mut found.src_starts[..]),
            Arg::from(&mut found.places[..]),
            Arg::from(&mut found.to[..]),
            Arg::from(&mut found.attributes[..]),
            Arg::from(&mut found.graph_of[..]),
            Arg::from(selected.origins.len() as u32),
            Arg::from(selected.edges as u32),
            Arg::from(selected.width as u32),
        ];
        HARNESS.run("take_graphs", Launch::for_threads(len), &mut arguments);
        found
    }

    fn by_the_cpu(scope: &Scope, kept: &KeptGraphs, indices: &[usize], nodes: usize) -> BatchEdges {
        let (mut lists, mut uploader) = (GraphLists::empty(scope).unwrap(), BatchUploader::new(scope).unwrap());
        kept.select(indices, nodes, &mut lists);
        let mut upload = uploader.upload();
        lists.enqueue(&mut upload).unwrap();
        upload.send().unwrap();
        kept.take(&mut lists).unwrap();
        Arc::unwrap_or_clone(lists.edges)
    }

    /// Sizes of graphs, and which of them a batch has.
    fn batches() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
        prop::collection::vec(1usize..40, 1..7).prop_flat_map(|sizes| {
            let all: Vec<usize> = (0..sizes.len()).collect();
            (Just(sizes), prop::sample::subsequence(all.clone(), 1..=all.len()).prop_shuffle())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Lists of a batch are those that the host makes of its graphs, padded or not.
        #[test]
        fn a_batch_takes_the_lists_that_it_would_bring(
            (sizes, indices) in batches(),
            self_loops: bool,
            attributes in prop::sample::select(vec![0, ATTRIBUTES]),
            nodes_at_once in prop::sample::select(vec![1, 50, NODES_AT_ONCE]),
            padding in 0usize..3,
        ) {
            let (source, scope) = (Source::new(sizes), Device::cpu().scope("test"));
            let seen = SeenEdges { self_loops, attributes };
            let kept = KeptGraphs::bring_in_pieces(&scope, &source, seen, nodes_at_once).unwrap();
            let views = indices.iter().map(|&graph| (graph, source.example.view(graph)));
            let mut expected = BatchEdges::new(views, seen);
            let nodes = expected.graph_of.len() + padding;
            expected.pad(nodes);
            prop_assert_eq!(&by_the_cpu(&scope, &kept, &indices, nodes), &expected);
            prop_assert_eq!(&by_the_kernel(&kept, &indices, &expected), &expected);
        }
    }
}
