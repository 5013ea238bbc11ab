#![forbid(unsafe_code)]

//! How the windows of a batch lie: which bars they cover, how they become sequences, what samples
//! read of them, and the room that all this takes.

use megabatch_nn::batch::BatchView;
use megabatch_nn::{Error, Result};

use super::Lstms;
use crate::device::bars::Bars;
use crate::device::bucketing::{bucket_batch, bucket_steps};
use crate::ops::{Operand, RowGranularity, Sequence, ensure_capacity};

impl<T: Operand> Lstms<T> {
    /// Finds the windows of a batch, whose first sample is at `position` in the epoch's order. In
    /// dense training, windows of samples that follow one another are one; in predictions, each
    /// stands by itself.
    pub(super) fn find(&mut self, batch: &BatchView<'_>, position: usize, learns: bool) -> Result<()> {
        let runs = self.runs.filter(|_| learns);
        let lens: Vec<usize> =
            runs.iter().flat_map(|runs| runs.in_batch(batch, position)).map(|run| run.len()).collect();
        self.bars.iter_mut().enumerate().for_each(|(k, bars)| bars.find(batch, k, &lens));
        let each_timeframe = |size: fn(&Bars) -> usize| self.bars.iter().map(size).collect::<Vec<_>>();
        let longest = runs.map_or(1, |runs| runs.longest);
        let steps = bucket_steps(&each_timeframe(Bars::steps), &each_timeframe(Bars::steps_of_sample), longest);
        self.bars.iter_mut().zip(steps).try_for_each(|(bars, steps)| bars.lay(steps))?;
        self.vectors = if runs.is_some() { RowGranularity::OfSteps } else { RowGranularity::OfWindows };
        Ok(())
    }

    /// Makes of the windows that were found a batch of a shape that is likely to come again.
    pub(super) fn fill_up(&mut self) -> Result<()> {
        let each_timeframe = |size: fn(&Bars) -> usize| self.bars.iter().map(size).collect::<Vec<_>>();
        let (windows, bars, steps) =
            (each_timeframe(Bars::windows), each_timeframe(Bars::count), each_timeframe(Bars::steps));
        let [windows, bars] = bucket_batch(self.bars[0].samples(), &windows, &bars, &steps);
        let sizes = windows.into_iter().zip(bars);
        self.bars.iter_mut().zip(sizes).try_for_each(|(timeframe, (windows, bars))| timeframe.fill_up(windows, bars))
    }

    /// Work lists of the windows found, and room for what they take.
    pub(super) fn build_layout(&mut self, learns: bool) -> Result<()> {
        let windows: usize = self.bars.iter().map(Bars::windows).sum();
        let rows: usize = self.bars.iter().map(|bars| bars.windows() * bars.steps()).sum();
        // Bars are no more than steps of windows.
        if u32::try_from(4 * (rows + windows + 32) * self.hidden).is_err() {
            let expected = "less on a GPU, with more gradient accumulation: 4 H numbers for each step of its windows must be fewer than 2^32";
            return Err(Error::setting("batch_size", &self.bars[0].samples(), expected));
        }
        let schedule = self.schedule(learns);
        self.over_bars.set(schedule, &self.bars.iter().map(Bars::sequence).collect::<Vec<_>>());
        self.place_rows()?;
        let mut projected_rows = if self.projects_itself() { 0 } else { self.over_bars.projected_rows() };
        if self.layers.len() > 1 {
            let firsts: Vec<u32> = (0..windows as u32).collect();
            let sequence = |bars: &Bars| Sequence {
                steps: bars.steps(),
                first: &firsts[..bars.windows()],
                row_step: bars.windows(),
                projected_rows: bars.windows() * bars.steps(),
            };
            self.over_states.set(schedule, &self.bars.iter().map(sequence).collect::<Vec<_>>());
            projected_rows = projected_rows.max(rows);
        }
        let sample_positions: Vec<&[(usize, usize)]> = self.bars.iter().map(Bars::sample_positions).collect();
        self.reads.set(&self.over_bars, self.vectors, self.top.read_from(), &sample_positions);
        ensure_capacity(&mut self.projected, projected_rows * 4 * self.hidden)
    }

    pub(super) fn ensure_gradient_capacity(&mut self) -> Result<()> {
        let rows = self.over_bars.rows();
        self.d_outputs.iter_mut().try_for_each(|d_outputs| ensure_capacity(d_outputs, rows * self.hidden))?;
        let most = self.bars.iter().map(Bars::count).max().unwrap_or(0);
        ensure_capacity(&mut self.shared.per_bar_gates, most * 4 * self.hidden)?;
        self.layers.iter_mut().try_for_each(|layer| layer.cells.ensure_gradient_capacity())?;
        self.back.ensure_capacity(&self.over_bars)
    }
}
