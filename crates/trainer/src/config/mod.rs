//! Settings of a run, and the rules that they choose.

pub(crate) mod countable;
pub(crate) mod divergence;
pub(crate) mod early_stopping;
pub(crate) mod learning_rate;
pub(crate) mod optimizer;

use std::fmt::Display;

use megabatch_amp::{self as amp, Precision, ScalerConfig};
use megabatch_nn::batch::{LossOn, Runs};
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Dropout, Encoder, GraphOutput, ModelConfig, Pooling, check_rate};
use megabatch_nn_cpu::{CheckpointPolicy, Compute, Purpose};
use megabatch_nn_cuda::ops::Arithmetic;
use megabatch_nn_cuda::{ComputeConfig, Tuning, check_encoder};
use megabatch_order::LastBatch;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use divergence::Divergence;
use early_stopping::EarlyStopping;
use learning_rate::LrSchedule;
use optimizer::OptimizerConfig;

/// Everything besides the samples that decides the result of training. The number of threads does
/// not change it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The model.
    pub model: ModelConfig,
    /// Dropout rate of the outputs of every layer but the last in training, in [0, 1), as
    /// `torch.nn.LSTM` has it; see [`Dropout`].
    #[serde(default)]
    pub dropout: f32,
    /// The optimizer.
    pub optimizer: OptimizerConfig,
    /// Learning-rate schedule.
    #[serde(default)]
    pub lr_schedule: LrSchedule,
    /// Largest norm of all gradients together; larger ones are scaled down to it. `None` leaves
    /// them.
    pub clip_norm: Option<f64>,
    /// Loss. It decides how many outputs the model has, whatever
    /// [`ModelConfig::outputs_per_target`] says.
    pub loss: Loss,
    /// Scaling of the targets, of which the loss is then.
    #[serde(default)]
    pub target_scaling: TargetScaling,
    /// Use of the weights of samples.
    #[serde(default)]
    pub sample_weights: SampleWeighting,
    /// Passes over the training samples.
    pub epochs: u64,
    /// Optimizer steps after which training ends; takes precedence over `epochs`.
    pub max_steps: Option<u64>,
    /// Samples of a batch; graphs, for a model over graphs.
    pub batch_size: usize,
    /// Batches whose gradients make one optimizer step. The result is that of one batch of their
    /// total size, up to rounding. It is equal bit for bit if `batch_size` is a multiple of 32; in
    /// dense training, if `run_length` is given and `batch_size` is at least as large: a run is
    /// never longer than a batch, and batches end where shards of runs end.
    pub gradient_accumulation_steps: usize,
    /// Consecutive samples that are visited together; 1 shuffles fully, `None` takes all samples of
    /// an optimizer step.
    pub run_length: Option<usize>,
    /// Treatment of samples at an epoch's end that do not fill an optimizer step.
    pub last_batch: LastBatch,
    /// True if windows start from the states last computed at the bar before their first bar, in
    /// place of zero. Gradients do not flow into these states. The samples must be slices of series
    /// ([`Samples::series`](crate::Samples::series)). Evaluation passes over each segment once from
    /// zero, one step a bar
    /// ([`Predictor::with_carried_state`](crate::Predictor::with_carried_state)).
    #[serde(default)]
    pub carry_state: bool,
    /// Steps of the sequence that have a loss.
    #[serde(default)]
    pub loss_on: LossOn,
    /// True if the backward pass computes half of the LSTMs' gates again, in place of keeping all
    /// of them from the forward pass. It takes about half the memory of activations and somewhat
    /// more time. Gradients are equal bit for bit. On a GPU it computes the gates and cell states
    /// of all layers below the top one again, so that a model of one layer is refused there.
    #[serde(default)]
    pub gradient_checkpointing: bool,
    /// Seed of the initial weights, the order and the dropout masks.
    pub seed: u64,
    /// Threads that compute. One more thread reads data.
    pub threads: usize,
    /// Optimizer steps between validations, beside the one at each epoch's end.
    pub validate_every_steps: Option<u64>,
    /// Most samples, or graphs, of a validation ([`Config::evaluated`]); `None` takes all.
    #[serde(default)]
    pub validation_samples: Option<usize>,
    /// Rule that ends a run whose validation loss no longer falls; `None` for no such rule.
    #[serde(default)]
    pub early_stopping: Option<EarlyStopping>,
    /// Treatment of a run that diverges.
    #[serde(default)]
    pub divergence: Divergence,
    /// Precision of the inputs of matrix products and the recurrence; everything else is in single
    /// precision ([`Precision`]).
    #[serde(default)]
    pub precision: Precision,
    /// True if a GPU may round the fp32 inputs of matrix products to TF32, 11 significant bits with
    /// the range of fp32, for its tensor cores. The recurrence stays in fp32. It has no effect on
    /// the CPU.
    #[serde(default)]
    pub tf32: bool,
    /// Choice among the kernels of a GPU.
    #[serde(default)]
    pub autotune: Tuning,
    /// True if series in memory are to lie on a GPU during training, so that batches bring no bars.
    /// It has no effect on the CPU, nor on series in a file, whose bars come with each batch. A run
    /// that gets less memory than was planned goes on without. In dense training and with carried
    /// states they lie there in any case.
    #[serde(default = "keeps_series")]
    pub keep_series: bool,
    /// True if all stored windows are to lie on a GPU during training, so that batches bring none.
    /// It has no effect on the CPU, nor on samples that are slices of series. A run that gets less
    /// memory than was planned goes on without.
    #[serde(default)]
    pub keep_windows: bool,
    /// Stored windows of each of two chunks in which they pass through a GPU during training, where
    /// not all lie there; a chunk holds a batch in any case. Batches bring none then. `None` takes
    /// them batch by batch. It has no effect on the CPU, nor on samples that are slices of series,
    /// nor on models over graphs. A run that gets less memory than was planned goes on without.
    #[serde(default)]
    pub chunk_windows: Option<usize>,
    /// True if the edges of all graphs are to lie on a GPU during training, so that a batch brings
    /// the numbers of its graphs. It has no effect on the CPU. A run that gets less memory than was
    /// planned goes on without.
    #[serde(default)]
    pub keep_graphs: bool,
    /// Settings of the loss scale of fp16; unused in other precisions.
    #[serde(default)]
    pub loss_scale: ScalerConfig,
    /// True if each step's event has its time by layer
    /// ([`StepEvent::profile`](crate::StepEvent::profile)).
    #[serde(default)]
    pub profile: bool,
}

