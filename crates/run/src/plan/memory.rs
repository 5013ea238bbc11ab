//! Memory of a run by purpose and by phase, and advice where it is too much.

use megabatch_chunk_io::{MemoryShortage, Residence};
use megabatch_gpu_core::reserved_bytes;
use megabatch_nn::graph::Graphs;
use megabatch_nn::memory::{PlannedTensor, StepPhase};
use megabatch_trainer as trainer;
use megabatch_trainer::Footprint;
use serde::Serialize;

use crate::config;
use crate::error::{Error, Result};
use crate::setup::{TrainingSetup, free_memory_bytes};
use crate::text::bytes;

/// Peak bytes of a run by purpose.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MemoryPlan {
    pub(crate) data_bytes: usize,
    #[serde(flatten)]
    pub(crate) training: Footprint,
    pub(crate) total_bytes: usize,
    /// Total bytes that are taken from the system: by the CPU's pool in whole huge pages, and by
    /// lists of graphs, which lie beside it.
    pub(crate) reserved_bytes: usize,
    /// Bytes that the device could hand out when the plan was made.
    pub(crate) available_bytes: usize,
    pub(crate) phases: Vec<Phase>,
    /// Memory that each phase of an optimizer step reads and writes, without the data. All of it is
    /// held from the first step to the last.
    pub(crate) step_phases: Vec<Phase>,
    /// All but the data, tensor by tensor.
    pub(crate) tensors: Vec<PlannedTensor>,
}

/// A stretch of a run, and its peak.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
}

impl MemoryPlan {
    pub(super) fn new(setup: &TrainingSetup, data_bytes: usize, training: Footprint) -> Result<Self> {
        let total_bytes = data_bytes + training.total_bytes();
        let (counted, validated) = (setup.beside_data(&setup.training), setup.split.validation.len());
        // A validation comes on top of training, with batches of its own.
        let validation_bytes = training.validation_bytes(&counted, validated);
        let mut phases = vec![
            Phase { name: "loading", bytes: data_bytes },
            Phase { name: "training", bytes: total_bytes - validation_bytes },
        ];
        if validated > 0 {
            phases.push(Phase { name: "validation", bytes: total_bytes });
        }
        let samples = setup.data.samples();
        let largest = samples.graphs().map(Graphs::largest);
        let tensors = training.tensors(&counted, samples.shape(), largest, validated)?;
        let step_phases = step_phases(&tensors);
        let available_bytes = setup.memory_bytes;
        let (held, beside_bytes) = (setup.data_blocks(), setup.data.beside_bytes());
        let to_load = blocks_to_load(setup, data_bytes, held.iter().sum::<usize>() + beside_bytes)?;
        let taken = training.blocks(&counted, samples.shape(), largest, validated, setup.carried.as_ref())?;
        let reserved_bytes = reserved_bytes(held.into_iter().chain(to_load).chain(taken)) + beside_bytes;
        Ok(MemoryPlan {
            data_bytes,
            training,
            total_bytes,
            reserved_bytes,
            available_bytes,
            phases,
            step_phases,
            tensors,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let MemoryPlan {
            data_bytes, training, total_bytes, reserved_bytes, available_bytes, phases, step_phases, ..
        } = self;
        let parts = [
            ("data", *data_bytes),
            ("parameters", training.parameters_bytes),
            ("gradients", training.gradients_bytes),
            ("optimizer", training.optimizer_bytes),
            ("activations", training.activations_bytes),
            ("batches", training.batches_bytes),
            ("carried", training.carried_bytes),
            ("total", *total_bytes),
            ("in pages", *reserved_bytes),
            ("available", *available_bytes),
        ];
        let parts: String = parts.into_iter().map(|(name, size)| line(name, size)).collect();
        let phases: String = phases.iter().map(|phase| line(phase.name, phase.bytes)).collect();
        let step_lines: String = step_phases.iter().map(|phase| line(phase.name, phase.bytes)).collect();
        format!(
            "peak memory\n{parts}\npeak memory by phase\n{phases}\nused by the phases of a step, beside the data\n{step_lines}"
        )
    }
}

/// Bytes of each block that the data will take beside those that they have now: of `data_bytes` in
/// all, `held_bytes` are held.
fn blocks_to_load(setup: &TrainingSetup, data_bytes: usize, held_bytes: usize) -> Result<Vec<usize>> {
    let rest_bytes = data_bytes.saturating_sub(held_bytes);
    let (Some(source), Ok(chunks)) = (setup.data.source(), &setup.chunks) else { return Ok(vec![rest_bytes]) };
    if rest_bytes == 0 {
        return Ok(Vec::new());
    }
    Ok(match (chunks.residence, source.series()) {
        (Residence::Resident, Some(series)) => {
            series.resident_blocks().into_iter().map(|bytes| bytes as usize).collect()
        }
        (Residence::Streamed, Some(series)) => {
            series.cache_bounds()?.taken_blocks(chunks.data_bytes as usize).collect()
        }
        (Residence::Resident, None) => {
            let tables = source.storage()?;
            tables.iter().map(|table| table.shape.iter().product::<usize>() * size_of::<f32>()).collect()
        }
        _ => vec![rest_bytes],
    })
}

/// Part of `tensors` that each phase of a step uses.
pub(super) fn step_phases(tensors: &[PlannedTensor]) -> Vec<Phase> {
    let used_in = |phase: StepPhase| -> usize {
        tensors.iter().filter(|tensor| tensor.used_in.contains(&phase)).map(|tensor| tensor.bytes).sum()
    };
    let names = ["forward", "backward", "optimizer"].into_iter().zip(StepPhase::ALL);
    names.map(|(name, phase)| Phase { name, bytes: used_in(phase) }).collect()
}

/// A line a tensor, the largest first.
pub(super) fn tensors_text(tensors: &[PlannedTensor]) -> String {
    let mut tensors: Vec<&PlannedTensor> = tensors.iter().collect();
    tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.bytes));
    let tensor_row = |PlannedTensor { part, name, count, bytes: size, used_in }: &PlannedTensor| {
        let phases: Vec<String> = used_in.iter().map(|phase| format!("{phase:?}").to_lowercase()).collect();
        let times = if *count > 1 { format!(" x {count}") } else { String::new() };
        format!("  {:>12}  {part:<12} {name}{times}  ({})\n", bytes(*size), phases.join(", "))
    };
    tensors.into_iter().map(tensor_row).collect()
}

