//! How the windows of a batch lie: which bars they cover, how they become sequences, what samples
//! read of them, and the room that all this takes.

use megabatch_nn::batch::BatchView;
use megabatch_nn::memory::LargestBatch;
use megabatch_nn::{Error, Result};

use super::Lstms;
use crate::device::bars::Bars;
use crate::device::bucketing::{BatchSizes, bucket_batch, bucket_steps};
use crate::ops::{GATES, Operand, RowGranularity, Sequence, ensure_capacity};

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
        let mut sizes = self.sizes();
        for (size, least) in sizes.iter_mut().zip(self.padded_to.iter().flatten()) {
            *size = BatchSizes { windows: size.windows.max(least.windows), bars: size.bars.max(least.bars) };
        }
        let mut timeframes = self.bars.iter_mut().zip(sizes);
        timeframes.try_for_each(|(timeframe, size)| timeframe.fill_up(size.windows, size.bars))
    }

    /// Sizes of the batch that was found, padded as batches are.
    fn sizes(&self) -> Vec<BatchSizes> {
        let each_timeframe = |size: fn(&Bars) -> usize| self.bars.iter().map(size).collect::<Vec<_>>();
        let (windows, bars, steps) =
            (each_timeframe(Bars::windows), each_timeframe(Bars::count), each_timeframe(Bars::steps));
        let [windows, bars] = bucket_batch(self.bars[0].samples(), &windows, &bars, &steps);
        windows.into_iter().zip(bars).map(|(windows, bars)| BatchSizes { windows, bars }).collect()
    }

    /// Pads batches from now on to the size of the largest that is trained on, of which `largest`
    /// has the bound, if `batch`, whose first sample is at `position` in the epoch's order, is
    /// smaller. True if so; never in dense training or for stored windows.
    pub(in crate::device) fn pad_to_largest(
        &mut self,
        batch: &BatchView<'_>,
        position: usize,
        largest: &LargestBatch,
    ) -> Result<bool> {
        let samples = largest.sizes_learnt.iter().copied().max().unwrap_or(0);
        if self.runs.is_some() || !largest.shares_bars || samples == 0 {
            return Ok(false);
        }
        self.find(batch, position, true)?;
        let [windows, bars] = bucket_batch(samples, &largest.windows_learnt, &largest.bars_learnt, &largest.steps);
        let sizes: Vec<_> = windows.into_iter().zip(bars).map(|(windows, bars)| BatchSizes { windows, bars }).collect();
        let is_below = |(own, most): (&BatchSizes, &BatchSizes)| own.windows < most.windows || own.bars < most.bars;
        let pads = self.sizes().iter().zip(&sizes).any(is_below);
        self.padded_to = pads.then_some(sizes);
        Ok(pads)
    }

    /// Ends what [`Lstms::pad_to_largest`] began.
    pub(in crate::device) fn end_padding(&mut self) {
        self.padded_to = None;
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
        self.ensure_projected_capacity(projected_rows)
    }

    /// Takes memory for so many rows of projected inputs, where there is not as much.
    pub(super) fn ensure_projected_capacity(&mut self, rows: usize) -> Result<()> {
        ensure_capacity(&mut self.projected, rows * GATES * self.hidden)
    }

    /// Takes memory for the gradients of so many rows of outputs, if all of them are read.
    pub(super) fn ensure_d_outputs_capacity(&mut self, rows: usize) -> Result<()> {
        self.d_outputs.iter_mut().try_for_each(|d_outputs| ensure_capacity(d_outputs, rows * self.hidden))
    }

    pub(super) fn ensure_gradient_capacity(&mut self) -> Result<()> {
        self.ensure_d_outputs_capacity(self.over_bars.rows())?;
        let most = self.bars.iter().map(Bars::count).max().unwrap_or(0);
        self.shared.ensure_gradient_capacity(most, self.hidden)?;
        self.layers.iter_mut().try_for_each(|layer| layer.cells.ensure_gradient_capacity())?;
        self.back.ensure_capacity(&self.over_bars)
    }
}
