mod after;
mod backend;
pub(crate) mod checkpoint;
pub(crate) mod distributed;
pub(crate) mod events;
mod on_cpu;
mod on_gpu;
pub(crate) mod oom_fallback;
pub(crate) mod optimizer;
mod resume;
mod rollback;
mod shortage;
mod step;
mod step_plan;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use megabatch_amp::LossScaler;
use megabatch_gpu_core::{Device, Scope};
use megabatch_nn::graph::Graphs;
use megabatch_nn::memory::LargestBatch;
use megabatch_nn::model::{Model, SampleShape, TensorSet, encode, load_weights};
use megabatch_nn_cpu::{Carried, Compute};

use crate::config::Config;
use crate::config::TargetScaling;
use crate::config::countable::check_countable;
use crate::config::divergence::DivergenceState;
use crate::config::early_stopping::EarlyStoppingState;
use crate::data::carried_rows::HELD_SAMPLES;
use crate::data::device_chunks::DeviceChunks;
use crate::data::evenly_spaced::DrawnSamples;
use crate::data::kept_windows::{KeptWindows, can_keep_graphs, can_keep_windows, windows_in_chunk};
use crate::data::prefetch::{BatchFeed, Source, with_batches, with_chunks};
use crate::data::sample_ranges::SampleRanges;
use crate::data::sample_weights::{LossInputs, SampleWeights};
use crate::data::samples::{Batch, Samples, resident_series, shares_bars};
use crate::data::schedule::Schedule;
use crate::data::target_scales::{TargetScales, tensors_in_target_units};
use crate::error::{Error, Result};
use crate::evaluate::baseline::Baselines;
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::pass::evaluate;
use crate::evaluate::predictions::{PredictionBackend, Predictions, States};
use crate::evaluate::selection::{EvaluationProgress, Selection, check_shape, graphs_of};
use crate::plan::largest::largest_batch;
use crate::train::checkpoint::{Best, Checkpoints};
use crate::train::events::{Event, Observer, ShortageEvent};
use crate::train::oom_fallback::{MemoryLimits, OomFallback};
use crate::train::optimizer::Optimizer;
use backend::{Backend, Prepared};
use distributed::ProcessGroup;
use step_plan::BatchPipeline;

/// A model in training on one device.
#[derive(Debug)]
pub struct Trainer {
    /// Host whose memory holds weights, optimizer and batches.
    device: Device,
    backend: Backend,
    config: Config,
    model: Model,
    parameters: TensorSet,
    optimizer: Optimizer,
    /// States on the host that windows start from, once a run that carries them is known. Those of
    /// a GPU are newer until [`Trainer::sync_to_host`].
    carried: Option<Carried>,
    /// Optimizer steps done.
    step: u64,
    best: Option<Best>,
    early_stopping: EarlyStoppingState,
    divergence: DivergenceState,
    /// For gradients in fp16.
    scaler: Option<LossScaler>,
    /// Memory limits of the run.
    fallback: OomFallback,
    /// Reductions before the run began.
    cut_before: Vec<ShortageEvent>,
    /// The observer's answer to the last step, while the validation and the checkpoint that follow
    /// it are not done.
    unfinished: Option<ControlFlow<()>>,
    /// Step whose validation is done, and whether that was the best.
    validated: Option<(u64, bool)>,
    /// The scales of the targets; `None` where they are not scaled, or training has not begun.
    target_scales: Option<TargetScales>,
    /// Checkpoints that resuming passed over.
    unreadable: Vec<PathBuf>,
    /// The ranks of a run of several.
    process_group: Option<ProcessGroup>,
    /// Peak bytes of the rank that has taken most of its GPU, of those that ended a run together.
    gpu_peak_bytes: usize,
}

/// Data of a training run.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The source of all samples.
    pub samples: &'a dyn Samples,
    /// Samples to train on, by index; graphs, for a model over graphs. Neighbours in this list are
    /// visited together in runs.
    pub train: &'a SampleRanges,
    /// Samples to validate on, or graphs, by index; may be empty. A validation takes as many of
    /// them as [`Config::validation_samples`] says.
    pub validation: &'a SampleRanges,
    /// Checkpoints, if any.
    pub checkpoints: Option<&'a Checkpoints>,
}

