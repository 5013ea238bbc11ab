#![forbid(unsafe_code)]

use std::fmt;
use std::path::Path;

use megabatch_order::LastBatch;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::graph::GraphConfig;
use crate::learning_rate::{LrSchedule, LrScheduleKind};
use crate::loss::Loss;
use crate::model::{ModelConfig, SampleShape};
use crate::optimizer::OptimizerConfig;

/// The settings that decide the course of a run, kept in its checkpoints.
///
/// A resumed run must have the checkpoint's where its numbers would mean something else under others: the samples and the
/// model (weights), whether states are carried, the optimizer's rule, decays and ε (moments), the loss and the number of
/// validation samples (best validation, early stopping), what the order of samples depends on (position), and the curve of the
/// learning rate, which is drawn over the whole run. For a cosine that includes the number of steps.
///
/// What only decides how the next steps are made may be changed on purpose: learning rate, weight decay, limit of the norm,
/// dropout. Resuming tells these changes.
///
/// What is not here may change without a word: when to end, validate and save (early stopping and, at a constant rate, the
/// number of steps among them), and the number of threads. The form is told apart, see [`Arithmetic`](crate::Arithmetic).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// What a sample is made of.
    pub shape: SampleShape,
    /// The model's sizes.
    pub model: ModelConfig,
    /// Number of training samples, or graphs.
    pub train_samples: usize,
    /// Number of validation samples, or graphs.
    pub validation_samples: usize,
    /// Seed of weights and order.
    pub seed: u64,
    /// Samples computed at once.
    pub batch_size: usize,
    /// Batches of an optimizer step.
    pub accumulation_steps: usize,
    /// Samples in a run.
    pub run_length: usize,
    /// What happens to the samples at an epoch's end.
    pub last_batch: LastBatch,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// The curve of the learning rate.
    pub lr_schedule: LrSchedule,
    /// Optimizer steps of the whole run.
    pub steps: u64,
    /// What is minimised.
    pub loss: Loss,
    /// Largest norm of all gradients together.
    pub clip_norm: Option<f64>,
    /// Share of a layer's outputs that is dropped.
    pub dropout: f32,
    /// Whether windows start from carried states.
    pub carry_state: bool,
}

/// A setting that a resumed run has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedSetting {
    /// Its name.
    pub setting: &'static str,
    /// Its value in the checkpoint.
    pub before: String,
    /// Its value now.
    pub now: String,
}

impl fmt::Display for ChangedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, it was {}", self.setting, self.now, self.before)
    }
}

