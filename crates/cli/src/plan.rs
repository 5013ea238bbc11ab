//! What a run will take, computed before it starts: samples, steps, memory.

use std::path::PathBuf;

use anyhow::Result;
use megabatch_chunk_io::{Layout, Shape, TimeframeShape};
use megabatch_trainer::{self as trainer, CarriedStates, Footprint, Model, SampleShape, Samples as _, Split};
use serde::Serialize;

use crate::adapt::meaning::Meaning;
use crate::adapt::split::utc;
use crate::failure::Failure;
use crate::job::Job;
use crate::notes::notes;

/// Share of the memory that data may take where they do not fit whole.
const CHUNK_SHARE: f64 = 0.75;

/// The plan of a run: `plan.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    pub(crate) format_version: u32,
    pub(crate) data: DataPlan,
    pub(crate) split: SplitPlan,
    /// What each sample is made of.
    pub(crate) shape: SampleShape,
    /// Numbers in the model's weights.
    pub(crate) parameters: usize,
    pub(crate) batch_size: usize,
    pub(crate) accumulation_steps: usize,
    /// Consecutive samples that stay together in the order; frozen here, so that a resumed run keeps it.
    pub(crate) run_length: usize,
    pub(crate) seed: u64,
    pub(crate) steps_per_epoch: u64,
    /// Optimizer steps of the whole run.
    pub(crate) steps: u64,
    pub(crate) memory: MemoryPlan,
    /// What a user should know of the settings.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DataPlan {
    pub(crate) path: PathBuf,
    /// Of the samples; a run resumes on data of the same fingerprint only.
    pub(crate) fingerprint: String,
    /// What the model sees and predicts, where the file tells: a model is used on data of the same meaning only.
    pub(crate) meaning: Meaning,
    pub(crate) layout: Layout,
    pub(crate) samples: usize,
    /// Bytes of the samples as windows, whichever the layout.
    pub(crate) windows_bytes: u64,
    /// Bytes held in memory during the run.
    pub(crate) resident_bytes: usize,
    /// Chunks in which the data pass through memory; 1 when they stay.
    pub(crate) chunks: usize,
    pub(crate) samples_per_chunk: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SplitPlan {
    pub(crate) train: usize,
    pub(crate) validation: usize,
    pub(crate) test: usize,
    pub(crate) purged: usize,
    /// Time of the first sample to validate, ns since 1970 UTC; absent where there is none, or no times.
    pub(crate) validation_start_ns: Option<i64>,
    pub(crate) test_start_ns: Option<i64>,
}

/// Peak bytes of a run, by what they are for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MemoryPlan {
    pub(crate) data_bytes: usize,
    #[serde(flatten)]
    pub(crate) training: Footprint,
    pub(crate) total_bytes: usize,
    /// What the device could hand out when the plan was made.
    pub(crate) available_bytes: usize,
}

impl Plan {
    /// The plan of `job`, whether it fits or not.
    pub(crate) fn of(job: &Job) -> Result<Self> {
        let (training, shape) = (&job.training, job.samples.shape().clone());
        let footprint = footprint(job, training)?;
        let steps_per_epoch = job.split.train.len().div_ceil(training.step_samples()) as u64;
        let steps = training.max_steps.unwrap_or(training.epochs * steps_per_epoch);
        Ok(Plan {
            format_version: 1,
            data: DataPlan::of(job)?,
            split: SplitPlan::of(job),
            parameters: Model::new(shape.clone(), training.model)?.layout().len(),
            batch_size: training.batch_size,
            accumulation_steps: training.accumulation_steps,
            run_length: training.run_samples(),
            seed: training.seed,
            steps_per_epoch,
            steps,
            memory: MemoryPlan::of(job, footprint),
            notes: notes(job, steps)?,
            shape,
        })
    }

