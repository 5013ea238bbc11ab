//! What a user should know of a job's settings beside each other and beside its data, before it runs.

use anyhow::Result;
use megabatch_trainer::{self as trainer, Loss, LrScheduleKind};

use crate::adapt::data::Data;
use crate::adapt::split::overlapping;
use crate::job::Job;

/// One sentence a finding, without its stop, on a job of `steps` optimizer steps.
pub(crate) fn notes(job: &Job, steps: u64) -> Result<Vec<String>> {
    let mut notes = idle_settings(job, steps);
    notes.extend(job.data.notes());
    let [validation, test] = match &job.data {
        Data::Samples(samples) => overlapping(samples.source(), &job.split)?,
        Data::CrossSections(_) | Data::Graphs(_) => [0; 2],
    };
    if validation + test > 0 {
        notes.push(format!(
            "data.purge leaves {validation} samples to validate and {test} to test that look back to before the end of labels of the part \
             before theirs: their errors flatter the model; auto leaves such samples out"
        ));
    }
    Ok(notes)
}

/// Settings that do nothing beside the others.
fn idle_settings(job: &Job, steps: u64) -> Vec<String> {
    let trainer::Config { model, dropout, loss, lr_schedule, early_stopping, .. } = &job.training;
    let is_set = |path: &str, default: f64| job.config.number(path) != default;
    let findings = [
        (
            *dropout > 0.0 && model.layers == 1,
            "model.dropout leaves nothing out of a model of one layer, as it lies between layers".to_owned(),
        ),
        (
            *loss == Loss::Mse && is_set("training.huber_delta", 1.0),
            "training.huber_delta does nothing with training.loss mse".to_owned(),
        ),
        (
            lr_schedule.kind == LrScheduleKind::Constant && lr_schedule.lr_min > 0.0,
            "training.lr_min does nothing with training.lr_schedule constant".to_owned(),
        ),
        (
            lr_schedule.warmup_steps >= steps.max(1),
            format!(
                "training.warmup_steps is {} of {steps} steps: the rate never gets beyond the warm-up",
                lr_schedule.warmup_steps
            ),
        ),
        (
            early_stopping.is_none() && is_set("training.early_stopping_min_delta", 0.0),
            "training.early_stopping_min_delta does nothing without training.early_stopping".to_owned(),
        ),
        (
            job.config.count("gpu_optimization.num_workers") > 0,
            "gpu_optimization.num_workers does nothing: one background thread loads ahead of training, on all processors".to_owned(),
        ),
        (
            job.training.step_samples() > job.split.train.len(),
            format!(
                "an optimizer step takes {} samples and there are {} to train on: an epoch is one smaller step",
                job.training.step_samples(),
                job.split.train.len()
            ),
        ),
    ];
    findings.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note).collect()
}
