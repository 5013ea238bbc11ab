//! The files of a series to which bars are appended: those that it was made of, and checks of new
//! ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use megabatch_bars::{BarSource as _, ReadSummary, Recording, SpooledBars, Timeframe};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use super::Recipe;
use super::existing_series::ExistingSeries;
use super::provenance::{LISTS, fingerprint, instrument, listed, recorded_files};
use crate::error::{Context as _, Error, Result};
use crate::text::{shown, utc};

/// The files that a series was made of.
#[derive(Default)]
pub(super) struct SourceFiles {
    /// Fingerprints of their present contents.
    fingerprints: BTreeMap<PathBuf, String>,
    /// Files that begin with the recorded bytes and have grown.
    pub(super) grown: Vec<PathBuf>,
    /// Files that hold other bytes.
    pub(super) rewritten: Vec<PathBuf>,
}

impl SourceFiles {
    /// Compares the files of `recipe` with the provenance of the series at `out`.
    ///
    /// # Errors
    /// A data error for a file that is missing.
    pub(super) fn find(recipe: &Recipe, provenance: &Value, out: &Path) -> Result<Self> {
        let recorded: BTreeMap<&str, &Value> =
            recorded_files(provenance).filter_map(|file| Some((file["file"].as_str()?, file))).collect();
        let mut files = SourceFiles::default();
        for path in recipe.files() {
            let gone = |error: io::Error| {
                Error::data(format!(
                    "{}: {error}; {} was made of it, and its bars are read again when others are appended: put it back, or ingest anew",
                    path.display(),
                    out.display()
                ))
            };
            let then = recorded.get(shown(path).as_str());
            let hash = then.and_then(|file| file["xxh3_128"].as_str()).unwrap_or_default();
            let found = fingerprint(path).map_err(gone)?;
            if found != hash {
                let rows = then.and_then(|file| file["rows"].as_u64()).unwrap_or(0);
                let group = match begins_with(path, hash, rows).map_err(gone)? {
                    true => &mut files.grown,
                    false => &mut files.rewritten,
                };
                group.push(path.to_owned());
            }
            files.fingerprints.insert(path.to_owned(), found);
        }
        Ok(files)
    }

    /// True if each file has the recorded bytes.
    pub(super) fn are_unchanged(&self) -> bool {
        self.grown.is_empty() && self.rewritten.is_empty()
    }

    /// `new` without files whose bytes the series has already for the same symbol.
    pub(super) fn without_these(&self, recipe: &Recipe, new: &Recipe) -> Result<Recipe> {
        let options = recipe.read_options();
        let left = |new: &[PathBuf], recorded: &[PathBuf]| -> Result<Vec<PathBuf>> {
            let mut known = BTreeSet::new();
            for path in recorded {
                known.insert((options.symbols_of(path)?, self.fingerprints[path].clone()));
            }
            let mut left = Vec::new();
            for path in new {
                let found = fingerprint(path).with_context(|| format!("cannot read {}", path.display()))?;
                if known.insert((options.symbols_of(path)?, found)) {
                    left.push(path.clone());
                }
            }
            Ok(left)
        };
        Ok(Recipe {
            bars: left(&new.bars, &recipe.bars)?,
            bid: left(&new.bid, &recipe.bid)?,
            ask: left(&new.ask, &recipe.ask)?,
            ..new.clone()
        })
    }
}

/// True if the file begins with lines of that fingerprint, at least `rows` of them.
fn begins_with(path: &Path, hash: &str, rows: u64) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
    let (mut so_far, mut line, mut lines) = (Xxh3::new(), Vec::new(), 0);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        lines += 1;
        // The last line of then may have had no end.
        let text = line.strip_suffix(b"\n").map_or(&line[..], |text| text.strip_suffix(b"\r").unwrap_or(text));
        for part in [text, &line[text.len()..]] {
            so_far.update(part);
            if lines >= rows && format!("{:032x}", so_far.digest128()) == hash {
                return Ok(true);
            }
        }
    }
}

/// Requires that the bars of `recordings`, which lie in `bars`, begin where those of the series do,
/// that they come of the same files and of new ones, and that those after the last of the series
/// lie as the others do.
///
/// # Errors
/// A data error that names the file or the bar.
pub(super) fn require_fitting(recordings: &[Recording], bars: &[SpooledBars], kept: &ExistingSeries) -> Result<()> {
    let (out, roles) = (kept.path(), Roles::from_provenance(&kept.provenance));
    for (Recording { symbol, summary, .. }, bars) in recordings.iter().zip(bars) {
        roles.require_same(summary, out)?;
        let Some(then) = instrument(&kept.provenance, symbol) else { continue };
        if let Some(first) = then["first_open_time_ns"].as_i64()
            && first != summary.first_open_time
        {
            let (was, is) = (utc(first), utc(summary.first_open_time));
            let said = format!("the first bar of {symbol} opens at {was}, and would be one that opens at {is}");
            return Err(kept.changed(symbol, &said));
        }
        if let Some(last_close) = then["last_close_time_ns"].as_i64()
            && let Some(bar) = off_grid(bars, last_close)?
        {
            return Err(Error::data(format!(
                "{symbol}: the bar that opens at {} is no {} bar like those of {}: it opens {}; nothing was written: leave out the file that has it ({})",
                utc(bar.open_time),
                summary.base,
                out.display(),
                bar.reason,
                roles.new_files(summary)
            )));
        }
    }
    Ok(())
}

