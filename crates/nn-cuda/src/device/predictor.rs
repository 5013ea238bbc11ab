//! A model in use on a device: outputs, and nothing to learn.

use megabatch_amp::Precision;
use megabatch_gpu_core::{AsyncDownload, Buffer, Captures, Device};
use megabatch_nn::Result;
use megabatch_nn::batch::{BatchView, SeriesView};
use megabatch_nn::graph::EdgeForm;
use megabatch_nn::model::{Model, TensorSet};

use super::device_model::DeviceModel;
use super::model_choice::device_model;
use crate::ComputeConfig;
use crate::tuning::Tuner;

/// A model on a device, made ready for the weights beside it; nothing is dropped.
#[derive(Debug)]
pub struct InferenceHandle<'a> {
    pub(super) device_model: &'a mut dyn DeviceModel,
    pub(super) weights: &'a Buffer<f32>,
    /// Captures of the batches' commands.
    pub(super) captures: &'a mut Captures,
}

impl InferenceHandle<'_> {
    /// The device that computes.
    pub fn device(&self) -> &Device {
        self.weights.scope().device()
    }

    /// True if the series or windows of the samples are there, so that a batch need not bring bars.
    pub fn keeps_bars(&self) -> bool {
        self.device_model.keeps_bars()
    }

    /// Form of the edges of batches of graphs.
    pub fn edge_form(&self) -> EdgeForm {
        self.device_model.edge_form()
    }

    /// The outputs of `batch`, `[B, K]`, and whatever lies behind them.
    pub fn predict(&mut self, batch: &BatchView<'_>) -> Result<AsyncDownload<f32>> {
        let InferenceHandle { device_model, weights, captures } = self;
        captures.run(weights.scope().device(), || device_model.predict(batch, weights))?;
        Ok(device_model.outputs().fetch()?)
    }
}

/// A trained model on a device: its weights, without room for gradients or an optimizer's state.
#[derive(Debug)]
pub struct Trained {
    device: Device,
    device_model: Box<dyn DeviceModel>,
    weights: Buffer<f32>,
    captures: Captures,
}

impl Trained {
    /// `model` with `parameters`, which predicts in `precision`, or with the LSTMs' matrices in
    /// eight bits; memory for batches is taken when they come.
    pub fn new(
        device: &Device,
        model: &Model,
        parameters: &TensorSet,
        precision: Precision,
        int8_weights: bool,
    ) -> Result<Self> {
        let scope = device.scope("gpu");
        let config = ComputeConfig::for_prediction(precision);
        // A few passes are no more than what it would take to measure kernels.
        let mut device_model = device_model(&scope, model, &config, &Tuner::off())?;
        let weights = Buffer::from_slice(&scope.child("model/parameters"), parameters.values())?;
        device_model.load(&weights)?;
        if int8_weights {
            device_model.quantize(&scope, model, parameters)?;
        }
        Ok(Trained { device: device.clone(), device_model, weights, captures: Captures::default() })
    }

    /// The device that computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Keeps the series of `samples` on the device, if their windows are slices of some, in the
    /// place of those before.
    pub fn keep_series(&mut self, series: Option<&SeriesView<'_>>) -> Result<()> {
        self.device_model.keep_series(series)
    }

    /// Model for inference.
    pub fn in_use(&mut self) -> InferenceHandle<'_> {
        InferenceHandle { device_model: &mut *self.device_model, weights: &self.weights, captures: &mut self.captures }
    }
}
