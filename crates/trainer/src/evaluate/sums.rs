//! Errors of a model and of baselines, summed over batches.

use std::collections::BTreeMap;
use std::ops::Range;

use megabatch_nn::loss::{Group, Loss, known_targets};

use super::evaluation::{InstrumentEvaluation, TaskEvaluation};
use super::standard_error::{RunSums, StandardErrors, standard_errors};
use crate::data::evenly_spaced::Choice;
use crate::evaluate::metrics::{GraphCorrelations, Metrics, MetricsSum};

/// Predictions of a model and the baselines for a batch, and its targets, [R, K]. The model's
/// outputs are those of one group of targets after the other, [K, M] each.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) predictions: &'a [f32],
    pub(super) targets: &'a [f32],
    /// Baselines of each group, with the group's targets alone; none without baselines.
    pub(super) baselines: &'a [Vec<(&'static str, Vec<f32>)>],
}

/// The mean loss, group by group.
pub(super) struct MeanLoss {
    /// Sum, terms and weight of each.
    groups: Vec<(f64, usize, f64)>,
}

impl MeanLoss {
    pub(super) fn new(groups: &[Group]) -> Self {
        MeanLoss { groups: groups.iter().map(|group| (0.0, 0, group.weight)).collect() }
    }

    /// Adds a batch's outputs and targets term by term: the result does not depend on batches.
    pub(super) fn add(&mut self, groups: &[Group], outputs: &[f32], targets: &[f32]) {
        let last = groups.last().expect("there is a group");
        let (width, outputs_width) = (last.targets.end, last.outputs.end);
        for ((sum, terms, _), Group { targets: own, outputs: places, loss, .. }) in self.groups.iter_mut().zip(groups) {
            for (y, targets) in outputs.chunks_exact(outputs_width).zip(targets.chunks_exact(width)) {
                *sum = loss.add_to(*sum, &y[places.clone()], &targets[own.clone()]);
                *terms += loss.terms(&targets[own.clone()]);
            }
        }
    }

    /// Adds the sum and the terms of a graph.
    pub(super) fn add_graph(&mut self, graph_sum: f64, graph_terms: usize) {
        let (sum, terms, _) = &mut self.groups[0];
        (*sum, *terms) = (*sum + graph_sum, *terms + graph_terms);
    }

    fn group_mean(&self, k: usize) -> f64 {
        let (sum, terms, _) = self.groups[k];
        sum / terms.max(1) as f64
    }

    pub(super) fn finish(&self) -> f64 {
        let weighted = |(k, (_, _, weight)): (usize, &(f64, usize, f64))| weight * self.group_mean(k);
        self.groups.iter().enumerate().map(weighted).sum()
    }
}

/// Sums of the errors of a model and of baselines, group by group of targets.
pub(super) struct GroupSums {
    /// Samples of which some target is known.
    samples: usize,
    groups: Vec<(Group, Sums)>,
}

impl GroupSums {
    pub(super) fn new(groups: &[Group]) -> Self {
        let sums = |group: &Group| (group.clone(), Sums::new(group.loss, group.targets.len()));
        GroupSums { samples: 0, groups: groups.iter().map(sums).collect() }
    }

    /// Tells how the targets of graphs in order of time overlap, see
    /// [`MetricsSum::finish`].
    pub(super) fn set_lags(&mut self, lags: &[usize]) {
        self.groups[0].1.lags = lags.to_vec();
    }

