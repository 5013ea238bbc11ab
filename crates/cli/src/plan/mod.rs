//! What a run will take, computed before it starts: samples, steps, memory.

mod data;
mod gpu;
mod memory;
mod reads;

use anyhow::Result;
use megabatch_trainer::{Model, ModelConfig, SampleShape, Split};
use serde::Serialize;

pub(crate) use data::DataPlan;
pub(crate) use gpu::GpuPlan;
pub(crate) use memory::{MemoryPlan, advise_smaller_model};
pub(crate) use reads::decoded_rows;

use crate::adapt::data::Data;
use crate::adapt::split::utc;
use crate::job::Job;
use crate::notes::notes;
use memory::{no_way_through, tensors_text, would_not_fit};

/// The plan of a run: `plan.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    pub(crate) format_version: u32,
    pub(crate) data: DataPlan,
    pub(crate) split: SplitPlan,
    /// What each sample is made of.
    pub(crate) shape: SampleShape,
    /// What the model is, as far as samples leave it open.
    pub(crate) model: ModelConfig,
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
    /// Of a run on a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu: Option<GpuPlan>,
    /// What a user should know of the settings.
    pub(crate) notes: Vec<String>,
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

impl Plan {
    /// The plan of `job`.
    ///
    /// # Errors
    /// A capacity failure where the data cannot pass through memory, which names the nearest setting with which they could.
    pub(crate) fn of(job: &Job) -> Result<Self> {
        let chunks = match &job.chunks {
            Ok(chunks) => *chunks,
            Err(shortage) => return Err(no_way_through(job, shortage)?),
        };
        let (training, shape) = (&job.training, job.data.samples().shape().clone());
        let footprint = job.footprint(training)?;
        let steps_per_epoch = job.split.train.len().div_ceil(training.step_samples()) as u64;
        let steps = training.max_steps.unwrap_or(training.epochs * steps_per_epoch);
        Ok(Plan {
            format_version: 1,
            data: DataPlan::of(job, chunks)?,
            split: SplitPlan::of(&job.split, &job.data),
            parameters: Model::new(shape.clone(), training.model)?.layout().len(),
            batch_size: training.batch_size,
            accumulation_steps: training.accumulation_steps,
            run_length: training.run_samples(),
            seed: training.seed,
            steps_per_epoch,
            steps,
            memory: MemoryPlan::of(job, job.data_bytes(&chunks), footprint)?,
            gpu: GpuPlan::of(job)?,
            notes: notes(job, steps)?,
            model: training.model,
            shape,
        })
    }

    /// # Errors
    /// A capacity failure that names the largest batch that would fit.
    pub(crate) fn require_fit(&self, job: &Job) -> Result<()> {
        let MemoryPlan { total_bytes, available_bytes, .. } = self.memory;
        if total_bytes > available_bytes {
            return Err(would_not_fit(job, total_bytes)?);
        }
        self.gpu.as_ref().map_or(Ok(()), |gpu| gpu.require_fit(job))
    }

    /// Every tensor, as `megabatch plan --tensors` prints them below the plan.
    pub(crate) fn tensors_text(&self) -> String {
        let of_gpu =
            |gpu: &GpuPlan| format!("\npeak memory of {} by tensor\n{}", gpu.device, tensors_text(&gpu.tensors));
        let of_gpu = self.gpu.as_ref().map_or(String::new(), of_gpu);
        format!("peak memory by tensor\n{}{of_gpu}", tensors_text(&self.memory.tensors))
    }

    /// What a reader of the report wants to know of data and model.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let SplitPlan { train, validation, test, purged, .. } = &self.split;
        let sentences = vec![
            format!(
                "{} {}s of {} ({} layout): {train} to train on, {validation} to validate, {test} to test, {purged} left out between them.",
                self.data.units,
                self.data.unit,
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
        let when = |instant: Option<i64>| instant.map_or("never".to_owned(), utc);
        text.push_str(&format!(
            "\nValidation begins {}, test {}.\n\n",
            when(self.split.validation_start_ns),
            when(self.split.test_start_ns)
        ));
        text.push_str(&self.data.to_text());
        text.push_str(&format!(
            "batch     {} {}s x {} accumulated, runs of {}\n",
            self.batch_size, self.data.unit, self.accumulation_steps, self.run_length
        ));
        text.push_str(&format!("steps     {} an epoch, {} in all\n\n", self.steps_per_epoch, self.steps));
        text.push_str(&self.memory.to_text());
        text.extend(self.gpu.as_ref().map(GpuPlan::to_text));
        text
    }
}

impl SplitPlan {
    /// The parts of `split`, which is one of `data`.
    pub(crate) fn of(split: &Split, data: &Data) -> Self {
        let Split { train, validation, test, purged, .. } = split;
        let times = data.unit_times();
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
}
