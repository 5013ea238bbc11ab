//! Steps on a GPU, which does not wait for the host.
//!
//! ```text
//! host     batches of n + 1    wait for report n   check, tell   end of n + 1   batches of n + 2 …
//! device   batches of n, end of n, report n  │  batches of n + 1   │  end of n + 1 …
//! ```
//!
//! Only the gradients of step n + 1 are submitted before report n is read: they change neither
//! weights nor the optimizer. If the run stops or rolls back after step n, they are dropped.

use std::path::{Path, PathBuf};
use std::time::Instant;

use megabatch_amp::ops::{StepReport, StepSettings};
use megabatch_amp::{LossScaler, Overflow};
use megabatch_gpu_core::Device;
use megabatch_nn::graph::EdgeForm;
use megabatch_nn::model::Model;
use megabatch_nn_cpu::{Carried, Engine, Totals};
use megabatch_nn_cuda::{Accelerator, Host};

use super::after::Due;
use super::on_cpu::{StepInputs, locate_non_finite};
use super::step_plan::{BatchPipeline, StepPlan, StepPlanner, UpdateOutcome};
use super::{Run, Trainer};
use crate::config::Config;
use crate::config::divergence::DivergenceState;
use crate::config::optimizer::OptimizerConfig;
use crate::data::prefetch::{GatherMode, Source, with_batches};
use crate::data::prefetching::always;
use crate::data::sample_weights::{LossInputs, SampleWeights};
use crate::data::schedule::Schedule;
use crate::error::{Error, Result};
use crate::evaluate::predictions::PredictionBackend;
use crate::evaluate::selection::{Selection, graphs_of};
use crate::train::oom_fallback::MemoryLimits;

/// Memory of steps on a GPU.
#[derive(Debug)]
pub(super) struct CudaBackend {
    pub(super) gpu: Device,
    /// Weights, gradients and batches on the GPU; `None` once they were given back in a shortage
    /// and could not be taken anew.
    pub(super) accelerator: Option<Accelerator>,
    /// Limits of the memory of steps.
    limits: MemoryLimits,
    timer: GpuTimer,
    /// Folder of the measured kernels, if there is one.
    tuning_folder: Option<PathBuf>,
    /// CPU engine, which evaluates, and finds numbers that are not finite.
    pub(super) engine: Engine,
}

/// A step that is to be computed on a GPU.
pub(super) struct GpuStep<'a> {
    pub(super) start: Instant,
    /// Number of the step, counted from 0.
    pub(super) number: u64,
    pub(super) lr: f64,
    pub(super) planner: &'a StepPlanner<'a>,
    pub(super) host: StepHost<'a>,
}

/// The run's state on the host that a step on a GPU takes up.
pub(super) struct StepHost<'a> {
    pub(super) weights: Host<'a>,
    pub(super) scaler: Option<&'a LossScaler>,
    pub(super) divergence: &'a DivergenceState,
}

impl StepHost<'_> {
    /// Factor of the loss.
    fn scale(&self) -> f32 {
        self.scaler.map_or(1.0, LossScaler::scale)
    }
}

impl CudaBackend {
    /// Takes the memory of steps within `limits`, but for that of batches.
    pub(super) fn new(
        gpu: &Device,
        model: &Model,
        config: &Config,
        limits: MemoryLimits,
        engine: Engine,
    ) -> Result<Self> {
        let (gpu, timer) = (gpu.clone(), GpuTimer::default());
        let mut backend = CudaBackend { gpu, accelerator: None, limits, timer, tuning_folder: None, engine };
        backend.ensure_accelerator(model, config)?;
        Ok(backend)
    }

