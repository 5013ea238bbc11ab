//! The tasks of a shard, and their work.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, RwLock, RwLockReadGuard};

use megabatch_nn::batch::Windows;

use super::super::gradients::SharedGradients;
use super::super::input::{Shard, Weights};
use super::super::pooling::{Pooled, PoolingScratch};
use super::super::{Dimensions, pooling_of};
use super::sums::BackwardWindows;
use super::{Group, PanelSums, Projections, ROWS_OF_STEP, TaskPartition, TimeframeTasks};
use crate::decoder::{Decoding, GraphShard};
use crate::kernel::{Isa, PANEL};
use crate::norm::read_top;
use crate::profile::Clock;
use crate::schedule::{Task, TaskGraph};
use crate::team::ThreadTeam;

/// Kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskKind {
    /// Projections of some bars.
    Project { timeframe: usize, part: usize },
    /// All layers and steps of a group of windows.
    Forward { timeframe: usize, group: usize },
    /// As [`TaskKind::Forward`], for the units that one more thread computes.
    Share { timeframe: usize, member: usize },
    /// From encodings to outputs and, in training, from the loss to the encodings' gradient.
    Decode,
    /// The same as [`TaskKind::Forward`], backward.
    Backward { timeframe: usize, group: usize },
    /// The gradients of the weights of some panels of gates.
    Weights { timeframe: usize, part: usize },
}

/// One timeframe, of which tasks borrow their parts. A lock is never waited for: tasks that write
/// the same depend on one another.
struct TimeframeRun<'a> {
    dims: Dimensions,
    cut: Option<TaskPartition>,
    windows: &'a Windows,
    groups: Vec<RwLock<&'a mut Group>>,
    sharers: Vec<Mutex<&'a mut Group>>,
    projections: Vec<RwLock<&'a mut Projections>>,
    sums: Vec<Mutex<&'a mut PanelSums>>,
    /// Tasks of `sums` that have not added to each layer.
    left: Vec<AtomicUsize>,
    pooled: Option<RwLock<&'a mut (Pooled, PoolingScratch)>>,
}

/// A shard in tasks.
pub(crate) struct ShardRun<'a> {
    isa: Isa,
    weights: Weights<'a>,
    shard: &'a Shard<'a>,
    threads: usize,
    timeframes: Vec<TimeframeRun<'a>>,
    decoding: RwLock<(&'a mut Decoding, &'a mut Clock)>,
    gradients: Option<SharedGradients<'a>>,
}

/// The memory that a shard's tasks borrow.
pub(crate) struct ShardMemory<'a> {
    pub(crate) isa: Isa,
    pub(crate) timeframes: &'a mut [TimeframeTasks],
    pub(crate) decoding: &'a mut Decoding,
    pub(crate) clock: &'a mut Clock,
}

/// Fewest multiply-adds of a recurrence whose units threads share: in the time of fewer, a thread
/// that sleeps hardly wakes up.
const SHARED_MIN: f64 = 8e6;

const LOCK: &str = "nobody panics with the lock held";

impl<'a> ShardRun<'a> {
    /// The tasks of `shard` for `threads` threads; with `gradients`, forward and backward.
    pub(in crate::shard) fn new(
        memory: ShardMemory<'a>,
        threads: usize,
        weights: Weights<'a>,
        shard: &'a Shard<'a>,
        gradients: Option<SharedGradients<'a>>,
    ) -> Self {
        let ShardMemory { isa, timeframes, decoding, clock } = memory;
        let packed = weights.packed;
        clock.on = packed.profiles;
        let runs: Vec<usize> = shard.run_lens().collect();
        for (k, own) in timeframes.iter_mut().enumerate() {
            own.windows.set(shard.starts(k), shard.ends(k), own.dims.sizes.steps, &runs);
        }
        let rows: usize = timeframes.iter().map(TimeframeTasks::rows).sum();
        for (k, own) in timeframes.iter_mut().enumerate() {
            own.cut(rows as f64 / threads as f64);
            let one_step = own.dims.sizes.hidden * own.dims.gate_panels() * PANEL;
            own.share_units(gradients.is_none() && (own.rows() * one_step) as f64 >= SHARED_MIN);
            for Group { sequence, .. } in own.groups[..own.in_use].iter_mut().chain(&mut own.sharers) {
                sequence.clock.on = packed.profiles;
                sequence.masks.clear();
                let layers = packed.timeframes[k].len();
                sequence.masks.extend((1..layers).filter_map(|above| shard.mask(k, above - 1)));
            }
            own.projections.iter_mut().for_each(|part| part.clock.on = packed.profiles);
            own.sums.iter_mut().for_each(|sums| sums.clock.on = packed.profiles);
        }
        decoding.encodings_mut(shard.samples.len());
        ShardRun {
            isa,
            weights,
            shard,
            threads,
            timeframes: timeframes.iter_mut().map(TimeframeRun::new).collect(),
            decoding: RwLock::new((decoding, clock)),
            gradients,
        }
    }

