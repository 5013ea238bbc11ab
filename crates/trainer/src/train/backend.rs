//! The side that computes the steps of a run, with the memory that this side alone needs.

use std::path::Path;

use megabatch_gpu_core::Device;
use megabatch_nn::batch::{Grain, SeriesView};
use megabatch_nn::graph::{EdgeForm, Graphs};
use megabatch_nn::model::{Model, TensorSet};
use megabatch_nn_cpu::{Carried, Compute, Engine, Purpose};
use megabatch_nn_cuda::{Accelerator, Host};

use super::on_cpu::CpuBackend;
use super::on_gpu::{CudaBackend, GpuTimes};
use crate::config::Config;
use crate::data::prefetch::GatherMode;
use crate::error::{Error, Result};
use crate::train::events::ShortageEvent;
use crate::train::oom_fallback::{MemoryLimits, OomFallback, SampleForm};
use crate::train::optimizer::Optimizer;

/// The side that computes the steps of a run.
#[derive(Debug)]
pub(super) enum Backend {
    Cpu(Box<CpuBackend>),
    Cuda(Box<CudaBackend>),
}

/// A run's backend and optimizer, and the memory that it had to do without.
pub(super) struct Prepared {
    pub(super) backend: Backend,
    pub(super) optimizer: Optimizer,
    pub(super) fallback: OomFallback,
    pub(super) cuts: Vec<ShortageEvent>,
}

impl Prepared {
    /// A backend on `gpu`, or on the CPU, in the memory of `host`; and the optimizer.
    pub(super) fn new(
        host: &Device,
        gpu: Option<&Device>,
        config: &Config,
        model: &Model,
        parameters: &TensorSet,
    ) -> Result<Self> {
        let optimizer = || Optimizer::new(&host.scope("optimizer"), config.optimizer, parameters);
        let (backend, optimizer, fallback, cuts) = match gpu {
            None => {
                let gradients = TensorSet::zeros(&host.scope("model/gradients"), model.layout())?;
                let (optimizer, mut fallback) = (optimizer()?, OomFallback::new(config));
                let (engine, cuts) = first_engine(host, model, config, &mut fallback, |limits| limits.purpose(config))?;
                (Backend::Cpu(Box::new(CpuBackend { engine, gradients })), optimizer, fallback, cuts)
            }
            Some(gpu) => {
                let (optimizer, mut fallback) = (optimizer()?, OomFallback::for_gpu(config));
                let (engine, cuts) = first_engine(host, model, config, &mut fallback, |_| Purpose::Prediction)?;
                let cuda = CudaBackend::new(gpu, model, config, fallback.limits(), engine)?;
                (Backend::Cuda(Box::new(cuda)), optimizer, fallback, cuts)
            }
        };
        Ok(Prepared { backend, optimizer, fallback, cuts })
    }
}

impl Backend {
    /// The GPU, if it computes.
    pub(super) fn gpu(&self) -> Option<&Device> {
        match self {
            Backend::Cpu(_) => None,
            Backend::Cuda(cuda) => Some(&cuda.gpu),
        }
    }

    /// The CPU engine. Beside a GPU it only predicts.
    pub(super) fn engine(&mut self) -> &mut Engine {
        match self {
            Backend::Cpu(cpu) => &mut cpu.engine,
            Backend::Cuda(cuda) => &mut cuda.engine,
        }
    }

    /// The memory of the GPU's steps, if it has any.
    pub(super) fn accelerator(&self) -> Option<&Accelerator> {
        match self {
            Backend::Cpu(_) => None,
            Backend::Cuda(cuda) => cuda.accelerator.as_ref(),
        }
    }

    pub(super) fn accelerator_mut(&mut self) -> Option<&mut Accelerator> {
        match self {
            Backend::Cpu(_) => None,
            Backend::Cuda(cuda) => cuda.accelerator.as_mut(),
        }
    }

    /// Has a GPU carry the states of the host, whose memory is taken where there is none.
    pub(super) fn carry_states(&mut self, model: &Model, config: &Config, carried: Option<&Carried>) -> Result<()> {
        match self {
            Backend::Cpu(_) => Ok(()),
            Backend::Cuda(cuda) => cuda.carry_states(model, config, carried),
        }
    }

    /// Samples of a step whose states the host holds until the step is done; a GPU holds its own.
    pub(super) fn held_step_samples(&self, config: &Config) -> usize {
        match self {
            Backend::Cpu(_) => config.step_samples(),
            Backend::Cuda(_) => 0,
        }
    }

    /// Brings `host` and the states `carried` there up to date, where they are changed on a GPU.
    pub(super) fn sync_to_host(&mut self, host: &mut Host<'_>, carried: Option<&mut Carried>) -> Result<()> {
        match self {
            Backend::Cpu(_) => Ok(()),
            Backend::Cuda(cuda) => cuda.sync_to_host(host, carried),
        }
    }

