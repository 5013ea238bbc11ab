//! Forward and backward over a batch on several threads, with results that do not depend on their
//! number.
//!
//! A batch is cut into shards of
//! [`SHARD_SAMPLES`](crate::SHARD_SAMPLES), or into its graphs, whatever the number of
//! threads. Where there are as many shards as threads, each is computed by one thread from
//! beginning to end; where there are more threads, in tasks of all of them. The shards' gradients
//! are summed in order. Every sum is thus formed in one order, always.

mod parts;
mod tasks;
mod trace;
mod worker;
mod workspace;

use std::ops::Range;
use std::time::Duration;

use megabatch_amp::{Accuracy, Precision};
use megabatch_gpu_core::{Device, Scope};
use megabatch_nn::batch::{BatchView, SegmentBars};
use megabatch_nn::graph::Graphs;
use megabatch_nn::loss::Objective;
use megabatch_nn::memory::TensorPlan;
use megabatch_nn::model::{Model, TensorSet};
use megabatch_nn::{Error, Result};
use rayon::prelude::*;

use crate::arithmetic::CpuArithmetic;
use crate::carried::{Carried, ComputedState};
use crate::compute::{Capacity, Compute, Purpose, buffer_lens, by_tensor};
use crate::profile::Profile;
use crate::shard::{BlockFinals, FinalSink, PackedWeights, Shard, ShardWorkspace, Weights};
use crate::stateful_inference::StatefulInference;
use parts::parts_of;
use worker::Worker;
use workspace::{round_weights, weights, working_copy};

/// The threads and the memory that batches are computed with.
#[derive(Debug)]
pub struct Engine {
    device: Device,
    compute: Compute,
    purpose: Purpose,
    pool: rayon::ThreadPool,
    /// Capacity of each worker's memory.
    capacity: Capacity,
    workers: Vec<Worker>,
    weights: PackedWeights,
    /// The weights as products in 16 bits read them: matrices rounded, biases as they are.
    working: Option<TensorSet>,
    /// True if the recurrent layers' matrices are in eight bits.
    int8: bool,
}

/// Outputs of a batch of training.
pub struct Changes<'a> {
    /// They are added to.
    pub gradients: &'a mut TensorSet,
    /// Windows start from these states, and those that they compute are noted for the next step.
    pub carried: Option<&'a mut Carried>,
}

/// Sums over shards and micro-batches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// The loss without the division by its count.
    pub loss_sum: f64,
    /// Terms that it is the sum of.
    pub terms: usize,
    /// Time of the forward pass on the slowest thread, summed over rounds of the threads.
    pub forward: Duration,
    /// The same of the backward pass.
    pub backward: Duration,
}

/// Sums over one block of a batch: a shard, or a graph.
#[derive(Clone, Copy, Debug)]
pub struct BlockSums<'a> {
    /// Gradients of its terms of the loss.
    pub gradients: &'a TensorSet,
    /// The loss without the division by its count.
    pub loss_sum: f64,
    /// Terms that it is the sum of.
    pub terms: usize,
}

/// Receivers of the blocks of a batch.
pub struct BlockSinks<'a> {
    /// Receives each block, in their order.
    pub blocks: &'a mut dyn FnMut(BlockSums<'_>),
    /// Receives the gradients of the blocks of [`Engine::last_round`] while these are computed, one
    /// of [`Model::gradient_groups`] after the other. `None` where nobody waits for them.
    pub finals: Option<FinalSink<'a>>,
}

/// A batch with its objective.
struct BatchWork<'a> {
    batch: &'a BatchView<'a>,
    objective: Objective,
    carried: Option<&'a mut Carried>,
    finals: Option<FinalSink<'a>>,
}

/// Common input of all blocks of a round, which are computed at the same time.
#[derive(Clone, Copy)]
struct RoundWork<'a> {
    weights: Weights<'a>,
    objective: Objective,
    /// Place of the first block among those of the batch.
    first: usize,
    finals: Option<FinalSink<'a>>,
}

impl<'a> RoundWork<'a> {
    /// Receiver of the gradients of the `n`-th block.
    fn finals_of(self, n: usize) -> Option<BlockFinals<'a>> {
        self.finals.map(|sink| BlockFinals { block: self.first + n, sink })
    }
}

/// Time of a batch on the slowest thread, summed over rounds of the threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchTimes {
    /// The forward pass.
    pub forward: Duration,
    /// The backward pass.
    pub backward: Duration,
}

