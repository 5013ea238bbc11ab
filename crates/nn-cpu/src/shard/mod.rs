//! Forward and backward of a shard: samples of a batch that one thread computes.
//!
//! 1. Samples whose windows of a timeframe are equal share one run through all its layers; its
//!    gradient is the sum of theirs.
//! 2. Where windows overlap, the first layer's input projection is done once a bar, and the gate
//!    gradients are summed by bar.
//! 3. All matrices are panel-major (see [`kernel`](crate::kernel)); weights are packed once an
//!    optimizer step.
//! 4. Attention pools each distinct window once, see [`pooling`].
//! 5. With gradient checkpointing, half of the gates are computed again in the backward pass, see
//!    [`segments`].
//! 6. A thread takes its windows through all steps; what a step needs stays in its caches. Few
//!    windows are computed in another order, see [`step`]; threads share the units of one
//!    window, see [`step_barrier`].
//! 7. Predictions may be computed with weights in eight bits, see [`quantized`].
//! 8. In bf16, CPUs with instructions for it multiply pairs of numbers, see [`bf16`].
//!
//! All sums are formed in an order that depends on the samples alone.

mod backward;
mod bf16;
mod dropout;
mod gradients;
mod input;
mod memory;
mod norm;
mod pooling;
mod quantized;
mod rounding;
mod segments;
mod sequence;
mod step;
mod step_barrier;
mod tasks;
mod weights;
mod window_panels;

use megabatch_amp::Accuracy;
use megabatch_gpu_core::Scope;
use megabatch_nn::Result;
use megabatch_nn::memory::{BACKWARD, BOTH, StepPhase};
use megabatch_nn::model::recurrent::{Read, RecurrentSizes};
use megabatch_nn::model::{Model, TensorSet, prefixed};
use rayon::prelude::*;

use crate::arithmetic::CpuArithmetic;
use crate::carried::Initial;
use crate::compute::{BufferPlan, Capacity, Purpose};
use crate::decoder::{self, Decoding, passes};
use crate::graph_attention::PackedAttention;
use crate::kernel::{GateLayout, Isa, PANEL, ProductIsa};
use crate::norm::read_top;
use crate::profile::{Clock, Profile};
use crate::schedule::TaskGraph;
pub use bf16::instructions;
pub(crate) use gradients::{BlockFinals, SharedGradients};
pub use gradients::{FinalGradients, FinalSink};
pub(crate) use input::{Shard, Weights};
use memory::{ScratchLens, ShardScratch};
use pooling::{PackedKeys, Pooled, PoolingParameters, PoolingScratch};
use quantized::Activations;
use sequence::{Sequence, SequenceInput, WindowPartition};
use tasks::{ShardMemory, TimeframeTasks};
pub(crate) use tasks::{ShardRun, TaskKind};
use weights::LayerWeights;

/// Steps whose gate gradients are kept until they are folded into the weights': 32 windows' of H =
/// 128 are 512 KiB.
const BLOCK_STEPS: usize = 8;

/// Sizes of one timeframe's recurrent layers, in panels.
#[derive(Clone, Copy, Debug)]
struct Dimensions {
    sizes: RecurrentSizes,
    /// Most windows, and bars of the longest.
    capacity: usize,
    steps: usize,
    /// Samples that read them.
    samples: usize,
    /// Heads of attention pooling; 0 without it.
    heads: usize,
    arithmetic: CpuArithmetic,
    /// Threads of the shard for each timeframe; 0 or 1 for one.
    threads: usize,
}

impl Dimensions {
    /// Number of panels of a value for each unit, such as a state.
    fn unit_panels(self) -> usize {
        self.sizes.hidden.div_ceil(PANEL)
    }

    /// Number of values that a unit has before its gates' functions, and of panels of gates for
    /// each panel of units.
    fn gates_per_unit(self) -> usize {
        GateLayout::new(self.sizes.cell).panels
    }

    /// Number of panels of gates.
    fn gate_panels(self) -> usize {
        self.gates_per_unit() * self.unit_panels()
    }

    /// Width of what layer `l` reads.
    fn input(self, l: usize) -> usize {
        self.sizes.input(l)
    }

