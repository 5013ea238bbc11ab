//! A trained model in use: its outputs, or the weights of its attention, batch by batch.

use std::ops::ControlFlow;
use std::path::Path;

use megabatch_amp::{Accuracy, Precision};
use megabatch_gpu_core::Device;
use megabatch_nn::batch::BatchView;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Model, Pooling, TensorSet, load_weights};
use megabatch_nn_cpu::{Compute, Engine, Purpose};
use megabatch_nn_cuda::{Trained, check_encoder};

use crate::config::{check_precision, refuse_on_gpu};
use crate::data::carried_rows::HELD_SAMPLES;
use crate::data::evenly_spaced::DrawnSamples;
use crate::data::level::Level;
use crate::data::prefetching::always;
use crate::data::samples::{Samples, resident_series};
use crate::error::{Error, Result};
use crate::evaluate::baseline::Baselines;
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::pass::evaluate;
use crate::evaluate::predictions::{Computed, PredictionBackend, Predictions, States};
use crate::evaluate::selection::{EvaluationProgress, Selection, check_shape};

/// A trained model that predicts.
#[derive(Debug)]
pub struct Predictor {
    model: Model,
    parameters: TensorSet,
    backend: PredictorBackend,
    device: Device,
    compute: Compute,
    precision: Precision,
    states: States,
    weight_errors: Vec<(String, Accuracy)>,
}

/// The side that predicts.
#[derive(Debug)]
enum PredictorBackend {
    Cpu(Engine),
    Cuda(Trained),
}

impl PredictorBackend {
    /// The CPU engine.
    ///
    /// # Panics
    /// If a GPU predicts: all else is chosen before it.
    fn into_engine(self) -> Engine {
        match self {
            PredictorBackend::Cpu(engine) => engine,
            PredictorBackend::Cuda(_) => panic!("the choices of a predictor come before its GPU"),
        }
    }
}

impl Predictor {
    /// The model with the weights of a safetensors file.
    ///
    /// # Errors
    /// As [`load_weights`]; of `megabatch_nn`, too:
    /// [`Memory`](megabatch_nn::Error::Memory), [`Threads`](megabatch_nn::Error::Threads) and
    /// [`Setting`](megabatch_nn::Error::Setting) as for training.
    pub fn open(device: &Device, model: Model, weights: &Path, compute: Compute) -> Result<Self> {
        let mut parameters = TensorSet::zeros(&device.scope("model/parameters"), model.layout())?;
        load_weights(weights, &mut parameters)?;
        let engine = Engine::new(device, &model, compute, Purpose::Prediction, Precision::Fp32)?;
        Ok(Predictor {
            model,
            parameters,
            backend: PredictorBackend::Cpu(engine),
            device: device.clone(),
            compute,
            precision: Precision::Fp32,
            states: States::Windows,
            weight_errors: Vec::new(),
        })
    }

    /// The predictor in `precision`, for a model that was trained in it.
    ///
    /// # Errors
    /// [`Error::Memory`] when the device has no room.
    pub fn with_precision(self, precision: Precision) -> Result<Self> {
        // Given back before the memory of the new one is taken.
        drop(self.backend.into_engine());
        let engine = Engine::new(&self.device, &self.model, self.compute, Purpose::Prediction, precision)?;
        Ok(Predictor { backend: PredictorBackend::Cpu(engine), precision, ..self })
    }

    /// The predictor with the LSTMs' matrices in eight bits: weights with a scale by output
    /// channel, bars and hidden states with fourteen bits and a scale by row, computed for each
    /// product; sums in 32 bits, everything else in single precision. It replaces
    /// [`Predictor::with_precision`]. A GPU uses the same matrices.
    ///
    /// # Errors
    /// [`megabatch_nn::Error::Setting`] for a model without an LSTM,
    /// [`megabatch_nn::Error::Quantize`] for weights that are not finite,
    /// [`megabatch_nn::Error::Memory`] when the device has no room.
    pub fn with_int8(self) -> Result<Self> {
        let scope = self.device.scope("model/parameters/int8");
        let (engine, weight_errors) = self.backend.into_engine().with_int8(&scope, &self.model, &self.parameters)?;
        Ok(Predictor { backend: PredictorBackend::Cpu(engine), weight_errors, ..self })
    }

    /// The error of each matrix by [`Predictor::with_int8`], under its name, in the order of the
    /// model's layers; empty without it.
    pub fn weight_errors(&self) -> &[(String, Accuracy)] {
        &self.weight_errors
    }

