//! A shard in tasks, for more threads than shards.
//!
//! ```text
//! project (timeframe, bars)        x · W_ihᵀ + b of some of the bars that windows share
//!    ↓ all of the timeframe
//! forward (timeframe, group)       all layers and steps of a group of windows            (1)
//! share (timeframe, member)        the same of one window, for some of the units         (4)
//!    ↓ all of the shard
//! decode                           fusion, graph attention, head, loss, and back
//!    ↓
//! backward (timeframe, group)      dgates of all layers and steps of the group           (2)
//!    ↓ all of the timeframe
//! weights (timeframe, panels)      dW_hh, dW_ih, db of some panels of gates              (3)
//! ```
//!
//! 1. A row of a product does not depend on its neighbours, so that any groups give the same bits.
//!    A group's memory is its own.
//! 2. Gradients of gates take the place of the gates.
//! 3. A sum over windows and steps is formed by one task, from the rows of all groups in the order
//!    of one sequence over all windows. It reads them where the groups have them. In bf16 it
//!    gathers a block of steps first, to pack it.
//! 4. Predictions of one window. These tasks and `forward` meet after every step, see
//!    [`step_barrier`](super::step_barrier).
//!
//! Each sum is thus formed in the order of [`Sequence::forward`] and [`Sequence::backward`] over
//! all windows: a shard's bits do not depend on its tasks. Windows stay together where sums over
//! them are formed on the way: with norms or dropout between layers in training, with pooling by
//! attention, and with gradient checkpointing. Timeframes are tasks of their own there too.

mod projections;
mod run;
mod sums;

use std::ops::Range;
use std::sync::Arc;

use megabatch_gpu_core::Scope;
use megabatch_nn::Result;
use megabatch_nn::batch::Windows;

use super::memory::{self, ScratchLens, ShardScratch};
use super::pooling::{self, Pooled, PoolingScratch};
use super::sequence::{Sequence, SequenceInput, WindowPartition};
use super::step_barrier::{self, StepBarrier, UnitShare};
use super::{Dimensions, quantized::Activations};
use crate::compute::{CheckpointPolicy, Purpose};
use crate::profile::Clock;
pub(super) use projections::Projections;
pub(super) use run::ShardMemory;
pub(crate) use run::{ShardRun, TaskKind};
use sums::PanelSums;

/// Rows that a step of a group costs beside its windows: it reads all of W_hh.
const ROWS_OF_STEP: f64 = 2.0;

/// Groups, tasks and their sizes, for one timeframe.
#[derive(Clone, Copy, Debug)]
struct TaskPartition {
    /// Most groups, and most windows of each.
    groups: usize,
    windows: usize,
    /// Most bars of each task that projects some.
    bars: usize,
    /// Panels of gates of each task that sums up.
    panels: usize,
}

impl TaskPartition {
    /// `None` if all windows are computed as one group.
    fn new(dims: Dimensions, purpose: Purpose, threads: usize) -> Option<Self> {
        let sums_on_the_way = match purpose {
            Purpose::Training { dropout, kept, .. } => {
                dims.sizes.norm || (dropout && dims.sizes.layers > 1) || kept != CheckpointPolicy::Everything
            }
            Purpose::Prediction => false,
        };
        let groups = threads.min(dims.capacity);
        if groups < 2 || dims.heads > 0 || sums_on_the_way {
            return None;
        }
        // Three of four groups have room for all windows: where other timeframes keep threads busy,
        // or windows are few, groups are fewer and larger.
        let windows = dims.capacity.div_ceil((3 * groups).div_ceil(4));
        // Bars are projected by themselves where there are at most half as many as steps.
        let bars = (dims.steps * dims.capacity / 2).div_ceil(groups);
        let panels = dims.gate_panels().div_ceil(groups.min(dims.gate_panels() / 2));
        Some(TaskPartition { groups, windows, bars, panels })
    }

    /// The panels of each task that sums up.
    fn panels(self, dims: Dimensions) -> impl Iterator<Item = Range<usize>> {
        (0..dims.gate_panels())
            .step_by(self.panels)
            .map(move |first| first..dims.gate_panels().min(first + self.panels))
    }

    /// The dimensions of a group.
    fn group_dims(self, dims: Dimensions) -> Dimensions {
        Dimensions { capacity: self.windows, ..dims }
    }
}

