//! Predictions of samples in a file: those of one model, or of the models of several folds.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use megabatch_atomic_file as atomic_file;
use megabatch_chunk_io::{Predictions, SampleInstruments, write_predictions};
use serde_json::json;

use super::folds::predict_checked;
use super::samples::{InstrumentsOfSamples, PredictRequest, Predicted};
use crate::command_report::CommandReport;
use crate::error::Result;
use crate::host::{Host, PATIENCE};
use crate::output;
use crate::text::{plural, shown};
use crate::trained::Weights;

/// Predicts samples and writes them to `out`: `.h5`, with a dataset `predictions` `[n, K]` and one
/// for each name, or `.csv`, with the targets beside them.
///
/// # Errors
/// The errors of [`predict`](super::predict), a usage error for an output that cannot be written.
pub fn predict_to_file(request: &PredictRequest, out: &Path, host: &Host<'_>) -> Result<CommandReport> {
    host.cancel.watch(PATIENCE)?;
    let format = Format::from_path(out)?;
    let predicted = predict_checked(request, host, |trained, data| {
        let bars = trained.bar_files()?;
        output::check(out, &bars.iter().map(PathBuf::as_path).chain([data]).collect::<Vec<_>>())
    })?;
    write(&predicted, format, out)?;
    let Predicted { samples, values, named, horizons, folds, step, notes, target, device, .. } = &predicted;
    let samples = samples.len();
    let unknown = values.chunks_exact((*horizons).max(1)).filter(|row| row.iter().all(|x| x.is_nan())).count();
    let targets = plural(*horizons, target);
    let mut text = format!("{}: {} predictions of {targets}", out.display(), samples - unknown);
    // Every fold has a test.
    let folds = folds.as_ref().map(|folds| folds.last().copied().unwrap_or(0));
    if let Some(folds) = folds {
        text.push_str(&format!(" by the models of {folds} folds, each for the test of its own"));
    }
    if unknown > 0 {
        text.push_str(&format!("; {unknown} rows without one are NaN: these samples are in no graph"));
    }
    text.extend(notes.iter().map(|note| format!("\nnote: {note}")));
    let mut json = json!({
        "out": shown(out),
        "samples": samples,
        "predictions": samples - unknown,
        "horizons": horizons,
        "named": named.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "step": step,
        "int8": request.weights == Weights::Int8,
        "device": device,
        "notes": notes,
    });
    if let Some(folds) = folds {
        json["folds"] = folds.into();
    }
    Ok(CommandReport::new(text, &json))
}

fn write(predicted: &Predicted, format: Format, out: &Path) -> Result<()> {
    let numbers: Vec<i64> = predicted.samples.iter().map(|sample| sample as i64).collect();
    let instruments = predicted.instruments.as_ref();
    let predictions = Predictions {
        samples: &numbers,
        values: &predicted.values,
        named: &predicted.named,
        horizons: predicted.horizons,
        sample_times: predicted.sample_times.as_deref(),
        instruments: instruments
            .map(|InstrumentsOfSamples { names, name_indices }| SampleInstruments { names, name_indices }),
        folds: predicted.folds.as_deref(),
    };
    match format {
        Format::Csv => {
            let targets = TargetColumns::all(predicted.true_classes.as_deref(), &predicted.targets);
            atomic_file::write(out, to_csv(&predictions, &targets, predicted.has_ordinal_times).as_bytes())?;
        }
        Format::Hdf5 => write_predictions(out, &predictions)?,
    }
    Ok(())
}

/// Columns of what predictions are held against: `target1` with what follows the number, and so on.
struct TargetColumns<'a> {
    suffix: &'static str,
    /// `[n, columns]`; nothing where none is known.
    rows: &'a [f32],
}

impl<'a> TargetColumns<'a> {
    /// The targets; beside predicted classes the true ones, and the targets as values.
    fn all(true_classes: Option<&'a [f32]>, targets: &'a [f32]) -> Vec<Self> {
        match true_classes {
            Some(rows) => vec![TargetColumns { suffix: "", rows }, TargetColumns { suffix: "_value", rows: targets }],
            None => vec![TargetColumns { suffix: "", rows: targets }],
        }
    }

