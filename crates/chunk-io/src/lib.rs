#![doc = include_str!("../README.md")]

mod atomic;
mod checksums;
mod convert;
mod cost;
mod decode;
mod error;
mod file;
mod global_heap;
mod heap_references;
mod huge_pages;
mod inspect;
mod loader;
mod numeric_dataset;
mod plan;
mod predictions;
mod read;
mod series;
mod shape;
mod slab;
mod source;
mod spans;
mod storage;
mod stored;
mod text;
mod timeframe;
mod weights;
mod windows;

pub use convert::{
    Conversion, ConversionProgress, ConversionStage, ConvertOptions, Observer, StorageChoice, StorageForm,
    conversion_bytes, convert, layout_of,
};
pub use cost::ReadCost;
pub use error::{Error, LayoutFault, Result};
pub use huge_pages::vec_in_huge_pages;
pub use inspect::{
    ColumnStatistics, DatasetEntry, Inspection, InstrumentInspection, Occurrences, Problem, ProblemKind, Severity,
    TimeSpan, TimeframeInspection, inspect,
};
pub use loader::{BatchRows, LoadedBatch, Loader, LoaderOptions, LoaderStats, SeriesWindows};
pub use plan::{
    CHUNK_SHARE, ChunkPlan, MemoryShortage, PlanRequest, ReadAmplification, Remedy, Residence, read_amplification,
    remedy,
};
pub use predictions::{Predictions, SampleInstruments, write_predictions};
pub use read::NonFinite;
#[cfg(any(test, feature = "conformance"))]
pub use series::remove_mark;
pub use series::{
    BarRows, Instruments, SampleRows, Scaler, Series, SeriesColumn, SeriesDescription, SeriesFile, SeriesTimeframe,
    SeriesTimeframeFile, SeriesWriter, TimeframeDescription, WindowEnds, is_fingerprint_of_blocks, write_series,
    write_series_in_pieces,
};
pub use shape::{SampleBlock, SampleSlices, Shape, TimeframeShape};
pub use source::{
    CacheBounds, Layout, ReadBy, ResidentSeries, SeriesSource, Source, SourceOptions, StoredDataset, SuitedChunks,
};
pub use spans::SpanTimes;
pub use storage::{Compression, Storage, WriteOptions};
pub use text::AttributeValue;
pub use timeframe::{longest_bar_ns, timeframe_order};
pub use windows::{WindowsHeader, WindowsWriter, write_windows};
