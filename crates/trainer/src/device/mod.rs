#![forbid(unsafe_code)]

//! Training steps on a GPU, of the operations in [`ops`](crate::ops) and in amp's.
//!
//! ```text
//! once a run    series, weights, moments  ─► device
//! each batch    rows of bars, targets     ─► device
//!               bars covered ─► projected ─► recurrence, layer by layer ─► last states ─► head, loss
//!               gradients    ◄─ by bar    ◄─ recurrence backward        ◄─────────────────┘
//! once a step   loss, norm, overflow      ◄─ device, and then unscale, clip, update there
//! where due     weights, moments          ◄─ device, for validation and checkpoints
//! ```
//!
//! What lies between the last states and the loss is computed on the processor where it is more than a head: fusion by attention.

mod bars;
mod cell;
mod decode;
mod head;
mod learner;
mod lstm;
mod support;
mod weights;

use std::time::Instant;

use megabatch_amp::LossScaler;
use megabatch_amp::ops::{Report, StepSettings};
use megabatch_gpu_core::Device;

use crate::config::Config;
use crate::error::Result;
use crate::model::Model;
use crate::optimizer::Optimizer;
use crate::samples::Samples;
use crate::step::{Objective, Totals};
use crate::tensor::TensorSet;
use crate::view::BatchView;
use decode::Decode;
use head::Goal;
use learner::{Learn, learner};
pub(crate) use support::check;
use weights::Resident;

/// What computes the steps of a run on a GPU.
#[derive(Debug)]
pub(crate) struct Accelerator {
    device: Device,
    learner: Box<dyn Learn>,
    resident: Resident,
    /// Where the head is not on the device: what follows the LSTMs, and where its parameters begin.
    decode: Option<(Decode, usize)>,
    newest: Newest,
    /// Of the step so far, where it is not on the device.
    totals: Totals,
    begun: Instant,
}

/// Where weights and the optimizer's state are as they are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newest {
    Host,
    Device,
    Both,
}

/// Weights and the optimizer on the host.
pub(crate) struct Host<'a> {
    pub(crate) parameters: &'a mut TensorSet<f32>,
    pub(crate) optimizer: &'a mut Optimizer<f32>,
}

impl Accelerator {
    /// For batches of up to `config.batch_size` samples; what the processor does of them is in the memory of `host`.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) for what a GPU does not compute yet, [`Error::Memory`](crate::Error::Memory).
    pub(crate) fn new([device, host]: [&Device; 2], model: &Model, config: &Config) -> Result<Self> {
        check(config)?;
        let scope = device.scope("gpu");
        let learner = learner(&scope, model, config)?;
        let decode = || {
            let decode = Decode::new(host, (model, config.precision), (config.batch_size, config.purpose()))?;
            Ok::<_, crate::Error>((decode, model.decoder_start()))
        };
        Ok(Accelerator {
            decode: (!learner.has_head()).then(decode).transpose()?,
            resident: Resident::new(&scope, model.layout(), config.optimizer.kind)?,
            device: device.clone(),
            learner,
            newest: Newest::Host,
            totals: Totals::default(),
            begun: Instant::now(),
        })
    }

    /// The device that computes.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Keeps the series of `samples` on the device, if their windows are slices of some.
    pub(crate) fn keep_series(&mut self, samples: &dyn Samples) -> Result<()> {
        self.learner.keep_series(samples)
    }

    /// Takes weights and the optimizer's state from the host when the next step begins.
    pub(crate) fn host_has_changed(&mut self) {
        self.newest = Newest::Host;
    }

    /// Begins a step, with gradients and losses of zero.
    pub(crate) fn begin(&mut self, host: &mut Host<'_>, scaler: Option<&LossScaler>) -> Result<()> {
        (self.begun, self.totals) = (Instant::now(), Totals::default());
        if self.newest == Newest::Host {
            self.resident.load(host.parameters, host.optimizer, scaler)?;
            self.newest = Newest::Both;
        }
        self.resident.gradients.set_zero()?;
        if let Some((decode, start)) = &mut self.decode {
            self.resident.values.copy_to_at(*start, &mut host.parameters.values_mut()[*start..])?;
            decode.load(host.parameters);
        }
        self.learner.load(&self.resident.values)
    }

    /// Adds the gradients of `objective` over `batch`: those of what the processor computes to `gradients`, the others on the device.
    pub(crate) fn accumulate(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        (batch, objective): (&BatchView<'_>, Objective),
        gradients: &mut TensorSet<f32>,
    ) -> Result<()> {
        let Resident { values, gradients: on_device, control, .. } = &mut self.resident;
        let Some((decode, _)) = &mut self.decode else {
            let Objective { loss, count, .. } = objective;
            let goal = Goal { targets: batch.targets(), loss, count, scale: control.scale() };
            return self.learner.learn((batch, objective.dropout), goal, (values, on_device));
        };
        self.learner.encode((batch, objective.dropout), decode.encodings_mut(batch.len()))?;
        decode.learn((model, parameters), (batch.targets(), objective), (gradients, &mut self.totals));
        self.learner.back_from(decode.d_encodings(), on_device)
    }

    /// The sums over the batches since the step began; their time, backward passes included, is the forward pass's. Waits for the device.
    pub(crate) fn totals(&self) -> Result<Totals> {
        let mut totals = self.totals;
        if self.decode.is_none() {
            let [sum, terms] = self.learner.totals()?;
            (totals.loss_sum, totals.terms) = (sum, terms as usize);
        }
        totals.forward = self.begun.elapsed();
        Ok(totals)
    }

    /// Looks at the gradients of the step, those of the processor in `gradients`, and has the loss scale follow. Waits for the device.
    pub(crate) fn examine(&mut self, of: &StepSettings, gradients: &TensorSet<f32>) -> Result<Report> {
        if let Some((_, start)) = self.decode {
            self.resident.gradients.copy_from_at(start, &gradients.values()[start..])?;
        }
        self.resident.examine(of)
    }

    /// Changes the weights by a step along the gradients that [`Accelerator::examine`] looked at; does nothing where one was not finite. Does not wait.
    pub(crate) fn update(&mut self) -> Result<()> {
        self.newest = Newest::Device;
        self.resident.update()
    }

    /// Brings weights and the optimizer's state on the host up to date. Waits for the device.
    pub(crate) fn settle(&mut self, host: &mut Host<'_>) -> Result<()> {
        if self.newest == Newest::Device {
            self.resident.store(host.parameters, host.optimizer)?;
            self.newest = Newest::Both;
        }
        Ok(())
    }
}
