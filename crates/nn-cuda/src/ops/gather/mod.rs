//! From vectors of windows, or of their steps, to what the head reads of each sample, all
//! timeframes side by side, and back.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(feature = "conformance")]
#[path = "tests/cpu.rs"]
mod cpu;

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Device, Scope, arguments};
use megabatch_nn::Result;

use super::batch_upload::{PlannedUpload, UploadBatch};
use super::operand::Operand;
use super::work_list::{SequenceOffsets, WorkList};

const PTX: &str = megabatch_gpu_core::ptx!("join");

/// Unit that has a vector, which samples read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowGranularity {
    /// A vector of each window after its last step, `[Σ B, H]`.
    OfWindows,
    /// A vector of each window after each step, `[Σ T·B, H]`.
    OfSteps,
}

/// Source of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// The states of a layer as they are, `[Σ (T + 1)·B, H]`.
    States,
    /// Pooled or selected rows, a row a vector.
    RowGranularity,
}

/// Which vector each sample of a batch reads in every sequence of a work list. Several may read the
/// same.
#[derive(Debug)]
pub struct GatherIndex {
    vectors: RowGranularity,
    samples: usize,
    sequences: usize,
    /// H.
    hidden: usize,
    /// Rows of what is read from.
    rows_end: usize,
    /// `[samples, N]`, counted over the vectors of all N sequences.
    numbers: Vec<u32>,
    lists: Lists<Vec<u32>>,
    on_device: Lists<Buffer<u32>>,
}

/// Lists of all samples, on the host, and on the device, where there may be room for more behind
/// them.
#[derive(Debug, Default)]
struct Lists<Of> {
    /// `[samples, N]`: rows of what vectors are read from.
    rows: Of,
    /// `[vectors + 1]`: where the readers of each vector begin.
    starts: Of,
    /// `[samples · N]`: places in `rows`, vector by vector in ascending order.
    readers: Of,
}

impl GatherIndex {
    /// Reads of no sample.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn empty(scope: &Scope) -> Result<Self> {
        let none = || Buffer::zeros(scope, 0);
        Ok(GatherIndex {
            vectors: RowGranularity::OfWindows,
            samples: 0,
            sequences: 0,
            hidden: 0,
            rows_end: 0,
            numbers: Vec::new(),
            lists: Lists::default(),
            on_device: Lists { rows: none()?, starts: none()?, readers: none()? },
        })
    }

    /// Takes other reads, of which the device learns by [`GatherIndex::enqueue`].
    /// `sample_positions` has for each sequence, sample by sample, the number of the window that is
    /// read among its own and the step after which it is; of [`RowGranularity::OfWindows`] the last
    /// one.
    ///
    /// # Panics
    /// If there is not a window for every sample in every sequence of the list, and where there is
    /// no such window or step, or no vector of it.
    pub fn set(
        &mut self,
        list: &WorkList,
        vectors: RowGranularity,
        from: ReadFrom,
        sample_positions: &[&[(usize, usize)]],
    ) {
        let (sequences, samples) =
            (list.places().len(), sample_positions.first().map_or(0, |positions| positions.len()));
        assert_eq!(sample_positions.len(), sequences, "windows in each sequence");
        (self.vectors, self.samples, self.sequences, self.hidden) = (vectors, samples, sequences, list.hidden());
        let vectors_end = match vectors {
            RowGranularity::OfWindows => list.windows(),
            RowGranularity::OfSteps => list.rows(),
        };
        self.rows_end = if from == ReadFrom::States { list.rows() + list.windows() } else { vectors_end };
        self.numbers.resize(samples * sequences, 0);
        self.lists.rows.resize(samples * sequences, 0);
        for (s, (reads, place)) in sample_positions.iter().zip(list.places()).enumerate() {
            assert_eq!(reads.len(), samples, "a window for each sample in sequence {s}");
            for (sample, &(window, step)) in reads.iter().enumerate() {
                let number = vectors.number(s, place, window, step);
                let row = if from == ReadFrom::States { place.states(step + 1) + window } else { number };
                self.numbers[sample * sequences + s] = number as u32;
                self.lists.rows[sample * sequences + s] = row as u32;
            }
        }
        self.list_readers(vectors_end);
    }

    /// Lists the readers of each of `vectors` vectors.
    fn list_readers(&mut self, vectors: usize) {
        let (numbers, Lists { starts, readers, .. }) = (&self.numbers, &mut self.lists);
        readers.clear();
        readers.extend(0..numbers.len() as u32);
        readers.sort_by_key(|&reader| numbers[reader as usize]);
        starts.clear();
        starts.resize(vectors + 1, 0);
        numbers.iter().for_each(|&number| starts[number as usize + 1] += 1);
        (0..vectors).for_each(|vector| starts[vector + 1] += starts[vector]);
    }

    /// Gives `upload` what the device has to know of the reads. Memory is taken only where there is
    /// less than that needs.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn enqueue<'a>(&'a mut self, upload: &mut UploadBatch<'a>) -> Result<()> {
        let (Lists { rows, starts, readers }, lists) = (&mut self.on_device, &self.lists);
        upload.put(rows, &lists.rows)?;
        upload.put(starts, &lists.starts)?;
        upload.put(readers, &lists.readers)
    }

    /// Plans the upload of so many reads, one of each sample in each sequence, of so many vectors
    /// at most.
    pub(crate) fn plan_upload(&mut self, reads: usize, vectors: usize, upload: &mut PlannedUpload) -> Result<()> {
        let Lists { rows, starts, readers } = &mut self.on_device;
        upload.put(rows, reads)?;
        upload.put(starts, vectors + 1)?;
        upload.put(readers, reads)
    }

    /// Unit that has a vector.
    pub fn vectors(&self) -> RowGranularity {
        self.vectors
    }

    /// The number of vectors.
    pub fn vectors_len(&self) -> usize {
        self.lists.starts.len().saturating_sub(1)
    }

    /// Numbers in `[samples, N · H]`.
    fn joined_len(&self) -> usize {
        self.numbers.len() * self.hidden
    }

    /// Panics if what is joined is shorter.
    fn assert_has_joined(&self, len: usize) {
        let GatherIndex { samples, sequences, hidden, .. } = self;
        assert!(self.joined_len() <= len, "vectors [{hidden}] of {samples} samples from {sequences} sequences");
    }
}

