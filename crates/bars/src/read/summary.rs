use std::fmt;
use std::path::{Path, PathBuf};

use crate::bars::Bar;
use crate::clean::gaps::Gaps;
use crate::clean::jumps::Jump;
use crate::clean::midnights::Midnights;
use crate::error::row_error::{OnError, RowError, RowFix};
use crate::parse::adjustment::Adjustments;
use crate::parse::format_name::FormatName;
use crate::parse::ledger::RowCount;
use crate::read::compared::ComparedFiles;
use crate::read::event_count::EventCount;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{counted, display_utc};
use crate::time::zone::Zone;

/// Rows read, rows dropped or fixed, and assumptions. `Display` gives it as lines of text.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ReadSummary {
    /// The symbol.
    pub symbol: String,
    /// The timeframe of the bars.
    #[serde(with = "crate::exact::text")]
    pub base: Timeframe,
    /// The files in order of time; of a pair, those of the bid before those of the ask.
    pub files: Vec<FileSummary>,
    /// Open time of the first bar, in nanoseconds since 1970 UTC.
    pub first_open_time: i64,
    /// Close time of the last bar.
    pub last_close_time: i64,
    /// The last bar, without further columns. It may be unfinished: a later export may have more
    /// of it.
    pub last_bar: Bar,
    /// Counts of bars.
    pub bars: BarCounts,
    /// The gaps.
    pub gaps: Gaps,
    /// Jumps of the price that no range of the bars explains.
    pub jumps: Vec<Jump>,
    /// Files of other timeframes, which were compared with the bars and not read.
    pub compared: Vec<ComparedFiles>,
    /// Bars of longer timeframes that were read from files of their own, shortest first.
    pub own: Vec<OwnBars>,
    /// Summary of joining bid and ask, where they were read apart.
    pub pair: Option<PairSummary>,
    /// Warnings about the bars, for people.
    pub warnings: Vec<String>,
    /// The last midnights of rows of days, where they show.
    #[serde(default)]
    pub(crate) midnights: Option<Midnights>,
    /// Rows behind the last bar that fill time at which the market is closed.
    #[serde(default)]
    pub(crate) last_fillers: i64,
    /// Open times of the bars after which no file that has them goes on, in order.
    #[serde(default)]
    pub(crate) last_times: Vec<i64>,
    /// Longest time by which a day or a week opens before its own time. It may have trades until
    /// that long after its end.
    #[serde(default)]
    pub early_ns: i64,
}

/// Bars of a longer timeframe from files of their own, beside those that the shorter bars make.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct OwnBars {
    /// Summary of reading them.
    pub summary: ReadSummary,
    /// Timeframe of the shorter bars.
    #[serde(with = "crate::exact::text")]
    pub base: Timeframe,
    /// Bars with the open, high, low and close that the shorter bars make.
    pub same: u64,
    /// Bars with other prices. They are used.
    pub different: EventCount,
    /// Bars that begin before the first of the shorter bars. They are used, and not compared.
    pub partial: u64,
    /// The first other price: `close 1.1021, of M1 1.1022`.
    pub example: String,
    /// Bars at times that the shorter bars do not cover. They are not used.
    pub not_covered: u64,
    /// Bars that the files lack: the shorter bars make them.
    pub made: u64,
    /// Bars after which no file that has them goes on, which may be unfinished. They are not used:
    /// the shorter bars make them.
    pub unfinished: u64,
}

impl OwnBars {
    /// The account of bars that are read, and have no place yet.
    pub(crate) fn unplaced(summary: ReadSummary, base: Timeframe) -> Self {
        let (different, example) = (EventCount::default(), String::new());
        OwnBars { summary, base, same: 0, different, partial: 0, example, not_covered: 0, made: 0, unfinished: 0 }
    }

    /// Number of bars that take the place of others.
    pub fn used(&self) -> u64 {
        self.same + self.different.count + self.partial
    }

