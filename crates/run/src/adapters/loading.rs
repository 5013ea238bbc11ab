//! chunk-io's loader through the trainer's port.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use megabatch_chunk_io::{BatchRows, Loader, LoaderOptions, Shape, Source};
use megabatch_gpu_core::{Device, Scope};
use megabatch_trainer::{BatchLists, BorrowedBatch, Chunking, LOCKED_BYTES_MAX, LoadedBatches, Waits};

/// Size of a chunk without a plan.
const CHUNK_BYTES: u64 = 256 << 20;

/// The size of chunks, and the scope of their memory.
#[derive(Debug)]
pub(super) struct Chunks {
    scope: Scope,
    samples: usize,
    /// Samples in a chunk of a loader that begins while another is at work.
    samples_beside: usize,
    loaders: AtomicUsize,
}

impl Chunks {
    pub(super) fn new(shape: &Shape, scope: &Scope) -> Self {
        let samples = usize::try_from(CHUNK_BYTES / shape.sample_bytes().max(1)).unwrap_or(usize::MAX);
        Chunks { scope: scope.clone(), samples, samples_beside: samples, loaders: AtomicUsize::new(0) }
    }

    /// Has `gpu` copy from chunks without a detour, if two of them are no larger than the pages
    /// that are locked.
    pub(super) fn lock_pages(&mut self, gpu: &Device, sample_bytes: u64) {
        if (2 * self.samples as u64).saturating_mul(sample_bytes) <= LOCKED_BYTES_MAX {
            self.scope = self.scope.page_locked(gpu);
        }
    }

    /// Chunks of `samples`. A validation, which loads beside training, does with two batches at a
    /// time: a plan counts batches in work and being read for both, of which training needs none
    /// where it has chunks.
    pub(super) fn set_samples(&mut self, samples: usize, batch_size: usize) {
        (self.samples, self.samples_beside) = (samples, samples.min(2 * batch_size));
    }

    /// Loads the batches of `lists` from `source`.
    pub(super) fn load<'a>(
        &'a self,
        source: &'a Arc<Source>,
        lists: BatchLists<'a>,
        chunking: Chunking,
    ) -> Result<Box<dyn LoadedBatches + 'a>, Box<dyn Error + Send + Sync>> {
        let turn = LoaderTurn { is_first: self.loaders.fetch_add(1, Relaxed) == 0, loaders: &self.loaders };
        let chunk_samples = chunking.samples(if turn.is_first { self.samples } else { self.samples_beside });
        let loader = Loader::new(source, lists, LoaderOptions { chunk_samples, scope: &self.scope })?;
        Ok(Box::new(Loaded { loader, _turn: turn }))
    }
}

/// A count of loaders at work, decreased when it is dropped.
struct LoaderTurn<'a> {
    is_first: bool,
    loaders: &'a AtomicUsize,
}

impl Drop for LoaderTurn<'_> {
    fn drop(&mut self) {
        self.loaders.fetch_sub(1, Relaxed);
    }
}

/// The batches of one loader.
struct Loaded<'a> {
    loader: Loader<BatchLists<'a>>,
    /// Given back after the loader's memory.
    _turn: LoaderTurn<'a>,
}

impl LoadedBatches for Loaded<'_> {
    fn next(
        &mut self,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Option<BorrowedBatch<'_>>, Box<dyn Error + Send + Sync>> {
        let Some(batch) = self.loader.next_batch_while(is_wanted)? else { return Ok(None) };
        Ok(Some(BorrowedBatch {
            samples: batch.samples(),
            features: (0..batch.shape().timeframes.len()).map(|k| slice(batch.features(k))).collect(),
            targets: slice(batch.targets()),
        }))
    }

    fn waits(&self) -> Waits {
        let stalls = self.loader.stats();
        Waits { disk: stalls.disk, decode: stalls.decode, copy: stalls.copy, bytes_read: stalls.read.bytes_read }
    }
}