/// Numbers in each buffer that a group computes with: those of a sequence, but for gradients of
/// gates, which take the gates' place, and what is formed over all groups.
fn group_scratch_lens(dims: Dimensions, purpose: Purpose) -> ScratchLens {
    ScratchLens {
        per_bar_gates: 0,
        d_gates: 0,
        d_input_weight: 0,
        d_recurrent_weight: 0,
        d_bias: 0,
        d_norm: 0,
        bf16_gates: 0,
        bf16_transposed: 0,
        ..ScratchLens::new(dims, purpose)
    }
}

/// Some windows of a timeframe.
#[derive(Debug)]
struct Group {
    windows: Range<usize>,
    sequence: Sequence,
    scratch: ShardScratch,
}

/// The memory of one timeframe whose windows several tasks compute.
#[derive(Debug)]
pub(super) struct TimeframeTasks {
    dims: Dimensions,
    cut: Option<TaskPartition>,
    /// All windows.
    windows: Windows,
    groups: Vec<Group>,
    /// Groups that have windows now.
    in_use: usize,
    /// Memory of the threads that share the units of the first group with the one that computes it.
    sharers: Vec<Group>,
    barrier: Arc<StepBarrier>,
    projections: Vec<Projections>,
    sums: Vec<PanelSums>,
    pooled: Option<(Pooled, PoolingScratch)>,
}

/// Length of each buffer of one timeframe, in numbers, in the order in which
/// [`TimeframeTasks::new`] takes them.
pub(super) fn lens(dims: Dimensions, purpose: Purpose, threads: usize) -> Vec<usize> {
    let group = |dims: Dimensions, scratch: ScratchLens| {
        let layers = (0..dims.sizes.layers).flat_map(move |_| memory::layer_len(dims, purpose));
        layers.chain(scratch.buffers())
    };
    let Some(cut) = TaskPartition::new(dims, purpose, threads) else {
        let members = 0..step_barrier::members(dims, purpose);
        let members = members.flat_map(|_| group(dims, ScratchLens::new(dims, purpose)));
        return members.chain(pooling::lens(&[dims], purpose)).collect();
    };
    let group_dims = cut.group_dims(dims);
    let groups = (0..cut.groups).flat_map(|_| {
        let own = group(group_dims, group_scratch_lens(group_dims, purpose));
        own.chain(projections::lens(dims, cut.bars).buffers())
    });
    let mut lens: Vec<usize> = groups.collect();
    if purpose != Purpose::Prediction {
        lens.extend(cut.panels(dims).flat_map(|panels| sums::len(dims, purpose, panels.len())));
    }
    lens
}

impl TimeframeTasks {
    /// Memory for tasks of `threads` threads, booked on `scope`.
    pub(super) fn new(scope: &Scope, dims: Dimensions, purpose: Purpose, threads: usize) -> Result<Self> {
        let cut = TaskPartition::new(dims, purpose, threads);
        let members = step_barrier::members(dims, purpose);
        let mut tasks = TimeframeTasks {
            dims,
            cut,
            windows: Windows::default(),
            groups: Vec::new(),
            in_use: 0,
            sharers: Vec::new(),
            barrier: Arc::new(StepBarrier::new(dims, members)),
            projections: Vec::new(),
            sums: Vec::new(),
            pooled: None,
        };
        let group = |dims: Dimensions, partition, scratch: ScratchLens| -> Result<Group> {
            Ok(Group {
                windows: 0..0,
                sequence: Sequence::new(scope, dims, purpose, partition)?,
                scratch: ShardScratch::new(scope, scratch)?,
            })
        };
        let Some(cut) = cut else {
            let member = || group(dims, WindowPartition::Whole, ScratchLens::new(dims, purpose));
            tasks.groups.push(member()?);
            tasks.sharers = (1..members).map(|_| member()).collect::<Result<_>>()?;
            if dims.heads > 0 {
                tasks.pooled = Some((Pooled::new(scope, dims)?, PoolingScratch::new(scope, &[dims], purpose)?));
            }
            return Ok(tasks);
        };
        let group_dims = cut.group_dims(dims);
        for _ in 0..cut.groups {
            tasks.groups.push(group(group_dims, WindowPartition::Group, group_scratch_lens(group_dims, purpose))?);
            tasks.projections.push(Projections::new(scope, dims, cut.bars)?);
        }
        if purpose != Purpose::Prediction {
            tasks.sums =
                cut.panels(dims).map(|panels| PanelSums::new(scope, dims, purpose, panels)).collect::<Result<_>>()?;
        }
        Ok(tasks)
    }

