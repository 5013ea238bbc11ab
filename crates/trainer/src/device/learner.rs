#![forbid(unsafe_code)]

//! Forward and backward of a batch, for operands of any precision.

use std::fmt::Debug;

use half::{bf16, f16};
use megabatch_amp::Precision;
use megabatch_gpu_core::{Buffer, Scope};

use super::head::{Goal, Head};
use super::lstm::Lstms;
use crate::config::Config;
use crate::dropout::Dropout;
use crate::error::Result;
use crate::model::Model;
use crate::ops::{Delivery, Operand};
use crate::samples::Samples;
use crate::view::BatchView;

/// A model on a device: one implementation, of three types of operands.
pub(super) trait Learn: Debug + Send {
    /// Keeps the series of `samples` on the device, if their windows are slices of some.
    fn keep_series(&mut self, samples: &dyn Samples) -> Result<()>;

    /// Begins a step with `parameters`.
    fn load(&mut self, parameters: &Buffer<f32>) -> Result<()>;

    /// Whether the head and the loss are computed on the device.
    fn has_head(&self) -> bool;

    /// Adds the gradients of a batch's loss.
    ///
    /// # Panics
    /// Without a head.
    fn learn(
        &mut self,
        batch: (&BatchView<'_>, Option<Dropout>),
        goal: Goal<'_>,
        parameters_and_gradients: (&Buffer<f32>, &mut Buffer<f32>),
    ) -> Result<()>;

    /// The sum of the losses since the step began, and the number of its terms. Waits for the device.
    ///
    /// # Panics
    /// Without a head.
    fn totals(&self) -> Result<[f64; 2]>;

    /// Writes the last states of each sample's windows, `[B, D]`. Waits for the device.
    fn encode(&mut self, batch: (&BatchView<'_>, Option<Dropout>), encodings: &mut [f32]) -> Result<()>;

    /// Goes back from their gradients; adds those of the LSTMs.
    fn back_from(&mut self, d_encodings: &[f32], gradients: &mut Buffer<f32>) -> Result<()>;
}

/// The model of a run with `config`, on scopes below `scope`.
pub(super) fn learner(scope: &Scope, model: &Model, config: &Config) -> Result<Box<dyn Learn>> {
    Ok(match config.precision {
        Precision::Fp32 => Box::new(Learner::<f32>::new(scope, model, config)?),
        Precision::Bf16 => Box::new(Learner::<bf16>::new(scope, model, config)?),
        Precision::Fp16 => Box::new(Learner::<f16>::new(scope, model, config)?),
    })
}

#[derive(Debug)]
struct Learner<T: Operand> {
    lstms: Lstms<T>,
    head: Option<Head<T>>,
    delivery: Delivery,
}

impl<T: Operand> Learner<T> {
    fn new(scope: &Scope, model: &Model, config: &Config) -> Result<Self> {
        let lstms = Lstms::new(scope, model, config.dropout_between_layers())?;
        let delivery = Delivery::new(&scope.child("batches"))?;
        Ok(Learner { lstms, head: Head::new(scope, (model, config.loss))?, delivery })
    }
}

impl<T: Operand> Learn for Learner<T> {
    fn keep_series(&mut self, samples: &dyn Samples) -> Result<()> {
        self.lstms.keep_series(samples)
    }

    fn load(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        self.head.iter_mut().try_for_each(|head| head.load(parameters))?;
        self.lstms.load(parameters)
    }

    fn has_head(&self) -> bool {
        self.head.is_some()
    }

    fn learn(
        &mut self,
        batch: (&BatchView<'_>, Option<Dropout>),
        goal: Goal<'_>,
        (parameters, gradients): (&Buffer<f32>, &mut Buffer<f32>),
    ) -> Result<()> {
        let head = self.head.as_mut().expect("the head is on the device");
        let room = head.room(batch.0.len())?;
        let mut mail = self.delivery.mail();
        self.lstms.post(batch, &mut mail)?;
        head.post(room, goal, &mut mail)?;
        mail.send()?;
        self.lstms.forward()?;
        self.lstms.join(head.room_mut(room))?;
        head.learn(room, goal.scale, (parameters, &mut *gradients))?;
        self.lstms.backward_from(head.room_mut(room), gradients)
    }

    fn totals(&self) -> Result<[f64; 2]> {
        self.head.as_ref().expect("the head is on the device").totals()
    }

    fn encode(&mut self, batch: (&BatchView<'_>, Option<Dropout>), encodings: &mut [f32]) -> Result<()> {
        let mut mail = self.delivery.mail();
        self.lstms.post(batch, &mut mail)?;
        mail.send()?;
        self.lstms.forward()?;
        self.lstms.read_last(encodings)
    }

    fn back_from(&mut self, d_encodings: &[f32], gradients: &mut Buffer<f32>) -> Result<()> {
        self.lstms.backward_from_host(d_encodings, gradients)
    }
}