impl Engine {
    /// Starts the threads and takes the memory for batches of any size, a shard a thread. For
    /// graphs, whose size is not known here, that is left to [`Engine::ensure_capacity`]. Products
    /// are in `precision`.
    pub fn new(
        device: &Device,
        model: &Model,
        compute: Compute,
        purpose: Purpose,
        precision: Precision,
    ) -> Result<Self> {
        let Compute { threads, batch_size } = compute;
        for (setting, value) in [("threads", threads), ("batch_size", batch_size)] {
            if value == 0 {
                return Err(Error::setting(setting, &0, "1 or more"));
            }
        }
        let pool = pool(threads)?;
        let arithmetic = CpuArithmetic::for_precision(precision);
        let weights = PackedWeights::new(&device.scope("model/parameters/packed"), model, purpose, arithmetic)?;
        let working = working_copy(&device.scope("model/parameters/working"), model, arithmetic)?;
        let (capacity, workers) = (Capacity::default(), Vec::new());
        let (device, int8) = (device.clone(), false);
        let mut engine = Engine { device, compute, purpose, pool, capacity, workers, weights, working, int8 };
        if !model.config().is_over_graphs() {
            engine.ensure_capacity(model, compute.capacity(purpose))?;
        }
        Ok(engine)
    }

    /// The same engine with the recurrent layers' matrices in eight bits, made of `parameters` and
    /// booked on `scope`; by how much each matrix is changed, under its name.
    ///
    /// # Errors
    /// [`Error::Setting`] for a model without recurrent layers, [`Error::Quantize`] for weights
    /// that are not finite.
    pub fn with_int8(
        mut self,
        scope: &Scope,
        model: &Model,
        parameters: &TensorSet,
    ) -> Result<(Self, Vec<(String, Accuracy)>)> {
        if model.recurrent_layers().is_empty() {
            return Err(Error::setting("encoder", &"none", "lstm for predictions with weights in eight bits"));
        }
        let errors = self.weights.quantize(scope, model, parameters)?;
        self.int8 = true;
        let activations = self.device.scope("activations");
        self.workers.iter_mut().try_for_each(|worker| worker.memory.ensure_int8_capacity(&activations))?;
        Ok((self, errors))
    }

    /// The same engine, which measures its time layer by layer.
    pub fn profiled(mut self) -> Self {
        self.weights.profiles = true;
        self
    }

    /// The time of all threads since the last call, layer by layer.
    pub fn take_profile(&mut self, model: &Model) -> Profile {
        let mut profile = Profile::for_model(model);
        for worker in &mut self.workers {
            worker.memory.give_times(&mut profile);
        }
        profile
    }

    /// Gives back the memory of all shards, and takes less at the next
    /// [`Engine::ensure_batch_capacity`]: for the shards of smaller batches, or for another
    /// purpose. Threads share no shard then, for which each would take memory of its own.
    pub fn cut_to(&mut self, model: &Model, batch_size: usize, purpose: Purpose) {
        self.compute = Compute { batch_size, ..self.compute }.without_sharing(model, purpose);
        self.purpose = purpose;
        self.workers.clear();
        self.capacity = Capacity::default();
    }

    /// Grows the workers' memory to shards of up to `capacity`.
    pub fn ensure_capacity(&mut self, model: &Model, capacity: Capacity) -> Result<()> {
        let Capacity { samples, edges, run, threads } = self.capacity;
        let capacity = Capacity {
            samples: samples.max(capacity.samples),
            edges: edges.max(capacity.edges),
            run: run.max(capacity.run),
            threads: threads.max(capacity.threads),
        };
        if capacity != self.capacity || self.workers.is_empty() {
            // Given back before the new memory is taken.
            self.workers.clear();
            let arithmetic = self.weights.arithmetic();
            let worker = |_| Worker::new(&self.device, model, capacity, self.purpose, arithmetic);
            self.workers = (0..self.compute.shards_at_once(model, self.purpose)).map(worker).collect::<Result<_>>()?;
            if self.int8 {
                let scope = self.device.scope("activations");
                self.workers.iter_mut().try_for_each(|worker| worker.memory.ensure_int8_capacity(&scope))?;
            }
            self.capacity = capacity;
        }
        Ok(())
    }