/// Scaling of the targets of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetScaling {
    /// By the mean and the deviation of the known training targets, each target by its own, for
    /// losses whose outputs are in the unit of the targets (mse, huber, quantile) and models with a
    /// linear head. Predictions, errors and saved weights are in the unit of the targets.
    Auto,
    /// None.
    #[default]
    None,
}

/// Use of the weights of samples ([`Samples::weights`](crate::Samples::weights)) in training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleWeighting {
    /// The terms of a sample in the loss are multiplied by its weight over the mean weight of the
    /// training samples. Validations, errors and baselines count all samples alike.
    Auto,
    /// All samples count alike.
    #[default]
    None,
}

/// Default of [`Config::keep_series`].
fn keeps_series() -> bool {
    true
}

/// Lower bound of the loss scale: gradients are divided in single precision by the loss scale times
/// the share of known targets.
const LOSS_SCALE_MIN: f32 = 1e-18;

impl Default for Config {
    fn default() -> Self {
        Config {
            model: ModelConfig::default(),
            dropout: 0.0,
            optimizer: OptimizerConfig::default(),
            lr_schedule: LrSchedule::default(),
            clip_norm: Some(1.0),
            loss: Loss::Mse,
            target_scaling: TargetScaling::None,
            sample_weights: SampleWeighting::None,
            epochs: 1,
            max_steps: None,
            batch_size: 128,
            gradient_accumulation_steps: 1,
            run_length: None,
            last_batch: LastBatch::Keep,
            carry_state: false,
            loss_on: LossOn::LastStep,
            gradient_checkpointing: false,
            seed: 0,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            validate_every_steps: None,
            validation_samples: None,
            early_stopping: None,
            divergence: Divergence::default(),
            precision: Precision::Fp32,
            tf32: false,
            autotune: Tuning::default(),
            keep_series: keeps_series(),
            keep_windows: false,
            chunk_windows: None,
            keep_graphs: false,
            loss_scale: ScalerConfig::default(),
            profile: false,
        }
    }
}

