#![forbid(unsafe_code)]

//! One optimizer step.

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use megabatch_amp::LossScaler;
use megabatch_amp::ops::StepReport;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::BatchView;
use megabatch_nn::loss::{Loss, Objective, Tasks};
use megabatch_nn::model::{Model, StepDropout, StepSeed};
use megabatch_order::StepSamples;

use super::backend::Backend;
use super::distributed::SharedStep;
use super::on_cpu::{CpuBackend, StepInputs, UpdateSettings};
use super::on_gpu::{GpuTimes, StepHost};
use super::{Run, Trainer};
use crate::config::Config;
use crate::data::prefetch::BatchFeed;
use crate::data::samples::TargetReader;
use crate::data::schedule::Schedule;
use crate::error::Result;
use crate::train::events::StepEvent;

/// Terms of each task, [`Tasks::count`].
type TaskCounts = [usize; Tasks::MAX];

/// The batches of a run.
pub(super) struct BatchPipeline<'f, 'a> {
    pub(super) feed: &'f mut BatchFeed<'a>,
    /// The next step, where a GPU was given its batches already; or what kept it from that, which
    /// is that step's error.
    pub(super) ahead: Option<Result<StepPlan>>,
}

/// Plan of a step.
pub(super) struct StepPlan {
    pub(super) samples: StepSamples,
    /// The batches that it is computed in: positions in the order of its epoch.
    pub(super) batches: Vec<Range<usize>>,
    pub(super) objective: Objective,
    /// Task counts, where the first batch has to know of the last.
    counts: Option<TaskCounts>,
    /// Terms of the loss, if all targets are known.
    terms_max: usize,
}

impl StepPlan {
    /// The objective over `batch`, whose samples have these positions.
    pub(super) fn objective_over(&self, batch: &BatchView<'_>, positions: &Range<usize>) -> Objective {
        let objective = Objective { position: positions.start, ..self.objective };
        let Loss::Tasks(tasks) = objective.loss else { return objective };
        let counts = self.counts.unwrap_or_else(|| tasks.count(batch.targets()));
        Objective { loss: Loss::Tasks(tasks.with_step_counts(counts)), ..objective }
    }
}

/// Source of the plans of steps.
pub(super) struct StepPlanner<'a> {
    pub(super) config: &'a Config,
    pub(super) model: &'a Model,
    /// Memory of targets that are read ahead.
    pub(super) device: &'a Device,
    pub(super) schedule: &'a Schedule,
    pub(super) run: &'a Run<'a>,
    /// True if several ranks compute a step.
    pub(super) is_shared: bool,
}

/// The gradients of a step.
enum Gradients<'a> {
    /// Summed on the CPU, before the update.
    Summed(&'a mut CpuBackend),
    /// Applied by the GPU, if they were finite.
    Applied(StepReport),
}

/// Outcome of the gradients of a step.
pub(super) struct UpdateOutcome {
    pub(super) norm: f64,
    /// The first that overflowed.
    pub(super) overflow: Option<String>,
}