/// A line with a size and its name.
pub(super) fn line(name: &str, size: usize) -> String {
    format!("  {name:<12}{:>12}\n", bytes(size))
}

/// The nearest setting with which a run that needs more memory than there is would fit.
fn fitting_setting(setup: &TrainingSetup) -> Result<String> {
    let carried = setup.footprint(&setup.training)?.carried_bytes;
    let fits = |training: &trainer::Config| -> Result<bool> {
        let footprint = setup.footprint(training)?.total_bytes();
        let Ok(chunks) = setup.chunks_beside(footprint, training.batch_size) else { return Ok(false) };
        Ok(setup.data_bytes(&chunks) + footprint <= setup.memory_bytes)
    };
    Ok(match largest_batch(&setup.training, fits)? {
        None if setup.training.carry_state && carried >= setup.memory_bytes => format!(
            "the carried states alone take {}; use a smaller model.hidden, fewer layers or training.carry_state=false",
            bytes(carried)
        ),
        None if setup.held_bytes() >= setup.memory_bytes => {
            "the data alone would not; give more memory or less data".to_owned()
        }
        None => "not even one sample at a time would; use a smaller model.hidden, fewer layers or shorter windows"
            .to_owned(),
        Some(batch) => smaller_batch(setup, batch),
    })
}

/// The error of a run that needs more memory than there is, with the nearest setting that fits.
pub(super) fn would_not_fit(setup: &TrainingSetup, needed: usize) -> Result<Error> {
    let message = format!(
        "a run needs {} and {} are available: it would not fit; {}",
        bytes(needed),
        bytes(setup.memory_bytes),
        fitting_setting(setup)?
    );
    Ok(Error::capacity(message).with_field("needed_bytes", needed).with_field("available_bytes", setup.memory_bytes))
}

/// Advice that batches of `batch` samples would fit, with the accumulation that keeps the steps.
pub(super) fn smaller_batch(setup: &TrainingSetup, batch: usize) -> String {
    let step_samples = setup.training.step_samples();
    format!(
        "gpu_optimization.batch_size={batch} would, with gpu_optimization.gradient_accumulation_steps={} for the same \
         {step_samples} samples a step",
        step_samples / batch
    )
}

/// The error of a run whose data cannot pass through memory, with the nearest setting that fits.
pub(super) fn no_way_through(setup: &TrainingSetup, shortage: &MemoryShortage) -> Result<Error> {
    // Without the chunk loader a chunk is a batch, whatever the size of chunks is.
    let loads_chunks = setup.config.get(&config::gpu_optimization::USE_CHUNK_LOADER);
    match *shortage {
        MemoryShortage::Chunk { chunk_bytes, fitting_bytes } if loads_chunks => {
            let fitting = gigabytes(fitting_bytes);
            let batch_bytes = setup.data.shape().sample_bytes().saturating_mul(setup.training.batch_size as u64);
            let advice = match (fitting * 1e9) as u64 >= batch_bytes {
                true => format!("gpu_optimization.chunk_size_gb={fitting} would, and auto chooses"),
                false => "use gpu_optimization.chunk_size_gb=auto and a smaller gpu_optimization.batch_size".to_owned(),
            };
            Ok(Error::capacity(format!(
                "gpu_optimization.chunk_size_gb={}: two such chunks beside the model would not fit into {}; {advice}",
                gigabytes(chunk_bytes),
                bytes(setup.memory_bytes)
            )))
        }
        MemoryShortage::Batch { chunk_bytes, sample_bytes, batch_size, .. } => {
            let batch_bytes = sample_bytes.saturating_mul(batch_size as u64);
            let (limit, or_larger) = match setup.chunk_bytes_set() {
                Some(_) => {
                    let larger = gigabytes(batch_bytes + 1_000_000);
                    (String::new(), format!("; or gpu_optimization.chunk_size_gb={larger}"))
                }
                None => {
                    let available = bytes(setup.memory_bytes);
                    (format!(", the most that {available} leave beside the model,"), String::new())
                }
            };
            let message = format!(
                "a chunk of {}{limit} does not hold one batch of {batch_size} samples, {}: it would not fit; {}{or_larger}",
                bytes(chunk_bytes as usize),
                bytes(batch_bytes as usize),
                fitting_setting(setup)?
            );
            let error = Error::capacity(message).with_field("needed_bytes", batch_bytes);
            Ok(error.with_field("available_bytes", chunk_bytes))
        }
        _ => {
            let held = setup.held_bytes() as u64;
            let two_batches = 2 * setup.training.batch_size as u64 * setup.data.shape().sample_bytes();
            let least = setup.footprint(&setup.training)?.total_bytes() as u64 + held + two_batches;
            would_not_fit(setup, usize::try_from(least).unwrap_or(usize::MAX))
        }
    }
}

