//! chunk-io's samples through the trainer's port.

use std::error::Error as StdError;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use megabatch_chunk_io::{
    Layout, NonFinite, SampleBlock, SampleSlices, SeriesColumn, SeriesFile, SeriesSource, SeriesTimeframeFile, Shape,
    Source, SourceOptions, is_fingerprint_of_blocks,
};
use megabatch_gpu_core::Device;
use megabatch_nn::batch::{Series, SeriesView};
use megabatch_nn::graph::LabelSpan;
use megabatch_nn::model::{SampleShape, Timeframe};
use megabatch_trainer::{Batch, BatchLists, Chunking, LoadedBatches, PrefetchingSource, Samples, StreamedSeries};
use serde::Serialize;
use xxhash_rust::xxh3::Xxh3;

use super::label_spans::LabelSpans;
use super::loading::Chunks;
use super::verified::{FileState, VerificationWatch, VerifiedFiles, require_going_on};
use crate::error::Result;
use crate::host::Host;

/// Numbers of a series that are hashed between two progress updates.
const HASHED_AT_ONCE: usize = 1 << 20;

/// Samples that are hashed together for a fingerprint; of large windows, all that are hashed.
const FINGERPRINT_SAMPLES: usize = 32;

/// Bytes of windows that are read at once for a fingerprint.
const FINGERPRINT_READ_BYTES: u64 = 64 << 20;

/// Instruments of a file from which on evaluations have correlations over those of each time.
const RANKED_INSTRUMENTS_MIN: usize = 5;

/// Largest windows that are hashed whole for a fingerprint, in memory or not.
const FINGERPRINT_BYTES: u64 = 1 << 30;

/// A file that samples or edges come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DataFile {
    pub(crate) path: PathBuf,
    /// A hash of its numbers.
    pub(crate) fingerprint: String,
}

/// A data file as the trainer reads it.
pub(crate) struct SourceSamples {
    pub(super) source: Arc<Source>,
    shape: SampleShape,
    /// First bar of each segment in each timeframe; empty for windows.
    pub(super) segment_starts: Vec<Vec<i64>>,
    /// For windows that do not stay in memory.
    pub(super) chunks: Chunks,
    /// State of the file when it was opened, for its mark of verification.
    opened: Option<(VerifiedFiles, FileState)>,
    /// Fingerprint of the file in the cache folder, if it was verified.
    verified: Option<String>,
    /// Spans of the targets, once they were asked for; `None` where the file does not tell.
    label_spans: OnceLock<Option<LabelSpans>>,
}

impl SourceSamples {
    /// Opens `path`. A series, and windows of up to `resident_bytes_max`, stay in memory; larger
    /// ones are read when they are asked for.
    #[cfg(test)]
    pub(crate) fn open(path: &Path, device: &Device, resident_bytes_max: usize) -> megabatch_chunk_io::Result<Self> {
        Self::open_with(path, device, SourceOptions { resident_bytes_max, ..SourceOptions::default() })
    }

    /// Opens `path`; bars, windows and targets are read when they are asked for. A series that was
    /// verified, as the host's cache folder says, is not checked again. One with a mark is checked
    /// as it is read, and its lists that are not read whole are checked now, so that a stream
    /// refuses what a load into memory does. Windows are checked by the rule `non_finite` whenever
    /// they are read.
    pub(crate) fn open_in_file(path: &Path, device: &Device, non_finite: NonFinite, host: &Host<'_>) -> Result<Self> {
        let samples = Self::open_unchecked(path, device, non_finite, host)?;
        if let Some(series) = samples.source.series().filter(|_| samples.verified.is_none()) {
            let file = series.file();
            if file.fingerprint().is_some() {
                file.check_span_lists(|_| require_going_on(host))?;
            } else {
                let mut watch = VerificationWatch::begin(host, "check", file.rows_to_check(), "rows");
                file.check_in_pieces(|done| watch.at(done))?;
            }
        }
        Ok(samples)
    }

    /// Opens `path` as [`SourceSamples::open_in_file`] does; the index of a series is read into
    /// memory, and checked there.
    pub(crate) fn open_with_index(
        path: &Path,
        device: &Device,
        non_finite: NonFinite,
        host: &Host<'_>,
    ) -> Result<Self> {
        let samples = Self::open_unchecked(path, device, non_finite, host)?;
        samples.source.series().map_or(Ok(()), |series| series.file().load_index())?;
        Ok(samples)
    }