    /// The instructions of products, on a CPU with `isa`.
    fn product_isa(self, isa: Isa) -> ProductIsa {
        ProductIsa { isa, bf16_isa: self.arithmetic.bf16_isa() }
    }

    /// True if windows are runs of dense training, whose samples end at many of their steps.
    fn is_dense(self) -> bool {
        self.steps > self.sizes.steps
    }
}

fn dimensions(model: &Model, capacity: Capacity, arithmetic: CpuArithmetic) -> Vec<Dimensions> {
    let heads = model.config().pooling.heads();
    let threads = capacity.threads / model.recurrent_layers().len().max(1);
    let dimensions_for = |sizes: RecurrentSizes| {
        // The samples of a run read the states after many steps of one sequence.
        let read = if capacity.run > 1 { Read::EveryStep } else { sizes.read };
        Dimensions {
            sizes: RecurrentSizes { read, ..sizes },
            capacity: capacity.sequences(),
            steps: capacity.steps(sizes.steps),
            samples: capacity.samples,
            heads,
            arithmetic,
            threads,
        }
    };
    model.recurrent_layers().iter().map(|recurrent| dimensions_for(recurrent.sizes)).collect()
}

/// A model's weights of recurrent layers, pooling and graph attention as the kernels read them.
#[derive(Debug)]
pub(crate) struct PackedWeights {
    /// Arithmetic of products of these weights.
    arithmetic: CpuArithmetic,
    /// True if time is measured layer by layer.
    pub(crate) profiles: bool,
    timeframes: Vec<Vec<LayerWeights>>,
    /// One a timeframe, for pooling by attention.
    keys: Vec<PackedKeys>,
    attention: Option<PackedAttention>,
}

impl PackedWeights {
    /// Buffers for the weights of `model`, booked on `scope`.
    pub(crate) fn new(scope: &Scope, model: &Model, purpose: Purpose, arithmetic: CpuArithmetic) -> Result<Self> {
        let layers = |dims: Dimensions| {
            let layer = |l| LayerWeights::new(scope, dims, l, purpose);
            (0..dims.sizes.layers).map(layer).collect::<Result<Vec<_>>>()
        };
        let attention = model.decoder().attention.as_ref();
        let keys = model.poolings().iter().zip(dimensions(model, Capacity::default(), arithmetic));
        Ok(PackedWeights {
            arithmetic,
            profiles: false,
            timeframes: dimensions(model, Capacity::default(), arithmetic)
                .into_iter()
                .map(layers)
                .collect::<Result<_>>()?,
            keys: keys.map(|(_, dims)| PackedKeys::new(scope, dims, purpose)).collect::<Result<_>>()?,
            attention: attention
                .map(|attention| PackedAttention::new(scope, attention, passes(purpose)))
                .transpose()?,
        })
    }

    /// Arithmetic of products of these weights.
    pub(crate) fn arithmetic(&self) -> CpuArithmetic {
        self.arithmetic
    }

    /// Copies the weights as they are now, on the threads of the pool that this is called in.
    pub(crate) fn pack(&mut self, model: &Model, parameters: &TensorSet) {
        self.timeframes.par_iter_mut().zip(model.recurrent_layers()).for_each(|(layers, recurrent)| {
            for (layer, slots) in layers.iter_mut().zip(&recurrent.layers) {
                layer.pack(recurrent.sizes, slots, parameters);
            }
        });
        self.keys.iter_mut().zip(model.poolings()).for_each(|(keys, pooling)| keys.pack(pooling, parameters));
        if let (Some(packed), Some(attention)) = (&mut self.attention, model.decoder().attention.as_ref()) {
            packed.pack(attention, parameters);
        }
    }

    /// Has sequences computed with their matrices in eight bits from now on, made of
    /// `parameters` and booked on `scope`; by how much each matrix is changed, under its name.
    pub(crate) fn quantize(
        &mut self,
        scope: &Scope,
        model: &Model,
        parameters: &TensorSet,
    ) -> Result<Vec<(String, Accuracy)>> {
        let timeframes = self.timeframes.iter_mut().zip(model.recurrent_layers());
        let each = timeframes.map(|(layers, recurrent)| quantized::quantize(scope, layers, recurrent, parameters));
        Ok(each.collect::<Result<Vec<_>>>()?.concat())
    }

