//! Losses in double precision by [`megabatch_reference`], for unit tests.

use megabatch_reference::LossValue;
pub(crate) use megabatch_reference::wide;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::loss::Loss;

/// A description that the oracle reads: a type of this crate as it is in its dependency.
fn described<Own: Serialize, Other: DeserializeOwned>(own: Own) -> Other {
    serde_json::from_value(serde_json::to_value(own).unwrap()).unwrap()
}

/// The loss of samples of `width` targets that stand alone.
pub(crate) fn loss(loss: Loss, outputs: &[f32], targets: &[f32], width: usize) -> LossValue {
    megabatch_reference::loss(described(loss), &wide(outputs), &wide(targets), width)
}

/// The loss of one graph, whose rows have `width` targets.
pub(crate) fn loss_of_graph(loss: Loss, outputs: &[f32], targets: &[f32], width: usize) -> LossValue {
    megabatch_reference::loss_of_graphs(described(loss), &[(&wide(outputs), &wide(targets))], width)
}