    fn open_unchecked(path: &Path, device: &Device, non_finite: NonFinite, host: &Host<'_>) -> Result<Self> {
        let verified = VerifiedFiles::below(host.cache_folder.as_deref());
        let (state, fingerprint) = verified.look_up(path);
        let options = SourceOptions {
            resident_bytes_max: 0,
            series_cache_bytes: Some(0),
            is_checked: true,
            non_finite,
            ..SourceOptions::default()
        };
        let samples = Self::open_with(path, device, options)?;
        Ok(SourceSamples { opened: state.map(|state| (verified, state)), verified: fingerprint, ..samples })
    }

    fn open_with(path: &Path, device: &Device, options: SourceOptions) -> megabatch_chunk_io::Result<Self> {
        let source = Source::open_with(path, &device.scope("data"), options)?;
        let shape = trainer_shape(source.shape());
        let timeframes = source.series().map_or(&[][..], |series| series.file().timeframes());
        let segment_starts = timeframes.iter().map(SeriesTimeframeFile::all_segment_starts).collect();
        let chunks = Chunks::new(source.shape(), &device.scope("data/chunks"));
        let (opened, verified) = (None, None);
        let (source, label_spans) = (Arc::new(source), OnceLock::new());
        Ok(SourceSamples { source, shape, segment_starts, chunks, opened, verified, label_spans })
    }

    /// The series, if it has enough instruments for correlations over those of each time.
    fn universe(&self) -> Option<&SeriesFile> {
        Some(self.source.series()?.file()).filter(|file| file.instruments().len() >= RANKED_INSTRUMENTS_MIN)
    }

