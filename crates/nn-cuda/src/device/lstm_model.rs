//! Forward and backward of a batch, for operands of any precision.

use megabatch_amp::ops::DeviceScaler;
use megabatch_gpu_core::{Buffer, FilledTables, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::{BatchView, SeriesView};
use megabatch_nn::memory::{BOTH, LargestBatch};
use megabatch_nn::model::{Model, TensorSet};

use super::device_model::{DeviceModel, DropoutSeed};
use super::fusion::DeviceFusion;
use super::head::{DeviceHead, LossInput};
use super::lstm::Lstms;
use super::memory_estimate::MemoryEstimate;
use super::workspace::WorkingCopy;
use crate::ComputeConfig;
use crate::ops::{BatchUploader, Operand};
use crate::tuning::Tuner;

/// Counts what a model with operands of `T` takes.
pub(super) fn estimate<T: Operand>(estimate: &mut MemoryEstimate<'_>) {
    let model = estimate.model;
    estimate.book("parameters", "weights with rounded matrices", BOTH, |scope| WorkingCopy::<T>::new(scope, model));
    Lstms::<T>::estimate(estimate);
    DeviceFusion::estimate(estimate);
    DeviceHead::<T>::estimate(estimate);
}

/// A model of samples that stand alone, on a device.
#[derive(Debug)]
pub(super) struct LstmModel<T: Operand> {
    lstms: Lstms<T>,
    fusion: Option<DeviceFusion>,
    head: DeviceHead<T>,
    working: Option<WorkingCopy<T>>,
    uploader: BatchUploader,
}

impl<T: Operand> LstmModel<T> {
    pub(super) fn new(scope: &Scope, model: &Model, config: &ComputeConfig, tuner: &Tuner) -> Result<Self> {
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

    fn keep_windows(&mut self, windows: usize) -> Result<()> {
        self.lstms.keep_windows(windows)
    }

    fn put_windows(&mut self, first: usize, batch: &BatchView<'_>) -> Result<()> {
        self.lstms.put_windows(first, batch)
    }

    fn exchange_chunk(&mut self, chunk: Option<FilledTables<u8>>) -> Option<FilledTables<u8>> {
        self.lstms.exchange_chunk(chunk)
    }

    fn keeps_bars(&self) -> bool {
        self.lstms.keeps_bars()
    }

    fn carry_states(
        &mut self,
        scope: &Scope,
        rows: &[Vec<usize>],
        step_samples: usize,
        states: &TensorSet,
    ) -> Result<()> {
        self.lstms.carry_states(scope, rows, step_samples, states)
    }

    fn store_states(&self, states: &mut TensorSet) -> Result<()> {
        self.lstms.store_states(states)
    }

    fn commit_states(&mut self, control: &DeviceScaler) -> Result<()> {
        self.lstms.commit_states(control)
    }

    fn pad_to_largest(&mut self, batch: &BatchView<'_>, position: usize, largest: &LargestBatch) -> Result<bool> {
        self.lstms.pad_to_largest(batch, position, largest)
    }

    fn end_padding(&mut self) {
        self.lstms.end_padding();
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

    fn totals_mut(&mut self) -> &mut Buffer<f64> {
        self.head.totals_mut()
    }
}
