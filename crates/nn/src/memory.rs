//! Memory of a step, counted from shapes: tensors, phases, the largest batch.

use serde::Serialize;

/// A phase of an optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepPhase {
    /// Forward pass: from the batch to the loss.
    Forward,
    /// Backward pass: from the loss to the gradients.
    Backward,
    /// Optimizer: from the gradients to the weights.
    Optimizer,
}

impl StepPhase {
    /// All of them, in their order.
    pub const ALL: [StepPhase; 3] = [StepPhase::Forward, StepPhase::Backward, StepPhase::Optimizer];
}

/// A tensor that a run takes from its device, or one of each thread's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedTensor {
    /// The part of the memory of a run that it is counted in, such as `activations`.
    pub part: &'static str,
    /// Name, such as `lstm.M1.weight_ih_l0` or `lstm.M5 layer 1: gates`.
    pub name: String,
    /// Number of such tensors: one for each shard that threads compute at once.
    pub count: usize,
    /// Bytes of all of them.
    pub bytes: usize,
    /// The phases of a step that read or write it. Its memory is held from the run's beginning to
    /// its end, whatever these are.
    pub used_in: Vec<StepPhase>,
}

/// A list of tensors: name, number of elements, and the phases that use it.
pub type TensorPlan = Vec<(String, usize, &'static [StepPhase])>;

/// Number of elements of all tensors of a [`TensorPlan`].
pub fn plan_len(plan: &[(String, usize, &'static [StepPhase])]) -> usize {
    plan.iter().map(|(_, len, _)| len).sum()
}

/// Used by the forward pass.
pub const FORWARD: &[StepPhase] = &[StepPhase::Forward];
/// Used by the backward pass.
pub const BACKWARD: &[StepPhase] = &[StepPhase::Backward];
/// Used by both.
pub const BOTH: &[StepPhase] = &[StepPhase::Forward, StepPhase::Backward];

/// Upper bound of batches. It is a bound: no single batch need reach it in every timeframe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargestBatch {
    /// Batch sizes, each once.
    pub sizes: Vec<usize>,
    /// Sizes of batches that are trained on, and not validated only.
    pub sizes_learnt: Vec<usize>,
    /// Size of the largest batch of a validation.
    pub validated_max: usize,
    /// Steps of the windows of each timeframe.
    pub steps: Vec<usize>,
    /// Distinct windows of each timeframe; for dense training, runs of samples.
    pub windows: Vec<usize>,
    /// Bars that these cover.
    pub bars: Vec<usize>,
    /// The same windows of batches that are trained on; empty where none is.
    pub windows_learnt: Vec<usize>,
    /// Bars that these cover.
    pub bars_learnt: Vec<usize>,
    /// True if windows may have bars in common: if samples are slices of series.
    pub shares_bars: bool,
    /// Bars of each series that a GPU keeps; `None` where batches bring theirs.
    pub series: Option<Vec<usize>>,
    /// Stored windows of each timeframe that a GPU keeps; 0 where batches bring theirs.
    pub kept_windows: usize,
    /// Stored windows of each timeframe in a chunk, of which a GPU has two; 0 where batches bring
    /// theirs.
    pub chunk_windows: usize,
    /// True if samples have weights.
    pub is_weighted: bool,
    /// For a model over graphs, whose samples are nodes.
    pub graphs: Option<LargestGraphs>,
    /// Bars of each timeframe whose states are carried, and how many of them a step computes at
    /// most; empty where no states are carried.
    pub carried: Vec<[usize; 2]>,
    /// The batches of dense training that are largest in some size; empty where bounds alone are
    /// known.
    pub dense: Vec<DenseBatch>,
}

impl LargestBatch {
    /// This bound of `batches` of dense training, of which all are trained on.
    ///
    /// # Panics
    /// If there is no batch.
    #[must_use]
    pub fn with_dense(self, batches: Vec<DenseBatch>) -> Self {
        assert!(!batches.is_empty(), "the largest of no batches");
        let largest =
            |sizes: fn(&DenseBatch) -> &[usize]| largest_each(batches.iter().map(|batch| sizes(batch).to_vec()));
        let steps = largest(|batch| &batch.steps);
        let (windows, bars) = (largest(|batch| &batch.windows), largest(|batch| &batch.bars));
        let (windows_learnt, bars_learnt) = (windows.clone(), bars.clone());
        LargestBatch { steps, windows, bars, windows_learnt, bars_learnt, dense: batches, ..self }
    }

    /// The most steps of all distinct windows of a batch together, by timeframe.
    pub fn rows(&self) -> Vec<usize> {
        let rows = |steps: &[usize], windows: &[usize]| -> Vec<usize> {
            steps.iter().zip(windows).map(|(steps, windows)| steps * windows).collect()
        };
        match self.dense.as_slice() {
            [] => rows(&self.steps, &self.windows),
            batches => largest_each(batches.iter().map(|batch| rows(&batch.steps, &batch.windows))),
        }
    }

    /// The bound of the batches that are trained on.
    #[must_use]
    pub fn learnt(&self) -> Self {
        let graphs = self.graphs.map(|largest| LargestGraphs {
            graphs: largest.graphs_learnt,
            edges: largest.edges_learnt,
            ..largest
        });
        let or_none = |learnt: &[usize]| if learnt.is_empty() { vec![0; self.steps.len()] } else { learnt.to_vec() };
        let (windows, bars) = (or_none(&self.windows_learnt), or_none(&self.bars_learnt));
        LargestBatch { sizes: self.sizes_learnt.clone(), windows, bars, graphs, ..self.clone() }
    }
}

/// The largest of `lists` place by place.
fn largest_each(lists: impl Iterator<Item = Vec<usize>>) -> Vec<usize> {
    let larger = |a: Vec<usize>, b: Vec<usize>| a.into_iter().zip(b).map(|(a, b)| a.max(b)).collect();
    lists.reduce(larger).unwrap_or_default()
}

/// Sizes of a batch of dense training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenseBatch {
    /// Number of samples.
    pub samples: usize,
    /// Steps of the windows of each timeframe: those of the longest run, padded as a GPU does.
    pub steps: Vec<usize>,
    /// Distinct windows of each timeframe.
    pub windows: Vec<usize>,
    /// Bars that these cover with so many steps each.
    pub bars: Vec<usize>,
}

impl DenseBatch {
    /// True if no size of `other` is larger.
    pub fn is_at_least(&self, other: &DenseBatch) -> bool {
        let are_at_least = |own: &[usize], other: &[usize]| own.iter().zip(other).all(|(own, other)| own >= other);
        self.samples >= other.samples
            && are_at_least(&self.steps, &other.steps)
            && are_at_least(&self.windows, &other.windows)
            && are_at_least(&self.bars, &other.bars)
    }
}

/// Upper bound of batches of graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargestGraphs {
    /// Graphs of a batch.
    pub graphs: usize,
    /// Edges of the graphs.
    pub edges: usize,
    /// Graphs of a batch that is trained on.
    pub graphs_learnt: usize,
    /// Edges of these.
    pub edges_learnt: usize,
    /// Nodes and edges of all graphs of the source, if a GPU keeps their lists.
    pub kept: Option<[usize; 2]>,
}