    /// The packed weights of `model`, in the order in which [`PackedWeights::new`] takes them.
    pub(crate) fn buffer_plan(model: &Model, purpose: Purpose, arithmetic: CpuArithmetic) -> BufferPlan {
        const NAMES: [(&str, &[StepPhase]); 6] = [
            ("W_ih", BOTH),
            ("W_hh", BOTH),
            ("bias", BOTH),
            ("W_hh transposed", BACKWARD),
            ("W_ih transposed", BACKWARD),
            ("norm", BOTH),
        ];
        let mut parts = BufferPlan::new();
        let all = dimensions(model, Capacity::default(), arithmetic);
        for (timeframe, &dims) in model.shape().timeframes.iter().zip(&all) {
            for l in 0..dims.sizes.layers {
                let lens = weights::weights_len(dims, l, purpose).into_iter().zip(NAMES);
                let name = |what: &str| {
                    format!("packed: {} layer {l}: {what}", prefixed(dims.sizes.cell.name(), &timeframe.name))
                };
                parts.extend(lens.map(|(len, (what, phases))| (name(what), vec![len], phases)));
            }
        }
        let attention = model.decoder().attention.iter();
        let attention = attention.flat_map(|attention| PackedAttention::lens(attention, passes(purpose)));
        let keys = model.poolings().iter().zip(&all).flat_map(|(_, &dims)| pooling::keys_len(dims, purpose));
        let others = keys.chain(attention).collect();
        parts.push(("packed: keys of pooling, graph attention".to_owned(), others, BOTH));
        parts
    }
}

/// The memory with which one thread, or several in [`tasks`], take the samples of a shard through
/// the model.
#[derive(Debug)]
pub(crate) struct ShardWorkspace {
    isa: Isa,
    /// One a timeframe for one thread; else none, and the timeframes' tasks.
    sequences: Vec<Sequence>,
    tasks: Vec<TimeframeTasks>,
    threads: usize,
    scratch: ShardScratch,
    /// One a timeframe, for pooling by attention.
    pooled: Vec<Pooled>,
    pooling: PoolingScratch,
    decoding: Decoding,
    /// The time of the decoder and, after it, of pooling in each timeframe, forward and backward.
    clock: Clock,
}

impl ShardWorkspace {
    /// Memory for up to `capacity`, booked on `scope`.
    pub(crate) fn new(
        scope: &Scope,
        model: &Model,
        capacity: Capacity,
        purpose: Purpose,
        arithmetic: CpuArithmetic,
    ) -> Result<Self> {
        let all = dimensions(model, capacity, arithmetic);
        let tasks = all.iter().filter(|_| capacity.threads > 1);
        let tasks = tasks
            .map(|&dims| TimeframeTasks::new(scope, dims, purpose, capacity.threads))
            .collect::<Result<Vec<_>>>()?;
        let all = if capacity.threads > 1 { Vec::new() } else { all };
        Ok(ShardWorkspace {
            isa: Isa::best(),
            tasks,
            threads: capacity.threads.max(1),
            sequences: all
                .iter()
                .map(|&dims| Sequence::new(scope, dims, purpose, WindowPartition::Whole))
                .collect::<Result<_>>()?,
            scratch: ShardScratch::new(scope, ScratchLens::largest(&all, purpose))?,
            pooled: model
                .poolings()
                .iter()
                .zip(&all)
                .map(|(_, &dims)| Pooled::new(scope, dims))
                .collect::<Result<_>>()?,
            pooling: PoolingScratch::new(scope, &all, purpose)?,
            decoding: Decoding::new(scope, model.decoder(), capacity, purpose)?,
            clock: Clock::default(),
        })
    }

