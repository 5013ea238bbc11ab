//! Says what is found in files of bars: one row of a Markdown table a file and treatment of errors.
//!
//! `cargo run --release --example survey -- FILES…`

use std::path::Path;

use megabatch_bars::{FileSummary, GapKind, OnError, ReadOptions, ReadSummary, read};

const HEADER: &str = "\
| file | mode | format, clock | rows | bars | dropped | put right | gaps | longest gap | weekends | flat | without volume | warnings |
| --- | --- | --- | --: | --: | --- | --- | --- | --- | --: | --: | --: | --: |";

fn main() {
    println!("{HEADER}");
    for path in std::env::args().skip(1) {
        let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        for on_error in OnError::ALL {
            let options = ReadOptions { on_error, ..ReadOptions::default() };
            match read(&[&path], &options) {
                Ok(recording) => println!("| {name} | {on_error} | {} |", found(&recording.summary)),
                Err(error) => println!("| {name} | {on_error} | refused: {} |", refusal(&error.to_string(), &path)),
            }
        }
    }
}

/// The error without the folder of the file, which differs from machine to machine.
fn refusal(error: &str, path: &str) -> String {
    error.replace(&format!("{path}: "), "").replace('|', "\\|")
}

fn found(summary: &ReadSummary) -> String {
    let file = &summary.files[0];
    let gap_kinds = summary.gaps.kinds.iter().filter(|count| count.kind != GapKind::Weekend).map(ToString::to_string);
    let cells = [
        clock(file),
        file.rows.to_string(),
        summary.bars.all.to_string(),
        listed(file.dropped.iter().map(|tally| format!("{} {}", tally.rows, tally.kind))),
        listed(file.fixed.iter().map(|tally| format!("{} {}", tally.rows, tally.kind))),
        listed(gap_kinds),
        summary.gaps.longest.first().map_or_else(String::new, ToString::to_string),
        summary.gaps.weekends().to_string(),
        share(summary.bars.flat, summary.bars.all),
        share(summary.bars.without_volume, summary.bars.all),
        listed(summary.warnings.iter().cloned()),
    ];
    cells.join(" | ")
}

fn clock(file: &FileSummary) -> String {
    match &file.zone {
        Some(zone) => format!("{}, {zone}", file.format),
        None => format!("{}, in each row", file.format),
    }
}

fn listed(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join("; ")
}

fn share(part: u64, all: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / all as f64)
}
