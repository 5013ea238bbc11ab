//! Parts of a model by themselves, for the tests of operations that compute no more. Other parts
//! are models of their own: a layer of an LSTM, or of graph attention, is one whose head is the
//! identity.

use std::collections::BTreeMap;

use megabatch_nn::model::{Layout, TensorSet};

use crate::attention::{self, Attended};
use crate::parameters::{Parameters, Weights};
use crate::tape::{Matrix, Tape, Var};
use crate::wide;

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its PyTorch name.
    pub name: String,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Row-major.
    pub values: Vec<f64>,
}

/// All tensors of a set.
pub fn parameters(set: &TensorSet) -> Vec<Parameter> {
    let parameter = |(name, shape, values): (&str, &[usize], &[f32])| Parameter {
        name: name.to_owned(),
        shape: shape.to_vec(),
        values: wide(values),
    };
    set.tensors().map(parameter).collect()
}

/// The tensors of `layout`, one after another.
///
/// # Panics
/// If one of them is missing.
pub fn in_order(layout: &Layout, by_name: &BTreeMap<String, Vec<f64>>) -> Vec<f64> {
    layout.tensors().flat_map(|(name, _)| &by_name[name]).copied().collect()
}

/// Results of a part, forward and backward.
#[derive(Clone, Debug, PartialEq)]
pub struct PartOutputs {
    /// `[H]`; of a norm [n, H].
    pub result: Vec<f64>,
    /// Weights of attention; empty for a norm.
    pub weights: Vec<f64>,
    /// As the input.
    pub d_input: Vec<f64>,
    /// By name.
    pub d_parameters: BTreeMap<String, Vec<f64>>,
}

/// Pooling by attention of the states [T, H] of one window, given the gradient of the pooled
/// vector, `[H]`. Parameters are named `pooling.query`, `pooling.attention.in_proj_weight` and so
/// on; weights are [heads, T].
///
/// # Panics
/// If a parameter has another name or shape than in PyTorch.
pub fn pooling(parameters: Vec<Parameter>, heads: usize, states: &[f64], d_pooled: &[f64]) -> PartOutputs {
    compute(parameters, d_pooled.len(), states, d_pooled, |weights, states| {
        attention::pool(weights, "pooling", heads, states)
    })
}

/// Fusion by attention of the vectors [n, H] of one sample, given the gradient of the fused
/// vector, `[H]`. Parameters are named `fusion.self_attn.in_proj_weight` and so on; `inner` is the
/// width of the feed-forward network, and weights are [heads, n, n].
///
/// # Panics
/// As [`pooling`].
pub fn fusion(parameters: Vec<Parameter>, heads: usize, inner: usize, tokens: &[f64], d_fused: &[f64]) -> PartOutputs {
    compute(parameters, d_fused.len(), tokens, d_fused, |weights, tokens| {
        attention::fuse(weights, heads, inner, tokens)
    })
}

/// torch.nn.LayerNorm of rows [n, H = `hidden`], given the gradient [n, H] of the normalised rows.
/// Parameters are named `norm.weight` and `norm.bias`.
///
/// # Panics
/// As [`pooling`].
pub fn layer_norm(parameters: Vec<Parameter>, hidden: usize, rows: &[f64], d_rows: &[f64]) -> PartOutputs {
    compute(parameters, hidden, rows, d_rows, |weights, rows| Attended {
        result: weights.layer_norm("norm", rows),
        weights: Vec::new(),
    })
}

fn compute(
    parameters: Vec<Parameter>,
    hidden: usize,
    input: &[f64],
    d_result: &[f64],
    part: impl for<'t> Fn(&Weights<'t>, Var<'t>) -> Attended<'t>,
) -> PartOutputs {
    let tape = Tape::default();
    let parameters =
        Parameters::new(parameters.into_iter().map(|parameter| (parameter.name, parameter.shape, parameter.values)));
    let weights = parameters.on_tape(&tape);
    let input = tape.leaf(Matrix::new(input.len() / hidden, hidden, input.to_vec()));
    let attended = part(&weights, input);
    weights.check_all_seen();
    let gradients = tape.gradients(attended.result, Matrix::new(d_result.len() / hidden, hidden, d_result.to_vec()));
    PartOutputs {
        result: attended.result.value().values.clone(),
        weights: attended.weights.iter().flat_map(|weights| weights.value().values.clone()).collect(),
        d_input: gradients.with_respect_to(input).values,
        d_parameters: weights.gradients(&gradients),
    }
}