    /// Grows the workers' memory to the largest shard of a batch; of `graphs`, for a model over
    /// graphs.
    pub fn ensure_batch_capacity(&mut self, model: &Model, graphs: Option<&dyn Graphs>) -> Result<()> {
        let graph_capacity = |graphs: &dyn Graphs| {
            let (samples, edges) = graphs.largest();
            self.compute.graph_capacity(samples, edges)
        };
        let capacity = graphs.map_or_else(|| self.compute.capacity(self.purpose), graph_capacity);
        self.ensure_capacity(model, capacity)
    }

    /// Packs `parameters`. To be called whenever they have changed, before they are computed with.
    pub fn load(&mut self, model: &Model, parameters: &TensorSet) {
        let weights = &mut self.weights;
        self.working.iter_mut().for_each(|working| round_weights(weights.arithmetic(), parameters, working));
        let parameters = self.working.as_ref().unwrap_or(parameters);
        self.pool.install(|| weights.pack(model, parameters));
    }

    /// Adds the gradients of `objective` over `batch` to those of `changes`; `totals`, with those
    /// of the batch added shard by shard, so that a sum does not depend on where batches end.
    pub fn accumulate(
        &mut self,
        model: &Model,
        parameters: &TensorSet,
        batch: &BatchView<'_>,
        objective: Objective,
        Changes { gradients, carried }: Changes<'_>,
        mut totals: Totals,
    ) -> Totals {
        let work = BatchWork { batch, objective, carried, finals: None };
        let times = self.train_blocks(model, parameters, work, |pool, done| {
            pool.install(|| add_in_order(done, gradients));
            for worker in done {
                totals.loss_sum += worker.totals.loss_sum;
                totals.terms += worker.totals.terms;
            }
        });
        Totals { forward: totals.forward + times.forward, backward: totals.backward + times.backward, ..totals }
    }

    /// Gives the gradients of `objective` over `batch` to `sinks`, block by block in the order in
    /// which [`Engine::accumulate`] adds them: for a sum that another process begins or goes on
    /// with.
    pub fn accumulate_blocks(
        &mut self,
        model: &Model,
        parameters: &TensorSet,
        batch: &BatchView<'_>,
        objective: Objective,
        BlockSinks { blocks, finals }: BlockSinks<'_>,
    ) -> BatchTimes {
        let work = BatchWork { batch, objective, carried: None, finals };
        self.train_blocks(model, parameters, work, |_, done| {
            for worker in done {
                let gradients = worker.gradients.as_ref().expect("an engine made for training");
                let Totals { loss_sum, terms, .. } = worker.totals;
                blocks(BlockSums { gradients, loss_sum, terms });
            }
        })
    }

    /// Blocks that are computed at the same time, at most.
    pub fn blocks_at_once(&self) -> usize {
        self.workers.len()
    }

    /// The blocks of `batch` that are computed last, all at the same time: their places among all
    /// of its blocks, in which they come last.
    pub fn last_round(&self, batch: &BatchView<'_>, objective: Objective) -> Range<usize> {
        let count = parts_of(batch, self.purpose, objective.position).len();
        count.saturating_sub(1) / self.workers.len() * self.workers.len()..count
    }

    /// Computes the blocks of a batch, and gives them to `sink` in their order, as many at once as
    /// are computed at once, with the threads.
    fn train_blocks(
        &mut self,
        model: &Model,
        parameters: &TensorSet,
        BatchWork { batch, objective, mut carried, finals }: BatchWork<'_>,
        mut sink: impl FnMut(&rayon::ThreadPool, &[Worker]),
    ) -> BatchTimes {
        let weights = weights(model, parameters, &self.weights, &self.working);
        let (mut times, mut first) = (BatchTimes::default(), 0);
        let all = parts_of(batch, self.purpose, objective.position);
        for parts in all.chunks(self.workers.len()) {
            let is_last = first + parts.len() == all.len();
            let work = RoundWork { weights, objective, first, finals: finals.filter(|_| is_last) };
            first += parts.len();
            let states = carried.as_deref();
            let shards: Vec<_> = parts.iter().map(|part| part.shard(batch, states, Some(objective.dropout))).collect();
            if self.workers[0].memory.is_in_tasks() {
                tasks::train(&self.pool, &mut self.workers, work, &shards);
            } else {
                let each = self.workers.par_iter_mut().zip(shards.par_iter()).enumerate();
                self.pool.install(|| each.for_each(|(n, (worker, shard))| worker.train(work, n, shard)));
            }
            drop(shards);
            let done = &self.workers[..parts.len()];
            if let Some(carried) = carried.as_deref_mut() {
                let samples: Vec<_> = parts.iter().map(|part| part.samples.clone()).collect();
                let read_state = |state: ComputedState, to: &mut [f32]| {
                    done[state.shard].memory.read_state(state.timeframe, state.sample, state.step, to);
                };
                self.pool.install(|| carried.note(batch, &samples, read_state));
            }
            sink(&self.pool, done);
            let slowest = |time: fn(&Totals) -> Duration| done.iter().map(|worker| time(&worker.totals)).max();
            times.forward += slowest(|totals| totals.forward).unwrap_or_default();
            times.backward += slowest(|totals| totals.backward).unwrap_or_default();
        }
        times
    }