    /// The memory of steps, which is taken where there is none. It is timed, and keeps its tuning,
    /// as that before it.
    pub(super) fn ensure_accelerator(&mut self, model: &Model, config: &Config) -> Result<&mut Accelerator> {
        let accelerator = match self.accelerator.take() {
            Some(accelerator) => accelerator,
            None => {
                let mut accelerator = Accelerator::new(&self.gpu, model, &self.limits.on_device(config))?;
                self.timer.captures_before = 0;
                if self.timer.is_on {
                    accelerator.time_work()?;
                }
                self.tuning_folder.iter().for_each(|folder| accelerator.tuner().keep_in(folder));
                accelerator
            }
        };
        Ok(self.accelerator.insert(accelerator))
    }

    /// Gives all memory back, and takes that of steps anew within `limits`. Buffers had the size of
    /// the largest batch.
    pub(super) fn restart(&mut self, model: &Model, config: &Config, limits: MemoryLimits) -> Result<()> {
        self.accelerator = None;
        self.limits = limits;
        self.ensure_accelerator(model, config).map(|_| ())
    }

    /// Has steps carry the states of the host from now on, in memory of the GPU's.
    pub(super) fn carry_states(&mut self, model: &Model, config: &Config, carried: Option<&Carried>) -> Result<()> {
        let accelerator = self.ensure_accelerator(model, config)?;
        let Some(carried) = carried else { return Ok(()) };
        Ok(accelerator.carry_states(&carried.rows(), config.step_samples(), carried.states())?)
    }

    /// Brings `host` and the states `carried` there up to date.
    pub(super) fn sync_to_host(&mut self, host: &mut Host<'_>, carried: Option<&mut Carried>) -> Result<()> {
        let Some(accelerator) = &mut self.accelerator else { return Ok(()) };
        Ok(accelerator.sync_to_host(host, carried.map(Carried::states_mut))?)
    }

    /// A step: its plan, the sums over its batches, and the device's report of them, with weights
    /// that are updated if all of it is finite. The batches of the next step are submitted by then.
    pub(super) fn step(
        &mut self,
        pipeline: &mut BatchPipeline<'_, '_>,
        mut step: GpuStep<'_>,
    ) -> Result<(StepPlan, Totals, StepReport)> {
        let mut plan = self.submit(pipeline, &mut step)?;
        let (totals, report) = self.end_step(&mut plan, pipeline, step)?;
        Ok((plan, totals, report))
    }

    /// Plan of a step whose batches the device has by then.
    pub(super) fn submit(&mut self, pipeline: &mut BatchPipeline<'_, '_>, step: &mut GpuStep<'_>) -> Result<StepPlan> {
        let GpuStep { number, planner, host, .. } = step;
        let accelerator = self.ensure_accelerator(planner.model, planner.config)?;
        match pipeline.ahead.take() {
            Some(submitted) => submitted,
            None => submit(accelerator, *number, pipeline, planner, host),
        }
    }

    /// Ends a step of this plan: the sums over its batches, and the device's report of them.
    pub(super) fn end_step(
        &mut self,
        plan: &mut StepPlan,
        pipeline: &mut BatchPipeline<'_, '_>,
        step: GpuStep<'_>,
    ) -> Result<(Totals, StepReport)> {
        let GpuStep { start, number, lr, planner, mut host } = step;
        let accelerator = self.ensure_accelerator(planner.model, planner.config)?;
        // The step before may have changed the scale since. This is for the log: kernels read the
        // device's.
        plan.objective.scale = host.scale();
        let settings = step_settings(planner.config, host.divergence, plan.objective.count, lr);
        accelerator.apply_gradients(&settings)?;
        if can_submit_ahead(number + 1, planner) {
            pipeline.ahead = Some(submit(accelerator, number + 1, pipeline, planner, &mut host));
        }
        let report = accelerator.report()?;
        // Host time of the whole step, with its wait for data: GPU passes are not timed apart.
        let (loss_sum, terms, forward) = (report.loss_sum, report.terms as usize, start.elapsed());
        Ok((Totals { loss_sum, terms, forward, ..Totals::default() }, report))
    }

    /// As [`Accelerator::read_gradients`].
    pub(super) fn read_gradients(&self, gradients: &mut [f32]) -> Result<[f64; 2]> {
        let accelerator = self.accelerator.as_ref().expect("its gradients were submitted");
        Ok(accelerator.read_gradients(gradients)?)
    }

