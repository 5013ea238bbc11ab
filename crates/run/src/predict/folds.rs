//! Predictions by the model of a run, or of a run of several folds by the model of each fold.

use std::iter;
use std::path::{Path, PathBuf};

use super::latest::LatestSamples;
use super::samples::{PredictRequest, Predicted, SampleChoice, predict_with};
use crate::adapters::fold_plan::FoldPlan;
use crate::error::{Context as _, Result};
use crate::evaluate::Part;
use crate::host::{EachOnce, Host};
use crate::run_folder::RunFolder;
use crate::trained::Trained;

/// Predicts samples. Of a run of several folds the model of each fold predicts the test of its
/// fold, if all samples or those of the test are asked for.
///
/// # Errors
/// A usage error for samples that the data do not have or a fold that has not been trained, a data
/// error for data that are not as in training.
pub fn predict(request: &PredictRequest, host: &Host<'_>) -> Result<Predicted> {
    predict_checked(request, host, |_, _| Ok(()))
}

/// Predicts samples, of each model once `check` has passed the model and the path of its data.
pub(super) fn predict_checked(
    request: &PredictRequest,
    host: &Host<'_>,
    check: impl Fn(&Trained, &Path) -> Result<()>,
) -> Result<Predicted> {
    let observer = EachOnce::new(host);
    let host = &observer.host(host);
    let by_one_model = |request: &PredictRequest| {
        let (mut trained, latest) = request.open(host)?;
        check(&trained, latest.as_ref().map_or(trained.data.path(), LatestSamples::data))?;
        predict_with(&mut trained, request, host)
    };
    let Some(folds) = fold_requests(request)? else { return by_one_model(request) };
    let by_fold = |(fold, own): (usize, &PredictRequest)| by_one_model(own).with_context(|| format!("fold {fold}"));
    Ok(joined((1..).zip(&folds).map(by_fold).collect::<Result<Vec<_>>>()?))
}

/// For a run of several folds the request for the test of each, if `request` asks for no others.
fn fold_requests(request: &PredictRequest) -> Result<Option<Vec<PredictRequest>>> {
    if !matches!(request.samples, SampleChoice::Default | SampleChoice::Part(Part::Test)) {
        return Ok(None);
    }
    let folder = RunFolder::open(&request.run)?;
    let Some(plan) = FoldPlan::from_run(&folder)? else { return Ok(None) };
    let samples = SampleChoice::Part(Part::Test);
    let test = |run: PathBuf| PredictRequest { run, samples: samples.clone(), ..request.clone() };
    Ok(Some(plan.trained_folders(&folder)?.iter().map(|fold| test(fold.root().to_owned())).collect()))
}

/// The predictions of the models of folds, one after the other.
///
/// # Panics
/// If there is no fold.
fn joined(folds: Vec<Predicted>) -> Predicted {
    let rows = folds.iter().map(|own| own.samples.len());
    let fold_of_rows: Vec<i32> = (1..).zip(rows).flat_map(|(fold, rows)| iter::repeat_n(fold, rows)).collect();
    let samples = folds.iter().flat_map(|own| own.samples.iter()).collect();
    let mut folds = folds.into_iter();
    let mut all = folds.next().expect("a run of folds has one at least");
    for own in folds {
        all.values.extend(own.values);
        all.named.iter_mut().zip(own.named).for_each(|((_, rows), (_, more))| rows.extend(more));
        all.targets.extend(own.targets);
        if let (Some(rows), Some(more)) = (&mut all.true_classes, own.true_classes) {
            rows.extend(more);
        }
        if let (Some(rows), Some(more)) = (&mut all.sample_times, own.sample_times) {
            rows.extend(more);
        }
        if let (Some(rows), Some(more)) = (&mut all.instruments, own.instruments) {
            rows.name_indices.extend(more.name_indices);
        }
        all.step = own.step;
        for note in own.notes {
            if !all.notes.contains(&note) {
                all.notes.push(note);
            }
        }
    }
    Predicted { samples, folds: Some(fold_of_rows), ..all }
}
