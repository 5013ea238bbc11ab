use std::fmt;
use std::path::Path;

use megabatch_amp::{Precision, ScalerConfig};
use megabatch_nn::batch::LossOn;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{ModelConfig, SampleShape};
use megabatch_nn_cuda::Tuning;
use megabatch_order::LastBatch;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::config::learning_rate::{LrSchedule, LrScheduleKind, OneCycle};
use crate::config::optimizer::OptimizerConfig;
use crate::error::{Error, Result};
use crate::train::Run;

/// The settings that decide the course of a run, kept in its checkpoints.
///
/// A resumed run must have the checkpoint's where its numbers would mean something else under
/// others: the samples and the model (weights), whether states are carried, the optimizer's rule,
/// decays and ε (moments), the loss and the number of validation samples (best validation, early
/// stopping), what the order of samples depends on (position), and the curve of the learning rate,
/// which is drawn over the whole run. Where it is not level, that includes the number of steps.
///
/// Settings that only decide how the next steps are made may be changed on purpose: learning rate,
/// weight decay, limit of the norm, dropout, how the loss scale changes. Resuming tells these
/// changes.
///
/// Settings that are not here may change without a word: when to end, validate and save (early
/// stopping and, at a constant rate, the number of steps among them), what to do about divergence,
/// gradient checkpointing, and the number of threads. The instruction set is told apart, see
/// [`Arithmetic`](crate::Arithmetic).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Shape of a sample.
    pub shape: SampleShape,
    /// The model's sizes.
    pub model: ModelConfig,
    /// Number of training samples, or graphs.
    pub train_samples: usize,
    /// Number of samples, or graphs, that a validation takes.
    pub validation_samples: usize,
    /// Seed of weights and order.
    pub seed: u64,
    /// Samples computed at once.
    pub batch_size: usize,
    /// Batches of an optimizer step.
    #[serde(rename = "accumulation_steps")]
    pub gradient_accumulation_steps: usize,
    /// Samples in a run.
    pub run_length: usize,
    /// Treatment of samples at an epoch's end that do not fill a step.
    pub last_batch: LastBatch,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// The curve of the learning rate.
    pub lr_schedule: LrSchedule,
    /// Optimizer steps of the whole run.
    pub steps: u64,
    /// Loss.
    pub loss: Loss,
    /// Largest norm of all gradients together.
    pub clip_norm: Option<f64>,
    /// Share of a layer's outputs that is dropped.
    pub dropout: f32,
    /// True if windows start from carried states.
    pub carry_state: bool,
    /// Steps of the sequence that have a loss.
    pub loss_on: LossOn,
    /// Precision of the inputs of products.
    pub precision: Precision,
    /// True if a GPU rounds what products read in fp32.
    pub tf32: bool,
    /// Which kernels a GPU's operations take.
    #[serde(rename = "tuning")]
    pub autotune: Tuning,
    /// Settings of the loss scale, in fp16.
    pub loss_scale: ScalerConfig,
    /// True if samples have weights.
    #[serde(default)]
    pub is_weighted: bool,
}

/// A setting that a resumed run has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedSetting {
    /// Its name, or words for several.
    pub setting: &'static str,
    /// Its value in the checkpoint.
    pub before: String,
    /// Its value now.
    pub now: String,
}

impl fmt::Display for ChangedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}, it was {}", self.setting, self.now, self.before)
    }
}

