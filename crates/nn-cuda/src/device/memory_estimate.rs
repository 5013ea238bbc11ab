//! The memory that a run takes of a GPU, counted by those who take it, from shapes and before
//! anything is taken.

use megabatch_nn::memory::{LargestBatch, PlannedTensor, StepPhase};
use megabatch_nn::model::Model;

use crate::ComputeConfig;
use crate::ops::BatchUploader;

/// Device memory of a run, counted by tensor.
pub(super) struct MemoryEstimate<'a> {
    pub(super) model: &'a Model,
    pub(super) config: &'a ComputeConfig,
    pub(super) batch: &'a LargestBatch,
    /// Steps of the windows of each timeframe.
    pub(super) rows: Vec<usize>,
    tensors: Vec<PlannedTensor>,
    /// Bytes of each array that a batch brings.
    upload: Vec<usize>,
}

impl<'a> MemoryEstimate<'a> {
    /// Nothing so far of a run with `config`, of which `batch` is the most that one brings.
    pub(super) fn new(model: &'a Model, config: &'a ComputeConfig, batch: &'a LargestBatch) -> Self {
        let rows = batch.steps.iter().zip(&batch.windows).map(|(steps, windows)| steps * windows).collect();
        MemoryEstimate { model, config, batch, rows, tensors: Vec::new(), upload: Vec::new() }
    }

    /// Counts `bytes` for what is called `name`.
    pub(super) fn put(&mut self, part: &'static str, name: impl Into<String>, bytes: usize, used_in: &[StepPhase]) {
        if bytes > 0 {
            self.tensors.push(PlannedTensor { part, name: name.into(), count: 1, bytes, used_in: used_in.to_vec() });
        }
    }

    /// Counts arrays of these bytes, which each batch brings, and their way.
    pub(super) fn put_mail(&mut self, name: &str, bytes: impl IntoIterator<Item = usize>) {
        let before = self.upload.len();
        self.upload.extend(bytes);
        let all = self.upload[before..].iter().sum();
        self.put("batches", name, all, &StepPhase::ALL);
    }

    /// Counts the way of an array that is counted elsewhere.
    pub(super) fn enqueue(&mut self, bytes: usize) {
        self.upload.push(bytes);
    }

    /// All tensors, with the way of what a batch brings.
    pub(super) fn into_tensors(mut self) -> Vec<PlannedTensor> {
        let on_its_way = BatchUploader::bytes(&self.upload);
        self.put("batches", "a batch as it comes", on_its_way, &[StepPhase::Forward]);
        self.tensors
    }
}