    /// Takes weights and the optimizer's state from the host when the GPU's next step begins.
    pub(super) fn mark_host_dirty(&mut self) {
        if let Some(accelerator) = self.accelerator_mut() {
            accelerator.mark_host_dirty();
        }
    }

    /// Looks in `folder` for the kernels that were measured, and keeps there what is measured.
    pub(super) fn keep_tuning_in(&mut self, folder: &Path) {
        if let Backend::Cuda(cuda) = self {
            cuda.keep_tuning_in(folder);
        }
    }

    /// Keeps `series` on the GPU, whose memory is taken where there is none.
    pub(super) fn keep_series(
        &mut self,
        model: &Model,
        config: &Config,
        series: Option<&SeriesView<'_>>,
    ) -> Result<()> {
        match self {
            Backend::Cpu(_) => Ok(()),
            Backend::Cuda(cuda) => Ok(cuda.ensure_accelerator(model, config)?.keep_series(series)?),
        }
    }

    /// Gives back the chunk of windows that is on the GPU, if there is one.
    pub(super) fn release_chunk(&mut self) {
        drop(self.accelerator_mut().and_then(|accelerator| accelerator.exchange_chunk(None)));
    }

    /// Places at which the batches of a step may end.
    pub(super) fn grain(&self) -> Grain {
        match self {
            Backend::Cpu(_) => Grain::Shards,
            Backend::Cuda(_) => Grain::Runs,
        }
    }

    /// The form of batches.
    pub(super) fn gather_mode(&self) -> GatherMode {
        let keeps = self.accelerator().is_some_and(Accelerator::keeps_bars);
        if keeps { GatherMode::WindowOffsets } else { GatherMode::Bars }
    }

    /// The form of the edges of batches of graphs: a GPU reads all that its model sees.
    pub(super) fn edge_form(&self) -> EdgeForm {
        self.accelerator().map_or(EdgeForm::Views, Accelerator::edge_form)
    }

    /// Keeps the edges of `graphs` on the GPU whose memory steps have; `None` gives their memory
    /// back.
    pub(super) fn keep_graphs(&mut self, graphs: Option<&dyn Graphs>) -> Result<()> {
        self.accelerator_mut().map_or(Ok(()), |accelerator| Ok(accelerator.keep_graphs(graphs)?))
    }

    /// Cuts the memory of steps to `limits`.
    pub(super) fn cut(&mut self, model: &Model, config: &Config, limits: MemoryLimits) -> Result<()> {
        match self {
            Backend::Cpu(cpu) => cpu.engine.cut_to(model, limits.batch_size, limits.purpose(config)),
            Backend::Cuda(cuda) => {
                cuda.engine.cut_to(model, limits.batch_size, Purpose::Prediction);
                cuda.restart(model, config, limits)?;
            }
        }
        Ok(())
    }

    /// From now on, times the work of a GPU by its events.
    pub(super) fn time_gpu(&mut self) -> Result<()> {
        match self {
            Backend::Cpu(_) => Ok(()),
            Backend::Cuda(cuda) => cuda.time_work(),
        }
    }

    /// Times and captures of a GPU since the last call.
    pub(super) fn take_gpu_times(&mut self) -> Result<GpuTimes> {
        match self {
            Backend::Cpu(_) => Ok(GpuTimes::default()),
            Backend::Cuda(cuda) => cuda.take_times(),
        }
    }

    /// Counts a step on the GPU.
    pub(super) fn count_step(&self) {
        if let Some(gpu) = self.gpu() {
            gpu.step();
        }
    }
}

/// The engine of a run, and the cuts of `fallback` that it took to have one.
fn first_engine(
    device: &Device,
    model: &Model,
    config: &Config,
    fallback: &mut OomFallback,
    purpose: impl Fn(MemoryLimits) -> Purpose,
) -> Result<(Engine, Vec<ShortageEvent>)> {
    let mut cuts = Vec::new();
    loop {
        let limits = fallback.limits();
        let purpose = purpose(limits);
        let planned = Compute { batch_size: limits.batch_size, ..config.compute() };
        let compute = if fallback.level() > 0 { planned.without_sharing(model, purpose) } else { planned };
        match Engine::new(device, model, compute, purpose, config.precision) {
            Ok(engine) if config.profile => return Ok((engine.profiled(), cuts)),
            Ok(engine) => return Ok((engine, cuts)),
            Err(error) if error.is_shortage() => {
                // No chunks are taken yet, and cutting those to come would leave no more.
                let error = Error::from(error);
                let form = SampleForm::default();
                let Some(lower) = fallback.next_level(form) else { return Err(error) };
                cuts.push(ShortageEvent::new(0, &error, limits.for_samples(form), lower, config.batch_size));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
