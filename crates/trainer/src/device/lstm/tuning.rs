#![forbid(unsafe_code)]

//! How windows are taken, where that was measured or is to be.

use megabatch_gpu_core::Device;

use super::{Layer, Lstms};
use crate::device::bars::Bars;
use crate::error::Result;
use crate::ops::{Operand, Pace};
use crate::tuning::Question;

/// What there is to be measured of a batch.
#[derive(Clone, Debug)]
pub(super) struct Unmeasured {
    what: String,
    /// Windows, their steps altogether, the most steps of one, and timeframes.
    sizes: [usize; 4],
}

impl Unmeasured {
    fn question(&self) -> Question<'_> {
        Question { what: &self.what, sizes: &self.sizes, ptx: Pace::PTX }
    }
}

impl<T: Operand> Lstms<T> {
    /// How the windows that were found are taken: as is known to be the fastest or, until [`Lstms::tune`], by the rule.
    pub(super) fn pace(&mut self, learns: bool) -> Pace {
        let windows: usize = self.bars.iter().map(Bars::windows).sum();
        let candidates = self.candidates(windows);
        let rows = self.bars.iter().map(|bars| bars.windows() * bars.steps()).sum();
        let steps = self.bars.iter().map(Bars::steps).max().unwrap_or(0);
        let Device::Cuda(cuda) = self.series.device() else { return candidates[0].1 };
        let back = if learns { " and back" } else { "" };
        let of_rows = if self.projects_itself() { " of rows" } else { "" };
        let what = format!("recurrence{of_rows}_{}{back}, {} units", T::SUFFIX, self.hidden);
        let open = Unmeasured { what, sizes: [windows, rows, steps, self.bars.len()] };
        let known = self.tuner.recall(cuda, &open.question(), &candidates);
        self.unmeasured = if known.is_none() { Some(open) } else { None };
        known.unwrap_or(candidates[0].1)
    }

    /// Finds out how the windows of the batch are taken fastest, if that is not known: by taking them, on arrays in which nothing is kept before [`Lstms::forward`]. The device has the lists by now.
    pub(in crate::device) fn tune(&mut self, learns: bool) -> Result<()> {
        let (Some(open), Device::Cuda(cuda)) = (self.unmeasured.take(), self.series.device().clone()) else {
            return Ok(());
        };
        let Layer { states, .. } = &mut self.layers[0];
        states.make_room(&self.over_bars)?;
        states.start_from_zero(&self.over_bars)?;
        let (candidates, tuner) = (self.candidates(self.over_bars.windows()), self.tuner.clone());
        let pace = tuner.choose(&cuda, &open.question(), &candidates, |pace| {
            self.over_bars.change_pace(pace)?;
            cuda.elapsed_ms(|| self.take_once(learns))
        })?;
        self.over_bars.change_pace(pace)?;
        self.over_states.change_pace(pace)
    }

    fn candidates(&self, windows: usize) -> Vec<(&'static str, Pace)> {
        Pace::candidates::<T>(self.hidden, windows, self.tuner.is_fast())
    }

    fn take_once(&mut self, learns: bool) -> Result<()> {
        self.recur(0)?;
        if learns { self.unwind(0) } else { Ok(()) }
    }
}
