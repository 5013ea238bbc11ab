//! `megabatch ingest`: bars as text become aligned multi-timeframe series in one HDF5 file.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use megabatch_bars::{
    AlignedSeries, Feature, FormatName, OnError, ReadOptions, ReadSummary, Recording, Scaling, SeriesSpec, StampedAt,
    TargetKind, Timeframe, Window, Zone, align, pip_size_of, read,
};
use megabatch_chunk_io::{Storage, WriteOptions, write_series};
use serde_json::{Value, json};

use super::windows::Windows;
use crate::adapt::series::{Origin, series_file};
use crate::adapt::split::utc;
use crate::answer::Answer;
use crate::output;
use crate::plan::bytes;

/// Read bars and write aligned series: closed bars only, features, targets, scaled on the training span
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch ingest DAT_ASCII_EURUSD_M1_2018.csv.gz --out eurusd.h5 --stride 15
  megabatch ingest bars.csv --out series.h5 --timeframes M1:480,H1:96 --zone +02:00")]
pub(crate) struct Args {
    /// Files of one symbol, in any order; .gz is read as it is
    #[arg(required = true)]
    bars: Vec<PathBuf>,
    /// The series file to write
    #[arg(long)]
    out: PathBuf,
    /// Symbol; taken from the files' names if not given
    #[arg(long)]
    symbol: Option<String>,
    /// Size of a pip in units of the price; known for currency pairs
    #[arg(long, allow_hyphen_values = true)]
    pip_size: Option<f64>,
    /// Format of the files: histdata, metatrader, iso, year-last or epoch; recognised if not given
    #[arg(long)]
    format: Option<FormatName>,
    /// Which end of a bar its timestamp is
    #[arg(long, value_enum, default_value_t = Stamp::Open)]
    time: Stamp,
    /// Zone of the timestamps: UTC, +02:00, America/New_York or new-york+7; found from the weekly closes if not given
    #[arg(long, allow_hyphen_values = true)]
    zone: Option<Zone>,
    /// Timeframe of the bars; found from their spacing if not given
    #[arg(long)]
    base: Option<Timeframe>,
    /// What happens to rows that are unreadable, inconsistent, repeated or out of order: fail, skip (drop and count) or
    /// repair (put right what can be, drop and count the rest)
    #[arg(long, default_value = "fail")]
    on_error: OnError,
    /// Window of each timeframe in bars
    #[arg(long, default_value = "M1:480,M5:288,M15:192,H1:96,H4:48")]
    timeframes: Windows,
    /// Features of a bar, separated by commas, or `default` or `all`
    #[arg(long, default_value = "default")]
    features: FeatureList,
    /// Future bars K whose price changes are the targets
    #[arg(long, default_value_t = 36)]
    horizon: usize,
    /// What is predicted: the change up to each future bar (cumulative) or within it (increment)
    #[arg(long, default_value = "cumulative")]
    target: TargetKind,
    /// Every how many bars there is a sample
    #[arg(long, default_value_t = 1)]
    stride: usize,
    /// How features are scaled: robust (median, interquartile range), standard (mean, deviation) or none
    #[arg(long, default_value = "robust")]
    scaling: Scaling,
    /// Share of the samples, the earliest, on which the scaling is fitted: the first number of data.split
    #[arg(long, default_value_t = 0.7)]
    train_fraction: f64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Stamp {
    /// The bar's beginning
    Open,
    /// The bar's end
    Close,
}

#[derive(Clone, Debug)]
struct FeatureList(Vec<Feature>);

impl std::str::FromStr for FeatureList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "default" => Ok(FeatureList(Feature::DEFAULT.to_vec())),
            "all" => Ok(FeatureList(Feature::ALL.to_vec())),
            names => {
                let features = names.split(',').map(|name| name.trim().parse::<Feature>());
                features.collect::<Result<_, _>>().map(FeatureList).map_err(|error| error.to_string())
            }
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let start = Instant::now();
    output::require_ending(&args.out, &["h5", "hdf5"])?;
    output::check(&args.out, &args.bars.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    let Recording { symbol, bars, summary } = read(&args.bars, &args.read_options())?;
    let spec = args.series_spec(&symbol)?;
    let aligned = align(&bars, &spec)?;
    let mut answer = IngestAnswer::new(args, &summary, &aligned);
    let source = answer.json["source"].to_string();
    let series = series_file(aligned, Origin { symbol: &symbol, spec: &spec, source });
    // Bars are small and read whole: without compression they are read at the speed of the disk.
    write_series(&args.out, &series, &WriteOptions { storage: Storage::Contiguous })?;
    answer.finish(start, std::fs::metadata(&args.out)?.len());
    Ok(Answer::new(answer.text, &answer.json))
}

impl Args {
    fn read_options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            zone: self.zone.clone(),
            stamped_at: match self.time {
                Stamp::Open => StampedAt::Open,
                Stamp::Close => StampedAt::Close,
            },
            base: self.base,
            on_error: self.on_error,
            symbol: self.symbol.clone(),
            ..ReadOptions::default()
        }
    }

    fn series_spec(&self, symbol: &str) -> Result<SeriesSpec> {
        let pip_size = match self.pip_size {
            Some(pip_size) => pip_size,
            None => pip_size_of(symbol)?,
        };
        let window = |&(timeframe, seq_len): &(Timeframe, usize)| Window { timeframe, seq_len };
        Ok(SeriesSpec {
            windows: self.timeframes.0.iter().map(window).collect(),
            features: self.features.0.clone(),
            horizon: self.horizon,
            target_kind: self.target,
            stride: self.stride,
            scaling: self.scaling,
            train_fraction: self.train_fraction,
            pip_size,
        })
    }
}

