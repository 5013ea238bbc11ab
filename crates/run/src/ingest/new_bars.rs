//! Checks that new bars fit a series to which they are appended.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use megabatch_bars::{
    Bar, BarSource as _, Bars, Feature, FileSummary, ReadSummary, Recording, RowError, SpooledBars, Timeframe,
    later_weeks_doubt, listed as listed_names, partition_point,
};
use serde_json::Value;

use super::Bins;
use super::existing_series::ExistingSeries;
use super::provenance::{LISTS, instrument, last_bar, listed};
use crate::error::{Error, Result};
use crate::text::{shown, utc};

/// Requires that the bars of `recordings`, which lie in `bars`, begin where those of the series do,
/// that they come of the same files and of new ones, that new prices are adjusted where those
/// before them are, and that bars after the last of the series lie as the others do.
///
/// # Errors
/// A data error that names the file or the bar.
pub(super) fn require_fitting(recordings: &[Recording], bars: &[SpooledBars], kept: &ExistingSeries) -> Result<()> {
    let (out, roles) = (kept.path(), Roles::from_provenance(&kept.provenance));
    for (Recording { symbol, summary, .. }, bars) in recordings.iter().zip(bars) {
        roles.require_same(summary, out)?;
        roles.require_adjusted(summary)?;
        let Some(then) = instrument(&kept.provenance, symbol) else { continue };
        let first = then["first_open_time_ns"].as_i64();
        let is_moved = first.is_some_and(|first| first != summary.first_open_time);
        if let Some(change) = ClockChange::find(then, summary)
            && let Some(reason) = change.reason_against(is_moved, &kept.recipe.bins)
        {
            return Err(change.refusal(&reason, out));
        }
        if let Some(first) = first
            && first != summary.first_open_time
        {
            let (was, is) = (utc(first), utc(summary.first_open_time));
            let why = why_moved(summary.base, summary.first_open_time - first);
            let said = format!("the first bar of {symbol} opens at {was}, and would be one that opens at {is}{why}");
            return Err(kept.changed(symbol, &said));
        }
        if let Some(last_close) = then["last_close_time_ns"].as_i64()
            && let Some(bar) = off_grid(bars, last_close)?
        {
            return Err(Error::data(format!(
                "{symbol}: the bar that opens at {} is no {} bar like those of {}: it opens {}; nothing was written: leave out the file that has it ({}){}",
                utc(bar.open_time),
                summary.base,
                out.display(),
                bar.reason,
                roles.new_files(summary),
                stamp_remedy(summary.base, last_close - summary.base.duration_ns())
            )));
        }
    }
    Ok(())
}

/// The remedy for a bar of `base` off the grid of those up to the one that opens at `last_open`, as
/// the end of a sentence. Days may have been exported by another rule for their time of day.
fn stamp_remedy(base: Timeframe, last_open: i64) -> String {
    if base < Timeframe::D1 {
        return String::new();
    }
    format!(", or stamp its rows at the time of day of those before, the last of which opens at {}", utc(last_open))
}

/// The cause, in parentheses, of a first bar of the timeframe `base` that opens `later_ns` later
/// than it did.
fn why_moved(base: Timeframe, later_ns: i64) -> &'static str {
    if base >= Timeframe::D1 && later_ns.abs() < Timeframe::D1.duration_ns() {
        " (with the times of day of the new rows, all days are dated otherwise: stamp the new rows as those before are, at the same time of day or as dates alone)"
    } else if later_ns > 0 {
        " (the file begins later than it did: keep earlier exports under their own names)"
    } else {
        ""
    }
}

/// A file of before whose clock is inferred, and is another one by the weeks of all files now.
struct ClockChange<'a> {
    file: &'a FileSummary,
    was: &'a str,
    now: String,
}

impl<'a> ClockChange<'a> {
    /// The first one of the instrument with the account `then`.
    fn find(then: &'a Value, summary: &'a ReadSummary) -> Option<Self> {
        let zones = listed(then, "files").filter_map(|file| Some((file["file"].as_str()?, file["zone"].as_str()?)));
        let zones: BTreeMap<&str, &str> = zones.collect();
        summary.files.iter().find_map(|file| {
            let (was, now) = (*zones.get(shown(&file.path).as_str())?, file.zone.as_ref()?.to_string());
            (now != was).then_some(ClockChange { file, was, now })
        })
    }