    /// Adds the tasks to `graph`, as `kind` names them there.
    pub(crate) fn push<K>(&self, graph: &mut TaskGraph<K>, kind: impl Fn(TaskKind) -> K) {
        let mut push = |task: TaskKind, after: Vec<usize>| {
            let cost = self.cost(task);
            let team = if task == TaskKind::Decode && self.shard.graph.is_some() { self.threads } else { 1 };
            graph.push(Task { kind: kind(task), cost, after, team })
        };
        let mut encoded = Vec::new();
        for (timeframe, own) in self.timeframes.iter().enumerate() {
            let projected: Vec<usize> = (0..own.projections.len())
                .map(|part| push(TaskKind::Project { timeframe, part }, Vec::new()))
                .collect();
            let sharers = 0..own.sharers.len();
            let groups = 0..own.groups.len();
            encoded.extend(groups.map(|group| push(TaskKind::Forward { timeframe, group }, projected.clone())));
            encoded.extend(sharers.map(|member| push(TaskKind::Share { timeframe, member }, Vec::new())));
        }
        let decoded = push(TaskKind::Decode, encoded);
        if self.gradients.is_none() {
            return;
        }
        for (timeframe, own) in self.timeframes.iter().enumerate() {
            let back: Vec<usize> = (0..own.groups.len())
                .map(|group| push(TaskKind::Backward { timeframe, group }, vec![decoded]))
                .collect();
            for part in 0..own.sums.len() {
                push(TaskKind::Weights { timeframe, part }, back.clone());
            }
        }
    }

    /// Does the work of a task, whose loops `team` shares. The outputs and, for writing, their
    /// gradient are shown to `learn` in between.
    pub(crate) fn work(&self, task: TaskKind, team: &ThreadTeam, learn: impl FnOnce(&[f32], &mut [f32])) {
        match task {
            TaskKind::Project { timeframe, part } => self.project(timeframe, part),
            TaskKind::Forward { timeframe, group } => self.forward(timeframe, group),
            TaskKind::Share { timeframe, member } => self.share(timeframe, member),
            TaskKind::Decode => self.decode(team, learn),
            TaskKind::Backward { timeframe, group } => self.backward(timeframe, group),
            TaskKind::Weights { timeframe, part } => self.add_weights(timeframe, part),
        }
    }

    fn project(&self, k: usize, part: usize) {
        let own = &self.timeframes[k];
        let (weights, bars) = (&self.weights.packed.timeframes[k][0], self.shard.batch.bars(k));
        let mut part = own.projections[part].write().expect(LOCK);
        part.project(self.isa, own.dims, weights, own.windows, bars);
    }

    fn forward(&self, k: usize, group: usize) {
        let own = &self.timeframes[k];
        let projections: Vec<_> = own.projections.iter().map(|part| part.read().expect(LOCK)).collect();
        let projections: Vec<&Projections> = projections.iter().map(|part| &***part).collect();
        let mut group = own.groups[group].write().expect(LOCK);
        let Group { sequence, scratch, .. } = &mut **group;
        let (all, bars) = (&self.weights.packed.timeframes[k], self.shard.batch.bars(k));
        sequence.forward_windows(self.isa, all, bars, self.shard.initial(k), &projections, scratch);
        if let Some(pooled) = &own.pooled {
            let (pooled, pooling) = &mut **pooled.write().expect(LOCK);
            pooled.forward(self.isa, pooling_of(self.weights, k), sequence, pooling);
        }
    }

    /// The part of another thread in the first group.
    fn share(&self, k: usize, member: usize) {
        let mut sharer = self.timeframes[k].sharers[member].lock().expect(LOCK);
        let Group { sequence, scratch, .. } = &mut **sharer;
        let (all, bars) = (&self.weights.packed.timeframes[k], self.shard.batch.bars(k));
        sequence.forward_windows(self.isa, all, bars, self.shard.initial(k), &[], scratch);
    }

