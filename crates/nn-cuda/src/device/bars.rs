//! The bars of one timeframe on a device: those that the windows of a batch cover, each once.
//!
//! They are rows of a table: of a series, or of all stored windows, which stay on the device, of a
//! chunk of stored windows that is there for many batches, or of the bars that the batch brings.
//! Rows are bars or, of stored windows, whole windows.

use megabatch_gpu_core::{Buffer, DoubleBufferedUpload, Scope};
use megabatch_nn::batch::{BatchStorage, BatchView, Windows};
use megabatch_nn::memory::{BOTH, FORWARD, StepPhase};
use megabatch_nn::model::recurrent::RecurrentSizes;
use megabatch_nn::{Error, Result};

use super::memory_estimate::MemoryEstimate;
use super::stored_windows::round_in_place;
use crate::ops::{Operand, Sequence, Table, TableRows, UploadBatch, ensure_capacity, take_rows};

/// A table that stays on the device.
#[derive(Debug)]
enum ResidentBars {
    /// The bars of a series, [.., F].
    Series(Buffer<f32>),
    /// Stored windows, [N, T, F]: bytes of operands.
    Windows(Buffer<u8>),
}

/// Table that has the bars of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BarsLocation {
    /// One that stays on the device.
    Resident,
    /// The chunk of stored windows that is there.
    Chunk,
    /// Its own.
    Batch,
}

#[derive(Debug)]
pub(super) struct Bars {
    sizes: RecurrentSizes,
    resident: Option<ResidentBars>,
    /// Table of the batch that was found last.
    location: BarsLocation,
    /// The bars of the batch, and of the one before it, where batches bring them.
    batch_bars: DoubleBufferedUpload<f32>,
    windows: Windows,
    /// First bars of the windows of all samples.
    starts: Vec<usize>,
    first: Vec<u32>,
    /// Rows of the table.
    numbers: Vec<u32>,
    /// True if the table has stored windows.
    are_stored: bool,
    rows: Buffer<u32>,
    last: Vec<u64>,
    /// Identity of the distinct windows, for dropout.
    pub(super) ends: Buffer<u64>,
    /// The bars covered, [bars, FP], rounded and in single precision.
    pub(super) wide: Buffer<f32>,
}

impl Bars {
    pub(super) fn new(scope: &Scope, sizes: RecurrentSizes) -> Result<Self> {
        Ok(Bars {
            sizes,
            resident: None,
            location: BarsLocation::Batch,
            batch_bars: DoubleBufferedUpload::new(scope)?,
            windows: Windows::default(),
            starts: Vec::new(),
            first: Vec::new(),
            numbers: Vec::new(),
            are_stored: false,
            rows: Buffer::zeros(scope, 0)?,
            last: Vec::new(),
            ends: Buffer::zeros(scope, 0)?,
            wide: Buffer::zeros(scope, 0)?,
        })
    }

    /// Counts what the bars of timeframe `k` take.
    pub(super) fn estimate<T: Operand>(&mut self, estimate: &mut MemoryEstimate<'_>, k: usize) {
        let (batch, learnt, config) = (estimate.batch, estimate.learnt, estimate.config);
        let (name, bars) = (estimate.model.shape().timeframes[k].name.clone(), batch.bars[k]);
        let RecurrentSizes { steps, features, .. } = self.sizes;
        match &batch.series {
            Some(series) => {
                estimate.book("bars", format!("bars of {name}"), FORWARD, |scope| {
                    Ok(Buffer::<f32>::zeros(scope, series[k] * features)?)
                });
            }
            None if batch.kept_windows > 0 => {
                estimate.book("bars", format!("stored windows of {name}"), FORWARD, |scope| {
                    self.stored_windows::<T>(scope, batch.kept_windows)
                });
            }
            None => {
                let chunk_windows = batch.chunk_windows;
                estimate.book("bars", format!("two chunks of stored windows of {name}"), &StepPhase::ALL, |scope| {
                    let chunk = || self.stored_windows::<T>(scope, chunk_windows);
                    Ok([chunk()?, chunk()?])
                });
                // Beside chunks, batches of a validation alone bring theirs.
                let brought = if chunk_windows > 0 { batch.validated_max * steps } else { bars };
                let content = if batch.shares_bars { "bars" } else { "windows" };
                estimate.book("batches", format!("{content} of {name}, of two batches"), &StepPhase::ALL, |_| {
                    Ok(self.batch_bars.reserve(brought * features)?)
                });
            }
        }
        // A prediction drops nothing.
        let ends = config.drops_between_layers.then_some(learnt.windows[k]);
        estimate.book_upload(format!("last bars of the windows of {name}"), [None, ends], |upload, windows| {
            upload.put(&mut self.ends, windows)
        });
        let row_bars = if batch.shares_bars { 1 } else { steps };
        let rows = [bars, learnt.bars[k]].map(|bars| Some(bars / row_bars));
        estimate.book_upload(format!("places of the bars of {name}"), rows, |upload, rows| {
            upload.put(&mut self.rows, rows)
        });
        let wide = bars * self.width();
        estimate.book("batches", format!("bars of {name} that a batch covers"), BOTH, |_| {
            ensure_capacity(&mut self.wide, wide)
        });
    }