    /// Why the series cannot go on, if the bars of before depend on the clock: they are moved, or
    /// `bins` are by it.
    fn reason_against(&self, is_moved: bool, bins: &Bins) -> Option<String> {
        if is_moved {
            return Some("the bars of before would be at other times".to_owned());
        }
        let are_by_it = *bins != Bins::default() && bins.to_string() == self.was;
        are_by_it.then(|| format!("bars of longer timeframes start by the clock {bins}"))
    }

    fn refusal(&self, reason: &str, out: &Path) -> Error {
        let ClockChange { file, was, now } = self;
        Error::data(format!(
            "{}: its times were read as {was} when {} was made, and with the new bars its clock is {now} ({}); {reason}; nothing was written: ingest all files anew, with their zone stated",
            file.path.display(),
            out.display(),
            file.zone_why
        ))
    }
}

/// Notes on files whose clock is another one than when `kept` was made, while all its bars are the
/// same on both.
pub(super) fn changed_clocks(recordings: &[Recording], kept: &ExistingSeries) -> Vec<String> {
    let changes = recordings.iter().filter_map(|Recording { symbol, summary, .. }| {
        ClockChange::find(instrument(&kept.provenance, symbol)?, summary)
    });
    changes
        .map(|ClockChange { file, was, now }| {
            format!(
                "{}: its times were read as {was} before, and are read as {now} with the new bars ({}); the bars of before are the same on both clocks",
                file.path.display(),
                file.zone_why
            )
        })
        .collect()
}

/// Warnings of instruments whose new `bars` have weeks that end at another hour than those of
/// `kept`, as bars do that come by a wrong clock.
///
/// # Errors
/// Bars that cannot be read.
pub(super) fn other_weeks(
    recordings: &[Recording],
    bars: &[SpooledBars],
    kept: &ExistingSeries,
) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for (Recording { symbol, .. }, bars) in recordings.iter().zip(bars) {
        let then = instrument(&kept.provenance, symbol);
        let Some(last_close) = then.and_then(|then| then["last_close_time_ns"].as_i64()) else { continue };
        let doubt = later_weeks_doubt(bars, last_close - bars.timeframe().duration_ns())?;
        warnings.extend(doubt.map(|doubt| format!("{symbol}: {doubt}")));
    }
    Ok(warnings)
}

/// Instruments whose last bar in the series was unfinished, as `bars` have it, with its close. The
/// scalers were fitted without it.
pub(super) fn continued_bars(
    recordings: &[Recording],
    bars: &[SpooledBars],
    kept: &ExistingSeries,
) -> Result<BTreeMap<String, i64>> {
    let mut continued = BTreeMap::new();
    for (Recording { symbol, .. }, bars) in recordings.iter().zip(bars) {
        let Some(then) = instrument(&kept.provenance, symbol).and_then(last_bar) else { continue };
        let close_time = then.open_time + bars.timeframe().duration_ns();
        if close_time > kept.scalers.fit_end_time
            && let Some(now) = bar_from(bars, then.open_time)?
            && then.is_continued_by(&now)
        {
            continued.insert(symbol.clone(), close_time);
        }
    }
    Ok(continued)
}

/// The first bar that opens at `open_time` or later.
fn bar_from(bars: &SpooledBars, open_time: i64) -> Result<Option<Bar>> {
    let place = partition_point(bars, |own| own < open_time)?;
    if place == bars.len() {
        return Ok(None);
    }
    let mut one = Bars::with_capacity(bars.timeframe(), 1);
    bars.read(place..place + 1, &mut one)?;
    Ok(Some(one.bar(0)))
}

/// A warning of instruments with bars of a day or longer whose new files have no bar that `kept`
/// has: no price shows if all were adjusted anew since.
pub(super) fn without_common_bars(recordings: &[Recording], kept: &ExistingSeries) -> Option<String> {
    let roles = Roles::from_provenance(&kept.provenance);
    let is_apart = |recording: &&Recording| roles.has_only_other_bars(&recording.summary);
    let apart: Vec<String> = recordings.iter().filter(is_apart).map(|one| one.symbol.clone()).collect();
    (!apart.is_empty()).then(|| {
        format!(
            "{} of {} instruments ({}) have no bar in common with those of before: if a dividend or split since has changed adjusted prices, nothing shows it, and labels across the join are wrong; give the whole download instead",
            apart.len(),
            recordings.len(),
            listed_names(&apart)
        )
    })
}

