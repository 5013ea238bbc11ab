//! Names of the configuration in place of the fields that the libraries name.

use std::borrow::Cow;
use std::error::Error as StdError;

use megabatch_nn::Error as ModelError;
use megabatch_trainer::Error as TrainerError;

use crate::config::keys;

/// Fields of nn's and trainer's `FIELDS` that no setting alone decides, and their words.
const OTHER_FIELDS: &[(&str, &str)] = &[
    ("device", "the device"),
    ("graph.negative_slope", "the negative slope of graph attention"),
    ("last_batch", "the treatment of the last batch"),
    ("loss.tasks[].loss.classes", "training.tasks[].classes"),
    ("loss.tasks[].loss.delta", "training.tasks[].huber_delta"),
    ("loss.tasks[].loss.levels", "training.tasks[].quantile"),
    ("loss.tasks[].targets", "training.tasks[].targets"),
    ("loss.tasks[].weight", "training.tasks[].weight"),
    ("outputs_per_target", "the number of outputs for each"),
    ("series.bars", "the number of bars"),
    ("shape", "the shape of the samples"),
    ("shape.outputs", "the number of targets"),
    ("shape.timeframes", "the number of timeframes"),
    ("shape.timeframes.features", "features"),
    ("shape.timeframes.name", "a timeframe's name"),
    ("shape.timeframes.steps", "the window's length"),
    ("steps", "training.epochs or training.max_steps (steps that the learning rate's curve is drawn over)"),
    ("train_samples", "data.split (training samples)"),
    ("validation_samples", "data.split or training.validation_samples (samples of a validation)"),
    ("with_carried_state", "training.carry_state (or training.loss_on every_step)"),
];

/// Text of `cause`, in which nn's and trainer's fields have the names of the configuration.
pub(super) fn text_of(cause: &(dyn StdError + 'static)) -> String {
    let text = cause.to_string();
    if cause.is::<ModelError>() || cause.is::<TrainerError>() { with_keys(&text) } else { text }
}

/// `text` of nn or trainer with the configuration's key for every field in backticks.
pub(crate) fn with_keys(text: &str) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some((prefix, quoted)) = rest.split_once('`') {
        result.push_str(prefix);
        rest = match quoted.split_once('`').and_then(|(path, suffix)| Some((key_of(path)?, suffix))) {
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

/// The key of the field at `path`, which may have an index; `None` for other words.
fn key_of(path: &str) -> Option<Cow<'static, str>> {
    let setting = |path: &str| keys().find(|key| key.model_or_trainer_field() == path).map(|key| key.path);
    let other = |path: &str| OTHER_FIELDS.iter().find(|(field, _)| *field == path).map(|(_, words)| *words);
    let find = |path: &str| setting(path).or_else(|| other(path));
    let (list, item) = match path.split_once('[') {
        Some((list, rest)) => (list, rest.split_once(']')?),
        None => return find(path).map(Cow::Borrowed),
    };
    let (index, field) = item;
    Some(Cow::Owned(find(&format!("{list}[]{field}"))?.replace("[]", &format!("[{index}]"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Key;

    #[test]
    fn every_field_that_a_library_names_has_words() {
        let settings = keys().map(Key::model_or_trainer_field).filter(|field| !field.is_empty());
        let mut known: Vec<&str> = settings.chain(OTHER_FIELDS.iter().map(|(field, _)| *field)).collect();
        let fields = [megabatch_nn::FIELDS, megabatch_trainer::FIELDS].concat();
        known.sort_unstable();
        assert!(known.windows(2).all(|pair| pair[0] != pair[1]), "a field has two settings: {known:?}");
        let unknown: Vec<_> = fields.iter().filter(|field| !known.contains(field)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn fields_in_backticks_become_keys() {
        for (text, expected) in [
            ("", ""),
            ("`optimizer.lr`", "training.lr"),
            ("`batch_size` is 0: expected 1 or more", "gpu_optimization.batch_size is 0: expected 1 or more"),
            ("set `loss.classes` or `loss`=mse", "set training.classes or training.loss=mse"),
            ("`loss.tasks[12].loss.delta` is -1", "training.tasks[12].huber_delta is -1"),
            ("`loss.tasks[0` and `loss.tasks[0].lr`", "`loss.tasks[0` and `loss.tasks[0].lr`"),
            ("hidden, `a word`, `hidden` and a last `", "hidden, `a word`, model.hidden and a last `"),
        ] {
            assert_eq!(with_keys(text), expected);
        }
    }
}
