//! Exit codes of failures, which other programs read.

use std::fmt;

use megabatch_gpu_core::replay::TraceError;
use signal_hook::consts::SIGTERM;

use crate::advice::advice;
use crate::config::ConfigError;
use crate::interruption;

/// The exit codes of megabatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A run failed, for a reason outside the classes below.
    Run = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The data are wrong or not readable.
    Data = 3,
    /// The request does not fit.
    Capacity = 4,
    /// A number became infinite or undefined.
    Numeric = 5,
    /// The device is absent or refused.
    Device = 6,
    /// SIGINT ended the command.
    Interrupted = 130,
    /// SIGTERM ended the command.
    Terminated = 143,
}

/// An error that the program itself raises.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
        Failure { kind: Kind::Usage, message: message.into() }.into()
    }

    pub(crate) fn data(message: impl Into<String>) -> anyhow::Error {
        Failure { kind: Kind::Data, message: message.into() }.into()
    }

    pub(crate) fn capacity(message: impl Into<String>) -> anyhow::Error {
        Failure { kind: Kind::Capacity, message: message.into() }.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Message of `error`, followed by its causes and the options that fix it: a cause that a message
/// quotes already is not repeated.
pub(crate) fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if message.is_empty() {
            message = text;
        } else if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
    }
    match error.chain().find_map(advice) {
        // After a list, a line of its own.
        Some(advice) if message.contains('\n') => format!("{message}\n{advice}"),
        Some(advice) => format!("{message}; {advice}"),
        None => message,
    }
}

/// The class of work that a signal ended: its exit code is 128 and the signal's number, as shells
/// count.
pub(crate) fn interrupted() -> Kind {
    if interruption::signal() == Some(SIGTERM) { Kind::Terminated } else { Kind::Interrupted }
}

/// The class of `error`: the first cause in its chain that has one.
pub(crate) fn kind(error: &anyhow::Error) -> Kind {
    error.chain().find_map(kind_of_cause).unwrap_or(Kind::Run)
}

fn kind_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Kind> {
    if let Some(failure) = cause.downcast_ref::<Failure>() {
        return Some(failure.kind);
    }
    if cause.is::<ConfigError>() || cause.is::<megabatch_bars::UnknownName>() {
        return Some(Kind::Usage);
    }
    if cause.is::<TraceError>() {
        return Some(Kind::Data);
    }
    cause
        .downcast_ref()
        .and_then(of_device)
        .or_else(|| cause.downcast_ref().and_then(of_training))
        .or_else(|| cause.downcast_ref().and_then(of_file).or_else(|| cause.downcast_ref().and_then(of_bars)))
        .or_else(|| cause.downcast_ref().and_then(of_graphs))
}

fn of_device(error: &megabatch_gpu_core::Error) -> Option<Kind> {
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
fn of_training(error: &megabatch_trainer::Error) -> Option<Kind> {
    use megabatch_trainer::Error;
    match error {
        Error::Setting { .. }
        | Error::NotOnGpu { .. }
        | Error::Task { .. }
        | Error::Scaling { .. }
        | Error::Order(_)
        | Error::NothingLeft { .. }
        | Error::OtherRun { .. } => Some(Kind::Usage),
        Error::Memory(error) => of_device(error),
        Error::Threads { .. } | Error::CannotReduceFurther { .. } => Some(Kind::Capacity),
        Error::SamplesShape { .. }
        | Error::Targets { .. }
        | Error::Weights { .. }
        | Error::Safetensors { .. }
        | Error::Checkpoint { .. } => Some(Kind::Data),
        Error::NotFinite { .. }
        | Error::Scale(_)
        | Error::LossSpike { .. }
        | Error::Diverged { .. }
        | Error::Quantize { .. } => Some(Kind::Numeric),
        _ => None,
    }
}

fn of_file(error: &megabatch_chunk_io::Error) -> Option<Kind> {
    use megabatch_chunk_io::Error;
    match error {
        Error::Memory { source, .. } => of_device(source),
        Error::BadRequest { .. } | Error::NotWritable { .. } => Some(Kind::Usage),
        Error::Interrupted { .. } => Some(interrupted()),
        Error::Io { .. } => None,
        _ => Some(Kind::Data),
    }
}

/// `None` leaves the answer to the causes behind the error.
fn of_graphs(error: &megabatch_graph_cache::Error) -> Option<Kind> {
    use megabatch_graph_cache::Error;
    match error {
        Error::Option { .. } | Error::NoKey { .. } | Error::NotExportable { .. } | Error::TooLargeForF16 { .. } => {
            Some(Kind::Usage)
        }
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Some(Kind::Data),
        Error::Io { .. } | Error::Full { .. } | Error::Stopped => None,
        _ => Some(Kind::Data),
    }
}

fn of_bars(error: &megabatch_bars::Error) -> Option<Kind> {
    use megabatch_bars::Error;
    Some(match error {
        Error::Invalid { .. }
        | Error::UnknownName { .. }
        | Error::UnknownPipSize { .. }
        | Error::NotAMultiple { .. } => Kind::Usage,
        _ => Kind::Data,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let refused = || std::io::Error::other("no room");
        let quoting = anyhow::Error::from(refused()).context("cannot write: no room");
        assert_eq!(message(&quoting), "cannot write: no room");
        let adding = Err::<(), _>(refused()).context("cannot write").unwrap_err();
        assert_eq!(message(&adding), "cannot write: no room");
    }

    #[test]
    fn signals_have_the_exit_codes_of_shells() {
        let codes = [Kind::Interrupted, Kind::Terminated].map(|kind| kind as i32);
        assert_eq!(codes, [128 + signal_hook::consts::SIGINT, 128 + SIGTERM]);
    }

    #[test]
    fn each_class_has_its_code() {
        use megabatch_gpu_core::{Device, Error};

        let absent = || Error::DriverAbsent { name: "cuda:0".to_owned(), reason: "no file".to_owned() };
        assert_eq!(kind(&absent().into()) as u8, 6);
        assert_eq!(kind(&Device::select("tpu").unwrap_err().into()) as u8, 2);
        let hidden = megabatch_trainer::Error::Memory(absent());
        assert_eq!(kind(&anyhow::Error::from(hidden).context("while training")), Kind::Device);
        let missing = megabatch_chunk_io::inspect("no such file").unwrap_err();
        assert_eq!(kind(&missing.into()), Kind::Data);
        assert_eq!(kind(&anyhow::anyhow!("anything else")), Kind::Run);
    }
}
