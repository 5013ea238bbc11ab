//! Contents and faults of a file, and what the model will see of it.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use megabatch_atomic_file as atomic_file;
use megabatch_bars::{Error as BarsError, OnError, ReadOptions, ReadSummary, bar_files, is_bar_file, read, read_all};
use megabatch_chunk_io::{
    AttributeValue, ColumnStatistics, DatasetEntry, Inspection, InstrumentInspection, Problem, SampleBlock, Severity,
    Shape, Source, TimeframeInspection,
};
use megabatch_gpu_core::Device;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};

use crate::adapters::data::refuse_graphs;
use crate::command_report::CommandReport;
use crate::error::{Context as _, Error, Kind, Result};
use crate::ingest::provenance::{LISTS, listed, recording_json};
use crate::output;
use crate::run_folder::RunFolder;
use crate::text::number::seconds;
use crate::text::{bytes, plural, shown, utc};

/// Contents and faults of the data file `file`, and what a model sees of it: an HDF5 file of either
/// layout, or bars as text. Of a folder, those of each such file in it. Data that cannot be used
/// give a verdict of [`Kind::Data`]. The text of a file fits on a screen unless `all` is true; the
/// JSON is the same.
///
/// # Errors
/// A data error for a file that cannot be read, and for a folder without data files; a usage error
/// for the folder of a run.
pub fn inspect(file: &Path, all: bool) -> Result<CommandReport> {
    if file.is_dir() {
        return inspect_folder(file, all);
    }
    if is_bar_file(file) {
        return inspect_text(file, all);
    }
    refuse_graphs(file)?;
    let mut inspection = megabatch_chunk_io::inspect(file)?;
    advise_on_constant_features(&mut inspection);
    let source = IngestFacts::from_inspection(&inspection);
    let text = if all { describe(&inspection, &source) } else { on_a_screen(&inspection, &source) };
    let report = CommandReport::new(text, &with_facts(&inspection, &source)?);
    let is_unusable = inspection.problems.iter().any(|problem| problem.severity == Severity::Error);
    Ok(if is_unusable { report.with_verdict(Kind::Data) } else { report })
}

/// Contents and faults of each data file in a folder. One that cannot be read is named with its
/// error.
fn inspect_folder(folder: &Path, all: bool) -> Result<CommandReport> {
    // A folder of data may have a config.yaml too.
    if RunFolder::open(folder).is_ok_and(|run| run.plan_file().is_file()) {
        return Err(Error::usage(format!(
            "{}: the folder of a run, which `megabatch eval`, `predict`, `compare` and `monitor` read; report.html in it is its report",
            folder.display()
        )));
    }
    let entries = folder.read_dir().with_context(|| format!("{}: cannot be listed", folder.display()))?;
    let mut files = match bar_files(folder) {
        Err(BarsError::EmptyFolder { .. }) => Vec::new(),
        files => files?,
    };
    let is_hdf5 = |file: &PathBuf| {
        let is_hidden = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let ending = file.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        !is_hidden && file.is_file() && ending.is_some_and(|ending| ["h5", "hdf5"].contains(&ending.as_str()))
    };
    files.extend(entries.flatten().map(|entry| entry.path()).filter(is_hdf5));
    files.sort_unstable();
    if files.is_empty() {
        return Err(Error::data(format!(
            "{}: a folder without data files; expected HDF5 files (.h5) or bars as text (.csv), in the folder itself; name a file or their folder",
            folder.display()
        )));
    }
    let (mut texts, mut facts, mut has_faults) = (Vec::new(), Vec::new(), false);
    for file in &files {
        let (text, own) = match inspect(file, all) {
            Ok(report) => {
                has_faults |= report.verdict.is_some();
                (report.to_string(), json!({ "file": shown(file), "contents": report.json }))
            }
            Err(error) => {
                has_faults = true;
                let text = error.to_string();
                (format!("error: {text}"), json!({ "file": shown(file), "error": text }))
            }
        };
        texts.push(text);
        facts.push(own);
    }
    let report = CommandReport::new(texts.join("\n\n"), &json!({ "folder": shown(folder), "files": facts }));
    Ok(if has_faults { report.with_verdict(Kind::Data) } else { report })
}

/// Adds the option of `ingest` that leaves a constant feature out.
fn advise_on_constant_features(inspection: &mut Inspection) {
    let features = inspection.timeframes.iter().flat_map(|timeframe| &timeframe.features);
    let constant: Vec<String> = features.map(|column| format!("column {} is constant at ", column.name)).collect();
    let is_feature = |problem: &&mut Problem| {
        problem.object != "/targets" && constant.iter().any(|message| problem.message.starts_with(message.as_str()))
    };
    let advise = |problem: &mut Problem| problem.fix.push_str(": `ingest --features …` takes the others only");
    inspection.problems.iter_mut().filter(is_feature).for_each(advise);
}

