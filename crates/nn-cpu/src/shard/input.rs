//! Input of a shard: samples of a batch, and weights.

use std::ops::Range;

use megabatch_nn::batch::BatchView;
use megabatch_nn::model::{Dropout, Mask, Model, TensorSet};

use super::PackedWeights;
use crate::carried::{Carried, Initial};
use crate::decoder::GraphShard;

/// The weights of a model, as they are and as the kernels read them.
#[derive(Clone, Copy)]
pub struct Weights<'a> {
    pub(crate) model: &'a Model,
    pub(crate) parameters: &'a TensorSet,
    pub(crate) packed: &'a PackedWeights,
}

/// Some samples of a batch, and what their windows are computed with beside the weights.
#[derive(Clone, Debug)]
pub(crate) struct Shard<'a> {
    pub(crate) batch: &'a BatchView<'a>,
    pub(crate) samples: Range<usize>,
    /// The same in runs, each of which is one sequence; none where each sample's window is.
    pub(crate) runs: &'a [Range<usize>],
    /// The graph that these samples are the nodes of, for a model over graphs.
    pub(crate) graph: Option<GraphShard<'a>>,
    /// The states that windows start from, if not from zero.
    pub(crate) carried: Option<&'a Carried>,
    pub(crate) dropout: Option<Dropout>,
}

impl<'a> Shard<'a> {
    /// Row among the batch's bars of the first bar of each window of timeframe `k`.
    pub(crate) fn starts(&self, k: usize) -> &'a [usize] {
        &self.batch.starts(k)[self.samples.clone()]
    }

    /// Identity of the windows of timeframe `k`, see [`BatchView::ends`].
    pub(crate) fn ends(&self, k: usize) -> &'a [usize] {
        &self.batch.ends(k)[self.samples.clone()]
    }

    /// The number of samples of each run; none where each sample's window is a sequence of its own.
    pub(crate) fn run_lens(&self) -> impl Iterator<Item = usize> + '_ {
        self.runs.iter().map(Range::len)
    }

    /// Dropout of the outputs of layer `layer` in timeframe `k`.
    pub(crate) fn mask(&self, k: usize, layer: usize) -> Option<Mask> {
        self.dropout.map(|dropout| dropout.mask(&self.batch.shape().timeframes[k].name, layer))
    }

    /// The last bars of every timeframe side by side: a row of `to` a sample.
    pub(crate) fn last_bars(&self, to: &mut [f32]) {
        let mut to = to.iter_mut();
        for sample in self.samples.clone() {
            for (k, timeframe) in self.batch.shape().timeframes.iter().enumerate() {
                let window = self.batch.window(k, sample);
                let last = &window[window.len() - timeframe.features..];
                to.by_ref().zip(last).for_each(|(to, &from)| *to = from);
            }
        }
    }

    /// Initial states of the windows of timeframe `k`.
    pub(crate) fn initial(&self, k: usize) -> Initial<'a> {
        self.carried.map_or(Initial::Zero, |carried| carried.initial(k))
    }
}
