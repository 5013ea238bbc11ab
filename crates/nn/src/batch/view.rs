use crate::graph::GraphBatch;
use crate::model::{Model, SampleShape};

/// Windows and targets of B samples to compute with, wherever they lie.
#[derive(Clone, Debug)]
pub struct BatchView<'a> {
    shape: &'a SampleShape,
    features: Vec<&'a [f32]>,
    offsets: &'a WindowOffsets,
    storage: BatchStorage,
    targets: &'a [f32],         // [B, K]
    weights: Option<&'a [f32]>, // [B]
    graphs: Option<&'a GraphBatch<'a>>,
}

/// Layout of the windows of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchStorage {
    /// One after another.
    Windows,
    /// As slices of the bars that they cover.
    Series,
    /// One after another in a chunk of windows that a device has: the batch has their starts there,
    /// and no features.
    Chunk,
}

/// Starts and indices of windows, `[B]` a timeframe.
#[derive(Clone, Debug)]
pub struct WindowOffsets {
    /// Row of each window's first bar.
    pub starts: Vec<Vec<usize>>,
    /// Row of each window's last bar in its series; the sample's index where samples are not slices
    /// of series.
    pub ends: Vec<Vec<usize>>,
}

impl WindowOffsets {
    /// Buffers for `capacity` samples.
    pub fn with_capacity(shape: &SampleShape, capacity: usize) -> Self {
        let lists = || vec![Vec::with_capacity(capacity); shape.timeframes.len()];
        WindowOffsets { starts: lists(), ends: lists() }
    }

    /// The starts of `samples` windows that lie one after another.
    pub fn lay_windows(&mut self, shape: &SampleShape, samples: usize) {
        for (starts, timeframe) in self.starts.iter_mut().zip(&shape.timeframes) {
            starts.clear();
            starts.extend((0..samples).map(|sample| sample * timeframe.steps));
        }
    }

    /// Windows that are told apart by their sample.
    pub fn end_at_samples(&mut self, samples: &[usize]) {
        for ends in &mut self.ends {
            ends.clear();
            ends.extend_from_slice(samples);
        }
    }
}

impl<'a> BatchView<'a> {
    /// A batch of samples of `shape` with `targets` [B, K]. `features` has a slice a timeframe: the
    /// windows one after another, [B, T, F]; or, taken from series, the bars that they cover,
    /// [.., F]. `offsets` tells where each window begins there.
    ///
    /// # Panics
    /// If there is not a slice of features for each timeframe.
    pub fn new(
        shape: &'a SampleShape,
        features: Vec<&'a [f32]>,
        offsets: &'a WindowOffsets,
        storage: BatchStorage,
        targets: &'a [f32],
    ) -> Self {
        assert_eq!(features.len(), shape.timeframes.len(), "features of each timeframe");
        BatchView { shape, features, offsets, storage, targets, weights: None, graphs: None }
    }

    /// The batch whose samples are the nodes of `graphs`, for a model over graphs.
    pub fn with_graphs(self, graphs: Option<&'a GraphBatch<'a>>) -> Self {
        BatchView { graphs, ..self }
    }

    /// The batch with weights of its samples `[B]`, by which the terms of a loss are multiplied.
    ///
    /// # Panics
    /// If there is not a weight for each sample.
    pub fn with_weights(self, weights: Option<&'a [f32]>) -> Self {
        assert!(weights.is_none_or(|weights| weights.len() == self.len()), "a weight for each sample");
        BatchView { weights, ..self }
    }

    /// The graphs that the samples are the nodes of, for a model over graphs.
    pub fn graphs(&self) -> Option<&'a GraphBatch<'a>> {
        self.graphs
    }

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

    /// Form of the features.
    pub fn storage(&self) -> BatchStorage {
        self.storage
    }

    /// Windows of the k-th timeframe, [B, T, F].
    ///
    /// # Panics
    /// If the batch was taken from series, which happens inside this crate only.
    pub fn features(&self, k: usize) -> &'a [f32] {
        assert_eq!(self.storage, BatchStorage::Windows, "windows of a batch that holds series");
        &self.features[k][..self.len() * self.shape.window_len(k)]
    }

    /// Targets, [B, K].
    pub fn targets(&self) -> &'a [f32] {
        self.targets
    }

    /// Weights of the samples, `[B]`; `None` where all count alike.
    pub fn weights(&self) -> Option<&'a [f32]> {
        self.weights
    }

    /// The window of one sample in timeframe `k`, [T, F].
    pub fn window(&self, k: usize, sample: usize) -> &'a [f32] {
        let start = self.offsets.starts[k][sample] * self.shape.timeframes[k].features;
        &self.features[k][start..start + self.shape.window_len(k)]
    }

    /// The bars of timeframe `k` that windows are slices of, [.., F].
    pub fn bars(&self, k: usize) -> &'a [f32] {
        self.features[k]
    }

    /// Row among [`bars`](BatchView::bars) of the first bar of each sample's window.
    pub fn starts(&self, k: usize) -> &'a [usize] {
        &self.offsets.starts[k]
    }

    /// Identity of each sample's window of timeframe `k`: the row of its last bar in the series, or
    /// the sample's index where samples are not slices of series.
    pub fn ends(&self, k: usize) -> &'a [usize] {
        &self.offsets.ends[k]
    }

    /// Numbers in the outputs of `model` for this batch.
    pub fn outputs_len(&self, model: &Model) -> usize {
        let rows = match self.graphs {
            Some(graphs) => graphs.samples().map(|nodes| model.decoder().rows(nodes.len())).sum(),
            None => self.len(),
        };
        rows * model.outputs()
    }

    /// The first infinite or NaN feature, or infinite target: its tensor's name, `features`,
    /// `features.<TF>` or `targets`, and its index there. A target of NaN is one that is not known.
    pub fn first_non_finite(&self) -> Option<(String, usize)> {
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
