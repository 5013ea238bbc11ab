//! The error of a run: its kind, and the whole message.

mod advice;
mod fields;
mod keys;
mod kinds;

use std::error::Error as StdError;
use std::{fmt, io};

use serde_json::Value;

use crate::text::with_readable_sizes;
pub(crate) use keys::with_keys;

/// Result of a run's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kinds of errors, by what a user or a program can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The run failed, for a reason outside the kinds below, such as a full disk.
    Failed,
    /// A setting, an option or a combination of them is wrong.
    Usage,
    /// The data are wrong or not readable.
    Data,
    /// The request does not fit into memory.
    Capacity,
    /// A number became infinite or undefined.
    Numeric,
    /// The device is absent or refused.
    Device,
    /// [`Cancel`](crate::Cancel) ended the work.
    Cancelled,
}

/// An error of a run.
///
/// Its text is the whole message: the work, the file and the object in it, every cause, and the
/// option or setting that fixes it. [`StdError::source`] is the error of the library behind it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Error {
    kind: Kind,
    /// Work that failed, innermost first.
    contexts: Vec<String>,
    cause: Cause,
    /// For programs, beside those of the cause.
    fields: Vec<(&'static str, Value)>,
    /// True if options that fix the cause end the message.
    has_advice: bool,
}

#[derive(Debug)]
enum Cause {
    Message(String),
    Library(Box<dyn StdError + Send + Sync>),
}

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error {
            kind,
            contexts: Vec::new(),
            cause: Cause::Message(message.into()),
            fields: Vec::new(),
            has_advice: true,
        }
    }

    /// An error of [`Kind::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Error::new(Kind::Usage, message)
    }

    /// An error of [`Kind::Data`].
    pub fn data(message: impl Into<String>) -> Self {
        Error::new(Kind::Data, message)
    }

    /// An error of [`Kind::Capacity`].
    pub fn capacity(message: impl Into<String>) -> Self {
        Error::new(Kind::Capacity, message)
    }

    /// An error of [`Kind::Failed`].
    pub fn failed(message: impl Into<String>) -> Self {
        Error::new(Kind::Failed, message)
    }

    /// The error behind a library's port, whose kind is that of its first cause that has one.
    pub(crate) fn from_cause(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        match cause.into().downcast::<Error>() {
            Ok(own) => *own,
            Err(cause) => Error {
                kind: kinds::kind_of(cause.as_ref()),
                contexts: Vec::new(),
                cause: Cause::Library(cause),
                fields: Vec::new(),
                has_advice: true,
            },
        }
    }

    /// The kind of the error.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The same error, with the work that failed before its message.
    #[must_use]
    pub fn context(mut self, work: impl Into<String>) -> Self {
        self.contexts.push(work.into());
        self
    }

    /// The same error without options that fix its cause, where none can be given.
    #[must_use]
    pub(crate) fn without_advice(mut self) -> Self {
        self.has_advice = false;
        self
    }

    /// The first cause of this type.
    pub(crate) fn find<E: StdError + 'static>(&self) -> Option<&E> {
        self.causes().find_map(|cause| cause.downcast_ref())
    }

    /// Errors of libraries behind this one, outermost first.
    fn causes(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        let mut next = self.source();
        std::iter::from_fn(move || {
            let cause = next?;
            next = cause.source();
            Some(cause)
        })
    }

    /// The message with sizes to the byte. A cause that a message quotes already is not repeated.
    pub(crate) fn exact_message(&self) -> String {
        let own = match &self.cause {
            Cause::Message(message) => Some(message.clone()),
            Cause::Library(_) => None,
        };
        let texts = self.contexts.iter().rev().cloned().chain(own).chain(self.causes().map(keys::text_of));
        let message = texts.reduce(|message, text| match message.contains(&text) {
            true => message,
            false => format!("{message}: {text}"),
        });
        let message = message.unwrap_or_default();
        let advice = self.causes().find_map(advice::advice).filter(|_| self.has_advice);
        match advice.filter(|advice| !message.contains(advice)) {
            // After a list, a line of its own.
            Some(advice) if message.contains('\n') => format!("{message}\n{advice}"),
            Some(advice) => format!("{message}; {advice}"),
            None => message,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = self.exact_message();
        // Of damaged data the exact length matters, of what does not fit its size.
        match self.kind {
            Kind::Capacity => f.write_str(&with_readable_sizes(&message)),
            _ => f.write_str(&message),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.cause {
            Cause::Message(_) => None,
            Cause::Library(cause) => Some(cause.as_ref()),
        }
    }
}

macro_rules! from_errors {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Error::from_cause(error)
            }
        })+
    };
}

