//! chunk-io's samples through the trainer's port.

use std::error::Error;
use std::path::Path;

use megabatch_chunk_io::{SampleSlices, Shape, Source, SourceOptions};
use megabatch_gpu_core::Device;
use megabatch_trainer::{Batch, SampleShape, Samples, Series, SeriesView, Timeframe};

/// A data file as the trainer reads it.
pub(crate) struct SourceSamples {
    source: Source,
    shape: SampleShape,
}

impl SourceSamples {
    /// Opens `path`. What fits into half of `memory_bytes` stays in memory; the rest is read when it is asked for.
    pub(crate) fn open(path: &Path, device: &Device, memory_bytes: usize) -> megabatch_chunk_io::Result<Self> {
        let options = SourceOptions { resident_bytes_max: memory_bytes / 2 };
        let source = Source::open_with(path, &device.scope("data"), options)?;
        let shape = trainer_shape(source.shape());
        Ok(SourceSamples { source, shape })
    }

    /// The file behind the samples.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }
}

impl Samples for SourceSamples {
    fn shape(&self) -> &SampleShape {
        &self.shape
    }

    fn len(&self) -> usize {
        self.source.shape().samples
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn Error + Send + Sync>> {
        let (features, targets) = batch.slices_mut();
        Ok(self.source.gather(samples, SampleSlices { features, targets })?)
    }

    fn series(&self) -> Option<SeriesView<'_>> {
        let resident = self.source.series()?;
        let series = resident.file().timeframes().iter().enumerate();
        let series = series.map(|(k, index)| Series { values: resident.values(k), ends: index.sample_ends() });
        Some(SeriesView { timeframes: series.collect(), targets: resident.targets() })
    }
}

/// The shape of a file's samples in the trainer's words.
pub(crate) fn trainer_shape(shape: &Shape) -> SampleShape {
    let timeframes = shape.timeframes.iter().map(|timeframe| Timeframe {
        name: timeframe.name.clone().unwrap_or_default(),
        steps: timeframe.steps,
        features: timeframe.features,
    });
    SampleShape { timeframes: timeframes.collect(), outputs: shape.horizons }
}
