//! Delivery of batches from a file, to a consumer that only reads them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use megabatch_chunk_io::{LoadedBatch, Loader, LoaderOptions, LoaderStats, Source, SourceOptions};
use megabatch_gpu_core::Device;
use megabatch_order::{Batches, Batching, Order};
use serde::Serialize;

use super::SampleOrder;
use crate::adapters::data::refuse_graphs;
use crate::command_report::CommandReport;
use crate::error::Result;
use crate::text::bytes;
use crate::usage::{cpu_seconds, peak_rss_bytes};

/// Delivery to measure.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The data, of either layout.
    pub file: PathBuf,
    /// Samples in a batch.
    pub batch: u64,
    /// Samples of a chunk; two chunks are in memory.
    pub chunk_samples: usize,
    /// Order of samples.
    pub samples: SampleOrder,
    /// Consecutive samples that stay together in random order.
    pub run_length: u64,
    /// Keep all windows in memory, read before the first batch; a series always stays in memory.
    pub resident: bool,
    /// Threads that read and decode; 0 for all.
    pub threads: usize,
    /// Epochs; the fastest counts.
    pub epochs: u64,
}

/// Measures the delivery of every sample of a file in batches, the opening of the file included, to
/// a consumer that does nothing but look at them.
///
/// # Errors
/// A data error for a file that cannot be read.
pub fn load(options: &LoadOptions) -> Result<CommandReport> {
    refuse_graphs(&options.file)?;
    let epochs = (0..options.epochs).map(|epoch| deliver(options, epoch)).collect::<Result<Vec<_>>>()?;
    let fastest = epochs.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("one epoch at least");
    let text = format!(
        "{:.0} samples/s, {:.3} GB/s; first batch after {:.3} s, waited {:.3} of {:.3} s; {} read, {} in memory at the peak",
        fastest.samples_per_s,
        fastest.gb_per_s,
        fastest.first_batch_s,
        fastest.waited_s,
        fastest.seconds,
        bytes(usize::try_from(fastest.bytes_read).unwrap_or(usize::MAX)),
        bytes(fastest.pool_peak_bytes)
    );
    Ok(CommandReport::new(text, fastest))
}

/// An epoch, from before the file is opened to after its last batch.
#[derive(Serialize)]
struct Epoch {
    samples: u64,
    seconds: f64,
    samples_per_s: f64,
    /// Rate of the delivered values, as f32.
    gb_per_s: f64,
    first_batch_s: f64,
    /// Time that the consumer waited for a chunk.
    waited_s: f64,
    waited_for_disk_s: f64,
    waited_for_decoding_s: f64,
    waited_for_copies_s: f64,
    /// CPU time of the whole process, in this epoch.
    cpu_s: Option<f64>,
    bytes_read: u64,
    chunk_bytes: u64,
    pool_peak_bytes: usize,
    peak_rss_bytes: Option<u64>,
    /// Sum over the numbers that were read, so that reading is not optimised away.
    sum: f64,
}

fn deliver(options: &LoadOptions, epoch: u64) -> Result<Epoch> {
    let (start, processor) = (Instant::now(), cpu_seconds());
    let device = Device::cpu();
    let resident_bytes_max = if options.resident { usize::MAX } else { 0 };
    let source_options = SourceOptions { resident_bytes_max, threads: options.threads, ..SourceOptions::default() };
    let source = Arc::new(Source::open_with(&options.file, &device.scope("data"), source_options)?);
    let shape = source.shape().clone();
    let order = match options.samples {
        SampleOrder::Shuffled => Order::new(shape.samples, options.run_length as usize, 0)?,
        SampleOrder::Consecutive => Order::sequential(shape.samples),
    };
    let batches = Batches::new(order, Batching { batch_size: options.batch as usize, ..Batching::default() })?;
    let steps = batches.steps_per_epoch();
    let scope = device.scope("chunks");
    let loader_options = LoaderOptions { chunk_samples: options.chunk_samples, scope: &scope };
    let mut loader = Loader::new(&source, batches.lists(epoch * steps..(epoch + 1) * steps), loader_options)?;
    let (mut first_batch_s, mut sum) = (None, 0.0);
    while let Some(batch) = loader.next_batch()? {
        first_batch_s.get_or_insert_with(|| start.elapsed().as_secs_f64());
        sum += look_at(&batch, shape.timeframes.len());
    }
    let LoaderStats { waited, disk, decode, copy, read, samples, .. } = loader.stats();
    let seconds = start.elapsed().as_secs_f64();
    Ok(Epoch {
        samples,
        seconds,
        samples_per_s: samples as f64 / seconds,
        gb_per_s: samples as f64 * shape.sample_bytes() as f64 / seconds / 1e9,
        first_batch_s: first_batch_s.unwrap_or(seconds),
        waited_s: waited.as_secs_f64(),
        waited_for_disk_s: disk.as_secs_f64(),
        waited_for_decoding_s: decode.as_secs_f64(),
        waited_for_copies_s: copy.as_secs_f64(),
        cpu_s: cpu_seconds().zip(processor).map(|(now, before)| now - before),
        bytes_read: read.bytes_read,
        chunk_bytes: options.chunk_samples.min(shape.samples) as u64 * shape.sample_bytes(),
        pool_peak_bytes: device.usage().allocated_bytes_peak,
        peak_rss_bytes: peak_rss_bytes(),
        sum,
    })
}

/// Numbers in a cache line.
const LINE: usize = 64 / size_of::<f32>();

/// Reads each cache line of the windows once.
fn look_at(batch: &LoadedBatch<'_>, timeframes: usize) -> f64 {
    let row_sum = |row: &[f32]| row.iter().step_by(LINE).sum::<f32>();
    (0..timeframes).flat_map(|k| batch.features(k).iter()).map(|row| f64::from(row_sum(row))).sum()
}
