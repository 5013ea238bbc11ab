//! GPU memory of a run by purpose and by phase of a step, and advice where it is too much.

use megabatch_nn::memory::PlannedTensor;
use megabatch_trainer as trainer;
use megabatch_trainer::GpuFootprint;
use serde::Serialize;

use super::memory::{Phase, largest_batch, line, smaller_batch, step_phases};
use crate::config;
use crate::error::{Error, Result};
use crate::setup::TrainingSetup;
use crate::text::bytes;

/// Peak bytes of a run on a GPU. Host memory is planned apart.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GpuPlan {
    /// As the command line names it.
    pub(crate) device: String,
    pub(crate) total_bytes: usize,
    /// Bytes that the GPU could hand out when the plan was made, except those left to the driver;
    /// unknown for one that is elsewhere.
    pub(crate) available_bytes: Option<usize>,
    /// Bytes left to the driver, for kernels and cuBLASLt.
    pub(crate) driver_bytes: usize,
    pub(crate) parts: Vec<Phase>,
    /// Memory that each phase of an optimizer step reads and writes. All of it is held from the
    /// first batch of full size to the run's end.
    pub(crate) step_phases: Vec<Phase>,
    pub(crate) tensors: Vec<PlannedTensor>,
}

impl GpuPlan {
    /// Plan of `setup`, where it computes on a GPU.
    pub(super) fn new(setup: &TrainingSetup) -> Result<Option<Self>> {
        let Some(gpu) = &setup.gpu_asked else { return Ok(None) };
        let footprint = setup.gpu_footprint(&setup.training)?;
        let part = |name| Phase { name, bytes: footprint.part_bytes(name) };
        Ok(Some(GpuPlan {
            device: gpu.name.clone(),
            total_bytes: footprint.total_bytes(),
            available_bytes: gpu.free_bytes,
            driver_bytes: gpu.driver_bytes,
            parts: GpuFootprint::PARTS.map(part).into(),
            step_phases: step_phases(&footprint.tensors),
            tensors: footprint.tensors,
        }))
    }

    /// # Errors
    /// A capacity failure that names the largest batch that would fit.
    pub(super) fn require_fit(&self, setup: &TrainingSetup) -> Result<()> {
        let Some(available) = self.available_bytes.filter(|&available| available < self.total_bytes) else {
            return Ok(());
        };
        let fits = |training: &trainer::Config| -> Result<bool> {
            Ok(setup.gpu_footprint(training)?.total_bytes() <= available)
        };
        let advice = match largest_batch(&setup.training, fits)? {
            None => self.no_batch_fits(setup, available),
            Some(batch) => smaller_batch(setup, batch),
        };
        let (needed, available, device) = (bytes(self.total_bytes), bytes(available), &self.device);
        Err(Error::capacity(format!(
            "a run needs {needed} of the memory of {device}, and {available} are available there: it would not fit; {advice}"
        )))
    }

    /// Advice on a run of which no batch fits into `available` bytes.
    fn no_batch_fits(&self, setup: &TrainingSetup, available: usize) -> String {
        let auto_free_bytes = setup.gpu_asked.as_ref().and_then(|gpu| gpu.auto_free_bytes);
        if let Some(reserve) = setup.config.get(&config::gpu_optimization::DRIVER_RESERVE_GB)
            && auto_free_bytes.is_some_and(|free| self.total_bytes <= free)
        {
            return format!(
                "gpu_optimization.driver_reserve_gb={reserve} leaves too little; use a smaller one, or auto"
            );
        }
        let series = self.parts.iter().find(|part| part.name == "bars").map_or(0, |part| part.bytes);
        if !setup.training.streams() {
            return "no smaller batch would; use a smaller model.hidden, fewer layers or shorter windows".to_owned();
        }
        let stays = format!("the series, which stays there to train from bar to bar, takes {}", bytes(series));
        match series >= available {
            true => format!("{stays}; use less data, or the CPU"),
            false => format!("{stays}, and no smaller batch would; use less data, a smaller model.hidden or the CPU"),
        }
    }

    pub(super) fn to_text(&self) -> String {
        let GpuPlan { device, total_bytes, available_bytes, driver_bytes, parts, step_phases, .. } = self;
        let to_line = |phase: &Phase| line(phase.name, phase.bytes);
        let available = match available_bytes {
            Some(size) => line("available", *size) + &line("driver", *driver_bytes),
            None => "  available      not known here\n".to_owned(),
        };
        format!(
            "\npeak memory of {device}, besides\n{}{}{available}\nused by the phases of a step there\n{}",
            parts.iter().filter(|part| part.bytes > 0).map(to_line).collect::<String>(),
            line("total", *total_bytes),
            step_phases.iter().map(to_line).collect::<String>()
        )
    }
}
