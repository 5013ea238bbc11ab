//! Sizes, times, numbers and paths as people read and write them.

mod byte_sizes;
mod duration;
pub mod number;

use std::path::Path;

pub use byte_sizes::{ByteSize, bytes, with_readable_sizes};
pub(crate) use duration::DAY_NS;
pub use duration::Duration;
pub(crate) use number::plural;

/// A path as text, for people and for JSON: bytes that are not UTF-8 are replaced. Files are opened
/// by the path itself.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// [`shown`], for a derived `Serialize`.
pub(crate) fn serialize_shown<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// A time as people write it.
pub fn utc(time_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(time_ns.into())
        .map_or_else(|_| "the end".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}
