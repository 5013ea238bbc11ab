//! Measured layouts of windows.

use megabatch_gpu_core::Device;
use megabatch_nn::Result;

use super::{LstmLayer, Lstms};
use crate::device::bars::Bars;
use crate::ops::{Operand, RecurrenceSchedule};
use crate::tuning::{TuningQuery, bucket};

/// All of a batch that decides how its windows are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ScheduleKey {
    learns: bool,
    /// True if the recurrence projects what it reads.
    is_of_rows: bool,
    /// Windows, their steps altogether, the most steps of one, and timeframes, each of a
    /// [`bucket`].
    sizes: [usize; 4],
}

impl<T: Operand> Lstms<T> {
    /// Layout of the windows found: the fastest one known or, until [`Lstms::tune`], by the rule.
    pub(super) fn schedule(&mut self, learns: bool) -> RecurrenceSchedule {
        let windows: usize = self.bars.iter().map(Bars::windows).sum();
        let by_rule = RecurrenceSchedule::by_rule::<T>(self.hidden, windows);
        let Device::Cuda(cuda) = self.resident.device() else { return by_rule };
        let rows = self.bars.iter().map(|bars| bars.windows() * bars.steps()).sum();
        let steps = self.bars.iter().map(Bars::steps).max().unwrap_or(0);
        let sizes = [windows, rows, steps, self.bars.len()].map(bucket);
        let key = ScheduleKey { learns, is_of_rows: self.projects_itself(), sizes };
        let (hidden, may_differ) = (self.hidden, self.schedules.tuner().is_fast());
        let known = self.schedules.stored_choice(cuda, key, || key.question::<T>(hidden, may_differ));
        self.unmeasured = if known.is_none() { Some(key) } else { None };
        known.unwrap_or(by_rule)
    }

    /// Finds out how the windows of the batch are taken fastest, if that is not known: by taking
    /// them, on arrays in which nothing is kept before [`Lstms::forward`]. The device has the lists
    /// by now.
    pub(in crate::device) fn tune(&mut self, learns: bool) -> Result<()> {
        let (Some(key), Device::Cuda(cuda)) = (self.unmeasured.take(), self.resident.device().clone()) else {
            return Ok(());
        };
        self.give_gates(0);
        let LstmLayer { states, .. } = &mut self.layers[0];
        states.ensure_capacity(&self.over_bars)?;
        states.start_from_zero(&self.over_bars)?;
        let tuner = self.schedules.tuner().clone();
        let schedule = tuner.choose(&cuda, &key.question::<T>(self.hidden, tuner.is_fast()), |schedule| {
            self.over_bars.change_schedule(schedule)?;
            cuda.elapsed_ms(|| self.take_once(learns))
        })?;
        self.over_bars.change_schedule(schedule)?;
        self.over_states.change_schedule(schedule)
    }

    fn take_once(&mut self, learns: bool) -> Result<()> {
        self.recur(0)?;
        if learns { self.recurrence_backward(0) } else { Ok(()) }
    }
}

impl ScheduleKey {
    fn question<T: Operand>(self, hidden: usize, may_differ: bool) -> TuningQuery<RecurrenceSchedule> {
        let back = if self.learns { " and back" } else { "" };
        let rows_suffix = if self.is_of_rows { " of rows" } else { "" };
        TuningQuery {
            what: format!("recurrence{rows_suffix}_{}{back}, {hidden} units", T::SUFFIX),
            sizes: self.sizes.to_vec(),
            candidates: RecurrenceSchedule::candidates::<T>(hidden, self.sizes[0], may_differ),
            ptx: RecurrenceSchedule::PTX,
        }
    }
}