/// Summary that `ingest` would give of a file of bars; rows that cannot be used are counted.
fn inspect_text(file: &Path, all: bool) -> Result<CommandReport> {
    let options = ReadOptions { on_error: OnError::Skip, ..ReadOptions::default() };
    if options.symbols_of(file)?.len() > 1 {
        return inspect_symbols(file, &options, all);
    }
    let recording = read(&[file], &options)?;
    let (path, summary) = (file.display(), recording.summary.to_string());
    let lines: Vec<&str> = summary.lines().collect();
    let shown = if all { lines.len() } else { LINES_MAX - 2 };
    let first = lines.iter().take(shown).map(|line| format!("{line}\n")).collect::<String>();
    let text = format!(
        "{first}{}a file of bars as text; `megabatch ingest {path} --out series.h5` makes a series of it",
        more(lines.len(), shown)
    );
    Ok(CommandReport::new(text, &recording_json(&recording.summary)?))
}

/// Numbers of each symbol of a file that has bars of several.
fn inspect_symbols(file: &Path, options: &ReadOptions, all: bool) -> Result<CommandReport> {
    let universe = read_all(&[file], options)?;
    let summaries = || universe.recordings.iter().map(|recording| &recording.summary);
    let symbols: Vec<Value> = summaries()
        .map(|summary| {
            json!({
                "symbol": summary.symbol,
                "base": summary.base.name(),
                "rows": summary.rows(),
                "bars": summary.bars.all,
                "first_open_time_ns": summary.first_open_time,
                "last_close_time_ns": summary.last_close_time,
                "warnings": summary.warnings,
            })
        })
        .collect();
    let head = ["symbol", "timeframe", "rows", "bars", "first bar", "end of the last"].map(str::to_owned).to_vec();
    let row = |summary: &ReadSummary| {
        let ReadSummary { symbol, base, bars, first_open_time, last_close_time, .. } = summary;
        let counts = [summary.rows(), bars.all].map(|count| count.to_string());
        let times = [*first_open_time, *last_close_time].map(utc);
        [symbol.clone(), base.to_string()].into_iter().chain(counts).chain(times).collect()
    };
    let excluded = universe.describe_excluded();
    // Beside titles, empty lines, the line on those left out, and the sentence at the end.
    let fitting = LINES_MAX.saturating_sub(excluded.len() + 7);
    let printed = if all { usize::MAX } else { SYMBOLS_MAX.min(fitting) };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(summaries().take(printed).map(row)).collect();
    let path = file.display();
    let mut text = format!("{path}: bars of {} symbols\n{}", symbols.len(), table(&rows, 0, 0));
    text.push_str(&more(symbols.len(), printed));
    if !excluded.is_empty() {
        text.push_str("\ncannot be used\n");
        excluded.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    let first = &universe.recordings[0].symbol;
    text.push_str(&format!(
        "\na file of bars as text; `megabatch ingest {path} --out series.h5` makes a series with an instrument for each, `--symbol {first}` one of that alone"
    ));
    let unusable = universe.excluded.iter();
    let unusable = unusable.map(|one| json!({ "symbol": one.symbol, "reason": one.reason.to_string() }));
    let unusable: Vec<Value> = unusable.collect();
    Ok(CommandReport::new(text, &json!({ "file": shown(file), "symbols": symbols, "unusable": unusable })))
}

/// Writes the samples of `range` as a model sees them to the safetensors file `out`: tensors
/// `features` or `features.<TF>` `[n, T, F]` and `targets` `[n, K]`, f32.
///
/// # Errors
/// A usage error for samples that the file does not have, or an output that cannot be written.
pub fn dump(file: &Path, range: Range<usize>, out: &Path) -> Result<CommandReport> {
    output::check(out, &[file])?;
    let source = Source::open(file, &Device::cpu().scope("data"))?;
    let shape = source.shape();
    if range.end > shape.samples {
        return Err(Error::usage(format!(
            "{}: samples {}..{} were asked for, and the file has {}",
            file.display(),
            range.start,
            range.end,
            shape.samples
        )));
    }
    let mut block = SampleBlock::zeros(shape, range.len());
    source.read(range.clone(), block.slices())?;
    atomic_file::write(out, &to_safetensors(shape, &block)?)?;
    let text = format!("{}: samples {}..{} of {}", out.display(), range.start, range.end, file.display());
    Ok(CommandReport::new(text, &json!({ "out": shown(out), "samples": range.len() })))
}

fn to_safetensors(shape: &Shape, block: &SampleBlock) -> Result<Vec<u8>> {
    let n = block.samples;
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (timeframe, values) in shape.timeframes.iter().zip(&block.features) {
        let name = timeframe.name.as_ref().map_or("features".to_owned(), |name| format!("features.{name}"));
        tensors.push((name, vec![n, timeframe.steps, timeframe.features], little_endian(values)));
    }
    tensors.push(("targets".to_owned(), vec![n, shape.horizons], little_endian(&block.targets)));
    let views =
        tensors.iter().map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)));
    Ok(serialize(views.collect::<Result<Vec<_>>>()?, None::<HashMap<String, String>>)?)
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Facts that `ingest` wrote into the attribute `source`, if the file has it.
struct IngestFacts {
    /// Price change of one unit of the targets, by instrument.
    pip_sizes: HashMap<String, f64>,
    /// Clock of the bins of longer timeframes, other than UTC.
    bins: Option<String>,
    /// Rule by which the features are scaled.
    scaling: Option<String>,
}