struct IngestAnswer {
    text: String,
    json: Value,
}

impl IngestAnswer {
    fn new(args: &Args, summary: &ReadSummary, aligned: &AlignedSeries) -> Self {
        let (first, last) = (aligned.sample_time[0], aligned.sample_time[aligned.len() - 1]);
        let mut text = format!("{summary}\n");
        // The summary's text has its own warnings in it.
        let few_kept = few_kept(summary);
        for warning in few_kept.iter().chain(&aligned.warnings) {
            text.push_str(&format!("warning: {warning}\n"));
        }
        for timeframe in &aligned.timeframes {
            text.push_str(&format!(
                "{:>4}: {} bars, windows of {}, {} features\n",
                timeframe.timeframe.name(),
                timeframe.close_time.len(),
                timeframe.seq_len,
                timeframe.features.len()
            ));
        }
        text.push_str(&format!("{} samples from {} to {}", aligned.len(), utc(first), utc(last)));
        let warnings: Vec<&String> = summary.warnings.iter().chain(&few_kept).chain(&aligned.warnings).collect();
        let json = json!({
            "out": args.out,
            "symbol": summary.symbol,
            "samples": aligned.len(),
            "first_sample_time_ns": first,
            "last_sample_time_ns": last,
            "warnings": warnings,
            "source": source_json(summary),
        });
        IngestAnswer { text, json }
    }

    fn finish(&mut self, start: Instant, size: u64) {
        let seconds = start.elapsed().as_secs_f64();
        let out = self.json["out"].as_str().unwrap_or("-");
        self.text.push_str(&format!("\n{out}: {} in {seconds:.2} s", bytes(size as usize)));
        self.json["bytes"] = size.into();
        self.json["seconds"] = seconds.into();
    }
}

/// A warning where repair dropped so many rows that the file is probably not what its reader takes it for.
fn few_kept(summary: &ReadSummary) -> Option<String> {
    let (rows, kept) = (summary.rows(), summary.kept());
    (kept < rows - rows / 20)
        .then(|| format!("only {kept} of {rows} rows were kept; is this one file of bars of one symbol?"))
}

/// What was read, for the answer and for the file's attribute `source`.
fn source_json(summary: &ReadSummary) -> Value {
    let files: Vec<Value> = summary
        .files
        .iter()
        .map(|file| {
            let dropped: serde_json::Map<String, Value> = file
                .dropped
                .iter()
                .map(|tally| (tally.kind.to_string(), json!({ "rows": tally.rows, "first_line": tally.first_line })))
                .collect();
            json!({
                "file": file.path,
                "format": file.format.name(),
                "zone": file.zone.as_ref().map(ToString::to_string),
                "zone_why": file.zone_why,
                "rows": file.rows,
                "kept": file.kept,
                "dropped": dropped,
            })
        })
        .collect();
    json!({
        "base": summary.base.name(),
        "first_open_time_ns": summary.first_open_time,
        "last_close_time_ns": summary.last_close_time,
        "gaps": { "count": summary.gaps.count(), "weekends": summary.gaps.weekends() },
        "files": files,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_page_of_features_lists_them_all_and_marks_the_defaults() {
        let page = include_str!("../../../../docs/features.md");
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let (mut listed, mut default) = (BTreeSet::new(), BTreeSet::new());
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            for name in cells[1].split(',').map(|name| name.trim().trim_matches('`')) {
                listed.insert(name);
                if cells[2] == "yes" {
                    default.insert(name);
                }
            }
        }
        assert_eq!(listed, Feature::ALL.map(Feature::name).into());
        assert_eq!(default, Feature::DEFAULT.map(Feature::name).into());
    }

    #[test]
    fn features_are_chosen_by_name() {
        let chosen: FeatureList = "rsi_14, body".parse().unwrap();
        assert_eq!(chosen.0, [Feature::Rsi14, Feature::Body]);
        assert!("rsi_14,,body".parse::<FeatureList>().is_err());
        assert_eq!("all".parse::<FeatureList>().unwrap().0.len(), Feature::ALL.len());
    }
}
