//! Settings of training.

use megabatch_nn::loss::Classes;

use super::{COUNT, COUNT_OR_ZERO, Condition, Key, NOT_NEGATIVE, POSITIVE, THREADS, key};
use crate::config::value::Kind;

pub(super) const KEYS: &[Key] = &[
    key(
        "training.optimizer",
        Kind::Choice { now: &["adamw", "adam", "sgd"], later: "" },
        "adamw",
        "Optimizer. `adamw` decays weights apart from the gradient; `adam` adds the decay to it.",
    ),
    key("training.lr", POSITIVE, "0.001", "Learning rate; with a schedule, the highest."),
    key(
        "training.lr_schedule",
        Kind::Choice { now: &["constant", "cosine", "one_cycle"], later: "" },
        "constant",
        "Learning-rate schedule after the warm-up. `cosine`: half a cosine down to \
         `training.lr_min` at the last step. `one_cycle`: PyTorch's OneCycleLR, without other \
         warm-up.",
    ),
    key("training.warmup_steps", COUNT_OR_ZERO, "0", "Steps of linear warm-up to `training.lr`."),
    key("training.lr_min", NOT_NEGATIVE, "0", "Learning rate at the end of the cosine.")
        .only(&[Condition::With { key: "training.lr_schedule", values: &["cosine"] }]),
    key("training.pct_start", Kind::Probability, "0.3", "Share of the steps in which `one_cycle` rises.")
        .only(&[Condition::With { key: "training.lr_schedule", values: &["one_cycle"] }]),
    key("training.div_factor", POSITIVE, "25", "`one_cycle` starts at `training.lr` divided by this, 1 or more.")
        .only(&[Condition::With { key: "training.lr_schedule", values: &["one_cycle"] }]),
    key(
        "training.final_div_factor",
        POSITIVE,
        "10000",
        "`one_cycle` ends at its first rate divided by this, 1 or more.",
    )
    .only(&[Condition::With { key: "training.lr_schedule", values: &["one_cycle"] }]),
    key("training.beta1", Kind::Probability, "0.9", "Decay of Adam's running mean of the gradients.")
        .only(&[Condition::Without { key: "training.optimizer", value: "sgd" }]),
    key("training.beta2", Kind::Probability, "0.999", "Decay of Adam's running mean of the squared gradients.")
        .only(&[Condition::Without { key: "training.optimizer", value: "sgd" }]),
    key("training.epsilon", POSITIVE, "1e-8", "Term that Adam adds to the root of the mean squared gradients.")
        .only(&[Condition::Without { key: "training.optimizer", value: "sgd" }]),
    key("training.weight_decay", NOT_NEGATIVE, "0.01", "Weight decay."),
    key(
        "training.clip_norm",
        Kind::OrWord { word: "none", otherwise: &POSITIVE },
        "1.0",
        "Maximum global norm of the gradients.",
    ),
    key(
        "training.loss",
        Kind::Choice {
            now: &["auto", "mse", "huber", "quantile", "cross_entropy", "rank_pairwise", "rank_listwise"],
            later: "",
        },
        "auto",
        "Loss, averaged over the known targets of a step (NaN is unknown). `mse`: squared error. \
         `huber`: linear beyond `training.huber_delta`. `quantile`: pinball loss. `cross_entropy`: \
         classes by `training.thresholds` or `training.classes`, or class probabilities of graphs. \
         `rank_pairwise` (RankNet), `rank_listwise` (ListNet): order of the nodes of a graph. \
         `auto`: `cross_entropy` for graphs with class labels, else `mse`.",
    )
    .only(&[Condition::With { key: "training.tasks", values: &["none"] }]),
    key("training.huber_delta", POSITIVE, "1.0", "Error at which the loss becomes linear, in the unit of the targets.")
        .only(&[
            Condition::With { key: "training.tasks", values: &["none"] },
            Condition::With { key: "training.loss", values: &["huber"] },
        ]),
    key(
        "training.quantile",
        Kind::Levels,
        "0.5",
        "Predicted quantiles. RMSE, MAE and direction accuracy use the one nearest to 0.5, the \
         lower of two.",
    )
    .only(&[
        Condition::With { key: "training.tasks", values: &["none"] },
        Condition::With { key: "training.loss", values: &["quantile"] },
    ]),
    key(
        "training.thresholds",
        Kind::OrWord { word: "none", otherwise: &Kind::Ascending },
        "none",
        "Boundaries between classes, in the unit of the targets: [-5, 5] makes class 0 up to -5, \
         class 1 up to 5, class 2 above.",
    )
    .only(&[
        Condition::With { key: "training.tasks", values: &["none"] },
        Condition::With { key: "training.loss", values: &["cross_entropy"] },
    ]),
    key(
        "training.classes",
        Kind::OrWord { word: "none", otherwise: &Kind::Count { min: 2, max: Classes::MAX as u64 } },
        "none",
        "Number of classes if targets are class numbers from 0.",
    )
    .only(&[
        Condition::With { key: "training.tasks", values: &["none"] },
        Condition::With { key: "training.loss", values: &["cross_entropy"] },
    ]),
    key(
        "training.rank_temperature",
        Kind::OrWord { word: "auto", otherwise: &POSITIVE },
        "auto",
        "Divisor of the targets, in their unit. Far below their spread only the best node counts; \
         far above, nothing is learned. `auto`: their deviation within a graph over the training \
         part; the run keeps it.",
    )
    .only(&[
        Condition::With { key: "training.tasks", values: &["none"] },
        Condition::With { key: "training.loss", values: &["rank_listwise"] },
    ]),
    key(
        "training.tasks",
        Kind::Tasks,
        "none",
        "Several losses, each for a range of consecutive targets, in place of `training.loss`: \
         `loss` (mse, huber, quantile or cross_entropy), its option (`huber_delta`, `quantile`, \
         `classes` or `thresholds`) and `weight`. The ranges cover all targets. Weights sum to \
         one, or all are omitted. The objective is the weighted sum of the means over known \
         targets.",
    ),
    key(
        "training.on_nan",
        Kind::Choice { now: &["stop", "rollback"], later: "" },
        "rollback",
        "Reaction to an infinite or NaN loss or gradient, or a loss spike. `rollback`: back to \
         the last checkpoint, with half the learning rate; a checkpoint is saved before the first \
         step. `stop`: exit code 5.",
    ),
    key(
        "training.max_rollbacks",
        Kind::Count { min: 1, max: 100 },
        "3",
        "Rollbacks, including those before a resume, after which the run ends with exit code 5.",
    )
    .only(&[Condition::With { key: "training.on_nan", values: &["rollback"] }]),
    key(
        "training.loss_spike_factor",
        Kind::OrWord { word: "none", otherwise: &Kind::Number { above: 1.0 } },
        "none",
        "A loss above this multiple of the median of the last 32 steps (at least 8) counts as NaN.",
    ),
    key("training.epochs", COUNT, "10", "Passes over the training split, unless `training.max_steps` is set."),
    key(
        "training.validate_every_steps",
        Kind::OrWord { word: "epoch", otherwise: &COUNT },
        "epoch",
        "Steps between validations, besides those at the end of each epoch.",
    )
    .only(&[Condition::OnValidation]),
    key(
        "training.validation_samples",
        Kind::OrWord { word: "auto", otherwise: &Kind::OrWord { word: "all", otherwise: &COUNT } },
        "auto",
        "Most samples, cross-sections or graphs of a validation: evenly spaced runs of 64, always \
         the same, the first and the last of the part among them. With carried state and in dense \
         training: up to 16 longer runs, each after a warm-up of four windows. `auto` is 20000. A \
         resumed run keeps it.",
    ),
    key(
        "training.test_samples",
        Kind::OrWord { word: "auto", otherwise: &Kind::OrWord { word: "all", otherwise: &COUNT } },
        "auto",
        "Most samples, cross-sections or graphs of the errors at the end of `train`, chosen as in \
         a validation. `auto`: all if they take at most a tenth of the work of training, else \
         20000. Errors of fewer than all are estimates with standard errors. `eval` takes all.",
    ),
    key(
        "training.early_stopping",
        Kind::OrWord { word: "none", otherwise: &COUNT },
        "none",
        "Validations without improvement after which the run ends.",
    )
    .only(&[Condition::OnValidation]),
    key(
        "training.early_stopping_min_delta",
        NOT_NEGATIVE,
        "0",
        "Smallest decrease of the validation loss that is an improvement.",
    )
    .only(&[Condition::Without { key: "training.early_stopping", value: "none" }]),
    key(
        "training.max_steps",
        Kind::OrWord { word: "none", otherwise: &COUNT },
        "none",
        "Optimizer steps of the run; the same as `--max-steps`.",
    ),
    key(
        "training.precision",
        Kind::Choice { now: &["auto", "fp32", "bf16", "fp16", "bf16-mixed", "16-mixed"], later: "" },
        "auto",
        "Precision of the inputs of matrix products and of the recurrence; the rest, including \
         stored weights, is fp32. On a CPU bf16 is faster with AMX, or AMD's AVX512_BF16; \
         elsewhere it, and fp16 always, imitate a GPU and save no time. `auto`: fp32, or fp16 with \
         `gpu_optimization.use_amp`. `16-mixed` is fp16, `bf16-mixed` bf16.",
    ),
    key(
        "training.tf32",
        Kind::Bool,
        "false",
        "A GPU rounds the fp32 inputs of matrix products to TF32 (11 significant bits); the rest \
         stays fp32. With bf16 or fp16 it is an error.",
    )
    .only(&[Condition::OnGpus]),
    key(
        "training.autotune",
        Kind::Choice { now: &["off", "deterministic", "fast"], later: "" },
        "deterministic",
        "Choice of a GPU's kernels. `off`: by shape. `deterministic`: the fastest of those with \
         the same bits, measured once for each GPU and shape and kept in the cache folder \
         (`XDG_CACHE_HOME` or `~/.cache`). `fast`: the fastest of all, with cuBLASLt if installed; \
         rounding depends on GPU and measurement.",
    )
    .only(&[Condition::OnGpus]),
    key(
        "training.loss_scale_initial",
        POSITIVE,
        "65536",
        "First loss scale. Powers of two, here and for the factors, keep scaling exact.",
    )
    .only(&[Condition::WithFp16]),
    key("training.loss_scale_growth_factor", Kind::Number { above: 1.0 }, "2", "Growth factor of the loss scale.")
        .only(&[Condition::WithFp16]),
    key(
        "training.loss_scale_backoff_factor",
        POSITIVE,
        "0.5",
        "Backoff factor of the loss scale after an overflow, below 1. The overflowed step is \
         skipped.",
    )
    .only(&[Condition::WithFp16]),
    key(
        "training.loss_scale_growth_interval",
        COUNT,
        "2000",
        "Steps without overflow after which the loss scale grows.",
    )
    .only(&[Condition::WithFp16]),
    key("training.loss_scale_hysteresis", COUNT, "1", "Overflows in a row needed to lower the loss scale.")
        .only(&[Condition::WithFp16]),
    key(
        "training.loss_scale_floor",
        POSITIVE,
        "1",
        "Smallest loss scale. An overflow at it counts as NaN (`training.on_nan`).",
    )
    .only(&[Condition::WithFp16]),
    key("training.loss_scale_ceiling", POSITIVE, "16777216", "Largest loss scale.").only(&[Condition::WithFp16]),
    key(
        "training.checkpoint_every_steps",
        Kind::OrWord { word: "epoch", otherwise: &COUNT },
        "epoch",
        "Steps between checkpoints, besides those at the end of each epoch and after the best \
         validation so far.",
    ),
    key("training.keep_checkpoints", COUNT, "3", "Number of newest checkpoints kept."),
    key(
        "training.keep_best_checkpoint",
        Kind::Bool,
        "true",
        "The checkpoint with the best validation loss is kept too, and evaluated.",
    ),
    key(
        "training.run_length",
        Kind::OrWord { word: "auto", otherwise: &Kind::OrWord { word: "batch", otherwise: &COUNT } },
        "auto",
        "Consecutive samples that stay together when the order is shuffled; 1 for a full shuffle, \
         `batch` for those of an optimizer step. `auto`: 1 for graphs of a file and windows that \
         do not overlap, else `batch`. The run keeps it.",
    ),
    key("training.seed", COUNT_OR_ZERO, "0", "Seed of the initial weights and of the order of samples."),
    key(
        "training.carry_state",
        Kind::Bool,
        "false",
        "A window starts from the state last computed at the bar before it instead of zeros.",
    ),
    key(
        "training.loss_on",
        Kind::Choice { now: &["last_step", "every_step"], later: "" },
        "last_step",
        "Steps with a loss. `last_step`: the last of each window. `every_step` (dense training): \
         every bar of a sample run, all computed in one pass. Use runs several times as long as a \
         window, and many runs a batch.",
    ),
    key(
        "training.gradient_checkpointing",
        Kind::Bool,
        "false",
        "Half of the LSTMs' gates are computed again in the backward pass: less memory, more \
         time, the same bits.",
    ),
    key(
        "training.profile",
        Kind::Bool,
        "false",
        "Logs the time of each layer of each timeframe in every step: projection, recurrence, \
         backward pass, weight gradients. Measuring takes some time.",
    ),
    key(
        "training.form",
        Kind::Choice { now: &["fast", "plain"], later: "" },
        "fast",
        "Read from configurations of earlier versions, which had a second form of the computation.",
    )
    .only(&[Condition::Never { because: "there is one form of the computation" }]),
    key(
        "training.threads",
        Kind::OrWord { word: "all", otherwise: &THREADS },
        "all",
        "Threads that compute. Any number gives the same bits.",
    ),
];
