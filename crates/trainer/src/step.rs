#![forbid(unsafe_code)]

//! Forward and backward over a batch on several threads, with results that do not depend on their number.
//!
//! A batch is cut into shards of [`SHARD_SAMPLES`], or into its graphs, whatever the number of threads; each shard is computed by one
//! thread from beginning to end, and the shards' gradients are summed in order. Every sum is thus formed in one order, always.

use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use megabatch_gpu_core::Device;
use rayon::prelude::*;

use crate::carried::Carried;
use crate::decoder::GraphShard;
use crate::dropout::Dropout;
use crate::error::{Error, Result};
use crate::evaluate::Selection;
use crate::fast::PackedWeights;
use crate::form::{Form, Memory, Shard, Weights};
use crate::graph::{GraphDropout, Graphs, check_graphs};
use crate::loss::{Loss, labelled_rows};
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
    /// Samples in a batch; graphs, for a model over graphs.
    pub batch_size: usize,
    /// How the model is computed.
    pub form: Form,
}

/// What a shard can be at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) samples: usize,
    /// Edges between them.
    pub(crate) edges: usize,
}

/// The threads and the memory that batches are computed with.
#[derive(Debug)]
pub(crate) struct Engine {
    device: Device,
    compute: Compute,
    purpose: Purpose,
    pool: rayon::ThreadPool,
    /// What each of the workers has memory for.
    room: Room,
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
    /// Terms of the whole batch, over which the loss is the mean: outputs, or what [`Loss::graph_terms`] says.
    pub(crate) count: usize,
    pub(crate) dropout: Option<Dropout>,
    /// Seed and step of what is dropped in graphs.
    pub(crate) seed_and_step: (u64, u64),
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
    /// Terms that it is the sum of.
    pub(crate) terms: usize,
    /// Time of the slowest thread, summed over rounds of the threads.
    pub(crate) forward: Duration,
    pub(crate) backward: Duration,
}

