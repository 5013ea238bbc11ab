//! Reads of a training epoch from a file that is streamed, and better storage for the file.

use std::path::Path;

use megabatch_chunk_io::{ReadBy, Remedy, Source, StoredDataset, read_amplification, remedy};
use megabatch_nn::graph::samples_of;
use megabatch_order::Order;
use serde::Serialize;

use crate::error::Result;
use crate::setup::{TrainingSetup, decoded_rows};
use crate::text::bytes;

/// Reads of an epoch of training from a dataset.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DatasetReads {
    #[serde(flatten)]
    stored: StoredDataset,
    /// Rows read for each row requested; above 1 where a compressed chunk is decoded several times.
    read_amplification: f64,
    /// Bytes that come from the file in an epoch.
    epoch_bytes: u64,
    /// The command that removes the amplification.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// Reads of the first epoch of `setup`, by dataset, with `samples_per_chunk` read at once.
pub(super) fn epoch_reads(setup: &TrainingSetup, samples_per_chunk: usize) -> Result<Vec<DatasetReads>> {
    let (train, training) = (&setup.split.train, &setup.training);
    let epoch = Order::new(train.len(), training.run_samples(), training.seed)?.epoch(0);
    let order = (0..train.len()).map(|position| train.sample_at(epoch.sample(position)));
    let Some(source) = setup.data.source() else { return Ok(Vec::new()) };
    let reads = |stored| DatasetReads::new(source, stored, &order, samples_per_chunk);
    Ok(source.storage()?.into_iter().map(reads).collect())
}

/// Batches that stand for all of an epoch.
const BATCHES: usize = 32;

/// Reads of a streamed series.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StreamedReads {
    /// Bytes that a step reads from the file, on average, once the small datasets are in the cache.
    step_bytes: u64,
    /// Bytes that an epoch of training reads from the file.
    epoch_bytes: u64,
    /// Bytes that the series would take in memory.
    resident_bytes: u64,
    /// Chunks that suit the batches better than those of a compressed file.
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<ChunkAdvice>,
}

/// Chunks that suit the batches of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ChunkAdvice {
    /// Rows of a chunk.
    chunk_rows: usize,
    /// Bytes that an epoch decodes with them.
    epoch_decoded_bytes: u64,
    /// Most rows of a chunk in the file.
    chunk_rows_now: usize,
    /// Bytes that an epoch decodes now.
    epoch_decoded_bytes_now: u64,
    /// The command that makes them.
    command: String,
}

impl ChunkAdvice {
    fn to_text(&self) -> String {
        let [now, then] = [self.epoch_decoded_bytes_now, self.epoch_decoded_bytes]
            .map(|size| bytes(usize::try_from(size).unwrap_or(usize::MAX)));
        format!(
            "chunks    an epoch decodes {now}, as a chunk of up to {} rows is decoded for the few that a batch needs; chunks of {} rows, \
             about those of a batch, decode {then}:\n          `{}`\n",
            self.chunk_rows_now, self.chunk_rows, self.command
        )
    }
}

impl StreamedReads {
    /// Reads through a cache of `cache_bytes`, from batches of the first epoch of `setup`.
    pub(super) fn new(setup: &TrainingSetup, cache_bytes: usize) -> Result<Self> {
        let (train, training) = (&setup.split.train, &setup.training);
        let epoch = Order::new(train.len(), training.run_samples(), training.seed)?.epoch(0);
        let batch_size = training.batch_size.min(train.len());
        let all = train.len().div_ceil(batch_size.max(1));
        let batch = |k: usize| {
            let first = (all * k / BATCHES.min(all)) * batch_size;
            (first..train.len().min(first + batch_size))
                .map(|position| train.sample_at(epoch.sample(position)))
                .collect()
        };
        let batches: Vec<Vec<usize>> = (0..BATCHES.min(all)).map(batch).collect();
        let units: usize = batches.iter().map(Vec::len).sum();
        let batches: Vec<Vec<usize>> = match setup.data.samples().graphs() {
            Some(graphs) => batches.iter().map(|batch| samples_of(graphs, batch)).collect(),
            None => batches,
        };
        let series = setup.data.streamable().expect("what is streamed is a series");
        let bytes = series.batch_bytes(cache_bytes, &batches)?;
        let unit_bytes = |count: usize| scaled(bytes, count, units);
        let suited = series.suited_chunks(cache_bytes, &batches)?;
        let path = series.file().path();
        let chunks = suited.map(|suited| ChunkAdvice {
            chunk_rows: suited.chunk_rows,
            epoch_decoded_bytes: scaled(suited.decoded_bytes, train.len(), units),
            chunk_rows_now: suited.chunk_rows_now,
            epoch_decoded_bytes_now: scaled(suited.decoded_bytes_now, train.len(), units),
            command: convert_command(path, &format!("--to series --chunk-rows {}", suited.chunk_rows)),
        });
        Ok(StreamedReads {
            step_bytes: unit_bytes(training.step_samples().min(train.len())),
            epoch_bytes: unit_bytes(train.len()),
            resident_bytes: series.resident_bytes(),
            chunks,
        })
    }

