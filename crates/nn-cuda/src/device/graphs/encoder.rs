//! Encoders of each node on a device: LSTMs over its windows, fused or not, or the features of
//! their last bars.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::{BatchView, SeriesView};
use megabatch_nn::memory::BOTH;
use megabatch_nn::model::{Encoder, Model, TensorSet};

use crate::ComputeConfig;
use crate::device::device_model::DropoutSeed;
use crate::device::fusion::DeviceFusion;
use crate::device::lstm::Lstms;
use crate::device::memory_estimate::MemoryEstimate;
use crate::ops::{UploadBatch, ensure_capacity};
use crate::tuning::Tuner;

/// An encoder, and the numbers that it gives.
#[derive(Debug)]
pub(super) struct Encodings {
    /// None where the last bars are taken.
    lstms: Option<Lstms<f32>>,
    fusion: Option<DeviceFusion>,
    /// D.
    width: usize,
    /// Last bars, on the host.
    last: Vec<f32>,
    pub(super) x: Buffer<f32>, // [N, D]
}

impl Encodings {
    pub(super) fn new(scope: &Scope, model: &Model, config: &ComputeConfig, tuner: &Tuner) -> Result<Self> {
        let is_lstm = model.config().encoder == Encoder::Recurrent;
        let batches = if is_lstm { "activations" } else { "batches" };
        Ok(Encodings {
            lstms: is_lstm.then(|| Lstms::new(scope, model, config, tuner)).transpose()?,
            fusion: DeviceFusion::new(scope, model, config.arithmetic)?,
            width: model.decoder().widths.fused,
            last: Vec::new(),
            x: Buffer::zeros(&scope.child(batches), 0)?,
        })
    }

    /// Counts what batches of so many nodes take, and those of so many that are trained on.
    pub(super) fn estimate(&mut self, estimate: &mut MemoryEstimate<'_>, nodes: usize, nodes_learnt: usize) {
        let Encodings { lstms, width, x, .. } = self;
        if lstms.is_none() {
            return estimate.book_upload("last bars of the nodes", [nodes, nodes_learnt].map(Some), |upload, nodes| {
                upload.put(x, nodes * *width)
            });
        }
        Lstms::<f32>::estimate(estimate);
        DeviceFusion::estimate(estimate);
        estimate.book("activations", "encodings of the nodes", BOTH, |_| ensure_capacity(x, nodes * *width));
    }

    /// True if a gradient goes on into it.
    pub(super) fn learns(&self) -> bool {
        self.lstms.is_some()
    }

    pub(super) fn keep_series(&mut self, series: Option<&SeriesView<'_>>) -> Result<()> {
        self.lstms.as_mut().map_or(Ok(()), |lstms| lstms.keep_series(series))
    }

    pub(super) fn keep_windows(&mut self, windows: usize) -> Result<()> {
        self.lstms.as_mut().map_or(Ok(()), |lstms| lstms.keep_windows(windows))
    }

    pub(super) fn put_windows(&mut self, first: usize, batch: &BatchView<'_>) -> Result<()> {
        self.lstms.as_mut().map_or(Ok(()), |lstms| lstms.put_windows(first, batch))
    }

    pub(super) fn keeps_bars(&self) -> bool {
        self.lstms.as_ref().is_some_and(Lstms::keeps_bars)
    }

    pub(super) fn load(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        self.lstms.as_mut().map_or(Ok(()), |lstms| lstms.load(parameters))
    }

    pub(super) fn quantize(&mut self, scope: &Scope, model: &Model, parameters: &TensorSet) -> Result<()> {
        self.lstms.as_mut().map_or(Ok(()), |lstms| lstms.quantize(scope, model, parameters))
    }

    /// Gives `upload` what the device has to know of the windows of a batch, which is padded to
    /// `nodes` nodes.
    pub(super) fn enqueue<'a>(
        &'a mut self,
        batch: &BatchView<'_>,
        nodes: usize,
        dropout_seed: DropoutSeed,
        learns: bool,
        upload: &mut UploadBatch<'a>,
    ) -> Result<()> {
        let Encodings { lstms, fusion, width, last, x } = self;
        if let Some(lstms) = lstms {
            ensure_capacity(x, batch.len() * *width)?;
            fusion.iter_mut().try_for_each(|fusion| fusion.ensure_capacity(batch.len()))?;
            return lstms.enqueue(batch, dropout_seed, learns, upload);
        }
        last.clear();
        for sample in 0..batch.len() {
            for (k, timeframe) in batch.shape().timeframes.iter().enumerate() {
                last.extend_from_slice(&batch.window(k, sample)[(timeframe.steps - 1) * timeframe.features..]);
            }
        }
        last.resize(nodes * *width, 0.0);
        upload.put(x, last)
    }

    /// Makes [`Encodings::x`].
    pub(super) fn forward(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        let Some(lstms) = &mut self.lstms else { return Ok(()) };
        lstms.forward(parameters)?;
        let Some(fusion) = &mut self.fusion else { return lstms.join(&mut self.x) };
        lstms.join(fusion.tokens_mut())?;
        fusion.forward(parameters, &mut self.x)
    }

    /// Backward pass from the gradient of [`Encodings::x`]; adds those of the parameters.
    pub(super) fn backward(
        &mut self,
        d_x: &Buffer<f32>,
        parameters: &Buffer<f32>,
        gradients: &mut Buffer<f32>,
    ) -> Result<()> {
        let Some(lstms) = &mut self.lstms else { return Ok(()) };
        let Some(fusion) = &mut self.fusion else { return lstms.backward(d_x, parameters, gradients) };
        fusion.backward::<f32>(d_x, parameters, &mut *gradients)?;
        lstms.backward(fusion.d_tokens(), parameters, gradients)
    }
}
