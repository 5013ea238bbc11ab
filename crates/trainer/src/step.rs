#![forbid(unsafe_code)]

//! Forward and backward over a batch on several threads, with results that do not depend on their number.
//!
//! A batch is cut into shards of [`SHARD_SAMPLES`], whatever the number of threads; each shard is computed by one thread from
//! beginning to end, and the shards' gradients are summed in order. Every sum is thus formed in one order, always.

use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use megabatch_gpu_core::Device;
use rayon::prelude::*;

use crate::carried::Carried;
use crate::dropout::Dropout;
use crate::error::{Error, Result};
use crate::fast::PackedWeights;
use crate::form::{Form, Memory, Shard, Weights};
use crate::loss::Loss;
use crate::model::Model;
use crate::series::Series;
use crate::stream::{Streamed, work_off};
use crate::tensor::TensorSet;
use crate::view::BatchView;

/// Samples that one thread takes through the model at a time. Part of the arithmetic: another size sums in another order.
pub(crate) const SHARD_SAMPLES: usize = 32;

/// Whether an engine will be asked for gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// With dropout between layers or without.
    Training {
        dropout: bool,
    },
    Prediction,
}

/// How much is computed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// Threads that compute; one more reads data.
    pub threads: usize,
    /// Samples in a batch.
    pub batch_size: usize,
    /// How the model is computed.
    pub form: Form,
}

/// The threads and the memory that batches are computed with.
#[derive(Debug)]
pub(crate) struct Engine {
    pool: rayon::ThreadPool,
    workers: Vec<Worker>,
    /// For the fast form.
    weights: Option<PackedWeights>,
}

/// What one thread computes a shard with.
#[derive(Debug)]
struct Worker {
    memory: Memory,
    gradients: Option<TensorSet<f32>>,
    totals: Totals,
}

/// What the loss of a part of a batch is, as a function of weights and samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objective {
    pub(crate) loss: Loss,
    /// Outputs of the whole batch, over which the loss is the mean.
    pub(crate) count: usize,
    pub(crate) dropout: Option<Dropout>,
}

/// What a batch of training changes.
pub(crate) struct Changes<'a> {
    /// They are added to.
    pub(crate) gradients: &'a mut TensorSet<f32>,
    /// Windows start from these states, and those that they compute are noted for the next step.
    pub(crate) carried: Option<&'a mut Carried>,
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

impl Engine {
    /// Starts the threads and takes the memory for batches of any size, a shard a thread.
    pub(crate) fn new(device: &Device, model: &Model, compute: Compute, purpose: Purpose) -> Result<Self> {
        let Compute { threads, batch_size, form } = compute;
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
        let worker = |_| Worker::new(device, model, (form, compute.shard_samples()), purpose);
        let workers = (0..compute.shards_at_once()).map(worker).collect::<Result<_>>()?;
        let weights = match form {
            Form::Plain => None,
            Form::Fast => Some(PackedWeights::new(&device.scope("model/parameters/packed"), model, purpose)?),
        };
        Ok(Engine { pool, workers, weights })
    }

    /// Makes ready for `parameters`; to be called whenever they have changed, before they are computed with.
    pub(crate) fn load(&mut self, model: &Model, parameters: &TensorSet<f32>) {
        if let Some(weights) = &mut self.weights {
            self.pool.install(|| weights.pack(model, parameters));
        }
    }

