use std::fmt;
use std::path::Path;

use megabatch_amp::{Precision, ScalerConfig};
use megabatch_nn::batch::LossOn;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{GraphConfig, ModelConfig, SampleShape};
use megabatch_nn_cuda::Tuning;
use megabatch_order::LastBatch;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::config::learning_rate::{LrSchedule, LrScheduleKind, OneCycle};
use crate::config::optimizer::OptimizerConfig;
use crate::error::{Error, Result, is_field};
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
    /// Its name, one of [`FIELDS`](crate::error::FIELDS).
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
        let Config {
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
            model: *model,
            train_samples: run.train.len(),
            validation_samples: config.evaluated(run.validation).len(),
            seed: *seed,
            batch_size: *batch_size,
            gradient_accumulation_steps: *gradient_accumulation_steps,
            run_length: config.run_samples(),
            last_batch: *last_batch,
            optimizer: *optimizer,
            lr_schedule: *lr_schedule,
            steps,
            loss: *loss,
            clip_norm: *clip_norm,
            dropout: *dropout,
            carry_state: *carry_state,
            loss_on: *loss_on,
            precision: *precision,
            tf32: *tf32,
            autotune: *autotune,
            loss_scale: *loss_scale,
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
    /// one gives a meaning follows that one.
    fn settings(&self) -> (Settings, Settings) {
        // Every field by name, so that a new one is not forgotten here.
        let RunSettings {
            shape,
            model,
            train_samples,
            validation_samples,
            seed,
            batch_size,
            gradient_accumulation_steps,
            run_length,
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
            is_weighted,
        } = self;
        let ModelConfig {
            encoder,
            cell,
            hidden,
            layers,
            bias,
            layer_norm,
            pooling,
            fusion,
            graph,
            graph_edge_attributes,
            readout,
            // As the loss.
            outputs_per_target: _,
            outputs: _,
        } = model;
        let OptimizerConfig { kind, lr, weight_decay, beta1, beta2, epsilon } = optimizer;
        let mut fixed = vec![
            ("the shape of the samples", shape.to_string()),
            ("encoder", encoder.name().to_owned()),
            ("cell", cell.name().to_owned()),
            ("hidden", hidden.to_string()),
            ("layers", layers.to_string()),
            ("bias", bias.to_string()),
            ("layer_norm", layer_norm.to_string()),
            ("pooling", pooling.to_string()),
            ("fusion", fusion.to_string()),
            ("readout", readout.map_or("none".to_owned(), |readout| lower(&readout))),
            ("graph", if graph.is_some() { "attention" } else { "none" }.to_owned()),
            ("graph_edge_attributes", graph_edge_attributes.to_string()),
            ("`split` (training samples)", train_samples.to_string()),
            ("`split` or `validation_samples` (samples of a validation)", validation_samples.to_string()),
            ("seed", seed.to_string()),
            ("batch_size", batch_size.to_string()),
            ("gradient_accumulation_steps", gradient_accumulation_steps.to_string()),
            ("run_length", run_length.to_string()),
            ("the treatment of the last batch", lower(last_batch)),
            ("optimizer", lower(kind)),
            ("beta1", beta1.to_string()),
            ("beta2", beta2.to_string()),
            ("epsilon", epsilon.to_string()),
            ("loss", loss.name().to_owned()),
            ("lr_schedule", lr_schedule.kind.name().to_owned()),
            ("warmup_steps", lr_schedule.warmup_steps.to_string()),
            ("carry_state", carry_state.to_string()),
            ("loss_on", loss_on.name().to_owned()),
        ];
        fixed.extend(loss.setting());
        fixed.extend(curve_settings(lr_schedule, *steps));
        let mut free = vec![
            ("precision", precision.to_string()),
            ("tf32", tf32.to_string()),
            ("autotune", lower(autotune)),
            ("sample_weights", if *is_weighted { "auto" } else { "none" }.to_owned()),
            ("lr", lr.to_string()),
            ("weight_decay", weight_decay.to_string()),
            ("clip_norm", clip_norm.map_or("none".to_owned(), |norm| norm.to_string())),
            ("dropout", dropout.to_string()),
        ];
        if let Some(graph) = graph {
            let (fixed_of_graph, free_of_graph) = graph_settings(graph);
            fixed.extend(fixed_of_graph);
            free.extend(free_of_graph);
        }
        // The last ones, since another precision has none of them.
        if precision.needs_loss_scale() {
            free.extend(loss_scale_settings(loss_scale));
        }
        (fixed, free)
    }
}

/// Settings of the loss scale from now on; its value is in the checkpoint.
fn loss_scale_settings(scale: &ScalerConfig) -> Settings {
    let ScalerConfig { initial, growth_factor, backoff_factor, growth_interval, hysteresis, floor, ceiling } = scale;
    vec![
        ("loss_scale_initial", initial.to_string()),
        ("loss_scale_growth_factor", growth_factor.to_string()),
        ("loss_scale_backoff_factor", backoff_factor.to_string()),
        ("loss_scale_growth_interval", growth_interval.to_string()),
        ("loss_scale_hysteresis", hysteresis.to_string()),
        ("loss_scale_floor", floor.to_string()),
        ("loss_scale_ceiling", ceiling.to_string()),
    ]
}

/// Settings of the learning rate's curve.
fn curve_settings(LrSchedule { kind, warmup_steps: _, lr_min }: &LrSchedule, steps: u64) -> Settings {
    let mut settings = match kind {
        LrScheduleKind::Constant => return Vec::new(),
        LrScheduleKind::Cosine => vec![("lr_min", lr_min.to_string())],
        LrScheduleKind::OneCycle(OneCycle { pct_start, div_factor, final_div_factor }) => vec![
            ("pct_start", pct_start.to_string()),
            ("div_factor", div_factor.to_string()),
            ("final_div_factor", final_div_factor.to_string()),
        ],
    };
    settings.push(("`epochs` or `max_steps` (steps that the learning rate's curve is drawn over)", steps.to_string()));
    settings
}

/// Settings of attention, as [`RunSettings::settings`].
fn graph_settings(graph: &GraphConfig) -> (Settings, Settings) {
    // Every field by name, here too.
    let GraphConfig {
        attention,
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
        ("graph_attention", lower(attention)),
        ("graph_layers", layers.to_string()),
        ("graph_heads", heads.to_string()),
        ("graph_hidden", hidden.to_string()),
        ("graph_output", lower(output)),
        ("graph_output_heads", output_heads.to_string()),
        ("graph_activation", lower(activation)),
        ("graph_residual", residual.to_string()),
        ("the negative slope of graph attention", negative_slope.to_string()),
        ("graph_self_loops", self_loops.to_string()),
    ];
    let free = vec![("graph_dropout", dropout.to_string()), ("graph_attention_dropout", attention_dropout.to_string())];
    (fixed, free)
}

fn differences(before: Settings, now: Settings) -> impl Iterator<Item = ChangedSetting> {
    debug_assert!(before.iter().all(|(setting, _)| is_field(setting)), "one of {before:?} is not one of `FIELDS`");
    let pairs = before.into_iter().zip(now).filter(|(before, now)| before != now);
    pairs.map(|((setting, before), (_, now))| ChangedSetting { setting, before, now })
}

/// Name of a choice without values.
fn lower(choice: &dyn fmt::Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

#[cfg(test)]
mod tests;
