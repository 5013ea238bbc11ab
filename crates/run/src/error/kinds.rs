//! The kind of an error of the libraries.

use std::error::Error as StdError;
use std::io;

use megabatch_alloc_lab::TraceError;

use super::{Error, Kind};
use crate::config::ConfigError;

/// The kind of the first cause in the chain of `error` that has one.
pub(super) fn kind_of(error: &(dyn StdError + 'static)) -> Kind {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(kind) = cause_kind(error) {
            return kind;
        }
        cause = error.source();
    }
    Kind::Failed
}

fn cause_kind(cause: &(dyn StdError + 'static)) -> Option<Kind> {
    // The port of a library hands errors of the adapters on.
    if let Some(error) = cause.downcast_ref::<Error>() {
        return Some(error.kind());
    }
    if cause.is::<ConfigError>() || cause.is::<megabatch_bars::UnknownName>() {
        return Some(Kind::Usage);
    }
    if cause.is::<TraceError>() {
        return Some(Kind::Data);
    }
    cause
        .downcast_ref()
        .and_then(device_kind)
        .or_else(|| cause.downcast_ref().and_then(training_kind))
        .or_else(|| cause.downcast_ref().and_then(model_kind))
        .or_else(|| cause.downcast_ref().and_then(file_kind).or_else(|| cause.downcast_ref().and_then(bars_kind)))
        .or_else(|| cause.downcast_ref().and_then(graphs_kind))
}

fn device_kind(error: &megabatch_gpu_core::Error) -> Option<Kind> {
    use megabatch_gpu_core::Error;
    Some(match error {
        Error::UnknownDevice { .. } => Kind::Usage,
        Error::CudaNotBuilt { .. }
        | Error::DriverAbsent { .. }
        | Error::DriverTooOld { .. }
        | Error::NoSuchDevice { .. }
        | Error::DeviceUnfit { .. }
        | Error::Driver { .. }
        | Error::Refused { .. } => Kind::Device,
        Error::Snapshot { .. } => Kind::Data,
        _ => Kind::Capacity,
    })
}

/// `None` leaves the answer to the causes behind the error.
fn training_kind(error: &megabatch_trainer::Error) -> Option<Kind> {
    use megabatch_trainer::Error;
    match error {
        Error::Model(error) => model_kind(error),
        Error::Setting { .. }
        | Error::NeedsSeries { .. }
        | Error::ReadoutLevel { .. }
        | Error::NotOnGpu { .. }
        | Error::Scaling { .. }
        | Error::Order(_)
        | Error::NothingLeft { .. }
        | Error::NotDistributed { .. }
        | Error::TooManyRanks { .. }
        | Error::RanksDiffer { .. }
        | Error::OtherRun { .. } => Some(Kind::Usage),
        Error::Memory(error) => device_kind(error),
        Error::CannotReduceFurther { .. } | Error::OnRank { is_shortage: true, .. } => Some(Kind::Capacity),
        Error::SamplesShape { .. } | Error::Checkpoint { .. } | Error::Weight { .. } | Error::NoWeight { .. } => {
            Some(Kind::Data)
        }
        Error::Interrupted { .. } => Some(Kind::Cancelled),
        Error::NotFinite { .. } | Error::Scale(_) | Error::LossSpike { .. } | Error::Diverged { .. } => {
            Some(Kind::Numeric)
        }
        _ => None,
    }
}

/// `None` leaves the answer to the causes behind the error.
fn model_kind(error: &megabatch_nn::Error) -> Option<Kind> {
    use megabatch_nn::Error;
    match error {
        Error::Setting { .. } | Error::NotOnGpu { .. } | Error::Task { .. } | Error::TaskWeights { .. } => {
            Some(Kind::Usage)
        }
        Error::Memory(error) => device_kind(error),
        Error::Threads { .. } => Some(Kind::Capacity),
        Error::SamplesShape { .. }
        | Error::Targets { .. }
        | Error::Weights { .. }
        | Error::WeightsNotFinite { .. }
        | Error::Safetensors { .. } => Some(Kind::Data),
        Error::Quantize { .. } => Some(Kind::Numeric),
        _ => None,
    }
}

fn file_kind(error: &megabatch_chunk_io::Error) -> Option<Kind> {
    use megabatch_chunk_io::Error;
    match error {
        Error::Memory { source, .. } => device_kind(source),
        Error::BadRequest { .. } | Error::NotWritable { .. } => Some(Kind::Usage),
        Error::Interrupted { .. } | Error::Stopped => Some(Kind::Cancelled),
        Error::Rows { source, .. } => file_kind(source),
        Error::Io { .. } => None,
        _ => Some(Kind::Data),
    }
}

/// `None` leaves the answer to the causes behind the error.
fn graphs_kind(error: &megabatch_graph_cache::Error) -> Option<Kind> {
    use megabatch_graph_cache::Error;
    match error {
        Error::Option { .. }
        | Error::NoKey { .. }
        | Error::NotExportable { .. }
        | Error::NoPositions
        | Error::TooLargeForF16 { .. } => Some(Kind::Usage),
        Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Some(Kind::Data),
        Error::Interrupted => Some(Kind::Cancelled),
        Error::Io { .. } | Error::Full { .. } | Error::Stopped => None,
        _ => Some(Kind::Data),
    }
}

fn bars_kind(error: &megabatch_bars::Error) -> Option<Kind> {
    use megabatch_bars::{Error, TickError};
    Some(match error {
        // A full disk is a failure of the run.
        Error::Spool { .. } => return None,
        Error::Interrupted => Kind::Cancelled,
        Error::Invalid { .. }
        | Error::UnknownName { .. }
        | Error::UnknownPipSize { .. }
        | Error::Tick(
            TickError::UnknownPoint { .. }
            | TickError::UnknownZone { .. }
            | TickError::NoPrice { .. }
            | TickError::NoVolume { .. },
        )
        | Error::NotAMultiple { .. } => Kind::Usage,
        _ => Kind::Data,
    })
}