/// End of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Optimizer steps done, those before a resume included.
    pub steps: u64,
    /// Why it ended.
    pub end: End,
    /// The best validation.
    pub best: Option<Best>,
    /// Number of rollbacks because of divergence, before a resume included.
    pub rollbacks: u32,
}

/// Why training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All steps are done.
    Finished,
    /// The validation loss no longer fell, see [`EarlyStopping`](crate::EarlyStopping). A resumed
    /// run stays ended, unless it is given more patience.
    StoppedEarly,
    /// The observer asked for it.
    Stopped,
}

/// The loss scale of a run, where it needs one.
fn scaler(config: &Config) -> Option<LossScaler> {
    let new = || LossScaler::new(config.loss_scale).expect("the settings were checked");
    config.precision.needs_loss_scale().then(new)
}

impl Trainer {
    /// A trainer with initial weights drawn from the seed. All memory of the run is taken here but
    /// that of its batches, carried states and graphs, whose size depends on the samples.
    ///
    /// # Errors
    /// [`Error::Setting`], here or of `megabatch_nn`, for a setting out of range;
    /// [`Memory`](megabatch_nn::Error::Memory) and [`Threads`](megabatch_nn::Error::Threads) when
    /// the device has no room.
    ///
    /// # Panics
    /// If the device is a GPU: see [`Trainer::on_gpu`].
    pub fn new(device: &Device, config: Config, shape: SampleShape) -> Result<Self> {
        Trainer::build(device, None, config, shape)
    }

    /// A trainer whose steps are computed on `gpu`. Weights, optimizer and batches are in the
    /// memory of `host` besides, where [`Trainer::evaluate_drawn`] computes and checkpoints are
    /// written: they are those of a run on the CPU, and each goes on from the other's. The weights
    /// that come of it are another rounding of the same run.
    ///
    /// # Errors
    /// As [`Trainer::new`]; [`Error::NotOnGpu`] for what is not computed on a GPU yet: last bars of
    /// samples that stand alone, dense training with attention pooling, gradient checkpointing of
    /// one LSTM layer, profiles.
    ///
    /// # Panics
    /// If `gpu` is the CPU.
    pub fn on_gpu(gpu: &Device, host: &Device, config: Config, shape: SampleShape) -> Result<Self> {
        Trainer::build(host, Some(gpu), config, shape)
    }

    fn build(device: &Device, gpu: Option<&Device>, mut config: Config, shape: SampleShape) -> Result<Self> {
        assert!(matches!(device, Device::Cpu(_)), "weights are kept in host memory");
        config.check()?;
        if gpu.is_some() {
            config.check_on_gpu()?;
        }
        config.loss.check_groups(shape.outputs)?;
        check_countable(&config, &shape, 1)?;
        config.model = config.model.for_loss(config.loss);
        let model = Model::new(shape, config.model)?;
        let parameters = model.initial_parameters(&device.scope("model/parameters"), config.seed)?;
        let Prepared { backend, optimizer, fallback, cuts } = Prepared::new(device, gpu, &config, &model, &parameters)?;
        Ok(Trainer {
            backend,
            optimizer,
            fallback,
            cut_before: cuts,
            unfinished: None,
            validated: None,
            target_scales: None,
            unreadable: Vec::new(),
            process_group: None,
            gpu_peak_bytes: 0,
            carried: None,
            scaler: scaler(&config),
            device: device.clone(),
            step: 0,
            best: None,
            early_stopping: EarlyStoppingState::default(),
            divergence: DivergenceState::default(),
            config,
            model,
            parameters,
        })
    }

    /// From now on, times the work of the GPU by its events ([`StepEvent::gpu_s`]). Nothing on the
    /// CPU.
    ///
    /// # Errors
    /// [`Error::Model`] with the driver's failure.
    ///
    /// [`StepEvent::gpu_s`]: crate::StepEvent::gpu_s
    pub fn time_gpu(&mut self) -> Result<()> {
        self.backend.time_gpu()
    }