/// Adds a model that fits into free memory to an `error` of a run whose batch cannot be cut
/// further.
pub(crate) fn advise_smaller_model(setup: &TrainingSetup, error: Error) -> Error {
    if !matches!(error.find(), Some(trainer::Error::CannotReduceFurther { .. })) {
        return error;
    }
    let free = free_memory_bytes(&setup.device);
    let advice = match smaller_model(setup, free) {
        Some(hidden) => format!("model.hidden={hidden} would fit into the {} that are free now", bytes(free)),
        None => format!("{} are free now, which is not enough for a smaller model.hidden either", bytes(free)),
    };
    let told = error.exact_message();
    error.context(format!("{told}; {advice}; with more memory, --resume goes on"))
}

/// The largest model, of halved widths, with which a run takes at most `free` bytes beside the
/// data, one sample at a time and without chunks on a GPU.
fn smaller_model(setup: &TrainingSetup, free: usize) -> Option<usize> {
    let halved = std::iter::successors(Some(setup.training.model.hidden / 2), |hidden| Some(hidden / 2));
    halved.take_while(|&hidden| hidden > 0).find(|&hidden| {
        let model = megabatch_nn::model::ModelConfig { hidden, ..setup.training.model };
        let training = trainer::Config { model, batch_size: 1, chunk_windows: None, ..setup.training.clone() };
        setup.footprint(&training).is_ok_and(|footprint| footprint.total_bytes() <= free)
    })
}

/// In units of 10^9 bytes, rounded down to what can be typed: whole units of 10^6 bytes, or three
/// digits of less.
fn gigabytes(bytes: u64) -> f64 {
    let digits_left_out = bytes.checked_ilog10().unwrap_or(0).saturating_sub(2).min(6);
    let unit = 10_u64.pow(digits_left_out);
    (bytes / unit * unit) as f64 / 1e9
}

/// The largest batch of `training` that divides the samples of an optimizer step, so that
/// accumulation makes up for it, and with which the training `fits`. A larger batch hardly ever
/// takes less: a few are tried, as the sizes of a run's batches may take a while to find.
pub(super) fn largest_batch(
    training: &trainer::Config,
    fits: impl Fn(&trainer::Config) -> Result<bool>,
) -> Result<Option<usize>> {
    let step_samples = training.step_samples();
    let sizes: Vec<usize> = (1..training.batch_size).filter(|size| step_samples.is_multiple_of(*size)).collect();
    // Sizes before `fitting` fit, and those from `too_large` on do not.
    let (mut fitting, mut too_large) = (0, sizes.len());
    while fitting < too_large {
        let middle = fitting + (too_large - fitting) / 2;
        let batch_size = sizes[middle];
        let gradient_accumulation_steps = step_samples / batch_size;
        if fits(&trainer::Config { batch_size, gradient_accumulation_steps, ..training.clone() })? {
            fitting = middle + 1;
        } else {
            too_large = middle;
        }
    }
    Ok(fitting.checked_sub(1).map(|last| sizes[last]))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn few_batches_are_tried_to_find_the_largest_that_fits() {
        let training =
            trainer::Config { batch_size: 2520, gradient_accumulation_steps: 2, ..trainer::Config::default() };
        for (batch_size_max, expected) in
            [(0, None), (1, Some(1)), (100, Some(90)), (1680, Some(1680)), (2519, Some(1680))]
        {
            let tried = Cell::new(0);
            let largest = largest_batch(&training, |smaller| {
                tried.set(tried.get() + 1);
                assert_eq!(smaller.step_samples(), 5040);
                Ok(smaller.batch_size <= batch_size_max)
            });
            assert_eq!(largest.unwrap(), expected);
            // 58 sizes.
            assert!(tried.get() <= 6, "{} tries", tried.get());
        }
    }
}