impl Config {
    /// True if the losses of training and validation are those of scaled targets.
    pub fn scales_targets(&self) -> bool {
        let has_head = self.model.graph.is_none_or(|graph| graph.output == GraphOutput::Linear);
        self.target_scaling == TargetScaling::Auto && has_head && self.loss.predicts_values()
    }

    /// Samples of one optimizer step.
    pub fn step_samples(&self) -> usize {
        self.batch_size.saturating_mul(self.gradient_accumulation_steps)
    }

    /// Samples in the largest batch of a step on the CPU. In dense training it is at least a shard
    /// of runs.
    pub(crate) fn batch_capacity(&self) -> usize {
        self.purpose().runs().map_or(self.batch_size, |runs| runs.samples().max(self.batch_size))
    }

    /// Samples in a run.
    pub fn run_samples(&self) -> usize {
        self.run_length.unwrap_or_else(|| self.step_samples())
    }

    fn check_tf32(&self) -> Result<()> {
        match self.precision {
            Precision::Bf16 | Precision::Fp16 if self.tf32 => {
                let expected = "false beside `precision` bf16 or fp16, by which products read 16 bits";
                Err(Error::setting("tf32", &true, expected))
            }
            _ => Ok(()),
        }
    }

    /// Arithmetic of fp32 products on a GPU.
    pub(crate) fn products(&self) -> Arithmetic {
        if self.tf32 { Arithmetic::Tf32 } else { Arithmetic::Exact }
    }

    fn check_loss_scale(&self) -> Result<()> {
        match self.loss_scale.check() {
            Err(amp::Error::Setting { setting, found, expected }) => {
                Err(Error::Scaling { setting: format!("loss_scale_{setting}"), found, expected })
            }
            Err(error) => Err(Error::Scale(error)),
            Ok(()) if self.loss_scale.floor < LOSS_SCALE_MIN => Err(Error::Scaling {
                setting: "loss_scale_floor".to_owned(),
                found: self.loss_scale.floor.to_string(),
                expected: "1e-18 or more",
            }),
            Ok(()) => Ok(()),
        }
    }

    fn check_gradient_checkpointing(&self) -> Result<()> {
        if !self.gradient_checkpointing || self.model.encoder == Encoder::Recurrent {
            return Ok(());
        }
        let expected = "false for a model without LSTMs, which has no steps to compute again";
        Err(Error::setting("gradient_checkpointing", &true, expected))
    }

    /// True if gradient checkpointing is possible.
    pub(crate) fn can_checkpoint_gradients(&self) -> bool {
        Config { gradient_checkpointing: true, ..self.clone() }.check_gradient_checkpointing().is_ok()
    }

    /// True if series in memory lie on a GPU that has the memory that was planned.
    pub(crate) fn keeps_series_on_gpu(&self) -> bool {
        self.keep_series || self.streams()
    }

    /// True if gradient checkpointing is possible on a GPU, where layers share the memory of gates.
    pub(crate) fn can_checkpoint_on_gpu(&self) -> bool {
        self.can_checkpoint_gradients() && self.model.layers > 1
    }

    pub(crate) fn compute(&self) -> Compute {
        Compute { threads: self.threads, batch_size: self.batch_size }
    }

    /// Purpose of the engine of a training run.
    pub(crate) fn purpose(&self) -> Purpose {
        let runs = match self.loss_on {
            LossOn::LastStep => None,
            LossOn::EveryStep => Some(Runs::for_steps(self.step_samples(), self.batch_size, self.run_samples())),
        };
        let kept = match (self.gradient_checkpointing, self.carry_state) {
            (false, _) => CheckpointPolicy::Everything,
            (true, false) => CheckpointPolicy::Half,
            (true, true) => CheckpointPolicy::HalfAndCells,
        };
        Purpose::Training { dropout: self.dropout_between_layers(), runs, kept }
    }

    /// True if there is dropout between layers.
    pub(crate) fn dropout_between_layers(&self) -> bool {
        self.dropout > 0.0 && self.model.encoder == Encoder::Recurrent && self.model.layers > 1
    }

    /// True if the model is evaluated in one pass over each segment, whichever windows are asked
    /// for.
    pub fn streams(&self) -> bool {
        self.carry_state || self.loss_on == LossOn::EveryStep
    }

