#![forbid(unsafe_code)]

//! Samples whose windows lie on a GPU.

use std::error::Error as StdError;

use megabatch_gpu_core::Scope;
use megabatch_nn::graph::Graphs;
use megabatch_nn::model::SampleShape;
use megabatch_nn_cuda::Accelerator;

use crate::data::prefetch::{GatherMode, Source, with_batches};
use crate::data::samples::{Batch, Samples};
use crate::error::Result;

/// Samples of which a GPU has the windows, and this the targets. Batches are lists of samples.
pub(crate) struct KeptWindows<'a> {
    samples: &'a dyn Samples,
    targets: Vec<f32>,
}

/// Reading of all samples, batch by batch.
pub(crate) struct Reading<'a> {
    pub(crate) samples: &'a dyn Samples,
    /// Books the batches.
    pub(crate) scope: &'a Scope,
    /// Samples of a batch.
    pub(crate) batch_size: usize,
    /// As [`Source::chunk_percent`].
    pub(crate) chunk_percent: u32,
}

impl<'a> KeptWindows<'a> {
    /// Reads all samples, and brings their windows to `gpu`.
    ///
    /// # Errors
    /// Whatever keeps the source from reading, and a GPU without room.
    pub(crate) fn bring(reading: &Reading<'a>, gpu: &mut Accelerator) -> Result<Self> {
        let &Reading { samples, scope, batch_size, chunk_percent } = reading;
        let (len, outputs) = (samples.len(), samples.shape().outputs);
        gpu.keep_windows(len)?;
        let source = Source {
            samples,
            graphs: None,
            seen: None,
            scope,
            batch_size,
            chunk_percent,
            gather_mode: GatherMode::Bars,
            target_scales: None,
        };
        let schedule = (0..len).step_by(batch_size).map(|first| (first..len.min(first + batch_size)).collect());
        let mut targets = Vec::with_capacity(len * outputs);
        with_batches(source, schedule, |feed| {
            while let Some(batch) = feed.next()? {
                gpu.put_windows(targets.len() / outputs, &batch)?;
                targets.extend_from_slice(batch.targets());
            }
            Ok(())
        })?;
        Ok(KeptWindows { samples, targets })
    }
}

impl Samples for KeptWindows<'_> {
    fn shape(&self) -> &SampleShape {
        self.samples.shape()
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.samples.gather(samples, batch)
    }

    fn targets(&self) -> Option<&[f32]> {
        Some(&self.targets)
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        self.samples.graphs()
    }

    fn instrument(&self, sample: usize) -> Option<&str> {
        self.samples.instrument(sample)
    }
}
