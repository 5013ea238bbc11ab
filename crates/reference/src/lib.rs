#![doc = include_str!("../README.md")]
mod attention;
mod cell;
mod graph;
mod gru;
mod inputs;
mod loss;
mod lstm;
mod model;
mod parameters;
pub mod parts;
mod recurrent;
mod tape;

pub use graph::{Graph, GraphDropout};
pub use inputs::{Inputs, LayerState, Read, Sequences};
pub use loss::{LossValue, loss, loss_of_graphs};
pub use model::{Gradients, LayerStates, Outputs, Reference};

/// The same numbers in double precision.
pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}
