//! Made-up graphs whose nodes are samples.

use std::error::Error as StdError;
use std::ops::ControlFlow;

use megabatch_gpu_core::Device;
use megabatch_nn::graph::{GraphView, Graphs};
use megabatch_nn::model::{SampleShape, Timeframe};
use megabatch_segment::{Compressed, Csc};
use megabatch_trainer::{Batch, Config, Event, InMemory, Result, Run, SampleRanges, Samples, Trainer};

/// Samples in memory and graphs of them.
pub(crate) struct GraphSamples {
    pub(crate) inner: InMemory,
    pub(crate) graphs: Vec<MadeUpGraph>,
    pub(crate) attributes: usize,
    pub(crate) largest: (usize, usize),
}

/// Nodes, and edges by both of their ends.
pub(crate) struct MadeUpGraph {
    pub(crate) nodes: Vec<usize>,
    by_row: Compressed<u32>,
    by_column: Compressed<u32>,
    attributes: Vec<f32>,
    labelled: usize,
}

/// Parts of a graph: nodes, edges (to, from), attributes in the order of rows, and nodes or graphs
/// with targets.
pub(crate) type Parts = (Vec<usize>, Vec<(u32, u32)>, Vec<f32>, usize);

impl GraphSamples {
    pub(crate) fn new(inner: InMemory, attributes: usize, graphs: Vec<Parts>) -> Self {
        let graph = |(nodes, edges, attributes, labelled): Parts| {
            let (to, from): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
            let by_row = Compressed::from_edges(&to, &from, nodes.len(), nodes.len()).unwrap();
            let by_column = by_row.csr(nodes.len()).unwrap().transposed().unwrap();
            MadeUpGraph { nodes, by_row, by_column, attributes, labelled }
        };
        let graphs: Vec<_> = graphs.into_iter().map(graph).collect();
        let most = |len: fn(&MadeUpGraph) -> usize| graphs.iter().map(len).max().unwrap_or(0);
        let largest = (most(|graph| graph.nodes.len()), most(|graph| graph.by_row.indices.len()));
        GraphSamples { inner, graphs, attributes, largest }
    }

    /// Gives graphs as wholes the targets of their first nodes.
    pub(crate) fn label_graphs(&mut self) {
        let width = self.inner.shape().outputs;
        let mut targets = self.targets();
        for graph in &mut self.graphs {
            let first_targets = targets[graph.nodes[0] * width..][..width].to_vec();
            graph.nodes.iter().for_each(|node| targets[node * width..][..width].copy_from_slice(&first_targets));
            graph.labelled = usize::from(!first_targets.iter().any(|target| target.is_nan()));
        }
        self.set_targets(targets);
    }

    /// Makes class labels of the targets, one-hot: the class of a row is that of its largest one.
    pub(crate) fn classify(&mut self) {
        let width = self.inner.shape().outputs;
        self.change_targets(|targets| {
            for row in targets.chunks_exact_mut(width).filter(|row| !row.iter().any(|target| target.is_nan())) {
                let class = (0..width).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
                row.fill(0.0);
                row[class] = 1.0;
            }
        });
    }

    /// Lets `change` change all targets, [samples, outputs].
    pub(crate) fn change_targets(&mut self, change: impl FnOnce(&mut [f32])) {
        let mut targets = self.targets();
        change(&mut targets);
        self.set_targets(targets);
    }

    /// All targets, [samples, outputs].
    fn targets(&self) -> Vec<f32> {
        self.gathered(|batch| batch.slices_mut().1.to_vec())
    }

    fn set_targets(&mut self, targets: Vec<f32>) {
        let features = self.gathered(|batch| batch.slices_mut().0.iter().map(|windows| windows.to_vec()).collect());
        self.inner = InMemory::new(self.inner.shape().clone(), features, targets).unwrap();
    }

    /// The result of `read` on a batch of all samples.
    fn gathered<R>(&self, read: impl FnOnce(&mut Batch) -> R) -> R {
        let count = self.inner.len();
        let mut batch = Batch::new(&Device::cpu().scope("test"), self.inner.shape(), count).unwrap();
        batch.resize(count);
        self.inner.gather(&(0..count).collect::<Vec<_>>(), &mut batch).unwrap();
        read(&mut batch)
    }
}

impl Samples for GraphSamples {
    fn shape(&self) -> &SampleShape {
        self.inner.shape()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.inner.gather(samples, batch)
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(self)
    }
}

impl Graphs for GraphSamples {
    fn len(&self) -> usize {
        self.graphs.len()
    }

    fn nodes(&self, graph: usize) -> &[usize] {
        &self.graphs[graph].nodes
    }