    /// As [`Accelerator::write_gradients`].
    pub(super) fn write_gradients(&mut self, gradients: &[f32], totals: [f64; 2]) -> Result<()> {
        let accelerator = self.accelerator.as_mut().expect("its gradients were submitted");
        Ok(accelerator.write_gradients(gradients, totals)?)
    }

    /// From now on, times the work by events.
    pub(super) fn time_work(&mut self) -> Result<()> {
        self.timer.is_on = true;
        Ok(self.accelerator.iter_mut().try_for_each(Accelerator::time_work)?)
    }

    /// Looks in `folder` for the kernels that were measured, and keeps there what is measured.
    pub(super) fn keep_tuning_in(&mut self, folder: &Path) {
        self.tuning_folder = Some(folder.to_owned());
        self.accelerator.iter().for_each(|accelerator| accelerator.tuner().keep_in(folder));
    }

    /// The model in use on the GPU, or on the CPU where the GPU has no memory.
    pub(super) fn predicting(&mut self) -> PredictionBackend<'_> {
        match &mut self.accelerator {
            Some(accelerator) => PredictionBackend::Cuda(accelerator.in_use()),
            None => PredictionBackend::Cpu(&mut self.engine),
        }
    }

    /// Times and captures since the last call.
    pub(super) fn take_times(&mut self) -> Result<GpuTimes> {
        let Some(accelerator) = &mut self.accelerator else { return Ok(GpuTimes::default()) };
        let gpu_s = if self.timer.is_on { Some(accelerator.take_busy_s()?) } else { None };
        let made = accelerator.captures_made();
        let before = std::mem::replace(&mut self.timer.captures_before, made);
        Ok(GpuTimes { gpu_s, captures: (made > before).then(|| made - before) })
    }
}

/// Gives the device the batches of step `step`, counted from 0.
fn submit(
    accelerator: &mut Accelerator,
    step: u64,
    pipeline: &mut BatchPipeline<'_, '_>,
    planner: &StepPlanner<'_>,
    host: &mut StepHost<'_>,
) -> Result<StepPlan> {
    let plan = planner.plan(step, host.scale())?;
    accelerator.begin_step(&mut host.weights, host.scaler)?;
    for positions in &plan.batches {
        pipeline.feed.turn_chunk(|chunk| accelerator.exchange_chunk(Some(chunk)))?;
        let batch = pipeline.feed.next()?.expect("the feed has the batches of every step");
        let objective = plan.objective_over(&batch, positions);
        if let Some(largest) = pipeline.largest.take()
            && accelerator.reserve(&batch, objective, &largest)?
        {
            accelerator.begin_step(&mut host.weights, host.scaler)?;
        }
        accelerator.accumulate(&batch, objective)?;
    }
    Ok(plan)
}

/// True if neither a validation nor a checkpoint follows after `steps` steps: these would
/// overwrite what was submitted ahead.
fn can_submit_ahead(steps: u64, StepPlanner { config, schedule, run, .. }: &StepPlanner<'_>) -> bool {
    let due = Due::after(steps, config, schedule, run);
    steps < schedule.steps && !due.validation && !due.checkpoint
}

impl Trainer {
    /// Outcome of the gradients of a step with this `loss`.
    pub(super) fn note_report(&mut self, report: &StepReport, loss: f64) -> Result<UpdateOutcome> {
        let place = report.non_finite.map(|place| self.model.layout().element(place.index));
        report.scale_change(place.map(|(tensor, index)| Overflow { tensor, index })).map_err(Error::Scale)?;
        if let (Some(scaler), Some(state)) = (&mut self.scaler, report.scaler) {
            *scaler = LossScaler::resume(*scaler.config(), state).map_err(Error::Scale)?;
        }
        if let (Some((tensor, index)), None) = (place, &self.scaler) {
            let tensor = format!("the gradient of {tensor}");
            return Err(Error::NotFinite { step: self.step + 1, loss, tensor, index });
        }
        Ok(UpdateOutcome { norm: report.norm, overflow: place.map(|(tensor, index)| format!("{tensor}[{index}]")) })
    }

