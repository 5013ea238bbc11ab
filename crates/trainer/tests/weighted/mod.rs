//! Samples with weights, for the tests of the trainer, of GPUs and of graphs.

use std::error::Error as StdError;

use megabatch_nn::batch::SeriesView;
use megabatch_nn::graph::Graphs;
use megabatch_nn::model::SampleShape;
use megabatch_trainer::{Batch, PrefetchingSource, Samples, StreamedSeries};

/// The samples of another source, with weights.
pub(crate) struct Weighted<'a> {
    pub(crate) inner: &'a dyn Samples,
    pub(crate) weights: Vec<f32>,
}

impl<'a> Weighted<'a> {
    /// Weights 1, 0, 3, ½, by turns.
    pub(crate) fn by_turns(inner: &'a dyn Samples) -> Self {
        Weighted { inner, weights: (0..inner.len()).map(|sample| [1.0, 0.0, 3.0, 0.5][sample % 4]).collect() }
    }
}

impl Samples for Weighted<'_> {
    fn shape(&self) -> &SampleShape {
        self.inner.shape()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.inner.gather(samples, batch)
    }

    fn series(&self) -> Option<SeriesView<'_>> {
        self.inner.series()
    }

    fn streamed_series(&self) -> Option<&dyn StreamedSeries> {
        self.inner.streamed_series()
    }

    fn targets(&self) -> Option<&[f32]> {
        self.inner.targets()
    }

    fn weights(&self) -> Option<&[f32]> {
        Some(&self.weights)
    }

    fn read_targets(&self, samples: &[usize], targets: &mut [f32]) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.inner.read_targets(samples, targets)
    }

    fn load_ahead(&self) -> Option<&dyn PrefetchingSource> {
        self.inner.load_ahead()
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        self.inner.graphs()
    }
}