    /// # Errors
    /// A capacity failure that names the largest batch that would fit.
    pub(crate) fn require_fit(&self, job: &Job) -> Result<()> {
        let MemoryPlan { total_bytes, available_bytes, .. } = self.memory;
        if total_bytes <= available_bytes {
            return Ok(());
        }
        let advice = match largest_batch(job)? {
            None if self.memory.data_bytes >= available_bytes => {
                "the data alone would not; give more memory or less data".to_owned()
            }
            None => "not even one sample at a time would; use a smaller model.hidden, fewer layers or shorter windows"
                .to_owned(),
            Some(batch) => {
                let effective = self.batch_size * self.accumulation_steps;
                format!(
                    "gpu_optimization.batch_size={batch} would, with gpu_optimization.gradient_accumulation_steps={} for the same \
                     {effective} samples a step",
                    effective / batch
                )
            }
        };
        let (needed, available) = (bytes(total_bytes), bytes(available_bytes));
        Err(Failure::capacity(format!(
            "a run needs {needed} and {available} are available: it would not fit; {advice}"
        )))
    }

    /// What a reader of the report wants to know of data and model.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let SplitPlan { train, validation, test, purged, .. } = &self.split;
        let sentences = vec![
            format!(
                "{} samples of {} ({} layout): {train} to train on, {validation} to validate, {test} to test, {purged} left out between them.",
                self.data.samples,
                self.data.path.display(),
                self.data.layout
            ),
            format!("A sample is {}. The model has {} weights.", self.shape, self.parameters),
        ];
        sentences.into_iter().chain(self.notes.iter().map(|note| format!("Note: {note}."))).collect()
    }

    /// The plan as `megabatch plan` prints it.
    pub(crate) fn to_text(&self) -> String {
        let mut text = self.sentences().join("\n");
        let DataPlan { windows_bytes, resident_bytes, chunks, samples_per_chunk, .. } = &self.data;
        let when = |instant: Option<i64>| instant.map_or("never".to_owned(), utc);
        text.push_str(&format!(
            "\nValidation begins {}, test {}.\n\n",
            when(self.split.validation_start_ns),
            when(self.split.test_start_ns)
        ));
        let windows_bytes = usize::try_from(*windows_bytes).unwrap_or(usize::MAX);
        text.push_str(&match chunks {
            1 => format!("data      {} stay in memory ({} as windows)\n", bytes(*resident_bytes), bytes(windows_bytes)),
            _ => format!(
                "data      {} as windows in {chunks} chunks of {samples_per_chunk} samples\n",
                bytes(windows_bytes)
            ),
        });
        text.push_str(&format!(
            "batch     {} samples x {} accumulated, runs of {}\n",
            self.batch_size, self.accumulation_steps, self.run_length
        ));
        text.push_str(&format!("steps     {} an epoch, {} in all\n\npeak memory\n", self.steps_per_epoch, self.steps));
        let MemoryPlan { data_bytes, training, total_bytes, available_bytes } = &self.memory;
        for (name, size) in [
            ("data", *data_bytes),
            ("parameters", training.parameters_bytes),
            ("gradients", training.gradients_bytes),
            ("optimizer", training.optimizer_bytes),
            ("activations", training.activations_bytes),
            ("batches", training.batches_bytes),
            ("carried", training.carried_bytes),
            ("total", *total_bytes),
            ("available", *available_bytes),
        ] {
            text.push_str(&format!("  {name:<12}{:>12}\n", bytes(size)));
        }
        text
    }
}

/// Bytes that `training` takes beside the data.
fn footprint(job: &Job, training: &trainer::Config) -> Result<Footprint> {
    let Split { train, validation, .. } = &job.split;
    let shape = job.samples.shape();
    let footprint = Footprint::of(training, shape, validation.len())?;
    if !training.carry_state {
        return Ok(footprint);
    }
    let states = CarriedStates::of(&job.samples, train, validation)?;
    Ok(footprint.with_carried_states(training, shape, &states))
}