    fn graph(&self, graph: usize) -> Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
        let MadeUpGraph { nodes, by_row, by_column, attributes, .. } = &self.graphs[graph];
        let csc = Csc::new(&by_column.offsets, &by_column.indices, &by_column.edges, nodes.len())?;
        Ok(GraphView { csr: by_row.csr(nodes.len())?, csc, attributes })
    }

    fn edge_attributes(&self) -> usize {
        self.attributes
    }

    fn largest(&self) -> (usize, usize) {
        self.largest
    }

    fn edges_max(&self, graph: usize) -> usize {
        self.graphs[graph].by_row.indices.len()
    }

    fn total_edges(&self) -> usize {
        self.graphs.iter().map(|graph| graph.by_row.indices.len()).sum()
    }

    fn labelled(&self, graph: usize) -> usize {
        self.graphs[graph].labelled
    }
}

/// Numbers in (-1, 1) of which none tells of its neighbours: the last digits of sines.
pub(crate) fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let digits = |i: usize| (i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin() * 43_758.545_3;
    (0..len).map(|i| (2.0 * (digits(i) - digits(i).floor()) - 1.0) as f32).collect()
}

/// Features of one bar, and nothing else.
pub(crate) fn one_bar(features: usize, outputs: usize) -> SampleShape {
    SampleShape { timeframes: vec![Timeframe { name: String::new(), steps: 1, features }], outputs }
}

/// `days` graphs of 1 to 7 nodes each, with two timeframes, two attributes an edge and two targets.
/// Every fourth day has no edges; every fifth sample has no second target and every eleventh day
/// none at all. The first target is a mean over neighbours.
pub(crate) fn market(days: usize) -> GraphSamples {
    let timeframe = |name: &str, steps, features| Timeframe { name: name.to_owned(), steps, features };
    let shape = SampleShape { timeframes: vec![timeframe("M1", 5, 3), timeframe("H1", 2, 2)], outputs: 2 };
    let sizes: Vec<usize> = (0..days).map(|day| 1 + day * 5 % 7).collect();
    let count: usize = sizes.iter().sum();
    let (m1, h1) = (numbers(1, count * 15), numbers(2, count * 4));
    let mut targets = numbers(3, count * 2);
    let mut graphs = Vec::new();
    for (day, &size) in sizes.iter().enumerate() {
        let first: usize = sizes[..day].iter().sum();
        // Rows are not in the order of samples.
        let nodes: Vec<usize> = (first..first + size).rev().collect();
        let has_edge =
            |to: usize, from: usize| day % 4 != 1 && !(to * 7 + from * 3 + day).is_multiple_of(3) && to != from;
        let ends = (0..size).flat_map(|to| (0..size).map(move |from| (to, from)));
        let edges: Vec<(usize, usize)> = ends.filter(|&(to, from)| has_edge(to, from)).collect();
        let mut labelled = 0;
        for (row, &sample) in nodes.iter().enumerate() {
            let own = edges.iter().filter(|(to, _)| *to == row).map(|&(_, from)| m1[nodes[from] * 15 + 12]);
            targets[sample * 2] = own.sum::<f32>() * 0.5 + 0.3 * m1[sample * 15 + 13];
            if sample % 5 == 4 || day % 11 == 10 {
                targets[sample * 2 + 1] = f32::NAN;
            } else {
                labelled += 1;
            }
        }
        let attributes = numbers(50 + day as u64, 2 * edges.len());
        let edges = edges.into_iter().map(|(to, from)| (to as u32, from as u32)).collect();
        graphs.push((nodes, edges, attributes, labelled));
    }
    GraphSamples::new(InMemory::new(shape, vec![m1, h1], targets).unwrap(), 2, graphs)
}

/// Trains on the graphs `train`, and gives the trainer and every step's loss.
pub(crate) fn trained(config: &Config, samples: &dyn Samples, train: &SampleRanges) -> (Trainer, Vec<f64>) {
    trained_on(&Device::cpu(), config, samples, train).unwrap()
}

/// The same on `device`.
pub(crate) fn trained_on(
    device: &Device,
    config: &Config,
    samples: &dyn Samples,
    train: &SampleRanges,
) -> Result<(Trainer, Vec<f64>)> {
    let run = Run { samples, train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = Trainer::new(device, config.clone(), samples.shape().clone())?;
    let mut losses = Vec::new();
    let observe = &mut |event: Event<'_>| {
        if let Event::Step(step) = event {
            losses.push(step.loss);
        }
        ControlFlow::Continue(())
    };
    trainer.train(&run, observe)?;
    Ok((trainer, losses))
}

pub(crate) fn bits(trainer: &Trainer) -> Vec<u32> {
    trainer.parameters().values().iter().map(|x| x.to_bits()).collect()
}
