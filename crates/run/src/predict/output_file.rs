//! Predictions of samples in a file: those of one model, or of the models of several folds.

use std::borrow::Cow;
use std::iter;
use std::path::{Path, PathBuf};

use megabatch_atomic_file as atomic_file;
use megabatch_chunk_io::{Predictions, SampleInstruments, write_predictions};
use serde_json::json;

use super::latest::LatestSamples;
use super::samples::{InstrumentsOfSamples, PredictRequest, Predicted, SampleChoice, predict_with};
use crate::command_report::CommandReport;
use crate::error::{Context as _, Result};
use crate::evaluate::Part;
use crate::evaluate::folds::FoldPlan;
use crate::host::{Host, PATIENCE};
use crate::output;
use crate::run_folder::RunFolder;
use crate::setup::settings::loss;
use crate::text::{plural, shown};
use crate::trained::Weights;
use crate::unit_names::UnitNames;

/// Predicts samples and writes them to `out`: `.h5`, with a dataset `predictions` `[n, K]` and one
/// for each name, or `.csv`, with the targets beside them. Of a run of several folds the model of
/// each fold predicts the test of its fold, if all samples or those of the test are asked for.
///
/// # Errors
/// The errors of [`predict`](super::predict), a usage error for an output that cannot be written or
/// a fold that has not been trained.
pub fn predict_to_file(request: &PredictRequest, out: &Path, host: &Host<'_>) -> Result<CommandReport> {
    host.cancel.watch(PATIENCE)?;
    let format = Format::from_path(out)?;
    let folds = fold_requests(request)?;
    let models = match &folds {
        None => vec![predict_for(request, out, host)?],
        Some(folds) => {
            let one = |(fold, own): (usize, &PredictRequest)| {
                predict_for(own, out, host).with_context(|| format!("fold {fold}"))
            };
            (1..).zip(folds).map(one).collect::<Result<Vec<_>>>()?
        }
    };
    let last = models.last().expect("a run has a model at least");
    let (targets, device) = (last.targets.clone(), last.device.clone());
    let table = Table::new(models.into_iter().map(|model| model.predicted).collect(), folds.is_some());
    match format {
        Format::Csv => atomic_file::write(out, to_csv(&table.predictions(), &table.targets).as_bytes())?,
        Format::Hdf5 => write_predictions(out, &table.predictions())?,
    }
    let samples = table.numbers.len();
    let unknown = table.values.chunks_exact(table.horizons.max(1)).filter(|row| row.iter().all(|x| x.is_nan()));
    let unknown = unknown.count();
    let mut text = format!("{}: {} predictions of {targets}", out.display(), samples - unknown);
    if let Some(folds) = &folds {
        text.push_str(&format!(" by the models of {} folds, each for the test of its own", folds.len()));
    }
    if unknown > 0 {
        text.push_str(&format!("; {unknown} rows without one are NaN: these samples are in no graph"));
    }
    text.extend(table.notes.iter().map(|note| format!("\nnote: {note}")));
    let mut json = json!({
        "out": shown(out),
        "samples": samples,
        "predictions": samples - unknown,
        "horizons": table.horizons,
        "named": table.named.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "step": table.step,
        "int8": request.weights == Weights::Int8,
        "device": device,
        "notes": table.notes,
    });
    if let Some(folds) = &folds {
        json["folds"] = folds.len().into();
    }
    Ok(CommandReport::new(text, &json))
}

/// For a run of several folds the request for the test of each, if `request` asks for no others.
fn fold_requests(request: &PredictRequest) -> Result<Option<Vec<PredictRequest>>> {
    if !matches!(request.samples, SampleChoice::Default | SampleChoice::Part(Part::Test)) {
        return Ok(None);
    }
    let samples = SampleChoice::Part(Part::Test);
    let test = |run: PathBuf| PredictRequest { run, samples: samples.clone(), ..request.clone() };
    Ok(fold_runs(&request.run)?.map(|folds| folds.into_iter().map(test).collect()))
}

