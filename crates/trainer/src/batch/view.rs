#![forbid(unsafe_code)]

use crate::graph::GraphBatch;
use crate::model::SampleShape;

/// Windows and targets of B samples to compute with, wherever they lie.
#[derive(Clone, Debug)]
pub struct BatchView<'a> {
    pub(crate) shape: &'a SampleShape,
    /// The windows one after another, [B, T, F] each; or, taken from series, the bars that they
    /// cover.
    pub(crate) features: Vec<&'a [f32]>,
    pub(crate) places: &'a WindowOffsets,
    pub(crate) laid: BatchStorage,
    pub(crate) targets: &'a [f32], // [B, K]
    /// The graphs that the samples are the nodes of, for a model over graphs.
    pub(crate) graphs: Option<&'a GraphBatch<'a>>,
}

/// Layout of the windows of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchStorage {
    /// One after another.
    Windows,
    /// As slices of the bars that they cover.
    Series,
}

/// Starts and indices of windows, [B] a timeframe.
#[derive(Clone, Debug)]
pub(crate) struct WindowOffsets {
    /// Row of each window's first bar.
    pub(crate) starts: Vec<Vec<usize>>,
    /// Row of each window's last bar in its series; the sample's index where samples are not slices
    /// of series.
    pub(crate) ends: Vec<Vec<usize>>,
}

impl WindowOffsets {
    /// Room for those of `capacity` samples.
    pub(crate) fn with_capacity(shape: &SampleShape, capacity: usize) -> Self {
        let lists = || vec![Vec::with_capacity(capacity); shape.timeframes.len()];
        WindowOffsets { starts: lists(), ends: lists() }
    }

    /// The starts of `samples` windows that lie one after another.
    pub(crate) fn lay_windows(&mut self, shape: &SampleShape, samples: usize) {
        for (starts, timeframe) in self.starts.iter_mut().zip(&shape.timeframes) {
            starts.clear();
            starts.extend((0..samples).map(|sample| sample * timeframe.steps));
        }
    }

    /// Windows that are told apart by their sample.
    pub(crate) fn end_at_samples(&mut self, samples: &[usize]) {
        for ends in &mut self.ends {
            ends.clear();
            ends.extend_from_slice(samples);
        }
    }
}

impl<'a> BatchView<'a> {
    /// B.
    pub fn len(&self) -> usize {
        self.targets.len() / self.shape.outputs
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shape of a sample.
    pub fn shape(&self) -> &'a SampleShape {
        self.shape
    }

    /// Windows of the k-th timeframe, [B, T, F].
    ///
    /// # Panics
    /// If the batch was taken from series, which happens inside this crate only.
    pub fn features(&self, k: usize) -> &'a [f32] {
        assert_eq!(self.laid, BatchStorage::Windows, "windows of a batch that holds series");
        &self.features[k][..self.len() * self.shape.window_len(k)]
    }

    /// Targets, [B, K].
    pub fn targets(&self) -> &'a [f32] {
        self.targets
    }

    /// The window of one sample in timeframe `k`, [T, F].
    pub(crate) fn window(&self, k: usize, sample: usize) -> &'a [f32] {
        let start = self.places.starts[k][sample] * self.shape.timeframes[k].features;
        &self.features[k][start..start + self.shape.window_len(k)]
    }

    /// The bars of timeframe `k` that windows are slices of, [.., F].
    pub(crate) fn bars(&self, k: usize) -> &'a [f32] {
        self.features[k]
    }

    /// Row among [`bars`](BatchView::bars) of the first bar of each sample's window.
    pub(crate) fn starts(&self, k: usize) -> &'a [usize] {
        &self.places.starts[k]
    }

    /// What tells each sample's window of timeframe `k` from others: the row of its last bar in the
    /// series, or the sample's index where samples are not slices of series.
    pub(crate) fn ends(&self, k: usize) -> &'a [usize] {
        &self.places.ends[k]
    }

    /// The first infinite or NaN feature, or infinite target: the name of its tensor, as in
    /// `inspect --dump`, and its index there. A target of NaN is one that is not known.
    pub(crate) fn first_non_finite(&self) -> Option<(String, usize)> {
        for (k, timeframe) in self.shape.timeframes.iter().enumerate() {
            for sample in 0..self.len() {
                if let Some(index) = self.window(k, sample).iter().position(|x| !x.is_finite()) {
                    let dot = if timeframe.name.is_empty() { "" } else { "." };
                    let name = format!("features{dot}{}", timeframe.name);
                    return Some((name, sample * self.shape.window_len(k) + index));
                }
            }
        }
        let index = self.targets.iter().position(|x| x.is_infinite())?;
        Some(("targets".to_owned(), index))
    }
}