    /// Keeps the series on the device, booked on `scope`; `None` takes bars batch by batch.
    pub(super) fn keep_series(&mut self, scope: &Scope, series: Option<&[f32]>) -> Result<()> {
        // Given back before the new memory is taken.
        self.resident = None;
        self.resident = series.map(|values| Buffer::from_slice(scope, values).map(ResidentBars::Series)).transpose()?;
        Ok(())
    }

    /// Takes memory on the device for stored windows in operands of `T`, booked on `scope`.
    /// [`Bars::put_windows`] fills it.
    pub(super) fn keep_windows<T: Operand>(&mut self, scope: &Scope, windows: usize) -> Result<()> {
        if u32::try_from(windows * self.sizes.steps).is_err() {
            let expected = "fewer than 2^32 bars in a timeframe, for a GPU";
            return Err(Error::setting("the number of bars", &"2^32 or more", expected));
        }
        self.resident = None;
        self.resident = Some(ResidentBars::Windows(self.stored_windows::<T>(scope, windows)?));
        Ok(())
    }

    /// Memory for stored windows in operands of `T`, booked on `scope`.
    fn stored_windows<T: Operand>(&self, scope: &Scope, windows: usize) -> Result<Buffer<u8>> {
        Ok(Buffer::zeros(scope, windows * self.window_len() * size_of::<T>())?)
    }

    /// Copies stored windows, [.., T, F], to the place of window `first` and those after it,
    /// rounded to operands of `T`.
    ///
    /// # Panics
    /// If there is no memory for them.
    pub(super) fn put_windows<T: Operand>(&mut self, first: usize, windows: &[f32]) -> Result<()> {
        let start = first * self.window_len() * size_of::<T>();
        let Some(ResidentBars::Windows(bytes)) = &mut self.resident else { panic!("memory for stored windows") };
        if T::IS_NARROW {
            bytes.copy_from_at(start, round_in_place::<T>(&mut windows.to_vec()))?;
        } else {
            bytes.copy_from_at(start, bytemuck::cast_slice(windows))?;
        }
        Ok(())
    }

    pub(super) fn are_kept(&self) -> bool {
        self.resident.is_some()
    }

    fn window_len(&self) -> usize {
        self.sizes.steps * self.sizes.features
    }

    /// Finds the distinct windows of a batch in timeframe `k`; with `runs`, numbers of samples that
    /// follow one another, those of each run are one.
    pub(super) fn find(&mut self, batch: &BatchView<'_>, k: usize, runs: &[usize]) {
        let steps = self.sizes.steps;
        let (starts, ends) = (batch.starts(k), batch.ends(k));
        self.starts.clear();
        (self.location, self.are_stored) = match (batch.storage(), &self.resident) {
            (BatchStorage::Chunk, _) => (BarsLocation::Chunk, true),
            (_, Some(bars)) => (BarsLocation::Resident, matches!(bars, ResidentBars::Windows(_))),
            (storage, None) => (BarsLocation::Batch, storage == BatchStorage::Windows),
        };
        match self.location {
            BarsLocation::Resident if !self.are_stored => self.starts.extend(ends.iter().map(|end| end + 1 - steps)),
            _ => self.starts.extend(starts),
        }
        self.windows.set(&self.starts, ends, steps, runs);
    }

    /// Has the windows that were found go on to so many `steps`, and lists the bars that they
    /// cover. Steps past the last bar that a sample reads repeat it.
    pub(super) fn lay(&mut self, steps: usize) -> Result<()> {
        self.windows.go_on_to(steps);
        let last = self.bars_read().saturating_sub(1);
        self.first.clear();
        self.first.extend(self.windows.offsets().iter().map(|&offset| offset as u32));
        self.numbers.clear();
        if self.are_stored {
            // The windows of a batch lie one after another in it, and in a chunk.
            let first = self.starts.first().map_or(0, |start| start / self.sizes.steps) as u32;
            match self.location {
                BarsLocation::Resident => self.numbers.extend(self.windows.ends().iter().map(|&end| end as u32)),
                BarsLocation::Chunk | BarsLocation::Batch => {
                    self.numbers.extend((first..).take(self.windows.len()));
                }
            }
        } else {
            self.numbers.extend(self.windows.rows().map(|row| row.min(last) as u32));
        }
        if u32::try_from(last).is_err() {
            let expected = "fewer than 2^32 bars in a timeframe, for a GPU";
            return Err(Error::setting("the number of bars", &"2^32 or more", expected));
        }
        Ok(())
    }