/// The run of each fold of the run in `run`, which has the model of its fold; `None` for a run of
/// one model.
///
/// # Errors
/// A folder without a run, a usage error for a fold that has not been trained.
pub fn fold_runs(run: &Path) -> Result<Option<Vec<PathBuf>>> {
    let folder = RunFolder::open(run)?;
    let plan = FoldPlan::from_config(&folder.config(&[])?)?.filter(|_| folder.fold(0).has_begun());
    let Some(plan) = plan else { return Ok(None) };
    Ok(Some(plan.trained_folders(&folder)?.iter().map(|fold| fold.root().to_owned()).collect()))
}

/// Predictions of one model.
struct ModelPredictions {
    predicted: Predicted,
    /// Number of targets, with their name.
    targets: String,
    device: String,
}

/// Predicts samples that are to be written to `out`.
fn predict_for(request: &PredictRequest, out: &Path, host: &Host<'_>) -> Result<ModelPredictions> {
    let (mut trained, latest) = request.open(host)?;
    let bars = trained.bar_files()?;
    let data = latest.as_ref().map_or(trained.data.path(), LatestSamples::data);
    let inputs = bars.iter().map(PathBuf::as_path).chain([data]);
    output::check(out, &inputs.collect::<Vec<_>>())?;
    let predicted = predict_with(&mut trained, request, host)?;
    let loss = loss(&trained.config, trained.data.samples().shape().outputs)?;
    let targets = plural(predicted.horizons, UnitNames::for_data(&trained.data).with(loss).target);
    Ok(ModelPredictions { predicted, targets, device: trained.predictor.device().to_string() })
}

/// Columns of what predictions are held against: `target1` with what follows the number, and so on.
struct TargetColumns {
    suffix: &'static str,
    /// `[n, columns]`; nothing where none is known.
    rows: Vec<f32>,
}

impl TargetColumns {
    /// The targets; beside predicted classes the true ones, and the targets as values.
    fn all(true_classes: Option<Vec<f32>>, targets: Vec<f32>) -> Vec<Self> {
        match true_classes {
            Some(rows) => vec![TargetColumns { suffix: "", rows }, TargetColumns { suffix: "_value", rows: targets }],
            None => vec![TargetColumns { suffix: "", rows: targets }],
        }
    }

    /// Rows of so many samples, unless none is known.
    fn rows(&self, samples: usize) -> std::slice::Chunks<'_, f32> {
        let known: &[f32] = if self.rows.iter().all(|target| target.is_nan()) { &[] } else { &self.rows };
        known.chunks((known.len() / samples.max(1)).max(1))
    }
}

/// Rows of a file.
struct Table {
    /// `[n]` number of each sample in the data.
    numbers: Vec<i64>,
    values: Vec<f32>,
    named: Vec<(String, Vec<f32>)>,
    horizons: usize,
    sample_times: Option<Vec<i64>>,
    instruments: Option<InstrumentsOfSamples>,
    /// `[n]` fold whose model predicted each sample, from 1.
    folds: Option<Vec<i32>>,
    targets: Vec<TargetColumns>,
    /// Step of the last model.
    step: u64,
    /// Notes of the models, each once.
    notes: Vec<String>,
}

impl Table {
    /// The rows of the models one after the other.
    ///
    /// # Panics
    /// If there is no model.
    fn new(models: Vec<Predicted>, are_folds: bool) -> Self {
        let fold_of_rows = || {
            let rows = models.iter().map(|own| own.samples.len());
            (1..).zip(rows).flat_map(|(fold, rows)| iter::repeat_n(fold, rows)).collect::<Vec<i32>>()
        };
        let folds = are_folds.then(fold_of_rows);
        let mut tables = models.into_iter().map(Table::from_model);
        let mut all = tables.next().expect("a model at least");
        for Table { numbers, values, named, sample_times, instruments, targets, step, notes, .. } in tables {
            all.numbers.extend(numbers);
            all.values.extend(values);
            all.named.iter_mut().zip(named).for_each(|((_, rows), (_, more))| rows.extend(more));
            all.targets.iter_mut().zip(targets).for_each(|(own, more)| own.rows.extend(more.rows));
            if let (Some(rows), Some(more)) = (&mut all.sample_times, sample_times) {
                rows.extend(more);
            }
            if let (Some(rows), Some(more)) = (&mut all.instruments, instruments) {
                rows.name_indices.extend(more.name_indices);
            }
            all.step = step;
            for note in notes {
                if !all.notes.contains(&note) {
                    all.notes.push(note);
                }
            }
        }
        Table { folds, ..all }
    }