impl IngestFacts {
    fn from_inspection(inspection: &Inspection) -> Self {
        let source: Value = match inspection.attributes.get("source") {
            Some(AttributeValue::Text(text)) => serde_json::from_str(text).unwrap_or_default(),
            _ => Value::Null,
        };
        let told = listed(&source, LISTS[0])
            .filter_map(|told| Some((told["symbol"].as_str()?.to_owned(), told["pip_size"].as_f64()?)));
        let option = |name: &str| {
            let mut words = listed(&source, "recipe").filter_map(Value::as_str);
            words.find_map(|word| word.strip_prefix(name)).map(str::to_owned)
        };
        IngestFacts {
            pip_sizes: told.collect(),
            bins: option("--bins="),
            scaling: option("--scaling=").filter(|scaling| scaling != "none"),
        }
    }

    fn pip_size(&self, instrument: &str) -> Option<f64> {
        self.pip_sizes.get(instrument).copied()
    }
}

fn with_facts(inspection: &Inspection, source: &IngestFacts) -> Result<Value> {
    let mut json = serde_json::to_value(inspection)?;
    for (k, instrument) in inspection.instruments.iter().enumerate() {
        json["instruments"][k]["pip_size"] = json!(source.pip_size(&instrument.name));
    }
    if let Some(bins) = &source.bins {
        json["bins"] = json!(bins);
    }
    Ok(json)
}

/// Lines that fit on a screen.
const LINES_MAX: usize = 40;
/// Rows of each list that are printed on a screen, where there are few lists.
const ROWS_MAX: usize = 8;

/// The text that a screen has space for.
fn on_a_screen(inspection: &Inspection, source: &IngestFacts) -> String {
    let mut texts = (1..=ROWS_MAX).rev().map(|rows| summary(inspection, source, rows));
    let fitting = texts.find(|text| text.lines().count() <= LINES_MAX);
    fitting.unwrap_or_else(|| summary(inspection, source, 1))
}

/// The file with about `rows` rows of each list, and statistics of the shortest timeframe's
/// features.
fn summary(inspection: &Inspection, source: &IngestFacts, rows: usize) -> String {
    let mut text = head(inspection);
    let attributes = inspection.attributes.iter().map(|(name, value)| format!("{name} = {value}"));
    let short = attributes.filter(|line| line.chars().count() <= ATTRIBUTE_MAX && !line.contains('\n'));
    let short: Vec<String> = short.take(ATTRIBUTES_MAX).collect();
    if !short.is_empty() {
        text.push_str(&format!("  {}\n", short.join(", ")));
    }
    text.push_str(&overview(inspection, source));
    text.push_str(&instruments(inspection, source, rows));
    let timeframes = &inspection.timeframes;
    let shown = rows.max(TIMEFRAMES_MIN);
    for (place, timeframe) in timeframes.iter().take(shown).enumerate() {
        let features = plural(timeframe.features.len(), "feature");
        let start = if place == 0 { "\n" } else { "" };
        text.push_str(&format!("{start}{}, {features}\n", windows(timeframe)));
    }
    text.push_str(&more(timeframes.len(), shown));
    if let Some(first) = timeframes.first() {
        let name = first.name.as_ref().map_or(String::new(), |name| format!(" of {name}"));
        text.push_str(&format!("\nfeatures{name}\n{}", columns(&first.features, rows)));
    }
    if !inspection.targets.is_empty() {
        text.push_str(&format!("\ntargets by horizon\n{}", columns(&inspection.targets, rows)));
    }
    text.push_str(&verified(inspection));
    text.push_str(&format!(
        "\n`--all` prints all attributes and {}, and the features of each timeframe\n",
        plural(inspection.datasets.len(), "dataset")
    ));
    text.push_str(&problems(&inspection.problems, rows.max(PROBLEMS_MIN)));
    text
}