/// Name and value of settings.
type Settings = Vec<(&'static str, String)>;

impl RunSettings {
    /// What a run with the settings `now` has changed, if it may go on from the checkpoint at `path`, whose settings these are.
    pub(super) fn compare(&self, path: &Path, now: &RunSettings) -> Result<Vec<ChangedSetting>> {
        let ((fixed, free), (fixed_now, free_now)) = (self.settings(), now.settings());
        if let Some(ChangedSetting { setting, before, now }) = differences(fixed, fixed_now).next() {
            return Err(Error::OtherRun { path: path.to_owned(), setting, found: before, expected: now });
        }
        Ok(differences(free, free_now).collect())
    }

    /// Those that must be equal and those that may be changed. A setting that only another one gives a meaning follows that one.
    fn settings(&self) -> (Settings, Settings) {
        // Every field by name, so that a new one is not forgotten here.
        let RunSettings {
            shape,
            model,
            train_samples,
            validation_samples,
            seed,
            batch_size,
            accumulation_steps,
            run_length,
            last_batch,
            optimizer,
            lr_schedule,
            steps,
            loss,
            clip_norm,
            dropout,
            carry_state,
        } = self;
        let mut fixed = vec![
            ("the shape of the samples", shape.to_string()),
            ("model.encoder", lower(&model.encoder)),
            ("model.hidden", model.hidden.to_string()),
            ("model.layers", model.layers.to_string()),
            ("model.bias", model.bias.to_string()),
            ("model.readout", model.readout.map_or("none".to_owned(), |readout| lower(&readout))),
            ("model.graph", if model.graph.is_some() { "attention" } else { "none" }.to_owned()),
            ("model.edge_attributes", model.edge_attributes.to_string()),
            ("data.split (training samples)", train_samples.to_string()),
            ("data.split (validation samples)", validation_samples.to_string()),
            ("training.seed", seed.to_string()),
            ("training.batch_size", batch_size.to_string()),
            ("training.gradient_accumulation_steps", accumulation_steps.to_string()),
            ("training.run_length", run_length.to_string()),
            ("training.last_batch", lower(last_batch)),
            ("training.optimizer", lower(&optimizer.kind)),
            ("optimizer.beta1", optimizer.beta1.to_string()),
            ("optimizer.beta2", optimizer.beta2.to_string()),
            ("optimizer.epsilon", optimizer.epsilon.to_string()),
            ("training.loss", loss.name().to_owned()),
            ("training.lr_schedule", lower(&lr_schedule.kind)),
            ("training.warmup_steps", lr_schedule.warmup_steps.to_string()),
            ("training.carry_state", carry_state.to_string()),
        ];
        match loss {
            Loss::Huber { delta } => fixed.push(("training.huber_delta", delta.to_string())),
            Loss::RankListwise { temperature } => fixed.push(("training.rank_temperature", temperature.to_string())),
            _ => {}
        }
        if lr_schedule.kind == LrScheduleKind::Cosine {
            fixed.push(("training.lr_min", lr_schedule.lr_min.to_string()));
            fixed.push((
                "training.epochs or training.max_steps (steps that the cosine is drawn over)",
                steps.to_string(),
            ));
        }
        let mut free = vec![
            ("training.lr", optimizer.lr.to_string()),
            ("training.weight_decay", optimizer.weight_decay.to_string()),
            ("training.clip_norm", clip_norm.map_or("none".to_owned(), |norm| norm.to_string())),
            ("model.dropout", dropout.to_string()),
        ];
        if let Some(graph) = model.graph {
            let (fixed_of_graph, free_of_graph) = graph_settings(&graph);
            fixed.extend(fixed_of_graph);
            free.extend(free_of_graph);
        }
        (fixed, free)
    }
}

/// Those of attention, as [`RunSettings::settings`].
fn graph_settings(graph: &GraphConfig) -> (Settings, Settings) {
    // Every field by name, here too.
    let GraphConfig {
        kind,
        layers,
        heads,
        hidden,
        output,
        output_heads,
        activation,
        residual,
        dropout,
        attention_dropout,
        negative_slope,
        self_loops,
    } = graph;
    let fixed = vec![
        ("model.graph_kind", lower(kind)),
        ("model.graph_layers", layers.to_string()),
        ("model.graph_heads", heads.to_string()),
        ("model.graph_hidden", hidden.to_string()),
        ("model.graph_output", lower(output)),
        ("model.graph_output_heads", output_heads.to_string()),
        ("model.graph_activation", lower(activation)),
        ("model.graph_residual", residual.to_string()),
        ("model.graph_negative_slope", negative_slope.to_string()),
        ("model.graph_self_loops", self_loops.to_string()),
    ];
    let free = vec![
        ("model.graph_dropout", dropout.to_string()),
        ("model.graph_attention_dropout", attention_dropout.to_string()),
    ];
    (fixed, free)
}

fn differences(before: Settings, now: Settings) -> impl Iterator<Item = ChangedSetting> {
    let pairs = before.into_iter().zip(now).filter(|(before, now)| before != now);
    pairs.map(|((setting, before), (_, now))| ChangedSetting { setting, before, now })
}

/// The configuration's word for a choice without values.
fn lower(choice: &dyn fmt::Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timeframe;
    use crate::optimizer::OptimizerKind;

    fn settings() -> RunSettings {
        let timeframe = Timeframe { name: "M1".to_owned(), steps: 6, features: 3 };
        RunSettings {
            shape: SampleShape { timeframes: vec![timeframe], outputs: 2 },
            model: ModelConfig { hidden: 5, layers: 2, ..ModelConfig::default() },
            train_samples: 90,
            validation_samples: 10,
            seed: 11,
            batch_size: 8,
            accumulation_steps: 1,
            run_length: 8,
            last_batch: LastBatch::Keep,
            optimizer: OptimizerConfig::default(),
            lr_schedule: LrSchedule { kind: LrScheduleKind::Cosine, warmup_steps: 3, lr_min: 1e-5 },
            steps: 20,
            loss: Loss::Huber { delta: 1.5 },
            clip_norm: Some(1.0),
            dropout: 0.1,
            carry_state: true,
        }
    }

    type Change = (fn(&mut RunSettings), &'static str);

    #[test]
    fn what_gives_a_checkpoint_its_meaning_must_match() {
        let changes: [Change; 23] = [
            (
                |run| run.shape.outputs = 3,
                "the shape of the samples M1 [6, 3], targets [2], but this run has M1 [6, 3], targets [3];",
            ),
            (|run| run.model.hidden = 6, "model.hidden 5, but this run has 6;"),
            (|run| run.model.layers = 1, "model.layers 2, but this run has 1;"),
            (|run| run.model.bias = false, "model.bias true, but this run has false;"),
            (|run| run.train_samples = 91, "data.split (training samples) 90, but this run has 91;"),
            (|run| run.validation_samples = 0, "data.split (validation samples) 10, but this run has 0;"),
            (|run| run.seed = 12, "training.seed 11, but this run has 12;"),
            (|run| run.batch_size = 4, "training.batch_size 8, but this run has 4;"),
            (|run| run.accumulation_steps = 2, "training.gradient_accumulation_steps 1, but this run has 2;"),
            (|run| run.run_length = 1, "training.run_length 8, but this run has 1;"),
            (|run| run.last_batch = LastBatch::Drop, "training.last_batch keep, but this run has drop;"),
            (|run| run.optimizer.kind = OptimizerKind::Sgd, "training.optimizer adamw, but this run has sgd;"),
            (|run| run.optimizer.beta1 = 0.8, "optimizer.beta1 0.9, but this run has 0.8;"),
            (|run| run.optimizer.beta2 = 0.9, "optimizer.beta2 0.999, but this run has 0.9;"),
            (|run| run.optimizer.epsilon = 1e-6, "optimizer.epsilon 0.00000001, but this run has 0.000001;"),
            (|run| run.loss = Loss::Mse, "training.loss huber, but this run has mse;"),
            (|run| run.loss = Loss::Huber { delta: 1.25 }, "training.huber_delta 1.5, but this run has 1.25;"),
            (
                |run| run.lr_schedule.kind = LrScheduleKind::Constant,
                "training.lr_schedule cosine, but this run has constant;",
            ),
            (|run| run.lr_schedule.warmup_steps = 0, "training.warmup_steps 3, but this run has 0;"),
            (|run| run.lr_schedule.lr_min = 0.0, "training.lr_min 0.00001, but this run has 0;"),
            (
                |run| run.steps = 30,
                "training.epochs or training.max_steps (steps that the cosine is drawn over) 20, but this run has 30;",
            ),
            (|run| run.carry_state = false, "training.carry_state true, but this run has false;"),
            // One is enough to refuse, whatever else has changed.
            (|run| (run.seed, run.optimizer.lr) = (0, 0.5), "training.seed 11, but this run has 0;"),
        ];
        for (change, expected) in changes {
            let mut now = settings();
            change(&mut now);
            let error = settings().compare(Path::new("step-00000010"), &now).unwrap_err().to_string();
            assert!(error.starts_with(&format!("step-00000010: made with {expected}")), "{error}");
        }
    }

    #[test]
    fn how_the_next_steps_are_made_may_be_changed_and_is_told() {
        let changes: [Change; 4] = [
            (|run| run.optimizer.lr = 1e-4, "training.lr is 0.0001, it was 0.001"),
            (|run| run.optimizer.weight_decay = 0.0, "training.weight_decay is 0, it was 0.01"),
            (|run| run.clip_norm = None, "training.clip_norm is none, it was 1"),
            (|run| run.dropout = 0.25, "model.dropout is 0.25, it was 0.1"),
        ];
        for (change, expected) in changes {
            let mut now = settings();
            change(&mut now);
            let changed = settings().compare(Path::new("step"), &now).unwrap();
            assert_eq!(changed.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        }
        assert_eq!(settings().compare(Path::new("step"), &settings()).unwrap(), []);
    }

    #[test]
    fn a_constant_rate_leaves_the_number_of_steps_and_the_lowest_rate_open() {
        let mut before = settings();
        before.lr_schedule.kind = LrScheduleKind::Constant;
        let mut now = RunSettings { steps: 30, ..before.clone() };
        now.lr_schedule.lr_min = 0.5;
        assert_eq!(before.compare(Path::new("step"), &now).unwrap(), []);
    }

    /// Numbers whose shortest decimal form is easily misread by a bit.
    #[test]
    fn json_keeps_every_bit() {
        for number in [0.1 + 0.2, 1.0 / 3.0, 6.62607015e-34, 4.35e-7 / 3.0, 123_456_789.123_456_78] {
            let before = RunSettings { clip_norm: Some(number), ..settings() };
            let text = serde_json::to_string(&before).unwrap();
            assert_eq!(serde_json::from_str::<RunSettings>(&text).unwrap(), before);
        }
    }
}
