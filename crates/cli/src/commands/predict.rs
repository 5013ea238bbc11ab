//! `megabatch predict`: a model's outputs for some samples.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use megabatch_chunk_io::{Predictions, SampleInstruments, Source, write_predictions};
use megabatch_trainer::{Graphs, Readout, Selection, write_atomically};
use serde_json::json;

use super::windows::SampleRange;
use crate::adapt::data::Data;
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
    /// Samples A..B, or graphs where a model predicts these as wholes, half-open, from 0; all if not given
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
    let Trained { data, predictor, .. } = &mut trained;
    let rows = Rows::of(data, predictor.model().config().readout);
    let range = args.samples.as_ref().map_or(0..rows.len(), |samples| samples.0.clone());
    if range.end > rows.len() {
        let file = data.path().display();
        let (Range { start, end }, found) = (&range, rows.len());
        return Err(Failure::usage(format!("--samples {start}..{end}: {file} has {found} {}", rows.name())));
    }
    let horizons = data.samples().shape().outputs;
    // What is in no graph stays unknown.
    let mut values = vec![f32::NAN; range.len() * horizons];
    let mut progress = Progress::start("predict", range.len() as u64, rows.name());
    let (indices, mut done) = (rows.units(&range), 0);
    predictor.predict(Selection { samples: data.samples(), indices: &indices }, |rows, batch| {
        for (row, predicted) in rows.iter().zip(batch.chunks_exact(horizons)).filter(|(row, _)| range.contains(row)) {
            values[(row - range.start) * horizons..][..horizons].copy_from_slice(predicted);
            done += 1;
        }
        progress.at(done, "");
        Ok::<(), megabatch_trainer::Error>(())
    })?;
    let source = data.source();
    let predictions = Predictions {
        values: &values,
        horizons,
        sample_times: source.and_then(Source::sample_times).map(|times| &times[range.clone()]),
        instruments: source.and_then(|source| {
            let of_sample = &source.sample_instruments()?[range.clone()];
            Some(SampleInstruments { names: source.instruments(), of_sample })
        }),
    };
    match format {
        Format::Csv => write_atomically(&args.out, to_csv(range.start, &predictions).as_bytes())?,
        Format::Hdf5 => write_predictions(&args.out, &predictions)?,
    }
    let text = format!("{}: {} predictions of {horizons} horizons", args.out.display(), range.len());
    Ok(Answer::new(
        text,
        &json!({ "out": args.out, "samples": range.len(), "horizons": horizons, "step": trained.step }),
    ))
}

/// What is predicted, a row each.
enum Rows<'a> {
    /// Samples that stand alone, or graphs as wholes.
    Units { count: usize, name: &'static str },
    /// Samples that are the nodes of graphs.
    Nodes { count: usize, graphs: &'a dyn Graphs },
}

impl<'a> Rows<'a> {
    fn of(data: &'a Data, readout: Option<Readout>) -> Self {
        match (readout, data.samples().graphs()) {
            (Some(Readout::Node), Some(graphs)) => Rows::Nodes { count: data.samples().len(), graphs },
            (Some(_), _) => Rows::Units { count: data.units(), name: "graphs" },
            (None, _) => Rows::Units { count: data.units(), name: "samples" },
        }
    }

    fn len(&self) -> usize {
        match self {
            Rows::Units { count, .. } | Rows::Nodes { count, .. } => *count,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Rows::Units { name, .. } => name,
            Rows::Nodes { .. } => "samples",
        }
    }

    /// The units to be computed for the rows of `range`: graphs are computed whole.
    fn units(&self, range: &Range<usize>) -> Vec<usize> {
        match self {
            Rows::Units { .. } => range.clone().collect(),
            Rows::Nodes { graphs, .. } => {
                let has_some = |&graph: &usize| graphs.nodes(graph).iter().any(|sample| range.contains(sample));
                (0..graphs.len()).filter(has_some).collect()
            }
        }
    }
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