    /// True for a series of many instruments that stays in its file: evaluations have no
    /// correlations over those of each time.
    pub(crate) fn is_streamed_universe(&self) -> bool {
        self.universe().is_some_and(|file| !file.has_index())
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

    /// As [`SourceSamples::hold`]; windows are checked when they are asked for.
    ///
    /// # Panics
    /// If a loader is at work on them.
    pub(crate) fn hold_unchecked(&mut self) -> megabatch_chunk_io::Result<()> {
        Arc::get_mut(&mut self.source).expect("no loader is at work").load_resident_unchecked()
    }

    /// As [`SourceSamples::hold_unchecked`]; the samples that the run reads are checked at once.
    pub(crate) fn hold_parts(&mut self, parts: impl Iterator<Item = Range<usize>>) -> megabatch_chunk_io::Result<()> {
        self.hold_unchecked()?;
        Arc::get_mut(&mut self.source).expect("no loader is at work").check_resident(parts)
    }

    /// A fingerprint of the samples' numbers: other data have another one, wherever the file lies
    /// and however it is compressed. A series with a mark of verification has it there.
    ///
    /// # Errors
    /// Errors of reading; a cancelled failure where the host ends it.
    pub(crate) fn fingerprint(&self, host: &Host<'_>) -> Result<String> {
        self.marked_fingerprint().map_or_else(|| self.fingerprint_of_numbers(host), |known| Ok(known.to_owned()))
    }

    /// A fingerprint of the kind that `recorded` is of: runs keep that of the file as it was
    /// written then, with a mark of verification or without.
    ///
    /// # Errors
    /// As [`SourceSamples::fingerprint`].
    pub(crate) fn fingerprint_like(&self, recorded: &str, host: &Host<'_>) -> Result<String> {
        let series = self.source.series().filter(|_| is_fingerprint_of_blocks(recorded));
        match (series.map(SeriesSource::file), self.marked_fingerprint()) {
            (None, _) => self.fingerprint_of_numbers(host),
            (Some(_), Some(known)) => Ok(known.to_owned()),
            (Some(file), None) => {
                let mut watch = VerificationWatch::begin(host, "fingerprint", file.array_bytes() as usize, "bytes");
                let mut done = 0;
                file.fingerprint_of_blocks(|bytes| {
                    done += bytes;
                    watch.at(done)
                })
            }
        }
    }

    fn marked_fingerprint(&self) -> Option<&str> {
        self.source.series().and_then(|series| series.file().fingerprint())
    }

    /// A hash of the numbers of the samples: the fingerprint of a file without a mark.
    ///
    /// In windows above [`FINGERPRINT_BYTES`] it sees times and [`FINGERPRINT_SAMPLES`] of the
    /// samples, the first and the last among them. In everything else it sees every number.
    fn fingerprint_of_numbers(&self, host: &Host<'_>) -> Result<String> {
        if let Some(known) = self.verified.as_ref().filter(|_| self.source.layout() == Layout::Series) {
            return Ok(known.clone());
        }
        let mut hash = Xxh3::new();
        hash.update(self.shape.to_string().as_bytes());
        hash.update(&(self.len() as u64).to_le_bytes());
        match self.source.series() {
            Some(series) => self.hash_series(series, &mut hash, host)?,
            None => {
                hash_numbers(&mut hash, self.source.sample_times().unwrap_or_default(), i64::to_le_bytes);
                self.hash_windows(&mut hash)?;
            }
        }
        // Files without weights keep the fingerprint that they had.
        hash_numbers(&mut hash, self.source.sample_weights().unwrap_or_default(), f32::to_le_bytes);
        let fingerprint = format!("{:032x}", hash.digest128());
        if let Some((verified, state)) = self.opened.as_ref().filter(|_| self.source.layout() == Layout::Series) {
            verified.remember(state, &fingerprint);
        }
        Ok(fingerprint)
    }

    fn hash_series(&self, series: &SeriesSource, hash: &mut Xxh3, host: &Host<'_>) -> Result<()> {
        let columns_bytes = (1 + self.segment_starts.len()) * self.len() * size_of::<i64>();
        let total = series.table_bytes() as usize + columns_bytes;
        let watch = VerificationWatch::begin(host, "fingerprint", total, "bytes");
        let mut hashing = SeriesHashing { series, samples: self.len(), hash, watch, done: 0 };
        hashing.column(SeriesColumn::SampleTime)?;
        for (k, segment_starts) in self.segment_starts.iter().enumerate() {
            hashing.table(k)?;
            hashing.column(SeriesColumn::SampleEnd(k))?;
            hash_numbers(hashing.hash, segment_starts, i64::to_le_bytes);
        }
        hashing.table(self.segment_starts.len())
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
            // Samples that nobody asks for may have any numbers.
            self.source.gather_unchecked(samples, read.slices())?;
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
    /// `batch_size` on `gpu`, if any.
    pub(crate) fn load_in_chunks_of(&mut self, chunk_samples: usize, batch_size: usize, gpu: Option<&Device>) {
        self.chunks.set_samples(chunk_samples, batch_size);
        if let Some(gpu) = gpu {
            self.chunks.lock_pages(gpu, self.source.shape().sample_bytes());
        }
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

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let stop = Arc::clone(batch.stop());
        let (features, targets) = batch.slices_mut();
        self.source.gather_until(samples, SampleSlices { features, targets }, &stop)?;
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

    fn read_targets(&self, samples: &[usize], targets: &mut [f32]) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Ok(self.source.read_targets(samples, targets)?)
    }

    fn weights(&self) -> Option<&[f32]> {
        self.source.sample_weights()
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

    fn times(&self, samples: &[usize]) -> Option<Vec<i64>> {
        let file = self.universe().filter(|file| file.has_index())?;
        Some(samples.iter().map(|&sample| file.sample_times()[sample]).collect())
    }

    fn target_span(&self, samples: &[usize], time_ns: i64, target: usize) -> Option<LabelSpan> {
        let series = self.source.series()?;
        let spans = self.label_spans.get_or_init(|| LabelSpans::from_series(series).ok());
        spans.as_ref()?.last_label_end(series, samples, time_ns, target)
    }
}

impl PrefetchingSource for SourceSamples {
    fn load<'a>(
        &'a self,
        lists: BatchLists<'a>,
        chunking: Chunking,
    ) -> Result<Box<dyn LoadedBatches + 'a>, Box<dyn StdError + Send + Sync>> {
        self.chunks.load(&self.source, lists, chunking)
    }
}

/// Fingerprint of a series in the making.
struct SeriesHashing<'a> {
    series: &'a SeriesSource,
    samples: usize,
    hash: &'a mut Xxh3,
    watch: VerificationWatch<'a>,
    /// Bytes so far.
    done: usize,
}

impl SeriesHashing<'_> {
    fn table(&mut self, table: usize) -> Result<()> {
        self.series.scan_table(table, |rows| {
            rows.chunks(HASHED_AT_ONCE).try_for_each(|part| {
                hash_numbers(self.hash, part, f32::to_le_bytes);
                self.done += size_of_val(part);
                self.watch.at(self.done)
            })
        })
    }

    fn column(&mut self, column: SeriesColumn) -> Result<()> {
        self.series.file().scan_column(column, 0..self.samples, |_, integers| {
            hash_numbers(self.hash, integers, i64::to_le_bytes);
            self.done += size_of_val(integers);
            self.watch.at(self.done)
        })
    }
}