fn slice<'a>(rows: BatchRows<'a>) -> &'a [f32] {
    rows.as_slice().expect("a batch is a slice of its chunk")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::ControlFlow;
    use std::path::Path;

    use megabatch_chunk_io::{NonFinite, SampleBlock, TimeframeShape, WindowsHeader, WriteOptions, write_windows};
    use megabatch_nn::model::ModelConfig;
    use megabatch_trainer::{Config, Event, Run, SampleRanges, Samples as _, Trainer};

    use super::*;
    use crate::adapters::samples::SourceSamples;
    use crate::error::Kind;
    use crate::host::Host;

    const SAMPLES: usize = 90;

    /// Windows of two timeframes that are waves, which `change` changes.
    fn write(path: &Path, change: impl FnOnce(&mut SampleBlock)) {
        let timeframe = |name: &str, steps| TimeframeShape { name: Some(name.to_owned()), steps, features: 3 };
        let shape = Shape { samples: SAMPLES, timeframes: vec![timeframe("M1", 7), timeframe("H1", 4)], horizons: 2 };
        let mut block = SampleBlock::zeros(&shape, SAMPLES);
        let tables = block.features.iter_mut().chain([&mut block.targets]);
        for (k, table) in tables.enumerate() {
            table.iter_mut().enumerate().for_each(|(i, x)| *x = (i as f32 * (0.3 + k as f32)).sin());
        }
        change(&mut block);
        let header = WindowsHeader { shape: &shape, sample_times: None, attributes: &BTreeMap::new() };
        let written: Result<(), megabatch_chunk_io::Error> =
            write_windows(path, &header, &WriteOptions::default(), |writer| writer.push(&block));
        written.unwrap();
    }

    /// Trains for two epochs and validates: the weights, the loss of each step and of each
    /// validation, the bytes read, and the peak of the chunks' memory.
    fn train(samples: &SourceSamples, device: &Device) -> megabatch_trainer::Result<(Vec<u32>, Vec<f64>, u64, usize)> {
        let config = Config {
            model: ModelConfig { hidden: 4, layers: 1, ..ModelConfig::default() },
            batch_size: 8,
            run_length: Some(5),
            epochs: 2,
            ..Config::default()
        };
        let (train, validation) = (SampleRanges::from(0..70), SampleRanges::from(70..SAMPLES));
        let run = Run { samples, train: &train, validation: &validation, checkpoints: None };
        let mut trainer = Trainer::new(device, config, samples.shape().clone())?;
        let (mut losses, mut bytes_read) = (Vec::new(), 0);
        let mut observe = |event: Event<'_>| {
            match event {
                Event::Step(step) => {
                    losses.push(step.loss);
                    bytes_read += step.data_waits.map_or(0, |waits| waits.bytes_read);
                }
                Event::Validation(validation) => losses.push(validation.loss),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        trainer.train(&run, &mut observe)?;
        let bits = trainer.parameters().values().iter().map(|x| x.to_bits()).collect();
        Ok((bits, losses, bytes_read, device.scope("data/chunks").usage().allocated_bytes_peak))
    }

    #[test]
    fn windows_that_pass_in_chunks_train_the_model_that_resident_ones_train() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("windows.h5");
        write(&path, |_| ());
        let sample_bytes = (7 * 3 + 4 * 3 + 2) * size_of::<f32>();
        let device = Device::cpu();
        let resident = SourceSamples::open(&path, &device, usize::MAX).unwrap();
        let (bits, losses, bytes_read, peak) = train(&resident, &device).unwrap();
        assert_eq!((bytes_read, peak), (0, 0));
        for (chunk_samples, validation_samples) in [(8, 8), (24, 16), (64, 16)] {
            let device = Device::cpu();
            let mut passing = SourceSamples::open(&path, &device, 0).unwrap();
            passing.load_in_chunks_of(chunk_samples, 8, None);
            let (passing_bits, passing_losses, bytes_read, peak) = train(&passing, &device).unwrap();
            assert_eq!(passing_bits, bits, "chunks of {chunk_samples}");
            assert_eq!(passing_losses, losses);
            assert!(bytes_read > 0);
            // The validation has 20 samples: two chunks of 8, or one of 16 and one of 4.
            let validation = if validation_samples == 8 { 16 } else { 20 };
            assert_eq!(peak, (2 * chunk_samples + validation) * sample_bytes);
            assert_eq!(passing.chunks.loaders.load(Relaxed), 0);
        }
    }

    /// A NaN of a window that passes in chunks counted as divergence of the model.
    #[test]
    fn numbers_that_are_not_finite_end_training_where_they_are_read() {
        for (sample, is_target) in [(3, false), (75, false), (75, true)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("windows.h5");
            write(&path, |block| match is_target {
                false => block.features[1][sample * 12 + 4] = f32::NAN,
                true => block.targets[sample * 2] = f32::INFINITY,
            });
            let device = Device::cpu();
            let mut passing = SourceSamples::open_in_file(&path, &device, NonFinite::Fail, &Host::silent()).unwrap();
            passing.load_in_chunks_of(24, 8, None);
            let error = crate::error::Error::from(train(&passing, &device).unwrap_err());
            let place = match is_target {
                false => format!(
                    "/features/H1[{sample}]: expected a sample of finite features, found NaN for feature_1 in row 1"
                ),
                true => format!("/targets[{sample}]: expected finite numbers"),
            };
            assert!(error.to_string().contains(&place), "{error}");
            assert_eq!(error.kind(), Kind::Data);
        }
    }
}