    /// Error of a step whose loss is infinite or NaN. Its batches are read once more, as the next
    /// ones have come since. All ranks have the same error.
    pub(super) fn blame_step(&mut self, plan: &StepPlan, totals: Totals, schedule: &Schedule, run: &Run<'_>) -> Error {
        let (step, loss) = (self.step + 1, totals.loss_sum / plan.objective.count as f64);
        let not_finite = |tensor, index| Error::NotFinite { step, loss, tensor, index };
        // The CPU may compute otherwise than a GPU does, and a device or a source that fails
        // now says less than that the loss was not finite.
        let found = self.find_non_finite(plan, not_finite, schedule, run).ok().flatten();
        let agreed = self.agree_on(found.map_or(Ok(()), Err));
        agreed.err().unwrap_or_else(|| not_finite("the loss".to_owned(), 0))
    }

    /// The first number of this rank's batches of a step that is not finite, as the error that
    /// `not_finite` makes of it.
    fn find_non_finite(
        &mut self,
        plan: &StepPlan,
        not_finite: impl Fn(String, usize) -> Error,
        schedule: &Schedule,
        run: &Run<'_>,
    ) -> Result<Option<Error>> {
        let step = self.step + 1;
        let batches = schedule.own_batches(self.step..step, run.train);
        let scope = self.device.scope("batches");
        let target_scales = self.target_scales.clone();
        let weights = SampleWeights::new(&self.config, run.samples, run.train).ok().flatten();
        let loss_inputs = LossInputs { target_scales: target_scales.as_ref(), weights };
        // The CPU sees all edges.
        let graphs = graphs_of(&self.model, Selection { samples: run.samples, indices: run.train }).ok().flatten();
        let source = Source {
            gather_mode: GatherMode::Bars,
            edge_form: EdgeForm::Views,
            ..self.source(run, graphs, &scope, schedule.capacity(), loss_inputs)
        };
        with_batches(source, batches, &always, |feed| {
            self.sync_to_host()?;
            let (engine, carried) = (self.backend.engine(), self.carried.as_ref());
            engine.load(&self.model, &self.parameters);
            let (model, parameters, is_scaled) = (&self.model, &self.parameters, self.scaler.is_some());
            let inputs = StepInputs { model, parameters, step, is_scaled };
            for positions in &plan.batches {
                let batch = feed.next()?.expect("the feed has the batches of the step");
                let objective = plan.objective_over(&batch, positions);
                if let Err(error) = objective.loss.check_rows(batch.targets(), self.model.shape().outputs) {
                    return Ok(Some(error.into()));
                }
                if let Some((tensor, index)) = locate_non_finite(engine, carried, inputs, &batch, objective, None) {
                    return Ok(Some(not_finite(tensor, index)));
                }
            }
            Ok(None)
        })
    }
}

/// Times and captures of a GPU, step by step.
#[derive(Debug, Default)]
struct GpuTimer {
    is_on: bool,
    /// Captures made before this step.
    captures_before: u64,
}

/// Times and captures of a step, on a GPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GpuTimes {
    /// Seconds of the work that the GPU has ended, if it is timed.
    pub(super) gpu_s: Option<f64>,
    /// Captures made, if any.
    pub(super) captures: Option<u64>,
}

/// Settings for a GPU at the end of a step whose losses are divided by `count`.
fn step_settings(config: &Config, divergence: &DivergenceState, count: usize, lr: f64) -> StepSettings {
    let optimizer = OptimizerConfig { lr, ..config.optimizer }.settings();
    let loss_max = config.divergence.loss_max(divergence);
    StepSettings { count: count as f64, loss_max, clip_norm: config.clip_norm, optimizer }
}
