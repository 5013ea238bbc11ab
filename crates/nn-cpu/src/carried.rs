//! Carried state: windows that start where training last came to, in place of zero.
//!
//! A window starts from the detached hidden and cell state of every layer last computed at the bar
//! before its first bar; from zero where there is none, and at the start of a segment. All windows
//! of an optimizer step read what was there before the step, and what the step computes is there
//! after it. A window computes the state at each of its bars; where several windows of a step
//! compute the state at the same bar, that of the step's last sample stays. What is carried is thus
//! a function of the samples' order alone, and a state is that of a bar, so that samples that share
//! a window share its start.

use std::ops::Range;
use std::sync::Arc;

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::{BatchView, CarriedBars, NotedState};
use megabatch_nn::model::{Layout, Model, ModelConfig, Slot, TensorSet, Timeframe};
use rayon::prelude::*;

/// Initial states of the windows of a timeframe: `[layers, S, H]`, the hidden and then, if the cell
/// has one, the cell state of each layer.
#[derive(Clone, Copy)]
pub enum Initial<'a> {
    Zero,
    /// The state carried to the bar before each, out of these `[slots, layers, S, H]`.
    Carried(&'a CarriedTimeframe, &'a [f32]),
    /// This one.
    State(&'a [f32]),
}

impl<'a> Initial<'a> {
    /// The state before the first bar of the window that ends at row `end`; `None` for zero.
    pub fn window_state(self, end: usize) -> Option<&'a [f32]> {
        match self {
            Initial::Zero => None,
            Initial::Carried(timeframe, states) => timeframe.before(end, states),
            Initial::State(state) => Some(state),
        }
    }
}

/// Position of a state that a shard has computed.
#[derive(Clone, Copy)]
pub(crate) struct ComputedState {
    /// Place of the shard among those that are noted.
    pub(crate) shard: usize,
    pub(crate) timeframe: usize,
    /// Place of the sample in its shard.
    pub(crate) sample: usize,
    /// Step of the sample's window that the state follows.
    pub(crate) step: usize,
}

/// The carried states of a run: those that some training window can start from, and no others.
#[derive(Debug)]
pub struct Carried {
    /// As windows start from them, a tensor `[slots, layers, S, H]` a timeframe; zero where none
    /// was computed.
    states: TensorSet,
    timeframes: Vec<CarriedTimeframe>,
}

/// The bars of one timeframe whose states are carried.
#[derive(Debug)]
pub struct CarriedTimeframe {
    /// T.
    steps: usize,
    /// Numbers in a state.
    state_len: usize,
    /// Tensor of its states.
    tensor: Slot,
    /// The bars before some window's first, in the same segment.
    bars: CarriedBars,
    /// States that the step has computed so far, by place: `[.., layers, S, H]`.
    pending: Buffer<f32>,
}

impl Carried {
    /// Zero states for the bars `rows` of each timeframe, in optimizer steps of up to
    /// `step_samples` samples.
    pub fn new(scope: &Scope, model: &Model, rows: &[Vec<usize>], step_samples: usize) -> Result<Self> {
        let ModelConfig { cell, hidden, layers, .. } = model.config();
        let mut layout = Layout::default();
        let timeframe = |(rows, timeframe): (&Vec<usize>, &Timeframe)| {
            let dot = if timeframe.name.is_empty() { "" } else { "." };
            let tensor =
                layout.push(format!("states{dot}{}", timeframe.name), &[rows.len(), layers, cell.states(), hidden]);
            let places = CarriedBars::places(rows.len(), timeframe.steps, step_samples);
            Ok(CarriedTimeframe {
                steps: timeframe.steps,
                state_len: model.config().state_len(),
                tensor,
                bars: CarriedBars::new(timeframe.steps, rows),
                pending: Buffer::zeros(scope, model.config().state_len() * places)?,
            })
        };
        let timeframes = rows.iter().zip(&model.shape().timeframes).map(timeframe).collect::<Result<_>>()?;
        Ok(Carried { states: TensorSet::zeros(scope, &Arc::new(layout))?, timeframes })
    }

    /// The states as windows start from them.
    pub fn states(&self) -> &TensorSet {
        &self.states
    }

    /// The states as windows start from them, for a checkpoint to replace.
    pub fn states_mut(&mut self) -> &mut TensorSet {
        &mut self.states
    }

    /// The bars whose states are carried, by timeframe, ascending.
    pub fn rows(&self) -> Vec<Vec<usize>> {
        self.timeframes.iter().map(|timeframe| timeframe.bars.rows().collect()).collect()
    }

    /// True if these are the states of the bars `rows`.
    pub fn is_of(&self, rows: &[Vec<usize>]) -> bool {
        let own = self.timeframes.iter().map(|timeframe| timeframe.bars.rows());
        own.len() == rows.len() && own.zip(rows).all(|(own, rows)| own.eq(rows.iter().copied()))
    }

    /// Initial states of the windows of timeframe `k`.
    pub fn initial(&self, k: usize) -> Initial<'_> {
        Initial::Carried(&self.timeframes[k], self.states.slot(self.timeframes[k].tensor))
    }

    /// Notes what the shards of `batch`, which are these samples of it, have computed, in the order
    /// of the samples. `read_state` writes a state [layers, S, H].
    pub(crate) fn note(
        &mut self,
        batch: &BatchView<'_>,
        shards: &[Range<usize>],
        read_state: impl Fn(ComputedState, &mut [f32]) + Sync,
    ) {
        self.timeframes.par_iter_mut().enumerate().for_each(|(k, timeframe)| {
            for (shard, samples) in shards.iter().enumerate() {
                let read = |sample, step, to: &mut [f32]| {
                    read_state(ComputedState { shard, timeframe: k, sample, step }, to);
                };
                timeframe.note(&batch.ends(k)[samples.clone()], read);
            }
        });
    }

    /// Puts in place what the step has computed.
    pub fn commit(&mut self) {
        for timeframe in &mut self.timeframes {
            timeframe.commit(self.states.slot_mut(timeframe.tensor));
        }
    }

    /// Forgets what a step has computed that was not completed.
    pub fn discard(&mut self) {
        self.timeframes.iter_mut().for_each(|timeframe| timeframe.bars.discard());
    }
}

impl CarriedTimeframe {
    /// The state at the bar before the window that ends at row `end`, where it is carried.
    fn before<'a>(&self, end: usize, states: &'a [f32]) -> Option<&'a [f32]> {
        let row = end.checked_sub(self.steps)?;
        let slot = self.bars.slot(row)?;
        Some(&states[slot * self.state_len..][..self.state_len])
    }

    /// Notes the states of a shard whose windows end at `ends`, from the last window on, each bar's
    /// once. `read_state` writes the state of a sample after a step of its window.
    fn note(&mut self, ends: &[usize], read_state: impl Fn(usize, usize, &mut [f32])) {
        let (last, state_len) = (self.steps - 1, self.state_len);
        let pending = self.pending.as_mut_slice();
        self.bars.note(ends, |NotedState { sample, bars_to_end, place, .. }| {
            read_state(sample, last - bars_to_end, &mut pending[place * state_len..][..state_len]);
        });
    }

    fn commit(&mut self, states: &mut [f32]) {
        let pending = self.pending.as_slice().chunks_exact(self.state_len);
        for (&slot, state) in self.bars.pending().iter().zip(pending) {
            states[slot * self.state_len..][..self.state_len].copy_from_slice(state);
        }
        self.bars.discard();
    }
}
