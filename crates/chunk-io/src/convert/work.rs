//! Shared inputs of every step of a conversion: threads, memory, and the progress observer.

use std::ops::ControlFlow;
use std::path::Path;

use bytemuck::Pod;
use megabatch_gpu_core::{Buffer, Scope};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{ConversionProgress, ConversionStage, ConvertOptions, Observer};
use crate::error::{Error, Result};

/// Shared state of a conversion: threads, memory, progress.
pub(super) struct ConversionContext<'a> {
    pub(super) out: &'a Path,
    pub(super) threads: ThreadPool,
    pub(super) notes: Vec<String>,
    scope: Scope,
    memory_bytes: usize,
    progress: ConversionProgress,
    observer: &'a mut Observer<'a>,
}

impl<'a> ConversionContext<'a> {
    pub(super) fn new(
        out: &'a Path,
        options: &ConvertOptions,
        scope: &Scope,
        observer: &'a mut Observer<'a>,
    ) -> Result<Self> {
        let threads = ThreadPoolBuilder::new().num_threads(options.threads).build().map_err(|error| Error::Io {
            path: out.to_owned(),
            action: "start threads",
            source: std::io::Error::other(error),
        })?;
        let progress = ConversionProgress { stage: ConversionStage::Converting, done_bytes: 0, total_bytes: 0 };
        let scope = scope.child("convert");
        Ok(ConversionContext {
            out,
            threads,
            notes: Vec::new(),
            scope,
            memory_bytes: options.memory_bytes,
            progress,
            observer,
        })
    }

    /// Bytes that a step may read at once; packed chunks and HDF5's buffers take as much again.
    pub(super) fn batch_bytes(&self) -> usize {
        self.memory_bytes / 4
    }

    pub(super) fn buffer<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::zeros(&self.scope, len).map_err(Error::memory(self.out))
    }

    /// Adds to the bytes that are to be done in all.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.progress.total_bytes += bytes;
    }

    pub(super) fn enter(&mut self, stage: ConversionStage) {
        self.progress.stage = stage;
    }

    /// Reports `bytes` more as done.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the observer wants no more.
    pub(super) fn advance(&mut self, bytes: u64) -> Result<()> {
        self.progress.done_bytes += bytes;
        let ConversionProgress { done_bytes, total_bytes, .. } = self.progress;
        match (self.observer)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Interrupted { path: self.out.to_owned(), done_bytes, total_bytes }),
        }
    }
}