    /// Adds some rows of a batch.
    pub(super) fn add(&mut self, batch: Rows<'_>, rows: Range<usize>) {
        let (last, _) = self.groups.last().expect("there is a group");
        let (width, outputs_width) = (last.targets.end, last.outputs.end);
        let targets = &batch.targets[rows.start * width..rows.end * width];
        self.samples += targets.chunks_exact(width).filter(|targets| known_targets(targets) > 0).count();
        if let [(_, sums)] = self.groups.as_mut_slice() {
            return sums.add(GroupRows::new(batch, 0), rows, MetricsSum::add);
        }
        let predictions = &batch.predictions[rows.start * outputs_width..rows.end * outputs_width];
        for (k, (group, sums)) in self.groups.iter_mut().enumerate() {
            let own = columns(predictions, outputs_width, &group.outputs);
            let targets = columns(targets, width, &group.targets);
            let all = GroupRows::new(batch, k).baselines;
            let baselines: Vec<_> = all
                .iter()
                .map(|(name, values)| {
                    let each = values.len() / (batch.targets.len() / width);
                    (*name, values[rows.start * each..rows.end * each].to_vec())
                })
                .collect();
            let group_rows = GroupRows { predictions: &own, targets: &targets, baselines: &baselines };
            sums.add(group_rows, 0..rows.len(), MetricsSum::add);
        }
    }

    /// Adds the rows of one graph, whose targets are one group.
    pub(super) fn add_graph(&mut self, batch: Rows<'_>, rows: Range<usize>) {
        self.groups[0].1.add(GroupRows::new(batch, 0), rows, MetricsSum::add_graph);
    }

    /// Adds the correlations over rows of one time, whose errors were added already and whose
    /// targets are one group.
    pub(super) fn correlate(&mut self, batch: Rows<'_>, rows: Range<usize>) {
        self.groups[0].1.add(GroupRows::new(batch, 0), rows, MetricsSum::correlate);
    }

    /// Ends a run of an estimate.
    pub(super) fn end_run(&mut self) {
        self.groups.iter_mut().for_each(|(_, sums)| sums.end_run());
    }

    /// Standard errors of a single group; several groups have their own, see [`GroupSums::tasks`].
    pub(super) fn standard_errors(&self, choice: Choice) -> Option<StandardErrors> {
        match self.groups.as_slice() {
            [(_, sums)] => sums.standard_errors(choice),
            _ => None,
        }
    }

    /// The model's correlations within each graph, whose targets are one group.
    pub(super) fn by_graph(&self) -> Vec<GraphCorrelations> {
        self.groups[0].1.model.by_graph()
    }

    /// All groups side by side.
    pub(super) fn finish(&self) -> InstrumentEvaluation {
        if let [(_, sums)] = self.groups.as_slice() {
            return sums.finish();
        }
        let parts: Vec<_> = self.groups.iter().map(|(_, sums)| sums.finish()).collect();
        let model = parts.iter().map(|part| (part.samples, Some(part.metrics.clone())));
        let names =
            parts.iter().flat_map(|part| part.baselines.keys().copied()).collect::<std::collections::BTreeSet<_>>();
        let baseline = |name: &'static str| {
            let metrics = parts.iter().map(|part| (part.samples, part.baselines.get(name).cloned()));
            (name, self.side_by_side(metrics))
        };
        InstrumentEvaluation {
            samples: self.samples,
            metrics: self.side_by_side(model),
            baselines: names.into_iter().map(baseline).collect(),
        }
    }

    /// Lists of errors one after another, with a gap where a group has none.
    fn side_by_side(&self, parts: impl Iterator<Item = (usize, Option<Metrics>)>) -> Metrics {
        let mut all = Metrics::default();
        let mut known = Vec::new();
        for ((group, _), (samples, part)) in self.groups.iter().zip(parts) {
            let len = group.targets.len();
            let gap = || Metrics {
                rmse: vec![f64::NAN; len],
                mae: vec![f64::NAN; len],
                direction_accuracy: vec![None; len],
                ..Metrics::default()
            };
            let part = part.unwrap_or_else(gap);
            known.extend(part.known_targets.unwrap_or_else(|| vec![samples; len]));
            all.rmse.extend(part.rmse);
            all.mae.extend(part.mae);
            all.direction_accuracy.extend(part.direction_accuracy);
        }
        all.known_targets = known.iter().any(|&count| count < self.samples).then_some(known);
        all
    }

    /// Each group by itself.
    pub(super) fn tasks(&self, mean: &MeanLoss, choice: Option<Choice>) -> Vec<TaskEvaluation> {
        let evaluation = |(k, (group, sums)): (usize, &(Group, Sums))| {
            let InstrumentEvaluation { metrics, baselines, .. } = sums.finish();
            TaskEvaluation {
                targets: [group.targets.start, group.targets.end],
                objective: group.loss.name(),
                weight: group.weight,
                loss: mean.group_mean(k),
                metrics,
                baselines,
                standard_errors: choice.and_then(|choice| sums.standard_errors(choice)),
            }
        };
        self.groups.iter().enumerate().map(evaluation).collect()
    }
}