    /// Writes the model's outputs for `batch`, [R, K, M]: a row a sample, or a row a graph.
    pub fn predict(&mut self, model: &Model, parameters: &TensorSet, batch: &BatchView<'_>, outputs: &mut [f32]) {
        let len = |samples| model.decoder().rows(samples) * model.outputs();
        self.compute(model, parameters, batch, outputs, len, |memory, outputs| {
            outputs.copy_from_slice(memory.decoding().outputs());
        });
    }

    /// Writes the weights with which attention pools the windows of `batch`: `[heads, T]` of one
    /// timeframe after another, a row a sample.
    pub fn pooling_weights(&mut self, model: &Model, parameters: &TensorSet, batch: &BatchView<'_>, to: &mut [f32]) {
        let width = model.pooling_weights_len();
        let len = |samples: usize| samples * width;
        self.compute(model, parameters, batch, to, len, |memory, to| {
            for (sample, mut row) in to.chunks_exact_mut(width).enumerate() {
                for (k, len) in model.pooling_weights_lens().enumerate() {
                    let (own, rest) = row.split_at_mut(len);
                    memory.read_pooling(k, sample, own);
                    row = rest;
                }
            }
        });
    }

    /// Writes the weights with which the timeframes of the samples of `batch` are fused, [B, heads,
    /// n, n].
    pub fn fusion_weights(&mut self, model: &Model, parameters: &TensorSet, batch: &BatchView<'_>, to: &mut [f32]) {
        let width = model.fusion_weights_len();
        let len = |samples: usize| samples * width;
        self.compute(model, parameters, batch, to, len, |memory, to| {
            for (sample, row) in to.chunks_exact_mut(width).enumerate() {
                row.copy_from_slice(memory.fusion_weights(model, sample));
            }
        });
    }

    /// Runs the model on the shards of `batch`; `each` writes a shard's results to its part of
    /// `to`. The part of `samples` samples has `len(samples)` numbers.
    fn compute(
        &mut self,
        model: &Model,
        parameters: &TensorSet,
        batch: &BatchView<'_>,
        to: &mut [f32],
        len: impl Fn(usize) -> usize,
        each: impl Fn(&ShardWorkspace, &mut [f32]) + Sync,
    ) {
        let weights = weights(model, parameters, &self.weights, &self.working);
        let mut rest = to;
        for parts in parts_of(batch, self.purpose, 0).chunks(self.workers.len()) {
            let shards: Vec<_> = parts.iter().map(|part| part.shard(batch, None, None)).collect();
            let rows = |shard: &Shard<'_>| {
                let (own, others) = std::mem::take(&mut rest).split_at_mut(len(shard.samples.len()));
                rest = others;
                own
            };
            let mut rows: Vec<_> = shards.iter().map(rows).collect();
            let is_in_tasks = self.workers[0].memory.is_in_tasks();
            if is_in_tasks {
                tasks::forward(&self.pool, &mut self.workers, weights, &shards);
            }
            let work = self.workers.par_iter_mut().zip(shards.par_iter().zip(rows.par_iter_mut()));
            self.pool.install(|| {
                work.for_each(|(worker, (shard, to))| {
                    if !is_in_tasks {
                        worker.memory.forward(weights, shard);
                    }
                    each(&worker.memory, to);
                });
            });
        }
    }
}

fn pool(threads: usize) -> Result<rayon::ThreadPool> {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|k| format!("compute-{k}"));
    builder.build().map_err(|source| Error::Threads { threads, source: source.into() })
}

/// Length of a range of gradients that one thread adds.
const GRADIENTS_AT_ONCE: usize = 1 << 14;

