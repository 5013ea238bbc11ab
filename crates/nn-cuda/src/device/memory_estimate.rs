#![forbid(unsafe_code)]

//! The memory that a run takes of a GPU, counted by those who take it, from shapes and before
//! anything is taken.

use megabatch_amp::Precision;
use megabatch_nn::memory::{LargestBatch, PlannedTensor, StepPhase};
use megabatch_nn::model::Model;

use super::rounded::round_largest;
use super::weights::Resident;
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

impl MemoryEstimate<'_> {
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
}

/// The tensors of a run with `config`, of which `batch` is the most that one brings.
pub fn tensors(model: &Model, config: &ComputeConfig, batch: &LargestBatch) -> Vec<PlannedTensor> {
    let batch = &*round_largest(model, config, batch);
    let rows = batch.steps.iter().zip(&batch.windows).map(|(steps, windows)| steps * windows).collect();
    let mut estimate = MemoryEstimate { model, config, batch, rows, tensors: Vec::new(), upload: Vec::new() };
    Resident::estimate(&mut estimate);
    match config.precision {
        _ if model.config().is_over_graphs() => super::graphs::estimate(&mut estimate),
        Precision::Fp32 => super::lstm_model::estimate::<f32>(&mut estimate),
        Precision::Bf16 => super::lstm_model::estimate::<half::bf16>(&mut estimate),
        Precision::Fp16 => super::lstm_model::estimate::<half::f16>(&mut estimate),
    }
    let on_its_way = BatchUploader::bytes(&estimate.upload);
    estimate.put("batches", "a batch as it comes", on_its_way, &[StepPhase::Forward]);
    estimate.tensors
}