from_errors!(
    megabatch_amp::Error,
    megabatch_atomic_file::WriteError,
    megabatch_bars::Error,
    megabatch_bars::UnknownName,
    megabatch_chunk_io::Error,
    megabatch_gpu_core::Error,
    megabatch_graph_cache::Error,
    megabatch_nn::Error,
    megabatch_order::Error,
    megabatch_segment::Error,
    megabatch_trainer::Error,
    megabatch_alloc_lab::TraceError,
    crate::config::ConfigError,
    io::Error,
    std::num::TryFromIntError,
    rayon::ThreadPoolBuildError,
    safetensors::SafeTensorError,
    serde_json::Error,
    Box<dyn StdError + Send + Sync>,
);

/// Adds the work that failed to an error.
pub trait Context<T> {
    /// Adds `work` before the message.
    ///
    /// # Errors
    /// The error, with `work`.
    fn context(self, work: impl Into<String>) -> Result<T>;

    /// Adds the text of `work` before the message.
    ///
    /// # Errors
    /// The error, with the text of `work`.
    fn with_context<S: Into<String>>(self, work: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, work: impl Into<String>) -> Result<T> {
        self.map_err(|error| error.into().context(work))
    }

    fn with_context<S: Into<String>>(self, work: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| error.into().context(work()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let refused = || io::Error::other("no room");
        let quoting = Error::from(refused()).context("cannot write: no room");
        assert_eq!(quoting.to_string(), "cannot write: no room");
        let adding = Err::<(), _>(refused()).context("cannot write").unwrap_err();
        assert_eq!(adding.to_string(), "cannot write: no room");
    }

    #[test]
    fn sizes_are_told_to_the_byte_except_of_what_does_not_fit() {
        let text = "the file has 1234567 bytes";
        assert_eq!(Error::data(text).to_string(), text);
        assert_eq!(Error::capacity(text).to_string(), "the file has 1.23 MB");
        assert_eq!(Error::capacity(text).exact_message(), text);
    }

    #[test]
    fn each_error_has_its_kind() {
        use megabatch_gpu_core::{Device, Error as DeviceError};

        let absent = || DeviceError::DriverAbsent { name: "cuda:0".to_owned(), reason: "no file".to_owned() };
        assert_eq!(Error::from(absent()).kind(), Kind::Device);
        assert_eq!(Error::from(Device::select("tpu").unwrap_err()).kind(), Kind::Usage);
        let hidden = megabatch_trainer::Error::Memory(absent());
        assert_eq!(Error::from(hidden).context("while training").kind(), Kind::Device);
        let missing = megabatch_chunk_io::inspect("no such file").unwrap_err();
        assert_eq!(Error::from(missing).kind(), Kind::Data);
        assert_eq!(Error::from(io::Error::other("anything else")).kind(), Kind::Failed);
        // What an adapter says keeps its kind on the way through a library's port.
        let source = Error::data("x").into();
        let ported = Error::from(megabatch_trainer::Error::PrefetchingSource { source });
        assert_eq!(ported.kind(), Kind::Data);
        assert_eq!(ported.to_string(), "loading samples ahead failed: x");
    }
}
