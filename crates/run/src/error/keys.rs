//! Sections of the settings that the libraries name.

use std::error::Error as StdError;

use megabatch_nn::Error as ModelError;
use megabatch_trainer::Error as TrainerError;

use crate::config::keys;

/// Text of `cause`, in which the settings that nn and the trainer name have their sections.
pub(super) fn text_of(cause: &(dyn StdError + 'static)) -> String {
    let text = cause.to_string();
    if cause.is::<ModelError>() || cause.is::<TrainerError>() { with_keys(&text) } else { text }
}

/// `text` of nn or trainer with its section before every setting in backticks.
pub(crate) fn with_keys(text: &str) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some((prefix, quoted)) = rest.split_once('`') {
        result.push_str(prefix);
        rest = match quoted.split_once('`').and_then(|(name, suffix)| Some((key_of(name)?, suffix))) {
            Some((key, suffix)) => {
                result.push_str(&key);
                suffix
            }
            None => {
                result.push('`');
                quoted
            }
        };
    }
    result + rest
}

/// The setting called `name`, which may be a part of one such as `tasks[0].weight`, with its
/// section; `None` for other words.
pub(super) fn key_of(name: &str) -> Option<String> {
    let (setting, _) = name.split_once('[').unwrap_or((name, ""));
    let mut sections = keys().filter_map(|key| key.path.split_once('.'));
    let (section, _) = sections.find(|(_, own)| *own == setting)?;
    Some(format!("{section}.{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_in_backticks_have_their_sections() {
        for (text, expected) in [
            ("", ""),
            ("`lr`", "training.lr"),
            ("`batch_size` is 0: expected 1 or more", "gpu_optimization.batch_size is 0: expected 1 or more"),
            ("set `classes` or `loss`=mse", "set training.classes or training.loss=mse"),
            ("`tasks[12].huber_delta` is -1", "training.tasks[12].huber_delta is -1"),
            ("`training.lr` and `task[0].lr`", "`training.lr` and `task[0].lr`"),
            ("hidden, `a word`, `hidden` and a last `", "hidden, `a word`, model.hidden and a last `"),
        ] {
            assert_eq!(with_keys(text), expected);
        }
    }
}
