#![forbid(unsafe_code)]

//! Numbers to and from the models in double precision of [`megabatch_reference`], for unit tests.

use std::collections::BTreeMap;

use megabatch_gpu_core::Device;
use megabatch_reference::nn::model::{Model, TensorSet as ReferenceTensors};
use megabatch_reference::parts::Parameter;
use megabatch_reference::{LossValue, Reference};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::loss::Loss;
use crate::model::tensor::{Layout, TensorSet};

/// The same numbers in double precision.
pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// A description that the oracle reads: a type of this crate as it is in its dependency.
pub(crate) fn described<Own: Serialize, Other: DeserializeOwned>(own: Own) -> Other {
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

/// All tensors of a set.
pub(crate) fn parameters(set: &TensorSet) -> Vec<Parameter> {
    let parameter = |(name, shape, values): (&str, &[usize], &[f32])| Parameter {
        name: name.to_owned(),
        shape: shape.to_vec(),
        values: wide(values),
    };
    set.tensors().map(parameter).collect()
}

/// The tensors of `layout`, one after another.
pub(crate) fn in_order(layout: &Layout, by_name: &BTreeMap<String, Vec<f64>>) -> Vec<f64> {
    layout.tensors().flat_map(|(name, _)| &by_name[name]).copied().collect()
}

/// A model whose head, if it has one, is the identity; its other parameters are these by name.
pub(crate) fn reference<'a>(model: &Model, values: impl Fn(&str) -> &'a [f32]) -> Reference {
    let zeros = ReferenceTensors::zeros(&Device::cpu().scope("oracle"), model.layout()).unwrap();
    let (mut reference, width) = (Reference::new(model, &zeros), model.outputs());
    for (name, _) in model.layout().tensors() {
        let parameter = reference.parameter_mut(name).unwrap();
        match name {
            "head.weight" => parameter.iter_mut().step_by(width + 1).for_each(|diagonal| *diagonal = 1.0),
            "head.bias" => {}
            _ => parameter.copy_from_slice(&wide(values(name))),
        }
    }
    reference
}