impl Engine {
    /// Starts the threads and takes the memory for batches of any size, a shard a thread. For graphs, whose size is not known here, that
    /// is left to [`Engine::make_room`].
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
        let weights = match form {
            Form::Plain => None,
            Form::Fast => Some(PackedWeights::new(&device.scope("model/parameters/packed"), model, purpose)?),
        };
        let (room, workers) = (Room::default(), Vec::new());
        let mut engine = Engine { device: device.clone(), compute, purpose, pool, room, workers, weights };
        if !model.config().is_over_graphs() {
            engine.make_room(model, Room { samples: compute.shard_samples(), edges: 0 })?;
        }
        Ok(engine)
    }

    /// Takes the memory for shards of up to `room`, where there is not as much already.
    pub(crate) fn make_room(&mut self, model: &Model, room: Room) -> Result<()> {
        let Room { samples, edges } = self.room;
        let room = Room { samples: samples.max(room.samples), edges: edges.max(room.edges) };
        if room != self.room || self.workers.is_empty() {
            // Given back before the new memory is taken.
            self.workers.clear();
            let worker = |_| Worker::new(&self.device, model, (self.compute.form, room), self.purpose);
            self.workers = (0..self.compute.shards_at_once(model)).map(worker).collect::<Result<_>>()?;
            self.room = room;
        }
        Ok(())
    }

    /// Takes the memory for the graphs of `selection`, for a model over graphs, and gives their source.
    ///
    /// # Errors
    /// As [`check_graphs`].
    pub(crate) fn make_room_for<'a>(
        &mut self,
        model: &Model,
        Selection { samples, indices }: Selection<'a>,
    ) -> Result<Option<&'a dyn Graphs>> {
        let Some(graphs) = samples.graphs().filter(|_| model.config().is_over_graphs()) else { return Ok(None) };
        check_graphs(graphs, indices)?;
        let (samples, edges) = graphs.largest();
        self.make_room(model, Room { samples, edges })?;
        Ok(Some(graphs))
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
        for shards in parts_of(batch).chunks(self.workers.len()) {
            let work = self.workers.par_iter_mut().zip(shards.par_iter());
            let shard = |part: &Part| Shard {
                batch,
                samples: part.samples.clone(),
                graph: part.graph(batch, Some(objective.seed_and_step)),
                carried: carried.as_deref(),
                dropout: objective.dropout,
            };
            self.pool.install(|| work.for_each(|(worker, part)| worker.train(weights, &shard(part), objective)));
            let done = &self.workers[..shards.len()];
            if let Some(carried) = carried.as_deref_mut() {
                let computed: Vec<_> =
                    done.iter().zip(shards).map(|(worker, part)| (&worker.memory, part.samples.clone())).collect();
                self.pool.install(|| carried.note(batch, &computed));
            }
            for worker in done {
                gradients.add(worker.gradients.as_ref().expect("an engine made for training"));
                totals.loss_sum += worker.totals.loss_sum;
                totals.terms += worker.totals.terms;
            }
            let slowest = |time: fn(&Totals) -> Duration| done.iter().map(|worker| time(&worker.totals)).max();
            totals.forward += slowest(|totals| totals.forward).unwrap_or_default();
            totals.backward += slowest(|totals| totals.backward).unwrap_or_default();
        }
        totals
    }

    /// Writes the model's outputs for `batch`, [R, K]: a row a sample, or a row a graph.
    pub(crate) fn predict(
        &mut self,
        model: &Model,
        parameters: &TensorSet<f32>,
        batch: &BatchView<'_>,
        outputs: &mut [f32],
    ) {
        let weights = Weights { model, parameters, packed: self.weights.as_ref() };
        let mut rest = outputs;
        let rows = |part: Part| {
            let len = model.decoder().rows(part.samples.len()) * model.shape().outputs;
            let (own, others) = std::mem::take(&mut rest).split_at_mut(len);
            rest = others;
            (own, part)
        };
        let mut work: Vec<_> = parts_of(batch).into_iter().map(rows).collect();
        for work in work.chunks_mut(self.workers.len()) {
            let work = self.workers.par_iter_mut().zip(work.par_iter_mut());
            self.pool.install(|| {
                work.for_each(|(worker, (outputs, part))| {
                    let (samples, graph) = (part.samples.clone(), part.graph(batch, None));
                    let shard = Shard { batch, samples, graph, carried: None, dropout: None };
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
    /// Samples of the largest shard, where it is not a graph.
    pub(crate) fn shard_samples(self) -> usize {
        self.batch_size.min(SHARD_SAMPLES)
    }

    /// Shards that are computed at the same time.
    pub(crate) fn shards_at_once(self, model: &Model) -> usize {
        let shards =
            if model.config().is_over_graphs() { self.batch_size } else { self.batch_size.div_ceil(SHARD_SAMPLES) };
        self.threads.min(shards)
    }
}

impl Worker {
    fn new(device: &Device, model: &Model, (form, room): (Form, Room), purpose: Purpose) -> Result<Self> {
        let (activations, gradients) = (device.scope("activations"), device.scope("model/gradients/shards"));
        Ok(Worker {
            memory: Memory::new(&activations, model, (form, room), purpose)?,
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

        // What is predicted for a graph as a whole has the targets of its first node, which are those of all.
        let targets = &targets[..y.len()];
        let (loss_sum, terms) = match shard.graph {
            Some(_) => {
                loss.graph_gradient((y, targets), (outputs, count), d_y);
                (loss.graph_sum(y, targets, outputs), loss.graph_terms(labelled_rows(targets, outputs), outputs))
            }
            None => {
                loss.gradient((y, targets), count, d_y);
                (loss.sum(y, targets), y.len())
            }
        };
        let gradients = self.gradients.as_mut().expect("an engine made for training");
        gradients.clear();
        self.memory.backward(weights, shard, gradients);
        self.totals = Totals { loss_sum, terms, forward, backward: start.elapsed() - forward };
    }
}

/// The part of a batch that makes a shard: some samples or, of a batch of graphs, one of them.
#[derive(Clone, Debug)]
struct Part {
    samples: Range<usize>,
    /// Its place among the batch's graphs.
    graph: Option<usize>,
}

impl Part {
    fn graph<'a>(&self, batch: &BatchView<'a>, seed_and_step: Option<(u64, u64)>) -> Option<GraphShard<'a>> {
        let (graphs, graph) = (batch.graphs?, self.graph?);
        let dropout = seed_and_step.map(|at| GraphDropout::of_step(at, graphs.index(graph)));
        Some(GraphShard { view: graphs.view(graph), dropout })
    }
}

/// The parts of a batch; of samples, the last one may be smaller than the others.
fn parts_of(batch: &BatchView<'_>) -> Vec<Part> {
    let samples = batch.len();
    match batch.graphs {
        Some(graphs) => {
            graphs.samples().enumerate().map(|(graph, samples)| Part { samples, graph: Some(graph) }).collect()
        }
        None => (0..samples)
            .step_by(SHARD_SAMPLES)
            .map(|start| Part { samples: start..samples.min(start + SHARD_SAMPLES), graph: None })
            .collect(),
    }
}