/// Files of a provenance by use.
struct Roles<'a> {
    /// Read.
    read: BTreeSet<&'a str>,
    /// Compared with the bars, and not read.
    compared: BTreeSet<&'a str>,
}

impl<'a> Roles<'a> {
    fn from_provenance(provenance: &'a Value) -> Self {
        let instruments = || listed(provenance, LISTS[0]);
        let files = |owner| listed(owner, "files").filter_map(|file| file["file"].as_str());
        Roles {
            read: instruments().flat_map(files).collect(),
            compared: instruments().flat_map(|one| listed(one, "compared")).flat_map(files).collect(),
        }
    }

    /// Refuses bars from files that were only compared, and the reverse.
    fn require_same(&self, summary: &ReadSummary, out: &Path) -> Result<()> {
        let (base, out) = (summary.base, out.display());
        for compared in &summary.compared {
            let path = compared.paths.iter().find(|path| !self.compared.contains(shown(path).as_str()));
            if let Some(path) = path {
                let is_new = !self.read.contains(shown(path).as_str());
                return Err(Error::data(format!(
                    "{}: by their spacing or the file's name these are {} bars, and {out} is made of {base} bars; nothing was written: leave the file out{}",
                    path.display(),
                    compared.timeframe,
                    if is_new { "" } else { ", and ingest all others anew" }
                )));
            }
        }
        let mut files = summary.files.iter().map(|file| &file.path);
        match files.find(|path| self.compared.contains(shown(path).as_str())) {
            None => Ok(()),
            Some(path) => Err(Error::data(format!(
                "{}: its bars were compared and not read when {out} was made, and would be read now, as {base} bars; nothing was written: ingest all files anew",
                path.display(),
            ))),
        }
    }

    /// Names of new files, or of all files if none is new.
    fn new_files(&self, summary: &ReadSummary) -> String {
        let names = summary.files.iter().map(|file| shown(&file.path));
        let (known, new): (Vec<String>, Vec<String>) = names.partition(|name| self.read.contains(name.as_str()));
        if new.is_empty() { known.join(", ") } else { new.join(", ") }
    }
}

/// A bar whose times do not fit those before it.
struct OffGrid {
    open_time: i64,
    reason: &'static str,
}

/// The first bar after the one that closes at `last_close` that opens before the one ahead of it
/// closes, or at another time within its bin, as none did before.
fn off_grid(bars: &SpooledBars, last_close: i64) -> Result<Option<OffGrid>> {
    let base = bars.timeframe();
    let last_open = last_close - base.duration_ns();
    // Longer bars follow the clock of a market, which may skip an hour.
    let (closest_ns, has_bins) = match base {
        Timeframe::H4 | Timeframe::D1 | Timeframe::W1 => (base.duration_ns() - Timeframe::H1.duration_ns(), false),
        _ => (base.duration_ns(), true),
    };
    let (mut previous, mut offset, mut closest_then) = (None, None, i64::MAX);
    let mut is_same_offset = has_bins;
    let mut visit = |open_time: i64| {
        let distance = previous.replace(open_time).map_or(i64::MAX, |previous| open_time - previous);
        let own_offset = open_time - base.bin_open_time(open_time);
        if open_time <= last_open {
            closest_then = closest_then.min(distance);
            is_same_offset &= offset.is_none_or(|offset| offset == own_offset);
            offset = Some(own_offset);
            return ControlFlow::Continue(());
        }
        if distance < closest_ns && closest_then >= closest_ns {
            let reason = "before the one ahead of it closes";
            return ControlFlow::Break(OffGrid { open_time, reason });
        }
        if is_same_offset && offset.is_some_and(|offset| offset != own_offset) {
            let reason = "at another time within its bin";
            return ControlFlow::Break(OffGrid { open_time, reason });
        }
        ControlFlow::Continue(())
    };
    let mut times = Vec::new();
    for first in (0..bars.len()).step_by(PIECE_BARS) {
        bars.read_open_times(first..bars.len().min(first + PIECE_BARS), &mut times)?;
        if let ControlFlow::Break(found) = times.iter().try_for_each(|&time| visit(time)) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Bars whose times are read at once.
const PIECE_BARS: usize = 1 << 16;
