//! Every configuration key: its values, its default and what it does. `docs/configuration.md` is printed from this table.

use super::value::Kind;

/// One configuration key.
pub(crate) struct Key {
    /// `section.name`.
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    /// The default, written as a user would; empty for a key that has none.
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
}

/// A name that existing configurations use for a key of ours.
pub(crate) struct Alias {
    pub(crate) path: &'static str,
    pub(crate) means: &'static str,
}

const fn key(path: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key { path, kind, default, doc }
}

// The upper bounds lie far beyond any use. They keep sizes that are computed from the settings within 64 bits, so that a slip of
// the keyboard ends in a message, be it this one or the plan's.
const COUNT: Kind = Kind::Count { min: 1, max: 1_000_000_000 };
const WIDTH: Kind = Kind::Count { min: 1, max: 65_536 };
const DEPTH: Kind = Kind::Count { min: 1, max: 64 };
const COUNT_OR_ZERO: Kind = Kind::Count { min: 0, max: u64::MAX };
const THREADS: Kind = Kind::Count { min: 1, max: 1024 };
const POSITIVE: Kind = Kind::Number { above: 0.0 };
const NOT_NEGATIVE: Kind = Kind::Number { above: -f64::MIN_POSITIVE };

pub(crate) const KEYS: &[Key] = &[
    key("data.path", Kind::Text, "", "The file to train on, HDF5 or `.mbg`; `--data` says it too."),
    key(
        "data.split",
        Kind::Fractions,
        "[0.7, 0.15, 0.15]",
        "Shares of the samples for training, validation and test, by time. They sum to one; the last two may be 0.",
    ),
    key(
        "data.purge",
        Kind::OrWord { word: "auto", otherwise: &Kind::Duration },
        "auto",
        "Time left out between two splits, such as `8d`, `36h` or `90m`. `auto` leaves out every sample whose windows reach back to \
         before the end of the last label of the split before.",
    ),
    key(
        "data.folds",
        Kind::OrWord { word: "none", otherwise: &Kind::Count { min: 3, max: 1000 } },
        "none",
        "Cuts a file of graphs into so many parts of equal size, by chance and evenly over the classes, in place of `data.split`: one to \
         test, the next to validate, the others to train.",
    ),
    key("data.fold", COUNT_OR_ZERO, "0", "The part to test, from 0."),
    key("model.hidden", WIDTH, "64", "Hidden units H of each LSTM."),
    key("model.layers", DEPTH, "1", "Layers of each LSTM."),
    key("model.bias", Kind::Bool, "true", "Whether the LSTMs have bias terms."),
    key(
        "model.dropout",
        Kind::Probability,
        "0",
        "Share of the units between two LSTM layers that a training step leaves out; with one layer it does nothing, as in PyTorch.",
    ),
    key(
        "model.pooling",
        Kind::Choice { now: &["last"], later: "attention" },
        "last",
        "How a sequence becomes one vector: its last hidden state.",
    ),
    key(
        "model.fusion",
        Kind::Choice { now: &["concat"], later: "attention" },
        "concat",
        "How timeframes come together: concatenated, shortest first.",
    ),
    key(
        "model.encoder",
        Kind::Choice { now: &["auto", "lstm", "none"], later: "" },
        "auto",
        "What comes before graph attention: an LSTM for each timeframe, or nothing, which takes the last bar as it is. `auto` is `lstm` for bars \
         and `none` for a file of graphs, whose nodes have no past.",
    ),
    key(
        "model.graph",
        Kind::OrWord { word: "none", otherwise: &Kind::Text },
        "none",
        "File of graphs over the instruments, such as `G.mbg` of `megabatch graph build`: a sample then is all instruments at one time, and \
         each of them attends to its neighbours. A batch is so many times. Where `data.path` is a file of graphs itself, this stays `none`.",
    ),
    key(
        "model.graph_attention",
        Kind::Choice { now: &["gat", "gatv2"], later: "" },
        "gat",
        "How a neighbour's weight is computed: as in \"Graph attention networks\" (2018), or as in \"How attentive are graph attention \
         networks?\" (2022).",
    ),
    key(
        "model.graph_layers",
        Kind::Count { min: 0, max: 64 },
        "2",
        "Layers of graph attention where there are graphs; 0 leaves every node to itself.",
    ),
    key("model.graph_heads", WIDTH, "4", "Heads of each layer of graph attention."),
    key("model.graph_hidden", WIDTH, "16", "Units of each head."),
    key(
        "model.graph_output",
        Kind::Choice { now: &["linear", "attention"], later: "" },
        "linear",
        "What gives the predictions: a linear head on the last layer, or the last layer itself, as the mean of its heads.",
    ),
    key("model.graph_output_heads", WIDTH, "1", "Heads of a last layer that gives the predictions itself."),
    key(
        "model.graph_activation",
        Kind::Choice { now: &["elu", "relu"], later: "" },
        "elu",
        "The function between layers of graph attention.",
    ),
    key(
        "model.graph_residual",
        Kind::Bool,
        "false",
        "Whether each layer adds a linear map of its input to its output.",
    ),
    key(
        "model.graph_self_loops",
        Kind::Bool,
        "true",
        "Whether each node attends to itself too, once; edges from a node to itself that the graph has are then left out.",
    ),
    key(
        "model.graph_edge_attributes",
        Kind::Bool,
        "true",
        "Whether attention sees weights and attributes of edges, where they have any.",
    ),
    key(
        "model.graph_dropout",
        Kind::Probability,
        "0",
        "Share of the inputs of each layer of graph attention that a training step leaves out.",
    ),
    key(
        "model.graph_attention_dropout",
        Kind::Probability,
        "0",
        "Share of the attention weights that a training step leaves out.",
    ),
    key(
        "model.readout",
        Kind::Choice { now: &["auto", "node", "mean", "sum", "max"], later: "" },
        "auto",
        "What predictions are for: each node, or each graph by the mean, the sum or the largest of its nodes. `auto` is `node`, or `mean` where \
         graphs have targets as wholes.",
    ),
    key(
        "training.optimizer",
        Kind::Choice { now: &["adamw", "adam", "sgd"], later: "" },
        "adamw",
        "`adamw` decays weights apart from the gradient, `adam` adds the decay to it.",
    ),
    key("training.lr", POSITIVE, "0.001", "Learning rate; with a schedule, its highest."),
    key(
        "training.lr_schedule",
        Kind::Choice { now: &["constant", "cosine"], later: "" },
        "constant",
        "How the learning rate goes on after the warm-up: level, or down half a cosine to `training.lr_min` at the last step.",
    ),
    key(
        "training.warmup_steps",
        COUNT_OR_ZERO,
        "0",
        "Steps in which the learning rate rises in a line to `training.lr`.",
    ),
    key("training.lr_min", NOT_NEGATIVE, "0", "Learning rate at the end of the cosine."),
    key("training.weight_decay", NOT_NEGATIVE, "0.01", "Weight decay."),
    key(
        "training.clip_norm",
        Kind::OrWord { word: "none", otherwise: &POSITIVE },
        "1.0",
        "Largest global norm of the gradients; longer ones are scaled down to it.",
    ),
    key(
        "training.loss",
        Kind::Choice { now: &["mse", "huber", "cross_entropy", "rank_pairwise", "rank_listwise"], later: "" },
        "mse",
        "Loss: mean squared error; Huber's, which grows in a line beyond `training.huber_delta`; cross entropy of classes; or, within each graph, \
         the order of pairs of nodes (RankNet) or of all (ListNet).",
    ),
    key(
        "training.huber_delta",
        POSITIVE,
        "1.0",
        "Error, in units of the targets, at which Huber's loss becomes a line.",
    ),
    key(
        "training.rank_temperature",
        POSITIVE,
        "1.0",
        "What targets are divided by for `rank_listwise`, in their unit: far below their spread, only the best node of each graph counts.",
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
        Kind::Choice { now: &["fp32"], later: "bf16" },
        "fp32",
        "Number format of the computation.",
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
    key("gpu_optimization.batch_size", COUNT, "64", "Samples in a batch."),
    key(
        "gpu_optimization.gradient_accumulation_steps",
        COUNT,
        "1",
        "Batches whose gradients are averaged before the optimizer steps.",
    ),
    key(
        "gpu_optimization.use_amp",
        Kind::Choice { now: &["false"], later: "true" },
        "false",
        "Mixed precision in fp16, unless `training.precision` says otherwise.",
    ),
    key(
        "gpu_optimization.use_chunk_loader",
        Kind::Bool,
        "true",
        "Whether data that do not fit in memory are loaded in large chunks, or else batch by batch. What fits stays resident, whatever \
         this says.",
    ),
    key(
        "gpu_optimization.chunk_size_gb",
        Kind::OrWord { word: "auto", otherwise: &POSITIVE },
        "auto",
        "Size of the chunks in which data pass through memory that do not fit, in units of 10^9 bytes. There are two at a time: `auto` is \
         half of what the model leaves of the memory, and three eighths of all of it at most.",
    ),
    key(
        "gpu_optimization.num_workers",
        COUNT_OR_ZERO,
        "0",
        "Accepted, without effect: there are no worker processes. One background thread loads the next chunk while training works on the one \
         before, and reading and decoding take all the processors that are free.",
    ),
    key(
        "gpu_optimization.pin_memory",
        Kind::Bool,
        "true",
        "Accepted, without effect on the CPU, which computes where data are loaded to.",
    ),
    key(
        "gpu_optimization.persistent_workers",
        Kind::Bool,
        "true",
        "Accepted, without effect: there are no worker processes.",
    ),
    key(
        "gpu_optimization.empty_cache_every_n_epochs",
        COUNT_OR_ZERO,
        "0",
        "Epochs after which memory that is kept for reuse and holds nothing is given back to the system; 0 never does.",
    ),
    key(
        "gpu_optimization.empty_cache_every_n_batches",
        COUNT_OR_ZERO,
        "0",
        "The same after so many batches, at the end of an optimizer step. What is given back has to be taken again: it costs time.",
    ),
    key(
        "gpu_optimization.leak_warning_mb",
        Kind::OrWord { word: "none", otherwise: &POSITIVE },
        "100",
        "Growth of live memory from epoch to epoch, in units of 10^6 bytes, above which there is a warning that names what grew. Growth \
         counts where it goes on: three rises or more after the first epoch, and nothing given back between them.",
    ),
    key(
        "gpu_optimization.record_memory",
        Kind::Choice { now: &["events", "trace", "off"], later: "" },
        "events",
        "What is noted of memory. `events`: its course, its peak and the last allocations, for the report, memory.json and oom-<n>.json. \
         `trace` also writes every allocation to memory-trace.jsonl, which `megabatch memory replay` reads.",
    ),
    key(
        "gpu_optimization.log_gpu_stats_every_n_batches",
        COUNT_OR_ZERO,
        "0",
        "Accepted, without effect on the CPU: memory use is in every step's line of metrics.jsonl.",
    ),
    key("output.dir", Kind::Text, "", "Folder of the run; `--out` says it too."),
];

pub(crate) const ALIASES: &[Alias] = &[
    Alias { path: "training.batch_size", means: "gpu_optimization.batch_size" },
    Alias { path: "training.use_amp", means: "gpu_optimization.use_amp" },
    Alias { path: "training.grad_clip", means: "training.clip_norm" },
    Alias { path: "training.gradient_accumulation_steps", means: "gpu_optimization.gradient_accumulation_steps" },
    Alias { path: "training.patience", means: "training.early_stopping" },
    Alias { path: "training.early_stopping_patience", means: "training.early_stopping" },
    Alias { path: "data.num_workers", means: "gpu_optimization.num_workers" },
    Alias { path: "data.pin_memory", means: "gpu_optimization.pin_memory" },
    Alias { path: "data.persistent_workers", means: "gpu_optimization.persistent_workers" },
];

/// The key called `path`, by its own name or by an alias.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    let own = ALIASES.iter().find(|alias| alias.path == path).map_or(path, |alias| alias.means);
    KEYS.iter().find(|key| key.path == own)
}

