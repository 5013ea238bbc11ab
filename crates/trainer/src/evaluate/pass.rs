//! One pass over samples: the outputs of a model beside the targets and the baselines.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use megabatch_nn::batch::BatchView;
use megabatch_nn::graph::LabelSpan;
use megabatch_nn::loss::{Group, Loss, is_labelled, known_targets, labelled_rows};
use megabatch_nn::model::{Model, ModelConfig};

use crate::data::evenly_spaced::Choice;
use crate::data::level::{Level, check_readout_of};
use crate::data::sample_ranges::Remaining;
use crate::data::target_scales::TargetScales;
use crate::error::{Error, Result};
use crate::evaluate::baseline::Baselines;
use crate::evaluate::by_time::ByTime;
use crate::evaluate::evaluation::{Evaluation, InstrumentEvaluation};
use crate::evaluate::metrics::{GraphCorrelations, overlap};
use crate::evaluate::predictions::Predictions;
use crate::evaluate::selection::{EvaluationProgress, Selection, SharedProgress};
use crate::evaluate::sums::{GroupSums, MeanLoss, Rows};

/// Targets and baselines of a batch, known before its outputs.
pub(super) struct Expected {
    /// Index of the sample, or the graph, of each row.
    pub(super) indices: Vec<usize>,
    /// `[R, K]`.
    pub(super) targets: Vec<f32>,
    /// Predictions of each, for each group of targets.
    pub(super) baselines: Vec<Vec<(&'static str, Vec<f32>)>>,
    /// The rows of each graph; empty for samples that stand alone.
    pub(super) graphs: Vec<Range<usize>>,
    /// Samples, or graphs, up to the end of the batch.
    pub(super) done: usize,
}

/// Collects what the outputs of each batch are compared with.
pub(super) struct Observed<'a> {
    selection: Selection<'a>,
    loss: Loss,
    level: Level,
    outputs: usize,
    unseen: Remaining<'a>,
}

impl<'a> Observed<'a> {
    pub(super) fn new(model: &Model, selection: Selection<'a>, loss: Loss) -> Self {
        let (level, outputs) = (Level::from_readout(model.config().readout), model.shape().outputs);
        Observed { selection, loss, level, outputs, unseen: selection.indices.remaining() }
    }

    pub(super) fn see(&mut self, batch: &BatchView<'_>, baselines: Option<&Baselines>) -> Result<Expected> {
        self.loss.check_rows(batch.targets(), self.outputs)?;
        let indices = self.level.indices(self.selection.samples, batch, &mut self.unseen);
        Ok(Expected {
            indices,
            done: self.unseen.taken(),
            targets: self.level.targets(batch).into_owned(),
            baselines: baselines
                .map_or(Vec::new(), |baselines| baselines.predict_groups(batch, &self.loss.groups(self.outputs))),
            graphs: self.level.graphs(batch),
        })
    }
}

/// Sums of an evaluation, batch after batch.
pub(super) struct EvaluationSums<'a> {
    selection: Selection<'a>,
    loss: Loss,
    level: Level,
    outputs: usize,
    groups: Vec<Group>,
    mean: MeanLoss,
    all: GroupSums,
    by_instrument: BTreeMap<&'a str, GroupSums>,
    by_time: ByTime,
    /// The choice of the selection from its part; `None` if it is the whole part.
    choice: Option<Choice>,
    /// Samples, or graphs, seen.
    done: usize,
    target_scales: Option<&'a TargetScales>,
}

impl<'a> EvaluationSums<'a> {
    /// Sums for a model of targets that were scaled by `target_scales`, if they were: its loss is
    /// that of scaled targets, and its errors are in their unit.
    pub(super) fn new(
        model: &Model,
        selection: Selection<'a>,
        loss: Loss,
        target_scales: Option<&'a TargetScales>,
    ) -> Self {
        let (level, outputs) = (Level::from_readout(model.config().readout), model.shape().outputs);
        let groups = loss.groups(outputs);
        let mut all = GroupSums::new(&groups);
        all.set_lags(&lags(selection, outputs));
        EvaluationSums {
            mean: MeanLoss::new(&groups),
            all,
            by_instrument: BTreeMap::new(),
            by_time: ByTime::default(),
            choice: None,
            done: 0,
            selection,
            loss,
            level,
            outputs,
            groups,
            target_scales,
        }
    }

    /// Samples, or graphs, until the run of an estimate ends.
    fn left_in_run(&self) -> usize {
        self.choice.map_or(usize::MAX, |choice| choice.run_length - self.done % choice.run_length)
    }

    /// Counts `count` samples, or graphs, which all lie within the run.
    fn pass(&mut self, count: usize) {
        let left = self.left_in_run();
        self.done += count;
        if let Some(choice) = self.choice
            && (count == left || self.done == choice.taken)
        {
            self.all.end_run();
        }
    }

