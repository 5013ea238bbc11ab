//! `megabatch predict`: a model's outputs for some samples, or for bars as they come.

use std::io;
use std::path::{Path, PathBuf};

use megabatch_run::Result;
use megabatch_run::ingest::{DateOrder, FormatName, OnError, SampleRange, Zone};
use megabatch_run::predict::{
    AtEnd, BarSource, FollowRequest, History, LineForm, LineOutput, PredictRequest, SampleChoice, follow,
    predict_to_file,
};

use super::trained::{CheckpointArg, PartArg, changed_data, instruments, weights};
use crate::answer::{Answer, Form};
use crate::host::host;

/// Write predictions for samples A..B or a part of the data, or for each bar as it closes
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch predict --run runs/first --data series.h5 --samples 0..100 --out predictions.csv
  megabatch predict --run runs/first --split test --out predictions.csv
  megabatch predict --run runs/shares --samples latest --out ranks.csv
  megabatch predict --run runs/carried --follow live.csv --out predictions.csv
  tail -n +1 -f live.csv | megabatch predict --run runs/carried --follow - --json")]
pub(crate) struct Args {
    /// Folder of the run; of a run of several folds each model predicts the test of its own fold
    #[arg(long)]
    run: PathBuf,
    /// Data file [default: the training data]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Samples A..B, half-open, from 0; graphs A..B for a model of whole graphs; or `latest`, the
    /// bars of a series after its last samples, whose targets lie ahead [default: all]
    #[arg(long, value_name = "A..B|latest", value_parser = samples)]
    samples: Option<SampleChoice>,
    /// Part of the data, split as in training [default: all, of a run of several folds the tests]
    #[arg(long, value_enum, conflicts_with = "samples")]
    split: Option<PartArg>,
    /// File to write, .h5 or .csv; optional with --follow. The dataset `predictions` [n, K] holds
    /// numbers, the quantile nearest to the median, or the most probable class. Quantiles and class
    /// probabilities have datasets of their own: `predictions_q0.1`, `predictions_p0`. A .csv has
    /// the targets too, in its last columns
    #[arg(long, required_unless_present = "follow")]
    out: Option<PathBuf>,
    /// Which checkpoint
    #[arg(long, value_enum, default_value_t = CheckpointArg::Best)]
    checkpoint: CheckpointArg,
    /// Compute with 8-bit LSTM weights; `eval --int8` shows the difference
    #[arg(long, conflicts_with = "follow")]
    int8: bool,
    /// Accept that the data of the run have changed since training
    #[arg(long, conflicts_with = "follow")]
    force: bool,
    /// cpu, auto, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Accept instruments that the model was not trained on
    #[arg(long)]
    allow_other_instruments: bool,
    #[command(flatten)]
    following: FollowOptions,
}

/// Options of following: source, start, format.
#[derive(clap::Args)]
#[command(next_help_heading = "Following bars")]
struct FollowOptions {
    /// Predict at each closed bar of a growing file or of standard input (-). Predictions are lines
    /// of CSV, or of JSON with --json or --out FILE.jsonl; without --out they go to standard
    /// output. A model with training.carry_state or training.loss_on: every_step computes one step
    /// a bar; any other recomputes its windows
    #[arg(long, value_name = "BARS", conflicts_with_all = ["samples", "split"])]
    follow: Option<PathBuf>,
    /// Files of earlier bars that initialise the states [default: the bars of the data file]
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "follow", conflicts_with = "cold")]
    history: Vec<PathBuf>,
    /// Start without history; predictions begin once features have warmed up and windows are full
    #[arg(long, requires = "follow")]
    cold: bool,
    /// Instrument of the bars, if the data file has several [default: told by the followed file's
    /// name]
    #[arg(long, requires = "follow")]
    symbol: Option<String>,
    /// Format of the lines [default: as in the data file]
    #[arg(long, requires = "follow")]
    format: Option<FormatName>,
    /// Order of day and month where the year comes last
    #[arg(long, requires = "follow")]
    date_order: Option<DateOrder>,
    /// Zone of the timestamps [default: as stated for the data, or else as the header says]
    #[arg(long, requires = "follow", allow_hyphen_values = true)]
    zone: Option<Zone>,
    /// Treatment of defective lines: fail, skip or repair, as in `ingest` [default: as in the data
    /// file]
    #[arg(long, requires = "follow")]
    on_error: Option<OnError>,
    /// End at the end of the file instead of waiting for more
    #[arg(long, requires = "follow")]
    stop_at_end: bool,
}

pub(crate) fn run(args: &Args, form: Form) -> Result<Answer> {
    match (&args.out, &args.following.follow) {
        (_, Some(bars)) => follow_bars(args, bars, form),
        (Some(out), None) => predict_samples(args, out),
        (None, None) => unreachable!("--out or --follow is required"),
    }
}

fn samples(text: &str) -> std::result::Result<SampleChoice, String> {
    match text {
        "latest" => Ok(SampleChoice::Latest),
        range => match range.parse() {
            Ok(SampleRange(samples)) => Ok(SampleChoice::Range(samples)),
            Err(error) => Err(format!("{error}, or latest")),
        },
    }
}

fn predict_samples(args: &Args, out: &Path) -> Result<Answer> {
    let request = PredictRequest {
        run: args.run.clone(),
        data: args.data.clone(),
        samples: match (&args.samples, args.split) {
            (Some(samples), _) => samples.clone(),
            (None, Some(part)) => SampleChoice::Part(part.into()),
            (None, None) => SampleChoice::Default,
        },
        checkpoint: args.checkpoint.into(),
        weights: weights(args.int8),
        changed_data: changed_data(args.force),
        device: args.device.clone(),
        instruments: instruments(args.allow_other_instruments),
    };
    Ok(predict_to_file(&request, out, &host())?.into())
}

fn follow_bars(args: &Args, bars: &Path, form: Form) -> Result<Answer> {
    let options = &args.following;
    let request = FollowRequest {
        run: args.run.clone(),
        data: args.data.clone(),
        checkpoint: args.checkpoint.into(),
        device: args.device.clone(),
        instruments: instruments(args.allow_other_instruments),
        history: match options.cold {
            true => History::Cold,
            false if options.history.is_empty() => History::OfTheData,
            false => History::Files(options.history.clone()),
        },
        symbol: options.symbol.clone(),
        format: options.format,
        date_order: options.date_order,
        zone: options.zone.clone(),
        on_error: options.on_error,
    };
    let source = match bars == Path::new("-") {
        true => BarSource::Lines { name: "standard input", lines: Box::new(io::stdin().lock()), refused: None },
        false => BarSource::File { path: bars, at_end: if options.stop_at_end { AtEnd::Stop } else { AtEnd::Wait } },
    };
    let output = match &args.out {
        Some(out) => LineOutput::File(out),
        None => LineOutput::Writer {
            writer: Box::new(io::stdout().lock()),
            form: match form {
                Form::Text => LineForm::Csv,
                Form::Json => LineForm::Json,
            },
        },
    };
    let answer = Answer::from(follow(&request, source, output, &host())?);
    Ok(if args.out.is_none() { answer.aside() } else { answer })
}
