//! Settings of training.

use megabatch_nn::loss::Classes;

use super::{Acts, COUNT, COUNT_OR_ZERO, Key, NOT_NEGATIVE, POSITIVE, THREADS, key};
use crate::config::value::Kind;

pub(super) const KEYS: &[Key] = &[
    key(
        "training.optimizer",
        Kind::Choice { now: &["adamw", "adam", "sgd"], later: "" },
        "adamw",
        "Optimizer. `adamw` decays weights apart from the gradient; `adam` adds the decay to the \
         gradient.",
    ),
    key("training.lr", POSITIVE, "0.001", "Learning rate; with a schedule, the highest."),
    key(
        "training.lr_schedule",
        Kind::Choice { now: &["constant", "cosine", "one_cycle"], later: "" },
        "constant",
        "Learning-rate schedule after the warm-up. `cosine`: half a cosine down to \
         `training.lr_min` at the last step. `one_cycle`: PyTorch's OneCycleLR, half a cosine up \
         to `training.lr` and another one down, without other warm-up.",
    ),
    key("training.warmup_steps", COUNT_OR_ZERO, "0", "Steps of linear warm-up to `training.lr`."),
    key("training.lr_min", NOT_NEGATIVE, "0", "Learning rate at the end of the cosine.")
        .only(&[Acts::With { key: "training.lr_schedule", values: &["cosine"] }]),
    key("training.pct_start", Kind::Probability, "0.3", "Share of the steps in which `one_cycle` rises.")
        .only(&[Acts::With { key: "training.lr_schedule", values: &["one_cycle"] }]),
    key("training.div_factor", POSITIVE, "25", "`one_cycle` starts at `training.lr` divided by this, 1 or more.")
        .only(&[Acts::With { key: "training.lr_schedule", values: &["one_cycle"] }]),
    key(
        "training.final_div_factor",
        POSITIVE,
        "10000",
        "`one_cycle` ends at its first rate divided by this, 1 or more.",
    )
    .only(&[Acts::With { key: "training.lr_schedule", values: &["one_cycle"] }]),
    key("training.beta1", Kind::Probability, "0.9", "Decay of Adam's running mean of the gradients.")
        .only(&[Acts::Without { key: "training.optimizer", value: "sgd" }]),
    key("training.beta2", Kind::Probability, "0.999", "Decay of Adam's running mean of the squared gradients.")
        .only(&[Acts::Without { key: "training.optimizer", value: "sgd" }]),
    key(
        "training.epsilon",
        POSITIVE,
        "1e-8",
        "Term that Adam adds to the root of the mean squared gradients before dividing by it.",
    )
    .only(&[Acts::Without { key: "training.optimizer", value: "sgd" }]),
    key("training.weight_decay", NOT_NEGATIVE, "0.01", "Weight decay."),
    key(
        "training.clip_norm",
        Kind::OrWord { word: "none", otherwise: &POSITIVE },
        "1.0",
        "Maximum global norm of the gradients; larger gradients are scaled down to it.",
    ),
    key(
        "training.loss",
        Kind::Choice {
            now: &["auto", "mse", "huber", "quantile", "cross_entropy", "rank_pairwise", "rank_listwise"],
            later: "",
        },
        "auto",
        "Loss, as the mean over the known targets of a step; NaN marks an unknown target. `mse`: \
         mean squared error. `huber`: linear beyond `training.huber_delta`. `quantile`: pinball \
         loss at `training.quantile`. `cross_entropy`: classes by `training.thresholds` or \
         `training.classes`, or class probabilities of graphs. `rank_pairwise` (RankNet), \
         `rank_listwise` (ListNet): order of the nodes within each graph. `auto` is \
         `cross_entropy` for graphs with class labels, else `mse`.",
    )
    .only(&[Acts::With { key: "training.tasks", values: &["none"] }]),
    key(
        "training.huber_delta",
        POSITIVE,
        "1.0",
        "Error at which Huber's loss becomes linear, in units of the targets.",
    )
    .only(&[
        Acts::With { key: "training.tasks", values: &["none"] },
        Acts::With { key: "training.loss", values: &["huber"] },
    ]),
    key(
        "training.quantile",
        Kind::Levels,
        "0.5",
        "Quantile that `quantile` predicts; 0.5 is the median. With a list, such as [0.1, 0.5, \
         0.9], the model predicts each. RMSE, MAE and direction accuracy use the quantile nearest \
         to 0.5, the lower of two.",
    )
    .only(&[
        Acts::With { key: "training.tasks", values: &["none"] },
        Acts::With { key: "training.loss", values: &["quantile"] },
    ]),
    key(
        "training.thresholds",
        Kind::OrWord { word: "none", otherwise: &Kind::Ascending },
        "none",
        "Boundaries that turn targets into classes for `cross_entropy`, in units of the targets: \
         [-5, 5] makes class 0 up to -5, class 1 up to 5, class 2 above. The model has an output \
         for each class and target.",
    )
    .only(&[
        Acts::With { key: "training.tasks", values: &["none"] },
        Acts::With { key: "training.loss", values: &["cross_entropy"] },
    ]),
    key(
        "training.classes",
        Kind::OrWord { word: "none", otherwise: &Kind::Count { min: 2, max: Classes::MAX as u64 } },
        "none",
        "Number of classes of `cross_entropy` if targets are class numbers from 0.",
    )
    .only(&[
        Acts::With { key: "training.tasks", values: &["none"] },
        Acts::With { key: "training.loss", values: &["cross_entropy"] },
    ]),
    key(
        "training.rank_temperature",
        Kind::OrWord { word: "auto", otherwise: &POSITIVE },
        "auto",
        "Divisor of the targets for `rank_listwise`, in their unit. If it is far below their \
         spread, only the best node of each graph counts; if far above, all count alike and \
         nothing is learned. `auto` is their deviation within a graph over the training part; the \
         run keeps it.",
    )
    .only(&[
        Acts::With { key: "training.tasks", values: &["none"] },
        Acts::With { key: "training.loss", values: &["rank_listwise"] },
    ]),
    key(
        "training.tasks",
        Kind::Tasks,
        "none",
        "Several losses at once, in place of `training.loss`: consecutive groups of targets from \
         0 to the last, each with a `loss` (mse, huber, quantile or cross_entropy), its option \
         (`huber_delta`, `quantile`, `classes` or `thresholds`) and a `weight`. Weights sum to \
         one, or all are omitted. The objective is the weighted sum of each group's mean over its \
         known targets; a group without known targets adds nothing to a step.",
    ),
    key(
        "training.on_nan",
        Kind::Choice { now: &["stop", "rollback"], later: "" },
        "rollback",
        "Reaction to an infinite or NaN loss or gradient, and to a loss spike. `rollback` returns \
         to the last checkpoint and continues with half the learning rate; such a run saves a \
         checkpoint before its first step. `stop` ends the run with exit code 5.",
    ),
    key(
        "training.max_rollbacks",
        Kind::Count { min: 1, max: 100 },
        "3",
        "Rollbacks of a run, including those before a resume, after which it ends with exit code \
         5.",
    )
    .only(&[Acts::With { key: "training.on_nan", values: &["rollback"] }]),
    key(
        "training.loss_spike_factor",
        Kind::OrWord { word: "none", otherwise: &Kind::Number { above: 1.0 } },
        "none",
        "A loss above this multiple of the median of the last 32 steps (8 at least) is treated as \
         NaN.",
    ),
    key("training.epochs", COUNT, "10", "Passes over the training split. `training.max_steps` takes precedence."),
    key(
        "training.validate_every_steps",
        Kind::OrWord { word: "epoch", otherwise: &COUNT },
        "epoch",
        "Steps between two validations, besides those at the end of every epoch.",
    )
    .only(&[Acts::OnValidation]),
    key(
        "training.validation_samples",
        Kind::OrWord { word: "auto", otherwise: &Kind::OrWord { word: "all", otherwise: &COUNT } },
        "auto",
        "Most samples, cross-sections or graphs that a validation takes: evenly spaced runs of \
         64, the same every time, the first and the last of their part among them. With carried \
         state and in dense training, up to 16 longer runs, each after a warm-up of four windows. \
         `auto` is 20000. A resumed run keeps it.",
    ),
    key(
        "training.test_samples",
        Kind::OrWord { word: "auto", otherwise: &Kind::OrWord { word: "all", otherwise: &COUNT } },
        "auto",
        "Most samples, cross-sections or graphs that the errors at the end of `train` are computed \
         from, chosen as `training.validation_samples` says. `auto` takes all where that is at \
         most a tenth of the work of training, or 20000 samples; from fewer than all, errors are \
         estimates, with their standard errors. `eval` takes all, unless `--samples` says \
         otherwise.",
    ),
    key(
        "training.early_stopping",
        Kind::OrWord { word: "none", otherwise: &COUNT },
        "none",
        "Validations in a row without improvement after which the run ends.",
    )
    .only(&[Acts::OnValidation]),
    key(
        "training.early_stopping_min_delta",
        NOT_NEGATIVE,
        "0",
        "Minimum decrease of the best validation loss that counts as an improvement.",
    )
    .only(&[Acts::Without { key: "training.early_stopping", value: "none" }]),
    key(
        "training.max_steps",
        Kind::OrWord { word: "none", otherwise: &COUNT },
        "none",
        "Optimizer steps after which the run ends; takes precedence over `training.epochs`. The \
         same as `--max-steps`.",
    ),
    key(
        "training.precision",
        Kind::Choice { now: &["auto", "fp32", "bf16", "fp16", "bf16-mixed", "16-mixed"], later: "" },
        "auto",
        "Precision of the inputs of matrix products and the recurrence; everything else, \
         including the stored weights, is fp32. fp16 scales the loss. On the CPU, bf16 is \
         faster than fp32 with AMX, or with AVX512_BF16 of AMD; elsewhere it, and fp16 always, show \
         a GPU's rounding and save no time. `auto` is fp32, or fp16 with \
         `gpu_optimization.use_amp`; `16-mixed` is fp16, `bf16-mixed` bf16.",
    ),
    key(
        "training.tf32",
        Kind::Bool,
        "false",
        "A GPU rounds the fp32 inputs of matrix products to TF32 for its tensor cores: 11 \
         significant bits, the range of fp32. The recurrence and everything else stay in fp32. A \
         CPU ignores it and notes so; with bf16 or fp16 it is an error.",
    )
    .only(&[Acts::OnGpus]),
    key(
        "training.autotune",
        Kind::Choice { now: &["off", "deterministic", "fast"], later: "" },
        "deterministic",
        "Choice among a GPU's kernels. `off`: by rules on shapes. `deterministic`: the fastest by \
         measurement among those with the rules' bits, measured once a GPU and shape and stored \
         in the cache folder, below `XDG_CACHE_HOME` or `~/.cache`. `fast`: the fastest of all, \
         including cuBLASLt if installed; sums may be added in another order, so another GPU or \
         another measurement rounds differently. Without effect on the CPU.",
    )
    .only(&[Acts::OnGpus]),
    key(
        "training.loss_scale_initial",
        POSITIVE,
        "65536",
        "Loss scale of the first step in fp16. Powers of two, here and for the two factors, keep \
         scaling exact.",
    )
    .only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_growth_factor",
        Kind::Number { above: 1.0 },
        "2",
        "Growth factor of the loss scale, after `training.loss_scale_growth_interval` steps in a \
         row without overflow.",
    )
    .only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_backoff_factor",
        POSITIVE,
        "0.5",
        "Backoff factor of the loss scale after an overflow, below 1. The step that overflowed is skipped.",
    )
    .only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_growth_interval",
        COUNT,
        "2000",
        "Steps in a row without overflow after which the loss scale grows.",
    )
    .only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_hysteresis",
        COUNT,
        "1",
        "Consecutive overflows needed to lower the loss scale; earlier ones only skip their step.",
    )
    .only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_floor",
        POSITIVE,
        "1",
        "Floor of the loss scale. An overflow at the floor counts as a NaN (`training.on_nan`) \
         and names the first tensor that overflowed.",
    )
    .only(&[Acts::WithFp16]),
    key("training.loss_scale_ceiling", POSITIVE, "16777216", "Largest loss scale.").only(&[Acts::WithFp16]),
    key(
        "training.checkpoint_every_steps",
        Kind::OrWord { word: "epoch", otherwise: &COUNT },
        "epoch",
        "Steps between two checkpoints, besides those at the end of every epoch and after every \
         validation that was the best so far.",
    ),
    key("training.keep_checkpoints", COUNT, "3", "Number of newest checkpoints kept."),
    key(
        "training.keep_best_checkpoint",
        Kind::Bool,
        "true",
        "The checkpoint with the best validation loss is kept as well; without it, evaluation \
         uses the last one.",
    ),
    key(
        "training.run_length",
        Kind::OrWord { word: "auto", otherwise: &Kind::OrWord { word: "batch", otherwise: &COUNT } },
        "auto",
        "Consecutive samples that stay together when the order is shuffled: a number, those of an \
         optimizer step (`batch`), or 1 for a full shuffle. `auto` is 1 for graphs of a file and \
         windows that do not overlap, else `batch`; `plan` says which. The run keeps it.",
    ),
    key("training.seed", COUNT_OR_ZERO, "0", "Seed of the initial weights and of the order of samples."),
    key(
        "training.carry_state",
        Kind::Bool,
        "false",
        "A window starts from the state last computed at the bar before it, if any, instead of \
         zeros.",
    ),
    key(
        "training.loss_on",
        Kind::Choice { now: &["last_step", "every_step"], later: "" },
        "last_step",
        "Steps of the sequence that have a loss. `last_step`: the last of each window; every \
         window is computed from its first bar to its last. `every_step` (dense training): every \
         bar of a sample run (`training.run_length`); all samples of the run are computed in one \
         pass, with a fraction of the operations. Use runs several times as long as a window, and \
         many runs a batch.",
    ),
    key(
        "training.gradient_checkpointing",
        Kind::Bool,
        "false",
        "Training keeps half of the LSTMs' gates for the backward pass and computes the others \
         again: less memory, more time, the same bits. A resumed run may change it.",
    ),
    key(
        "training.profile",
        Kind::Bool,
        "false",
        "Each step's line in metrics.jsonl, the trace and the report also have the time of every \
         layer of every timeframe: projection, recurrence, backward pass and weight gradients, in \
         seconds of all threads. Measuring takes some time.",
    ),
    key(
        "training.form",
        Kind::Choice { now: &["fast", "plain"], later: "" },
        "fast",
        "Read from configurations of earlier versions, which had a second form of the computation.",
    )
    .only(&[Acts::Never { because: "there is one form of the computation" }]),
    key(
        "training.threads",
        Kind::OrWord { word: "all", otherwise: &THREADS },
        "all",
        "Threads that compute. The result is the same, bit for bit, for any number.",
    ),
];