/// The known name that is nearest to `path`, for an error message.
pub(crate) fn nearest(path: &str) -> &'static str {
    let names = KEYS.iter().map(|key| key.path).chain(ALIASES.iter().map(|alias| alias.path));
    // A name that only lacks its section, or has the wrong one, is nearer than one that is spelled alike.
    let distance = |name: &str| {
        let last = |dotted: &str| dotted.rsplit('.').next().unwrap_or_default().to_owned();
        (strsim::damerau_levenshtein(&last(name), &last(path)), strsim::damerau_levenshtein(name, path))
    };
    names.min_by_key(|name| distance(name)).expect("the table has keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_key() {
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            assert!(key.kind.parse(key.default).is_ok(), "{} = {}", key.path, key.default);
        }
    }

    #[test]
    fn names_are_unique_and_aliases_lead_to_keys() {
        let mut names: Vec<&str> = KEYS.iter().map(|key| key.path).chain(ALIASES.iter().map(|a| a.path)).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        for alias in ALIASES {
            assert_eq!(find(alias.path).unwrap().path, alias.means);
        }
    }

    #[test]
    fn a_misspelled_key_finds_its_neighbour() {
        for (wrong, right) in [
            ("training.epoch", "training.epochs"),
            ("model.hiden", "model.hidden"),
            ("lr", "training.lr"),
            ("model.lr", "training.lr"),
            ("training.gradient_clip", "training.grad_clip"),
        ] {
            assert_eq!(nearest(wrong), right, "{wrong}");
        }
    }
}
