//! How it is trained.

use super::{Acts, COUNT, COUNT_OR_ZERO, Key, NOT_NEGATIVE, POSITIVE, THREADS, key};
use crate::config::value::Kind;
use megabatch_trainer::Classes;

pub(super) const KEYS: &[Key] = &[
    key(
        "training.optimizer",
        Kind::Choice { now: &["adamw", "adam", "sgd"], later: "" },
        "adamw",
        "`adamw` decays weights apart from the gradient, `adam` adds the decay to it.",
    ),
    key("training.lr", POSITIVE, "0.001", "Learning rate; with a schedule, its highest."),
    key(
        "training.lr_schedule",
        Kind::Choice { now: &["constant", "cosine", "one_cycle"], later: "" },
        "constant",
        "How the learning rate goes on after the warm-up: level, or down half a cosine to `training.lr_min` at the last step. `one_cycle`, as \
         PyTorch's OneCycleLR, has no other warm-up: up half a cosine to `training.lr`, and down another one.",
    ),
    key(
        "training.warmup_steps",
        COUNT_OR_ZERO,
        "0",
        "Steps in which the learning rate rises in a line to `training.lr`.",
    ),
    key("training.lr_min", NOT_NEGATIVE, "0", "Learning rate at the end of the cosine.").only(&[Acts::With { key: "training.lr_schedule", values: &["cosine"] }]),
    key("training.pct_start", Kind::Probability, "0.3", "Share of the steps in which `one_cycle` rises.").only(&[Acts::With { key: "training.lr_schedule", values: &["one_cycle"] }]),
    key(
        "training.div_factor",
        POSITIVE,
        "25",
        "`one_cycle` begins at `training.lr` divided by this, which is 1 or more.",
    ).only(&[Acts::With { key: "training.lr_schedule", values: &["one_cycle"] }]),
    key(
        "training.final_div_factor",
        POSITIVE,
        "10000",
        "`one_cycle` ends at the rate that it began with, divided by this, which is 1 or more.",
    ).only(&[Acts::With { key: "training.lr_schedule", values: &["one_cycle"] }]),
    key("training.beta1", Kind::Probability, "0.9", "Decay of Adam's running mean of the gradients.").only(&[Acts::Without { key: "training.optimizer", value: "sgd" }]),
    key("training.beta2", Kind::Probability, "0.999", "Decay of Adam's running mean of the squared gradients.").only(&[Acts::Without { key: "training.optimizer", value: "sgd" }]),
    key("training.epsilon", POSITIVE, "1e-8", "What Adam adds to the root of that mean before it divides by it.").only(&[Acts::Without { key: "training.optimizer", value: "sgd" }]),
    key("training.weight_decay", NOT_NEGATIVE, "0.01", "Weight decay."),
    key(
        "training.clip_norm",
        Kind::OrWord { word: "none", otherwise: &POSITIVE },
        "1.0",
        "Largest global norm of the gradients; longer ones are scaled down to it.",
    ),
    key(
        "training.loss",
        Kind::Choice {
            now: &["auto", "mse", "huber", "quantile", "cross_entropy", "rank_pairwise", "rank_listwise"],
            later: "",
        },
        "auto",
        "Loss: `auto`, which is `cross_entropy` for graphs whose targets are class labels, else `mse`; mean squared error; Huber's, which grows in a line beyond `training.huber_delta`; the pinball loss, whose least is at the \
         `training.quantile` of the targets, or the mean over several; cross entropy of classes, that of each target by \
         `training.thresholds` or `training.classes`, or of graphs also one by their targets as its probabilities; or, within each graph, \
         the order of pairs of nodes (RankNet) or of all (ListNet). It is the mean over the targets of a step that are known: NaN stands for one \
         that is not.",
    ).only(&[Acts::With { key: "training.tasks", values: &["none"] }]),
    key(
        "training.huber_delta",
        POSITIVE,
        "1.0",
        "Error, in units of the targets, at which Huber's loss becomes a line.",
    ).only(&[Acts::With { key: "training.tasks", values: &["none"] }, Acts::With { key: "training.loss", values: &["huber"] }]),
    key(
        "training.quantile",
        Kind::Levels,
        "0.5",
        "Share of the targets that are to lie below the predictions of `quantile`: 0.5 predicts medians, 0.9 what is exceeded one time \
         in ten. Of a list, such as [0.1, 0.5, 0.9], the model predicts every one; RMSE and the like are then those of the one nearest to \
         0.5, of two the lower.",
    ).only(&[Acts::With { key: "training.tasks", values: &["none"] }, Acts::With { key: "training.loss", values: &["quantile"] }]),
    key(
        "training.thresholds",
        Kind::OrWord { word: "none", otherwise: &Kind::Ascending },
        "none",
        "What makes classes of targets for `cross_entropy`, in their unit: [-5, 5] makes 0 of those up to -5, 1 of those above it up to 5, and 2 of those \
         above 5. The model has an output for each class and target.",
    ).only(&[Acts::With { key: "training.tasks", values: &["none"] }, Acts::With { key: "training.loss", values: &["cross_entropy"] }]),
    key(
        "training.classes",
        Kind::OrWord { word: "none", otherwise: &Kind::Count { min: 2, max: Classes::MAX as u64 } },
        "none",
        "Number of classes of `cross_entropy` where targets are classes already, from 0.",
    ).only(&[Acts::With { key: "training.tasks", values: &["none"] }, Acts::With { key: "training.loss", values: &["cross_entropy"] }]),
    key(
        "training.rank_temperature",
        Kind::OrWord { word: "auto", otherwise: &POSITIVE },
        "auto",
        "What targets are divided by for `rank_listwise`, in their unit: far below their spread, only the best node of each graph counts; far \
         above it, all count alike and nothing is learnt. `auto` is their deviation within a graph over the training part, which the run keeps.",
    ).only(&[Acts::With { key: "training.tasks", values: &["none"] }, Acts::With { key: "training.loss", values: &["rank_listwise"] }]),
    key(
        "training.tasks",
        Kind::Tasks,
        "none",
        "Several losses at once, in place of `training.loss`: groups of targets that follow one another from 0 to the last, each with a `loss` (mse, huber, \
         quantile or cross_entropy), what goes with it (`huber_delta`, `quantile`, `classes` or `thresholds`) and a `weight`. Weights sum to one, or are \
         left out of all. What is minimised is the weighted sum of each group's mean over its targets that are known; a group of which none is known \
         adds nothing to a step.",
    ),
    key(
        "training.on_nan",
        Kind::Choice { now: &["stop", "rollback"], later: "" },
        "rollback",
        "What happens when the loss or a gradient becomes infinite or NaN, or the loss explodes. `rollback` goes back to the last checkpoint, says so, and \
         goes on from there with half the learning rate in all steps to come; a run then saves a checkpoint before its first step. `stop` ends the run with exit code 5.",
    ),
    key(
        "training.max_rollbacks",
        Kind::Count { min: 1, max: 100 },
        "3",
        "Rollbacks of a run, those before a resume included, after which it ends with exit code 5 nevertheless.",
    ).only(&[Acts::With { key: "training.on_nan", values: &["rollback"] }]),
    key(
        "training.loss_spike_factor",
        Kind::OrWord { word: "none", otherwise: &Kind::Number { above: 1.0 } },
        "none",
        "A loss of more than so many times the median of the last 32 steps (8 at least) is taken for a NaN.",
    ),
    key(
        "training.epochs",
        COUNT,
        "10",
        "Passes over the training split. `training.max_steps` ends earlier or later, whatever this says.",
    ),
    key(
        "training.validate_every_steps",
        Kind::OrWord { word: "epoch", otherwise: &COUNT },
        "epoch",
        "Steps between two validations, besides those at the end of every epoch.",
    ).only(&[Acts::OnValidation]),
    key(
        "training.early_stopping",
        Kind::OrWord { word: "none", otherwise: &COUNT },
        "none",
        "Ends the run after this many validations one after the other that bring no improvement.",
    ).only(&[Acts::OnValidation]),
    key(
        "training.early_stopping_min_delta",
        NOT_NEGATIVE,
        "0",
        "An improvement is a validation loss that is lower than the best by more than this.",
    ).only(&[Acts::Without { key: "training.early_stopping", value: "none" }]),
    key(
        "training.max_steps",
        Kind::OrWord { word: "none", otherwise: &COUNT },
        "none",
        "Optimizer steps after which the run ends, earlier or later than `training.epochs` says; `--max-steps` sets it.",
    ),
    key(
        "training.precision",
        Kind::Choice { now: &["auto", "fp32", "bf16", "fp16", "bf16-mixed", "16-mixed"], later: "" },
        "auto",
        "What matrix products and the recurrence read is rounded to; all else, and the weights that are kept, are in fp32. fp16 scales the loss. On a \
         processor without 16-bit products, such as any CPU so far, this shows what a GPU would learn and saves no time. `auto` is fp32, or \
         fp16 with `gpu_optimization.use_amp`; `16-mixed` is fp16 and `bf16-mixed` bf16.",
    ),
    key(
        "training.tf32",
        Kind::Bool,
        "false",
        "Whether a GPU rounds what matrix products read in fp32 to TF32 for its tensor cores: 11 significant bits with the range of fp32. The \
         recurrence, and all else, stays in fp32. A CPU multiplies fp32 as it is, whatever this says, and notes so; with bf16 or fp16 it is an error.",
    ).only(&[Acts::OnGpus]),
    key(
        "training.autotune",
        Kind::Choice { now: &["off", "deterministic", "fast"], later: "" },
        "deterministic",
        "Which kernels a GPU takes where there are several. `off`: those that rules name by shapes. `deterministic`: of those that give the same bits as these, the fastest by \
         measurement, once a GPU and shape; what was found is kept in the user's cache folder, below `XDG_CACHE_HOME` or `~/.cache`. `fast`: the fastest of all, products by \
         cuBLASLt among them where the machine has it, whose sums may be added in another order, so that a run on another GPU, or measured anew, is rounded otherwise. Without effect on the CPU.",
    ).only(&[Acts::OnGpus]),
    key(
        "training.loss_scale_initial",
        POSITIVE,
        "65536",
        "Loss scale of the first step in fp16; a power of two, as the two factors, keeps scaling exact.",
    ).only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_growth_factor",
        Kind::Number { above: 1.0 },
        "2",
        "What the loss scale is multiplied by after `training.loss_scale_growth_interval` steps in a row without overflow.",
    ).only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_backoff_factor",
        POSITIVE,
        "0.5",
        "What the loss scale is multiplied by after an overflow, below 1. The step of an overflow is skipped.",
    ).only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_growth_interval",
        COUNT,
        "2000",
        "Steps in a row without overflow after which the loss scale grows.",
    ).only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_hysteresis",
        COUNT,
        "1",
        "Overflows in a row from which on each lowers the loss scale; those before only skip their step.",
    ).only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_floor",
        POSITIVE,
        "1",
        "Least loss scale: an overflow there counts as a NaN (`training.on_nan`), and names the first tensor that overflowed.",
    ).only(&[Acts::WithFp16]),
    key(
        "training.loss_scale_ceiling",
        POSITIVE,
        "16777216",
        "Largest loss scale: a growth beyond it does not take place.",
    ).only(&[Acts::WithFp16]),
    key(
        "training.checkpoint_every_steps",
        Kind::OrWord { word: "epoch", otherwise: &COUNT },
        "epoch",
        "Steps between two checkpoints, besides those at the end of every epoch and after every validation that was the best so far.",
    ),
    key("training.keep_checkpoints", COUNT, "3", "Checkpoints that are kept, the newest ones."),
    key(
        "training.keep_best_checkpoint",
        Kind::Bool,
        "true",
        "Whether the checkpoint with the best validation loss is kept beside them; without it, evaluation takes the last one once it is gone.",
    ),
    key(
        "training.run_length",
        Kind::OrWord { word: "auto", otherwise: &Kind::OrWord { word: "batch", otherwise: &COUNT } },
        "auto",
        "Consecutive samples that stay together when the order is shuffled: as many as given, those of an optimizer step (`batch`), or with 1 none. \
         `auto` is 1 where neighbours have nothing in common, as graphs of a file and windows that do not overlap, and `batch` elsewhere; \
         `plan` says which. The run keeps it.",
    ),
    key("training.seed", COUNT_OR_ZERO, "0", "Seed of the initial weights and of the order of samples."),
    key(
        "training.carry_state",
        Kind::Bool,
        "false",
        "Whether a window starts from the state last computed at the bar before it, where there is one, instead of from zeros.",
    ),
    key(
        "training.loss_on",
        Kind::Choice { now: &["last_step", "every_step"], later: "" },
        "last_step",
        "Steps of the sequence that have a loss. `last_step`: the last of each window; every window is computed from its first bar to its last. `every_step`: every bar \
         of a run (`training.run_length`); all samples of the run are computed in one pass, which takes a fraction of the operations. A run spans at most \
         `training.run_length` bars of each timeframe: give it several windows' length, and batches of many runs.",
    ),
    key(
        "training.gradient_checkpointing",
        Kind::Bool,
        "false",
        "Whether training keeps half of the LSTMs' gates for the backward pass and computes the others again there, for less memory and more time. \
         The results are the same, bit for bit, so that a resumed run may change it.",
    ),
    key(
        "training.profile",
        Kind::Bool,
        "false",
        "Whether each step's line in metrics.jsonl, the trace and the report also tell the time of every layer of every timeframe: \
         projection, recurrence, backward pass and weight gradients, in seconds of all threads. Looking at the clock takes some time itself.",
    ),
    key(
        "training.form",
        Kind::Choice { now: &["fast", "plain"], later: "" },
        "fast",
        "`fast` computes once what windows have in common, on the processor's vectors; `plain` computes every window whole, as the \
         reference. They differ by rounding.",
    ),
    key(
        "training.threads",
        Kind::OrWord { word: "all", otherwise: &THREADS },
        "all",
        "Threads that compute. The result is the same, bit for bit, for any number.",
    ),
];
