//! Batch after batch through a model in use.

use std::ops::ControlFlow;

use megabatch_gpu_core::{AsyncDownload, Device};
use megabatch_nn::batch::BatchView;
use megabatch_nn::graph::EdgeForm;
use megabatch_nn::model::{Model, TensorSet};
use megabatch_nn_cpu::{Compute, Engine, StatefulInference};
use megabatch_nn_cuda::InferenceHandle;

use super::selection::{Selection, check_shape, graphs_of};
use crate::data::carried_rows::{SlicedSeries, piece_of_batches};
use crate::data::prefetch::{BatchFeed, GatherMode, Source, with_batches};
use crate::data::sample_ranges::Remaining;
use crate::data::sample_weights::LossInputs;
use crate::data::target_scales::TargetScales;
use crate::error::Result;

/// A model in use, and its means of computation.
pub(crate) struct Predictions<'a> {
    pub(crate) model: &'a Model,
    pub(crate) parameters: &'a TensorSet,
    pub(crate) backend: PredictionBackend<'a>,
    pub(crate) device: &'a Device,
    pub(crate) compute: Compute,
    /// Size of the chunks that samples load ahead, in percent of the plan.
    pub(crate) chunk_percent: u32,
    pub(crate) states: States,
    /// Samples whose states are held at once, if states begin with their segment.
    pub(crate) held_samples: usize,
    /// True if batches have the bars of their windows although a GPU has them, because others
    /// than the model read them.
    pub(crate) reads_bars: bool,
    /// The scales of the targets that the model was trained on; `None` for outputs in their unit.
    pub(crate) target_scales: Option<&'a TargetScales>,
}

/// The side that predicts.
pub(crate) enum PredictionBackend<'a> {
    Cpu(&'a mut Engine),
    /// A GPU, which has the weights and, if they stay there, the series of the samples.
    Cuda(InferenceHandle<'a>),
}

/// Initial states of a model's LSTMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum States {
    /// With each window.
    Windows,
    /// With each segment, in one pass.
    Segments,
    /// With a warm-up before each run of the samples, which are few among those of their segments.
    Stretches,
}

/// States that batches are predicted from, for some samples at a time.
struct CarriedPass<'a> {
    inference: StatefulInference,
    series: SlicedSeries<'a>,
    /// Samples whose states are not computed yet, in the order of batches.
    left: Remaining<'a>,
    /// Samples whose states are computed at once: whole batches.
    piece: usize,
    /// Samples whose states are computed and whose batch has not come yet.
    held: usize,
}

/// The CPU engine in use on a selection.
struct CpuPass<'a> {
    model: &'a Model,
    parameters: &'a TensorSet,
    engine: &'a mut Engine,
    computed: Computed,
    /// States that batches are predicted from, unless each window begins from zero.
    carried: Option<CarriedPass<'a>>,
}

/// Length of a warm-up in windows. The state of an LSTM forgets its past within a few windows.
const WARM_UP_WINDOWS: usize = 4;

/// Results for each sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Computed {
    Outputs,
    PoolingWeights,
    FusionWeights,
}

