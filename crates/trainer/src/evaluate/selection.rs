//! Samples, or graphs, that a model is used on.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use megabatch_nn::graph::{Graphs, check_graphs};
use megabatch_nn::model::Model;

use crate::data::sample_ranges::SampleRanges;
use crate::data::samples::Samples;
use crate::error::{Error, Result};

/// Samples to evaluate, by index, visited in this order; for a model over graphs, graphs.
#[derive(Clone, Copy)]
pub struct Selection<'a> {
    /// The source.
    pub samples: &'a dyn Samples,
    /// Which of them.
    pub indices: &'a SampleRanges,
}

/// Progress of an evaluation in samples, or graphs. It may end the evaluation by answering
/// `ControlFlow::Break`. While a batch is waited for, it is told the same number again.
pub type EvaluationProgress<'a> = dyn FnMut(usize) -> ControlFlow<()> + 'a;

/// Progress of a pass, which also tells a feed that waits whether the pass goes on.
pub(crate) struct SharedProgress<'p, 'f> {
    progress: RefCell<&'p mut EvaluationProgress<'f>>,
    done: Cell<usize>,
}

impl<'p, 'f> SharedProgress<'p, 'f> {
    pub(crate) fn new(progress: &'p mut EvaluationProgress<'f>) -> Self {
        SharedProgress { progress: RefCell::new(progress), done: Cell::new(0) }
    }

    /// Tells that `done` samples, or graphs, are done.
    pub(crate) fn at(&self, done: usize) -> ControlFlow<()> {
        self.done.set(done);
        (self.progress.borrow_mut())(done)
    }

    /// True if the pass goes on.
    pub(crate) fn is_wanted(&self) -> bool {
        self.at(self.done.get()).is_continue()
    }
}

/// Refuses samples that the model was not built for.
pub(crate) fn check_shape(model: &Model, samples: &dyn Samples) -> Result<()> {
    if samples.shape() == model.shape() {
        return check_graphs_of(model, samples);
    }
    Err(Error::SamplesShape { model: model.shape().to_string(), samples: samples.shape().to_string() })
}

/// The graphs of `selection`, for a model over graphs.
///
/// # Errors
/// As [`check_graphs`].
pub(crate) fn graphs_of<'a>(model: &Model, selection: Selection<'a>) -> Result<Option<&'a dyn Graphs>> {
    let graphs = selection.samples.graphs().filter(|_| model.config().is_over_graphs());
    graphs.map_or(Ok(()), |graphs| check_graphs(graphs, selection.indices.iter()))?;
    Ok(graphs)
}

/// Refuses graphs for a model of samples that stand alone, and such samples for a model over
/// graphs.
fn check_graphs_of(model: &Model, samples: &dyn Samples) -> Result<()> {
    let config = model.config();
    match (config.readout, samples.graphs()) {
        (None, Some(_)) => {
            let expected = "node, mean, sum or max for samples that are the nodes of graphs";
            Err(Error::setting("readout", &"none", expected))
        }
        (Some(readout), None) => {
            let readout = format!("{readout:?}").to_lowercase();
            Err(Error::setting("readout", &readout, "none for samples that are not nodes of graphs"))
        }
        (Some(_), Some(graphs)) if ![0, graphs.edge_attributes()].contains(&config.graph_edge_attributes) => {
            let expected = "the number of the graphs' edge attributes, or 0 to leave them unseen";
            Err(Error::setting("graph_edge_attributes", &config.graph_edge_attributes, expected))
        }
        _ => Ok(()),
    }
}