/// Attributes that are printed on a screen.
const ATTRIBUTES_MAX: usize = 10;
/// Characters of such an attribute.
const ATTRIBUTE_MAX: usize = 40;
/// Timeframes that are printed on a screen in any case.
const TIMEFRAMES_MIN: usize = 5;
/// Problems that are printed on a screen in any case.
const PROBLEMS_MIN: usize = 4;

/// The file's name, layout and size.
fn head(inspection: &Inspection) -> String {
    let layout = inspection.layout.map_or("no layout of ours".to_owned(), |layout| format!("{layout} layout"));
    format!("{}: {layout}, {}\n", inspection.path.display(), bytes(inspection.bytes as usize))
}

fn describe(inspection: &Inspection, source: &IngestFacts) -> String {
    let mut text = head(inspection);
    for (name, value) in &inspection.attributes {
        let value = value.to_string();
        let shown: String = value.chars().take(100).collect();
        text.push_str(&format!("  {name} = {shown}{}\n", if shown.len() < value.len() { "…" } else { "" }));
    }
    text.push_str(&overview(inspection, source));
    text.push_str(&instruments(inspection, source, usize::MAX));
    for timeframe in &inspection.timeframes {
        text.push_str(&format!("\n{}\n{}", windows(timeframe), columns(&timeframe.features, usize::MAX)));
    }
    if !inspection.targets.is_empty() {
        text.push_str(&format!("\ntargets by horizon\n{}", columns(&inspection.targets, usize::MAX)));
    }
    text.push_str(&verified(inspection));
    text.push_str("\ndatasets\n");
    inspection.datasets.iter().for_each(|dataset| text.push_str(&dataset_line(dataset)));
    text.push_str(&problems(&inspection.problems, usize::MAX));
    text
}

/// Numbers of the samples, their times, and what was done to the bars.
fn overview(inspection: &Inspection, source: &IngestFacts) -> String {
    let mut text = String::new();
    if let Some(shape) = &inspection.shape {
        text.push_str(&format!("\n{} samples, {} targets each\n", shape.samples, shape.horizons));
    }
    if let Some(time) = &inspection.time {
        text.push_str(&format!(
            "from {} to {}, largest step {}\n",
            utc(time.first),
            utc(time.last),
            seconds(time.largest_gap as f64 / 1e9)
        ));
    }
    if let Some(bins) = &source.bins {
        text.push_str(&format!("bars made from shorter ones start by the clock {bins}\n"));
    }
    if let Some(scaling) = &source.scaling {
        text.push_str(&format!("features are scaled, {scaling}: their values are not those of the bars\n"));
    }
    text
}

/// Windows of a timeframe and its bars.
fn windows(timeframe: &TimeframeInspection) -> String {
    let name = timeframe.name.as_deref().unwrap_or("features");
    let bars = timeframe.bars.map_or(String::new(), |bars| format!(" over {bars} bars"));
    format!("{name}: windows of {}{bars}", timeframe.steps)
}

fn verified(inspection: &Inspection) -> String {
    inspection.fingerprint.as_ref().map_or(String::new(), |fingerprint| {
        format!("\nverified when it was written and now, fingerprint {fingerprint}\n")
    })
}

/// A line an instrument, where the file names any, of the first `shown`.
fn instruments(inspection: &Inspection, source: &IngestFacts, shown: usize) -> String {
    if inspection.instruments.is_empty() {
        return String::new();
    }
    let timeframes: Vec<&str> =
        inspection.timeframes.iter().filter_map(|timeframe| timeframe.name.as_deref()).collect();
    let bars = timeframes.iter().map(|timeframe| format!("{timeframe} bars"));
    let head = std::iter::once(String::new()).chain(bars);
    let head = head.chain(["samples", "first sample", "last sample", "pip size"].map(str::to_owned)).collect();
    let row = |instrument: &InstrumentInspection| {
        let bars = timeframes.iter().map(|&timeframe| instrument.bars[timeframe].to_string());
        let time = |time: Option<i64>| time.map_or("-".to_owned(), |time| utc(time).to_string());
        let pip_size = source.pip_size(&instrument.name).map_or("-".to_owned(), |size| size.to_string());
        let (first, last) = (time(instrument.first_sample_time), time(instrument.last_sample_time));
        std::iter::once(instrument.name.clone())
            .chain(bars)
            .chain([instrument.samples.to_string(), first, last, pip_size])
            .collect()
    };
    let all = &inspection.instruments;
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(all.iter().take(shown).map(row)).collect();
    format!("\n{}\n{}{}", plural(all.len(), "instrument"), table(&rows, 0, 0), more(all.len(), shown))
}

