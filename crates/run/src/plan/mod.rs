//! Samples, steps and memory of a run, computed before it starts.

mod data;
mod gpu;
mod memory;
mod notes;
mod ranks;
mod reads;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use megabatch_nn::model::{Model, ModelConfig, Readout, SampleShape};
use megabatch_trainer::{SampleRanges, Split};
use serde::Serialize;

pub(crate) use data::DataPlan;
pub(crate) use gpu::GpuPlan;
pub(crate) use memory::{MemoryPlan, advise_smaller_model};

use crate::adapters::data::Data;
use crate::adapters::neighbours::Neighbours;
use crate::config::SettingSources;
use crate::error::Result;
use crate::host::Host;
use crate::setup::{Intent, Request, TrainingSetup, require_known_targets};
use crate::text::number::grouped;
use crate::text::{plural, utc};
use memory::{no_way_through, tensors_text, would_not_fit};
use notes::{Remarks, remarks, uses};
use ranks::RanksPlan;

/// A run to plan.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// Where settings come from.
    pub settings: SettingSources,
    /// Data file; goes over `data.path`.
    pub data: Option<PathBuf>,
    /// `cpu`, `auto`, `cuda` or `cuda:N`; a GPU need not be here.
    pub device: String,
    /// Memory of the device to plan for; what is free here if `None`.
    pub memory_bytes: Option<usize>,
    /// Optimizer steps, whatever `training.epochs` says.
    pub max_steps: Option<u64>,
    /// Processes that train together; 0 and 1 are one alone.
    pub ranks: usize,
}

impl Default for PlanRequest {
    fn default() -> Self {
        PlanRequest {
            settings: SettingSources::default(),
            data: None,
            device: "auto".to_owned(),
            memory_bytes: None,
            max_steps: None,
            ranks: 1,
        }
    }
}

/// Computes what a run will take: chunks, batches, peak memory by phase, steps.
///
/// # Errors
/// [`Kind::Capacity`](crate::Kind::Capacity) for a run that would not fit, with the nearest
/// settings that would, and those of its settings and data.
pub fn plan(request: &PlanRequest, host: &Host<'_>) -> Result<Plan> {
    let mut job = TrainingSetup::open(Request {
        config: request.settings.load(&host.environment)?,
        data: request.data.as_deref(),
        device: &request.device,
        max_steps: request.max_steps,
        memory_bytes: request.memory_bytes,
        intent: Intent::Plan,
        host,
    })?;
    job.ranks = request.ranks;
    let plan = Plan::of(&job)?;
    plan.require_fit(&job)?;
    job.require_settings_of_its_data()?;
    require_known_targets(&job, &job.split)?;
    Ok(plan)
}

/// The plan of a run: `plan.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub(crate) format_version: u32,
    pub(crate) data: DataPlan,
    pub(crate) split: SplitPlan,
    /// The rule of the split, in a sentence.
    pub(crate) split_rule: String,
    /// The loss, and its requirement on targets, which they met.
    pub(crate) loss: LossPlan,
    /// Shape of a sample.
    pub(crate) shape: SampleShape,
    /// Model settings that samples do not determine.
    pub(crate) model: ModelConfig,
    /// Numbers in the model's weights.
    pub(crate) parameters: usize,
    pub(crate) batch_size: usize,
    pub(crate) accumulation_steps: usize,
    /// Consecutive samples that stay together in the order; frozen here, so that a resumed run
    /// keeps it.
    pub(crate) run_length: usize,
    /// Why it is so long, where the data decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_length_reason: Option<&'static str>,
    pub(crate) seed: u64,
    pub(crate) steps_per_epoch: u64,
    /// Optimizer steps of the whole run.
    pub(crate) steps: u64,
    /// Samples, or graphs, that a validation takes.
    pub(crate) validation_samples: usize,
    /// Samples, or graphs, of the test that the errors at the end are computed from.
    pub(crate) test_samples: usize,
    pub(crate) memory: MemoryPlan,
    /// Plan of a run on a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gpu: Option<GpuPlan>,
    /// Plan of a run of several processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) distributed: Option<RanksPlan>,
    /// Assumptions that the errors of the run rest on, for people.
    pub(crate) warnings: Vec<String>,
    /// Notes on the settings, for people.
    pub(crate) notes: Vec<String>,
    /// Exports and streaming of the trained model, as far as the settings decide them.
    pub(crate) uses: Vec<String>,
}