/// Adds the gradients of the shards of `workers` in their order: a left fold of each number.
fn add_in_order(workers: &[Worker], gradients: &mut TensorSet) {
    let shards: Vec<&[f32]> = workers.iter().map(|worker| worker.gradients().values()).collect();
    gradients.values_mut().par_chunks_mut(GRADIENTS_AT_ONCE).enumerate().for_each(|(n, sums)| {
        for shard in &shards {
            let terms = &shard[n * GRADIENTS_AT_ONCE..][..sums.len()];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
    });
}

/// Carried state with the weights at rest, see [`StatefulInference`].
impl Engine {
    /// Computes the states that `streamed` asks for, over `bars`, on all threads.
    ///
    /// # Errors
    /// The error of `bars`, which cannot be read; the states then mean nothing.
    pub fn stream<B: SegmentBars>(
        &mut self,
        model: &Model,
        parameters: &TensorSet,
        bars: &B,
        streamed: &mut StatefulInference,
    ) -> std::result::Result<(), B::Error> {
        let weights = weights(model, parameters, &self.weights, &self.working);
        let (pool, workers) = (&self.pool, &mut self.workers);
        streamed.with_passages(model, bars, |scans, buffers| {
            let workers = workers.par_iter_mut().zip(buffers);
            pool.install(|| {
                workers.for_each(|(worker, buffer)| scans.run(weights, &mut worker.memory, buffer));
            });
        })
    }

    /// The weights that everything is computed with: `parameters`, or what [`Engine::load`] made of
    /// them for products in 16 bits.
    pub fn weights<'a>(&'a self, model: &'a Model, parameters: &'a TensorSet) -> Weights<'a> {
        weights(model, parameters, &self.weights, &self.working)
    }

    /// Does `work` with these weights, and the engine's threads as those of everything parallel in
    /// it.
    pub fn install(&self, model: &Model, parameters: &TensorSet, work: impl FnOnce(Weights<'_>) + Send) {
        let weights = self.weights(model, parameters);
        self.pool.install(|| work(weights));
    }

    /// Does `work` with the engine's threads as those of everything parallel in it.
    pub fn on_pool<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    /// Goes on from `state` [layers, S, H] of timeframe `k` over `bars` [n, F], at most T of them,
    /// on this thread; `state` is then that after them.
    pub fn advance(&mut self, k: usize, bars: &[f32], state: &mut [f32]) {
        self.workers[0].memory.advance(&self.weights, k, bars, state);
    }

    /// Writes the state [layers, S, H] of timeframe `k` after step `t` of those that
    /// [`Engine::advance`] went last.
    pub fn read_state(&self, k: usize, t: usize, to: &mut [f32]) {
        self.workers[0].memory.read_state(k, 0, t, to);
    }
}

/// Memory, from shapes.
impl Engine {
    /// Length of the rounded copy of the weights for products in 16 bits, in numbers; 0 in fp32.
    pub fn working_weights_len(model: &Model, precision: Precision) -> usize {
        if CpuArithmetic::for_precision(precision) == CpuArithmetic::Fp32 { 0 } else { model.layout().len() }
    }

    /// The packed weights by tensor: name, numbers and the phases that use it.
    pub fn weights_plan(model: &Model, purpose: Purpose, precision: Precision) -> TensorPlan {
        by_tensor(PackedWeights::buffer_plan(model, purpose, CpuArithmetic::for_precision(precision)))
    }

    /// Numbers in each buffer of the packed weights, in the order in which they are taken.
    pub fn weights_buffers(model: &Model, purpose: Purpose, precision: Precision) -> Vec<usize> {
        buffer_lens(PackedWeights::buffer_plan(model, purpose, CpuArithmetic::for_precision(precision)))
    }

    /// The workspace of one shard of up to `capacity` by tensor: name, numbers and the phases that
    /// use it.
    pub fn workspace_plan(model: &Model, capacity: Capacity, purpose: Purpose, precision: Precision) -> TensorPlan {
        by_tensor(ShardWorkspace::buffer_plan(model, capacity, purpose, CpuArithmetic::for_precision(precision)))
    }

    /// Numbers in each buffer of the workspace of one shard of up to `capacity`, in the order in
    /// which they are taken.
    pub fn workspace_buffers(model: &Model, capacity: Capacity, purpose: Purpose, precision: Precision) -> Vec<usize> {
        buffer_lens(ShardWorkspace::buffer_plan(model, capacity, purpose, CpuArithmetic::for_precision(precision)))
    }
}
