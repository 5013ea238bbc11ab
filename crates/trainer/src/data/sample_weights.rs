//! Weights of samples in the loss of training.
//!
//! ```text
//! wᵢ    the weight of sample i over the mean weight of the training samples
//! loss  Σ wᵢ · Σₖ L(yᵢₖ, tᵢₖ) / number of known targets of the step
//! ```
//!
//! The divisor of a step does not depend on its weights: the gradients of the steps of an epoch
//! have the gradient of the weighted loss of all training samples as their mean.

use crate::config::{Config, SampleWeighting};
use crate::data::sample_ranges::SampleRanges;
use crate::data::samples::{Batch, Samples};
use crate::data::target_scales::TargetScales;
use crate::error::{Error, Result};

impl Config {
    /// True if the weights of `samples` have a part in the loss of training.
    pub fn is_weighted(&self, samples: &dyn Samples) -> bool {
        self.sample_weights == SampleWeighting::Auto && samples.weights().is_some()
    }

    /// Summary of the weights of the samples `train` of `samples`, where weights have a part in the
    /// loss.
    ///
    /// # Errors
    /// [`Error::Weight`] for a weight that is none, and [`Error::NoWeight`] where all are 0.
    pub fn training_weights(&self, samples: &dyn Samples, train: &SampleRanges) -> Result<Option<TrainingWeights>> {
        let Some(weights) = samples.weights().filter(|_| self.is_weighted(samples)) else { return Ok(None) };
        let (mut sum, mut zeros) = (0.0, 0);
        for sample in train.iter() {
            let weight = weights[sample];
            if !(weight >= 0.0 && weight.is_finite()) {
                return Err(Error::Weight { sample, weight });
            }
            sum += f64::from(weight);
            zeros += usize::from(weight == 0.0);
        }
        match sum > 0.0 {
            true => Ok(Some(TrainingWeights { mean: sum / train.len() as f64, zeros })),
            false => Err(Error::NoWeight { samples: train.len() }),
        }
    }
}

/// Summary of the weights of training samples.
#[derive(Clone, Copy, Debug)]
pub struct TrainingWeights {
    /// Their mean, above 0.
    pub mean: f64,
    /// Number of samples whose weight is 0.
    pub zeros: usize,
}

/// Weights of the samples of a source, and their mean in training.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleWeights<'a> {
    /// `[N]`.
    weights: &'a [f32],
    mean: f64,
}

/// Scales of targets and weights of samples, by which batches of training differ from others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossInputs<'a> {
    pub(crate) target_scales: Option<&'a TargetScales>,
    pub(crate) weights: Option<SampleWeights<'a>>,
}

impl<'a> SampleWeights<'a> {
    /// The weights of `samples` in a run with `config` that trains on `train`; `None` where they
    /// have no part in its loss.
    ///
    /// # Errors
    /// As [`Config::training_weights`].
    pub(crate) fn new(config: &Config, samples: &'a dyn Samples, train: &SampleRanges) -> Result<Option<Self>> {
        let found = config.training_weights(samples, train)?;
        Ok(found.zip(samples.weights()).map(|(TrainingWeights { mean, .. }, weights)| SampleWeights { weights, mean }))
    }

    /// Adds the weights of `samples` to `to`.
    pub(crate) fn gather(&self, samples: &[usize], to: &mut Vec<f32>) {
        to.extend(samples.iter().map(|&sample| (f64::from(self.weights[sample]) / self.mean) as f32));
    }
}

impl LossInputs<'_> {
    /// Scales the targets of `batch` and gives it the weights of its samples, `samples`.
    pub(crate) fn apply(&self, samples: &[usize], batch: &mut Batch) {
        if let Some(scales) = self.target_scales {
            scales.scale(batch.targets_mut());
        }
        if let Some(weights) = self.weights {
            weights.gather(samples, &mut batch.weights);
        }
    }
}