/// The loss of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LossPlan {
    pub(crate) name: &'static str,
    /// Requirements on known targets; of tasks, one each.
    pub(crate) needs: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SplitPlan {
    pub(crate) train: usize,
    pub(crate) validation: usize,
    pub(crate) test: usize,
    pub(crate) purged: usize,
    /// Time of the first sample to validate, ns since 1970 UTC; absent where there is none, or no
    /// times.
    pub(crate) validation_start_ns: Option<i64>,
    pub(crate) test_start_ns: Option<i64>,
}

impl Plan {
    /// The plan of `job`.
    ///
    /// # Errors
    /// A capacity failure where the data cannot pass through memory, which names the nearest
    /// setting with which they could.
    pub(crate) fn of(job: &TrainingSetup) -> Result<Self> {
        let chunks = match &job.chunks {
            Ok(chunks) => *chunks,
            Err(shortage) => return Err(no_way_through(job, shortage)?),
        };
        let (training, shape) = (&job.training, job.data.samples().shape().clone());
        let footprint = job.footprint(training)?;
        let steps_per_epoch = job.split.train.len().div_ceil(training.step_samples()) as u64;
        let steps = job.planned_steps();
        let parameters = Model::new(shape.clone(), training.model)?.layout().len();
        let Remarks { warnings, notes } = remarks(job, steps)?;
        Ok(Plan {
            format_version: 1,
            data: DataPlan::of(job, chunks)?,
            split: SplitPlan::of(&job.split, &job.data)?,
            split_rule: job.data.split_rule(&job.config),
            loss: LossPlan {
                name: training.loss.name(),
                needs: training.loss.needs(shape.outputs).iter().map(ToString::to_string).collect(),
            },
            parameters,
            batch_size: training.batch_size,
            accumulation_steps: training.accumulation_steps,
            run_length: training.run_samples(),
            run_length_reason: job.neighbours.map(Neighbours::reason),
            seed: training.seed,
            steps_per_epoch,
            steps,
            validation_samples: training.evaluated(&job.split.validation).len(),
            test_samples: job.draw_for_errors(&job.split.test, steps)?.samples.len(),
            memory: MemoryPlan::of(job, job.data_bytes(&chunks), footprint)?,
            gpu: GpuPlan::of(job)?,
            distributed: RanksPlan::of(job, parameters)?,
            warnings,
            notes,
            uses: uses(job),
            model: training.model,
            shape,
        })
    }

