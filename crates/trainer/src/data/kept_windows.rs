//! Samples whose windows lie on a GPU, and graphs whose edges do.

use std::error::Error as StdError;

use megabatch_gpu_core::Buffer;
use megabatch_nn::graph::Graphs;
use megabatch_nn::model::{Encoder, SampleShape};
use megabatch_nn_cuda::Accelerator;

use crate::config::Config;
use crate::data::prefetch::{Source, with_batches};
use crate::data::prefetching::always;
use crate::data::samples::{Batch, Samples, are_slices};
use crate::error::Result;

/// True if a GPU can keep the windows of `samples`: if they are stored whole, not slices of series,
/// and have fewer than 2³² bars in each timeframe.
pub fn can_keep_windows(samples: &dyn Samples) -> bool {
    can_hold_windows(samples, samples.len())
}

/// True if a GPU can hold `windows` of the windows of `samples`.
fn can_hold_windows(samples: &dyn Samples, windows: usize) -> bool {
    let mut timeframes = samples.shape().timeframes.iter();
    !are_slices(samples) && timeframes.all(|timeframe| u32::try_from(windows.saturating_mul(timeframe.steps)).is_ok())
}

/// Windows of each of two chunks in which those of `samples` pass through a GPU in a run with
/// `config`; `None` where they all lie there, or come batch by batch.
pub fn windows_in_chunk(config: &Config, samples: &dyn Samples) -> Option<usize> {
    let windows = config.chunk_windows?.max(config.batch_size);
    let stay = config.keep_windows && can_keep_windows(samples);
    let are_read = config.model.encoder == Encoder::Recurrent && !config.model.is_over_graphs();
    (!stay && are_read && can_hold_windows(samples, windows)).then_some(windows)
}

/// True if a GPU can keep the edges of all `graphs`: if they have fewer than 2³² nodes and edges.
pub fn can_keep_graphs(graphs: &dyn Graphs) -> bool {
    // Attention may give each node an edge to itself.
    u32::try_from(2 * graphs.total_nodes() + graphs.total_edges()).is_ok()
}

/// Samples of which a GPU has the windows. Batches are lists of samples, and targets.
pub(crate) struct KeptWindows<'a> {
    samples: &'a dyn Samples,
    /// The targets, [N, K], where the source has them not in memory.
    targets: Option<Buffer<f32>>,
}

impl<'a> KeptWindows<'a> {
    /// Reads all samples of `source` batch by batch, and brings their windows to `gpu`.
    ///
    /// # Errors
    /// Whatever keeps the source from reading, and a GPU or a host without room.
    pub(crate) fn bring(source: Source<'a>, gpu: &mut Accelerator) -> Result<Self> {
        let Source { samples, scope, batch_size, .. } = source;
        let (len, outputs) = (samples.len(), samples.shape().outputs);
        gpu.keep_windows(len)?;
        let mut targets = match samples.targets() {
            Some(_) => None,
            None => Some(Buffer::zeros(scope, len * outputs)?),
        };
        let schedule = (0..len).step_by(batch_size).map(|first| (first..len.min(first + batch_size)).collect());
        with_batches(source, schedule, &always, |feed| {
            let mut first = 0;
            while let Some(batch) = feed.next()? {
                gpu.put_windows(first, &batch)?;
                if let Some(targets) = &mut targets {
                    targets.copy_from_at(first * outputs, batch.targets())?;
                }
                first += batch.len();
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
        self.targets.as_ref().map(Buffer::as_slice).or_else(|| self.samples.targets())
    }

    fn weights(&self) -> Option<&[f32]> {
        self.samples.weights()
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        self.samples.graphs()
    }

    fn instrument(&self, sample: usize) -> Option<&str> {
        self.samples.instrument(sample)
    }
}