    /// Adds a batch's outputs, as the model computes them.
    pub(super) fn add(&mut self, expected: &Expected, model_outputs: &[f32]) {
        let Expected { indices, targets, baselines, graphs, .. } = expected;
        let (loss, outputs) = (self.loss, self.outputs);
        let per_target = loss.outputs_per_target();
        let (mut predictions, mut loss_targets) = (Cow::Borrowed(model_outputs), Cow::Borrowed(&targets[..]));
        if let Some(scales) = self.target_scales {
            scales.to_target_units(predictions.to_mut());
            scales.scale(loss_targets.to_mut());
        }
        let rows = Rows { predictions: &predictions, targets, baselines };
        for rows_of_graph in graphs {
            let values = rows_of_graph.start * outputs..rows_of_graph.end * outputs;
            let y = &model_outputs[values.start * per_target..values.end * per_target];
            let targets = &loss_targets[values];
            let terms = loss.graph_terms(labelled_rows(targets, outputs), outputs);
            self.mean.add_graph(loss.graph_sum(y, targets, outputs), terms);
            self.all.add_graph(rows, rows_of_graph.clone());
            self.pass(1);
        }
        if self.level == Level::Sample {
            self.mean.add(&self.groups, model_outputs, &loss_targets);
            let mut first = 0;
            while first < indices.len() {
                let end = indices.len().min(first.saturating_add(self.left_in_run()));
                self.all.add(rows, first..end);
                self.pass(end - first);
                first = end;
            }
        }
        // Some of a time's samples rank nothing, and neither do classes or tasks beside each other.
        let is_whole = self.choice.is_none() && self.groups.len() == 1;
        if self.level == Level::Sample
            && is_whole
            && !baselines.is_empty()
            && let Some(times) = self.selection.samples.times(indices)
        {
            self.by_time.add(indices, &times, rows);
        }
        for (row, &index) in indices.iter().enumerate() {
            let name = self.selection.samples.instrument(index).filter(|_| self.level != Level::Graph);
            let targets = &targets[row * outputs..(row + 1) * outputs];
            let counts = if self.level == Level::Sample { known_targets(targets) > 0 } else { is_labelled(targets) };
            if let Some(name) = name.filter(|_| counts) {
                self.by_instrument.entry(name).or_insert_with(|| GroupSums::new(&self.groups)).add(rows, row..row + 1);
            }
        }
    }

    pub(super) fn finish(self) -> Result<Evaluation> {
        let EvaluationSums { selection, groups, mean, mut all, by_instrument, by_time, choice, outputs, .. } = self;
        let by_time = by_time.correlate(&mut all, selection.samples, outputs);
        let InstrumentEvaluation { samples, metrics, baselines } = all.finish();
        if samples == 0 {
            let advice = "none of their targets is known; evaluate those of which some are";
            return Err(Error::NothingLeft { part: "evaluation", before: selection.indices.len(), after: 0, advice });
        }
        let instruments = by_instrument.into_iter().map(|(name, sums)| (name.to_owned(), sums.finish())).collect();
        let tasks = if groups.len() > 1 { all.tasks(&mean, choice) } else { Vec::new() };
        let standard_errors = choice.and_then(|choice| all.standard_errors(choice));
        let with_index = |correlations: GraphCorrelations| GraphCorrelations {
            graph: selection.indices.sample_at(correlations.graph),
            ..correlations
        };
        let graphs = match by_time.is_empty() {
            true => all.by_graph().into_iter().map(with_index).collect(),
            false => by_time,
        };
        let loss = mean.finish();
        Ok(Evaluation { samples, loss, metrics, baselines, standard_errors, tasks, instruments, graphs })
    }
}

/// Errors of a model and of baselines over the same samples, in one pass. `choice` is the choice of
/// the samples from their part.
///
/// # Errors
/// [`Error::Interrupted`] where `progress` breaks, among others.
pub(crate) fn evaluate(
    mut predictions: Predictions<'_>,
    selection: Selection<'_>,
    loss: Loss,
    baselines: Option<&Baselines>,
    choice: Option<Choice>,
    progress: &mut EvaluationProgress<'_>,
) -> Result<Evaluation> {
    check(predictions.model, selection, loss)?;
    predictions.reads_bars = baselines.is_some();
    let mut observed = Observed::new(predictions.model, selection, loss);
    let sums = EvaluationSums::new(predictions.model, selection, loss, predictions.target_scales);
    let mut sums = EvaluationSums { choice, ..sums };
    let see = |batch: &BatchView<'_>| observed.see(batch, baselines);
    let progress = SharedProgress::new(progress);
    let flow = predictions.for_each(selection, &|| progress.is_wanted(), see, |expected, outputs| {
        sums.add(&expected, outputs);
        Ok(progress.at(expected.done))
    })?;
    if flow.is_break() { Err(INTERRUPTED) } else { sums.finish() }
}

pub(super) const INTERRUPTED: Error = Error::Interrupted { work: "the evaluation" };

/// Refuses what cannot be evaluated.
pub(super) fn check(model: &Model, selection: Selection<'_>, loss: Loss) -> Result<()> {
    loss.check()?;
    if selection.indices.is_empty() {
        let advice = "give the part a fraction in `split`";
        return Err(Error::NothingLeft { part: "evaluation", before: 0, after: 0, advice });
    }
    loss.check_readout(model.config().readout)?;
    check_readout_of(selection.samples, model.config().readout)?;
    check_outputs(model, loss)
}

/// The number of later graphs whose targets overlap with those of one graph, by horizon, among the
/// graphs with two labelled nodes or more; 0 if the source does not tell.
fn lags(selection: Selection<'_>, outputs: usize) -> Vec<usize> {
    let Some(graphs) = selection.samples.graphs() else { return vec![0; outputs] };
    let ranked: Vec<usize> = selection.indices.iter().filter(|&graph| graphs.labelled(graph) > 1).collect();
    let spans =
        |target| ranked.iter().map(|&graph| graphs.label_span(graph, target)).collect::<Option<Vec<LabelSpan>>>();
    (0..outputs).map(|target| spans(target).map_or(0, |spans| overlap(&spans))).collect()
}

/// Refuses a loss whose outputs are not the model's.
fn check_outputs(model: &Model, loss: Loss) -> Result<()> {
    loss.check_groups(model.shape().outputs)?;
    let expected = ModelConfig::default().for_loss(loss);
    let found = model.config();
    if (expected.outputs_per_target, expected.outputs) == (found.outputs_per_target, found.outputs) {
        return Ok(());
    }
    let expected = "the loss that the model was trained with, which has as many outputs for each target";
    Err(Error::setting("loss", &loss.name(), expected))
}
