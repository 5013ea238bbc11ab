#![forbid(unsafe_code)]

//! Errors of a model and of baselines, summed over batches.

use std::collections::BTreeMap;
use std::ops::Range;

use super::InstrumentEvaluation;
use crate::loss::Loss;
use crate::metrics::{GraphCorrelations, MetricsSum};

/// What a model, [R, K, M], and the baselines predict for the samples of a batch, or its graphs, and what came, [R, K] each.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) predictions: &'a [f32],
    pub(super) targets: &'a [f32],
    pub(super) baselines: &'a [(&'static str, Vec<f32>)],
}

/// Sums of the errors of a model and of baselines.
pub(super) struct Sums {
    /// K.
    outputs: usize,
    /// What the outputs of the model and of the baselines mean.
    losses: [Loss; 2],
    model: MetricsSum,
    baselines: BTreeMap<&'static str, MetricsSum>,
}

impl Sums {
    pub(super) fn new(loss: Loss, outputs: usize) -> Self {
        // Beside classes baselines are classes too, and beside quantiles they are numbers.
        let of_baselines = if let Loss::Classes(_) = loss { loss } else { Loss::Mse };
        let model = MetricsSum::of_loss(loss, outputs);
        Sums { outputs, losses: [loss, of_baselines], model, baselines: BTreeMap::new() }
    }

    /// Adds some rows of a batch.
    pub(super) fn add(&mut self, batch: Rows<'_>, rows: Range<usize>) {
        self.add_with(batch, rows, MetricsSum::add);
    }

    /// Adds the rows of one graph.
    pub(super) fn add_graph(&mut self, batch: Rows<'_>, rows: Range<usize>) {
        self.add_with(batch, rows, MetricsSum::add_graph);
    }

    fn add_with(&mut self, batch: Rows<'_>, rows: Range<usize>, add: fn(&mut MetricsSum, &[f32], &[f32])) {
        let values = rows.start * self.outputs..rows.end * self.outputs;
        let targets = &batch.targets[values.clone()];
        let [of_model, of_baselines] = self.losses.map(|loss| {
            let per_target = loss.outputs_per_target();
            values.start * per_target..values.end * per_target
        });
        add(&mut self.model, &batch.predictions[of_model], targets);
        for (name, predictions) in batch.baselines {
            let new = || MetricsSum::of_loss(self.losses[1], self.outputs);
            let sum = self.baselines.entry(name).or_insert_with(new);
            add(sum, &predictions[of_baselines.clone()], targets);
        }
    }

    /// The model's correlations within each graph.
    pub(super) fn by_graph(&self) -> Vec<GraphCorrelations> {
        self.model.by_graph()
    }

    pub(super) fn finish(&self) -> InstrumentEvaluation {
        InstrumentEvaluation {
            samples: self.model.samples(),
            metrics: self.model.finish(),
            baselines: self.baselines.iter().map(|(&name, sum)| (name, sum.finish())).collect(),
        }
    }
}
