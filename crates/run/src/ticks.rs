//! Ticks into bars as CSV, in one pass over the files.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use jiff::Timestamp;
use megabatch_atomic_file::{NewFile, WriteError};
use megabatch_bars::{TickBar, TickBarReader, TickSummary, bar_files};
use serde_json::json;

use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::host::{Host, PATIENCE};
use crate::ingest::work::Pass;
use crate::output;
use crate::text::{plural, shown};

pub use megabatch_bars::{BarRule, TickFormat, TickOptions, TickPrice, TickVolume};

/// Writes bars of the ticks in the files at `paths`, or in folders of such, to the CSV file `out`,
/// which appears whole or not at all.
///
/// Bars of a timeframe are what [`ingest`](crate::ingest::ingest) reads. Those of a number of ticks
/// or of a volume have a column `close_time` too, and no fixed length.
///
/// # Errors
/// A usage error where the file cannot be written, or for an option that the ticks contradict;
/// [`Kind::Data`](crate::Kind::Data) for defective ticks and for files that overlap;
/// [`Kind::Cancelled`](crate::Kind::Cancelled) where the host ended it.
pub fn ticks_to_bars(paths: &[PathBuf], out: &Path, options: TickOptions, host: &Host<'_>) -> Result<CommandReport> {
    let start = Instant::now();
    if options.point.is_some_and(|point| !(point > 0.0 && point.is_finite())) {
        return Err(Error::usage("the price of a point: expected a number above 0, such as 0.00001"));
    }
    let files = paths.iter().map(|path| bar_files(path)).collect::<Result<Vec<_>, _>>()?.concat();
    output::require_ending(out, &["csv"])?;
    output::check(out, &files.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    host.cancel.watch(PATIENCE)?;
    let total_bytes = files.iter().filter_map(|file| file.metadata().ok()).map(|found| found.len()).sum();
    let pass = Pass::begin(host, "ticks", "bytes", total_bytes);
    let observe = |bytes| pass.advance(bytes);
    let rule = options.bars;
    let mut reader = TickBarReader::open(&files, options, &observe)?;

    let failed = |action| move |source| WriteError { path: out.to_owned(), action, source };
    let new = NewFile::create(out).map_err(failed("make a file beside it"))?;
    let mut csv = BufWriter::with_capacity(1 << 20, new.file());
    let columns = Columns { close_time: !rule.has_fixed_length(), spread: reader.has_spread() };
    columns.write_header(&mut csv).map_err(failed("write"))?;
    while let Some(bar) = reader.next_bar()? {
        columns.write_bar(&mut csv, &bar).map_err(failed("write"))?;
    }
    csv.flush().map_err(failed("write"))?;
    drop(csv);
    let summary = reader.summary();
    new.publish(out)?;
    Ok(describe(out, rule, &summary, start.elapsed().as_secs_f64()))
}

/// Columns of the bars beside those that all have.
#[derive(Clone, Copy)]
struct Columns {
    close_time: bool,
    spread: bool,
}

impl Columns {
    fn write_header(self, csv: &mut impl Write) -> io::Result<()> {
        let close_time = if self.close_time { ",close_time" } else { "" };
        let spread = if self.spread { ",spread" } else { "" };
        writeln!(csv, "time,open,high,low,close,volume{spread}{close_time}")
    }

    fn write_bar(self, csv: &mut impl Write, bar: &TickBar) -> io::Result<()> {
        let TickBar { open_time, open, high, low, close, volume, .. } = bar;
        write!(csv, "{},{open},{high},{low},{close},{volume}", utc(*open_time))?;
        if self.spread {
            write!(csv, ",{}", bar.spread)?;
        }
        if self.close_time {
            write!(csv, ",{}", utc(bar.close_time))?;
        }
        writeln!(csv)
    }
}

fn utc(ns: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(ns)).expect("an i64 of nanoseconds is within jiff's range")
}

fn describe(out: &Path, rule: BarRule, summary: &TickSummary, seconds: f64) -> CommandReport {
    let TickSummary { bars, ticks, format, price, volume, .. } = summary;
    let (first, last) = (utc(summary.first_ns), utc(summary.last_ns));
    let rate = *ticks as f64 / seconds.max(1e-9);
    let counted = |count: u64, noun| plural(count as usize, noun);
    let (counted_bars, counted_ticks) = (counted(*bars, "bar"), counted(*ticks, "tick"));
    let mut text = format!("{}: {counted_bars} of {rule} from {counted_ticks} ({format})", out.display());
    text.push_str(&format!("\n{first} to {last}, price {price}, volume {volume}"));
    if let Some(spread) = summary.mean_spread {
        text.push_str(&format!(", mean spread {spread:.3e}"));
    }
    for dropped in &summary.dropped {
        text.push_str(&format!(
            "\ndropped: {}, {} (first: {} line {}, expected {})",
            counted(dropped.rows, "row"),
            dropped.kind,
            dropped.path.display(),
            dropped.first_line,
            dropped.expected
        ));
    }
    if summary.files_without_ticks > 0 {
        text.push_str(&format!(
            "\nwithout ticks: {} of {}",
            summary.files_without_ticks,
            counted(summary.files as u64, "file")
        ));
    }
    if summary.unused_ticks > 0 {
        text.push_str(&format!("\nin no bar: {} after the last full one", counted(summary.unused_ticks, "tick")));
    }
    text.push_str(&format!("\n{seconds:.2} s, {:.2} million ticks a second", rate / 1e6));
    if !rule.has_fixed_length() {
        text.push_str("\nnote: these bars have no fixed length, and `megabatch ingest` reads bars of a timeframe");
    }
    let dropped = summary.dropped.iter().map(|dropped| {
        json!({
            "kind": dropped.kind.to_string(),
            "rows": dropped.rows,
            "file": shown(&dropped.path),
            "first_line": dropped.first_line,
        })
    });
    let facts = json!({
        "file": shown(out),
        "rule": rule.to_string(),
        "bars": bars,
        "ticks": ticks,
        "format": format.name(),
        "price": price.name(),
        "volume": volume.name(),
        "zone": summary.zone.to_string(),
        "files": summary.files,
        "files_without_ticks": summary.files_without_ticks,
        "first_tick": first.to_string(),
        "last_tick": last.to_string(),
        "mean_spread": summary.mean_spread,
        "dropped": dropped.collect::<Vec<_>>(),
        "unused_ticks": summary.unused_ticks,
        "seconds": seconds,
        "ticks_per_second": rate,
    });
    CommandReport::new(text, &facts)
}
