#![forbid(unsafe_code)]

//! Data held against the model and the loss before the first step.

use megabatch_nn::graph::{GraphTargets, Graphs};

use crate::config::Config;
use crate::data::level::check_readout_of;
use crate::data::samples::Samples;
use crate::error::Result;

impl Config {
    /// Refuses samples whose targets the model does not predict or the loss has no meaning for.
    /// Targets are looked through as far as the source has all of them in memory; others are when
    /// their batch comes.
    ///
    /// # Errors
    /// [`Error::ReadoutLevel`](crate::Error::ReadoutLevel) for a readout that is not that of the
    /// targets. Of `megabatch_nn`: [`Setting`](megabatch_nn::Error::Setting) for a loss that is not
    /// one of the readout; [`Task`](megabatch_nn::Error::Task) for tasks that
    /// are not of all targets; [`Targets`](megabatch_nn::Error::Targets).
    pub fn check_samples(&self, samples: &dyn Samples) -> Result<()> {
        let width = samples.shape().outputs;
        self.loss.check_readout(self.model.readout)?;
        self.loss.check_groups(width)?;
        check_readout_of(samples, self.model.readout)?;
        let Some(targets) = samples.targets().filter(|_| !self.loss.takes_any_number(width)) else { return Ok(()) };
        for (sample, row) in targets.chunks_exact(width).enumerate() {
            if let Some(fault) = self.loss.fault(row) {
                return Err(fault.needs.error(place(samples, sample), fault.found).into());
            }
        }
        Ok(())
    }
}

/// The graph, where there are any, and the sample of a row of targets, with a colon.
fn place(samples: &dyn Samples, sample: usize) -> String {
    let of_graph = |graphs: &dyn Graphs| {
        (0..graphs.len()).find_map(|graph| {
            let node = graphs.nodes(graph).iter().position(|&node| node == sample)?;
            Some(match graphs.targets_of() {
                Some(GraphTargets::Graphs) => format!("graph {graph}: "),
                _ => format!("sample {sample}, which is node {node} of graph {graph}: "),
            })
        })
    };
    samples.graphs().and_then(of_graph).unwrap_or_else(|| format!("sample {sample}: "))
}