    /// Dropout of optimizer step `step`, counted from 0.
    pub(crate) fn dropout_of_step(&self, step: u64) -> Result<Option<Dropout>> {
        match self.purpose() {
            Purpose::Training { dropout: true, .. } => Ok(Some(Dropout::for_step(self.dropout, self.seed, step)?)),
            _ => Ok(None),
        }
    }

    /// Refuses settings that a GPU does not support yet, see
    /// [`Trainer::on_gpu`](crate::Trainer::on_gpu).
    ///
    /// # Errors
    /// [`Error::NotOnGpu`] for the first of such settings.
    pub fn check_on_gpu(&self) -> Result<()> {
        check_encoder(&self.model)?;
        if self.loss_on == LossOn::EveryStep && self.model.pooling != Pooling::Last {
            return refuse_on_gpu("loss_on", &"every_step", "attention pooling");
        }
        if self.gradient_checkpointing && !self.can_checkpoint_on_gpu() {
            return refuse_on_gpu("gradient_checkpointing", &true, "fewer than two LSTM layers");
        }
        if self.profile { refuse_on_gpu("profile", &true, "") } else { Ok(()) }
    }

    /// Refuses settings that several ranks do not support yet.
    ///
    /// # Errors
    /// [`Error::NotDistributed`] for carried state.
    pub fn check_distributed(&self) -> Result<()> {
        if self.carry_state {
            return Err(Error::NotDistributed { setting: "carry_state", value: true.to_string() });
        }
        Ok(())
    }

    /// Settings of the CUDA engine.
    pub(crate) fn on_device(&self) -> ComputeConfig {
        ComputeConfig {
            loss: self.loss,
            precision: self.precision,
            arithmetic: self.products(),
            autotune: self.autotune,
            runs: self.purpose().runs(),
            gradient_checkpointing: self.gradient_checkpointing,
            drops_between_layers: self.dropout_between_layers(),
            has_moments: self.optimizer.kind.has_moments(),
        }
    }

    /// Refuses settings that are out of range or contradict each other, as
    /// [`Trainer::new`](crate::Trainer::new) does.
    ///
    /// # Errors
    /// [`Error::Setting`], here or of `megabatch_nn`, for the first of such settings;
    /// [`Error::Scaling`] for one of the loss scale.
    pub fn check(&self) -> Result<()> {
        check_rate(self.dropout)?;
        self.optimizer.check()?;
        self.lr_schedule.check(self.optimizer.lr)?;
        self.loss.check()?;
        self.loss.check_readout(self.model.readout)?;
        if self.carry_state {
            self.model.check_carried_state()?;
        } else if self.loss_on == LossOn::EveryStep && self.model.check_carried_state().is_err() {
            let expected = "last_step for a model over graphs, and for one without an LSTM";
            return Err(Error::setting("loss_on", &"every_step", expected));
        }
        check_precision(self.precision, &self.model)?;
        self.check_tf32()?;
        self.check_loss_scale()?;
        self.check_gradient_checkpointing()?;
        self.early_stopping.iter().try_for_each(EarlyStopping::check)?;
        self.divergence.check()?;
        let sizes = [
            ("batch_size", self.batch_size as u64),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps as u64),
            ("run_length", self.run_samples() as u64),
            ("threads", self.threads as u64),
            ("validate_every_steps", self.validate_every_steps.unwrap_or(1)),
            ("validation_samples", self.validation_samples.unwrap_or(1) as u64),
        ];
        if let Some((setting, _)) = sizes.into_iter().find(|&(_, size)| size == 0) {
            return Err(Error::setting(setting, &0, "1 or more"));
        }
        match self.clip_norm {
            Some(clip) if !(clip > 0.0 && clip.is_finite()) => {
                Err(Error::setting("clip_norm", &clip, "a positive number, or none"))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses 16 bits for a model over graphs.
pub(crate) fn check_precision(precision: Precision, model: &ModelConfig) -> Result<()> {
    if precision == Precision::Fp32 || !model.is_over_graphs() {
        return Ok(());
    }
    let expected = "fp32 for a model over graphs, whose attention is in single precision";
    Err(Error::setting("precision", &precision, expected))
}

/// The error for a `setting` that a GPU supports except `together_with` another property of the
/// run; empty if it never supports it.
pub(crate) fn refuse_on_gpu(setting: &'static str, value: &dyn Display, together_with: &'static str) -> Result<()> {
    Err(Error::NotOnGpu { setting, value: value.to_string(), together_with })
}