    /// Reasons against both having one source and clock.
    pub(crate) fn warning(&self) -> Option<String> {
        let OwnBars { base, same, .. } = self;
        let (compared, timeframe) = (self.same + self.different.count, self.summary.base);
        if self.used() == 0 {
            return Some(format!("no {timeframe} bar of its own file is at a time with {base} bars"));
        }
        (2 * same < compared).then(|| {
            format!(
                "only {same} of {compared} own {timeframe} bars equal the bars made of {base}: are both of one source and one clock?"
            )
        })
    }
}

impl fmt::Display for OwnBars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnBars { summary, base, same, different, example, not_covered, made, unfinished, .. } = self;
        let (symbol, timeframe, compared) = (&summary.symbol, summary.base, same + different.count);
        write!(f, "{symbol} {timeframe}: {same} of {compared} own bars equal the bars made of {base}")?;
        if let Some(first) = different.first {
            let differ = if different.count == 1 { "differs" } else { "differ" };
            write!(f, "; {} {differ}, the first at {} ({example})", different.count, display_utc(first))?;
        }
        if *made > 0 {
            write!(f, "; {} made of {base}, which its files lack", counted(*made, "bar", "bars"))?;
        }
        if *not_covered > 0 {
            write!(f, "; {} not used, at times without {base} bars", counted(*not_covered, "bar", "bars"))?;
        }
        match *unfinished {
            0 => {}
            1 => write!(f, "; the last own bar may be unfinished and is not used")?,
            count => write!(f, "; {count} own bars with which files end may be unfinished and are not used")?,
        }
        Ok(())
    }
}

/// Summary of joining bid and ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct PairSummary {
    /// Bars of the bid without one of the ask. They are dropped.
    pub bid_only: EventCount,
    /// Bars of the ask without one of the bid. They are dropped.
    pub ask_only: EventCount,
    /// Bars at whose close the ask is below the bid.
    pub crossed: EventCount,
    /// Treatment of crossed rows: dropped or, under [`OnError::Repair`], kept with a spread of
    /// zero.
    pub on_error: OnError,
}

/// Counts of bars by content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct BarCounts {
    /// All of them.
    pub all: u64,
    /// Bars whose four prices are equal.
    pub flat: u64,
    /// Bars whose volume is zero.
    pub without_volume: u64,
    /// Bars whose spread is above zero.
    pub with_spread: u64,
}

/// Rows read from one file.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct FileSummary {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: FormatName,
    /// The clock by which its timestamps were read; `None` where each brings its own offset.
    #[serde(with = "crate::exact::optional_text")]
    pub zone: Option<Zone>,
    /// The offset that is farthest behind UTC of those that timestamps state; `None` where none is
    /// behind it.
    #[serde(default, with = "crate::exact::optional_text")]
    pub offset: Option<Zone>,
    /// Reason for the clock, in words.
    pub zone_why: String,
    /// Rows in the file, without header and empty lines.
    pub rows: u64,
    /// Lines in front of the header.
    pub preamble: u64,
    /// True if its rows are written newest first; they were turned round.
    pub newest_first: bool,
    /// Rows that became bars.
    pub kept: u64,
    /// Open time of its first bar.
    pub(crate) first_open_time: Option<i64>,
    /// Open time of its last bar.
    pub(crate) last_open_time: Option<i64>,
    /// Rows that were dropped, by kind, in the order of the kinds.
    pub dropped: Vec<RowCount<RowError>>,
    /// Rows that were fixed, by kind, in the order of the kinds. One row may have two kinds of fix.
    pub fixed: Vec<RowCount<RowFix>>,
    /// Adjustments of its prices; `None` if they are read as quoted.
    pub adjusted: Option<Adjustments>,
    /// Columns that the header names and that are not read.
    #[serde(default)]
    pub unused_columns: Vec<String>,
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

    /// Dropped rows of all files of one kind.
    pub fn dropped(&self, kind: RowError) -> u64 {
        self.files.iter().map(|file| rows_of(&file.dropped, kind)).sum()
    }

    /// Fixed rows of all files of one kind.
    pub fn fixed(&self, kind: RowFix) -> u64 {
        self.files.iter().map(|file| rows_of(&file.fixed, kind)).sum()
    }

    /// Files with prices as quoted that begin after the last bar of the files before them, whose
    /// prices are adjusted, each with what its rows must have. Files with bars in common were
    /// compared.
    pub fn quoted_behind_adjusted(&self) -> Vec<(&Path, String)> {
        let mut found = Vec::new();
        let mut last: Option<&FileSummary> = None;
        for file in self.files.iter().filter(|file| file.last_open_time.is_some()) {
            let before = last.filter(|before| before.last_open_time < file.first_open_time);
            let adjusted = before.filter(|_| file.adjusted.is_none()).and_then(|before| before.adjusted.as_ref());
            let expected = adjusted.and_then(Adjustments::expected_behind);
            found.extend(expected.map(|expected| (file.path.as_path(), expected)));
            if last.is_none_or(|before| before.last_open_time <= file.last_open_time) {
                last = Some(file);
            }
        }
        found
    }
}

