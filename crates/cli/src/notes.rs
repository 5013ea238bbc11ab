//! What a user should know of a job's settings beside each other and beside its data, before it runs.

use anyhow::Result;
use megabatch_trainer::{self as trainer, Ascending, Loss, LrSchedule, LrScheduleKind};

use crate::adapt::data::Data;
use crate::adapt::split::overlapping;
use crate::job::Job;
use crate::settings::{classes, quantiles, walk_forward};

/// One sentence a finding, without its stop, on a job of `steps` optimizer steps.
pub(crate) fn notes(job: &Job, steps: u64) -> Result<Vec<String>> {
    let mut notes = idle_settings(job, steps);
    notes.extend(job.data.notes());
    notes.extend(job.temperature.map(|temperature| {
        format!(
            "training.rank_temperature is {temperature}, the deviation of targets within a graph of the training part"
        )
    }));
    notes.extend(job.gpu_passed_over.clone());
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
    let trainer::Config { model, dropout, loss, early_stopping, divergence, .. } = &job.training;
    let is_set = |path: &str, default: f64| job.config.number(path) != default;
    let walks = walk_forward(&job.config).is_some() && job.config.optional_count("data.walk_forward_fold").is_none();
    let findings = [
        (
            *dropout > 0.0 && model.layers == 1,
            "model.dropout leaves nothing out of a model of one layer, as it lies between layers".to_owned(),
        ),
        (
            job.config.tasks().is_some() && job.config.text("training.loss") != Some("mse"),
            "training.loss does nothing beside training.tasks".to_owned(),
        ),
        (
            *loss == Loss::Mse && is_set("training.huber_delta", 1.0),
            "training.huber_delta does nothing with training.loss mse".to_owned(),
        ),
        (
            !matches!(loss, Loss::Quantile { .. }) && quantiles(&job.config) != Ascending::one(0.5),
            "training.quantile does nothing without training.loss quantile".to_owned(),
        ),
        (
            !matches!(loss, Loss::CrossEntropy | Loss::Classes(_)) && classes(&job.config).is_some(),
            "training.thresholds and training.classes do nothing without training.loss cross_entropy".to_owned(),
        ),
        (
            matches!(loss, Loss::Quantile { levels } if !levels.as_slice().contains(&0.5)),
            "training.quantile leaves out the median, 0.5: how well quantiles are met, their pinball loss and coverage say, while RMSE and the \
             baselines are about what is expected in the middle"
                .to_owned(),
        ),
        (
            early_stopping.is_none() && is_set("training.early_stopping_min_delta", 0.0),
            "training.early_stopping_min_delta does nothing without training.early_stopping".to_owned(),
        ),
        (
            divergence.rollbacks_max == 0 && job.config.count("training.max_rollbacks") != 3,
            "training.max_rollbacks does nothing with training.on_nan stop".to_owned(),
        ),
        (
            job.training.tf32 && job.gpu.is_none(),
            "training.tf32 does nothing on the CPU, which multiplies fp32 as it is".to_owned(),
        ),
        (
            walks,
            "data.walk_forward: this is the plan of the last fold, which trains on the latest samples".to_owned(),
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
    let all = findings.into_iter().chain(of_the_rate(job, steps));
    all.filter(|(holds, _)| *holds).map(|(_, note)| note).collect()
}

/// The same of the learning rate: whether a finding holds, and its sentence.
fn of_the_rate(job: &Job, steps: u64) -> [(bool, String); 3] {
    let LrSchedule { kind, warmup_steps, lr_min } = job.training.lr_schedule;
    let cycle = [("pct_start", 0.3), ("div_factor", 25.0), ("final_div_factor", 1e4)];
    let is_set = |(name, default): &(&str, f64)| job.config.number(&format!("training.{name}")) != *default;
    [
        (
            kind != LrScheduleKind::Cosine && lr_min > 0.0,
            "training.lr_min does nothing without training.lr_schedule cosine".to_owned(),
        ),
        (
            !matches!(kind, LrScheduleKind::OneCycle(_)) && cycle.iter().any(is_set),
            "training.pct_start, div_factor and final_div_factor do nothing without training.lr_schedule one_cycle"
                .to_owned(),
        ),
        (
            warmup_steps >= steps.max(1),
            format!("training.warmup_steps is {warmup_steps} of {steps} steps: the rate never gets beyond the warm-up"),
        ),
    ]
}
