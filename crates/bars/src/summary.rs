use std::fmt;
use std::path::PathBuf;

use crate::format::FormatName;
use crate::gaps::Gaps;
use crate::timeframe::Timeframe;
use crate::timestamp::display_utc;
use crate::trouble::Dropped;
use crate::zone::Zone;

/// What was read, what was dropped, and what was assumed. `Display` gives it as lines of text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReadSummary {
    /// The symbol.
    pub symbol: String,
    /// The timeframe of the bars.
    pub base: Timeframe,
    /// The files in order of time.
    pub files: Vec<FileSummary>,
    /// Open time of the first bar, in nanoseconds since 1970 UTC.
    pub first_open_time: i64,
    /// Close time of the last bar.
    pub last_close_time: i64,
    /// The gaps.
    pub gaps: Gaps,
    /// What a user should know before he trusts the bars.
    pub warnings: Vec<String>,
}

/// What was read from one file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FileSummary {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: FormatName,
    /// The clock by which its timestamps were read; `None` where each brings its own offset.
    pub zone: Option<Zone>,
    /// Why that clock, in words.
    pub zone_why: String,
    /// Rows in the file, without header and empty lines.
    pub rows: u64,
    /// Rows that became bars.
    pub kept: u64,
    /// Rows that did not, by kind.
    pub dropped: Vec<Dropped>,
}

impl ReadSummary {
    /// Rows in all files.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// Rows that became bars.
    pub fn kept(&self) -> u64 {
        self.files.iter().map(|file| file.kept).sum()
    }
}

impl fmt::Display for FileSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {} rows, {} kept", self.path.display(), self.format, self.rows, self.kept)?;
        for Dropped { trouble, rows, first_line } in &self.dropped {
            write!(f, ", {rows} dropped as {trouble} (first in line {first_line})")?;
        }
        match &self.zone {
            Some(zone) => write!(f, "; times are {zone} ({})", self.zone_why),
            None => write!(f, "; {}", self.zone_why),
        }
    }
}

impl fmt::Display for ReadSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (display_utc(self.first_open_time), display_utc(self.last_close_time));
        writeln!(f, "{}: {} {} bars from {first} to {last}", self.symbol, self.kept(), self.base)?;
        for file in &self.files {
            writeln!(f, "  {file}")?;
        }
        write!(f, "  {}", self.gaps)?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\n  warning: {warning}"))
    }
}