fn rows_of<K: PartialEq + Copy>(tallies: &[RowCount<K>], kind: K) -> u64 {
    tallies.iter().find(|tally| tally.kind == kind).map_or(0, |tally| tally.rows)
}

impl BarCounts {
    pub(crate) fn add(&mut self, bar: &Bar) {
        self.all += 1;
        self.flat += u64::from(bar.high == bar.low);
        self.without_volume += u64::from(bar.volume == 0.0);
        self.with_spread += u64::from(bar.spread > 0.0);
    }
}

impl fmt::Display for PairSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let treated = match self.on_error {
            OnError::Repair => "kept with a spread of 0",
            OnError::Fail | OnError::Skip => "dropped",
        };
        let sides = counted(self.bid_only.count + self.ask_only.count, "bar", "bars");
        write!(
            f,
            "{sides} of one side only dropped: bid {}, ask {}; ask below bid, {treated}: {}",
            self.bid_only, self.ask_only, self.crossed
        )
    }
}

impl fmt::Display for BarCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |count: u64| match count {
            0 => "none".to_owned(),
            count if count == self.all => "all".to_owned(),
            count => format!("{count} ({:.1} %)", 100.0 * count as f64 / self.all as f64),
        };
        let BarCounts { flat, without_volume, with_spread, .. } = *self;
        write!(
            f,
            "flat bars: {}; without volume: {}; with a spread: {}",
            share(flat),
            share(without_volume),
            share(with_spread)
        )
    }
}

impl fmt::Display for FileSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = counted(self.rows, "row", "rows");
        write!(f, "{}: {}, {rows}, {} kept", self.path.display(), self.format, self.kept)?;
        for RowCount { kind, rows, first_line } in &self.dropped {
            write!(f, ", {rows} dropped as {kind} (first in line {first_line})")?;
        }
        for RowCount { kind, rows, first_line } in &self.fixed {
            write!(f, ", {rows} {kind} (first in line {first_line})")?;
        }
        if self.preamble > 0 {
            write!(f, ", {} before the header", counted(self.preamble, "line", "lines"))?;
        }
        if self.newest_first {
            write!(f, ", newest first")?;
        }
        if let Some(adjusted) = &self.adjusted {
            write!(f, "; adjusted: {adjusted}")?;
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
        let bars = if self.bars.all == 1 { "bar" } else { "bars" };
        writeln!(f, "{}: {} {} {bars} from {first} to {last}", self.symbol, self.bars.all, self.base)?;
        for file in &self.files {
            writeln!(f, "  {file}")?;
        }
        for compared in &self.compared {
            writeln!(f, "  {compared}")?;
        }
        for own in &self.own {
            own.summary.files.iter().try_for_each(|file| writeln!(f, "  {file}"))?;
            writeln!(f, "  {own}")?;
        }
        if let Some(pair) = &self.pair {
            writeln!(f, "  {pair}")?;
        }
        write!(f, "  {}\n  {}", self.gaps, self.bars)?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\n  warning: {warning}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_told_in_words_where_they_are_all_or_none() {
        let counts = BarCounts { all: 8, flat: 1, without_volume: 8, with_spread: 0 };
        assert_eq!(counts.to_string(), "flat bars: 1 (12.5 %); without volume: all; with a spread: none");
    }
}
