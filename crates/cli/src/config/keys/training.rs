//! How it is trained.

use super::{COUNT, COUNT_OR_ZERO, Key, NOT_NEGATIVE, POSITIVE, THREADS, key};
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
    key("training.lr_min", NOT_NEGATIVE, "0", "Learning rate at the end of the cosine."),
    key("training.pct_start", Kind::Probability, "0.3", "Share of the steps in which `one_cycle` rises."),
    key(
        "training.div_factor",
        POSITIVE,
        "25",
        "`one_cycle` begins at `training.lr` divided by this, which is 1 or more.",
    ),
    key(
        "training.final_div_factor",
        POSITIVE,
        "10000",
        "`one_cycle` ends at the rate that it began with, divided by this, which is 1 or more.",
    ),
    key("training.beta1", Kind::Probability, "0.9", "Decay of Adam's running mean of the gradients."),
    key("training.beta2", Kind::Probability, "0.999", "Decay of Adam's running mean of the squared gradients."),
    key("training.epsilon", POSITIVE, "1e-8", "What Adam adds to the root of that mean before it divides by it."),
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
            now: &["mse", "huber", "quantile", "cross_entropy", "rank_pairwise", "rank_listwise"],
            later: "",
        },
        "mse",
        "Loss: mean squared error; Huber's, which grows in a line beyond `training.huber_delta`; the pinball loss, whose least is at the \
         `training.quantile` of the targets, or the mean over several; cross entropy of classes, that of each target by \
         `training.thresholds` or `training.classes`, or of graphs also one by their targets as its probabilities; or, within each graph, \
         the order of pairs of nodes (RankNet) or of all (ListNet). It is the mean over the targets of a step that are known: NaN stands for one \
         that is not.",
    ),
    key(
        "training.huber_delta",
        POSITIVE,
        "1.0",
        "Error, in units of the targets, at which Huber's loss becomes a line.",
    ),
    key(
        "training.quantile",
        Kind::Levels,
        "0.5",
        "Share of the targets that are to lie below the predictions of `quantile`: 0.5 predicts medians, 0.9 what is exceeded one time \
         in ten. Of a list, such as [0.1, 0.5, 0.9], the model predicts every one; RMSE and the like are then those of the one nearest to \
         0.5, of two the lower.",
    ),
    key(
        "training.thresholds",
        Kind::OrWord { word: "none", otherwise: &Kind::Ascending },
        "none",
        "What makes classes of targets for `cross_entropy`, in their unit: [-5, 5] makes 0 of those up to -5, 1 of those above it up to 5, and 2 of those \
         above 5. The model has an output for each class and target.",
    ),
    key(
        "training.classes",
        Kind::OrWord { word: "none", otherwise: &Kind::Count { min: 2, max: Classes::MAX as u64 } },
        "none",
        "Number of classes of `cross_entropy` where targets are classes already, from 0.",
    ),
    key(
        "training.rank_temperature",
        POSITIVE,
        "1.0",
        "What targets are divided by for `rank_listwise`, in their unit: far below their spread, only the best node of each graph counts.",
    ),
    key(
        "training.on_nan",
        Kind::Choice { now: &["stop", "rollback"], later: "" },
        "stop",
        "What happens when the loss or a gradient becomes infinite or NaN, or the loss explodes. `stop` ends the run with exit code 5. `rollback` \
         goes back to the last checkpoint and on from there with half the learning rate in all steps to come.",
    ),
    key(
        "training.max_rollbacks",
        Kind::Count { min: 1, max: 100 },
        "3",
        "Rollbacks of a run, those before a resume included, after which it ends with exit code 5 nevertheless.",
    ),
    key(
        "training.explosion_factor",
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
    ),
    key(
        "training.early_stopping",
        Kind::OrWord { word: "none", otherwise: &COUNT },
        "none",
        "Ends the run after this many validations one after the other that bring no improvement.",
    ),
    key(
        "training.early_stopping_min_delta",
        NOT_NEGATIVE,
        "0",
        "An improvement is a validation loss that is lower than the best by more than this.",
    ),
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
        "training.run_length",
        Kind::OrWord { word: "batch", otherwise: &COUNT },
        "batch",
        "Consecutive samples that stay together when the order is shuffled. `batch` is a whole batch; 1 shuffles fully.",
    ),
    key("training.seed", COUNT_OR_ZERO, "0", "Seed of the initial weights and of the order of samples."),
    key(
        "training.carry_state",
        Kind::Bool,
        "false",
        "Whether a window starts from the state last computed at the bar before it, where there is one, instead of from zeros.",
    ),
    key(
        "training.mode",
        Kind::Choice { now: &["windows", "dense"], later: "" },
        "windows",
        "`windows` computes each sample's window from its first bar to its last; `dense` all samples of a run (`training.run_length`) in one \
         pass over their bars, with a prediction and a loss at each, which takes a fraction of the operations. A run spans at most \
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