    /// Allocates, on `scope`, the rows of products with int8 weights.
    pub(crate) fn ensure_int8_capacity(&mut self, scope: &Scope) -> Result<()> {
        self.tasks.iter_mut().try_for_each(|tasks| tasks.ensure_int8_capacity(scope))?;
        let all: Vec<_> = self.sequences.iter().map(|sequence| sequence.dims).collect();
        self.scratch.activations = Activations::new(scope, &all)?;
        Ok(())
    }

    /// The buffers for `capacity`, in the order in which [`ShardWorkspace::new`] takes them.
    pub(crate) fn buffer_plan(
        model: &Model,
        capacity: Capacity,
        purpose: Purpose,
        arithmetic: CpuArithmetic,
    ) -> BufferPlan {
        let all = dimensions(model, capacity, arithmetic);
        let mut parts = BufferPlan::new();
        if capacity.threads > 1 {
            let names = model.shape().timeframes.iter().map(|tf| prefixed(model.config().cell.name(), &tf.name));
            let tasks = names.zip(&all).map(|(name, &dims)| {
                (format!("{name}: groups of windows, and sums"), tasks::lens(dims, purpose, capacity.threads), BOTH)
            });
            parts.extend(tasks);
        }
        let all = if capacity.threads > 1 { Vec::new() } else { all };
        for (timeframe, &dims) in model.shape().timeframes.iter().zip(&all) {
            for l in 0..dims.sizes.layers {
                let lens = memory::layer_len(dims, purpose).into_iter().zip(["gates", "hidden states", "cell states"]);
                let name =
                    |what: &str| format!("{} layer {l}: {what}", prefixed(dims.sizes.cell.name(), &timeframe.name));
                parts.extend(lens.map(|(len, what)| (name(what), vec![len], BOTH)));
            }
        }
        let scratch = ScratchLens::largest(&all, purpose).tensors();
        parts.extend(scratch.map(|(len, what, phases)| (format!("in work: {what}"), vec![len], phases)));
        parts.push((
            "pooling: weights, vectors and what they are formed with".to_owned(),
            pooling::lens(&all, purpose),
            BOTH,
        ));
        parts.extend(decoder::buffer_plan(model.decoder(), capacity, purpose));
        parts
    }

    /// Computes the outputs [R, K] of the samples of `shard`: they and, for writing, their
    /// gradient.
    pub(crate) fn forward(&mut self, weights: Weights<'_>, shard: &Shard<'_>) -> (&[f32], &mut [f32]) {
        if self.threads > 1 {
            let mut graph = TaskGraph::default();
            let run = self.run(weights, shard, None);
            run.push(&mut graph, |task| task);
            graph.run_here(|task, team| run.work(task, team, |_, _| ()));
            return self.decoding.outputs_and_gradient_mut();
        }
        let Weights { model, parameters, packed, .. } = weights;
        let pooling = |k| pooling_of(weights, k);
        let (hidden, width) = (model.config().hidden, model.decoder().widths.encoding);
        self.clock.on = packed.profiles;
        let encodings = self.decoding.encodings_mut(shard.samples.len());
        if self.sequences.is_empty() {
            shard.last_bars(encodings);
        }
        let runs: Vec<usize> = shard.run_lens().collect();
        for (k, (sequence, weights)) in self.sequences.iter_mut().zip(&packed.timeframes).enumerate() {
            sequence.clock.on = packed.profiles;
            let steps = sequence.dims.sizes.steps;
            let (starts, ends) = (shard.starts(k), shard.ends(k));
            let input = SequenceInput { bars: shard.batch.bars(k), starts, ends, steps, runs: &runs };
            sequence.masks.clear();
            sequence.masks.extend((1..weights.len()).filter_map(|above| shard.mask(k, above - 1)));
            sequence.forward(self.isa, weights, input, shard.initial(k), &mut self.scratch);
            let rows = encodings.chunks_exact_mut(width).map(|row| &mut row[k * hidden..][..hidden]);
            let start = self.clock.start();
            match (self.pooled.get_mut(k), model.poolings().get(k)) {
                (Some(pooled), Some(_)) => {
                    let vectors = pooled.forward(self.isa, pooling(k), sequence, &mut self.pooling);
                    let read = sequence.windows.read_of_sample();
                    rows.zip(read).for_each(|(row, read)| row.copy_from_slice(&vectors[read * hidden..][..hidden]));
                }
                _ => rows.zip(sequence.windows.sample_positions()).for_each(|(row, &at)| {
                    sequence.read_top(at.0, at.1, row);
                    read_top(&model.recurrent_layers()[k], parameters, row);
                }),
            }
            self.clock.stop(start, 2 * (k + 1));
        }
        let start = self.clock.start();
        let attention = packed.attention.as_ref();
        self.decoding.forward_in(packed.arithmetic, model.decoder(), parameters, attention, shard.graph);
        self.clock.stop(start, 0);
        self.decoding.outputs_and_gradient_mut()
    }

