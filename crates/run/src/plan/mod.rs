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
use crate::adapters::fold_plan::FoldPlan;
use crate::adapters::neighbours::Neighbours;
use crate::adapters::purge_basis::purge_basis;
use crate::config::SettingSources;
use crate::distributed::folds_not_distributed;
use crate::error::Result;
use crate::host::Host;
use crate::setup::splits::require_splits;
use crate::setup::{Intent, Request, TrainingSetup};
use crate::text::number::grouped;
use crate::text::{plural, utc};
use memory::{no_way_through, tensors_text, would_not_fit};
pub(crate) use notes::PLAN_OF_LAST_FOLD;
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
    /// Memory of the device to plan for; free memory of this machine if `None`.
    pub memory_bytes: Option<usize>,
    /// Optimizer steps, whatever `training.epochs` says.
    pub max_steps: Option<u64>,
    /// Processes that train together; 0 and 1 both mean one.
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
/// settings that would; errors of settings and data.
pub fn plan(request: &PlanRequest, host: &Host<'_>) -> Result<Plan> {
    let config = request.settings.load(&host.environment)?;
    let folds = FoldPlan::from_config(&config)?;
    if request.ranks > 1 && folds.is_some() {
        return Err(folds_not_distributed());
    }
    let setup = TrainingSetup::open(Request {
        data: request.data.as_deref(),
        device: &request.device,
        max_steps: request.max_steps,
        memory_bytes: request.memory_bytes,
        ranks: request.ranks,
        ..Request::new(config, Intent::Plan, host)
    })?;
    if setup.ranks > 1 {
        setup.training.check_distributed()?;
    }
    let plan = Plan::new(&setup)?;
    plan.require_fit(&setup)?;
    setup.require_settings_of_its_data()?;
    require_splits(&setup, folds)?;
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
    /// Origin of the distance between the parts, in a sentence; `None` for graphs, and where all
    /// samples are for training.
    pub(crate) purge_basis: Option<String>,
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
    /// Consecutive samples that stay together in the order. A resumed run keeps this number.
    pub(crate) run_length: usize,
    /// Reason for the run length, where the data decided it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_length_reason: Option<&'static str>,
    pub(crate) seed: u64,
    /// File of the first weights, where they are not drawn by the seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) init: Option<PathBuf>,
    pub(crate) steps_per_epoch: u64,
    /// Optimizer steps of the whole run.
    pub(crate) steps: u64,
    /// Samples, or graphs, that a validation takes.
    pub(crate) validation_samples: usize,
    /// Test samples, or graphs, that the final errors are computed from.
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
    /// Requirements on known targets, one for each task.
    pub(crate) needs: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SplitPlan {
    pub(crate) train: usize,
    pub(crate) validation: usize,
    pub(crate) test: usize,
    pub(crate) purged: usize,
    /// Time of the first validation sample, ns since 1970 UTC; absent without validation or times.
    pub(crate) validation_start_ns: Option<i64>,
    pub(crate) test_start_ns: Option<i64>,
}

impl Plan {
    /// The plan of `setup`.
    ///
    /// # Errors
    /// A capacity failure where the data cannot pass through memory, which names the nearest
    /// setting with which they could.
    pub(crate) fn new(setup: &TrainingSetup) -> Result<Self> {
        let chunks = match &setup.chunks {
            Ok(chunks) => *chunks,
            Err(shortage) => return Err(no_way_through(setup, shortage)?),
        };
        let (training, shape) = (&setup.training, setup.data.samples().shape().clone());
        let footprint = setup.footprint(training)?;
        let steps_per_epoch = setup.split.train.len().div_ceil(training.step_samples()) as u64;
        let steps = setup.planned_steps();
        let parameters = Model::new(shape.clone(), training.model)?.layout().len();
        let Remarks { warnings, notes } = remarks(setup, steps)?;
        Ok(Plan {
            format_version: 1,
            data: DataPlan::new(setup, chunks)?,
            split: SplitPlan::new(&setup.split, &setup.data)?,
            split_rule: setup.data.split_rule(&setup.config),
            purge_basis: match setup.data.source() {
                Some(source) => purge_basis(source, &setup.config)?,
                None => None,
            },
            loss: LossPlan {
                name: training.loss.name(),
                needs: training.loss.needs(shape.outputs).iter().map(ToString::to_string).collect(),
            },
            parameters,
            batch_size: training.batch_size,
            accumulation_steps: training.gradient_accumulation_steps,
            run_length: training.run_samples(),
            run_length_reason: setup.neighbours.map(Neighbours::reason),
            seed: training.seed,
            init: None,
            steps_per_epoch,
            steps,
            validation_samples: training.evaluated(&setup.split.validation).len(),
            test_samples: setup.draw_for_errors(&setup.split.test, steps)?.samples.len(),
            memory: MemoryPlan::new(setup, setup.data_bytes(&chunks), footprint)?,
            gpu: GpuPlan::new(setup)?,
            distributed: RanksPlan::new(setup, parameters)?,
            warnings,
            notes,
            uses: uses(setup),
            model: training.model,
            shape,
        })
    }

    /// Chunk rows that suit the batches of a streamed series better than those of its file.
    pub(crate) fn suited_chunk_rows(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.data.streamed.as_ref()?.chunk_rows()?)
    }

    /// # Errors
    /// A capacity failure that names the largest batch that would fit.
    pub(crate) fn require_fit(&self, setup: &TrainingSetup) -> Result<()> {
        let MemoryPlan { total_bytes, available_bytes, .. } = self.memory;
        if total_bytes > available_bytes {
            return Err(would_not_fit(setup, total_bytes)?);
        }
        self.gpu.as_ref().map_or(Ok(()), |gpu| gpu.require_fit(setup))
    }

    /// Every tensor, as `megabatch plan --tensors` prints them below the plan.
    pub fn tensors_text(&self) -> String {
        let gpu_tensors =
            |gpu: &GpuPlan| format!("\npeak memory of {} by tensor\n{}", gpu.device, tensors_text(&gpu.tensors));
        let gpu_tensors = self.gpu.as_ref().map_or(String::new(), gpu_tensors);
        format!("peak memory by tensor\n{}{gpu_tensors}", tensors_text(&self.memory.tensors))
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

    /// Text on the number of samples out of `all`, and the `setting` that decides it.
    fn sample_count(&self, sample_count: usize, all: usize, setting: &str) -> String {
        match sample_count {
            0 => "nothing".to_owned(),
            sample_count if sample_count == all => format!("all {}", plural(all, self.data.unit)),
            sample_count => {
                let (sample_count, all) = (grouped(sample_count as u64), plural(all, self.data.unit));
                format!("{sample_count} of {all}, evenly spaced: an estimate ({setting})")
            }
        }
    }

    /// Inputs of the model for one sample, in words.
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
        let purge_basis = self.purge_basis.as_ref().map_or(String::new(), |basis| format!(" {basis}"));
        text.push_str(&format!("\n{}{}{purge_basis}\n\n", self.split_rule, self.split.instants()));
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
        for (label, (sample_count, all, setting)) in [("validate", validation), ("test    ", test)] {
            text.push_str(&format!("{label}  {}\n", self.sample_count(sample_count, all, setting)));
        }
        text.push('\n');
        text.push_str(&self.memory.to_text());
        text.extend(self.uses.iter().map(|line| format!("use       {line}\n")));
        text.extend(self.distributed.as_ref().map(RanksPlan::to_text));
        text.extend(self.gpu.as_ref().map(GpuPlan::to_text));
        text
    }
}

impl SplitPlan {
    /// Begin times of the parts, as a sentence after a blank; empty for data without times.
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
    pub(crate) fn new(split: &Split, data: &Data) -> Result<Self> {
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