    /// Rows of so many samples, unless none is known.
    fn rows(&self, samples: usize) -> std::slice::Chunks<'a, f32> {
        let known: &[f32] = if self.rows.iter().all(|target| target.is_nan()) { &[] } else { self.rows };
        known.chunks((known.len() / samples.max(1)).max(1))
    }
}

#[derive(Clone, Copy)]
enum Format {
    Csv,
    Hdf5,
}

impl Format {
    /// The format that the file's ending asks for.
    fn from_path(out: &Path) -> Result<Self> {
        match out.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Format::Csv),
            Some("h5" | "hdf5") => Ok(Format::Hdf5),
            _ => output::require_ending(out, &["h5", "csv"]).map(|()| Format::Hdf5),
        }
    }
}

/// One line for each sample: its index, fold, time and instrument if known, a column for each
/// horizon, then named columns, and last the `targets` that are known.
fn to_csv(predictions: &Predictions<'_>, targets: &[TargetColumns<'_>], has_ordinal_times: bool) -> String {
    let Predictions { samples, values, named, horizons, sample_times, instruments, folds } = *predictions;
    let mut csv = "sample".to_owned();
    if folds.is_some() {
        csv.push_str(",fold");
    }
    if sample_times.is_some() {
        csv.push_str(",time");
    }
    if instruments.is_some() {
        csv.push_str(",instrument");
    }
    (1..=horizons).for_each(|horizon| csv.push_str(&format!(",h{horizon}")));
    // A name that one task alone has says nothing of the horizons of others.
    let has_any =
        |values: &[f32], k: usize| values.is_empty() || values.iter().skip(k).step_by(horizons).any(|x| !x.is_nan());
    let columns_of = |(name, values): &(String, Vec<f32>)| {
        let is_of_task = name.starts_with('t');
        (0..horizons).filter(|&k| !is_of_task || has_any(values, k)).collect::<Vec<usize>>()
    };
    let columns: Vec<Vec<usize>> = named.iter().map(columns_of).collect();
    for ((name, _), columns) in named.iter().zip(&columns) {
        columns.iter().for_each(|k| csv.push_str(&format!(",h{}_{name}", k + 1)));
    }
    for columns in targets {
        let count = columns.rows(samples.len()).next().map_or(0, <[f32]>::len);
        (1..=count).for_each(|target| csv.push_str(&format!(",target{target}{}", columns.suffix)));
    }
    csv.push('\n');
    let mut targets: Vec<_> = targets.iter().map(|columns| columns.rows(samples.len())).collect();
    for (k, row) in values.chunks_exact(horizons).enumerate() {
        csv.push_str(&samples[k].to_string());
        if let Some(folds) = folds {
            csv.push_str(&format!(",{}", folds[k]));
        }
        if let Some(times) = sample_times {
            let time = jiff::Timestamp::from_nanosecond(times[k].into()).expect("64 bits of nanoseconds are a time");
            let text = if has_ordinal_times { times[k].to_string() } else { time.to_string() };
            csv.push_str(&format!(",{text}"));
        }
        if let Some(instruments) = instruments {
            let name = instruments.name(k).expect("an open file names the instrument of each sample");
            csv.push_str(&format!(",{}", csv_field(name)));
        }
        let picked = |values: &[f32], columns: &[usize]| {
            columns.iter().map(|at| values[k * horizons + at]).collect::<Vec<f32>>()
        };
        let all = named.iter().zip(&columns).flat_map(|((_, values), columns)| picked(values, columns));
        let known = targets.iter_mut().filter_map(Iterator::next).flatten().copied();
        row.iter().copied().chain(all).chain(known).for_each(|value| csv.push_str(&format!(",{value}")));
        csv.push('\n');
    }
    csv
}

