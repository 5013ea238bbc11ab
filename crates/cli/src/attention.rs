//! Where in its windows a model looks: the weights of attention pooling, averaged over samples, for the report.

use std::path::Path;

use anyhow::Result;
use megabatch_trainer::{Pooling, Samples as _, Selection};

use crate::adapt::samples::SourceSamples;
use crate::evaluation::Part;
use crate::job::Job;

/// Mean weights of attention pooling over some samples.
pub(crate) struct Attention {
    pub(crate) part: Part,
    /// Samples that the weights are means over.
    pub(crate) samples: usize,
    pub(crate) timeframes: Vec<Attended>,
}

/// Those in the windows of a timeframe.
pub(crate) struct Attended {
    pub(crate) name: String,
    /// `[heads][T]`, from the first bar of the window to the last; each head's weights sum to one.
    pub(crate) heads: Vec<Vec<f64>>,
}

/// A mean over so many samples is as good as over all.
const SAMPLES_MAX: usize = 1_000;

impl Attention {
    /// Where the model with `weights` looks in `part` of `job`'s data, which are `samples`; `None` for a model that does not pool by attention.
    pub(crate) fn of(job: &Job, samples: &SourceSamples, (part, weights): (Part, &Path)) -> Result<Option<Self>> {
        let Pooling::Attention { heads } = job.training.model.pooling else { return Ok(None) };
        let indices = part.indices(&job.split, samples.len());
        let chosen: Vec<usize> = indices.iter().copied().step_by(indices.len().div_ceil(SAMPLES_MAX).max(1)).collect();
        let mut attended: Vec<Attended> = samples
            .shape()
            .timeframes
            .iter()
            .map(|timeframe| Attended { name: timeframe.name.clone(), heads: vec![vec![0.0; timeframe.steps]; heads] })
            .collect();
        let selection = Selection { samples, indices: &chosen };
        let row: usize = attended.iter().map(|attended| heads * attended.heads[0].len()).sum();
        job.predictor(weights)?.pooling_weights(selection, |_, weights| {
            weights.chunks_exact(row).for_each(|row| add(&mut attended, row));
            Ok::<(), megabatch_trainer::Error>(())
        })?;
        for weight in attended.iter_mut().flat_map(|attended| &mut attended.heads).flatten() {
            *weight /= chosen.len() as f64;
        }
        Ok(Some(Attention { part, samples: chosen.len(), timeframes: attended }))
    }
}

/// Adds the weights of one sample: `[heads, T]` of one timeframe after another.
fn add(timeframes: &mut [Attended], row: &[f32]) {
    let sums = timeframes.iter_mut().flat_map(|attended| &mut attended.heads).flatten();
    sums.zip(row).for_each(|(sum, &weight)| *sum += f64::from(weight));
}