    /// True if it is for several threads, with [`ShardWorkspace::run`].
    pub(crate) fn is_in_tasks(&self) -> bool {
        self.threads > 1
    }

    /// The tasks of `shard`: forward and, with gradients to add to, backward.
    pub(crate) fn run<'a>(
        &'a mut self,
        weights: Weights<'a>,
        shard: &'a Shard<'a>,
        gradients: Option<SharedGradients<'a>>,
    ) -> ShardRun<'a> {
        let ShardWorkspace { isa, tasks, threads, decoding, clock, .. } = self;
        ShardRun::new(
            ShardMemory { isa: *isa, timeframes: tasks, decoding, clock },
            *threads,
            weights,
            shard,
            gradients,
        )
    }

    /// Backward pass from the outputs' gradient, after [`ShardWorkspace::forward`] of the same
    /// samples on one thread; adds the gradients to `gradients`, in the order of
    /// [`Model::gradient_groups`].
    pub(crate) fn backward(&mut self, weights: Weights<'_>, shard: &Shard<'_>, gradients: &SharedGradients<'_>) {
        let Weights { model, parameters, packed, .. } = weights;
        let pooling = |k| pooling_of(weights, k);
        let (hidden, width) = (model.config().hidden, model.decoder().widths.encoding);
        let start = self.clock.start();
        let (decoder, attention) = (model.decoder(), packed.attention.as_ref());
        gradients.add(|sums| self.decoding.backward(decoder, parameters, attention, shard.graph, sums));
        gradients.complete(model.decoder_range());
        self.decoding.round_d_encodings();
        self.clock.stop(start, 1);
        for k in model.backward_order() {
            let (sequence, weights) = (&mut self.sequences[k], &packed.timeframes[k]);
            let rows = self.decoding.d_encodings().chunks_exact(width).map(|row| &row[k * hidden..][..hidden]);
            let start = self.clock.start();
            match (self.pooled.get_mut(k), model.poolings().get(k)) {
                (Some(pooled), Some(_)) => {
                    pooled.set_d_pooled(&sequence.windows, rows, &mut self.pooling);
                    gradients.add(|sums| {
                        pooled.backward(self.isa, pooling(k), sequence, &mut self.scratch, &mut self.pooling, sums);
                    });
                    gradients.complete(model.pooling_range(k).expect("a pooling has parameters"));
                }
                _ => {
                    let d_top = sequence.clear_d_top(&mut self.scratch);
                    let rows = rows.zip(sequence.windows.sample_positions());
                    rows.for_each(|(row, &at)| sequence.add_d_top(at.0, at.1, row, d_top));
                }
            }
            self.clock.stop(start, 2 * (k + 1) + 1);
            sequence.backward(
                self.isa,
                weights.as_slice(),
                model.recurrent_layers()[k].layers.as_slice(),
                shard.batch.bars(k),
                &mut self.scratch,
                gradients,
            );
        }
    }

    /// Writes the weights [heads, T] with which the sample `sample` was pooled in timeframe `k`.
    pub(crate) fn read_pooling(&self, k: usize, sample: usize, to: &mut [f32]) {
        match self.tasks.get(k).and_then(TimeframeTasks::pooled) {
            Some((pooled, sequence)) => pooled.read_weights(sequence, sample, to),
            None => self.pooled[k].read_weights(&self.sequences[k], sample, to),
        }
    }

    /// The weights [heads, n, n] with which the timeframes of the sample `sample` were fused.
    pub(crate) fn fusion_weights(&self, model: &Model, sample: usize) -> &[f32] {
        self.decoding.fusion_weights(model.decoder(), sample)
    }

    /// Goes on from `state` [layers, S, H] of timeframe `k` over `bars` [n, F], at most T of them;
    /// `state` is then that after them.
    pub(crate) fn advance(&mut self, packed: &PackedWeights, k: usize, bars: &[f32], state: &mut [f32]) {
        let steps = bars.len() / self.dims(k).sizes.features;
        let input = SequenceInput { bars, starts: &[0], ends: &[0], steps, runs: &[] };
        let (sequence, scratch) = match self.tasks.get_mut(k) {
            Some(tasks) => tasks.alone_mut(input),
            None => (&mut self.sequences[k], &mut self.scratch),
        };
        sequence.masks.clear();
        sequence.forward(self.isa, &packed.timeframes[k], input, Initial::State(state), scratch);
        sequence.read_state(0, steps - 1, state);
    }

    /// Writes the state [layers, S, H] of a sample in timeframe `k` after a step of its window.
    pub(crate) fn read_state(&self, k: usize, sample: usize, t: usize, to: &mut [f32]) {
        let (sequence, window, step) = self.sequence_at(k, sample, t);
        sequence.read_state(window, step, to);
    }

    /// Writes the top layer's hidden state [H] of a sample in timeframe `k` after a step of its
    /// window.
    pub(crate) fn read_top(&self, k: usize, sample: usize, t: usize, to: &mut [f32]) {
        let (sequence, window, step) = self.sequence_at(k, sample, t);
        sequence.read_top(window, step, to);
    }

    /// Writes the cell state, where it is kept, and the hidden state [H] of layer `l` in timeframe
    /// `k` of a sample after a step of its window.
    pub(crate) fn read_layer(&self, k: usize, l: usize, sample: usize, t: usize, cell: &mut [f32], hidden: &mut [f32]) {
        let (sequence, window, step) = self.sequence_at(k, sample, t);
        sequence.read_hidden(l, window, step, hidden);
        if sequence.keeps_cells() {
            sequence.read_cell(l, window, step, cell);
        }
    }

    /// Moves the times measured since the last call to `profile`.
    pub(crate) fn give_times(&mut self, profile: &mut Profile) {
        let clocks = self.sequences.iter_mut().map(|sequence| &mut sequence.clock);
        profile.add(clocks.chain(self.tasks.iter_mut().map(TimeframeTasks::clock_mut)), &mut self.clock);
    }

    /// The memory behind the encoder.
    pub(crate) fn decoding(&self) -> &Decoding {
        &self.decoding
    }

    fn dims(&self, k: usize) -> Dimensions {
        self.tasks.get(k).map_or_else(|| self.sequences[k].dims, tasks::TimeframeTasks::dims)
    }

    /// The sequence with the window of the sample `sample` in timeframe `k`, the window's place
    /// there, and the step of it that is the sample's `t`.
    fn sequence_at(&self, k: usize, sample: usize, t: usize) -> (&Sequence, usize, usize) {
        let tasks = self.tasks.get(k);
        let windows = tasks.map_or_else(|| &self.sequences[k].windows, TimeframeTasks::windows);
        let (window, last) = windows.sample_positions()[sample];
        let (sequence, window) = tasks.map_or_else(|| (&self.sequences[k], window), |tasks| tasks.sequence_of(window));
        // The sample's window may be the end of a longer one.
        (sequence, window, last + 1 + t - windows.sample_steps())
    }
}

/// The parameters of the pooling of timeframe `k`.
fn pooling_of(weights: Weights<'_>, k: usize) -> PoolingParameters<'_> {
    let Weights { model, parameters, packed, .. } = weights;
    let layers = &packed.timeframes[k];
    let (pooling, norm) = (&model.poolings()[k], layers[layers.len() - 1].norm.as_slice());
    PoolingParameters { pooling, values: parameters, keys: &packed.keys[k], norm }
}

fn add(sums: &mut [f32], terms: &[f32]) {
    sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
}