    /// Reads the encodings of all samples and takes them to outputs; after `learn`, from the
    /// outputs' gradient back to theirs.
    fn decode(&self, team: &ThreadTeam, learn: impl FnOnce(&[f32], &mut [f32])) {
        let Weights { model, parameters, packed, .. } = self.weights;
        let width = model.decoder().widths.encoding;
        let mut decoding = self.decoding.write().expect(LOCK);
        let (decoding, clock) = &mut *decoding;
        let encodings = decoding.encodings_mut(self.shard.samples.len());
        if self.timeframes.is_empty() {
            self.shard.last_bars(encodings);
        }
        let samples_each = self.shard.samples.len().div_ceil(team.threads()).max(1);
        let parts = encodings.chunks_mut(samples_each * width).enumerate().collect();
        team.for_each(parts, |(n, rows): (usize, &mut [f32])| self.read_encodings(n * samples_each, rows));
        let (decoder, attention) = (model.decoder(), packed.attention.as_ref());
        let graph = self.shard.graph.map(|graph| GraphShard { team, ..graph });
        let start = clock.start();
        decoding.forward_in(packed.arithmetic, decoder, parameters, attention, graph);
        clock.stop(start, 0);
        let (outputs, d_outputs) = decoding.outputs_and_gradient_mut();
        learn(outputs, d_outputs);
        let Some(gradients) = &self.gradients else { return };
        let start = clock.start();
        gradients.add(|gradients| decoding.backward(decoder, parameters, attention, graph, gradients));
        gradients.complete(model.decoder_range());
        decoding.round_d_encodings();
        clock.stop(start, 1);
    }

    /// Reads the encodings of the samples from `first` on into `rows`.
    fn read_encodings(&self, first: usize, rows: &mut [f32]) {
        let Weights { model, parameters, .. } = self.weights;
        let (hidden, width) = (model.config().hidden, model.decoder().widths.encoding);
        for (k, own) in self.timeframes.iter().enumerate() {
            let rows = rows.chunks_exact_mut(width).map(|row| &mut row[k * hidden..][..hidden]);
            if let Some(pooled) = &own.pooled {
                let pooled = pooled.read().expect(LOCK);
                let (vectors, read) = (pooled.0.pooled(), &own.windows.read_of_sample()[first..]);
                rows.zip(read).for_each(|(row, read)| row.copy_from_slice(&vectors[read * hidden..][..hidden]));
                continue;
            }
            let groups = own.read_groups();
            rows.zip(&own.windows.sample_positions()[first..]).for_each(|(row, &(window, step))| {
                let group = &groups[super::group_of(groups.len(), own.windows.len(), window)];
                group.sequence.read_top(window - group.windows.start, step, row);
                read_top(&model.recurrent_layers()[k], parameters, row);
            });
        }
    }

    fn backward(&self, k: usize, group: usize) {
        let Weights { model, packed, .. } = self.weights;
        let (hidden, width) = (model.config().hidden, model.decoder().widths.encoding);
        let gradients = self.gradients.as_ref().expect("tasks of a step of training");
        let own = &self.timeframes[k];
        let mut group = own.groups[group].write().expect(LOCK);
        let Group { windows, sequence, scratch } = &mut **group;
        let decoding = self.decoding.read().expect(LOCK);
        let rows = decoding.0.d_encodings().chunks_exact(width).map(|row| &row[k * hidden..][..hidden]);
        if let Some(pooled) = &own.pooled {
            let (pooled, pooling) = &mut **pooled.write().expect(LOCK);
            pooled.set_d_pooled(own.windows, rows, pooling);
            let pooling_parameters = pooling_of(self.weights, k);
            gradients
                .add(|gradients| pooled.backward(self.isa, pooling_parameters, sequence, scratch, pooling, gradients));
            gradients.complete(model.pooling_range(k).expect("a pooling has parameters"));
        } else {
            let d_top = sequence.clear_d_top(scratch);
            let own = rows.zip(own.windows.sample_positions()).filter(|(_, (window, _))| windows.contains(window));
            own.for_each(|(row, &(window, step))| sequence.add_d_top(window - windows.start, step, row, d_top));
        }
        let (slots, bars) = (model.recurrent_layers()[k].layers.as_slice(), self.shard.batch.bars(k));
        sequence.backward(self.isa, packed.timeframes[k].as_slice(), slots, bars, scratch, gradients);
    }

