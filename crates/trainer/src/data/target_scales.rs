//! Mean and deviation of targets, by which a run scales them.
//!
//! ```text
//! training      the loss compares the model's outputs with (t - mean) / deviation
//! evaluation    outputs become mean + deviation · y, in the unit of the targets
//! checkpoint    head.weight · deviation, head.bias · deviation + mean: the model as its users know
//!               it; the head as trained lies beside the optimizer's moments
//! ```

use std::borrow::Cow;

use megabatch_nn::loss::{Loss, is_known};
use megabatch_nn::model::{Model, NamedTensor, TensorSet};
use serde::{Deserialize, Serialize};

use crate::data::level::Level;
use crate::data::sample_ranges::SampleRanges;
use crate::data::samples::Samples;
use crate::error::{Error, Result};

/// Bytes of targets that are read at once: many rows, so that a compressed chunk is decoded seldom.
const READ_BYTES: usize = 8 << 20;

const HEAD_WEIGHT: &str = "head.weight";
const HEAD_BIAS: &str = "head.bias";

/// Mean and deviation of each target, and of the target of each of a model's outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetScales {
    /// `[K]`.
    targets: Vec<Scale>,
    /// `[K · M]`; of tasks, those of one group after the other.
    outputs: Vec<Scale>,
}

/// Mean and population deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Scale {
    mean: f64,
    deviation: f64,
}

impl Scale {
    /// The scale of values that stay as they are.
    const NONE: Scale = Scale { mean: 0.0, deviation: 1.0 };

    fn scaled(self, value: f32) -> f32 {
        ((f64::from(value) - self.mean) / self.deviation) as f32
    }

    fn in_target_units(self, value: f32) -> f32 {
        (self.mean + self.deviation * f64::from(value)) as f32
    }
}

impl TargetScales {
    /// The scales of the known targets of the samples `indices`, or graphs. Targets that are not
    /// predicted as values keep theirs.
    ///
    /// # Errors
    /// [`Error::Gather`] for targets that cannot be read.
    pub(crate) fn fit(
        samples: &dyn Samples,
        indices: &SampleRanges,
        model: &Model,
        loss: Loss,
    ) -> Result<TargetScales> {
        let width = model.shape().outputs;
        let level = Level::from_readout(model.config().readout);
        let mut sums = vec![ShiftedSums::default(); width];
        let rows_max = (READ_BYTES / (size_of::<f32>() * width)).clamp(1, samples.len().max(1));
        let largest_unit = samples.graphs().map_or(1, |graphs| graphs.largest().0.max(1));
        let mut rows = vec![0.0; rows_max * width];
        for units in indices.chunks((rows_max / largest_unit).max(1)) {
            let rows_to_read: Vec<usize> = match (samples.graphs(), level) {
                (Some(graphs), Level::Node) => units.iter().flat_map(|graph| graphs.nodes(graph)).copied().collect(),
                (Some(graphs), _) => units.iter().filter_map(|graph| graphs.nodes(graph).first()).copied().collect(),
                (None, _) => units.iter().collect(),
            };
            for part in rows_to_read.chunks(rows_max) {
                let targets = &mut rows[..part.len() * width];
                let (first, last) = (part[0], part[part.len() - 1]);
                let failed = |source| Error::Gather { first, last, count: part.len(), source };
                samples.read_targets(part, targets).map_err(failed)?;
                for row in targets.chunks_exact(width) {
                    sums.iter_mut().zip(row).for_each(|(sums, &target)| sums.add(target));
                }
            }
        }
        let mut scales = TargetScales { targets: vec![Scale::NONE; width], outputs: Vec::new() };
        for group in loss.groups(width) {
            if group.loss.predicts_values() {
                let own = group.targets.clone();
                scales.targets[own.clone()].iter_mut().zip(&sums[own]).for_each(|(scale, sums)| *scale = sums.scale());
            }
            let per_target = group.outputs.len() / group.targets.len();
            let outputs =
                scales.targets[group.targets].iter().flat_map(|scale| std::iter::repeat_n(*scale, per_target));
            scales.outputs.extend(outputs.collect::<Vec<_>>());
        }
        Ok(scales)
    }

    /// Scales the targets `[.., K]`. One that is not known stays NaN.
    pub(crate) fn scale(&self, targets: &mut [f32]) {
        for row in targets.chunks_exact_mut(self.targets.len()) {
            row.iter_mut().zip(&self.targets).for_each(|(target, scale)| *target = scale.scaled(*target));
        }
    }

    /// Brings the outputs `[.., K · M]` to the unit of their targets.
    pub(crate) fn to_target_units(&self, outputs: &mut [f32]) {
        for row in outputs.chunks_exact_mut(self.outputs.len()) {
            row.iter_mut().zip(&self.outputs).for_each(|(y, scale)| *y = scale.in_target_units(*y));
        }
    }

    /// True if the tensor `name` of a model depends on the unit of the targets.
    pub(crate) fn is_in_head(name: &str) -> bool {
        name == HEAD_WEIGHT || name == HEAD_BIAS
    }

    /// The tensor of a model that was trained on scaled targets, for outputs in their unit.
    fn fold<'a>(&self, tensor: NamedTensor<'a>) -> NamedTensor<'a> {
        let (name, shape, values) = tensor;
        let width = values.len() / self.outputs.len();
        let fold = |each: fn(Scale, f32) -> f32| -> Vec<f32> {
            let rows = values.chunks_exact(width).zip(&self.outputs);
            rows.flat_map(|(row, scale)| row.iter().map(|value| each(*scale, *value))).collect()
        };
        let folded = match name.as_str() {
            HEAD_WEIGHT => fold(|scale, weight| (scale.deviation * f64::from(weight)) as f32),
            HEAD_BIAS => fold(Scale::in_target_units),
            _ => return (name, shape, values),
        };
        (name, shape, Cow::Owned(folded))
    }
}

/// The tensors of a model whose outputs are in the unit of the targets, from the `parameters` of
/// one that was trained on targets scaled by `scales`, if they were.
pub(crate) fn tensors_in_target_units<'a>(
    parameters: &'a TensorSet,
    scales: Option<&'a TargetScales>,
) -> impl Iterator<Item = NamedTensor<'a>> {
    parameters.named("").map(move |tensor| match scales {
        Some(scales) => scales.fold(tensor),
        None => tensor,
    })
}

/// Sums of the known values of a target less the first of them, so that a large mean takes no
/// digits from the deviation.
#[derive(Clone, Copy, Debug, Default)]
struct ShiftedSums {
    first: Option<f64>,
    count: u64,
    sum: f64,
    squares: f64,
}

impl ShiftedSums {
    fn add(&mut self, target: f32) {
        if is_known(target) {
            let difference = f64::from(target) - *self.first.get_or_insert(f64::from(target));
            self.count += 1;
            self.sum += difference;
            self.squares += difference * difference;
        }
    }

    /// The scale of the values; one that is constant keeps its size.
    fn scale(&self) -> Scale {
        let Some(first) = self.first else { return Scale::NONE };
        let (count, mean) = (self.count as f64, self.sum / self.count as f64);
        let deviation = (self.squares / count - mean * mean).max(0.0).sqrt();
        match (first + mean).is_finite() && deviation.is_finite() {
            true => Scale { mean: first + mean, deviation: if deviation > 0.0 { deviation } else { 1.0 } },
            false => Scale::NONE,
        }
    }
}