fn hash_numbers<T: Copy, const N: usize>(hash: &mut Xxh3, numbers: &[T], bytes: fn(T) -> [u8; N]) {
    // A block at a time: the hash is many times faster on long pieces than on single numbers.
    for block in numbers.chunks(4096) {
        let block: Vec<u8> = block.iter().flat_map(|&number| bytes(number)).collect();
        hash.update(&block);
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};

    use megabatch_chunk_io::remove_mark;

    use super::*;
    use crate::error::Kind;
    use crate::host::{Cancel, Observer, Progress, Work};
    use crate::synth::{SampleOptions, SampleWindows, make_samples};

    /// Label, total and the last count of each work.
    type Works = Arc<Mutex<Vec<(String, u64, u64)>>>;

    #[derive(Default)]
    struct Watched(Works);

    struct Following(Works);

    impl Observer for Watched {
        fn begin(&self, work: Work<'_>) -> Box<dyn Progress> {
            self.0.lock().unwrap().push((work.label.to_owned(), work.total, 0));
            Box::new(Following(Arc::clone(&self.0)))
        }

        fn note(&self, _: &str) {}
    }

    impl Progress for Following {
        fn begin_at(&mut self, _: u64) {}

        fn at(&mut self, done: u64, _: &str) {
            let mut works = self.0.lock().unwrap();
            let (_, total, last) = works.last_mut().unwrap();
            assert!(*last < done && done <= *total, "{last}, then {done} of {total}");
            *last = done;
        }

        fn note(&self, _: &str) {}
    }

    /// Ends the work after so many looks.
    struct EndsAfter(AtomicUsize);

    impl Cancel for EndsAfter {
        fn is_requested(&self) -> bool {
            self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
        }
    }

    fn series(folder: &Path) -> PathBuf {
        let path = folder.join("series.h5");
        let count = |count| NonZeroUsize::new(count).unwrap();
        let options = SampleOptions {
            samples: count(70_000),
            windows: SampleWindows::Named("M1:4,M5:3".parse().unwrap()),
            features: count(2),
            targets: count(1),
            ..SampleOptions::default()
        };
        make_samples(&path, &options).unwrap();
        path
    }

    #[test]
    fn verification_tells_how_far_it_is_and_ends_where_the_host_wants() {
        let folder = tempfile::tempdir().unwrap();
        let path = series(folder.path());
        remove_mark(&path).unwrap();
        let watched = Watched::default();
        let host = Host { observer: &watched, ..Host::silent() };
        let samples = SourceSamples::open_in_file(&path, &Device::cpu(), NonFinite::Fail, &host).unwrap();
        let fingerprint = samples.fingerprint(&host).unwrap();
        let works = watched.0.lock().unwrap().clone();
        assert_eq!(works.iter().map(|(label, ..)| label.as_str()).collect::<Vec<_>>(), ["check", "fingerprint"]);
        assert!(works.iter().all(|(_, total, last)| total == last), "{works:?}");

        let resident = SourceSamples::open(&path, &Device::cpu(), usize::MAX).unwrap();
        assert_eq!(resident.fingerprint(&Host::silent()).unwrap(), fingerprint);
        for looks in [0, 1, 3] {
            let cancel = EndsAfter(AtomicUsize::new(looks));
            let host = Host { cancel: &cancel, ..Host::silent() };
            let opened = SourceSamples::open_in_file(&path, &Device::cpu(), NonFinite::Fail, &host);
            assert_eq!(opened.err().unwrap().kind(), Kind::Cancelled, "{looks} looks");
            cancel.0.store(looks, Relaxed);
            assert_eq!(samples.fingerprint(&host).unwrap_err().kind(), Kind::Cancelled, "{looks} looks");
        }
    }

    #[test]
    fn a_file_with_a_mark_is_read_for_no_fingerprint_but_one_of_the_other_kind() {
        let folder = tempfile::tempdir().unwrap();
        let marked = series(folder.path());
        let unmarked = folder.path().join("unmarked.h5");
        std::fs::copy(&marked, &unmarked).unwrap();
        remove_mark(&unmarked).unwrap();
        let watched = Watched::default();
        let host = Host { observer: &watched, ..Host::silent() };
        let labels = || watched.0.lock().unwrap().drain(..).map(|(label, ..)| label).collect::<Vec<_>>();
        let [marked, unmarked] = [&marked, &unmarked]
            .map(|path| SourceSamples::open_in_file(path, &Device::cpu(), NonFinite::Fail, &host).unwrap());
        assert_eq!(labels(), ["check"]);
        let block_fingerprint = marked.fingerprint(&host).unwrap();
        assert_eq!(
            (marked.fingerprint_like(&block_fingerprint, &host).unwrap(), labels()),
            (block_fingerprint.clone(), vec![])
        );
        let number_fingerprint = unmarked.fingerprint(&host).unwrap();
        assert_eq!(labels(), ["fingerprint"]);
        assert_ne!(number_fingerprint, block_fingerprint);
        assert_eq!(marked.fingerprint_like(&number_fingerprint, &host).unwrap(), number_fingerprint);
        assert_eq!(unmarked.fingerprint_like(&block_fingerprint, &host).unwrap(), block_fingerprint);
        assert_eq!(labels(), ["fingerprint"; 2]);
    }
}