impl RowGranularity {
    /// The number of the vector of sequence `s` that belongs to a window of its own after step
    /// `step`.
    fn number(self, s: usize, place: &SequenceOffsets, window: usize, step: usize) -> usize {
        let (windows, steps) = (place.windows as usize, place.steps as usize);
        assert!(
            window < windows && step < steps,
            "step {step} of {steps} of window {window} of the {windows} of sequence {s}"
        );
        match self {
            RowGranularity::OfSteps => place.gates(step) + window,
            RowGranularity::OfWindows => {
                assert_eq!(step + 1, steps, "the last step of a window of sequence {s}");
                place.window as usize + window
            }
        }
    }
}

/// Gathers the vectors of `from`, `[rows, H]`, side by side for each sample and rounded to `T`:
/// `joined` `[samples, N · H]`. One of the types is f32, or both are the same. Behind either there
/// may be room for more.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch.
///
/// # Panics
/// If anything has not the shape of the reads, and if arrays are on several devices.
pub fn join<From: Operand, T: Operand>(reads: &GatherIndex, from: &Buffer<From>, joined: &mut Buffer<T>) -> Result<()> {
    assert!(From::SUFFIX == T::SUFFIX || !(From::IS_NARROW && T::IS_NARROW), "one is of f32, or both are of one type");
    let (device, width, len) = (joined.scope().device().clone(), reads.hidden, reads.joined_len());
    reads.assert_has_joined(joined.len());
    assert!(from.len() >= reads.rows_end * width, "a row for all that may be read");
    [from.scope(), reads.on_device.rows.scope()].into_iter().for_each(|scope| device.assert_beside(scope.device()));
    match &device {
        Device::Cuda(device) => {
            let name = kernel::<From, T>();
            let kernel = Kernel { module: "nn/join", ptx: PTX, name: &name };
            let (rows, from, to) = (reads.on_device.rows.address(), from.address(), joined.address());
            let arguments = arguments![rows, from, to, len as u64, width as u32];
            // SAFETY: rows are less than `rows_end`, and `from` was seen to have as many; a thread
            // writes one element. What is submitted to the default stream later runs after it.
            Ok(unsafe { kernel.submit(device, Launch::for_threads(len), &arguments) }?)
        }
        _ => cpu_arm!(cpu::join(reads, from.as_slice(), joined.as_mut_slice())),
    }
}

/// The gradients of what was joined, `d_joined` `[samples, N · H]`, rounded to `T`, back to the
/// vectors: `d_vectors` `[vectors, H]` becomes for each the sum over its readers, in the order of
/// the samples, and zero where there is none. Those of windows fit in
/// [`Gradients::hidden`](super::Gradients::hidden), those of steps in
/// [`Gradients::outputs`](super::Gradients::outputs).
///
/// # Errors
/// As [`join()`].
///
/// # Panics
/// If anything has not the shape of the reads, and if arrays are on several devices.
pub fn scatter_add<T: Operand>(reads: &GatherIndex, d_joined: &Buffer<f32>, d_vectors: &mut Buffer<f32>) -> Result<()> {
    let (device, width) = (d_vectors.scope().device().clone(), reads.hidden);
    let len = reads.vectors_len() * width;
    reads.assert_has_joined(d_joined.len());
    assert!(d_vectors.len() >= len, "a row for every vector");
    [d_joined.scope(), reads.on_device.starts.scope()]
        .into_iter()
        .for_each(|scope| device.assert_beside(scope.device()));
    match &device {
        Device::Cuda(device) => {
            let name = format!("separate_{}", T::SUFFIX);
            let kernel = Kernel { module: "nn/join", ptx: PTX, name: &name };
            let (starts, readers) = (reads.on_device.starts.address(), reads.on_device.readers.address());
            let arguments =
                arguments![starts, readers, d_joined.address(), d_vectors.address(), len as u64, width as u32];
            // SAFETY: readers are rows of `d_joined`, and a thread writes one element of
            // `d_vectors`. What is submitted to the default stream later runs after it.
            Ok(unsafe { kernel.submit(device, Launch::for_threads(len), &arguments) }?)
        }
        _ => cpu_arm!(cpu::scatter_add::<T>(reads, d_joined.as_slice(), d_vectors.as_mut_slice())),
    }
}

fn kernel<From: Operand, T: Operand>() -> String {
    format!("join_{}_{}", From::SUFFIX, T::SUFFIX)
}

#[cfg(test)]
mod tests;
