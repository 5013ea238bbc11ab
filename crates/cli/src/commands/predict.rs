//! `megabatch predict`: a model's outputs for some samples.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::Result;
use megabatch_chunk_io::{Predictions, SampleInstruments, write_predictions};
use megabatch_trainer::{Samples, Selection, write_atomically};
use serde_json::json;

use super::windows::SampleRange;
use crate::answer::Answer;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::trained::{Trained, Which};

/// Write what a model predicts for samples A..B
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  megabatch predict --run runs/first --data series.h5 --samples 0..100 --out predictions.csv"
)]
pub(crate) struct Args {
    /// Folder of the run
    #[arg(long)]
    run: PathBuf,
    /// Data file; the one trained on if not given
    #[arg(long)]
    data: Option<PathBuf>,
    /// Samples A..B, half-open, from 0; all if not given
    #[arg(long, value_name = "A..B")]
    samples: Option<SampleRange>,
    /// File to write: .h5, with a dataset `predictions` [n, K], or .csv
    #[arg(long)]
    out: PathBuf,
    /// Which checkpoint
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let format = Format::of(&args.out)?;
    let mut trained = Trained::open(&args.run, args.data.as_deref(), args.checkpoint)?;
    output::check(&args.out, &[trained.data.path()])?;
    let range = args.samples.as_ref().map_or(0..trained.units(), |samples| samples.0.clone());
    if range.end > trained.units() {
        let file = trained.data.path().display();
        return Err(Failure::usage(format!(
            "--samples {}..{}: {file} has {} samples",
            range.start,
            range.end,
            trained.units()
        )));
    }
    let indices: Vec<usize> = range.clone().collect();
    let Trained { samples, predictor, .. } = &mut trained;
    let horizons = samples.shape().outputs;
    let mut values: Vec<f32> = Vec::with_capacity(indices.len() * horizons);
    let mut progress = Progress::start("predict", indices.len() as u64, "samples");
    predictor.predict(Selection { samples: &*samples, indices: &indices }, |_, batch| {
        values.extend_from_slice(batch);
        progress.at((values.len() / horizons) as u64, "");
        Ok::<(), megabatch_trainer::Error>(())
    })?;
    let source = samples.source();
    let predictions = Predictions {
        values: &values,
        horizons,
        sample_times: source.sample_times().map(|times| &times[range.clone()]),
        instruments: source
            .sample_instruments()
            .map(|all| SampleInstruments { names: source.instruments(), of_sample: &all[range.clone()] }),
    };
    match format {
        Format::Csv => write_atomically(&args.out, to_csv(range.start, &predictions).as_bytes())?,
        Format::Hdf5 => write_predictions(&args.out, &predictions)?,
    }
    let text = format!("{}: {} predictions of {horizons} horizons", args.out.display(), indices.len());
    Ok(Answer::new(
        text,
        &json!({ "out": args.out, "samples": indices.len(), "horizons": horizons, "step": trained.step }),
    ))
}

#[derive(Clone, Copy)]
enum Format {
    Csv,
    Hdf5,
}

impl Format {
    /// The format that the file's ending asks for.
    fn of(out: &Path) -> Result<Self> {
        match out.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Format::Csv),
            Some("h5" | "hdf5") => Ok(Format::Hdf5),
            _ => output::require_ending(out, &["h5", "csv"]).map(|()| Format::Hdf5),
        }
    }
}

/// One line a sample: its index, its time and its instrument where known, and a column a horizon.
fn to_csv(first: usize, predictions: &Predictions<'_>) -> String {
    let Predictions { values, horizons, sample_times, instruments } = *predictions;
    let mut csv = "sample".to_owned();
    if sample_times.is_some() {
        csv.push_str(",time");
    }
    if instruments.is_some() {
        csv.push_str(",instrument");
    }
    (1..=horizons).for_each(|horizon| csv.push_str(&format!(",h{horizon}")));
    csv.push('\n');
    for (k, row) in values.chunks_exact(horizons).enumerate() {
        csv.push_str(&format!("{}", first + k));
        if let Some(times) = sample_times {
            let time = jiff::Timestamp::from_nanosecond(times[k].into()).expect("64 bits of nanoseconds are a time");
            csv.push_str(&format!(",{time}"));
        }
        if let Some(instruments) = instruments {
            let name = instruments.name(k).expect("an open file names the instrument of each sample");
            csv.push_str(&format!(",{}", csv_field(name)));
        }
        row.iter().for_each(|value| csv.push_str(&format!(",{value}")));
        csv.push('\n');
    }
    csv
}

/// A field of a CSV, in quotes where it could be taken for several (RFC 4180).
fn csv_field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_sample_with_its_time_and_horizons() {
        let predictions = Predictions {
            values: &[1.5, -2.0, 0.25, 3.0],
            horizons: 2,
            sample_times: Some(&[0, 60_000_000_000]),
            instruments: None,
        };
        assert_eq!(
            to_csv(7, &predictions),
            "sample,time,h1,h2\n7,1970-01-01T00:00:00Z,1.5,-2\n8,1970-01-01T00:01:00Z,0.25,3\n"
        );
        let untimed = Predictions { sample_times: None, ..predictions };
        assert_eq!(to_csv(0, &untimed), "sample,h1,h2\n0,1.5,-2\n1,0.25,3\n");
        let names = ["EURUSD", "\"A, B\""].map(str::to_owned);
        let instruments = Some(SampleInstruments { names: &names, of_sample: &[1, 0] });
        assert_eq!(
            to_csv(0, &Predictions { instruments, ..untimed }),
            "sample,instrument,h1,h2\n0,\"\"\"A, B\"\"\",1.5,-2\n1,EURUSD,0.25,3\n"
        );
    }
}