    fn from_model(predicted: Predicted) -> Self {
        let Predicted {
            samples,
            values,
            named,
            horizons,
            targets,
            true_classes,
            sample_times,
            instruments,
            step,
            notes,
        } = predicted;
        let numbers = samples.iter().map(|sample| sample as i64).collect();
        let targets = TargetColumns::all(true_classes, targets);
        Table { numbers, values, named, horizons, sample_times, instruments, folds: None, targets, step, notes }
    }

    fn predictions(&self) -> Predictions<'_> {
        Predictions {
            samples: &self.numbers,
            values: &self.values,
            named: &self.named,
            horizons: self.horizons,
            sample_times: self.sample_times.as_deref(),
            instruments: self
                .instruments
                .as_ref()
                .map(|InstrumentsOfSamples { names, name_indices }| SampleInstruments { names, name_indices }),
            folds: self.folds.as_deref(),
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
fn to_csv(predictions: &Predictions<'_>, targets: &[TargetColumns]) -> String {
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
            csv.push_str(&format!(",{time}"));
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
            to_csv(&predictions, &[]),
            "sample,time,h1,h2\n7,1970-01-01T00:00:00Z,1.5,-2\n12,1970-01-01T00:01:00Z,0.25,3\n"
        );
        let untimed = Predictions { samples: &[0, 1], sample_times: None, ..predictions };
        assert_eq!(to_csv(&untimed, &[]), "sample,h1,h2\n0,1.5,-2\n1,0.25,3\n");
        // Targets come last, and not at all where none is known.
        let unknown = TargetColumns::all(None, vec![f32::NAN; 4]);
        assert_eq!(to_csv(&untimed, &unknown), to_csv(&untimed, &[]));
        let known = TargetColumns::all(None, vec![f32::NAN, 7.0, 8.0, -9.5]);
        assert_eq!(to_csv(&untimed, &known), "sample,h1,h2,target1,target2\n0,1.5,-2,NaN,7\n1,0.25,3,8,-9.5\n");
        let classes = TargetColumns::all(Some(vec![1.0, 0.0]), vec![0.25, -0.5]);
        assert_eq!(
            to_csv(&untimed, &classes),
            "sample,h1,h2,target1,target1_value\n0,1.5,-2,1,0.25\n1,0.25,3,0,-0.5\n"
        );
        let names = ["EURUSD", "\"A, B\""].map(str::to_owned);
        let instruments = Some(SampleInstruments { names: &names, name_indices: &[1, 0] });
        assert_eq!(
            to_csv(&Predictions { instruments, ..untimed }, &[]),
            "sample,instrument,h1,h2\n0,\"\"\"A, B\"\"\",1.5,-2\n1,EURUSD,0.25,3\n"
        );
        assert_eq!(
            to_csv(&Predictions { folds: Some(&[1, 2]), ..untimed }, &[]),
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
            to_csv(&predictions, &[]),
            "sample,h1,h2,h1_q0.1,h2_q0.1,h1_q0.5,h2_q0.5,h1_q0.95,h2_q0.95\n5,1,4,0,3,1,4,2,5\n6,7,10,6,9,7,10,8,11\n"
        );
        for loss in [Loss::Mse, Loss::Quantile { levels: Ascending::one(0.9) }] {
            assert_eq!(by_name(loss, &outputs, 2), (outputs.clone(), Vec::new()), "{loss:?}");
        }
    }
}
