//! chunk-io's samples through the trainer's port.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use megabatch_chunk_io::{
    Layout, SampleBlock, SampleSlices, SeriesColumn, SeriesSource, SeriesTimeframeFile, Shape, Source, SourceOptions,
};
use megabatch_gpu_core::Device;
use megabatch_nn::batch::{Series, SeriesView};
use megabatch_nn::model::{SampleShape, Timeframe};
use megabatch_trainer::{Batch, PrefetchingSource, Samples, StreamedSeries};
use xxhash_rust::xxh3::Xxh3;

use super::loading::Chunks;
use super::verified::{FileState, VerifiedFiles};

/// Samples that are looked at together for a fingerprint; of large windows, all that are.
const FINGERPRINT_SAMPLES: usize = 32;

/// Bytes of windows that are read at once for a fingerprint.
const FINGERPRINT_READ_BYTES: u64 = 64 << 20;

/// Windows up to this size are looked at whole for a fingerprint, whether they are in memory or
/// not: it must not depend on how much memory there is.
const FINGERPRINT_BYTES: u64 = 1 << 30;

/// A data file as the trainer reads it.
pub(crate) struct SourceSamples {
    pub(super) source: Arc<Source>,
    shape: SampleShape,
    /// First bar of each segment in each timeframe; empty for windows.
    pub(super) segment_starts: Vec<Vec<i64>>,
    /// For windows that do not stay in memory.
    pub(super) chunks: Chunks,
    /// The file as it was opened, to remember that it was verified.
    opened: Option<(VerifiedFiles, FileState)>,
    /// Known since the file was verified.
    fingerprint: Option<String>,
}

impl SourceSamples {
    /// Opens `path`. A series, and windows of up to `resident_bytes_max`, stay in memory; larger
    /// ones are read when they are asked for.
    pub(crate) fn open(path: &Path, device: &Device, resident_bytes_max: usize) -> megabatch_chunk_io::Result<Self> {
        Self::open_with(path, device, SourceOptions { resident_bytes_max, ..SourceOptions::default() })
    }

    /// Opens `path`; bars, windows and targets are read when they are asked for. A series that was
    /// `verified` is not checked again.
    pub(crate) fn open_in_file(
        path: &Path,
        device: &Device,
        verified: &VerifiedFiles,
    ) -> megabatch_chunk_io::Result<Self> {
        let (state, fingerprint) = verified.look_up(path);
        let options = SourceOptions {
            resident_bytes_max: 0,
            series_cache_bytes: Some(0),
            is_checked: fingerprint.is_some(),
            ..SourceOptions::default()
        };
        let samples = Self::open_with(path, device, options)?;
        Ok(SourceSamples { opened: state.map(|state| (verified.clone(), state)), fingerprint, ..samples })
    }

    fn open_with(path: &Path, device: &Device, options: SourceOptions) -> megabatch_chunk_io::Result<Self> {
        let source = Source::open_with(path, &device.scope("data"), options)?;
        let shape = trainer_shape(source.shape());
        let timeframes = source.series().map_or(&[][..], |series| series.file().timeframes());
        let segment_starts = timeframes.iter().map(segment_starts).collect();
        let chunks = Chunks::new(source.shape(), &device.scope("data/chunks"));
        let (opened, fingerprint) = (None, None);
        Ok(SourceSamples { source: Arc::new(source), shape, segment_starts, chunks, opened, fingerprint })
    }

    /// Reads bars of a series in the file through a cache of about `cache_bytes`.
    ///
    /// # Panics
    /// If a loader is at work on them.
    pub(crate) fn set_cache(&mut self, cache_bytes: usize) -> megabatch_chunk_io::Result<()> {
        let source = Arc::get_mut(&mut self.source).expect("no loader is at work");
        source.series_mut().map_or(Ok(()), |series| series.set_cache(cache_bytes))
    }

    /// Reads what is not in memory yet into it.
    ///
    /// # Panics
    /// If a loader is at work on them.
    pub(crate) fn hold(&mut self) -> megabatch_chunk_io::Result<()> {
        Arc::get_mut(&mut self.source).expect("no loader is at work").load_resident()
    }

    /// A fingerprint of the samples' numbers: other data have another one, wherever the file lies
    /// and however it is compressed.
    ///
    /// Of windows above [`FINGERPRINT_BYTES`] it sees times and [`FINGERPRINT_SAMPLES`] of the
    /// samples, the first and the last among them; of everything else every number.
    pub(crate) fn fingerprint(&self) -> megabatch_chunk_io::Result<String> {
        if let Some(known) = self.fingerprint.as_ref().filter(|_| self.source.layout() == Layout::Series) {
            return Ok(known.clone());
        }
        let mut hash = Xxh3::new();
        hash.update(self.shape.to_string().as_bytes());
        hash.update(&(self.len() as u64).to_le_bytes());
        match self.source.series() {
            Some(series) => self.hash_series(series, &mut hash)?,
            None => {
                hash_numbers(&mut hash, self.source.sample_times().unwrap_or_default(), i64::to_le_bytes);
                self.hash_windows(&mut hash)?;
            }
        }
        let fingerprint = format!("{:032x}", hash.digest128());
        if let Some((verified, state)) = self.opened.as_ref().filter(|_| self.source.layout() == Layout::Series) {
            verified.remember(state, &fingerprint);
        }
        Ok(fingerprint)
    }

