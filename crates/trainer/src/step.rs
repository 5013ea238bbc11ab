#![forbid(unsafe_code)]

//! Forward and backward over a batch on several threads, with results that do not depend on their number.
//!
//! A batch is cut into shards of [`SHARD_SAMPLES`], whatever the number of threads; each shard is computed by one thread from
//! beginning to end, and the shards' gradients are summed in order. Every sum is thus formed in one order, always.

use std::ops::Range;
use std::time::{Duration, Instant};

use megabatch_gpu_core::Device;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::fast::{self, PackedWeights};
use crate::loss::Loss;
use crate::lstm::InputGradients;
use crate::model::{Model, Pass};
use crate::samples::Batch;
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
    /// How the model is computed.
    pub form: Form,
}

/// How a model is computed: the same mathematics, equal up to rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Window by window, in plain loops and products: the reference for the other.
    Plain,
    /// What windows have in common once, with kernels for the processor at hand.
    #[default]
    Fast,
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

/// What a form computes with.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one a thread, and all are of one form")]
enum Memory {
    Plain(Pass<f32>),
    Fast(fast::Pass),
}

/// The weights of a model, as they are and as the fast form has packed them.
#[derive(Clone, Copy)]
struct Weights<'a> {
    model: &'a Model,
    parameters: &'a TensorSet<f32>,
    packed: Option<&'a PackedWeights>,
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

    /// Adds the gradients of `objective` over `batch` to `gradients`.
    pub(crate) fn accumulate(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        batch: &Batch,
        objective: Objective,
        gradients: &mut TensorSet<f32>,
    ) -> Totals {
        let weights = Weights { model, parameters, packed: self.weights.as_ref() };
        let mut totals = Totals::default();
        for shards in shards_of(batch.len()).chunks(self.workers.len()) {
            let work = self.workers.par_iter_mut().zip(shards.par_iter());
            self.pool.install(|| {
                work.for_each(|(worker, shard)| worker.train(weights, batch, shard.clone(), objective));
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
    pub(crate) fn predict(&mut self, model: &Model, parameters: &TensorSet<f32>, batch: &Batch, outputs: &mut [f32]) {
        let weights = Weights { model, parameters, packed: self.weights.as_ref() };
        let width = model.shape().outputs;
        let rows = outputs.chunks_mut(width * SHARD_SAMPLES).zip(shards_of(batch.len()));
        let mut work: Vec<_> = rows.collect();
        for work in work.chunks_mut(self.workers.len()) {
            let work = self.workers.par_iter_mut().zip(work.par_iter_mut());
            self.pool.install(|| {
                work.for_each(|(worker, (outputs, shard))| {
                    let (y, _) = worker.memory.forward(weights, batch, shard.clone());
                    outputs.copy_from_slice(y);
                });
            });
        }
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
            memory: match form {
                Form::Plain => Memory::Plain(Pass::new(&activations, model, capacity, InputGradients::Skip)?),
                Form::Fast => Memory::Fast(fast::Pass::new(&activations, model, capacity, purpose)?),
            },
            gradients: match purpose {
                Purpose::Training => Some(TensorSet::zeros(&gradients, model.layout())?),
                Purpose::Prediction => None,
            },
            totals: Totals::default(),
        })
    }

    /// Forward, loss and backward of one shard.
    fn train(
        &mut self,
        weights: Weights<'_>,
        batch: &Batch,
        shard: Range<usize>,
        Objective { loss, count }: Objective,
    ) {
        let start = Instant::now();
        let outputs = weights.model.shape().outputs;
        let targets = &batch.targets()[shard.start * outputs..shard.end * outputs];
        let (y, d_y) = self.memory.forward(weights, batch, shard);
        let forward = start.elapsed();

        let loss_sum = loss.sum(y, targets);
        loss.gradient((y, targets), count, d_y);
        let gradients = self.gradients.as_mut().expect("an engine made for training");
        gradients.clear();
        self.memory.backward(weights, batch, gradients);
        self.totals = Totals { loss_sum, forward, backward: start.elapsed() - forward };
    }
}

impl Memory {
    /// Computes the outputs [B, K] of a shard; they and, for writing, their gradient.
    fn forward(&mut self, weights: Weights<'_>, batch: &Batch, shard: Range<usize>) -> (&[f32], &mut [f32]) {
        let Weights { model, parameters, .. } = weights;
        match self {
            Memory::Plain(pass) => {
                let windows = |k: usize| {
                    let len = batch.shape().window_len(k);
                    &batch.features(k)[shard.start * len..shard.end * len]
                };
                pass.load(shard.len(), (0..batch.shape().timeframes.len()).map(windows));
                model.forward(parameters, pass);
                pass.outputs_and_gradient_mut()
            }
            Memory::Fast(pass) => {
                pass.forward((model, parameters), weights.packed(), batch, shard);
                pass.outputs_and_gradient_mut(model)
            }
        }
    }

    /// Adds the parameters' gradients, from that of the outputs, to `gradients`.
    fn backward(&mut self, weights: Weights<'_>, batch: &Batch, gradients: &mut TensorSet<f32>) {
        let Weights { model, parameters, .. } = weights;
        match self {
            Memory::Plain(pass) => model.backward(parameters, pass, gradients),
            Memory::Fast(pass) => pass.backward((model, parameters), weights.packed(), batch, gradients),
        }
    }
}

impl<'a> Weights<'a> {
    fn packed(self) -> &'a PackedWeights {
        self.packed.expect("an engine of the fast form has packed weights")
    }
}

/// The shards of a batch of `samples`; the last one may be smaller.
fn shards_of(samples: usize) -> Vec<Range<usize>> {
    (0..samples).step_by(SHARD_SAMPLES).map(|start| start..samples.min(start + SHARD_SAMPLES)).collect()
}