impl Trainer {
    /// Gradients of the step's batches, norm, clip, update. With the event comes the wish of any
    /// rank's observer before it that the run end.
    ///
    /// # Errors
    /// [`Error::NotFinite`], [`Targets`](megabatch_nn::Error::Targets), [`Error::Scale`] and
    /// [`Error::LossSpike`] before anything is updated.
    pub(super) fn training_step(
        &mut self,
        pipeline: &mut BatchPipeline<'_, '_>,
        schedule: &Schedule,
        run: &Run<'_>,
    ) -> Result<(StepEvent, ControlFlow<()>)> {
        let start = Instant::now();
        let lr = self.rate(schedule);
        let mut agreed = ControlFlow::Continue(());
        let scale = self.scale();
        let planner = StepPlanner {
            config: &self.config,
            model: &self.model,
            device: &self.device,
            schedule,
            run,
            is_shared: self.process_group.is_some(),
        };
        let inputs = StepInputs {
            model: &self.model,
            parameters: &self.parameters,
            step: self.step + 1,
            is_scaled: self.scaler.is_some(),
        };
        let (plan, totals, gradients) = match (&mut self.backend, &mut self.process_group) {
            (Backend::Cuda(cuda), _) => {
                let host = StepHost {
                    weights: self.optimizer.host(&mut self.parameters),
                    scaler: self.scaler.as_ref(),
                    divergence: &self.divergence,
                };
                let (plan, totals, report) = cuda.step(pipeline, self.step, lr, &planner, host)?;
                if !totals.loss_sum.is_finite() {
                    return Err(self.blame_step(&plan, totals, schedule, run));
                }
                (plan, totals, Gradients::Applied(report))
            }
            (Backend::Cpu(cpu), None) => {
                let plan = planner.plan(self.step, scale)?;
                let totals = cpu.accumulate(inputs, pipeline.feed, &plan)?;
                (plan, totals, Gradients::Summed(cpu))
            }
            (Backend::Cpu(cpu), Some(process_group)) => {
                let plan = planner.plan(self.step, scale);
                let mut shared = SharedStep { cpu: &mut *cpu, process_group, inputs, device: &self.device };
                let (plan, totals, asked) = shared.compute(pipeline.feed, plan)?;
                agreed = asked;
                (plan, totals, Gradients::Summed(cpu))
            }
        };
        let StepPlan { samples, objective, terms_max, .. } = plan;
        assert!(
            totals.terms <= terms_max && (run.samples.graphs().is_none() || totals.terms == terms_max),
            "{} terms of the loss in step {}, and {terms_max} as `Graphs::labelled` has it",
            totals.terms,
            self.step + 1
        );
        let update_start = Instant::now();
        // In a step without any known target there is nothing to learn, and no term to divide by.
        let (learns, terms) = (totals.terms > 0, totals.terms.max(1));
        let loss = totals.loss_sum / terms as f64;
        self.config.divergence.check_loss(&self.divergence, self.step + 1, loss)?;
        // Which targets are known shows as batches are computed: gradients are those of the sum
        // over `count` until here.
        let share = objective.count as f64 / terms as f64;
        let UpdateOutcome { norm, overflow } = match gradients {
            Gradients::Summed(cpu) => {
                let inverse_scale = (share / f64::from(objective.scale)) as f32;
                let settings = UpdateSettings { inverse_scale, lr, clip_norm: self.config.clip_norm, learns };
                cpu.update(settings, self.scaler.as_mut(), &mut self.optimizer, &mut self.parameters)?
            }
            Gradients::Applied(report) => self.note_report(&report, loss)?,
        };
        if learns {
            self.divergence.note(loss);
        }
        self.step += 1;
        self.device.step();
        self.backend.count_step();

        let (waited, waits) = pipeline.feed.take_waited();
        let GpuTimes { gpu_s, captures } = self.backend.take_gpu_times()?;
        let event = StepEvent {
            step: self.step,
            steps: schedule.steps,
            epoch: samples.epoch,
            samples: samples.positions.len(),
            loss,
            loss_terms: (totals.terms < objective.count).then_some(totals.terms),
            grad_norm: norm,
            loss_scale: self.scaler.as_ref().map(|_| objective.scale),
            overflow,
            lr,
            data_wait_s: waited.as_secs_f64(),
            data_waits: waits,
            forward_s: totals.forward.as_secs_f64(),
            backward_s: totals.backward.as_secs_f64(),
            optimizer_s: update_start.elapsed().as_secs_f64(),
            gpu_s,
            captures,
            samples_per_s: samples.positions.len() as f64 / start.elapsed().as_secs_f64(),
            allocated_bytes: self.device().usage().allocated_bytes,
            profile: self.config.profile.then(|| Box::new(self.backend.engine().take_profile(&self.model))),
        };
        Ok((event, agreed))
    }

    /// The learning rate of the next step.
    fn rate(&self, schedule: &Schedule) -> f64 {
        let lr = self.config.lr_schedule.rate(self.config.optimizer.lr, self.step, schedule.steps);
        lr * self.divergence.rate_factor()
    }

    /// Factor of the loss.
    pub(super) fn scale(&self) -> f32 {
        self.scaler.as_ref().map_or(1.0, LossScaler::scale)
    }
}

impl StepPlanner<'_> {
    /// Plan of step `step`, counted from 0.
    pub(super) fn plan(&self, step: u64, scale: f32) -> Result<StepPlan> {
        let samples = self.schedule.step(step);
        let terms_max = self.terms_max(step, &samples);
        let objective = Objective {
            loss: self.config.loss,
            count: terms_max.max(1),
            position: samples.positions.start,
            dropout: StepDropout {
                between_layers: self.config.dropout_of_step(step)?,
                in_graphs: StepSeed { seed: self.config.seed, step },
            },
            scale,
        };
        let batches = self.schedule.own_batches_of(&samples);
        let is_whole = !self.is_shared && batches.len() == 1;
        let counts = if is_whole { None } else { self.counts_ahead(step)? };
        Ok(StepPlan { samples, batches, objective, counts, terms_max })
    }

    /// Terms of the loss of a step: of graphs those of its known targets, elsewhere those that
    /// there are if all targets are known.
    fn terms_max(&self, step: u64, samples: &StepSamples) -> usize {
        let outputs = self.model.shape().outputs;
        match self.run.samples.graphs() {
            Some(graphs) => {
                let batches = self.schedule.batches(step..step + 1, self.run.train);
                let labelled = batches.flatten().map(|graph| graphs.labelled(graph));
                labelled.map(|labelled| self.config.loss.graph_terms(labelled, outputs)).sum()
            }
            None => self.config.loss.terms_max(samples.positions.len(), outputs),
        }
    }

    /// Terms of each task in a step of several batches, of which the first has to know how many
    /// targets of the last are known.
    fn counts_ahead(&self, step: u64) -> Result<Option<TaskCounts>> {
        let Loss::Tasks(tasks) = self.config.loss else { return Ok(None) };
        let batches = self.schedule.batches(step..step + 1, self.run.train);
        let mut targets = TargetReader::new(self.run.samples, &self.device.scope("batches"))?;
        let mut counts = TaskCounts::default();
        for sample in batches.flatten() {
            let sample_counts = tasks.count(targets.read(sample)?);
            counts.iter_mut().zip(sample_counts).for_each(|(count, sample_counts)| *count += sample_counts);
        }
        Ok(Some(counts))
    }
}
