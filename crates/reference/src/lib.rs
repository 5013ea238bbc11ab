#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod attention;
mod graph;
mod inputs;
mod loss;
mod lstm;
mod model;
mod parameters;
pub mod parts;
mod tape;

pub use graph::{Graph, GraphDropout};
pub use inputs::{Inputs, LayerState, Read, Sequences};
pub use loss::{LossValue, loss, loss_of_graphs};
/// The crate that describes models. In its own unit tests it is another crate than `crate`.
pub use megabatch_nn as nn;
pub use model::{Gradients, LayerStates, Outputs, Reference};