    /// Rows of chunks that suit the batches of a streamed series better than those of its file.
    pub(crate) fn suited_chunk_rows(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.data.streamed.as_ref()?.chunk_rows()?)
    }

    /// # Errors
    /// A capacity failure that names the largest batch that would fit.
    pub(crate) fn require_fit(&self, job: &TrainingSetup) -> Result<()> {
        let MemoryPlan { total_bytes, available_bytes, .. } = self.memory;
        if total_bytes > available_bytes {
            return Err(would_not_fit(job, total_bytes)?);
        }
        self.gpu.as_ref().map_or(Ok(()), |gpu| gpu.require_fit(job))
    }

    /// Every tensor, as `megabatch plan --tensors` prints them below the plan.
    pub fn tensors_text(&self) -> String {
        let of_gpu =
            |gpu: &GpuPlan| format!("\npeak memory of {} by tensor\n{}", gpu.device, tensors_text(&gpu.tensors));
        let of_gpu = self.gpu.as_ref().map_or(String::new(), of_gpu);
        format!("peak memory by tensor\n{}{of_gpu}", tensors_text(&self.memory.tensors))
    }

    /// Description of data and model for the report.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let SplitPlan { train, validation, test, purged, .. } = &self.split;
        // Nothing lies between graphs, which have no times.
        let left_out =
            if self.data.is_of_graphs() { String::new() } else { format!(", {purged} left out between them") };
        let sentences = vec![
            format!(
                "{} {}s of {} ({} layout): {train} to train on, {validation} to validate, {test} to test{left_out}.",
                self.data.units,
                self.data.unit,
                self.data.path.display(),
                self.data.layout
            ),
            format!("{}. The model has {} weights.", self.sample(), self.parameters),
        ];
        let warnings = self.warnings.iter().map(|warning| format!("Warning: {warning}."));
        let notes = self.notes.iter().map(|note| format!("Note: {note}."));
        sentences.into_iter().chain(warnings).chain(notes).collect()
    }

    /// Line on the samples that are taken of `all`, by `setting`.
    fn taken(&self, taken: usize, all: usize, setting: &str) -> String {
        match taken {
            0 => "nothing".to_owned(),
            taken if taken == all => format!("all {}", plural(all, self.data.unit)),
            taken => {
                let (taken, all) = (grouped(taken as u64), plural(all, self.data.unit));
                format!("{taken} of {all}, evenly spaced: an estimate ({setting})")
            }
        }
    }

    /// A line an export or way of streaming.
    pub(crate) fn uses_text(&self) -> String {
        self.uses.iter().map(|line| format!("use       {line}\n")).collect()
    }

    /// Inputs of the model by sample, in words of its data.
    pub(crate) fn sample(&self) -> String {
        if !self.data.is_of_graphs() {
            return format!("A sample is {}", self.shape);
        }
        let features: usize = self.shape.timeframes.iter().map(|timeframe| timeframe.features).sum();
        let (features, targets) = (plural(features, "feature"), plural(self.shape.outputs, "target"));
        match self.model.readout {
            Some(Readout::Node) => format!("A node has {features} and {targets}"),
            _ => format!("A node has {features}, and a graph {targets}"),
        }
    }

    /// The plan as `megabatch plan` prints it.
    pub fn to_text(&self) -> String {
        let mut text = self.sentences().join("\n");
        text.push_str(&format!("\n{}{}\n\n", self.split_rule, self.split.instants()));
        text.push_str(&self.data.to_text());
        let reason = self.run_length_reason.map_or(String::new(), |reason| format!(" (auto: {reason})"));
        text.push_str(&format!("loss      {}; targets: {}\n", self.loss.name, self.loss.needs.join(", then ")));
        text.push_str(&format!(
            "batch     {} {}s x {} accumulated, runs of {}{reason}\n",
            self.batch_size, self.data.unit, self.accumulation_steps, self.run_length
        ));
        text.push_str(&format!("steps     {} an epoch, {} in all\n", self.steps_per_epoch, self.steps));
        let validation = (self.validation_samples, self.split.validation, "training.validation_samples");
        let test = (self.test_samples, self.split.test, "training.test_samples");
        for (label, (taken, all, setting)) in [("validate", validation), ("test    ", test)] {
            text.push_str(&format!("{label}  {}\n", self.taken(taken, all, setting)));
        }
        text.push('\n');
        text.push_str(&self.memory.to_text());
        text.push_str(&self.uses_text());
        text.extend(self.distributed.as_ref().map(RanksPlan::to_text));
        text.extend(self.gpu.as_ref().map(GpuPlan::to_text));
        text
    }
}

impl SplitPlan {
    /// When its parts begin, in a sentence after a blank; empty for data without times.
    fn instants(&self) -> String {
        match (self.validation_start_ns, self.test_start_ns) {
            (None, None) => String::new(),
            (Some(validation), None) => format!(" Validation begins {}.", utc(validation)),
            (None, Some(test)) => format!(" The test begins {}.", utc(test)),
            (Some(validation), Some(test)) => {
                format!(" Validation begins {}, test {}.", utc(validation), utc(test))
            }
        }
    }

    /// The parts of `split`, which is one of `data`.
    ///
    /// # Errors
    /// Times that cannot be read.
    pub(crate) fn of(split: &Split, data: &Data) -> Result<Self> {
        let Split { train, validation, test, purged, .. } = split;
        let first = |part: &SampleRanges| data.time_span(part).map(|span| span.map(|(first, _)| first));
        Ok(SplitPlan {
            train: train.len(),
            validation: validation.len(),
            test: test.len(),
            purged: *purged,
            validation_start_ns: first(validation)?,
            test_start_ns: first(test)?,
        })
    }
}