    /// Looks in `folder` for the kernels that [`Config::autotune`] found to be the fastest, and
    /// keeps there what is found out. Nothing on the CPU.
    pub fn keep_tuning_in(&mut self, folder: &Path) {
        self.backend.keep_tuning_in(folder);
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The device that steps are computed on.
    pub fn device(&self) -> &Device {
        self.backend.gpu().unwrap_or(&self.device)
    }

    /// Peak bytes that a run has taken of its GPU when it ended; of several ranks, those of the one
    /// that took most. 0 on the CPU.
    pub fn gpu_peak_bytes(&self) -> usize {
        self.gpu_peak_bytes
    }

    /// The weights as they are now.
    pub fn parameters(&self) -> &TensorSet {
        &self.parameters
    }

    /// The optimizer and its moments.
    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// Replaces the weights by those of a safetensors file, whose outputs are in the unit of the
    /// targets: from now on these are not scaled. The optimizer starts anew, without moments.
    ///
    /// # Errors
    /// As [`load_weights`]; weights and optimizer are then as before.
    pub fn load_weights(&mut self, path: &Path) -> Result<()> {
        load_weights(path, &mut self.parameters)?;
        self.optimizer.restart();
        (self.config.target_scaling, self.target_scales) = (TargetScaling::None, None);
        self.backend.mark_host_dirty();
        Ok(())
    }

    /// Brings weights, optimizer and carried states up to date, where they are changed on a GPU.
    fn sync_to_host(&mut self) -> Result<()> {
        self.backend.sync_to_host(&mut self.optimizer.host(&mut self.parameters), self.carried.as_mut())
    }

    /// Writes the weights to a safetensors file, atomically. Its outputs are in the unit of the
    /// targets.
    ///
    /// # Errors
    /// [`Error::Model`] with [`File`](megabatch_nn::Error::File) where the weights cannot be
    /// written; what `path` held before is then still there.
    pub fn save_weights(&self, path: &Path) -> Result<()> {
        let bytes = encode(path, tensors_in_target_units(&self.parameters, self.target_scales.as_ref()))?;
        Ok(megabatch_atomic_file::write(path, &bytes).map_err(megabatch_nn::Error::from)?)
    }

    /// Trains until the configured steps are done, the validation loss no longer falls or the
    /// observer asks to stop.
    ///
    /// # Errors
    /// [`Error::Setting`] for early stopping without validation samples; [`Error::NeedsSeries`] for
    /// carried state or dense training of samples that are stored as windows;
    /// [`Error::SamplesShape`],
    /// [`Error::NothingLeft`] and [`Error::SampleOutOfRange`] for samples that cannot be trained
    /// on; [`Error::Gather`] when they cannot be read; for a model over graphs [`Error::Setting`]
    /// where the samples are not nodes of graphs, and of `megabatch_nn`
    /// [`GraphOutOfRange`](megabatch_nn::Error::GraphOutOfRange),
    /// [`Graph`](megabatch_nn::Error::Graph) and [`GraphShape`](megabatch_nn::Error::GraphShape);
    /// [`Error::CannotReduceFurther`] where the device has too little memory whatever is cut;
    /// [`Targets`](megabatch_nn::Error::Targets) for targets that the loss has no meaning for,
    /// [`Error::NotFinite`] when numbers overflow, [`Error::LossSpike`] when the loss does, and
    /// [`Error::Diverged`] when they still do after all rollbacks (see
    /// [`Divergence`](crate::Divergence)); [`Error::File`] when a checkpoint cannot be saved. The
    /// trainer then stands after the last step that was completed, unless its GPU gave no weights
    /// back: what goes on then is a new trainer, from a checkpoint.
    pub fn train(&mut self, run: &Run<'_>, observer: &mut Observer<'_>) -> Result<Outcome> {
        let outcome = self.train_to_the_end(run, observer);
        // Where a GPU fails, its first error says more than that its weights cannot be had.
        let synced = self.sync_to_host();
        let outcome = outcome?;
        if self.agree_at_the_end(synced)? {
            self.gather_gpu_peak();
        }
        Ok(outcome)
    }

    fn train_to_the_end(&mut self, run: &Run<'_>, observer: &mut Observer<'_>) -> Result<Outcome> {
        let schedule = self.check_run(run);
        let schedule = self.agree_on(schedule)?;
        self.check_process_group(run, &schedule)?;
        self.on_first_rank(|trainer| trainer.tidy_checkpoints(run).map(Some))?;
        let fitted = self.fit_target_scales(run);
        self.agree_on(fitted)?;
        if let Some(end) = self.end(&schedule).filter(|_| self.unfinished.is_none()) {
            return Ok(self.outcome(end));
        }
        let mut asked = self.tell_cuts(observer);
        let mut staging = Vec::new();
        while asked.is_continue() {
            let limits = self.fallback.limits();
            let schedule = schedule.cut_into(limits.batch_size, self.backend.grain()).for_rank(self.rank());
            match self.train_on(run, &schedule, observer, &mut staging) {
                Err(Error::Peer(lost)) => asked = self.reform(lost, observer)?,
                Err(error) if error.is_shortage() => {
                    staging.clear();
                    asked = self.cut(error, run, observer)?;
                }
                Err(error) => asked = self.roll_back(error, run, observer)?,
                outcome => return outcome,
            }
        }
        Ok(self.outcome(End::Stopped))
    }

    fn check_run(&self, run: &Run<'_>) -> Result<Schedule> {
        check_shape(&self.model, run.samples)?;
        self.config.check_samples(run.samples)?;
        self.config.check_validation(run.validation)?;
        self.config.check_dense_samples(run.samples)?;
        Schedule::new(&self.config, run.train.len())
    }

    /// Finds the scales of the training targets, unless a checkpoint had them.
    fn fit_target_scales(&mut self, run: &Run<'_>) -> Result<()> {
        if self.config.scales_targets() && self.target_scales.is_none() {
            self.target_scales = Some(TargetScales::fit(run.samples, run.train, &self.model, self.config.loss)?);
        }
        Ok(())
    }

    fn tidy_checkpoints(&mut self, run: &Run<'_>) -> Result<()> {
        let Some(checkpoints) = run.checkpoints else { return Ok(()) };
        checkpoints.clean()?;
        checkpoints.set_aside(&std::mem::take(&mut self.unreadable))
    }

    /// Trains from where the run stands; `staging` is memory of chunks on the host.
    fn train_on(
        &mut self,
        run: &Run<'_>,
        schedule: &Schedule,
        observer: &mut Observer<'_>,
        staging: &mut Vec<Batch>,
    ) -> Result<Outcome> {
        if self.prepare_rollbacks(run, observer)?.is_break() {
            return Ok(self.outcome(End::Stopped));
        }
        let mut is_ready = false;
        let outcome = self.train_with_batches(run, schedule, observer, staging, &mut is_ready);
        // Without memory for its batches a rank gets to no step, where the others would hear of it.
        if is_ready { self.settle_divergence(outcome) } else { self.agree_on(outcome) }
    }

    /// Trains from where the run stands; `is_ready` once all ranks have memory and samples.
    fn train_with_batches(
        &mut self,
        run: &Run<'_>,
        schedule: &Schedule,
        observer: &mut Observer<'_>,
        staging: &mut Vec<Batch>,
        is_ready: &mut bool,
    ) -> Result<Outcome> {
        self.carry_states_of(run)?;
        let resident = resident_series(run.samples);
        let kept = resident.as_ref().filter(|_| self.fallback.limits().keep_series);
        self.backend.keep_series(&self.model, &self.config, kept)?;
        self.backend.carry_states(&self.model, &self.config, self.carried.as_ref())?;
        let chunks = self.device_chunks(run)?;
        let locks_pages = chunks.as_ref().is_none_or(|chunks| chunks.locks_pages(run.samples.shape()));
        let scope = self.device.scope("batches");
        // A GPU copies from locked pages without a detour.
        let scope =
            self.backend.gpu().filter(|_| locks_pages).map_or_else(|| scope.clone(), |gpu| scope.page_locked(gpu));
        let kept = self.keep_windows(run, &scope)?;
        let run = &Run { samples: kept.as_ref().map_or(run.samples, |kept| kept), ..*run };
        let graphs = graphs_of(&self.model, Selection { samples: run.samples, indices: run.train })?;
        let keeps = self.fallback.limits().keep_graphs;
        self.backend.keep_graphs(graphs.filter(|graphs| keeps && can_keep_graphs(*graphs)))?;
        self.backend.engine().ensure_batch_capacity(&self.model, graphs)?;
        self.make_room_for_blocks(schedule)?;
        let order = schedule.own_batches(self.step..schedule.steps, run.train);
        let (target_scales, weights) =
            (self.target_scales.clone(), SampleWeights::new(&self.config, run.samples, run.train)?);
        let loss_inputs = LossInputs { target_scales: target_scales.as_ref(), weights };
        let largest = if shares_bars(run.samples) { self.largest_batch(run)? } else { None };
        let source = self.source(run, graphs, &scope, schedule.capacity(), loss_inputs);
        let observer = RefCell::new(observer);
        let mut tell = |event: Event<'_>| (observer.borrow_mut())(event);
        // A rank that is interrupted fails its step, and all ranks have that error.
        let is_wanted = || (observer.borrow_mut())(Event::Waiting).is_continue();
        let train_on_batches = |feed: &mut BatchFeed<'_>| -> Result<Outcome> {
            let mut pipeline = BatchPipeline { feed, ahead: None, largest };
            *is_ready = true;
            self.agree_on(Ok(()))?;
            loop {
                if let Some(end) = self.finish_step(run, schedule, &mut tell)? {
                    return Ok(self.outcome(end));
                }
                let (event, agreed) = match self.training_step(&mut pipeline, schedule, run) {
                    Err(Error::Interrupted { .. }) if self.is_followed_up() => {
                        self.unfinished = Some(ControlFlow::Break(()));
                        continue;
                    }
                    // The run stands where it began.
                    Err(Error::Interrupted { .. }) => return Ok(self.outcome(End::Stopped)),
                    step => step?,
                };
                let told = self.tell_notes(&mut tell);
                let asked = tell(Event::Step(event));
                let asked = self.share_answer(if told.is_break() { told } else { asked });
                self.unfinished = Some(if agreed.is_break() { agreed } else { asked });
            }
        };
        let outcome = match chunks {
            Some(chunks) => with_chunks(source, chunks, staging, order, &is_wanted, train_on_batches),
            None => with_batches(source, order, &is_wanted, train_on_batches),
        };
        self.backend.release_chunk();
        // Whoever evaluates later may have other samples.
        if kept.is_some() && outcome.is_ok() {
            self.backend.keep_series(&self.model, &self.config, None)?;
        }
        self.backend.keep_graphs(None)?;
        outcome
    }