    /// The predictor for a model that was trained with carried state, or densely
    /// ([`Config::streams`](crate::Config::streams)). A sample's outputs come from the states at
    /// its windows' last bars in one pass over each segment from zero, one step a bar. They do not
    /// depend on the selection, batches or threads. The samples must be slices of series.
    pub fn with_carried_state(self) -> Self {
        let backend = PredictorBackend::Cpu(self.backend.into_engine());
        Predictor { backend, states: States::Segments, ..self }
    }

    /// The predictor for few samples of each segment, as [`Config::draw`](crate::Config::draw)
    /// takes them: with carried state, each run of them begins with a warm-up in place of its
    /// segment, and the bars between are not computed. Without carried state it changes nothing.
    #[must_use]
    pub fn with_warm_up(self) -> Self {
        let states = if self.states == States::Windows { States::Windows } else { States::Stretches };
        Predictor { states, ..self }
    }

    /// The predictor on `gpu`, in its precision. It comes after all other choices. Batches and a
    /// copy of the weights stay in host memory; the threads and memory of the CPU engine are
    /// released. Outputs are those of the CPU in another rounding.
    ///
    /// # Errors
    /// As [`Predictor::check_on_gpu`]; [`Error::Memory`] when the GPU has no room.
    ///
    /// # Panics
    /// If `gpu` is the CPU.
    pub fn on_gpu(self, gpu: &Device) -> Result<Self> {
        self.check_on_gpu()?;
        let in_bytes = !self.weight_errors.is_empty();
        let trained = Trained::new(gpu, &self.model, &self.parameters, self.precision, in_bytes)?;
        Ok(Predictor { backend: PredictorBackend::Cuda(trained), ..self })
    }

    /// Refuses what a GPU does not support yet: models without an LSTM of samples that stand alone,
    /// models over graphs in 16 bits, and carried state.
    ///
    /// # Errors
    /// [`Error::NotOnGpu`], or [`Error::Setting`] for the precision of a model over graphs.
    pub fn check_on_gpu(&self) -> Result<()> {
        check_encoder(&self.model.config())?;
        check_precision(self.precision, &self.model.config())?;
        if self.states != States::Windows {
            return refuse_on_gpu("carry_state", &"true, or `loss_on` every_step", "");
        }
        Ok(())
    }

