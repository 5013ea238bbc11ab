//! One optimizer step.

use std::ops::ControlFlow;
use std::time::Instant;

use megabatch_amp::LossScaler;
use megabatch_amp::ops::StepReport;

use super::backend::Backend;
use super::distributed::{SharedStep, shared_gpu_step};
use super::on_cpu::{CpuBackend, StepInputs, UpdateSettings};
use super::on_gpu::{GpuStep, GpuTimes, StepHost};
use super::step_plan::{BatchPipeline, StepPlan, StepPlanner, UpdateOutcome};
use super::{Run, Trainer};
use crate::data::schedule::Schedule;
use crate::error::Result;
use crate::train::events::StepEvent;

/// The gradients of a step.
enum Gradients<'a> {
    /// Summed on the CPU, before the update.
    Summed(&'a mut CpuBackend),
    /// Applied by the GPU, if they were finite.
    Applied(StepReport),
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
            (Backend::Cuda(cuda), process_group) => {
                let host = StepHost {
                    weights: self.optimizer.host(&mut self.parameters),
                    scaler: self.scaler.as_ref(),
                    divergence: &self.divergence,
                };
                let step = GpuStep { start, number: self.step, lr, planner: &planner, host };
                let (plan, totals, report) = match process_group {
                    None => cuda.step(pipeline, step)?,
                    Some(process_group) => {
                        let (end, asked) = shared_gpu_step(cuda, process_group, pipeline, step)?;
                        agreed = asked;
                        end
                    }
                };
                if !totals.loss_sum.is_finite() {
                    return Err(self.blame_step(&plan, totals, schedule, run));
                }
                (plan, totals, Gradients::Applied(report))
            }
            (Backend::Cpu(cpu), None) => {
                let plan = planner.plan(self.step, scale)?;
                let totals = cpu.accumulate(inputs, self.carried.as_mut(), pipeline.feed, &plan)?;
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
                let (scaler, carried) = (self.scaler.as_mut(), self.carried.as_mut());
                cpu.update(settings, scaler, &mut self.optimizer, &mut self.parameters, carried)?
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
        let times = self.backend.take_gpu_times();
        let GpuTimes { gpu_s, captures } = self.tell_failure(times)?;
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
