//! The parts of a batch that threads compute, the same for any number of threads.

use std::ops::Range;

use megabatch_nn::batch::BatchView;
use megabatch_nn::graph::GraphDropout;
use megabatch_nn::model::{StepDropout, StepSeed};

use crate::carried::Carried;
use crate::compute::{Purpose, SHARD_SAMPLES};
use crate::decoder::GraphShard;
use crate::shard::Shard;
use crate::team::ThreadTeam;

/// The part of a batch that makes a shard: some samples, some runs or, of a batch of graphs, one of
/// them.
#[derive(Clone, Debug)]
pub(super) struct BatchPart {
    pub(super) samples: Range<usize>,
    /// The samples in runs, for dense training.
    runs: Vec<Range<usize>>,
    /// Its place among the batch's graphs.
    graph: Option<usize>,
}

impl BatchPart {
    /// This part of `batch`, from the states of `carried`; `dropout` is that of the step.
    pub(super) fn shard<'a>(
        &'a self,
        batch: &'a BatchView<'a>,
        carried: Option<&'a Carried>,
        dropout: Option<StepDropout>,
    ) -> Shard<'a> {
        Shard {
            batch,
            samples: self.samples.clone(),
            runs: &self.runs,
            graph: self.graph(batch, dropout.map(|dropout| dropout.in_graphs)),
            carried,
            dropout: dropout.and_then(|dropout| dropout.between_layers),
        }
    }

    fn graph<'a>(&self, batch: &BatchView<'a>, dropout_seed: Option<StepSeed>) -> Option<GraphShard<'a>> {
        let (graphs, graph) = (batch.graphs()?, self.graph?);
        let dropout =
            dropout_seed.map(|StepSeed { seed, step }| GraphDropout::for_step(seed, step, graphs.indices()[graph]));
        Some(GraphShard { view: graphs.view(graph), dropout, team: ThreadTeam::alone() })
    }
}

/// The parts of a batch; of samples, the last one may be smaller than the others.
///
/// `position` is that of the first sample in the epoch's order, by which dense training tells runs
/// apart.
pub(super) fn parts_of(batch: &BatchView<'_>, purpose: Purpose, position: usize) -> Vec<BatchPart> {
    let samples = batch.len();
    let sample_part = |samples, graph| BatchPart { samples, runs: Vec::new(), graph };
    match (batch.graphs(), purpose.runs()) {
        (Some(graphs), _) => {
            graphs.samples().enumerate().map(|(graph, samples)| sample_part(samples, Some(graph))).collect()
        }
        (None, Some(runs)) => {
            let part = |runs: Vec<Range<usize>>| {
                let samples = runs.first().map_or(0, |run| run.start)..runs.last().map_or(0, |run| run.end);
                BatchPart { samples, runs, graph: None }
            };
            runs.shards_of_batch(batch, position).into_iter().map(part).collect()
        }
        (None, None) => {
            let starts = (0..samples).step_by(SHARD_SAMPLES);
            starts.map(|start| sample_part(start..samples.min(start + SHARD_SAMPLES), None)).collect()
        }
    }
}