/// The values of `rows` [.., width] in `places`.
fn columns(rows: &[f32], width: usize, places: &Range<usize>) -> Vec<f32> {
    rows.chunks_exact(width).flat_map(|row| &row[places.clone()]).copied().collect()
}

/// [`Rows`] of one group: [R, K, M] for the model, [R, K] for the others.
#[derive(Clone, Copy)]
struct GroupRows<'a> {
    predictions: &'a [f32],
    targets: &'a [f32],
    baselines: &'a [(&'static str, Vec<f32>)],
}

impl<'a> GroupRows<'a> {
    /// Rows of the k-th group; all of a batch whose targets are one group.
    fn new(Rows { predictions, targets, baselines }: Rows<'a>, k: usize) -> Self {
        GroupRows { predictions, targets, baselines: baselines.get(k).map_or(&[], Vec::as_slice) }
    }
}

/// Sums of the errors of a model and of baselines.
struct Sums {
    /// K.
    outputs: usize,
    /// Losses of the model's and the baselines' outputs.
    losses: [Loss; 2],
    /// Lags of correlations within graphs.
    lags: Vec<usize>,
    model: MetricsSum,
    baselines: BTreeMap<&'static str, MetricsSum>,
    /// Sums at the end of each run of an estimate.
    model_runs: RunSums,
    baseline_runs: BTreeMap<&'static str, RunSums>,
}

impl Sums {
    fn new(loss: Loss, outputs: usize) -> Self {
        // Beside classes baselines are classes too, and beside quantiles they are numbers.
        let baseline_loss = if let Loss::Classes(_) | Loss::CrossEntropy = loss { loss } else { Loss::Mse };
        let model = MetricsSum::for_loss(loss, outputs);
        Sums {
            outputs,
            losses: [loss, baseline_loss],
            lags: Vec::new(),
            model,
            baselines: BTreeMap::new(),
            model_runs: RunSums::default(),
            baseline_runs: BTreeMap::new(),
        }
    }

    /// Adds some rows of a batch.
    fn add(&mut self, batch: GroupRows<'_>, rows: Range<usize>, add: fn(&mut MetricsSum, &[f32], &[f32])) {
        let values = rows.start * self.outputs..rows.end * self.outputs;
        let targets = &batch.targets[values.clone()];
        let [model_values, baseline_values] = self.losses.map(|loss| {
            let per_target = loss.outputs_per_target();
            values.start * per_target..values.end * per_target
        });
        add(&mut self.model, &batch.predictions[model_values], targets);
        for (name, predictions) in batch.baselines {
            let new = || MetricsSum::for_loss(self.losses[1], self.outputs);
            let sum = self.baselines.entry(name).or_insert_with(new);
            add(sum, &predictions[baseline_values.clone()], targets);
        }
    }

    /// Ends a run of an estimate.
    fn end_run(&mut self) {
        self.model_runs.end_run(&self.model);
        for (name, sum) in &self.baselines {
            self.baseline_runs.entry(name).or_default().end_run(sum);
        }
    }

    fn standard_errors(&self, choice: Choice) -> Option<StandardErrors> {
        standard_errors(choice, &self.model_runs, &self.baseline_runs)
    }

    fn finish(&self) -> InstrumentEvaluation {
        let metrics = |sum: &MetricsSum| sum.finish(&self.lags);
        InstrumentEvaluation {
            samples: self.model.samples(),
            metrics: metrics(&self.model),
            baselines: self.baselines.iter().map(|(&name, sum)| (name, metrics(sum))).collect(),
        }
    }
}
