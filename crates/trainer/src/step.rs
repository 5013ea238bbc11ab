#![forbid(unsafe_code)]

//! Forward and backward over a batch on several threads, with results that do not depend on their number.
//!
//! A batch is cut into shards of [`SHARD_SAMPLES`], whatever the number of threads; each shard is computed by one thread from
//! beginning to end, and the shards' gradients are summed in order. Every sum is thus formed in one order, always.

use std::ops::Range;
use std::time::{Duration, Instant};

use megabatch_gpu_core::Device;
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::loss::Loss;
use crate::lstm::InputGradients;
use crate::model::{Model, Pass};
use crate::samples::Batch;
use crate::scalar::Scalar;
use crate::tensor::TensorSet;

/// Samples that one thread takes through the model at a time. Part of the arithmetic: another size sums in another order.
pub(crate) const SHARD_SAMPLES: usize = 32;

/// Whether an engine will be asked for gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Training,
    Prediction,
}

/// How much is computed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// Threads that compute; one more reads data.
    pub threads: usize,
    /// Samples in a batch.
    pub batch_size: usize,
}

/// The threads and the memory that batches are computed with.
#[derive(Debug)]
pub(crate) struct Engine<S: Scalar> {
    pool: rayon::ThreadPool,
    workers: Vec<Worker<S>>,
}

/// What one thread computes a shard with.
#[derive(Debug)]
struct Worker<S: Scalar> {
    pass: Pass<S>,
    gradients: Option<TensorSet<S>>,
    totals: Totals,
}

/// What the loss of a part of a batch is computed with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objective {
    pub(crate) loss: Loss,
    /// Outputs of the whole batch, over which the loss is the mean.
    pub(crate) count: usize,
}

/// Sums over shards and micro-batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// The loss without the division by its count.
    pub(crate) loss_sum: f64,
    /// Time of the slowest thread, summed over rounds of the threads.
    pub(crate) forward: Duration,
    pub(crate) backward: Duration,
}

impl<S: Scalar> Engine<S> {
    /// Starts the threads and takes the memory for batches of any size, a shard a thread.
    pub(crate) fn new(device: &Device, model: &Model, compute: Compute, purpose: Purpose) -> Result<Self> {
        let Compute { threads, batch_size } = compute;
        for (setting, value) in [("the number of threads", threads), ("training.batch_size", batch_size)] {
            if value == 0 {
                return Err(Error::setting(setting, &0, "1 or more"));
            }
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|k| format!("compute-{k}"))
            .build()
            .map_err(|source| Error::Threads { threads, source })?;
        let worker = |_| {
            let capacity = batch_size.min(SHARD_SAMPLES);
            let gradients = device.scope("model/gradients/shards");
            Ok(Worker {
                pass: Pass::new(&device.scope("activations"), model, capacity, InputGradients::Skip)?,
                gradients: match purpose {
                    Purpose::Training => Some(TensorSet::zeros(&gradients, model.layout())?),
                    Purpose::Prediction => None,
                },
                totals: Totals::default(),
            })
        };
        let workers = (0..threads.min(batch_size.div_ceil(SHARD_SAMPLES))).map(worker).collect::<Result<_>>()?;
        Ok(Engine { pool, workers })
    }

    /// Adds the gradients of `objective` over `batch` to `gradients`.
    pub(crate) fn accumulate(
        &mut self,
        (model, parameters): (&Model, &TensorSet<S>),
        batch: &Batch,
        objective: Objective,
        gradients: &mut TensorSet<S>,
    ) -> Totals {
        let mut totals = Totals::default();
        for shards in shards_of(batch.len()).chunks(self.workers.len()) {
            let work = self.workers.par_iter_mut().zip(shards.par_iter());
            self.pool.install(|| {
                work.for_each(|(worker, shard)| worker.train((model, parameters), batch, shard.clone(), objective));
            });
            let done = &self.workers[..shards.len()];
            for worker in done {
                gradients.add(worker.gradients.as_ref().expect("an engine made for training"));
                totals.loss_sum += worker.totals.loss_sum;
            }
            let slowest = |time: fn(&Totals) -> Duration| done.iter().map(|worker| time(&worker.totals)).max();
            totals.forward += slowest(|totals| totals.forward).unwrap_or_default();
            totals.backward += slowest(|totals| totals.backward).unwrap_or_default();
        }
        totals
    }

    /// Writes the model's outputs for `batch`, [B, K].
    pub(crate) fn predict(&mut self, model: &Model, parameters: &TensorSet<S>, batch: &Batch, outputs: &mut [S]) {
        let width = model.shape().outputs;
        let rows = outputs.chunks_mut(width * SHARD_SAMPLES).zip(shards_of(batch.len()));
        let mut work: Vec<_> = rows.collect();
        for work in work.chunks_mut(self.workers.len()) {
            let work = self.workers.par_iter_mut().zip(work.par_iter_mut());
            self.pool.install(|| {
                work.for_each(|(worker, (outputs, shard))| {
                    worker.load(batch, shard.clone());
                    model.forward(parameters, &mut worker.pass);
                    outputs.copy_from_slice(worker.pass.outputs());
                });
            });
        }
    }
}

impl<S: Scalar> Worker<S> {
    /// Forward, loss and backward of one shard.
    fn train(
        &mut self,
        (model, parameters): (&Model, &TensorSet<S>),
        batch: &Batch,
        shard: Range<usize>,
        Objective { loss, count }: Objective,
    ) {
        let start = Instant::now();
        self.load(batch, shard.clone());
        model.forward(parameters, &mut self.pass);
        let forward = start.elapsed();

        let outputs = model.shape().outputs;
        let targets = &batch.targets()[shard.start * outputs..shard.end * outputs];
        let (y, d_y) = self.pass.outputs_and_gradient_mut();
        let loss_sum = loss.sum(y, targets);
        loss.gradient((y, targets), count, d_y);
        let gradients = self.gradients.as_mut().expect("an engine made for training");
        gradients.clear();
        model.backward(parameters, &mut self.pass, gradients);
        self.totals = Totals { loss_sum, forward, backward: start.elapsed() - forward };
    }

    fn load(&mut self, batch: &Batch, shard: Range<usize>) {
        let windows = |k: usize| {
            let len = batch.shape().window_len(k);
            &batch.features(k)[shard.start * len..shard.end * len]
        };
        self.pass.load(shard.len(), (0..batch.shape().timeframes.len()).map(windows));
    }
}

/// The shards of a batch of `samples`; the last one may be smaller.
fn shards_of(samples: usize) -> Vec<Range<usize>> {
    (0..samples).step_by(SHARD_SAMPLES).map(|start| start..samples.min(start + SHARD_SAMPLES)).collect()
}