impl Predictions<'_> {
    /// Predicts batch after batch, in order, until `each` breaks. `see` extracts from a batch what
    /// `each` needs besides its outputs, which may come after the next batch was seen. While a
    /// batch is waited for, `is_wanted` is asked, see [`with_batches`].
    pub(crate) fn for_each<S, B>(
        &mut self,
        selection: Selection<'_>,
        is_wanted: &dyn Fn() -> bool,
        see: impl FnMut(&BatchView<'_>) -> Result<S>,
        each: impl FnMut(S, &[f32]) -> Result<ControlFlow<B>>,
    ) -> Result<ControlFlow<B>> {
        self.for_each_of(Computed::Outputs, selection, is_wanted, see, each)
    }

    /// Computes batch after batch, in order.
    pub(super) fn for_each_of<S, B>(
        &mut self,
        computed: Computed,
        selection: Selection<'_>,
        is_wanted: &dyn Fn() -> bool,
        see: impl FnMut(&BatchView<'_>) -> Result<S>,
        each: impl FnMut(S, &[f32]) -> Result<ControlFlow<B>>,
    ) -> Result<ControlFlow<B>> {
        check_shape(self.model, selection.samples)?;
        let graphs = graphs_of(self.model, selection)?;
        let (model, parameters, batch_size) = (self.model, self.parameters, self.compute.batch_size);
        let batches = self.device.scope("batches");
        let (edge_form, gather_mode, batches) = match &mut self.backend {
            PredictionBackend::Cpu(engine) => {
                engine.ensure_batch_capacity(model, graphs)?;
                (EdgeForm::Views, GatherMode::Bars, batches)
            }
            PredictionBackend::Cuda(gpu) => {
                let stay = !self.reads_bars && gpu.keeps_bars();
                let gather_mode = if stay { GatherMode::WindowOffsets } else { GatherMode::Bars };
                (gpu.edge_form(), gather_mode, batches.page_locked(gpu.device()))
            }
        };
        let (samples, chunk_percent) = (selection.samples, self.chunk_percent);
        let source = Source {
            samples,
            graphs,
            edge_form,
            scope: &batches,
            batch_size,
            chunk_percent,
            gather_mode,
            // Errors are those of the targets as they are.
            loss_inputs: LossInputs::default(),
        };
        let schedule = selection.indices.chunks(batch_size).map(|batch| batch.iter().collect());
        match &mut self.backend {
            PredictionBackend::Cuda(gpu) => {
                with_batches(source, schedule, is_wanted, |feed| on_gpu(model, gpu, feed, see, each))
            }
            PredictionBackend::Cpu(engine) => {
                engine.load(model, parameters);
                let (compute, held) = (self.compute, self.held_samples);
                let carried = CarriedPass::new(model, self.device, compute, self.states, held, selection)?;
                let pass = CpuPass { model, parameters, engine, computed, carried };
                with_batches(source, schedule, is_wanted, |feed| pass.run(feed, see, each))
            }
        }
    }
}

impl CpuPass<'_> {
    /// Computes each batch while the host waits.
    fn run<S, B>(
        self,
        feed: &mut BatchFeed<'_>,
        mut see: impl FnMut(&BatchView<'_>) -> Result<S>,
        mut each: impl FnMut(S, &[f32]) -> Result<ControlFlow<B>>,
    ) -> Result<ControlFlow<B>> {
        let CpuPass { model, parameters, engine, computed, mut carried } = self;
        let mut numbers = Vec::new();
        while let Some(batch) = feed.next()? {
            numbers.resize(computed.len(model, &batch), 0.0);
            match &mut carried {
                Some(carried) => {
                    carried.get_to(batch.len(), model, parameters, engine)?;
                    let inference = &mut carried.inference;
                    engine.install(model, parameters, |weights| match computed {
                        Computed::Outputs => inference.predict(weights, &batch, &mut numbers),
                        Computed::PoolingWeights => inference.pooling_weights(weights, &batch, &mut numbers),
                        Computed::FusionWeights => inference.fusion_weights(weights, &batch, &mut numbers),
                    });
                }
                None => match computed {
                    Computed::Outputs => engine.predict(model, parameters, &batch, &mut numbers),
                    Computed::PoolingWeights => engine.pooling_weights(model, parameters, &batch, &mut numbers),
                    Computed::FusionWeights => engine.fusion_weights(model, parameters, &batch, &mut numbers),
                },
            }
            let flow = each(see(&batch)?, &numbers)?;
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl<'a> CarriedPass<'a> {
    /// The states at the last bars of the selection's windows, before any is computed; `None` where
    /// states begin with each window.
    fn new(
        model: &Model,
        device: &Device,
        compute: Compute,
        states: States,
        held_samples: usize,
        selection: Selection<'a>,
    ) -> Result<Option<Self>> {
        let warms_up = match states {
            States::Windows => return Ok(None),
            States::Segments => false,
            States::Stretches => true,
        };
        model.config().check_carried_state()?;
        let series = SlicedSeries::new(selection.samples)?;
        let inference = StatefulInference::new(&device.scope("carried/streamed"), model, compute)?;
        let (inference, piece) = match warms_up {
            true => (inference.with_warm_up(WARM_UP_WINDOWS), usize::MAX),
            false => (inference, piece_of_batches(held_samples, compute.batch_size)),
        };
        Ok(Some(CarriedPass { inference, series, left: selection.indices.remaining(), piece, held: 0 }))
    }

    /// Computes states until those of the next batch of `samples` samples are held.
    fn get_to(&mut self, samples: usize, model: &Model, parameters: &TensorSet, engine: &mut Engine) -> Result<()> {
        if self.held == 0 {
            let piece = self.left.take(self.piece);
            self.inference.ask(model, self.series.distinct_ends(&piece)?)?;
            engine.stream(model, parameters, &self.series, &mut self.inference)?;
            self.held = piece.len();
        }
        self.held -= samples;
        Ok(())
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

/// Waits for outputs after the next batch is submitted, so that the GPU computes while the host
/// reads them and prepares the batch after that.
fn on_gpu<S, B>(
    model: &Model,
    gpu: &mut InferenceHandle<'_>,
    feed: &mut BatchFeed<'_>,
    mut see: impl FnMut(&BatchView<'_>) -> Result<S>,
    mut each: impl FnMut(S, &[f32]) -> Result<ControlFlow<B>>,
) -> Result<ControlFlow<B>> {
    let mut finish = |submitted: Option<(S, usize, AsyncDownload<f32>)>| match submitted {
        Some((seen, len, outputs)) => each(seen, &outputs.wait()?[..len]),
        None => Ok(ControlFlow::Continue(())),
    };
    let mut submitted = None;
    while let Some(batch) = feed.next()? {
        let outputs = gpu.predict(&batch)?;
        let next = (see(&batch)?, batch.outputs_len(model), outputs);
        let flow = finish(submitted.replace(next))?;
        if flow.is_break() {
            return Ok(flow);
        }
    }
    finish(submitted)
}

#[cfg(test)]
mod tests {
    use megabatch_amp::Precision;
    use megabatch_nn::model::{ModelConfig, Pooling, SampleShape, Timeframe};
    use megabatch_nn_cpu::{Purpose, StreamedLens, read_rows};

    use super::*;
    use crate::data::prefetching::always;
    use crate::data::sample_ranges::SampleRanges;
    use crate::data::samples::Samples;
    use crate::data::series_in_memory::SeriesInMemory;

    const SAMPLES: usize = 80;

    /// Three windows end at each bar of one timeframe and six at each of the other; a second
    /// segment begins in between.
    fn series() -> SeriesInMemory {
        let timeframe = |name: &str, steps| Timeframe { name: name.to_owned(), steps, features: 2 };
        let shape = SampleShape { timeframes: vec![timeframe("M1", 6), timeframe("H1", 4)], outputs: 1 };
        let (mut series, mut starts) = (Vec::new(), Vec::new());
        for (timeframe, sharing) in shape.timeframes.iter().zip([3, 6]) {
            let end = |n: usize| timeframe.steps - 1 + n / sharing + if n < 40 { 0 } else { timeframe.steps + 1 };
            let values = (0..(end(SAMPLES) + 1) * 2).map(|n| (n as f32 * 0.7).sin()).collect();
            starts.push(vec![0, (end(40) + 1 - timeframe.steps) as i64]);
            series.push((values, (0..SAMPLES).map(|n| end(n) as i64).collect()));
        }
        SeriesInMemory::new(shape, series, vec![0.5; SAMPLES]).unwrap().with_segments(starts).unwrap()
    }

    /// Outputs, and the peak of the memory of states.
    fn predicted(
        samples: &SeriesInMemory,
        config: ModelConfig,
        indices: &SampleRanges,
        held: usize,
    ) -> (Vec<u32>, usize) {
        let (device, compute) = (Device::cpu(), Compute { threads: 2, batch_size: 8 });
        let model = Model::new(samples.shape().clone(), config).unwrap();
        let parameters = model.initial_parameters(&device.scope("test"), 3).unwrap();
        let mut engine = Engine::new(&device, &model, compute, Purpose::Prediction, Precision::Fp32).unwrap();
        let mut predictions = Predictions {
            model: &model,
            parameters: &parameters,
            backend: PredictionBackend::Cpu(&mut engine),
            device: &device,
            compute,
            chunk_percent: 100,
            states: States::Segments,
            held_samples: held,
            reads_bars: false,
            target_scales: None,
        };
        let mut outputs = Vec::new();
        let each = |_: (), batch_outputs: &[f32]| {
            outputs.extend(batch_outputs.iter().map(|x| x.to_bits()));
            Ok(ControlFlow::<()>::Continue(()))
        };
        let flow = predictions.for_each(Selection { samples, indices }, &always, |_| Ok(()), each).unwrap();
        assert!(flow.is_continue());
        (outputs, device.scope("carried/streamed").usage().allocated_bytes_peak)
    }

    /// Outputs are those of states that are all held at once, and memory is that of the largest
    /// piece.
    #[test]
    fn states_are_held_of_some_samples_at_a_time() {
        let samples = series();
        let series = SlicedSeries::new(&samples).unwrap();
        for pooling in [Pooling::Last, Pooling::attention(6)] {
            let config = ModelConfig { hidden: 6, pooling, ..ModelConfig::default() };
            let model = Model::new(samples.shape().clone(), config).unwrap();
            let ascending = SampleRanges::from(0..SAMPLES);
            let descending: SampleRanges = (0..SAMPLES).rev().collect();
            for indices in [ascending, descending] {
                let (expected, all_at_once) = predicted(&samples, config, &indices, 1000);
                for (held, piece) in [(1, 8), (8, 8), (31, 24)] {
                    let (found, peak) = predicted(&samples, config, &indices, held);
                    assert_eq!(found, expected, "{pooling:?}, {held} held");
                    let numbers = indices.chunks(piece).map(|piece| {
                        let ends = series.distinct_ends(&piece).unwrap();
                        let read = ends.into_iter().zip(&samples.shape().timeframes);
                        let read = read.map(|(ends, tf)| (read_rows(pooling, ends, tf.steps).len(), tf.steps));
                        StreamedLens::new(&model, Compute { threads: 2, batch_size: 8 }, read).total()
                    });
                    assert_eq!(peak, numbers.max().unwrap() * size_of::<f32>());
                    assert!(peak < all_at_once);
                }
            }
        }
    }
}
