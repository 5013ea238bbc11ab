#![forbid(unsafe_code)]

//! The bars of one timeframe on a device: those that the windows of a batch cover, each once.

use megabatch_gpu_core::{Buffer, Scope};

use crate::error::{Error, Result};
use crate::fast::Windows;
use crate::lstm::Sizes;
use crate::ops::{Operand, Rows, Sequence, make_room, take_rows};
use crate::view::BatchView;

#[derive(Debug)]
pub(super) struct Bars<T: Operand> {
    sizes: Sizes,
    /// All bars of the series, [.., F], where they stay on the device.
    series: Option<Buffer<f32>>,
    /// Elsewhere those of the batch.
    of_batch: Buffer<f32>,
    windows: Windows,
    /// First bars of the windows of all samples, where they are slices of series.
    starts: Vec<usize>,
    first: Vec<u32>,
    numbers: Vec<u32>,
    rows: Buffer<u32>,
    /// What tells the distinct windows from others, for dropout.
    pub(super) ends: Buffer<u64>,
    /// The bars covered, [bars, F], rounded, and the same numbers in single precision.
    pub(super) narrow: Buffer<T>,
    pub(super) wide: Buffer<f32>,
}

impl<T: Operand> Bars<T> {
    pub(super) fn new(scope: &Scope, sizes: Sizes) -> Result<Self> {
        Ok(Bars {
            sizes,
            series: None,
            of_batch: Buffer::zeros(scope, 0)?,
            windows: Windows::default(),
            starts: Vec::new(),
            first: Vec::new(),
            numbers: Vec::new(),
            rows: Buffer::zeros(scope, 0)?,
            ends: Buffer::zeros(scope, 0)?,
            narrow: Buffer::zeros(scope, 0)?,
            wide: Buffer::zeros(scope, 0)?,
        })
    }

    /// Keeps the series on the device, booked on `scope`; `None` takes bars batch by batch.
    pub(super) fn keep(&mut self, scope: &Scope, series: Option<&[f32]>) -> Result<()> {
        // Given back before the new memory is taken.
        self.series = None;
        self.series = series.map(|values| Buffer::from_slice(scope, values)).transpose()?;
        Ok(())
    }

    /// Finds the distinct windows of a batch in timeframe `k`, and takes the bars that they cover.
    pub(super) fn take(&mut self, batch: &BatchView<'_>, k: usize) -> Result<()> {
        let Sizes { steps, features, .. } = self.sizes;
        let (starts, ends) = (batch.starts(k), batch.ends(k));
        let table = match &self.series {
            Some(series) => {
                self.starts.clear();
                self.starts.extend(ends.iter().map(|end| end + 1 - steps));
                self.windows.set((&self.starts, ends), steps, &[]);
                series
            }
            None => {
                let bars = starts.iter().max().map_or(0, |last| last + steps);
                make_room(&mut self.of_batch, bars * features)?;
                self.of_batch.copy_from_at(0, &batch.bars(k)[..bars * features])?;
                self.windows.set((starts, ends), steps, &[]);
                &self.of_batch
            }
        };
        self.first.clear();
        self.first.extend(self.windows.offsets().iter().map(|&offset| offset as u32));
        self.numbers.clear();
        self.numbers.extend(self.windows.rows().map(|row| row as u32));
        let count = self.numbers.len();
        if self.windows.rows().last().is_some_and(|row| u32::try_from(row).is_err()) {
            let expected = "fewer than 2^32 bars in a timeframe, for a GPU";
            return Err(Error::setting("the number of bars", &"2^32 or more", expected));
        }
        make_room(&mut self.rows, count)?;
        self.rows.copy_from_at(0, &self.numbers)?;
        make_room(&mut self.narrow, count * features)?;
        make_room(&mut self.wide, count * features)?;
        let rows = Rows { table, rows: &self.rows, count, width: features };
        take_rows(&rows, &mut self.narrow, &mut self.wide)
    }

    /// Has [`Bars::ends`] hold those of the windows found.
    pub(super) fn take_ends(&mut self) -> Result<()> {
        let ends: Vec<u64> = self.windows.ends().iter().map(|&end| end as u64).collect();
        make_room(&mut self.ends, ends.len())?;
        Ok(self.ends.copy_from_at(0, &ends)?)
    }

    /// Distinct windows.
    pub(super) fn windows(&self) -> usize {
        self.windows.len()
    }

    /// Bars covered.
    pub(super) fn count(&self) -> usize {
        self.windows.bars()
    }

    /// Samples of the batch.
    pub(super) fn samples(&self) -> usize {
        self.windows.of_sample().len()
    }

    /// T.
    pub(super) fn steps(&self) -> usize {
        self.sizes.steps
    }

    /// The distinct window of each sample.
    pub(super) fn of_sample(&self) -> impl Iterator<Item = usize> + '_ {
        self.windows.of_sample().iter().map(|&(window, _)| window)
    }

    /// The first layer over the windows.
    pub(super) fn sequence(&self) -> Sequence<'_> {
        Sequence { steps: self.sizes.steps, first: &self.first, row_step: 1, projected_rows: self.windows.bars() }
    }
}
