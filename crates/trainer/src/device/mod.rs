#![forbid(unsafe_code)]

//! Training steps on a GPU, of the operations in [`ops`](crate::ops).
//!
//! ```text
//! once a run    series                    ─► device
//! once a step   weights                   ─► device, in the orders of the kernels
//! each batch    rows of bars, targets     ─► device
//!               bars covered ─► projected ─► recurrence, layer by layer ─► last states ─► head, loss
//!               gradients    ◄─ by bar    ◄─ recurrence backward        ◄─────────────────┘
//! ```

mod bars;
mod cell;
mod decode;
mod lstm;
mod support;

use std::fmt::Debug;
use std::time::Instant;

use half::{bf16, f16};
use megabatch_amp::Precision;
use megabatch_gpu_core::{Buffer, Device};

use crate::config::Config;
use crate::error::Result;
use crate::model::Model;
use crate::ops::Operand;
use crate::samples::Samples;
use crate::step::{Objective, Totals};
use crate::tensor::TensorSet;
use crate::view::BatchView;
use decode::Decode;
use lstm::Lstms;
pub(crate) use support::check;

/// What computes the gradients of a run on a GPU.
#[derive(Debug)]
pub(crate) struct Accelerator {
    device: Device,
    encoder: Box<dyn Encode>,
    decode: Decode,
    parameters: Buffer<f32>,
    gradients: Buffer<f32>,
}

/// LSTMs whose products read numbers of some precision.
trait Encode: Debug + Send {
    fn keep_series(&mut self, samples: &dyn Samples) -> Result<()>;
    fn load(&mut self, parameters: &Buffer<f32>) -> Result<()>;
    fn forward(&mut self, batch: &BatchView<'_>, encodings: &mut [f32]) -> Result<()>;
    fn backward(&mut self, d_encodings: &[f32], gradients: &mut Buffer<f32>) -> Result<()>;
}

impl<T: Operand> Encode for Lstms<T> {
    fn keep_series(&mut self, samples: &dyn Samples) -> Result<()> {
        self.keep_series(samples)
    }

    fn load(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        self.load(parameters)
    }

    fn forward(&mut self, batch: &BatchView<'_>, encodings: &mut [f32]) -> Result<()> {
        self.forward(batch)?;
        self.read_last(encodings)
    }

    fn backward(&mut self, d_encodings: &[f32], gradients: &mut Buffer<f32>) -> Result<()> {
        self.backward(d_encodings, gradients)
    }
}

impl Accelerator {
    /// For batches of up to `batch_size` samples of a run with `config`; what the processor does of them is in the memory of `host`.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) for what a GPU does not compute yet, [`Error::Memory`](crate::Error::Memory).
    pub(crate) fn new([device, host]: [&Device; 2], model: &Model, config: &Config) -> Result<Self> {
        check(config)?;
        let scope = device.scope("gpu");
        let encoder: Box<dyn Encode> = match config.precision {
            Precision::Fp32 => Box::new(Lstms::<f32>::new(&scope, model)?),
            Precision::Bf16 => Box::new(Lstms::<bf16>::new(&scope, model)?),
            Precision::Fp16 => Box::new(Lstms::<f16>::new(&scope, model)?),
        };
        let room = (config.batch_size, config.purpose());
        Ok(Accelerator {
            decode: Decode::new(host, (model, config.precision), room)?,
            parameters: Buffer::zeros(&scope.child("model/parameters"), model.layout().len())?,
            gradients: Buffer::zeros(&scope.child("model/gradients"), model.layout().len())?,
            device: device.clone(),
            encoder,
        })
    }

    /// The device that computes.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Keeps the series of `samples` on the device, if their windows are slices of some.
    pub(crate) fn keep_series(&mut self, samples: &dyn Samples) -> Result<()> {
        self.encoder.keep_series(samples)
    }

    /// Begins a step with `parameters`, and gradients of zero.
    pub(crate) fn begin(&mut self, parameters: &TensorSet<f32>) -> Result<()> {
        self.parameters.copy_from(parameters.values())?;
        self.gradients.set_zero()?;
        self.decode.load(parameters);
        self.encoder.load(&self.parameters)
    }

    /// Adds the gradients of `objective` over `batch`: those of what follows the LSTMs to `gradients`, the others on the device. `totals` with those of the batch.
    pub(crate) fn accumulate(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        (batch, objective): (&BatchView<'_>, Objective),
        (gradients, mut totals): (&mut TensorSet<f32>, Totals),
    ) -> Result<Totals> {
        let start = Instant::now();
        self.encoder.forward(batch, self.decode.encodings_mut(batch.len()))?;
        self.decode.learn((model, parameters), (batch.targets(), objective), (gradients, &mut totals));
        let forward = start.elapsed();
        self.encoder.backward(self.decode.d_encodings(), &mut self.gradients)?;
        totals.forward += forward;
        totals.backward += start.elapsed() - forward;
        Ok(totals)
    }

    /// Adds the gradients on the device to `gradients`, when all batches of a step are done.
    pub(crate) fn read_gradients(&mut self, gradients: &mut TensorSet<f32>) -> Result<()> {
        let computed = self.gradients.to_vec()?;
        gradients.values_mut().iter_mut().zip(computed).for_each(|(sum, term)| *sum += term);
        Ok(())
    }
}
