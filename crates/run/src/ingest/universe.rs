//! Summary of reading many instruments, in a few lines and in numbers.

use std::collections::BTreeMap;

use megabatch_bars::{Adjustments, Recording, RowCount, RowError, ShareSplit, Universe};
use serde_json::{Value, json};

use crate::text::utc;

/// Most instruments that are described one by one.
pub(crate) const ONE_BY_ONE_MAX: usize = 8;
/// Most warnings in the text. The answer in JSON has all.
const WARNINGS_MAX: usize = 12;

/// Summary of reading: every file of a few instruments, or the rules that many of them needed.
pub(crate) fn describe(universe: &Universe) -> String {
    let mut lines = match universe.recordings.len() {
        0..=ONE_BY_ONE_MAX => universe.recordings.iter().map(|recording| recording.summary.to_string()).collect(),
        _ => together(universe),
    };
    if !universe.excluded.is_empty() {
        lines.push(format!("left out, {}:", universe.excluded.len()));
        lines.extend(universe.describe_excluded().iter().map(|line| format!("  {line}")));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn together(universe: &Universe) -> Vec<String> {
    let recordings = &universe.recordings;
    let summaries = || recordings.iter().map(|recording| &recording.summary);
    let files: usize = summaries().map(|summary| summary.files.len()).sum();
    let first = summaries().map(|summary| summary.first_open_time).min().unwrap_or_default();
    let last = summaries().map(|summary| summary.last_close_time).max().unwrap_or_default();
    let bars: u64 = summaries().map(|summary| summary.bars.all).sum();
    let count = recordings.len();
    // A file for each goes without saying; frames are none.
    let files = if files == count { String::new() } else { format!(" of {files} files") };
    let mut lines = vec![format!("{count} instruments{files}: {bars} bars from {} to {}", utc(first), utc(last))];
    let listed = |recordings: Vec<&Recording>, time: &dyn Fn(&Recording) -> String| -> String {
        let count = |recording: &&Recording| {
            format!("{} {} ({} bars)", recording.symbol, time(recording), recording.summary.bars.all)
        };
        format!("{}: {}", recordings.len(), megabatch_bars::listed(&recordings.iter().map(count).collect::<Vec<_>>()))
    };
    let late: Vec<&Recording> = universe.listed_late().collect();
    if !late.is_empty() {
        let first_day = |recording: &Recording| format!("from {}", day(recording.summary.first_open_time));
        lines.push(format!("  listed late, {}", listed(late, &first_day)));
    }
    let ended: Vec<&Recording> = universe.ended_early().collect();
    if !ended.is_empty() {
        let last_day = |recording: &Recording| format!("until {}", day(recording.summary.last_close_time - 1));
        lines.push(format!("  ended early, {}", listed(ended, &last_day)));
    }
    let turned = summaries().flat_map(|summary| &summary.files).filter(|file| file.newest_first).count();
    if turned > 0 {
        lines.push(format!("  written newest first and turned round: {turned} files"));
    }
    lines.extend(own_bars(recordings));
    lines.extend(adjusted(recordings));
    lines.extend(dropped(recordings));
    lines.extend(warnings(recordings));
    lines.extend(clocks(recordings));
    lines
}

/// A warning of files that are read by different clocks.
fn clocks(recordings: &[Recording]) -> Option<String> {
    let mut symbols: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for recording in recordings {
        let mut zones = recording.summary.files.iter().filter_map(|file| file.zone.as_ref());
        if let Some(zone) = zones.next() {
            symbols.entry(zone.to_string()).or_default().push(recording.symbol.clone());
        }
    }
    let clock = |(zone, symbols): (&String, &Vec<String>)| format!("{zone} for {}", megabatch_bars::listed(symbols));
    let clocks: Vec<String> = symbols.iter().map(clock).collect();
    (clocks.len() > 1).then(|| {
        format!("  warning: the files have several clocks: {}; state the zone if they have one", clocks.join("; "))
    })
}

/// A line on bars of longer timeframes from files of their own.
fn own_bars(recordings: &[Recording]) -> Option<String> {
    let all = || recordings.iter().flat_map(|recording| &recording.summary.own);
    let same: u64 = all().map(|own| own.same).sum();
    let compared: u64 = all().map(|own| own.same + own.different.count).sum();
    (all().count() > 0)
        .then(|| format!("  own bars of longer timeframes: {same} of {compared} equal the bars made of the shortest"))
}

fn adjusted(recordings: &[Recording]) -> Vec<String> {
    let (named, unnamed): (Vec<&Adjustments>, Vec<&Adjustments>) =
        adjustments(recordings).partition(|adjusted| adjusted.names_events);
    let mut lines = Vec::new();
    if !named.is_empty() {
        let splits: usize = named.iter().map(|adjusted| adjusted.splits.len()).sum();
        let dividends: u64 = named.iter().map(|adjusted| adjusted.dividends).sum();
        lines
            .push(format!("  prices of {} files adjusted, for {splits} splits and {dividends} dividends", named.len()));
    }
    if !unnamed.is_empty() {
        let changes: u64 = unnamed.iter().map(|adjusted| adjusted.factor_changes).sum();
        lines.push(format!(
            "  prices of {} files adjusted, for splits and dividends that they do not name; their factors change {changes} times",
            unnamed.len()
        ));
    }
    lines
}

fn dropped(recordings: &[Recording]) -> Vec<String> {
    let mut rows: BTreeMap<RowError, u64> = BTreeMap::new();
    let files = recordings.iter().flat_map(|recording| &recording.summary.files);
    files
        .flat_map(|file| &file.dropped)
        .for_each(|tally: &RowCount<RowError>| *rows.entry(tally.kind).or_default() += tally.rows);
    rows.iter().map(|(kind, rows)| format!("  rows dropped as {kind}: {rows}")).collect()
}

/// Warnings about the files of each recording, with its symbol where there are several.
pub(crate) fn file_warnings(recordings: &[Recording]) -> Vec<String> {
    let are_several = recordings.len() > 1;
    let named = |recording: &Recording| -> Vec<String> {
        let warnings = recording.summary.warnings.iter();
        warnings.map(|text| if are_several { format!("{}: {text}", recording.symbol) } else { text.clone() }).collect()
    };
    recordings.iter().flat_map(named).collect()
}

fn warnings(recordings: &[Recording]) -> Vec<String> {
    let mut warnings: Vec<String> =
        file_warnings(recordings).into_iter().map(|warning| format!("  warning: {warning}")).collect();
    let more = warnings.len().saturating_sub(WARNINGS_MAX);
    warnings.truncate(WARNINGS_MAX);
    if more > 0 {
        warnings.push(format!("  and {more} more warnings, which --json lists"));
    }
    warnings
}

/// The summary as JSON: excluded instruments with reasons, late listings, early ends, price
/// adjustments.
pub(crate) fn facts(universe: &Universe) -> Value {
    let symbols = |recordings: &mut dyn Iterator<Item = &Recording>| -> Vec<Value> {
        recordings.map(|recording| recording.symbol.as_str().into()).collect()
    };
    let left_out = universe
        .excluded
        .iter()
        .map(|left_out| json!({ "symbol": left_out.symbol, "reason": left_out.reason.to_string() }));
    let splits = universe.recordings.iter().flat_map(|recording| {
        let splits = adjustments(std::slice::from_ref(recording)).flat_map(|adjusted| &adjusted.splits);
        splits.map(|ShareSplit { open_time, coefficient }| {
            json!({ "symbol": recording.symbol, "date": day(*open_time), "coefficient": coefficient })
        })
    });
    json!({
        "instruments": universe.recordings.len(),
        "bars": universe.recordings.iter().map(|recording| recording.summary.bars.all).sum::<u64>(),
        "left_out": left_out.collect::<Vec<_>>(),
        "listed_late": symbols(&mut universe.listed_late()),
        "ended_early": symbols(&mut universe.ended_early()),
        "splits": splits.collect::<Vec<_>>(),
        "dividends": adjustments(&universe.recordings).map(|adjusted| adjusted.dividends).sum::<u64>(),
        "factor_changes": adjustments(&universe.recordings).map(|adjusted| adjusted.factor_changes).sum::<u64>(),
    })
}

fn adjustments(recordings: &[Recording]) -> impl Iterator<Item = &Adjustments> {
    recordings.iter().flat_map(|recording| &recording.summary.files).filter_map(|file| file.adjusted.as_ref())
}

/// The UTC date of a time.
fn day(time_ns: i64) -> String {
    let mut text = utc(time_ns);
    text.truncate("2021-04-21".len());
    text
}
