//! The bars whose states are carried from step to step on a device, and what a batch has to do with
//! them.
//!
//! A window starts from the state last put in place at the bar before its first one, from zero
//! where no state is carried. Each batch of a step notes the states that it computes, of several at
//! one bar that of the last sample. They take their place once the step was accepted. What is
//! carried is thus the CPU engine's: the host of a run has it in the same order.

use megabatch_amp::ops::DeviceScaler;
use megabatch_gpu_core::Scope;
use megabatch_nn::Result;
use megabatch_nn::batch::{BatchView, CarriedBars, NotedState};
use megabatch_nn::memory::StepPhase;
use megabatch_nn::model::TensorSet;

use super::bars::Bars;
use super::memory_estimate::MemoryEstimate;
use crate::ops::{CarriedSizes, CarriedStates, Operand, StateNote, States, UploadBatch, WorkList};

/// The carried states of all timeframes.
#[derive(Debug)]
pub(super) struct Carried {
    timeframes: Vec<CarriedTimeframe>,
}

#[derive(Debug)]
struct CarriedTimeframe {
    carried: CarriedBars,
    starts: Vec<u32>,
    notes: Vec<StateNote>,
    on_device: CarriedStates,
}

impl Carried {
    /// Counts what [`Carried::new`] takes, and what batches do.
    pub(super) fn estimate(estimate: &mut MemoryEstimate<'_>) {
        let (batch, config) = (estimate.learnt, estimate.model.config());
        for (k, &[slots, places]) in batch.carried.iter().enumerate() {
            let name = estimate.model.shape().timeframes[k].name.clone();
            let sizes = CarriedSizes { hidden: config.hidden, layers: config.layers, slots, places };
            let used_in = [StepPhase::Forward, StepPhase::Optimizer];
            let mut states = estimate.book("carried", format!("states of {name}"), &used_in, |scope| {
                CarriedStates::zeros(scope, scope, sizes)
            });
            let name = format!("states that windows of {name} start from, and compute");
            let brought = Some([batch.windows[k], batch.bars[k]]);
            estimate.book_upload(name, [None, brought], |upload, [windows, notes]| {
                states.plan_upload(windows, notes, upload)
            });
        }
    }

    /// The states at the bars `rows` of each timeframe in `all`, which begin as `states`. A step
    /// has up to `step_samples` samples. Memory is taken below `scope`.
    pub(super) fn new(
        scope: &Scope,
        all: &[Bars],
        layers: usize,
        rows: &[Vec<usize>],
        step_samples: usize,
        states: &TensorSet,
    ) -> Result<Self> {
        let (carried, batches) = (scope.child("carried"), scope.child("batches"));
        let timeframe = |(bars, rows): (&Bars, &Vec<usize>)| {
            let (slots, steps) = (rows.len(), bars.steps_of_sample());
            let places = CarriedBars::places(slots, steps, step_samples);
            let sizes = CarriedSizes { hidden: bars.hidden(), layers, slots, places };
            Ok(CarriedTimeframe {
                carried: CarriedBars::new(steps, rows),
                starts: Vec::new(),
                notes: Vec::new(),
                on_device: CarriedStates::zeros(&carried, &batches, sizes)?,
            })
        };
        let mut timeframes: Vec<_> = all.iter().zip(rows).map(timeframe).collect::<Result<_>>()?;
        for (timeframe, (_, _, values)) in timeframes.iter_mut().zip(states.tensors()) {
            timeframe.on_device.load(values)?;
        }
        Ok(Carried { timeframes })
    }

    /// Gives the states to the host. Waits for the device.
    pub(super) fn store(&self, states: &mut TensorSet) -> Result<()> {
        let mut timeframes = self.timeframes.iter().zip(states.tensors_mut());
        timeframes.try_for_each(|(timeframe, (_, _, values))| timeframe.on_device.store(values))
    }

    /// Forgets what a step has computed that was not completed.
    pub(super) fn discard(&mut self) -> Result<()> {
        self.timeframes.iter_mut().try_for_each(CarriedTimeframe::discard)
    }

    /// Finds what a batch, whose windows were found and filled up, reads and notes.
    pub(super) fn find(&mut self, batch: &BatchView<'_>, all: &[Bars]) {
        for (k, (timeframe, bars)) in self.timeframes.iter_mut().zip(all).enumerate() {
            timeframe.find(batch.ends(k), bars.sample_positions(), bars.windows(), bars.count());
        }
    }

