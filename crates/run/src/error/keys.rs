//! Names of the configuration in place of the fields that the libraries name.

use std::borrow::Cow;
use std::error::Error as StdError;

use megabatch_nn::Error as ModelError;
use megabatch_trainer::Error as TrainerError;

/// Path of a field, as in nn's and trainer's `FIELDS`, and its configuration key. A field without a
/// key has a description.
const KEYS: &[(&str, &str)] = &[
    ("accumulation_steps", "gpu_optimization.gradient_accumulation_steps"),
    ("batch_size", "gpu_optimization.batch_size"),
    ("bias", "model.bias"),
    ("carry_state", "training.carry_state"),
    ("cell", "model.cell"),
    ("clip_norm", "training.clip_norm"),
    ("device", "the device"),
    ("divergence.loss_spike_factor", "training.loss_spike_factor"),
    ("divergence.rollbacks_max", "training.max_rollbacks"),
    ("dropout", "model.dropout"),
    ("early_stopping.min_delta", "training.early_stopping_min_delta"),
    ("early_stopping.patience", "training.early_stopping"),
    ("edge_attributes", "model.graph_edge_attributes"),
    ("encoder", "model.encoder"),
    ("fold + 1", "data.walk_forward_number"),
    ("form", "training.form"),
    ("fractions", "data.split"),
    ("fusion", "model.fusion"),
    ("fusion.feed_forward", "model.fusion_feed_forward"),
    ("fusion.heads", "model.fusion_heads"),
    ("gradient_checkpointing", "training.gradient_checkpointing"),
    ("graph", "model.graph"),
    ("graph.activation", "model.graph_activation"),
    ("graph.attention_dropout", "model.graph_attention_dropout"),
    ("graph.dropout", "model.graph_dropout"),
    ("graph.heads", "model.graph_heads"),
    ("graph.hidden", "model.graph_hidden"),
    ("graph.kind", "model.graph_attention"),
    ("graph.layers", "model.graph_layers"),
    ("graph.negative_slope", "the negative slope of graph attention"),
    ("graph.output", "model.graph_output"),
    ("graph.output_heads", "model.graph_output_heads"),
    ("graph.residual", "model.graph_residual"),
    ("graph.self_loops", "model.graph_self_loops"),
    ("hidden", "model.hidden"),
    ("last_batch", "the treatment of the last batch"),
    ("layer_norm", "model.layer_norm"),
    ("layers", "model.layers"),
    ("loss", "training.loss"),
    ("loss.classes", "training.classes"),
    ("loss.delta", "training.huber_delta"),
    ("loss.levels", "training.quantile"),
    ("loss.tasks", "training.tasks"),
    ("loss.tasks[].loss.classes", "training.tasks[].classes"),
    ("loss.tasks[].loss.delta", "training.tasks[].huber_delta"),
    ("loss.tasks[].loss.levels", "training.tasks[].quantile"),
    ("loss.tasks[].targets", "training.tasks[].targets"),
    ("loss.tasks[].weight", "training.tasks[].weight"),
    ("loss.temperature", "training.rank_temperature"),
    ("loss.thresholds", "training.thresholds"),
    ("loss_on", "training.loss_on"),
    ("loss_scale.backoff_factor", "training.loss_scale_backoff_factor"),
    ("loss_scale.growth_factor", "training.loss_scale_growth_factor"),
    ("loss_scale.growth_interval", "training.loss_scale_growth_interval"),
    ("loss_scale.hysteresis", "training.loss_scale_hysteresis"),
    ("loss_scale.initial_scale", "training.loss_scale_initial"),
    ("loss_scale.max_scale", "training.loss_scale_ceiling"),
    ("loss_scale.min_scale", "training.loss_scale_floor"),
    ("lr_schedule.kind", "training.lr_schedule"),
    ("lr_schedule.lr_min", "training.lr_min"),
    ("lr_schedule.one_cycle.div_factor", "training.div_factor"),
    ("lr_schedule.one_cycle.final_div_factor", "training.final_div_factor"),
    ("lr_schedule.one_cycle.pct_start", "training.pct_start"),
    ("lr_schedule.warmup_steps", "training.warmup_steps"),
    ("optimizer.beta1", "training.beta1"),
    ("optimizer.beta2", "training.beta2"),
    ("optimizer.epsilon", "training.epsilon"),
    ("optimizer.kind", "training.optimizer"),
    ("optimizer.lr", "training.lr"),
    ("optimizer.weight_decay", "training.weight_decay"),
    ("outputs_per_target", "the number of outputs for each"),
    ("pooling", "model.pooling"),
    ("pooling.heads", "model.pooling_heads"),
    ("precision", "training.precision"),
    ("profile", "training.profile"),
    ("purge", "data.purge"),
    ("readout", "model.readout"),
    ("run_length", "training.run_length"),
    ("seed", "training.seed"),
    ("series.bars", "the number of bars"),
    ("shape", "the shape of the samples"),
    ("shape.outputs", "the number of targets"),
    ("shape.timeframes", "the number of timeframes"),
    ("shape.timeframes.features", "features"),
    ("shape.timeframes.name", "a timeframe's name"),
    ("shape.timeframes.steps", "the window's length"),
    ("steps", "training.epochs or training.max_steps (steps that the learning rate's curve is drawn over)"),
    ("tf32", "training.tf32"),
    ("threads", "training.threads"),
    ("train_samples", "data.split (training samples)"),
    ("tuning", "training.autotune"),
    ("validate_every_steps", "training.validate_every_steps"),
    ("validation_samples", "data.split or training.validation_samples (samples of a validation)"),
    ("walk_forward.folds", "data.walk_forward"),
    ("walk_forward.overlap", "data.walk_forward_overlap"),
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
    let find = |path: &str| KEYS.iter().find(|(field, _)| *field == path).map(|(_, key)| *key);
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
    use crate::config::find_key;

    #[test]
    fn every_field_that_a_library_names_has_a_key() {
        let mut fields: Vec<&str> = [megabatch_nn::FIELDS, megabatch_trainer::FIELDS].concat();
        fields.sort_unstable();
        assert_eq!(fields, KEYS.iter().map(|(field, _)| *field).collect::<Vec<_>>());
    }

    #[test]
    fn keys_are_those_of_the_configuration() {
        let sections = ["data.", "model.", "training.", "gpu_optimization.", "distributed.", "output."];
        for (field, key) in KEYS {
            let first = key.split([' ', '[']).next().unwrap();
            if sections.iter().any(|section| key.starts_with(section)) {
                assert_eq!(find_key(first).map(|key| key.path), Some(first), "{field}");
            }
        }
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