    /// Memory of two chunks on the GPU, if the windows of a run are to pass through it in chunks.
    fn device_chunks(&self, run: &Run<'_>) -> Result<Option<DeviceChunks>> {
        let may_pass = self.fallback.limits().chunk_windows;
        let samples = windows_in_chunk(&self.config, run.samples).filter(|_| may_pass);
        let (Some(samples), Some(gpu)) = (samples, self.backend.accelerator()) else { return Ok(None) };
        let shape = run.samples.shape();
        let tables = [gpu.vacant_chunk(shape, samples)?, gpu.vacant_chunk(shape, samples)?];
        Ok(Some(DeviceChunks { samples, precision: self.config.precision, tables }))
    }

    /// Brings the windows of a run to the GPU, if they are to lie there and there is the memory
    /// that was planned.
    fn keep_windows<'a>(&mut self, run: &Run<'a>, scope: &'a Scope) -> Result<Option<KeptWindows<'a>>> {
        let MemoryLimits { keep_windows, batch_size, .. } = self.fallback.limits();
        // Batches of graphs have so many samples.
        let batch_samples = batch_size * run.samples.graphs().map_or(1, |graphs| graphs.largest().0);
        let source = self.source(run, None, scope, batch_samples, LossInputs::default());
        let are_read = !self.model.recurrent_layers().is_empty();
        match self.backend.accelerator_mut() {
            Some(gpu) if keep_windows && are_read && can_keep_windows(run.samples) => {
                KeptWindows::bring(source, gpu).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Bound of this rank's batches of a run on a GPU, whose memory it may take at once; `None`
    /// where it takes memory as batches come, or batches are smaller than was planned.
    fn largest_batch(&self, run: &Run<'_>) -> Result<Option<LargestBatch>> {
        let is_whole = self.fallback.limits().batch_size == self.config.batch_size;
        let takes_as_they_come = self.config.model.is_over_graphs() || self.config.purpose().runs().is_some();
        if !is_whole || takes_as_they_come || !matches!(self.backend, Backend::Cuda(_)) {
            return Ok(None);
        }
        let validation = self.config.evaluated_on_gpu(run.validation);
        largest_batch(&self.config, run.samples, run.train, &validation, self.rank()).map(Some)
    }

    /// Source of the batches of a run, of up to `batch_size` samples, or graphs.
    fn source<'a>(
        &self,
        run: &Run<'a>,
        graphs: Option<&'a dyn Graphs>,
        scope: &'a Scope,
        batch_size: usize,
        loss_inputs: LossInputs<'a>,
    ) -> Source<'a> {
        let MemoryLimits { chunk_percent, .. } = self.fallback.limits();
        let (edge_form, gather_mode) = (self.backend.edge_form(), self.backend.gather_mode());
        Source { samples: run.samples, graphs, edge_form, scope, batch_size, chunk_percent, gather_mode, loss_inputs }
    }

    /// Notes on the choice of kernels and on a capture that the driver refused.
    fn tell_notes(&mut self, observer: &mut Observer<'_>) -> ControlFlow<()> {
        let step = self.step;
        let Some(accelerator) = self.backend.accelerator_mut() else { return ControlFlow::Continue(()) };
        let mut notes = accelerator.tuner().take_notes();
        notes.extend(accelerator.take_capture_note());
        notes.into_iter().try_for_each(|text| observer(Event::Note { step, text }))
    }

    /// The errors of the weights as they are now on samples, or graphs, that were drawn from their
    /// part ([`Config::draw`]), with standard errors where they are some of them. `progress` hears
    /// after every batch how many are done.
    ///
    /// # Errors
    /// As [`Predictor::evaluate_drawn`](crate::Predictor::evaluate_drawn).
    pub fn evaluate_drawn(
        &mut self,
        samples: &dyn Samples,
        drawn: &DrawnSamples<'_>,
        baselines: Option<&Baselines>,
        progress: &mut EvaluationProgress<'_>,
    ) -> Result<Evaluation> {
        self.sync_to_host()?;
        let (loss, streams) = (self.config.loss, self.config.streams());
        let mut predictions = self.predictions(|backend| PredictionBackend::Cpu(backend.engine()));
        if streams && drawn.is_estimate() {
            predictions.states = States::Stretches;
        }
        let selection = Selection { samples, indices: &drawn.samples };
        evaluate(predictions, selection, loss, baselines, drawn.choice, progress)
    }

    /// Initial states for the samples `indices` of `part`.
    fn states_for(&self, indices: &SampleRanges, part: &SampleRanges) -> States {
        match (self.config.streams(), indices.len() < part.len()) {
            (false, _) => States::Windows,
            (true, false) => States::Segments,
            (true, true) => States::Stretches,
        }
    }

    /// The model in use during training. The CPU alone passes over whole segments.
    fn predictions_in_training(&mut self) -> Predictions<'_> {
        let streams = self.config.streams();
        self.predictions(|backend| match backend {
            Backend::Cpu(cpu) => PredictionBackend::Cpu(&mut cpu.engine),
            Backend::Cuda(cuda) => match streams {
                true => PredictionBackend::Cpu(&mut cuda.engine),
                false => cuda.predicting(),
            },
        })
    }

    /// The model in use on the part of the backend that `choose` returns.
    fn predictions(&mut self, choose: impl FnOnce(&mut Backend) -> PredictionBackend<'_>) -> Predictions<'_> {
        let limits = self.fallback.limits();
        Predictions {
            model: &self.model,
            parameters: &self.parameters,
            backend: choose(&mut self.backend),
            device: &self.device,
            compute: Compute { batch_size: limits.batch_size, ..self.config.compute() },
            chunk_percent: limits.chunk_percent,
            states: if self.config.streams() { States::Segments } else { States::Windows },
            held_samples: HELD_SAMPLES,
            reads_bars: false,
            target_scales: self.target_scales.as_ref(),
        }
    }

    fn outcome(&self, end: End) -> Outcome {
        Outcome { steps: self.step, end, best: self.best, rollbacks: self.divergence.rollbacks }
    }
}