/// A field of a CSV, in quotes where it needs them (RFC 4180).
pub(super) fn csv_field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use megabatch_nn::loss::{Ascending, Loss};

    use super::super::samples::by_name;
    use super::*;

    #[test]
    fn a_line_is_a_sample_with_its_time_and_horizons() {
        let predictions = Predictions {
            samples: &[7, 12],
            values: &[1.5, -2.0, 0.25, 3.0],
            named: &[],
            horizons: 2,
            sample_times: Some(&[0, 60_000_000_000]),
            instruments: None,
            folds: None,
        };
        assert_eq!(
            to_csv(&predictions, &[], false),
            "sample,time,h1,h2\n7,1970-01-01T00:00:00Z,1.5,-2\n12,1970-01-01T00:01:00Z,0.25,3\n"
        );
        // An ordinal was a moment of 1970.
        let ordinal = Predictions { sample_times: Some(&[13, 26]), ..predictions };
        assert_eq!(to_csv(&ordinal, &[], true), "sample,time,h1,h2\n7,13,1.5,-2\n12,26,0.25,3\n");
        let untimed = Predictions { samples: &[0, 1], sample_times: None, ..predictions };
        assert_eq!(to_csv(&untimed, &[], false), "sample,h1,h2\n0,1.5,-2\n1,0.25,3\n");
        // Targets come last, and not at all where none is known.
        let unknown = TargetColumns::all(None, &[f32::NAN; 4]);
        assert_eq!(to_csv(&untimed, &unknown, false), to_csv(&untimed, &[], false));
        let known = TargetColumns::all(None, &[f32::NAN, 7.0, 8.0, -9.5]);
        assert_eq!(to_csv(&untimed, &known, false), "sample,h1,h2,target1,target2\n0,1.5,-2,NaN,7\n1,0.25,3,8,-9.5\n");
        let classes = TargetColumns::all(Some(&[1.0, 0.0]), &[0.25, -0.5]);
        assert_eq!(
            to_csv(&untimed, &classes, false),
            "sample,h1,h2,target1,target1_value\n0,1.5,-2,1,0.25\n1,0.25,3,0,-0.5\n"
        );
        let names = ["EURUSD", "\"A, B\""].map(str::to_owned);
        let instruments = Some(SampleInstruments { names: &names, name_indices: &[1, 0] });
        assert_eq!(
            to_csv(&Predictions { instruments, ..untimed }, &[], false),
            "sample,instrument,h1,h2\n0,\"\"\"A, B\"\"\",1.5,-2\n1,EURUSD,0.25,3\n"
        );
        assert_eq!(
            to_csv(&Predictions { folds: Some(&[1, 2]), ..untimed }, &[], false),
            "sample,fold,h1,h2\n0,1,1.5,-2\n1,2,0.25,3\n"
        );
    }

    #[test]
    fn several_quantiles_have_a_column_each_beside_the_median() {
        let levels = Ascending::new(&[0.1, 0.5, 0.95]).unwrap();
        // Two samples of two horizons.
        let outputs: Vec<f32> = (0..12u8).map(f32::from).collect();
        let (values, named) = by_name(Loss::Quantile { levels }, &outputs, 2);
        assert_eq!(values, [1.0, 4.0, 7.0, 10.0]);
        let (samples, sample_times, instruments) = (&[5, 6][..], None, None);
        let predictions = Predictions {
            samples,
            values: &values,
            named: &named,
            horizons: 2,
            sample_times,
            instruments,
            folds: None,
        };
        assert_eq!(
            to_csv(&predictions, &[], false),
            "sample,h1,h2,h1_q0.1,h2_q0.1,h1_q0.5,h2_q0.5,h1_q0.95,h2_q0.95\n5,1,4,0,3,1,4,2,5\n6,7,10,6,9,7,10,8,11\n"
        );
        for loss in [Loss::Mse, Loss::Quantile { levels: Ascending::one(0.9) }] {
            assert_eq!(by_name(loss, &outputs, 2), (outputs.clone(), Vec::new()), "{loss:?}");
        }
    }
}