    /// Rows of the chunks that suit better.
    pub(super) fn chunk_rows(&self) -> Option<usize> {
        self.chunks.as_ref().map(|advice| advice.chunk_rows)
    }

    pub(super) fn to_text(&self) -> String {
        let [step, epoch, resident, rate] =
            [self.step_bytes, self.epoch_bytes, self.resident_bytes, 10 * self.step_bytes]
                .map(|size| bytes(usize::try_from(size).unwrap_or(usize::MAX)));
        format!(
            "reading   {step} a step, {epoch} an epoch: 10 steps a second take {rate} a second from the disk; in memory the \
             series takes {resident}\n{}",
            self.chunks.as_ref().map_or(String::new(), ChunkAdvice::to_text)
        )
    }
}

/// Bytes of `count` units, scaled up from those of `units`.
fn scaled(bytes: u64, count: usize, units: usize) -> u64 {
    (bytes as u128 * count as u128 / units.max(1) as u128) as u64
}

/// The command that makes a better file beside the one at `path`.
fn convert_command(path: &Path, options: &str) -> String {
    format!("megabatch convert {} {} {options}", path.display(), path.with_extension("better.h5").display())
}

impl DatasetReads {
    fn new(
        source: &Source,
        stored: StoredDataset,
        order: &(impl ExactSizeIterator<Item = usize> + Clone),
        samples_per_chunk: usize,
    ) -> Self {
        let rows = stored.shape[0];
        let row_bytes = stored.shape[1..].iter().product::<usize>() as u64 * stored.element_bytes as u64;
        let (mut read_amplification_factor, mut better) = (1.0, None);
        if let Some(stored_rows) = decoded_rows(&stored) {
            let rows = (rows, stored_rows);
            read_amplification_factor = read_amplification(order.clone(), rows.0, rows.1, samples_per_chunk).factor();
            better = remedy(order, rows.0, rows.1, row_bytes, samples_per_chunk);
        }
        let asked = stored.stored_bytes as f64 * order.len() as f64 / rows as f64;
        DatasetReads {
            read_amplification: read_amplification_factor,
            epoch_bytes: (asked * read_amplification_factor) as u64,
            remedy: better.map(|better| {
                let options = match better {
                    Remedy::ChunkRows(rows) => format!("--chunk-rows {rows}"),
                    Remedy::Contiguous => "--storage contiguous".to_owned(),
                };
                convert_command(source.path(), &options)
            }),
            stored,
        }
    }

    pub(super) fn to_text(&self) -> String {
        let DatasetReads { stored, read_amplification, epoch_bytes, remedy } = self;
        let storage = match &stored.chunk {
            Some(chunk) if stored.filters.is_empty() => format!("chunks of {}", chunk[0]),
            Some(chunk) => format!("chunks of {}, {}", chunk[0], stored.filters.join(" and ")),
            None => "contiguous".to_owned(),
        };
        let slow_path = match &stored.read_by {
            ReadBy::Library { reason } => format!("; read by the HDF5 library on one thread: {reason}"),
            _ => String::new(),
        };
        let read = bytes(usize::try_from(*epoch_bytes).unwrap_or(usize::MAX));
        let remedy =
            remedy.as_ref().map_or(String::new(), |command| format!("\n          `{command}` would make it 1.0"));
        format!(
            "reading   {}: {storage}; {read} an epoch, read amplification {read_amplification:.2}{slow_path}{remedy}\n",
            stored.object
        )
    }
}
