//! `megabatch inspect`: what is in a file, what is wrong with it, and what the model will see.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use megabatch_chunk_io::{ColumnStatistics, DatasetEntry, Inspection, Problem, SampleBlock, Shape, Source, inspect};
use megabatch_gpu_core::Device;
use megabatch_trainer::write_atomically;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::json;

use super::windows::SampleRange;
use crate::adapt::split::utc;
use crate::answer::Answer;
use crate::failure::Failure;
use crate::output;
use crate::plan::bytes;

/// Show what is in a data file, what is wrong with it, and what the model will see
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch inspect series.h5
  megabatch inspect series.h5 --dump 0..64 samples.safetensors")]
pub(crate) struct Args {
    /// An HDF5 file of either layout
    file: PathBuf,
    /// Write samples A..B (half-open, from 0) as the model will see them to a safetensors file
    #[arg(long, num_args = 2, value_names = ["A..B", "OUT"])]
    dump: Option<Vec<String>>,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    match args.dump.as_deref() {
        Some([range, out]) => {
            let SampleRange(range) = range.parse().map_err(Failure::usage)?;
            dump(&args.file, range, Path::new(out))
        }
        _ => {
            let inspection = inspect(&args.file)?;
            Ok(Answer::new(describe(&inspection), &inspection))
        }
    }
}

/// Tensors `features` or `features.<TF>` [n, T, F] and `targets` [n, K], f32.
fn dump(file: &Path, range: std::ops::Range<usize>, out: &Path) -> Result<Answer> {
    output::check(out, &[file])?;
    let source = Source::open(file, &Device::cpu().scope("data"))?;
    let shape = source.shape();
    if range.end > shape.samples {
        return Err(Failure::usage(format!(
            "{}: samples {}..{} were asked for, and the file has {}",
            file.display(),
            range.start,
            range.end,
            shape.samples
        )));
    }
    let mut block = SampleBlock::zeros(shape, range.len());
    source.read(range.clone(), block.slices())?;
    write_atomically(out, &to_safetensors(shape, &block)?)?;
    let text = format!("{}: samples {}..{} of {}", out.display(), range.start, range.end, file.display());
    Ok(Answer::new(text, &json!({ "out": out, "samples": range.len() })))
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

fn describe(inspection: &Inspection) -> String {
    let layout = inspection.layout.map_or("no layout of ours".to_owned(), |layout| format!("{layout} layout"));
    let mut text = format!("{}: {layout}, {}\n", inspection.path.display(), bytes(inspection.bytes as usize));
    for (name, value) in &inspection.attributes {
        let value = value.to_string();
        let shown: String = value.chars().take(100).collect();
        text.push_str(&format!("  {name} = {shown}{}\n", if shown.len() < value.len() { "…" } else { "" }));
    }
    if let Some(shape) = &inspection.shape {
        text.push_str(&format!("\n{} samples, {} targets each\n", shape.samples, shape.horizons));
    }
    if let Some(time) = &inspection.time {
        text.push_str(&format!(
            "from {} to {}, largest step {:.1} hours\n",
            utc(time.first),
            utc(time.last),
            time.largest_gap as f64 / 3.6e12
        ));
    }
    for timeframe in &inspection.timeframes {
        let name = timeframe.name.as_deref().unwrap_or("features");
        let bars = timeframe.bars.map_or(String::new(), |bars| format!(" over {bars} bars"));
        text.push_str(&format!("\n{name}: windows of {}{bars}\n", timeframe.steps));
        text.push_str(&columns(&timeframe.features));
    }
    if !inspection.targets.is_empty() {
        text.push_str("\ntargets by horizon\n");
        text.push_str(&columns(&inspection.targets));
    }
    text.push_str("\ndatasets\n");
    inspection.datasets.iter().for_each(|dataset| text.push_str(&dataset_line(dataset)));
    text.push_str(&problems(&inspection.problems));
    text
}

fn columns(columns: &[ColumnStatistics]) -> String {
    let mut text = format!("  {:<24}{:>12}{:>12}{:>12}{:>12}\n", "", "min", "max", "mean", "std");
    for column in columns {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
        text.push_str(&format!(
            "  {:<24}{:>12}{:>12}{:>12}{:>12}\n",
            column.name,
            number(column.min),
            number(column.max),
            number(column.mean),
            number(column.std)
        ));
    }
    text
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

fn problems(problems: &[Problem]) -> String {
    if problems.is_empty() {
        return "\nno problems found\n".to_owned();
    }
    let line = |problem: &Problem| {
        let index = problem.index.iter().map(|k| format!("[{k}]")).collect::<String>();
        format!("{}: {}{index}: {}; {}\n", problem.severity, problem.object, problem.message, problem.fix)
    };
    problems.iter().fold("\n".to_owned(), |text, problem| text + &line(problem))
}
