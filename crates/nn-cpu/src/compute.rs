//! Amount of computation at once, and its purpose.

use megabatch_nn::batch::Runs;
use megabatch_nn::memory::{StepPhase, TensorPlan};
use megabatch_nn::model::Model;

/// Samples that one thread takes through the model at a time. Part of the arithmetic: another size
/// sums in another order.
pub const SHARD_SAMPLES: usize = 32;

/// True if an engine will be asked for gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Gradients.
    Training {
        /// True if outputs between layers are dropped.
        dropout: bool,
        /// Runs of dense training; `None` where each window is a sequence.
        runs: Option<Runs>,
        /// Saved forward pass.
        kept: CheckpointPolicy,
    },
    /// Outputs alone.
    Prediction,
}

/// Part of the forward pass that is saved for the backward pass; the rest is computed again. See
/// `shard/segments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointPolicy {
    /// Gates and states of all steps.
    Everything,
    /// The gates of half of the steps, and the cell state before each segment.
    Half,
    /// The gates of half of the steps, and the cell state after each.
    HalfAndCells,
}

/// Amount of computation at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// Threads that compute; one more reads data.
    pub threads: usize,
    /// Samples in a batch; graphs, for a model over graphs.
    pub batch_size: usize,
}

/// Largest shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Samples of the shard.
    pub samples: usize,
    /// Edges between them.
    pub edges: usize,
    /// Samples of a run that are computed in one pass, for dense training; at most 1 elsewhere.
    pub run: usize,
    /// Threads that compute it together; 0 or 1 for one.
    pub threads: usize,
}

impl Capacity {
    /// Sequences that are computed side by side.
    pub fn sequences(self) -> usize {
        self.samples.div_ceil(self.run.max(1))
    }

    /// Bars in each, for windows of `steps` bars.
    pub fn steps(self, steps: usize) -> usize {
        steps + self.run.max(1) - 1
    }
}

impl Compute {
    /// The largest shard, where it is not a graph.
    pub fn capacity(self, purpose: Purpose) -> Capacity {
        let threads = self.threads_of_shard(self.shards(purpose));
        match purpose.runs() {
            Some(runs) => Capacity { samples: runs.samples(), edges: 0, run: runs.longest, threads },
            None => Capacity { samples: self.batch_size.min(SHARD_SAMPLES), edges: 0, run: 1, threads },
        }
    }

    /// The largest shard, where it is a graph of up to `nodes` and `edges`.
    pub fn graph_capacity(self, nodes: usize, edges: usize) -> Capacity {
        Capacity { samples: nodes, edges, run: 1, threads: self.threads_of_shard(self.batch_size) }
    }

    /// Shards that are computed at the same time.
    pub fn shards_at_once(self, model: &Model, purpose: Purpose) -> usize {
        let is_over_graphs = model.config().is_over_graphs();
        self.threads.min(if is_over_graphs { self.batch_size } else { self.shards(purpose) })
    }

    /// The same with one thread for each shard, which takes the least memory.
    pub fn without_sharing(self, model: &Model, purpose: Purpose) -> Self {
        Compute { threads: self.shards_at_once(model, purpose), ..self }
    }

    /// Shards of a batch that is not of graphs.
    fn shards(self, purpose: Purpose) -> usize {
        purpose.runs().map_or(self.batch_size.div_ceil(SHARD_SAMPLES), |runs| runs.shards(self.batch_size))
    }

    /// Threads for each of `shards`: more than one where there are more threads than shards.
    fn threads_of_shard(self, shards: usize) -> usize {
        self.threads.div_ceil(self.threads.min(shards).max(1))
    }
}

impl Purpose {
    /// Runs of dense training; `None` where each window is a sequence.
    pub fn runs(self) -> Option<Runs> {
        match self {
            Purpose::Training { runs, .. } => runs,
            Purpose::Prediction => None,
        }
    }
}

/// Tensors with the buffers of each, in the order in which they are taken: name, numbers in each
/// buffer, and the phases that use it.
pub(crate) type BufferPlan = Vec<(String, Vec<usize>, &'static [StepPhase])>;

/// The tensors of `plan`, each with the numbers in all its buffers.
pub(crate) fn by_tensor(plan: BufferPlan) -> TensorPlan {
    plan.into_iter().map(|(name, lens, phases)| (name, lens.into_iter().sum(), phases)).collect()
}

/// Numbers in each buffer of `plan`.
pub(crate) fn buffer_lens(plan: BufferPlan) -> Vec<usize> {
    plan.into_iter().flat_map(|(_, lens, _)| lens).collect()
}