/// The largest batch that fits and divides the samples of an optimizer step, so that accumulation makes up for it.
fn largest_batch(job: &Job) -> Result<Option<usize>> {
    let (step_samples, data_bytes) = (job.training.step_samples(), job.data_bytes());
    let fits = |batch_size: usize| -> Result<bool> {
        let training = trainer::Config { batch_size, ..job.training.clone() };
        Ok(data_bytes + footprint(job, &training)?.total_bytes() <= job.memory_bytes)
    };
    // A larger batch never takes less: the first that does not fit ends the search.
    let (mut fitting, mut too_large) = (0, job.training.batch_size);
    while too_large - fitting > 1 {
        let middle = fitting + (too_large - fitting) / 2;
        if fits(middle)? { fitting = middle } else { too_large = middle }
    }
    Ok((1..=fitting).rev().find(|batch| step_samples.is_multiple_of(*batch)))
}

impl DataPlan {
    fn of(job: &Job) -> Result<Self> {
        let source = job.samples.source();
        let fingerprint = job.samples.fingerprint()?;
        let shape = source.shape();
        let resident_bytes = job.data_bytes();
        let sample_bytes = sample_bytes(shape);
        let chunk_bytes = match job.config.optional_number("gpu_optimization.chunk_size_gb") {
            Some(gigabytes) => gigabytes * 1e9,
            None => CHUNK_SHARE * job.memory_bytes as f64,
        };
        let is_resident = source.is_resident();
        let fitting = ((chunk_bytes / sample_bytes as f64) as usize).max(job.training.batch_size);
        let samples_per_chunk = if is_resident { shape.samples } else { fitting.min(shape.samples) };
        Ok(DataPlan {
            path: source.path().to_owned(),
            fingerprint,
            meaning: Meaning::of(source)?,
            layout: source.layout(),
            samples: shape.samples,
            windows_bytes: shape.samples as u64 * sample_bytes as u64,
            resident_bytes,
            chunks: shape.samples.div_ceil(samples_per_chunk),
            samples_per_chunk,
        })
    }
}

/// Bytes of one sample as windows and targets, T·F·4 a timeframe and K·4.
fn sample_bytes(shape: &Shape) -> usize {
    let values: usize = shape.timeframes.iter().map(TimeframeShape::window_len).sum();
    (values + shape.horizons) * size_of::<f32>()
}

impl SplitPlan {
    fn of(job: &Job) -> Self {
        let Split { train, validation, test, purged, .. } = &job.split;
        let times = job.samples.source().sample_times();
        let first = |part: &[usize]| part.iter().filter_map(|&n| times.map(|times| times[n])).min();
        SplitPlan {
            train: train.len(),
            validation: validation.len(),
            test: test.len(),
            purged: *purged,
            validation_start_ns: first(validation),
            test_start_ns: first(test),
        }
    }
}

impl MemoryPlan {
    fn of(job: &Job, training: Footprint) -> Self {
        let data_bytes = job.data_bytes();
        MemoryPlan {
            data_bytes,
            training,
            total_bytes: data_bytes + training.total_bytes(),
            // The data are in memory by now, so that what is free is less by as much.
            available_bytes: job.memory_bytes,
        }
    }
}

/// A size as people read it, in powers of 1000.
pub(crate) fn bytes(size: usize) -> String {
    let (mut value, mut unit) = (size as f64, "B");
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    if unit == "B" { format!("{value} B") } else { format!("{value:.3} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        for (size, text) in [(0, "0 B"), (999, "999 B"), (1_000, "1.000 kB"), (44_180_000_000, "44.180 GB")] {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn the_bytes_of_a_sample_are_those_of_its_windows_and_targets() {
        let timeframe = |steps| TimeframeShape { name: None, steps, features: 128 };
        let shape = Shape { samples: 1, timeframes: [480, 288, 192, 96, 48].map(timeframe).to_vec(), horizons: 36 };
        assert_eq!(sample_bytes(&shape), 565_392);
    }
}