    /// The device that computes.
    pub fn device(&self) -> &Device {
        match &self.backend {
            PredictorBackend::Cpu(_) => &self.device,
            PredictorBackend::Cuda(gpu) => gpu.device(),
        }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Calls `sink` with the predictions [B, K, M] of each batch, in order, and the indices of its
    /// samples. For a model over graphs, these are the nodes of the graphs of `selection`, graph
    /// after graph; or the graphs, if graphs are predicted.
    ///
    /// # Errors
    /// [`Error::SamplesShape`] for samples of another model, [`Error::Gather`], [`Error::Memory`],
    /// with carried state [`Error::NeedsSeries`] for samples that are stored as windows, for a
    /// model over graphs those of [`Trainer::train`](crate::Trainer::train), and whatever `sink`
    /// returns.
    pub fn predict<E: From<Error>>(
        &mut self,
        selection: Selection<'_>,
        mut sink: impl FnMut(&[usize], &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.predict_beside_targets(selection, &always, |indices, predictions, _| sink(indices, predictions))
    }

    /// As [`Predictor::predict`], with the targets [B, K] of each batch as the third argument of
    /// `sink`; unknown ones are NaN. While a batch is waited for, `is_wanted` is asked several
    /// times a second whether to wait on.
    ///
    /// # Errors
    /// As [`Predictor::predict`]; [`Error::Interrupted`] once `is_wanted` returns false.
    pub fn predict_beside_targets<E: From<Error>>(
        &mut self,
        selection: Selection<'_>,
        is_wanted: &dyn Fn() -> bool,
        mut sink: impl FnMut(&[usize], &[f32], &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut unseen = selection.indices.remaining();
        let mut source = self.source(selection.samples)?;
        let level = Level::from_readout(source.model.config().readout);
        let see = |batch: &BatchView<'_>| {
            let indices = level.indices(selection.samples, batch, &mut unseen);
            Ok((indices, level.targets(batch).into_owned()))
        };
        let flow = source.for_each(selection, is_wanted, see, |(indices, targets), predictions| {
            Ok(flow_after(sink(&indices, predictions, &targets)))
        })?;
        flow.break_value().map_or(Ok(()), Err)
    }

    /// Calls `sink` with the weights of attention pooling of each batch, in order, and the indices
    /// of its samples: a row a sample, in it the weights `[heads, T]` of one timeframe after
    /// another, which sum to one over T.
    ///
    /// # Errors
    /// As [`Predictor::predict`]; [`Error::Setting`] for a model that does not pool by attention.
    pub fn pooling_weights<E: From<Error>>(
        &mut self,
        selection: Selection<'_>,
        sink: impl FnMut(&[usize], &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.model.config().pooling == Pooling::Last {
            return Err(Error::setting("pooling", &"last", "attention, which has weights").into());
        }
        self.weights(Computed::PoolingWeights, selection, sink)
    }

    /// Calls `sink` with the weights of fusion by attention of each batch, in order, and the
    /// indices of its samples: a row a sample, in it for each head the weights [n, n] with which
    /// each of the n timeframes attends to all of them, which sum to one over the last dimension.
    ///
    /// # Errors
    /// As [`Predictor::predict`]; [`Error::Setting`] for a model that does not fuse by attention.
    pub fn fusion_weights<E: From<Error>>(
        &mut self,
        selection: Selection<'_>,
        sink: impl FnMut(&[usize], &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.model.fusion_weights_len() == 0 {
            return Err(Error::setting("fusion", &"concat", "attention, which has weights").into());
        }
        self.weights(Computed::FusionWeights, selection, sink)
    }

    fn weights<E: From<Error>>(
        &mut self,
        computed: Computed,
        selection: Selection<'_>,
        mut sink: impl FnMut(&[usize], &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let PredictorBackend::Cuda(gpu) = &self.backend {
            let expected = "cpu for weights of attention, which a GPU does not give so far";
            return Err(Error::setting("the device", gpu.device(), expected).into());
        }
        let mut unseen = selection.indices.remaining();
        let see = |batch: &BatchView<'_>| Ok(Level::from_batch(batch).indices(selection.samples, batch, &mut unseen));
        let each = |indices: Vec<usize>, weights: &[f32]| Ok(flow_after(sink(&indices, weights)));
        let flow = self.source(selection.samples)?.for_each_of(computed, selection, &always, see, each)?;
        flow.break_value().map_or(Ok(()), Err)
    }

    /// The model's errors on samples that were drawn from their part
    /// ([`Config::draw`](crate::Config::draw)), beside those of the baselines if there are any,
    /// with standard errors if the samples are not the whole part. `progress` gets the number of
    /// samples, or graphs, done after every batch.
    ///
    /// # Errors
    /// As [`Predictor::predict`]; [`Error::NothingLeft`] for no samples, [`Error::Setting`] for a
    /// loss out of range or of other outputs than the model's,
    /// [`Targets`](megabatch_nn::Error::Targets) for targets that the loss has no meaning for,
    /// [`Error::Interrupted`] where `progress` breaks.
    pub fn evaluate_drawn(
        &mut self,
        samples: &dyn Samples,
        drawn: &DrawnSamples<'_>,
        loss: Loss,
        baselines: Option<&Baselines>,
        progress: &mut EvaluationProgress<'_>,
    ) -> Result<Evaluation> {
        let selection = Selection { samples, indices: &drawn.samples };
        evaluate(self.source(samples)?, selection, loss, baselines, drawn.choice, progress)
    }

    /// The model in use on `samples`.
    fn source(&mut self, samples: &dyn Samples) -> Result<Predictions<'_>> {
        check_shape(&self.model, samples)?;
        let backend = match &mut self.backend {
            PredictorBackend::Cpu(engine) => PredictionBackend::Cpu(engine),
            PredictorBackend::Cuda(gpu) => {
                // Series that are too large for the GPU come to it bar by bar, with each batch.
                match gpu.keep_series(resident_series(samples).as_ref()) {
                    Err(error) if error.is_shortage() => gpu.keep_series(None)?,
                    kept => kept?,
                }
                PredictionBackend::Cuda(gpu.in_use())
            }
        };
        Ok(Predictions {
            model: &self.model,
            parameters: &self.parameters,
            backend,
            device: &self.device,
            compute: self.compute,
            chunk_percent: 100,
            states: self.states,
            held_samples: HELD_SAMPLES,
            reads_bars: false,
            target_scales: None,
        })
    }
}

/// `Break` with the error of a consumer that refused a batch.
fn flow_after<E>(consumed: Result<(), E>) -> ControlFlow<E> {
    consumed.map_or_else(ControlFlow::Break, ControlFlow::Continue)
}
