//! Attention weights of a model in windows and among timeframes, averaged over samples, for the
//! report.

use std::path::Path;

use megabatch_nn::model::{Fusion, Pooling};
use megabatch_trainer::{Error, Predictor, SampleRanges, Samples as _, Selection};

use crate::adapters::samples::SourceSamples;
use crate::error::Result;
use crate::evaluate::Part;
use crate::setup::TrainingSetup;

/// Mean weights of attention over some samples.
pub(crate) struct Attention {
    pub(crate) part: Part,
    /// Samples that the weights are means over.
    pub(crate) samples: usize,
    /// Attention of pooling by timeframe; empty without attention pooling.
    pub(crate) timeframes: Vec<Attended>,
    /// Attention of fusion; `None` without attention fusion.
    pub(crate) fusion: Option<Fused>,
}

/// Attention in the windows of a timeframe.
pub(crate) struct Attended {
    pub(crate) name: String,
    /// `[heads][T]`, from the first bar of the window to the last; each head's weights sum to one.
    pub(crate) heads: Vec<Vec<f64>>,
}

/// Attention among the timeframes.
pub(crate) struct Fused {
    pub(crate) names: Vec<String>,
    /// [n, n], averaged over heads: weight of the column's timeframe for the row's; a row sums to
    /// one.
    pub(crate) weights: Vec<Vec<f64>>,
}

/// Most samples that weights are averaged over.
const SAMPLES_MAX: usize = 1_000;

impl Attention {
    /// Attention of the model with `weights` on `part` of `samples`, the data of `setup`; `None`
    /// for a model without attention.
    pub(crate) fn compute(
        setup: &TrainingSetup,
        samples: &SourceSamples,
        part: Part,
        weights: &Path,
    ) -> Result<Option<Self>> {
        let model = setup.training.model;
        if model.pooling == Pooling::Last && model.fusion == Fusion::Concat {
            return Ok(None);
        }
        let whole_part = part.indices(&setup.split, samples.len());
        let indices = setup.training.evaluated(&whole_part);
        let chosen: SampleRanges = indices.iter().step_by(indices.len().div_ceil(SAMPLES_MAX).max(1)).collect();
        let mut predictor = setup.predictor(weights, &whole_part)?;
        let selection = Selection { samples, indices: &chosen };
        let timeframes = match model.pooling {
            Pooling::Last => Vec::new(),
            Pooling::Attention { heads } => pooled(&mut predictor, selection, heads)?,
        };
        let fusion = match model.fusion {
            Fusion::Concat => None,
            Fusion::Attention { heads, .. } => Some(fused(&mut predictor, selection, heads)?),
        };
        Ok(Some(Attention { part, samples: chosen.len(), timeframes, fusion }))
    }
}

fn pooled(predictor: &mut Predictor, selection: Selection<'_>, heads: usize) -> Result<Vec<Attended>> {
    let shape = selection.samples.shape();
    let row = shape.timeframes.iter().map(|timeframe| heads * timeframe.steps).sum();
    let mut sums = vec![0.0; row];
    predictor.pooling_weights(selection, |_, weights| add(&mut sums, weights))?;
    let mut means = sums.into_iter().map(|sum| sum / selection.indices.len() as f64);
    let attended = |timeframe: &megabatch_nn::model::Timeframe| Attended {
        name: timeframe.name.clone(),
        heads: (0..heads).map(|_| means.by_ref().take(timeframe.steps).collect()).collect(),
    };
    Ok(shape.timeframes.iter().map(attended).collect())
}

fn fused(predictor: &mut Predictor, selection: Selection<'_>, heads: usize) -> Result<Fused> {
    let names: Vec<String> =
        selection.samples.shape().timeframes.iter().map(|timeframe| timeframe.name.clone()).collect();
    let count = names.len();
    let mut sums = vec![0.0; heads * count * count];
    predictor.fusion_weights(selection, |_, weights| add(&mut sums, weights))?;
    let share = 1.0 / (heads * selection.indices.len()) as f64;
    let weight = |k: usize| sums.iter().skip(k).step_by(count * count).sum::<f64>() * share;
    let weights = (0..count).map(|row| (0..count).map(|column| weight(row * count + column)).collect()).collect();
    Ok(Fused { names, weights })
}

/// Adds the weights of a batch, a row a sample.
fn add(sums: &mut [f64], weights: &[f32]) -> Result<(), Error> {
    for row in weights.chunks_exact(sums.len()) {
        sums.iter_mut().zip(row).for_each(|(sum, &weight)| *sum += f64::from(weight));
    }
    Ok(())
}
