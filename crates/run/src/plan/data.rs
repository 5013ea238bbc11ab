//! The data of a run: their passage through memory and the cost of reading.

use std::path::PathBuf;

use megabatch_chunk_io::{ChunkPlan, Residence};
use serde::Serialize;

use super::reads::{DatasetReads, StreamedReads, epoch_reads};
use crate::adapters::data_schema::DataSchema;
use crate::adapters::samples::DataFile;
use crate::error::Result;
use crate::setup::TrainingSetup;
use crate::text::{bytes, plural, serialize_shown};
use crate::unit_names::UnitNames;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DataPlan {
    #[serde(serialize_with = "serialize_shown")]
    pub(crate) path: PathBuf,
    /// Fingerprint of the samples; a run resumes on data of the same fingerprint only.
    pub(crate) fingerprint: String,
    /// The files of the samples, each with its fingerprint, so that a changed one can be named.
    pub(crate) files: Vec<DataFile>,
    /// Names of inputs and targets, as far as the file has them. A model is used on data with the
    /// same names only.
    pub(crate) meaning: DataSchema,
    /// `series`, `windows` or `graphs`.
    pub(crate) layout: String,
    pub(crate) samples: usize,
    /// Unit of split, batches and order: samples, or graphs whose nodes are samples.
    pub(crate) unit: &'static str,
    pub(crate) units: usize,
    /// Bytes of the samples as windows, whichever the layout.
    pub(crate) windows_bytes: u64,
    /// Bytes held in memory during the run, the chunks in flight included.
    pub(crate) resident_bytes: usize,
    #[serde(flatten)]
    pub(crate) chunks: ChunkPlan,
    /// Batches in each chunk but the last.
    pub(crate) batches_per_chunk: usize,
    /// Reads of an epoch of training, by dataset; empty for data that stay in memory.
    pub(crate) reads: Vec<DatasetReads>,
    /// Reads of a streamed series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) streamed: Option<StreamedReads>,
}

impl DataPlan {
    pub(super) fn new(setup: &TrainingSetup, chunks: ChunkPlan) -> Result<Self> {
        let (data, shape) = (&setup.data, setup.data.shape());
        Ok(DataPlan {
            path: data.path().to_owned(),
            fingerprint: data.fingerprint(&setup.files),
            files: setup.files.clone(),
            meaning: data.meaning()?,
            layout: data.layout(),
            samples: shape.samples,
            unit: UnitNames::for_data(data).unit,
            units: data.units(),
            windows_bytes: shape.windows_bytes(),
            resident_bytes: setup.data_bytes(&chunks),
            batches_per_chunk: chunks.samples_per_chunk.div_ceil(setup.training.batch_size),
            reads: match chunks.residence {
                Residence::Resident | Residence::Streamed => Vec::new(),
                // They are read once, in order.
                Residence::Chunked if setup.training.keep_windows => Vec::new(),
                Residence::Chunked => epoch_reads(setup, chunks.samples_per_chunk)?,
            },
            streamed: match chunks.residence {
                Residence::Streamed => Some(StreamedReads::new(setup, chunks.data_bytes as usize)?),
                _ => None,
            },
            chunks,
        })
    }

    /// True if the data are graphs by themselves, which have neither windows nor times.
    pub(crate) fn is_of_graphs(&self) -> bool {
        self.layout == "graphs"
    }

    pub(super) fn to_text(&self) -> String {
        if self.is_of_graphs() {
            let (nodes, held) = (plural(self.samples, "node"), bytes(self.resident_bytes));
            return format!("data      {held} stay in memory ({nodes})\n");
        }
        let DataPlan { windows_bytes, resident_bytes, chunks, batches_per_chunk, .. } = self;
        let windows_bytes = bytes(usize::try_from(*windows_bytes).unwrap_or(usize::MAX));
        let residence = match chunks.residence {
            Residence::Resident => format!("{} stay in memory ({windows_bytes} as windows)", bytes(*resident_bytes)),
            Residence::Streamed => format!(
                "streamed through a cache of {} ({windows_bytes} as windows)",
                bytes(chunks.data_bytes as usize)
            ),
            Residence::Chunked => format!(
                "{windows_bytes} as windows in {} chunks of {} samples, {batches_per_chunk} batches, {} each",
                chunks.chunks,
                chunks.samples_per_chunk,
                bytes(chunks.chunk_bytes as usize)
            ),
        };
        let reads: String = self.reads.iter().map(DatasetReads::to_text).collect();
        let reads = reads + &self.streamed.as_ref().map_or(String::new(), StreamedReads::to_text);
        format!("data      {residence}\n{reads}")
    }
}