    fn add_weights(&self, k: usize, part: usize) {
        let own = &self.timeframes[k];
        let gradients = self.gradients.as_ref().expect("tasks of a step of training");
        let groups = own.read_groups();
        let groups: Vec<&Group> = groups.iter().map(|group| &***group).collect();
        let backward_windows = BackwardWindows {
            dims: own.dims,
            windows: own.windows,
            groups: &groups,
            bars: self.shard.batch.bars(k),
            left: &own.left,
        };
        let slots = self.weights.model.recurrent_layers()[k].layers.as_slice();
        own.sums[part].lock().expect(LOCK).add(self.isa, backward_windows, slots, gradients);
    }

    /// Multiply-adds of a task.
    fn cost(&self, task: TaskKind) -> f64 {
        let own = |k: usize| &self.timeframes[k];
        let group = |k: usize, group: usize| own(k).groups[group].read().expect(LOCK);
        match task {
            TaskKind::Project { timeframe, part } => {
                let dims = own(timeframe).dims;
                let bars = own(timeframe).projections[part].read().expect(LOCK).bars.len();
                product_cost(bars, dims.sizes.features, dims.gate_panels())
            }
            TaskKind::Share { timeframe, .. } => self.cost(TaskKind::Forward { timeframe, group: 0 }),
            TaskKind::Forward { timeframe, group: n } | TaskKind::Backward { timeframe, group: n } => {
                let (dims, windows) = (own(timeframe).dims, group(timeframe, n).windows.len() as f64);
                let steps = own(timeframe).windows.steps() as f64;
                let per_bar_gates = own(timeframe).windows.overlap() && own(timeframe).cut.is_some();
                let gates = (dims.gate_panels() * PANEL) as f64;
                let depth: usize = (0..dims.sizes.layers)
                    .map(|l| if l == 0 && per_bar_gates { 0 } else { dims.input(l) } + dims.sizes.hidden)
                    .sum();
                // Whole sequences form their weights' gradients on the way back.
                let is_whole_backward = matches!(task, TaskKind::Backward { .. }) && own(timeframe).cut.is_none();
                let passes = if is_whole_backward { 2.0 } else { 1.0 };
                let members = 1.0 + own(timeframe).sharers.len() as f64;
                passes * steps * (windows + ROWS_OF_STEP) * depth as f64 * gates / members
            }
            TaskKind::Decode => {
                self.shard.samples.len() as f64 * self.weights.model.decoder().widths.encoding as f64 * 64.0
            }
            TaskKind::Weights { timeframe, part } => {
                let (dims, rows) = (own(timeframe).dims, own(timeframe).windows.len() * own(timeframe).windows.steps());
                let panels = own(timeframe).sums[part].lock().expect(LOCK).panels();
                let depth: usize = (0..dims.sizes.layers).map(|l| dims.input(l) + dims.sizes.hidden).sum();
                product_cost(rows, depth, panels)
            }
        }
    }
}

/// Multiply-adds of a product of `rows` rows.
fn product_cost(rows: usize, depth: usize, panels: usize) -> f64 {
    rows as f64 * depth as f64 * (panels * PANEL) as f64
}

impl<'a> TimeframeRun<'a> {
    fn new(tasks: &'a mut TimeframeTasks) -> Self {
        let TimeframeTasks { dims, cut, windows, groups, in_use, sharers, projections, sums, pooled, .. } = tasks;
        let sharers = sharers.iter_mut().filter(|sharer| sharer.sequence.unit_share.is_some());
        let projects = projections.iter_mut().filter(|part| !part.bars.is_empty());
        TimeframeRun {
            dims: *dims,
            cut: *cut,
            windows,
            groups: groups[..*in_use].iter_mut().map(RwLock::new).collect(),
            sharers: sharers.map(Mutex::new).collect(),
            projections: projects.map(RwLock::new).collect(),
            left: (0..dims.sizes.layers).map(|_| AtomicUsize::new(sums.len())).collect(),
            sums: sums.iter_mut().map(Mutex::new).collect(),
            pooled: pooled.as_mut().map(RwLock::new),
        }
    }

    fn read_groups(&self) -> Vec<RwLockReadGuard<'_, &'a mut Group>> {
        self.groups.iter().map(|group| group.read().expect(LOCK)).collect()
    }
}