    /// Allocates, on `scope`, the rows of products with int8 weights.
    pub(super) fn ensure_int8_capacity(&mut self, scope: &Scope) -> Result<()> {
        for Group { sequence, scratch, .. } in self.groups.iter_mut().chain(&mut self.sharers) {
            scratch.activations = Activations::new(scope, &[sequence.dims])?;
        }
        let dims = self.dims;
        self.projections.iter_mut().try_for_each(|part| part.ensure_int8_capacity(scope, dims))
    }

    /// Sizes of all windows together.
    pub(super) fn dims(&self) -> Dimensions {
        self.dims
    }

    /// All windows.
    pub(super) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// The sequence of the one window of `input`, and its scratch buffers.
    pub(super) fn alone_mut(&mut self, input: SequenceInput<'_>) -> (&mut Sequence, &mut ShardScratch) {
        self.windows.set(input.starts, input.ends, input.steps, input.runs);
        self.cut(f64::INFINITY);
        let Group { sequence, scratch, .. } = &mut self.groups[0];
        sequence.unit_share = None;
        (sequence, scratch)
    }

    /// The sequence that has window `w`, and its place there.
    pub(super) fn sequence_of(&self, w: usize) -> (&Sequence, usize) {
        let group = &self.groups[..self.in_use][group_of(self.in_use, self.windows.len(), w)];
        (&group.sequence, w - group.windows.start)
    }

    /// Pooling by attention, and the sequence whose windows are pooled.
    pub(super) fn pooled(&self) -> Option<(&Pooled, &Sequence)> {
        self.pooled.as_ref().map(|(pooled, _)| (pooled, &self.groups[0].sequence))
    }

    /// In the pass that begins, the units of the first group are `shared` with all its sharers, if
    /// it has any, or with none. A group alone publishes no states: under gradient checkpointing it
    /// keeps too few of them.
    fn share_units(&mut self, shared: bool) {
        let shared = shared && !self.sharers.is_empty();
        let groups = self.groups[..1].iter_mut().chain(&mut self.sharers);
        let mut shares = shared.then(|| UnitShare::for_pass(&self.barrier)).into_iter().flatten();
        groups.for_each(|group| group.sequence.unit_share = shares.next());
    }

    /// The work of a pass over all windows, in rows of a step.
    fn rows(&self) -> usize {
        self.windows.len() * self.windows.steps()
    }

    /// Cuts the windows into groups of up to `rows` rows of a step, as far as there are groups.
    fn cut(&mut self, rows: f64) {
        let count = self.windows.len();
        self.in_use = self.cut.map_or(1, |cut| {
            let wanted = (self.rows() as f64 / rows.max(1.0)).ceil() as usize;
            wanted.clamp(count.div_ceil(cut.windows), cut.groups.min(count))
        });
        for sharer in &mut self.sharers {
            sharer.sequence.windows.clone_from(&self.windows);
        }
        for (n, group) in self.groups[..self.in_use].iter_mut().enumerate() {
            group.windows = part(n, self.in_use, count);
            match group.sequence.partition {
                WindowPartition::Whole => group.sequence.windows.clone_from(&self.windows),
                WindowPartition::Group => group.sequence.windows.set_part(&self.windows, &group.windows),
            }
        }
        let bars = if self.windows.overlap() { self.windows.bars() } else { 0 };
        // As many tasks as groups, and more where their bars would be more than there is room for.
        let parts = self.cut.map_or(1, |cut| self.in_use.max(bars.div_ceil(cut.bars.max(1))));
        for (n, projections) in self.projections.iter_mut().enumerate() {
            projections.bars = if n < parts { part(n, parts, bars) } else { 0..0 };
        }
    }

    /// Moves the times measured since the last call to one clock.
    pub(super) fn clock_mut(&mut self) -> &mut Clock {
        let (first, others) = self.groups.split_first_mut().expect("one group at least");
        let others = others.iter_mut().chain(&mut self.sharers).map(|group| &mut group.sequence.clock);
        let others = others.chain(self.projections.iter_mut().map(|part| &mut part.clock));
        others.chain(self.sums.iter_mut().map(|sums| &mut sums.clock)).for_each(|other| {
            first.sequence.clock.take_from(other);
        });
        &mut first.sequence.clock
    }
}

/// Part `n` of `parts` even ones of 0..total.
pub(super) fn part(n: usize, parts: usize, total: usize) -> Range<usize> {
    total * n / parts..total * (n + 1) / parts
}

/// The part of `parts` even ones of 0..total that has `place`.
fn group_of(parts: usize, total: usize, place: usize) -> usize {
    (place * parts + parts - 1) / total
}

#[cfg(test)]
mod tests;
