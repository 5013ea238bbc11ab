//! Training steps on a GPU, of the operations in [`ops`](crate::ops) and in amp's.
//!
//! ```text
//! once a run    series or windows, edges of graphs,
//!               weights, moments, states  ─► device
//! each chunk    stored windows            ─► device, beside the batches of the chunk before
//! each batch    rows of bars, targets     ─► device
//!               bars covered ─► projected ─► recurrence, norm, dropout, layer by layer
//!                            ─► last states, or pooling ─► fusion ─► graphs ─► head, loss
//!               gradients    ◄─ by bar    ◄─ the same backward
//! once a step   unscale, clip, update there, or nothing where the loss or a gradient is not finite
//!               the batches of the next step, as above
//!               loss, norm, overflow      ◄─ device; the host waits for it, the device goes on
//! where due     outputs of a validation   ◄─ device
//!               weights, moments, states  ◄─ device, for checkpoints
//! ```

mod bars;
mod bucketing;
mod carried;
mod cell;
mod device_model;
mod fusion;
mod graphs;
mod head;
mod inter_layer;
mod lstm;
mod lstm_model;
mod memory_estimate;
mod model_choice;
mod norm;
mod outputs;
mod pooling;
mod predictor;
mod stored_windows;
mod top;
mod weights;
mod workspace;
mod workspace_cache;

use megabatch_amp::ops::{PendingReport, StepReport, StepSettings};
use megabatch_amp::{LossScaler, Precision};
use megabatch_gpu_core::{Captures, Device, FilledTables, VacantTables};
use megabatch_nn::batch::{BatchView, SeriesView};
use megabatch_nn::graph::{EdgeForm, Graphs};
use megabatch_nn::loss::Objective;
use megabatch_nn::memory::LargestBatch;
use megabatch_nn::model::{Cell, Encoder, Model, ModelConfig, Moments, SampleShape, TensorSet};
use megabatch_nn::{Error, Result};

use crate::ComputeConfig;
use crate::tuning::Tuner;
pub use bucketing::bucket_steps;
use device_model::{DeviceModel, DropoutSeed};
use head::LossInput;
use model_choice::device_model;
pub use model_choice::tensors;
pub use predictor::{InferenceHandle, Trained};
pub use stored_windows::{round_windows, window_bytes};
use weights::Resident;

/// Refuses a model that the CUDA engine does not compute, trained or not.
///
/// # Errors
/// [`Error::NotOnGpu`].
pub fn check_encoder(model: &ModelConfig) -> Result<()> {
    let (setting, value, together_with) = match (model.encoder, model.cell) {
        (Encoder::LastBar, _) if !model.is_over_graphs() => ("encoder", "none", "samples that are not nodes of graphs"),
        (Encoder::Recurrent, Cell::Gru) => ("cell", model.cell.name(), ""),
        (Encoder::Recurrent, Cell::Lstm) | (Encoder::LastBar, _) => return Ok(()),
    };
    Err(Error::NotOnGpu { setting, value: value.to_owned(), together_with })
}

/// Computes the steps of a run on a GPU.
#[derive(Debug)]
pub struct Accelerator {
    device: Device,
    device_model: Box<dyn DeviceModel>,
    /// Precision of the operands.
    precision: Precision,
    resident: Resident,
    /// Captures of steps and validations, each part of which comes again with the next batch of the
    /// same shape.
    captures: Captures,
    /// True once a failed capture was reported.
    is_refusal_told: bool,
    tuner: Tuner,
    weights_location: WeightsLocation,
    /// Report on the step whose end was submitted last.
    report: Option<PendingReport>,
}

/// Location of the current weights and optimizer state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WeightsLocation {
    Host,
    Device,
    Both,
}

/// Weights and the optimizer's state on the host.
#[derive(Debug)]
pub struct Host<'a> {
    /// The weights.
    pub parameters: &'a mut TensorSet,
    /// The optimizer's means, for a rule that keeps them.
    pub moments: Option<&'a mut Moments>,
    /// Number of updates done.
    pub steps: &'a mut u64,
}

