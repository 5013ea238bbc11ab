#![forbid(unsafe_code)]

//! Batch after batch through a model in use.

use megabatch_gpu_core::{AsyncDownload, Device};
use megabatch_nn::batch::BatchView;
use megabatch_nn::cpu::{Compute, Engine, StatefulInference};
use megabatch_nn::cuda::InferenceHandle;
use megabatch_nn::graph::SeenEdges;
use megabatch_nn::model::{Model, TensorSet};

use super::{Selection, check_shape, graphs_of};
use crate::data::carried_rows::{distinct_ends, series_of};
use crate::data::prefetch::{BatchFeed, GatherMode, Source, with_batches};
use crate::error::Result;

/// A model in use: what predictions are computed with.
pub(crate) struct Predictions<'a> {
    pub(crate) model: &'a Model,
    pub(crate) parameters: &'a TensorSet,
    /// There where no GPU is.
    pub(crate) engine: Option<&'a mut Engine>,
    /// A GPU that computes outputs in the place of the engine. It has loaded the weights and, where
    /// they stay there, the series of the samples.
    pub(crate) gpu: Option<InferenceHandle<'a>>,
    pub(crate) device: &'a Device,
    pub(crate) compute: Compute,
    /// Size of the chunks that samples load ahead, of what was planned.
    pub(crate) chunk_percent: u32,
    pub(crate) states: States,
    /// True if batches have the bars of their windows also where a GPU has the series, for others
    /// than the model.
    pub(crate) reads_bars: bool,
}

/// Initial states of a model's LSTMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum States {
    /// With each window.
    Windows,
    /// With each segment, which is gone through once.
    Segments,
    /// With a warm-up before each stretch of the samples, which are few among those of their
    /// segments.
    Stretches,
}

/// Windows of a warm-up: the state of an LSTM forgets what came before within a few.
const WARM_UP_WINDOWS: usize = 4;

/// Results for each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Computed {
    Outputs,
    PoolingWeights,
    FusionWeights,
}

/// True if to go on to the next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Continue,
    Stop,
}

