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
use crate::ops::{BatchUploader, PlannedUpload};

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
    /// The upload of a batch to a prediction, and of one that is trained on.
    uploads: [PlannedUpload; 2],
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
        let (scope, uploads) = (Device::planning().scope("gpu"), Default::default());
        MemoryEstimate { model, config, batch, learnt, rows, scope, tensors: Vec::new(), uploads }
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
        let bytes = booked_bytes(&self.scope) - before;
        if bytes > 0 {
            self.tensors.push(PlannedTensor { part, name: name.into(), count: 1, bytes, used_in: used_in.to_vec() });
        }
        made
    }

    /// Makes something on a device for plans, and does not count it.
    pub(super) fn dry_run<R>(&self, make: impl FnOnce(&Scope) -> Result<R>) -> R {
        make(&self.scope).expect("a device for plans has room for everything")
    }

    /// Counts the arrays that `plan` takes for the upload of a batch, and their way. It is called
    /// for the most that a batch brings to a prediction, then for the most of one that is trained
    /// on; `None` brings nothing.
    pub(super) fn book_upload<Most>(
        &mut self,
        name: impl Into<String>,
        all_and_learnt: [Option<Most>; 2],
        mut plan: impl FnMut(&mut PlannedUpload, Most) -> Result<()>,
    ) {
        let mut uploads = std::mem::take(&mut self.uploads);
        self.book("batches", name, &StepPhase::ALL, |_| {
            let mut brought = all_and_learnt.into_iter().zip(&mut uploads);
            brought.try_for_each(|(most, upload)| most.map_or(Ok(()), |most| plan(upload, most)))
        });
        self.uploads = uploads;
    }

    /// All tensors, with the way of what a batch brings.
    pub(super) fn into_tensors(mut self) -> Vec<PlannedTensor> {
        let uploads = std::mem::take(&mut self.uploads);
        self.book("batches", "a batch as it comes", &[StepPhase::Forward], |scope| {
            let mut uploader = BatchUploader::new(scope)?;
            uploads.iter().try_for_each(|upload| uploader.reserve(upload))?;
            Ok(uploader)
        });
        self.tensors
    }
}