impl Accelerator {
    /// Steps of a run with `config`; memory for batches is taken when they come.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn new(device: &Device, model: &Model, config: &ComputeConfig) -> Result<Self> {
        let scope = device.scope("gpu");
        let tuner = Tuner::new(config.autotune);
        let device_model = device_model(&scope, model, config, &tuner)?;
        Ok(Accelerator {
            tuner,
            resident: Resident::new(&scope, model.layout(), config.has_moments)?,
            device: device.clone(),
            device_model,
            precision: config.precision,
            captures: Captures::default(),
            is_refusal_told: false,
            weights_location: WeightsLocation::Host,
            report: None,
        })
    }

    /// Chooser of kernels.
    pub fn tuner(&self) -> &Tuner {
        &self.tuner
    }

    /// Number of captures made so far.
    pub fn captures_made(&self) -> u64 {
        self.captures.made()
    }

    /// From now on, times the device's work by its events.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn time_work(&mut self) -> Result<()> {
        Ok(self.captures.time_work(&self.device)?)
    }

    /// Seconds of the work that the device has done since the last call, or since
    /// [`Accelerator::time_work`]. Does not wait.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn take_busy_s(&mut self) -> Result<f64> {
        Ok(self.captures.take_busy_s(&self.device)?)
    }

    /// Why commands are not captured any more, once: the driver refused one, and steps go on
    /// command by command.
    pub fn take_capture_note(&mut self) -> Option<String> {
        let refusal = self.captures.refusal().filter(|_| !self.is_refusal_told)?;
        self.is_refusal_told = true;
        Some(format!("CUDA graphs are not used, and steps take longer: {refusal}"))
    }

    /// Keeps `series` on the device, if the windows are slices of some.
    pub fn keep_series(&mut self, series: Option<&SeriesView<'_>>) -> Result<()> {
        self.device_model.keep_series(series)
    }

    /// Takes memory on the device for stored windows of each timeframe.
    /// [`Accelerator::put_windows`] fills it.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory);
    /// [`Error::Setting`](megabatch_nn::Error::Setting) for 2³² bars in a timeframe or more.
    pub fn keep_windows(&mut self, windows: usize) -> Result<()> {
        self.device_model.keep_windows(windows)
    }

    /// Copies the windows of `batch` to the place of window `first` and those after it.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory) for a device that fails.
    ///
    /// # Panics
    /// If there is no memory for them, or the batch was taken from series.
    pub fn put_windows(&mut self, first: usize, batch: &BatchView<'_>) -> Result<()> {
        self.device_model.put_windows(first, batch)
    }

    /// Memory on the device for a chunk of `windows` stored windows of each timeframe of `shape`,
    /// of which it takes the bytes that [`round_windows`] gives.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn vacant_chunk(&self, shape: &SampleShape, windows: usize) -> Result<VacantTables<u8>> {
        let bytes = |k| windows * window_bytes(shape, k, self.precision);
        let lens: Vec<usize> = (0..shape.timeframes.len()).map(bytes).collect();
        Ok(VacantTables::new(&self.device.scope("gpu/bars"), &lens)?)
    }

    /// Takes `chunk` for the batches of its windows ([`BatchStorage::Chunk`]), in the place of the
    /// chunk that it returns. A model over graphs takes none.
    ///
    /// [`BatchStorage::Chunk`]: megabatch_nn::batch::BatchStorage::Chunk
    pub fn exchange_chunk(&mut self, chunk: Option<FilledTables<u8>>) -> Option<FilledTables<u8>> {
        self.device_model.exchange_chunk(chunk)
    }

    /// True if series or all stored windows are there, so that a batch need not bring bars.
    pub fn keeps_bars(&self) -> bool {
        self.device_model.keeps_bars()
    }

    /// Keeps the edges of all `graphs` on the device, for a model over graphs: a batch names its
    /// graphs then ([`EdgeForm::OnDevice`]). `None` takes edges batch by batch.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory);
    /// [`Error::Graph`](megabatch_nn::Error::Graph) for one that cannot be read.
    ///
    /// # Panics
    /// If there are 2³² nodes and edges or more.
    pub fn keep_graphs(&mut self, graphs: Option<&dyn Graphs>) -> Result<()> {
        self.device_model.keep_graphs(graphs)
    }

    /// Form of the edges of batches of graphs.
    pub fn edge_form(&self) -> EdgeForm {
        self.device_model.edge_form()
    }

    /// Carries the states at the bars `rows` of each timeframe from step to step, in the place of
    /// those before, beginning with `states`, a tensor `[rows, layers, 2, H]` a timeframe. Steps
    /// have up to `step_samples` samples.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn carry_states(&mut self, rows: &[Vec<usize>], step_samples: usize, states: &TensorSet) -> Result<()> {
        self.device_model.carry_states(&self.device.scope("gpu"), rows, step_samples, states)
    }

    /// Takes weights and the optimizer's state from the host when the next step begins.
    pub fn mark_host_dirty(&mut self) {
        self.weights_location = WeightsLocation::Host;
    }

    /// Begins a step: uploads weights if the host's are newer, sets gradients and losses to zero.
    pub fn begin_step(&mut self, host: &mut Host<'_>, scaler: Option<&LossScaler>) -> Result<()> {
        self.upload_if_stale(host, scaler)?;
        let Accelerator { device, device_model, resident, captures, .. } = self;
        captures.run(device, || {
            resident.gradients.set_zero()?;
            device_model.load(&resident.values)
        })
    }

    /// Uploads the weights if the host's are newer, and packs them.
    pub fn load(&mut self, host: &mut Host<'_>, scaler: Option<&LossScaler>) -> Result<()> {
        self.upload_if_stale(host, scaler)?;
        let Accelerator { device, device_model, resident, captures, .. } = self;
        captures.run(device, || device_model.load(&resident.values))
    }

    /// Uploads weights and the optimizer's state if the host's are newer.
    fn upload_if_stale(&mut self, host: &mut Host<'_>, scaler: Option<&LossScaler>) -> Result<()> {
        if self.weights_location == WeightsLocation::Host {
            self.resident.load(host, scaler)?;
            self.weights_location = WeightsLocation::Both;
        }
        Ok(())
    }

    /// The model in use, by the weights that [`Accelerator::load`] found.
    pub fn in_use(&mut self) -> InferenceHandle<'_> {
        InferenceHandle {
            device_model: &mut *self.device_model,
            weights: &self.resident.values,
            captures: &mut self.captures,
        }
    }

    /// Adds the gradients of `objective` over `batch`.
    pub fn accumulate(&mut self, batch: &BatchView<'_>, objective: Objective) -> Result<()> {
        let Accelerator { device, device_model, resident, captures, .. } = self;
        let Resident { values, gradients, control, .. } = resident;
        let Objective { loss, count, dropout, position, .. } = objective;
        let dropout_seed = DropoutSeed { dropout: Some(dropout), position };
        let loss_input =
            LossInput { targets: batch.targets(), weights: batch.weights(), loss, count, scale: control.scale() };
        captures.run(device, || device_model.accumulate_gradients(batch, dropout_seed, loss_input, values, gradients))
    }

    /// Takes all memory that the batches need that a run trains on, of which `largest` has the
    /// bound, unless `batch` needs as much: buffers that grow batch by batch would be taken anew
    /// each time. True if the gradients of `batch` were computed for that: a step has to begin anew
    /// then. Larger batches of a validation, dense training and models over graphs take memory as
    /// batches come.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn reserve(&mut self, batch: &BatchView<'_>, objective: Objective, largest: &LargestBatch) -> Result<bool> {
        if !self.device_model.pad_to_largest(batch, objective.position, largest)? {
            return Ok(false);
        }
        let done = self.accumulate(batch, objective);
        self.device_model.end_padding();
        done.map(|()| true)
    }

    /// Copies the gradients of the step's batches to `gradients`, and returns the sum of their
    /// losses and the number of its terms. Waits for the device.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory) for a device that fails.
    ///
    /// # Panics
    /// If `gradients` has another length than the model has parameters.
    pub fn read_gradients(&self, gradients: &mut [f32]) -> Result<[f64; 2]> {
        self.resident.gradients.copy_to(gradients)?;
        let mut totals = [0.0; 2];
        self.device_model.totals().copy_to(&mut totals)?;
        Ok(totals)
    }

    /// Puts gradients, the sum of the losses and the number of its terms in the place of those of
    /// the step's batches.
    ///
    /// # Errors
    /// As [`Accelerator::read_gradients`].
    ///
    /// # Panics
    /// As [`Accelerator::read_gradients`].
    pub fn write_gradients(&mut self, gradients: &[f32], totals: [f64; 2]) -> Result<()> {
        self.resident.gradients.copy_from(gradients)?;
        Ok(self.device_model.totals_mut().copy_from(&totals)?)
    }

    /// Ends a step: the device checks losses and gradients and, if all are finite, applies the
    /// optimizer by `settings`, and carries the states that the step computed. Does not wait.
    pub fn apply_gradients(&mut self, settings: &StepSettings) -> Result<()> {
        self.weights_location = WeightsLocation::Device;
        let Accelerator { device, device_model, resident, captures, .. } = self;
        resident.control.begin(settings)?;
        captures.run(device, || {
            resident.update(device_model.totals())?;
            device_model.commit_states(&resident.control)
        })?;
        self.report = Some(resident.control.fetch_report()?);
        Ok(())
    }

    /// Report on the step that was finished last. Waits for its end, and for nothing that was
    /// submitted since.
    ///
    /// # Panics
    /// If it was read before, or no step was finished.
    pub fn report(&mut self) -> Result<StepReport> {
        self.resident.read(self.report.take().expect("a step was finished"))
    }

    /// Brings weights and the optimizer's state on the host up to date, and the carried `states`
    /// there, if it has any. Waits for the device.
    pub fn sync_to_host(&mut self, host: &mut Host<'_>, states: Option<&mut TensorSet>) -> Result<()> {
        if self.weights_location == WeightsLocation::Device {
            self.resident.store(host)?;
            states.map_or(Ok(()), |states| self.device_model.store_states(states))?;
            self.weights_location = WeightsLocation::Both;
        }
        Ok(())
    }
}