impl Predictions<'_> {
    /// Predicts batch after batch, in order. `see` takes of a batch what `each` is to have beside
    /// its outputs, which may come when the next batch has been seen.
    pub(crate) fn for_each<S>(
        &mut self,
        selection: Selection<'_>,
        see: impl FnMut(&BatchView<'_>) -> Result<S>,
        each: impl FnMut(S, &[f32]) -> Result<Next>,
    ) -> Result<()> {
        self.for_each_of(Computed::Outputs, selection, see, each)
    }

    /// Computes batch after batch, in order.
    pub(super) fn for_each_of<S>(
        &mut self,
        computed: Computed,
        selection: Selection<'_>,
        see: impl FnMut(&BatchView<'_>) -> Result<S>,
        each: impl FnMut(S, &[f32]) -> Result<Next>,
    ) -> Result<()> {
        check_shape(self.model, selection.samples)?;
        let graphs = graphs_of(self.model, selection)?;
        self.engine.as_deref_mut().map_or(Ok(()), |engine| engine.make_room_for(self.model, graphs))?;
        let batch_size = self.compute.batch_size;
        let batches = self.device.scope("batches");
        let chunk_percent = self.chunk_percent;
        let (samples, seen) = (selection.samples, self.gpu.as_ref().map(|_| SeenEdges::of(&self.model.config())));
        let stay = !self.reads_bars && self.gpu.as_ref().is_some_and(InferenceHandle::keeps_series);
        let of_series = if stay { GatherMode::WindowOffsets } else { GatherMode::Bars };
        let source = Source { samples, graphs, seen, scope: &batches, batch_size, chunk_percent, of_series };
        let schedule = selection.indices.chunks(batch_size).map(<[usize]>::to_vec);
        match &mut self.gpu {
            Some(gpu) => with_batches(source, schedule, |feed| on_gpu(self.model, gpu, feed, see, each)),
            None => {
                let (model, parameters) = (self.model, self.parameters);
                self.engine().load(model, parameters);
                let streamed = if self.states == States::Windows { None } else { Some(self.stream(selection)?) };
                with_batches(source, schedule, |feed| self.on_processor(computed, streamed, feed, see, each))
            }
        }
    }

    fn on_processor<S>(
        &mut self,
        computed: Computed,
        mut streamed: Option<StatefulInference>,
        feed: &mut BatchFeed<'_>,
        mut see: impl FnMut(&BatchView<'_>) -> Result<S>,
        mut each: impl FnMut(S, &[f32]) -> Result<Next>,
    ) -> Result<()> {
        let (model, parameters) = (self.model, self.parameters);
        let mut numbers = Vec::new();
        while let Some(batch) = feed.next()? {
            numbers.resize(computed.len(model, &batch), 0.0);
            let engine = self.engine();
            match &mut streamed {
                Some(streamed) => engine.install(model, parameters, |weights| match computed {
                    Computed::Outputs => streamed.predict(weights, &batch, &mut numbers),
                    Computed::PoolingWeights => streamed.pooling_weights(weights, &batch, &mut numbers),
                    Computed::FusionWeights => streamed.fusion_weights(weights, &batch, &mut numbers),
                }),
                None => match computed {
                    Computed::Outputs => engine.predict(model, parameters, &batch, &mut numbers),
                    Computed::PoolingWeights => engine.pooling_weights(model, parameters, &batch, &mut numbers),
                    Computed::FusionWeights => engine.fusion_weights(model, parameters, &batch, &mut numbers),
                },
            }
            if each(see(&batch)?, &numbers)? == Next::Stop {
                break;
            }
        }
        Ok(())
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.as_deref_mut().expect("what no GPU computes, the processor does")
    }

    /// The states at the last bars of the selection's windows.
    fn stream(&mut self, selection: Selection<'_>) -> Result<StatefulInference> {
        self.model.config().check_carried_state()?;
        let series = series_of(selection.samples)?;
        let ends = distinct_ends(selection.samples, selection.indices)?;
        let mut streamed =
            StatefulInference::new(&self.device.scope("carried/streamed"), self.model, self.compute, ends)?;
        if self.states == States::Stretches {
            streamed = streamed.with_warm_up(WARM_UP_WINDOWS);
        }
        let (model, parameters) = (self.model, self.parameters);
        self.engine().stream(model, parameters, &series.timeframes, &mut streamed);
        Ok(streamed)
    }
}

impl Computed {
    /// Numbers of a batch.
    fn len(self, model: &Model, batch: &BatchView<'_>) -> usize {
        match self {
            Computed::Outputs => batch.outputs_len(model),
            Computed::PoolingWeights => batch.len() * model.pooling_weights_len(),
            Computed::FusionWeights => batch.len() * model.fusion_weights_len(),
        }
    }
}

/// Outputs are waited for when the next batch is submitted, so that the GPU computes while the host
/// reads them and sees to the batch after that.
fn on_gpu<S>(
    model: &Model,
    gpu: &mut InferenceHandle<'_>,
    feed: &mut BatchFeed<'_>,
    mut see: impl FnMut(&BatchView<'_>) -> Result<S>,
    mut each: impl FnMut(S, &[f32]) -> Result<Next>,
) -> Result<()> {
    let mut finish = |submitted: Option<(S, usize, AsyncDownload<f32>)>| match submitted {
        Some((seen, len, outputs)) => each(seen, &outputs.wait()?[..len]),
        None => Ok(Next::Continue),
    };
    let mut submitted = None;
    while let Some(batch) = feed.next()? {
        let outputs = gpu.predict(&batch)?;
        let next = (see(&batch)?, batch.outputs_len(model), outputs);
        if finish(submitted.replace(next))? == Next::Stop {
            return Ok(());
        }
    }
    finish(submitted).map(|_| ())
}