    /// Gives `upload` what the device has to know of the batch.
    pub(super) fn enqueue<'a>(&'a mut self, upload: &mut UploadBatch<'a>) -> Result<()> {
        let mut timeframes = self.timeframes.iter_mut();
        timeframes
            .try_for_each(|CarriedTimeframe { starts, notes, on_device, .. }| on_device.enqueue(starts, notes, upload))
    }

    /// Sets the states of a layer before the first step.
    pub(super) fn start<T: Operand>(&self, list: &WorkList, layer: usize, states: &mut States<T>) -> Result<()> {
        let mut timeframes = self.timeframes.iter().enumerate();
        timeframes.try_for_each(|(k, timeframe)| timeframe.on_device.start(list, k, layer, states))
    }

    /// Notes the states of a layer that the batch has computed.
    pub(super) fn note<T: Operand>(&mut self, list: &WorkList, layer: usize, states: &States<T>) -> Result<()> {
        let mut timeframes = self.timeframes.iter_mut().enumerate();
        timeframes.try_for_each(|(k, timeframe)| timeframe.on_device.note(list, k, layer, states))
    }

    /// Puts in place what the step has computed, if the step that `control` judged was accepted.
    pub(super) fn commit(&mut self, control: &DeviceScaler) -> Result<()> {
        self.timeframes.iter_mut().try_for_each(|timeframe| timeframe.on_device.commit(control))
    }
}

impl CarriedTimeframe {
    /// Finds what a batch reads and notes, whose samples' windows end at the rows `ends`: of each
    /// sample in `positions` the distinct window and the step at which the sample's ends. There are
    /// `windows` distinct windows, over `bars` bars, with those that fill them up.
    fn find(&mut self, ends: &[usize], positions: &[(usize, usize)], windows: usize, bars: usize) {
        self.starts.clear();
        self.starts.resize(windows, 0);
        for (&end, &(window, last)) in ends.iter().zip(positions) {
            let before = (end - last).checked_sub(1);
            let slot = before.and_then(|row| self.carried.slot(row));
            self.starts[window] = slot.map_or(0, |slot| 1 + slot as u32);
        }
        self.notes.clear();
        self.carried.note(ends, |NotedState { sample, bars_to_end, slot, place }| {
            let (window, last) = positions[sample];
            let row = (last - bars_to_end + 1) * windows + window;
            self.notes.push(StateNote { slot: 1 + slot as u32, place: place as u32, row: row as u32 });
        });
        assert!(self.notes.len() <= bars, "{} bars of {bars} are noted", self.notes.len());
        // As many for all batches of a shape.
        self.notes.resize(bars, StateNote::default());
    }

    fn discard(&mut self) -> Result<()> {
        self.carried.discard();
        self.on_device.discard()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use megabatch_gpu_core::Device;
    use megabatch_nn::model::recurrent::{Read, RecurrentSizes};
    use megabatch_nn::model::{Cell, Layout};

    use super::*;

    fn note(slot: u32, place: u32, row: u32) -> StateNote {
        StateNote { slot, place, row }
    }

    #[test]
    fn windows_start_from_the_bar_before_and_the_last_sample_at_a_bar_is_noted() {
        let scope = Device::cpu().scope("test");
        let (cell, layers) = (Cell::Lstm, 1);
        let (read, bias, norm) = (Read::LastStep, true, false);
        let sizes = RecurrentSizes { cell, steps: 3, features: 1, hidden: 2, layers, bias, norm, read };
        let mut layout = Layout::default();
        layout.push("states".to_owned(), &[4, 1, 2, 2]);
        let mut states = TensorSet::zeros(&scope, &Arc::new(layout)).unwrap();
        states.values_mut()[5] = 0.5;
        let rows = vec![vec![4, 5, 6, 20]];
        let all = [Bars::new(&scope, sizes).unwrap()];
        let mut carried = Carried::new(&scope, &all, layers, &rows, 2, &states).unwrap();
        let timeframe = &mut carried.timeframes[0];
        // Windows of rows 5 to 7, 7 to 9, and 5 to 7 once more; one that fills up.
        timeframe.find(&[7, 9, 7], &[(0, 2), (1, 2), (0, 2)], 3, 6);
        assert_eq!(timeframe.starts, [1, 3, 0]);
        // Rows 5 and 6 after steps 0 and 1 of the first window, of three.
        let none = StateNote::default();
        assert_eq!(timeframe.notes, [note(2, 0, 3), note(3, 1, 6), none, none, none, none]);
        // Another batch of the step; in a run, a sample's window ends after those before it.
        timeframe.find(&[4, 6], &[(0, 2), (0, 4)], 1, 5);
        assert_eq!(timeframe.starts, [0]);
        assert_eq!(timeframe.notes, [note(1, 2, 3), note(2, 0, 4), note(3, 1, 5), none, none]);
        timeframe.discard().unwrap();
        timeframe.find(&[6], &[(0, 2)], 1, 3);
        assert_eq!(timeframe.notes, [note(1, 0, 1), note(2, 1, 2), note(3, 2, 3)]);
        let mut found = TensorSet::zeros(&scope, states.layout()).unwrap();
        carried.store(&mut found).unwrap();
        assert_eq!(found.values(), states.values());
    }
}
