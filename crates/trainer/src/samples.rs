#![forbid(unsafe_code)]

//! The port through which training reads its data.

use std::error::Error as StdError;

use megabatch_gpu_core::{Buffer, Scope};

use crate::error::{Error, Result};
use crate::model::SampleShape;

/// A source of samples, addressed by index. Reading happens on another thread than training, hence `Sync`.
pub trait Samples: Sync {
    /// What each sample is made of.
    fn shape(&self) -> &SampleShape;

    /// Number of samples.
    fn len(&self) -> usize;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the samples `samples`, in this order, over all of `batch`, which has this source's shape and room for exactly
    /// these samples. Indices may repeat.
    ///
    /// # Errors
    /// Whatever keeps the source from reading; it names its file and place.
    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>>;
}

/// Windows and targets of B samples, row-major in single precision.
#[derive(Debug)]
pub struct Batch {
    shape: SampleShape,
    samples: usize,
    features: Vec<Buffer<f32>>, // [B, T, F] each
    targets: Buffer<f32>,       // [B, K]
}

impl Batch {
    /// Room for up to `capacity` samples, booked on `scope`; it starts with none.
    ///
    /// # Errors
    /// [`Error::Memory`] when the device has no room.
    pub fn new(scope: &Scope, shape: &SampleShape, capacity: usize) -> Result<Self> {
        let window = |k: usize| Ok(Buffer::zeros(scope, capacity * shape.window_len(k))?);
        Ok(Batch {
            samples: 0,
            features: (0..shape.timeframes.len()).map(window).collect::<Result<_>>()?,
            targets: Buffer::zeros(scope, capacity * shape.outputs)?,
            shape: shape.clone(),
        })
    }

    /// Sets B. What the batch held before is of no meaning afterwards.
    ///
    /// # Panics
    /// If there is no room for so many samples.
    pub fn resize(&mut self, samples: usize) {
        let capacity = self.targets.len() / self.shape.outputs;
        assert!(samples <= capacity, "{samples} samples in a batch for {capacity}");
        self.samples = samples;
    }

    /// B.
    pub fn len(&self) -> usize {
        self.samples
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// What each sample is made of.
    pub fn shape(&self) -> &SampleShape {
        &self.shape
    }

    /// Windows of the k-th timeframe, [B, T, F].
    pub fn features(&self, k: usize) -> &[f32] {
        &self.features[k].as_slice()[..self.samples * self.shape.window_len(k)]
    }

    /// Windows of the k-th timeframe for writing, [B, T, F].
    pub fn features_mut(&mut self, k: usize) -> &mut [f32] {
        &mut self.features[k].as_mut_slice()[..self.samples * self.shape.window_len(k)]
    }

    /// Targets, [B, K].
    pub fn targets(&self) -> &[f32] {
        &self.targets.as_slice()[..self.samples * self.shape.outputs]
    }

    /// Targets for writing, [B, K].
    pub fn targets_mut(&mut self) -> &mut [f32] {
        &mut self.targets.as_mut_slice()[..self.samples * self.shape.outputs]
    }

    /// All windows, [B, T, F] a timeframe, and the targets [B, K] for writing at once.
    pub fn slices_mut(&mut self) -> (Vec<&mut [f32]>, &mut [f32]) {
        let (samples, shape) = (self.samples, &self.shape);
        let windows = self.features.iter_mut().enumerate();
        let windows = windows.map(|(k, buffer)| &mut buffer.as_mut_slice()[..samples * shape.window_len(k)]);
        (windows.collect(), &mut self.targets.as_mut_slice()[..samples * shape.outputs])
    }

    /// The first infinite or NaN number: the name of its tensor, as in `inspect --dump`, and its index there.
    pub(crate) fn first_non_finite(&self) -> Option<(String, usize)> {
        let named = |(k, timeframe): (usize, &crate::Timeframe)| match timeframe.name.as_str() {
            "" => ("features".to_owned(), self.features(k)),
            name => (format!("features.{name}"), self.features(k)),
        };
        let features = self.shape.timeframes.iter().enumerate().map(named);
        let mut all = features.chain([("targets".to_owned(), self.targets())]);
        all.find_map(|(name, values)| Some((name, values.iter().position(|x| !x.is_finite())?)))
    }
}

impl SampleShape {
    /// T·F of the k-th timeframe.
    pub(crate) fn window_len(&self, k: usize) -> usize {
        self.timeframes[k].steps * self.timeframes[k].features
    }
}

/// Samples held in memory as windows.
#[derive(Clone, Debug)]
pub struct InMemory {
    shape: SampleShape,
    features: Vec<Vec<f32>>,
    targets: Vec<f32>,
}

impl InMemory {
    /// Samples from windows [N, T, F] of each timeframe and targets [N, K].
    ///
    /// # Errors
    /// [`Error::SamplesShape`] when the lengths do not fit the shape and one N.
    pub fn new(shape: SampleShape, features: Vec<Vec<f32>>, targets: Vec<f32>) -> Result<Self> {
        let samples = targets.len() / shape.outputs.max(1);
        let fits = targets.len() == samples * shape.outputs
            && features.len() == shape.timeframes.len()
            && features.iter().enumerate().all(|(k, windows)| windows.len() == samples * shape.window_len(k));
        if !fits {
            let lengths: Vec<_> = features.iter().map(Vec::len).collect();
            let samples = format!("{lengths:?} feature values and {} target values", targets.len());
            return Err(Error::SamplesShape { model: shape.to_string(), samples });
        }
        Ok(InMemory { shape, features, targets })
    }
}

impl Samples for InMemory {
    fn shape(&self) -> &SampleShape {
        &self.shape
    }

    fn len(&self) -> usize {
        self.targets.len() / self.shape.outputs
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        for (k, windows) in self.features.iter().enumerate() {
            copy_rows(windows, self.shape.window_len(k), samples, batch.features_mut(k));
        }
        copy_rows(&self.targets, self.shape.outputs, samples, batch.targets_mut());
        Ok(())
    }
}

fn copy_rows(from: &[f32], width: usize, rows: &[usize], to: &mut [f32]) {
    for (&row, to) in rows.iter().zip(to.chunks_exact_mut(width)) {
        to.copy_from_slice(&from[row * width..][..width]);
    }
}
