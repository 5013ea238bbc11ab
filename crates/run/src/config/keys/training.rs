//! Settings of training.

use megabatch_amp::Precision;
use megabatch_nn::batch::LossOn;
use megabatch_nn::loss::{Ascending, Classes};
use megabatch_nn_cuda::Tuning;
use megabatch_trainer::{OptimizerKind, SampleWeighting, TargetScaling};

use super::choices::{LossKind, LrCurve, OnNan, RunLength, SampleLimit};
use super::setting::{Setting, auto_or_choice, choice, setting, settings};
use super::{COUNT, COUNT_OR_ZERO, Condition::*, Key, NOT_NEGATIVE, POSITIVE, THREAD_COUNT, or};
use crate::config::tasks::TaskList;
use crate::config::value::Kind;

settings! {
    /// Optimizer. `adamw` decays weights apart from the gradient; `adam` adds the decay to it.
    OPTIMIZER: OptimizerKind => optimizer.kind = choice("training.optimizer", "adamw");

    /// Learning rate; with a schedule, the highest.
    LR: f64 => optimizer.lr = setting("training.lr", POSITIVE, "0.001");

    /// Learning-rate schedule after the warm-up. `cosine`: half a cosine down to `training.lr_min`
    /// at the last step. `one_cycle`: PyTorch's OneCycleLR, without other warm-up.
    LR_SCHEDULE: LrCurve = choice("training.lr_schedule", "constant");

    /// Steps of linear warm-up to `training.lr`.
    WARMUP_STEPS: u64 => lr_schedule.warmup_steps = setting("training.warmup_steps", COUNT_OR_ZERO, "0");

    /// Learning rate at the end of the cosine.
    LR_MIN: f64 => lr_schedule.lr_min = setting("training.lr_min", NOT_NEGATIVE, "0")
        .only(&[LR_SCHEDULE.is(&["cosine"])]);

    /// Share of the steps in which `one_cycle` rises.
    PCT_START: f64 = setting("training.pct_start", Kind::Probability, "0.3")
        .only(&[LR_SCHEDULE.is(&["one_cycle"])]);

    /// `one_cycle` starts at `training.lr` divided by this, 1 or more.
    DIV_FACTOR: f64 = setting("training.div_factor", POSITIVE, "25")
        .only(&[LR_SCHEDULE.is(&["one_cycle"])]);

    /// `one_cycle` ends at its first rate divided by this, 1 or more.
    FINAL_DIV_FACTOR: f64 = setting("training.final_div_factor", POSITIVE, "10000")
        .only(&[LR_SCHEDULE.is(&["one_cycle"])]);

    /// Decay of Adam's running mean of the gradients.
    BETA1: f64 => optimizer.beta1 = setting("training.beta1", Kind::Probability, "0.9")
        .only(&[OPTIMIZER.is_not("sgd")]);

    /// Decay of Adam's running mean of the squared gradients.
    BETA2: f64 => optimizer.beta2 = setting("training.beta2", Kind::Probability, "0.999")
        .only(&[OPTIMIZER.is_not("sgd")]);

    /// Term that Adam adds to the root of the mean squared gradients.
    EPSILON: f64 => optimizer.epsilon = setting("training.epsilon", POSITIVE, "1e-8")
        .only(&[OPTIMIZER.is_not("sgd")]);

    /// Weight decay.
    WEIGHT_DECAY: f64 => optimizer.weight_decay = setting("training.weight_decay", NOT_NEGATIVE, "0.01");

    /// Maximum global norm of the gradients.
    CLIP_NORM: Option<f64> => clip_norm = setting("training.clip_norm", or("none", &POSITIVE), "1.0");

    /// Loss, averaged over the known targets of a step (NaN is unknown). `mse`: squared error.
    /// `huber`: linear beyond `training.huber_delta`. `quantile`: pinball loss. `cross_entropy`:
    /// classes by `training.thresholds` or `training.classes`, or class probabilities of graphs.
    /// `rank_pairwise` (RankNet), `rank_listwise` (ListNet): order of the nodes of a graph. `auto`:
    /// `cross_entropy` for graphs with class labels, else `mse`.
    LOSS: Option<LossKind> = auto_or_choice("training.loss").only(&[TASKS.is(&["none"])]);

    /// Error at which the loss becomes linear, in the unit of the targets as they are scaled.
    HUBER_DELTA: f64 = setting("training.huber_delta", POSITIVE, "1.0")
        .only(&[TASKS.is(&["none"]), LOSS.is(&["huber"])]);

    /// Predicted quantiles. RMSE, MAE and direction accuracy use the one nearest to 0.5, the lower
    /// of two.
    QUANTILE: Ascending = setting("training.quantile", Kind::Levels, "0.5")
        .only(&[TASKS.is(&["none"]), LOSS.is(&["quantile"])]);

    /// Boundaries between classes, in the unit of the targets: [-5, 5] makes class 0 up to -5,
    /// class 1 up to 5, class 2 above.
    THRESHOLDS: Option<Ascending> = setting("training.thresholds", or("none", &Kind::Ascending), "none")
        .only(&[TASKS.is(&["none"]), LOSS.is(&["cross_entropy"])]);

    /// Number of classes if targets are class numbers from 0.
    CLASSES: Option<usize> =
        setting("training.classes", or("none", &Kind::Count { min: 2, max: Classes::MAX as u64 }), "none")
        .only(&[TASKS.is(&["none"]), LOSS.is(&["cross_entropy"])]);

    /// Divisor of the targets, in their unit. Far below their spread only the best node counts; far
    /// above, nothing is learned. `auto`: their deviation within a graph over the training part;
    /// the run keeps it.
    RANK_TEMPERATURE: Option<f64> = setting("training.rank_temperature", or("auto", &POSITIVE), "auto")
        .only(&[TASKS.is(&["none"]), LOSS.is(&["rank_listwise"])]);

    /// Several losses, each for a range of consecutive targets, in place of `training.loss`: `loss`
    /// (mse, huber, quantile or cross_entropy), its option (`huber_delta`, `quantile`, `classes` or
    /// `thresholds`) and `weight`. The ranges cover all targets. Weights sum to one, or all are
    /// omitted. The objective is the weighted sum of the means over known targets.
    TASKS: Option<TaskList> = setting("training.tasks", Kind::Tasks, "none");

    /// Scaling of targets in training. `auto`: each by mean and deviation of its known training
    /// values, for `mse`, `huber` and `quantile`. Losses are those of scaled targets; predictions,
    /// errors and saved weights keep the targets' unit. `none` with `--init` and in `import`.
    TARGET_SCALING: TargetScaling => target_scaling = choice("training.target_scaling", "auto")
        .only(&[LOSS.is(&["auto", "mse", "huber", "quantile"])]);

    /// Use of the weights of samples (`/samples/weight`) in training. `auto`: the loss of a sample
    /// is multiplied by its weight over the mean weight of the training samples; validations,
    /// errors and baselines count all samples alike.
    SAMPLE_WEIGHTS: SampleWeighting => sample_weights = choice("training.sample_weights", "auto");

    /// Reaction to an infinite or NaN loss or gradient, or a loss spike. `rollback`: back to the
    /// last checkpoint, with half the learning rate; a checkpoint is saved before the first step.
    /// `stop`: exit code 5.
    ON_NAN: OnNan = choice("training.on_nan", "rollback");

    /// Rollbacks, including those before a resume, after which the run ends with exit code 5.
    MAX_ROLLBACKS: u32 = setting("training.max_rollbacks", Kind::Count { min: 1, max: 100 }, "3")
        .only(&[ON_NAN.is(&["rollback"])]);

    /// A loss above this multiple of the median of the last 32 steps (at least 8) counts as NaN.
    LOSS_SPIKE_FACTOR: Option<f64> => divergence.loss_spike_factor =
        setting("training.loss_spike_factor", or("none", &Kind::Number { above: 1.0 }), "none");

    /// Passes over the training split, unless `training.max_steps` is set.
    EPOCHS: u64 => epochs = setting("training.epochs", COUNT, "10");

    /// Steps between validations, besides those at the end of each epoch.
    VALIDATE_EVERY_STEPS: Option<u64> => validate_every_steps =
        setting("training.validate_every_steps", or("epoch", &COUNT), "epoch")
        .only(&[OnValidation]);

    /// Most samples, cross-sections or graphs of a validation: evenly spaced runs of 64, always the
    /// same, the first and the last of the part among them. With carried state and in dense
    /// training: up to 16 longer runs, each after a warm-up of four windows. `auto` is 20000. A
    /// resumed run keeps it.
    VALIDATION_SAMPLES: SampleLimit =
        setting("training.validation_samples", or("auto", &or("all", &COUNT)), "auto");

    /// Most samples, cross-sections or graphs of the errors at the end of `train`, chosen as in a
    /// validation. `auto`: all if they take at most a tenth of the work of training, else 20000.
    /// Errors of fewer than all are estimates with standard errors. `eval` takes all.
    TEST_SAMPLES: SampleLimit = setting("training.test_samples", or("auto", &or("all", &COUNT)), "auto");

    /// Validations without improvement after which the run ends.
    EARLY_STOPPING: Option<u32> = setting("training.early_stopping", or("none", &COUNT), "none")
        .only(&[OnValidation]);

    /// Smallest decrease of the validation loss that is an improvement.
    EARLY_STOPPING_MIN_DELTA: f64 = setting("training.early_stopping_min_delta", NOT_NEGATIVE, "0")
        .only(&[EARLY_STOPPING.is_not("none")]);

    /// Optimizer steps of the run; the same as `--max-steps`.
    MAX_STEPS: Option<u64> => max_steps = setting("training.max_steps", or("none", &COUNT), "none");

    /// Precision of the inputs of matrix products and of the recurrence; the rest, including stored
    /// weights, is fp32. On a CPU bf16 is faster with AMX, or AMD's AVX512_BF16, and not measured
    /// with Arm's BF16; elsewhere it, and fp16 always, imitate a GPU and save no time. `auto`:
    /// fp32, or fp16 with `gpu_optimization.use_amp`. `16-mixed` is fp16, `bf16-mixed` bf16.
    PRECISION: Option<Precision> = auto_or_choice("training.precision");

    /// A GPU rounds the fp32 inputs of matrix products to TF32 (11 significant bits); the rest
    /// stays fp32. With bf16 or fp16 it is an error.
    TF32: bool => tf32 = setting("training.tf32", Kind::Bool, "false").only(&[OnGpus]);

    /// Choice of a GPU's kernels. `off`: by shape. `deterministic`: the fastest of those with the
    /// same bits, measured once for each GPU and shape and kept in the cache folder
    /// (`XDG_CACHE_HOME` or `~/.cache`). `fast`: the fastest of all, with cuBLASLt if installed;
    /// rounding depends on GPU and measurement.
    AUTOTUNE: Tuning => autotune = choice("training.autotune", "deterministic").only(&[OnGpus]);

    /// First loss scale. Powers of two, here and for the factors, keep scaling exact.
    LOSS_SCALE_INITIAL: f32 => loss_scale.initial =
        setting("training.loss_scale_initial", POSITIVE, "65536")
        .only(&[WithFp16]);

    /// Growth factor of the loss scale.
    LOSS_SCALE_GROWTH_FACTOR: f64 => loss_scale.growth_factor =
        setting("training.loss_scale_growth_factor", Kind::Number { above: 1.0 }, "2")
        .only(&[WithFp16]);

    /// Backoff factor of the loss scale after an overflow, below 1. The overflowed step is skipped.
    LOSS_SCALE_BACKOFF_FACTOR: f64 => loss_scale.backoff_factor =
        setting("training.loss_scale_backoff_factor", POSITIVE, "0.5")
        .only(&[WithFp16]);

    /// Steps without overflow after which the loss scale grows.
    LOSS_SCALE_GROWTH_INTERVAL: u32 => loss_scale.growth_interval =
        setting("training.loss_scale_growth_interval", COUNT, "2000")
        .only(&[WithFp16]);

    /// Overflows in a row needed to lower the loss scale.
    LOSS_SCALE_HYSTERESIS: u32 => loss_scale.hysteresis =
        setting("training.loss_scale_hysteresis", COUNT, "1")
        .only(&[WithFp16]);

    /// Smallest loss scale. An overflow at it counts as NaN (`training.on_nan`).
    LOSS_SCALE_FLOOR: f32 => loss_scale.floor = setting("training.loss_scale_floor", POSITIVE, "1")
        .only(&[WithFp16]);

    /// Largest loss scale.
    LOSS_SCALE_CEILING: f32 => loss_scale.ceiling =
        setting("training.loss_scale_ceiling", POSITIVE, "16777216")
        .only(&[WithFp16]);

    /// Steps between checkpoints, besides those at the end of each epoch and after the best
    /// validation so far.
    CHECKPOINT_EVERY_STEPS: Option<u64> =
        setting("training.checkpoint_every_steps", or("epoch", &COUNT), "epoch");

    /// Number of newest checkpoints kept.
    KEEP_CHECKPOINTS: usize = setting("training.keep_checkpoints", COUNT, "3");

    /// The checkpoint with the best validation loss is kept too, and evaluated.
    KEEP_BEST_CHECKPOINT: bool = setting("training.keep_best_checkpoint", Kind::Bool, "true");

    /// Consecutive samples that stay together when the order is shuffled; 1 for a full shuffle,
    /// `batch` for those of an optimizer step. `auto`: 1 for graphs of a file and windows that do
    /// not overlap, else `batch`. The run keeps it.
    RUN_LENGTH: RunLength = setting("training.run_length", or("auto", &or("batch", &COUNT)), "auto");

    /// Seed of the initial weights and of the order of samples.
    SEED: u64 => seed = setting("training.seed", COUNT_OR_ZERO, "0");

    /// A window starts from the state last computed at the bar before it instead of zeros.
    CARRY_STATE: bool => carry_state = setting("training.carry_state", Kind::Bool, "false");

    /// Steps with a loss. `last_step`: the last of each window. `every_step` (dense training):
    /// every bar of a sample run, all computed in one pass. Use runs several times as long as a
    /// window, and many runs a batch.
    LOSS_ON: LossOn => loss_on = choice("training.loss_on", "last_step");

    /// Half of the LSTMs' gates are computed again in the backward pass: less memory, more time,
    /// the same bits. On a GPU those of all layers below the top one; one layer is refused there.
    GRADIENT_CHECKPOINTING: bool => gradient_checkpointing =
        setting("training.gradient_checkpointing", Kind::Bool, "false");

    /// Logs the time of each layer of each timeframe in every step: projection, recurrence,
    /// backward pass, weight gradients. Measuring takes some time.
    PROFILE: bool => profile = setting("training.profile", Kind::Bool, "false");

    /// Threads that compute. Any number gives the same bits.
    THREADS: Option<usize> = setting("training.threads", or("all", &THREAD_COUNT), "all");
}
