//! Every configuration key: its values, its default and what it does.
//! `docs/reference/configuration.md` is printed from these tables, one a section.

pub(crate) mod choices;
mod condition;
pub(crate) mod data;
pub(crate) mod distributed;
pub(crate) mod gpu_optimization;
pub(crate) mod model;
pub(crate) mod output;
mod setting;
pub(crate) mod training;

pub(crate) use condition::{Condition, RunTraits};
pub(crate) use setting::{Key, Setting};

use super::value::{COUNT_MAX, Kind};

/// A name for a key of ours that other programs use, or that older configurations have.
pub(crate) struct Alias {
    pub(crate) path: &'static str,
    pub(crate) means: &'static str,
}

// The upper bounds lie far beyond any use. They keep sizes that are computed from the settings
// within 64 bits, so that a slip of the keyboard ends in a message, be it this one or the plan's.
const COUNT: Kind = Kind::Count { min: 1, max: COUNT_MAX };
const WIDTH: Kind = Kind::Count { min: 1, max: 65_536 };
const DEPTH: Kind = Kind::Count { min: 1, max: 64 };
const COUNT_OR_ZERO: Kind = Kind::Count { min: 0, max: u64::MAX };
const THREAD_COUNT: Kind = Kind::Count { min: 1, max: 1024 };
const POSITIVE: Kind = Kind::Number { above: 0.0 };
const NOT_NEGATIVE: Kind = Kind::Number { above: -f64::MIN_POSITIVE };

/// A word, or a value of another kind.
const fn or(word: &'static str, otherwise: &'static Kind) -> Kind {
    Kind::OrWord { word, otherwise }
}

/// All of them, section by section.
pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    let sections = [data::KEYS, model::KEYS, training::KEYS, gpu_optimization::KEYS, distributed::KEYS, output::KEYS];
    sections.into_iter().flatten().copied()
}

pub(crate) const ALIASES: &[Alias] = &[
    Alias { path: "training.batch_size", means: "gpu_optimization.batch_size" },
    Alias { path: "data.batch_size", means: "gpu_optimization.batch_size" },
    Alias { path: "training.learning_rate", means: "training.lr" },
    Alias { path: "training.max_epochs", means: "training.epochs" },
    Alias { path: "training.num_epochs", means: "training.epochs" },
    Alias { path: "training.scheduler", means: "training.lr_schedule" },
    Alias { path: "training.lr_scheduler", means: "training.lr_schedule" },
    Alias { path: "training.eps", means: "training.epsilon" },
    Alias { path: "training.loss_fn", means: "training.loss" },
    Alias { path: "training.criterion", means: "training.loss" },
    Alias { path: "training.random_seed", means: "training.seed" },
    Alias { path: "training.gradient_clip_val", means: "training.clip_norm" },
    Alias { path: "training.max_grad_norm", means: "training.clip_norm" },
    Alias { path: "training.clipnorm", means: "training.clip_norm" },
    Alias { path: "training.accumulate_grad_batches", means: "gpu_optimization.gradient_accumulation_steps" },
    Alias { path: "training.num_workers", means: "gpu_optimization.num_workers" },
    Alias { path: "model.hidden_size", means: "model.hidden" },
    Alias { path: "model.hidden_dim", means: "model.hidden" },
    Alias { path: "model.units", means: "model.hidden" },
    Alias { path: "model.num_layers", means: "model.layers" },
    Alias { path: "training.use_amp", means: "gpu_optimization.use_amp" },
    Alias { path: "training.grad_clip", means: "training.clip_norm" },
    Alias { path: "training.gradient_accumulation_steps", means: "gpu_optimization.gradient_accumulation_steps" },
    Alias { path: "training.quantiles", means: "training.quantile" },
    Alias { path: "training.patience", means: "training.early_stopping" },
    Alias { path: "training.early_stopping_patience", means: "training.early_stopping" },
    Alias { path: "training.mode", means: "training.loss_on" },
    Alias { path: "training.explosion_factor", means: "training.loss_spike_factor" },
    Alias { path: "training.tuning", means: "training.autotune" },
    Alias { path: "data.num_workers", means: "gpu_optimization.num_workers" },
    Alias { path: "data.pin_memory", means: "gpu_optimization.pin_memory" },
    Alias { path: "data.persistent_workers", means: "gpu_optimization.persistent_workers" },
];