    /// Repeats the last of the windows and of the bars that were found until there are so many.
    pub(super) fn fill_up(&mut self, windows: usize, bars: usize) -> Result<()> {
        self.first.resize(windows, self.first.last().copied().unwrap_or(0));
        self.numbers.resize(bars / self.row_bars(), self.numbers.last().copied().unwrap_or(0));
        if self.location == BarsLocation::Batch {
            self.batch_bars.reserve(bars * self.sizes.features)?;
        }
        let len = bars * self.width();
        ensure_capacity(&mut self.wide, len)
    }

    /// Gives `upload` what the device has to know of them. The bars themselves, where the batch
    /// brings them, go there beside the work of the batch before.
    pub(super) fn enqueue<'a>(
        &'a mut self,
        batch: &BatchView<'_>,
        k: usize,
        has_dropout: bool,
        upload: &mut UploadBatch<'a>,
    ) -> Result<()> {
        if self.location == BarsLocation::Batch {
            self.batch_bars.take(&batch.bars(k)[..self.bars_read() * self.sizes.features])?;
        }
        if has_dropout {
            self.last.clear();
            self.last.extend(self.windows.ends().iter().map(|&end| end as u64));
            self.last.resize(self.first.len(), self.last.last().copied().unwrap_or(0));
            upload.put(&mut self.ends, &self.last)?;
        }
        upload.put(&mut self.rows, &self.numbers)
    }

    /// Takes the bars that were found, rounded to `narrow` from element number `narrow_start` on.
    /// `chunk` is the table of the timeframe in the chunk that is on the device, bytes of operands.
    ///
    /// # Panics
    /// If the batch is of a chunk, and there is none.
    pub(super) fn take<T: Operand>(
        &mut self,
        narrow: &mut Buffer<T>,
        narrow_start: usize,
        chunk: Option<&Buffer<u8>>,
    ) -> Result<()> {
        let table = match (self.location, &self.resident) {
            (BarsLocation::Resident, Some(ResidentBars::Series(values))) => Table::Fp32(values),
            (BarsLocation::Resident, Some(ResidentBars::Windows(bytes))) => Table::Rounded(bytes),
            (BarsLocation::Chunk, _) => Table::Rounded(chunk.expect("the chunk of a batch is on the device")),
            _ => Table::Fp32(self.batch_bars.values()),
        };
        let (count, bars) = (self.numbers.len(), self.row_bars());
        let rows = TableRows { table, rows: &self.rows, count, bars, width: self.sizes.features, stride: self.width() };
        take_rows(&rows, narrow, narrow_start, &mut self.wide)
    }

    /// Bars up to the last that a sample reads, of those that windows are slices of.
    fn bars_read(&self) -> usize {
        self.starts.iter().max().map_or(0, |last| last + self.sizes.steps)
    }

    /// Distinct windows, and those that fill them up.
    pub(super) fn windows(&self) -> usize {
        self.first.len()
    }

    /// Bars covered, and those that fill them up.
    pub(super) fn count(&self) -> usize {
        self.numbers.len() * self.row_bars()
    }

    /// Bars of a row of the table.
    fn row_bars(&self) -> usize {
        if self.are_stored { self.sizes.steps } else { 1 }
    }

    /// Elements that they take among those of all timeframes, rounded.
    pub(super) fn narrow_len(&self) -> usize {
        self.count() * self.width()
    }

    /// FP.
    pub(super) fn width(&self) -> usize {
        row_width(self.sizes.features)
    }

    /// True if no bar is read by two windows.
    pub(super) fn share_nothing(&self) -> bool {
        self.windows.bars() == self.windows.len() * self.steps()
    }

    /// Samples of the batch.
    pub(super) fn samples(&self) -> usize {
        self.windows.sample_positions().len()
    }

    /// H of the layers that read them.
    pub(super) fn hidden(&self) -> usize {
        self.sizes.hidden
    }

    /// Steps of each window: T, or more where they are those of runs.
    pub(super) fn steps(&self) -> usize {
        self.windows.steps()
    }

    /// T.
    pub(super) fn steps_of_sample(&self) -> usize {
        self.sizes.steps
    }

    /// The distinct window of each sample, and the step at which the sample's ends.
    pub(super) fn sample_positions(&self) -> &[(usize, usize)] {
        self.windows.sample_positions()
    }

    /// The first layer over the windows.
    pub(super) fn sequence(&self) -> Sequence<'_> {
        Sequence { steps: self.steps(), first: &self.first, row_step: 1, projected_rows: self.count() }
    }
}

/// FP, the width on the device of rows of F = `features` numbers, with zeros behind them: products
/// load 16 bytes at a time, eight of the narrowest numbers, where each row begins at a multiple of
/// that. Layers read rows of this width, and their weights have it; the bars that they are taken
/// from, and the parameters, stay F wide.
pub(super) fn row_width(features: usize) -> usize {
    features.next_multiple_of(8)
}
