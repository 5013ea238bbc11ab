#![forbid(unsafe_code)]

//! The memory that a training run takes of a GPU.

use megabatch_nn::cuda;
use megabatch_nn::memory::PlannedTensor;
use megabatch_nn::model::Model;
use serde::Serialize;

use super::largest::largest_batch;
use crate::config::Config;
use crate::config::countable::check_countable;
use crate::data::samples::Samples;
use crate::error::Result;

/// GPU memory of a run at its peak, tensor by tensor: of its largest batch all of it, from the
/// first such batch to the run's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuFootprint {
    /// The tensors, none of them empty.
    pub tensors: Vec<PlannedTensor>,
}

impl GpuFootprint {
    /// Parts of the tensors, in the order of a plan.
    pub const PARTS: [&str; 6] = ["series", "parameters", "gradients", "optimizer", "activations", "batches"];

    /// Footprint of training with `config` on the samples `train` of `samples`, validated on
    /// `validation`. Of windows that are slices of series, those that a batch has in common are
    /// counted once, as far as they are in common in every batch; batches take no more than that,
    /// and less where they happen to have more in common.
    ///
    /// # Errors
    /// As [`Config::check_on_gpu`] and [`Model::new`], and whatever is wrong with series.
    pub fn of(config: &Config, samples: &dyn Samples, train: &[usize], validation: &[usize]) -> Result<Self> {
        config.check_on_gpu()?;
        config.loss.check_groups(samples.shape().outputs)?;
        let config = Config { model: config.model.for_loss(config.loss), ..config.clone() };
        check_countable(&config, samples.shape(), samples.graphs().map_or(1, |graphs| graphs.largest().0))?;
        let model = Model::new(samples.shape().clone(), config.model)?;
        let batch = largest_batch(&config, samples, train, validation)?;
        Ok(GpuFootprint { tensors: cuda::tensors(&model, &config.on_device(), &batch) })
    }

    /// All of it.
    pub fn total_bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// Bytes of the tensors of one of [`GpuFootprint::PARTS`].
    pub fn part_bytes(&self, part: &str) -> usize {
        self.tensors.iter().filter(|tensor| tensor.part == part).map(|tensor| tensor.bytes).sum()
    }
}
