//! The memory that a run takes of a GPU, from shapes and before anything is taken: those who take
//! it do so on a device that books and has none.
//!
//! Buffers that a prediction uses too grow to the largest batch, those of the backward pass to the
//! largest that is trained on.

use megabatch_gpu_core::{Device, Scope};
use megabatch_nn::Result;
use megabatch_nn::memory::{LargestBatch, PlannedTensor, StepPhase};
use megabatch_nn::model::Model;

use crate::ComputeConfig;
use crate::ops::BatchUploader;

/// Device memory of a run, counted by tensor.
pub(super) struct MemoryEstimate<'a> {
    pub(super) model: &'a Model,
    pub(super) config: &'a ComputeConfig,
    pub(super) batch: &'a LargestBatch,
    /// The most that a batch brings that is trained on.
    pub(super) learnt: &'a LargestBatch,
    /// The most steps of the windows of each timeframe.
    pub(super) rows: MostRows<'a>,
    /// Scope of a run on a device for plans. Whoever counts gives back what it takes.
    scope: Scope,
    tensors: Vec<PlannedTensor>,
    /// Bytes of each array that a batch brings to a prediction.
    upload: Vec<usize>,
    /// Bytes of each array that a batch brings that is trained on.
    upload_learnt: Vec<usize>,
}

/// The most rows of each timeframe.
#[derive(Clone, Copy, Debug)]
pub(super) struct MostRows<'a> {
    /// Rows of any batch.
    pub(super) all: &'a [usize],
    /// Rows of a batch that is trained on.
    pub(super) learnt: &'a [usize],
}

impl<'a> MemoryEstimate<'a> {
    /// Nothing so far of a run with `config`, of which `batch` is the most that one brings, and
    /// `learnt` the most that one brings that is trained on. Their windows have `rows` steps.
    pub(super) fn new(
        model: &'a Model,
        config: &'a ComputeConfig,
        batch: &'a LargestBatch,
        learnt: &'a LargestBatch,
        rows: MostRows<'a>,
    ) -> Self {
        let (scope, tensors) = (Device::planning().scope("gpu"), Vec::new());
        let (upload, upload_learnt) = (Vec::new(), Vec::new());
        MemoryEstimate { model, config, batch, learnt, rows, scope, tensors, upload, upload_learnt }
    }

    /// Counts what `take` takes of a device for what is called `name`, and returns what it made.
    pub(super) fn book<R>(
        &mut self,
        part: &'static str,
        name: impl Into<String>,
        used_in: &[StepPhase],
        take: impl FnOnce(&Scope) -> Result<R>,
    ) -> R {
        let booked_bytes = |scope: &Scope| scope.device().usage().allocated_bytes;
        let before = booked_bytes(&self.scope);
        let made = self.dry_run(take);
        self.put(part, name, booked_bytes(&self.scope) - before, used_in);
        made
    }

    /// Makes something on a device for plans, and does not count it.
    pub(super) fn dry_run<R>(&self, make: impl FnOnce(&Scope) -> Result<R>) -> R {
        make(&self.scope).expect("a device for plans has room for everything")
    }

    /// Counts `bytes` for what is called `name`.
    pub(super) fn put(&mut self, part: &'static str, name: impl Into<String>, bytes: usize, used_in: &[StepPhase]) {
        if bytes > 0 {
            self.tensors.push(PlannedTensor { part, name: name.into(), count: 1, bytes, used_in: used_in.to_vec() });
        }
    }

    /// Counts arrays of `all` bytes, of which a batch that is trained on has `learnt`, and their
    /// way.
    pub(super) fn put_mail(
        &mut self,
        name: &str,
        all: impl IntoIterator<Item = usize>,
        learnt: impl IntoIterator<Item = usize>,
    ) {
        let before = self.upload.len();
        self.enqueue(all, learnt);
        let bytes = self.upload[before..].iter().sum();
        self.put("batches", name, bytes, &StepPhase::ALL);
    }

    /// Counts arrays of these bytes, which a batch that is trained on brings, and their way.
    pub(super) fn put_mail_learnt(&mut self, name: &str, bytes: impl IntoIterator<Item = usize>) {
        let before = self.upload_learnt.len();
        self.upload_learnt.extend(bytes);
        let bytes = self.upload_learnt[before..].iter().sum();
        self.put("batches", name, bytes, &StepPhase::ALL);
    }

    /// Counts the way of arrays that are counted elsewhere: to a prediction, and of a batch that is
    /// trained on.
    pub(super) fn enqueue(&mut self, all: impl IntoIterator<Item = usize>, learnt: impl IntoIterator<Item = usize>) {
        self.upload.extend(all);
        self.upload_learnt.extend(learnt);
    }

    /// All tensors, with the way of what a batch brings.
    pub(super) fn into_tensors(mut self) -> Vec<PlannedTensor> {
        let on_its_way = BatchUploader::bytes(&self.upload).max(BatchUploader::bytes(&self.upload_learnt));
        self.put("batches", "a batch as it comes", on_its_way, &[StepPhase::Forward]);
        self.tensors
    }
}
