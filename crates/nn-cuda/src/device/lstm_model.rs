#![forbid(unsafe_code)]

//! Forward and backward of a batch, for operands of any precision.

use std::fmt::Debug;

use half::{bf16, f16};
use megabatch_amp::Precision;
use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::{BatchView, SeriesView};
use megabatch_nn::model::{Model, StepDropout, TensorSet};

use super::fusion::DeviceFusion;
use super::graphs::GraphModel;
use super::head::{DeviceHead, LossInput};
use super::lstm::Lstms;
use super::memory_estimate::MemoryEstimate;
use super::workspace::WorkingCopy;
use crate::ComputeConfig;
use crate::ops::{BatchUploader, Operand};
use crate::tuning::Tuner;

/// A model on a device: one implementation, of three types of operands.
pub(super) trait DeviceModel: Debug + Send {
    /// Keeps the series on the device, where windows are slices of some.
    fn keep_series(&mut self, series: Option<&SeriesView<'_>>) -> Result<()>;

    /// True if it keeps series.
    fn keeps_series(&self) -> bool;

    /// Begins a step with `parameters`.
    fn load(&mut self, parameters: &Buffer<f32>) -> Result<()>;

    /// Has the LSTMs multiply by matrices in eight bits from now on, made of `parameters`, for
    /// predictions in single precision.
    fn quantize(&mut self, scope: &Scope, model: &Model, parameters: &TensorSet) -> Result<()>;

    /// Adds the gradients of a batch's loss.
    fn accumulate_gradients(
        &mut self,
        batch: &BatchView<'_>,
        dropout_seed: DropoutSeed,
        loss_input: LossInput<'_>,
        parameters: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()>;

    /// Computes the outputs of a batch.
    fn predict(&mut self, batch: &BatchView<'_>, parameters: &Buffer<f32>) -> Result<()>;

    /// Last computed outputs, `[B, K]`, and room behind them.
    fn outputs(&self) -> &Buffer<f32>;

    /// `[2]`: the sum of the losses since the step began, and the number of its terms.
    fn totals(&self) -> &Buffer<f64>;
}

/// Dropout of a step: none in a prediction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DropoutSeed {
    pub(super) dropout: Option<StepDropout>,
    /// Position of the batch's first sample in the epoch's order, by which dense training finds its
    /// runs.
    pub(super) position: usize,
}

/// The model of a run with `config`, on scopes below `scope`, whose kernels `tuner` chooses.
pub(super) fn device_model(
    scope: &Scope,
    model: &Model,
    config: &ComputeConfig,
    tuner: &Tuner,
) -> Result<Box<dyn DeviceModel>> {
    if model.config().is_over_graphs() {
        return Ok(Box::new(GraphModel::new(scope, model, config, tuner)?));
    }
    Ok(match config.precision {
        Precision::Fp32 => Box::new(LstmModel::<f32>::new(scope, model, config, tuner)?),
        Precision::Bf16 => Box::new(LstmModel::<bf16>::new(scope, model, config, tuner)?),
        Precision::Fp16 => Box::new(LstmModel::<f16>::new(scope, model, config, tuner)?),
    })
}

/// Counts what a model with operands of `T` takes.
pub(super) fn estimate<T: Operand>(estimate: &mut MemoryEstimate<'_>) {
    WorkingCopy::<T>::estimate(estimate);
    Lstms::<T>::estimate(estimate);
    DeviceFusion::estimate(estimate);
    DeviceHead::<T>::estimate(estimate);
}

#[derive(Debug)]
struct LstmModel<T: Operand> {
    lstms: Lstms<T>,
    fusion: Option<DeviceFusion>,
    head: DeviceHead<T>,
    working: Option<WorkingCopy<T>>,
    uploader: BatchUploader,
}

impl<T: Operand> LstmModel<T> {
    fn new(scope: &Scope, model: &Model, config: &ComputeConfig, tuner: &Tuner) -> Result<Self> {
        let arithmetic = config.arithmetic;
        let lstms = Lstms::new(scope, model, config, tuner)?;
        let head = DeviceHead::new(scope, model, config.loss, arithmetic)?;
        let working = WorkingCopy::new(scope, model)?;
        let uploader = BatchUploader::new(&scope.child("batches"))?;
        Ok(LstmModel { lstms, fusion: DeviceFusion::new(scope, model, arithmetic)?, head, working, uploader })
    }

    /// From a batch, with its targets where they are learnt, to what the head reads.
    fn encode(
        &mut self,
        batch: &BatchView<'_>,
        seed: DropoutSeed,
        loss_input: Option<LossInput<'_>>,
        parameters: &Buffer<f32>,
    ) -> Result<()> {
        let LstmModel { lstms, fusion, head, working, uploader } = self;
        let (weights, samples) = (working.as_ref().map_or(parameters, WorkingCopy::values), batch.len());
        head.select_workspace(samples)?;
        let mut upload = uploader.upload();
        lstms.enqueue(batch, seed, loss_input.is_some(), &mut upload)?;
        let learns = loss_input.is_some();
        loss_input.map_or(Ok(()), |loss_input| head.enqueue(loss_input, &mut upload))?;
        upload.send()?;
        lstms.tune(learns)?;
        lstms.forward(weights)?;
        let Some(fusion) = fusion else { return lstms.join(head.read_mut()) };
        fusion.ensure_capacity(samples)?;
        lstms.join(fusion.tokens_mut())?;
        fusion.forward(weights, head.read_mut())
    }
}

impl<T: Operand> DeviceModel for LstmModel<T> {
    fn keep_series(&mut self, series: Option<&SeriesView<'_>>) -> Result<()> {
        self.lstms.keep_series(series)
    }

    fn keeps_series(&self) -> bool {
        self.lstms.keeps_series()
    }

    fn load(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        self.head.load(parameters)?;
        self.working.iter_mut().try_for_each(|working| working.load(parameters))?;
        self.lstms.load(parameters)
    }

    fn quantize(&mut self, scope: &Scope, model: &Model, parameters: &TensorSet) -> Result<()> {
        self.lstms.quantize(scope, model, parameters)
    }

    fn accumulate_gradients(
        &mut self,
        batch: &BatchView<'_>,
        dropout_seed: DropoutSeed,
        loss_input: LossInput<'_>,
        parameters: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        let scale = loss_input.scale;
        self.encode(batch, dropout_seed, Some(loss_input), parameters)?;
        let LstmModel { lstms, fusion, head, working, .. } = self;
        let weights = working.as_ref().map_or(parameters, WorkingCopy::values);
        head.accumulate_gradients(scale, parameters, &mut *gradients)?;
        let Some(fusion) = fusion else { return lstms.backward(head.d_read(), weights, gradients) };
        fusion.backward::<T>(head.d_read(), weights, &mut *gradients)?;
        lstms.backward(fusion.d_tokens(), weights, gradients)
    }

    fn predict(&mut self, batch: &BatchView<'_>, parameters: &Buffer<f32>) -> Result<()> {
        self.encode(batch, DropoutSeed::default(), None, parameters)?;
        self.head.predict(parameters)
    }

    fn outputs(&self) -> &Buffer<f32> {
        self.head.outputs()
    }

    fn totals(&self) -> &Buffer<f64> {
        self.head.totals()
    }
}