/// Names of settings, or words, and their values.
type Settings = Vec<(&'static str, String)>;

impl RunSettings {
    /// The settings of a run of `steps` optimizer steps.
    pub(in crate::train) fn new(config: &Config, shape: &SampleShape, steps: u64, run: &Run<'_>) -> Self {
        // Every field by name, so that a new one is not forgotten here.
        let &Config {
            model,
            dropout,
            optimizer,
            lr_schedule,
            clip_norm,
            loss,
            batch_size,
            gradient_accumulation_steps,
            // As `run_samples`.
            run_length: _,
            last_batch,
            carry_state,
            loss_on,
            seed,
            // As the number of samples that a validation takes.
            validation_samples: _,
            precision,
            tf32,
            autotune,
            loss_scale,
            // As `is_weighted`.
            sample_weights: _,
            // As the checkpoint's scales of targets, which the run goes on with.
            target_scaling: _,
            // As `steps`.
            epochs: _,
            max_steps: _,
            // Free to change without a word.
            gradient_checkpointing: _,
            keep_series: _,
            keep_windows: _,
            chunk_windows: _,
            keep_graphs: _,
            threads: _,
            validate_every_steps: _,
            early_stopping: _,
            divergence: _,
            profile: _,
        } = config;
        RunSettings {
            shape: shape.clone(),
            model,
            train_samples: run.train.len(),
            validation_samples: config.evaluated(run.validation).len(),
            seed,
            batch_size,
            gradient_accumulation_steps,
            run_length: config.run_samples(),
            last_batch,
            optimizer,
            lr_schedule,
            steps,
            loss,
            clip_norm,
            dropout,
            carry_state,
            loss_on,
            precision,
            tf32,
            autotune,
            loss_scale,
            is_weighted: config.is_weighted(run.samples),
        }
    }

    /// Changed settings of a run with the settings `now`, if it may resume from the checkpoint at
    /// `path`, whose settings these are.
    pub(super) fn compare(&self, path: &Path, now: &RunSettings) -> Result<Vec<ChangedSetting>> {
        let ((fixed, free), (fixed_now, free_now)) = (self.settings(), now.settings());
        if let Some(ChangedSetting { setting, before, now }) = differences(fixed, fixed_now).next() {
            return Err(Error::OtherRun { path: path.to_owned(), setting, found: before, expected: now });
        }
        Ok(differences(free, free_now).collect())
    }

    /// Settings that must be equal, and settings that may be changed. A setting that only another
    /// one gives a meaning follows that one. A test changes every field.
    fn settings(&self) -> (Settings, Settings) {
        let RunSettings { model, optimizer, lr_schedule, loss, .. } = self;
        let mut fixed = Vec::from([
            setting("the shape of the samples", &self.shape),
            setting("encoder", model.encoder.name()),
            setting("cell", model.cell.name()),
            setting("hidden", model.hidden),
            setting("layers", model.layers),
            setting("bias", model.bias),
            setting("layer_norm", model.layer_norm),
            setting("pooling", model.pooling),
            setting("fusion", model.fusion),
            setting("readout", model.readout.map_or("none".to_owned(), |readout| lower(&readout))),
            setting("graph", if model.graph.is_some() { "attention" } else { "none" }),
            setting("graph_edge_attributes", model.graph_edge_attributes),
            setting("`split` (training samples)", self.train_samples),
            setting("`split` or `validation_samples` (samples of a validation)", self.validation_samples),
            setting("seed", self.seed),
            setting("batch_size", self.batch_size),
            setting("gradient_accumulation_steps", self.gradient_accumulation_steps),
            setting("run_length", self.run_length),
            setting("the treatment of the last batch", lower(&self.last_batch)),
            setting("optimizer", lower(&optimizer.kind)),
            setting("beta1", optimizer.beta1),
            setting("beta2", optimizer.beta2),
            setting("epsilon", optimizer.epsilon),
            setting("loss", loss.name()),
            setting("lr_schedule", lr_schedule.kind.name()),
            setting("warmup_steps", lr_schedule.warmup_steps),
            setting("carry_state", self.carry_state),
            setting("loss_on", self.loss_on.name()),
        ]);
        fixed.extend(loss.setting());
        fixed.extend(curve_settings(lr_schedule, self.steps));
        let mut free = Vec::from([
            setting("precision", self.precision),
            setting("tf32", self.tf32),
            setting("autotune", lower(&self.autotune)),
            setting("sample_weights", if self.is_weighted { "auto" } else { "none" }),
            setting("lr", optimizer.lr),
            setting("weight_decay", optimizer.weight_decay),
            setting("clip_norm", self.clip_norm.map_or("none".to_owned(), |norm| norm.to_string())),
            setting("dropout", self.dropout),
        ]);
        if let Some(graph) = &model.graph {
            fixed.extend([
                setting("graph_attention", lower(&graph.attention)),
                setting("graph_layers", graph.layers),
                setting("graph_heads", graph.heads),
                setting("graph_hidden", graph.hidden),
                setting("graph_output", lower(&graph.output)),
                setting("graph_output_heads", graph.output_heads),
                setting("graph_activation", lower(&graph.activation)),
                setting("graph_residual", graph.residual),
                setting("the negative slope of graph attention", graph.negative_slope),
                setting("graph_self_loops", graph.self_loops),
            ]);
            free.push(setting("graph_dropout", graph.dropout));
            free.push(setting("graph_attention_dropout", graph.attention_dropout));
        }
        // The last ones, since another precision has none of them.
        if self.precision.needs_loss_scale() {
            let scale = &self.loss_scale;
            free.extend([
                setting("loss_scale_initial", scale.initial),
                setting("loss_scale_growth_factor", scale.growth_factor),
                setting("loss_scale_backoff_factor", scale.backoff_factor),
                setting("loss_scale_growth_interval", scale.growth_interval),
                setting("loss_scale_hysteresis", scale.hysteresis),
                setting("loss_scale_floor", scale.floor),
                setting("loss_scale_ceiling", scale.ceiling),
            ]);
        }
        (fixed, free)
    }
}

fn setting(name: &'static str, value: impl fmt::Display) -> (&'static str, String) {
    (name, value.to_string())
}

/// Settings of the learning rate's curve.
fn curve_settings(LrSchedule { kind, warmup_steps: _, lr_min }: &LrSchedule, steps: u64) -> Settings {
    let mut settings = match kind {
        LrScheduleKind::Constant => return Vec::new(),
        LrScheduleKind::Cosine => Vec::from([setting("lr_min", lr_min)]),
        LrScheduleKind::OneCycle(OneCycle { pct_start, div_factor, final_div_factor }) => Vec::from([
            setting("pct_start", pct_start),
            setting("div_factor", div_factor),
            setting("final_div_factor", final_div_factor),
        ]),
    };
    settings.push(setting("`epochs` or `max_steps` (steps that the learning rate's curve is drawn over)", steps));
    settings
}

fn differences(before: Settings, now: Settings) -> impl Iterator<Item = ChangedSetting> {
    let pairs = before.into_iter().zip(now).filter(|(before, now)| before != now);
    pairs.map(|((setting, before), (_, now))| ChangedSetting { setting, before, now })
}

/// Name of a choice without values.
fn lower(choice: &dyn fmt::Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

#[cfg(test)]
mod tests;