    /// Adds the gradients of `objective` over `batch` to those of `changes`.
    pub(crate) fn accumulate(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        batch: &BatchView<'_>,
        objective: Objective,
        Changes { gradients, mut carried }: Changes<'_>,
    ) -> Totals {
        let weights = Weights { model, parameters, packed: self.weights.as_ref() };
        let mut totals = Totals::default();
        for shards in shards_of(batch.len()).chunks(self.workers.len()) {
            let work = self.workers.par_iter_mut().zip(shards.par_iter());
            let shard = |samples: &Range<usize>| Shard {
                batch,
                samples: samples.clone(),
                carried: carried.as_deref(),
                dropout: objective.dropout,
            };
            self.pool.install(|| work.for_each(|(worker, samples)| worker.train(weights, &shard(samples), objective)));
            let done = &self.workers[..shards.len()];
            if let Some(carried) = carried.as_deref_mut() {
                let computed: Vec<_> =
                    done.iter().zip(shards).map(|(worker, samples)| (&worker.memory, samples.clone())).collect();
                self.pool.install(|| carried.note(batch, &computed));
            }
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
    pub(crate) fn predict(
        &mut self,
        model: &Model,
        parameters: &TensorSet<f32>,
        batch: &BatchView<'_>,
        outputs: &mut [f32],
    ) {
        let weights = Weights { model, parameters, packed: self.weights.as_ref() };
        let width = model.shape().outputs;
        let rows = outputs.chunks_mut(width * SHARD_SAMPLES).zip(shards_of(batch.len()));
        let mut work: Vec<_> = rows.collect();
        for work in work.chunks_mut(self.workers.len()) {
            let work = self.workers.par_iter_mut().zip(work.par_iter_mut());
            self.pool.install(|| {
                work.for_each(|(worker, (outputs, shard))| {
                    let shard = Shard { batch, samples: shard.clone(), carried: None, dropout: None };
                    let (y, _) = worker.memory.forward(weights, &shard);
                    outputs.copy_from_slice(y);
                });
            });
        }
    }
}

/// Carried state with the weights at rest, see [`stream`](crate::stream).
impl Engine {
    /// Computes the states that `streamed` asks for, on all threads.
    pub(crate) fn stream(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        series: &[Series<'_>],
        streamed: &mut Streamed,
    ) {
        let weights = Weights { model, parameters, packed: self.weights.as_ref() };
        let passages = Mutex::new(streamed.passages(model, series).into_iter());
        let workers = self.workers.par_iter_mut();
        self.pool.install(|| workers.for_each(|worker| work_off(&passages, weights, &mut worker.memory)));
    }

    /// Goes on from `state` [layers, 2, H] of timeframe `k` over `bars` [n, F], at most T of them, on this thread; `state` is then
    /// that after them.
    pub(crate) fn advance(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        bars: (usize, &[f32]),
        state: &mut [f32],
    ) {
        let weights = Weights { model, parameters, packed: self.weights.as_ref() };
        self.workers[0].memory.advance(weights, bars, state);
    }
}

impl Compute {
    /// Samples of the largest shard.
    pub(crate) fn shard_samples(self) -> usize {
        self.batch_size.min(SHARD_SAMPLES)
    }

    /// Shards that are computed at the same time.
    pub(crate) fn shards_at_once(self) -> usize {
        self.threads.min(self.batch_size.div_ceil(SHARD_SAMPLES))
    }
}

impl Worker {
    fn new(device: &Device, model: &Model, (form, capacity): (Form, usize), purpose: Purpose) -> Result<Self> {
        let (activations, gradients) = (device.scope("activations"), device.scope("model/gradients/shards"));
        Ok(Worker {
            memory: Memory::new(&activations, model, (form, capacity), purpose)?,
            gradients: match purpose {
                Purpose::Training { .. } => Some(TensorSet::zeros(&gradients, model.layout())?),
                Purpose::Prediction => None,
            },
            totals: Totals::default(),
        })
    }

    /// Forward, loss and backward of one shard.
    fn train(&mut self, weights: Weights<'_>, shard: &Shard<'_>, Objective { loss, count, .. }: Objective) {
        let start = Instant::now();
        let outputs = weights.model.shape().outputs;
        let targets = &shard.batch.targets()[shard.samples.start * outputs..shard.samples.end * outputs];
        let (y, d_y) = self.memory.forward(weights, shard);
        let forward = start.elapsed();

        let loss_sum = loss.sum(y, targets);
        loss.gradient((y, targets), count, d_y);
        let gradients = self.gradients.as_mut().expect("an engine made for training");
        gradients.clear();
        self.memory.backward(weights, shard, gradients);
        self.totals = Totals { loss_sum, forward, backward: start.elapsed() - forward };
    }
}

/// The shards of a batch of `samples`; the last one may be smaller.
fn shards_of(samples: usize) -> Vec<Range<usize>> {
    (0..samples).step_by(SHARD_SAMPLES).map(|start| start..samples.min(start + SHARD_SAMPLES)).collect()
}
