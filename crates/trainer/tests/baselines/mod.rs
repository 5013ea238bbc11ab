//! Baselines that nobody waits for, for tests.

use std::ops::ControlFlow;

use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::Readout;
use megabatch_trainer::{Baselines, Result, Selection};

/// Baselines of a model with this readout and loss.
pub(crate) fn fit_for(
    device: &Device,
    training: Selection<'_>,
    readout: Option<Readout>,
    loss: Loss,
) -> Result<Baselines> {
    Baselines::fit(device, training, readout, loss, &mut |_| ControlFlow::Continue(()))
}

/// Baselines of numbers of samples, or of nodes.
pub(crate) fn fit_numbers(device: &Device, training: Selection<'_>) -> Result<Baselines> {
    fit_for(device, training, training.samples.graphs().map(|_| Readout::Node), Loss::Mse)
}
