//! Data compared with the model and the loss before the first step.

use megabatch_nn::batch::LossOn;
use megabatch_nn::graph::{GraphTargets, Graphs};

use crate::config::Config;
use crate::data::level::check_readout_of;
use crate::data::sample_ranges::SampleRanges;
use crate::data::samples::{Samples, are_slices};
use crate::error::{Error, Result};

/// Samples whose targets are read at once.
const CHECKED_SAMPLES: usize = 4096;

impl Config {
    /// Refuses samples whose targets the model does not predict, or that the loss does not accept.
    /// All targets are read if the source has them apart from windows; others are checked with
    /// their batch.
    ///
    /// # Errors
    /// [`Error::ReadoutLevel`](crate::Error::ReadoutLevel) for a readout of another level than the
    /// targets. From `megabatch_nn`: [`Setting`](megabatch_nn::Error::Setting) for a loss that the
    /// readout does not have; [`Task`](megabatch_nn::Error::Task) for tasks that do not cover all
    /// targets; [`Targets`](megabatch_nn::Error::Targets).
    pub fn check_samples(&self, samples: &dyn Samples) -> Result<()> {
        let width = samples.shape().outputs;
        self.loss.check_readout(self.model.readout)?;
        self.loss.check_groups(width)?;
        check_readout_of(samples, self.model.readout)?;
        if self.is_weighted(samples) && self.model.is_over_graphs() {
            let expected = "none, to train without the weights of samples, which a model over graphs does not use";
            return Err(Error::Setting { setting: "sample_weights", value: "auto".to_owned(), expected });
        }
        let targets = samples.targets();
        if self.loss.takes_any_number(width) {
            return Ok(());
        }
        let check = |first: usize, targets: &[f32]| {
            let mut faults =
                (first..).zip(targets.chunks_exact(width)).filter_map(|(n, row)| Some((n, self.loss.fault(row)?)));
            let fault = faults.next().map(|(sample, fault)| fault.needs.error(place(samples, sample), fault.found));
            fault.map_or(Ok(()), |fault| Err(fault.into()))
        };
        if samples.streamed_series().is_some() {
            let mut targets = vec![0.0; CHECKED_SAMPLES * width];
            for first in (0..samples.len()).step_by(CHECKED_SAMPLES) {
                let part: Vec<usize> = (first..samples.len().min(first + CHECKED_SAMPLES)).collect();
                let targets = &mut targets[..part.len() * width];
                let (last, count) = (first + part.len() - 1, part.len());
                let read = samples.read_targets(&part, targets);
                read.map_err(|source| Error::Gather { first, last, count, source })?;
                check(first, targets)?;
            }
        }
        targets.map_or(Ok(()), |targets| check(0, targets))
    }

    /// Refuses early stopping without samples in `validation`.
    ///
    /// # Errors
    /// [`Error::Setting`] for the number of validations.
    pub fn check_validation(&self, validation: &SampleRanges) -> Result<()> {
        match self.early_stopping {
            Some(rule) if validation.is_empty() => {
                let expected = "none where nothing is validated; or give validation a fraction in `split`";
                Err(Error::setting("early_stopping", &rule.patience, expected))
            }
            _ => Ok(()),
        }
    }

    /// Refuses dense training of samples that are stored as windows.
    ///
    /// # Errors
    /// [`Error::NeedsSeries`] that names `loss_on`.
    pub fn check_dense_samples(&self, samples: &dyn Samples) -> Result<()> {
        if self.loss_on == LossOn::EveryStep && !are_slices(samples) {
            let expected = "last_step for samples that are stored as windows, which have no bars in common";
            return Err(Error::NeedsSeries { setting: "loss_on", value: "every_step", expected });
        }
        Ok(())
    }
}

/// The graph, where there are any, and the sample of a row of targets, with a colon.
fn place(samples: &dyn Samples, sample: usize) -> String {
    let graph_place = |graphs: &dyn Graphs| {
        (0..graphs.len()).find_map(|graph| {
            let node = graphs.nodes(graph).iter().position(|&node| node == sample)?;
            Some(match graphs.targets_of() {
                Some(GraphTargets::Graphs) => format!("graph {graph}: "),
                _ => format!("sample {sample}, which is node {node} of graph {graph}: "),
            })
        })
    };
    samples.graphs().and_then(graph_place).unwrap_or_else(|| format!("sample {sample}: "))
}