/// The key called `path`, by its own name or by an alias.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    let own = ALIASES.iter().find(|alias| alias.path == path).map_or(path, |alias| alias.means);
    keys().find(|key| key.path == own)
}

/// A word for a value of ours that other programs use, or that older configurations have.
pub(crate) struct ValueAlias {
    pub(crate) key: &'static str,
    pub(crate) text: &'static str,
    pub(crate) means: &'static str,
}

const fn loss(text: &'static str, means: &'static str) -> ValueAlias {
    ValueAlias { key: "training.loss", text, means }
}

/// The median's loss is half the mean absolute error: they have one minimum.
pub(crate) const VALUE_ALIASES: &[ValueAlias] = &[
    loss("mae", "quantile"),
    loss("l1", "quantile"),
    loss("mean_absolute_error", "quantile"),
    loss("mean_squared_error", "mse"),
    loss("l2", "mse"),
    ValueAlias { key: "training.loss_on", text: "windows", means: "last_step" },
    ValueAlias { key: "training.loss_on", text: "dense", means: "every_step" },
];

/// The value that `text` means to the key `path`.
pub(crate) fn own_value<'t>(path: &str, text: &'t str) -> &'t str {
    let alias = VALUE_ALIASES.iter().find(|alias| alias.key == path && alias.text == text.trim());
    alias.map_or(text, |alias| alias.means)
}

/// The known name that is nearest to `path`, for an error message.
pub(crate) fn nearest(path: &str) -> &'static str {
    let names = keys().map(|key| key.path).chain(ALIASES.iter().map(|alias| alias.path));
    // A name that only lacks its section, or has the wrong one, is nearer than one that is spelled
    // alike.
    let distance = |name: &str| {
        let last = |dotted: &str| dotted.rsplit('.').next().unwrap_or_default().to_owned();
        (strsim::damerau_levenshtein(&last(name), &last(path)), strsim::damerau_levenshtein(name, path))
    };
    names.min_by_key(|name| distance(name)).expect("the table has keys")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::Value;

    #[test]
    fn every_default_is_a_value_of_its_key() {
        for key in keys().filter(|key| !key.default.is_empty()) {
            let value = key.kind.parse(key.default);
            assert!(value.is_ok_and(|value| (key.is_readable)(&value)), "{} = {}", key.path, key.default);
        }
    }

    #[test]
    fn names_are_unique_and_aliases_lead_to_keys() {
        let mut names: Vec<&str> = keys().map(|key| key.path).chain(ALIASES.iter().map(|a| a.path)).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        for alias in ALIASES {
            assert_eq!(find(alias.path).unwrap().path, alias.means);
        }
    }

    #[test]
    fn conditions_name_words_that_keys_take() {
        for conditions in keys().flat_map(|key| key.conditions) {
            let (key, words) = match conditions {
                Condition::With { key, values } => (key, values.to_vec()),
                Condition::Without { key, value } => (key, vec![*value]),
                _ => continue,
            };
            for word in words {
                assert!(matches!(key.kind.parse(word), Ok(Value::Word(_))), "{} {word}", key.path);
            }
        }
    }

    #[test]
    fn a_misspelled_key_finds_its_neighbour() {
        for (wrong, right) in [
            ("training.epoch", "training.epochs"),
            ("model.hiden", "model.hidden"),
            ("lr", "training.lr"),
            ("model.lr", "training.lr"),
            ("training.gradient_clip", "training.gradient_clip_val"),
            // The other settings of the section are nearer in letters.
            ("training.lerning_rate", "training.learning_rate"),
            ("training.batchsize", "training.batch_size"),
        ] {
            assert_eq!(nearest(wrong), right, "{wrong}");
        }
    }
}
