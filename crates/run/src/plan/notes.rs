//! Notes on a run's settings and data before it starts.

use megabatch_amp::Precision;
use megabatch_bars::Feature;
use megabatch_chunk_io::{AttributeValue, Source};
use megabatch_nn::loss::Loss;
use megabatch_nn_cpu::instructions;
use megabatch_trainer as trainer;
use megabatch_trainer::{LOCKED_BYTES_MAX, LrSchedule, TrainingWeights};

use crate::adapters::data::Data;
use crate::adapters::spans::provenance;
use crate::config;
use crate::error::Result;
use crate::ingest::FurtherInputs;
use crate::setup::computing::RequestedGpu;
use crate::setup::settings::{precision, streams};
use crate::setup::{ChunkLimit, TrainingSetup};
use crate::text::bytes;
use crate::text::number::{grouped, percent, significant};

/// Note of a walk forward on the fold that it plans.
pub(crate) const PLAN_OF_LAST_FOLD: &str =
    "data.walk_forward: this is the plan of the last fold, which trains on the latest samples";

/// Remarks on a run: sentences without their full stop.
pub(crate) struct Remarks {
    /// Assumptions that the errors of the run rest on.
    pub(crate) warnings: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// Remarks on a run of `steps` optimizer steps.
pub(crate) fn remarks(setup: &TrainingSetup, steps: u64) -> Result<Remarks> {
    let ineffective = setup.config.ineffective(&setup.traits());
    let mut notes: Vec<String> =
        ineffective.iter().map(|setting| format!("{} has no effect{}", setting.path, setting.unmet.reason())).collect();
    notes.extend(odd_settings(setup, steps));
    notes.extend(setup.data.notes());
    notes.extend(note_on_weights(setup)?);
    notes.extend(setup.temperature.map(|temperature| {
        format!(
            "training.rank_temperature is {temperature}, the deviation of targets within a graph of the training part"
        )
    }));
    notes.extend(setup.gpu_passed_over.clone());
    notes.extend(notes_on_gpu(setup));
    notes.extend(note_on_checkpointing(setup)?);
    match &setup.data {
        Data::Samples(samples) => notes.extend(note_on_barriers(samples.source(), setup.training.loss)?),
        Data::CrossSections(_) => {}
        Data::Graphs(graphs) => {
            let loss = setup.training.loss;
            if matches!(loss, Loss::Mse | Loss::Huber { .. }) && graphs.targets_are_labels() {
                notes.push(format!(
                    "training.loss {} learns the class labels of {} as numbers; cross_entropy, the default for labels, learns classes",
                    loss.name(),
                    setup.data.path().display()
                ));
            }
        }
    }
    let purge = setup.data.remarks_on_purge(&setup.config, &setup.split)?;
    notes.extend(purge.notes);
    let warnings = purge.warnings.into_iter().chain(setup.data.warning()).collect();
    Ok(Remarks { warnings, notes })
}

/// Notes on the memory of the run's GPU: what it is shared by, and what comes batch by batch.
fn notes_on_gpu(setup: &TrainingSetup) -> Vec<String> {
    let Some(RequestedGpu { name, processes, .. }) = &setup.gpu_asked else { return Vec::new() };
    let is_shared = *processes > 1;
    let shared =
        is_shared.then(|| format!("{processes} processes share {name}, and each plans with its part of what is free"));
    let keeps_series = setup.training.keep_series;
    let comes = (!keeps_series).then(|| {
        format!("the series does not fit on {name} beside the run: each batch brings the bars that its windows cover")
    });
    let batch_size = setup.training.batch_size;
    let samples_bytes = |samples: u64| {
        bytes(usize::try_from(setup.data.shape().sample_bytes().saturating_mul(samples)).unwrap_or(usize::MAX))
    };
    let has_small_chunks = setup.has_small_chunks.then(|| {
        format!(
            "gpu_optimization.chunk_size_gb is smaller than two batches of {batch_size} samples, {}: windows come to the GPU batch by batch",
            samples_bytes(2 * batch_size as u64)
        )
    });
    let cut_chunks = cut_chunk_samples(setup).map(|(samples, limit)| {
        let allowed = match limit {
            ChunkLimit::Memory => "memory allows".to_owned(),
            ChunkLimit::LockedPages => {
                format!("page-locked memory allows, {} for two chunks", bytes(LOCKED_BYTES_MAX as usize))
            }
        };
        format!(
            "gpu_optimization.chunk_size_gb is larger than {allowed}: chunks on {name} have {samples} samples, {}",
            samples_bytes(samples)
        )
    });
    shared.into_iter().chain(comes).chain(has_small_chunks).chain(cut_chunks).collect()
}

/// Samples of a chunk on a GPU and its limit, where the size that the user set would hold another
/// batch.
fn cut_chunk_samples(setup: &TrainingSetup) -> Option<(u64, ChunkLimit)> {
    let samples = setup.training.chunk_windows? as u64;
    let shape = setup.data.shape();
    let set_samples = (setup.chunk_bytes_set()? / shape.sample_bytes().max(1)).min(shape.samples as u64);
    let is_cut = samples + setup.training.batch_size as u64 <= set_samples;
    setup.chunk_limit.filter(|_| is_cut).map(|limit| (samples, limit))
}

/// Least share of the memory beside the data that gradient checkpointing is worth its time for.
const CHECKPOINTING_SHARE_MIN: f64 = 0.05;

/// A note on gradient checkpointing on the CPU that saves little.
fn note_on_checkpointing(setup: &TrainingSetup) -> Result<Option<String>> {
    if !setup.training.gradient_checkpointing || setup.gpu_asked.is_some() {
        return Ok(None);
    }
    let without = trainer::Config { gradient_checkpointing: false, ..setup.training.clone() };
    let without = setup.footprint(&without)?.total_bytes();
    let saved = without.saturating_sub(setup.footprint(&setup.training)?.total_bytes());
    let share = saved as f64 / without as f64;
    let share_text = if saved == 0 { "none".to_owned() } else { percent(share) };
    Ok((share < CHECKPOINTING_SHARE_MIN).then(|| {
        format!(
            "training.gradient_checkpointing saves {share_text} of the {} that the run takes beside its data: windows are short, or weights many",
            bytes(without)
        )
    }))
}

/// A note on targets that are classes, where the loss takes them for numbers.
fn note_on_barriers(source: &Source, loss: Loss) -> Result<Option<String>> {
    let kind = source.attribute("target_kind")?;
    let are_classes = matches!(kind, Some(AttributeValue::Text(kind)) if kind.starts_with("triple_barrier"));
    let takes_numbers = matches!(loss, Loss::Mse | Loss::Huber { .. });
    Ok((are_classes && takes_numbers).then(|| {
        format!(
            "training.loss {} learns the classes -1, 0 and 1 as numbers; cross_entropy with \
             training.thresholds=[-0.5, 0.5] learns classes",
            loss.name()
        )
    }))
}

/// The weights of the training samples, where they have a part in the loss.
fn note_on_weights(setup: &TrainingSetup) -> Result<Option<String>> {
    let train = &setup.split.train;
    let weights = setup.training.training_weights(setup.data.samples(), train)?;
    Ok(weights.map(|TrainingWeights { mean, zeros }| {
        format!(
            "the loss of training weights samples by /samples/weight: their mean is {}, and {} of {} are 0",
            significant(mean, 3),
            grouped(zeros as u64),
            grouped(train.len() as u64)
        )
    }))
}

/// A line for each export and each way of streaming that the model allows with these settings.
pub(crate) fn uses(setup: &TrainingSetup) -> Vec<String> {
    if setup.training.model.is_over_graphs() {
        return vec![
            "graphs: neither `predict --follow` nor `export --format onnx`, whose samples stand alone".to_owned(),
        ];
    }
    let carries = streams(&setup.config);
    let steps: usize = setup.data.samples().shape().timeframes.iter().map(|timeframe| timeframe.steps).sum();
    let series = setup.data.source().and_then(Source::series);
    let spread = Feature::SpreadPips.name();
    let has_spread =
        series.is_some_and(|series| series.file().timeframes()[0].feature_names().iter().any(|own| own == spread));
    let account = setup.data.source().and_then(|source| provenance(source).ok()).unwrap_or_default();
    let in_python = FurtherInputs::read(&account, &[]).follow_in_python();
    let follow = match (precision(&setup.config), carries, in_python) {
        _ if series.is_none() => "no `predict --follow`, which needs a series that `ingest` made".to_owned(),
        _ if setup.data.meaning().is_ok_and(|meaning| meaning.has_own_bars()) => {
            "no `predict --follow`, which makes longer bars of the shortest: the series has those of their own files"
                .to_owned()
        }
        _ if has_spread => format!("no `predict --follow`: the feature {spread} needs whole files"),
        (Precision::Fp16, ..) => "no `predict --follow`, which computes in fp32 or bf16".to_owned(),
        (.., Some(line)) => line,
        (_, true, None) => "`predict --follow` takes one step a bar".to_owned(),
        (_, false, None) => {
            format!("`predict --follow` computes {steps} steps a bar; with training.carry_state=true it would take one")
        }
    };
    let onnx = if carries {
        "`export --format onnx` needs --stateless: each window starts with zeros there, and predictions differ"
    } else {
        "`export --format onnx` predicts as trained"
    };
    vec![follow, onnx.to_owned()]
}

/// Settings whose effect is not what it seems beside the others.
fn odd_settings(setup: &TrainingSetup, steps: u64) -> Vec<String> {
    let trainer::Config { model, dropout, loss, .. } = &setup.training;
    let step_samples = setup
        .config
        .get(&config::gpu_optimization::BATCH_SIZE)
        .saturating_mul(setup.training.gradient_accumulation_steps);
    let threads = setup.training.threads;
    let cores = std::thread::available_parallelism().map_or(threads, usize::from);
    let walks = setup.config.walks_all_folds();
    let odd = [
        (
            *dropout > 0.0 && model.layers == 1,
            "model.dropout has no effect on a model of one layer: it acts between layers".to_owned(),
        ),
        (
            matches!(loss, Loss::Quantile { levels } if !levels.as_slice().contains(&0.5)),
            "training.quantile leaves out the median, 0.5: how well quantiles are met, their pinball loss and coverage say, while RMSE and the \
             baselines are about what is expected in the middle"
                .to_owned(),
        ),
        (
            setup.gpu.is_none() && setup.training.precision == Precision::Bf16 && instructions(Precision::Bf16).is_none(),
            "training.precision bf16 takes about 1.4 times as long as fp32: this CPU multiplies no bf16 numbers faster, \
             and rounds them in fp32"
                .to_owned(),
        ),
        (
            threads > cores,
            format!(
                "training.threads is {threads} and this machine has {cores} cores: more threads than cores take turns, and memory grows with them"
            ),
        ),
        (walks, PLAN_OF_LAST_FOLD.to_owned()),
        (
            step_samples > setup.split.train.len(),
            format!(
                "an optimizer step takes {step_samples} samples and there are {} to train on: an epoch is one smaller step",
                setup.split.train.len()
            ),
        ),
    ];
    let LrSchedule { warmup_steps, .. } = setup.training.lr_schedule;
    let warm_up = (
        warmup_steps >= steps.max(1),
        format!("training.warmup_steps is {warmup_steps} of {steps} steps: the rate never gets beyond the warm-up"),
    );
    let all = odd.into_iter().chain([warm_up]);
    all.filter(|(holds, _)| *holds).map(|(_, note)| note).collect()
}