/// Warnings of instruments whose bars in `kept` have a volume, and whose new ones have none, where
/// some of `features` are computed from it.
pub(super) fn without_volume(recordings: &[Recording], kept: &ExistingSeries, features: &[Feature]) -> Vec<String> {
    let names: Vec<&str> = features.iter().filter(|own| own.reads_volume()).map(Feature::name).collect();
    let warning = |Recording { symbol, summary, .. }: &Recording| {
        let then = &instrument(&kept.provenance, symbol)?["bars"];
        let (all, without) = (then["all"].as_u64()?, then["without_volume"].as_u64()?);
        let new = summary.bars.all.checked_sub(all).filter(|new| *new > 0)?;
        let is_without = without < all && summary.bars.without_volume >= without + new;
        is_without.then(|| {
            format!(
                "{symbol}: none of its {new} new bars has a volume, and those before have: {} is that of a volume of 0; give bars with volumes",
                names.join(", ")
            )
        })
    };
    if names.is_empty() { Vec::new() } else { recordings.iter().filter_map(warning).collect() }
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

    /// Refuses new files of prices as quoted that go on behind adjusted ones.
    fn require_adjusted(&self, summary: &ReadSummary) -> Result<()> {
        let mut quoted = summary.quoted_behind_adjusted().into_iter();
        match quoted.find(|(path, _)| !self.read.contains(shown(path).as_str())) {
            None => Ok(()),
            Some((path, expected)) => Err(Error::data(format!(
                "{}: expected {expected}; nothing was written: give bars with it, or ingest all bars anew",
                path.display()
            ))),
        }
    }

    /// True if there are new files of bars of a day or longer, and all of their bars are new.
    fn has_only_other_bars(&self, summary: &ReadSummary) -> bool {
        let has_copy = |file: &FileSummary| file.dropped.iter().any(|count| count.kind == RowError::Copy);
        let has_bars = |file: &FileSummary| file.kept > 0 || has_copy(file);
        let is_new = |file: &&FileSummary| has_bars(file) && !self.read.contains(shown(&file.path).as_str());
        let mut new = summary.files.iter().filter(is_new).peekable();
        let is_continued = summary.dropped(RowError::Unfinished) > 0;
        summary.base >= Timeframe::D1 && new.peek().is_some() && !is_continued && !new.any(has_copy)
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
    let (closest_ns, has_bins) = match base > Timeframe::H1 {
        true => (base.duration_ns() - Timeframe::H1.duration_ns(), false),
        false => (base.duration_ns(), true),
    };
    let (mut previous, mut offset, mut closest_then) = (None, None, i64::MAX);
    let mut is_same_offset = has_bins;
    let mut visit = |open_time: i64| {
        let distance = previous.replace(open_time).map_or(i64::MAX, |previous| open_time - previous);
        let own_offset = open_time - base.bin(open_time).start;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Days that new rows with another time of day moved had "begun later" by the earlier files.
    #[test]
    fn new_times_of_day_move_days_by_less_than_one() {
        let (hour, day) = (Timeframe::H1.duration_ns(), Timeframe::D1.duration_ns());
        for (base, later_ns, says) in [
            (Timeframe::D1, 16 * hour, "at the same time of day or as dates alone"),
            (Timeframe::D1, -hour, "at the same time of day or as dates alone"),
            (Timeframe::D1, day, "begins later than it did"),
            (Timeframe::H1, hour, "begins later than it did"),
        ] {
            assert!(why_moved(base, later_ns).contains(says), "{base} {later_ns}");
        }
        let says =
            ", or stamp its rows at the time of day of those before, the last of which opens at 1970-01-01 16:00";
        assert!(stamp_remedy(Timeframe::D1, 16 * hour).starts_with(says), "{}", stamp_remedy(Timeframe::D1, 16 * hour));
        assert_eq!(stamp_remedy(Timeframe::H1, 0), "");
        assert_eq!([why_moved(Timeframe::D1, -day), why_moved(Timeframe::H1, -hour)], [""; 2]);
    }
}