fn columns(columns: &[ColumnStatistics], shown: usize) -> String {
    let head = ["", "min", "max", "mean", "std"].map(str::to_owned).to_vec();
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
    let row = |column: &ColumnStatistics| {
        let ColumnStatistics { name, min, max, mean, std, .. } = column;
        std::iter::once(name.clone()).chain([min, max, mean, std].map(|value| number(*value))).collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(columns.iter().take(shown).map(row)).collect();
    table(&rows, 24, 10) + &more(columns.len(), shown)
}

/// Symbols of a file of bars that are printed on a screen.
const SYMBOLS_MAX: usize = 24;

/// A line on the number of rows that are left out.
fn more(rows: usize, shown: usize) -> String {
    match rows.checked_sub(shown) {
        Some(more @ 1..) => format!("  … and {more} more, which --json lists\n"),
        _ => String::new(),
    }
}

/// Lines of cells, two blanks apart: the first flush left, the others flush right. `first` and
/// `others` are minimum widths, so that tables of a page have the same shape.
fn table(rows: &[Vec<String>], first: usize, others: usize) -> String {
    let width = |k: usize| {
        let longest = rows.iter().map(|row| row[k].chars().count()).max().unwrap_or(0);
        longest.max(if k == 0 { first } else { others })
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row[1..].iter().zip(&widths[1..]).map(|(cell, width)| format!("  {cell:>width$}"));
        format!("  {:<width$}{}\n", row[0], cells.collect::<String>(), width = widths[0])
    };
    rows.iter().map(line).collect()
}

fn dataset_line(dataset: &DatasetEntry) -> String {
    let storage = match &dataset.chunk {
        Some(chunk) => format!("chunks of {chunk:?}"),
        None => "contiguous".to_owned(),
    };
    let filters = if dataset.filters.is_empty() { String::new() } else { format!(", {}", dataset.filters.join("+")) };
    let (path, shape, dtype) = (&dataset.path, format!("{:?}", dataset.shape), &dataset.dtype);
    let size = bytes(dataset.bytes_on_disk as usize);
    format!("  {path:<24} {shape:<22} {dtype:<10} {storage}{filters}, {size}\n")
}

fn problems(problems: &[Problem], shown: usize) -> String {
    if problems.is_empty() {
        return "\nno problems found\n".to_owned();
    }
    let place = |problem: &Problem| {
        let index = problem.index.iter().map(|k| format!("[{k}]")).collect::<String>();
        format!("{}{index}", problem.object)
    };
    let same = |a: &Problem, b: &Problem| (a.severity, &a.message, &a.fix) == (b.severity, &b.message, &b.fix);
    let mut lines = Vec::new();
    for (k, problem) in problems.iter().enumerate() {
        if problems[..k].iter().any(|earlier| same(earlier, problem)) {
            continue;
        }
        // One problem of several objects is told once.
        let places: Vec<String> = problems.iter().filter(|other| same(other, problem)).map(place).collect();
        lines.push(format!("{}: {}: {}; {}\n", problem.severity, places.join(", "), problem.message, problem.fix));
    }
    let first = lines.iter().take(shown).map(String::as_str).collect::<String>();
    format!("\n{first}{}", more(lines.len(), shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_left_out_are_counted() {
        assert_eq!((more(12, 12).as_str(), more(14, 12).trim()), ("", "… and 2 more, which --json lists"));
    }

    #[test]
    fn wide_cells_widen_their_column_and_touch_nothing() {
        let rows = [["", "min", "max"], ["volume", "-2050000.0000", "2290000.0000"], ["€", "0.0000", "1.0000"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let expected = [
            format!("  {:<6}  {:>13}  {:>12}", "", "min", "max"),
            "  volume  -2050000.0000  2290000.0000".to_owned(),
            format!("  {:<6}  {:>13}  {:>12}", "€", "0.0000", "1.0000"),
        ];
        assert_eq!(table(&rows, 0, 10).lines().collect::<Vec<_>>(), expected);
        assert!(table(&rows[2..], 24, 10).starts_with(&format!("  {:<24}      0.0000", "€")));
    }
}