    fn hash_series(&self, series: &SeriesSource, hash: &mut Xxh3) -> megabatch_chunk_io::Result<()> {
        let hash_table = |hash: &mut Xxh3, table: usize| {
            series.scan_table(table, |rows| {
                hash_numbers(hash, rows, f32::to_le_bytes);
                Ok::<(), megabatch_chunk_io::Error>(())
            })
        };
        let hash_column = |hash: &mut Xxh3, column: SeriesColumn| {
            series.file().scan_column(column, 0..self.len(), |_, integers| {
                hash_numbers(hash, integers, i64::to_le_bytes);
                Ok::<(), megabatch_chunk_io::Error>(())
            })
        };
        hash_column(hash, SeriesColumn::SampleTime)?;
        for (k, segment_starts) in self.segment_starts.iter().enumerate() {
            hash_table(hash, k)?;
            hash_column(hash, SeriesColumn::SampleEnd(k))?;
            hash_numbers(hash, segment_starts, i64::to_le_bytes);
        }
        hash_table(hash, self.segment_starts.len())
    }

    fn hash_windows(&self, hash: &mut Xxh3) -> megabatch_chunk_io::Result<()> {
        let last = self.len() - 1;
        let looked_at: Vec<usize> = match self.source.shape().windows_bytes() <= FINGERPRINT_BYTES {
            true => (0..=last).collect(),
            false => (0..FINGERPRINT_SAMPLES).map(|k| last * k / (FINGERPRINT_SAMPLES - 1)).collect(),
        };
        // Many at once, so that a compressed chunk is decoded seldom; hashed in small blocks, by
        // which the fingerprint is defined.
        let blocks = FINGERPRINT_READ_BYTES / (self.source.shape().sample_bytes().max(1) * FINGERPRINT_SAMPLES as u64);
        for samples in looked_at.chunks(FINGERPRINT_SAMPLES * blocks.max(1) as usize) {
            let mut read = SampleBlock::zeros(self.source.shape(), samples.len());
            self.source.gather(samples, read.slices())?;
            let tables: Vec<_> =
                read.features.iter().chain([&read.targets]).map(|table| (table, table.len() / samples.len())).collect();
            for first in (0..samples.len()).step_by(FINGERPRINT_SAMPLES) {
                let block = first..samples.len().min(first + FINGERPRINT_SAMPLES);
                for (table, row_len) in &tables {
                    hash_numbers(hash, &table[block.start * row_len..block.end * row_len], f32::to_le_bytes);
                }
            }
        }
        Ok(())
    }

    /// Has what does not stay in memory read `chunk_samples` at once, for training in batches of
    /// `batch_size`.
    pub(crate) fn load_in_chunks_of(&mut self, chunk_samples: usize, batch_size: usize) {
        self.chunks.set_samples(chunk_samples, batch_size);
    }

    /// The file behind the samples.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The file behind the samples, shared.
    pub(crate) fn shared_source(&self) -> &Arc<Source> {
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
        self.source.gather(samples, SampleSlices { features, targets })?;
        Ok(())
    }

    fn series(&self) -> Option<SeriesView<'_>> {
        let series = self.source.series()?;
        let resident = series.resident()?;
        let timeframes = series.file().timeframes().iter().enumerate();
        let timeframes = timeframes.map(|(k, timeframe)| Series {
            values: resident.values(k),
            ends: timeframe.sample_ends(),
            segment_starts: &self.segment_starts[k],
        });
        Some(SeriesView { timeframes: timeframes.collect(), targets: resident.targets() })
    }

    fn streamed_series(&self) -> Option<&dyn StreamedSeries> {
        self.source.series().is_some_and(|series| series.resident().is_none()).then_some(self)
    }

    fn load_ahead(&self) -> Option<&dyn PrefetchingSource> {
        (!self.source.is_resident() && self.source.layout() == Layout::Windows).then_some(self)
    }

    fn instrument(&self, sample: usize) -> Option<&str> {
        let names = self.source.instruments();
        // The only one of a file is no different from all.
        if names.len() < 2 {
            return None;
        }
        Some(&names[self.source.instrument_of(sample)?])
    }
}

fn hash_numbers<T: Copy, const N: usize>(hash: &mut Xxh3, numbers: &[T], bytes: fn(T) -> [u8; N]) {
    // A block at a time: the hash is many times faster on long pieces than on single numbers.
    for block in numbers.chunks(4096) {
        let block: Vec<u8> = block.iter().flat_map(|&number| bytes(number)).collect();
        hash.update(&block);
    }
}

/// First bar of each segment: as the file says, or else of each instrument that has bars.
fn segment_starts(timeframe: &SeriesTimeframeFile) -> Vec<i64> {
    match timeframe.segment_starts() {
        [] => timeframe.instrument_starts().windows(2).filter(|pair| pair[0] < pair[1]).map(|pair| pair[0]).collect(),
        given => given.to_vec(),
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
