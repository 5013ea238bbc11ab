//! The memory of a training run on the CPU or a GPU, computed from its shapes before anything is
//! allocated.

mod blocks;
mod covered;
pub(crate) mod largest;
mod runs;
mod tensors;
#[cfg(test)]
mod tests;

use megabatch_nn::batch::CarriedBars;
use megabatch_nn::loss::Loss;
use megabatch_nn::memory::{LargestBatch, PlannedTensor, plan_len};
use megabatch_nn::model::{Model, Pooling, SampleShape, Timeframe};
use megabatch_nn_cpu::{Capacity, Engine, StreamedLens, read_rows};
use serde::Serialize;

use largest::{RankShare, largest_batches};

use crate::config::Config;
use crate::config::countable::check_countable;
use crate::data::carried_rows::{HELD_SAMPLES, SlicedSeries, piece_of_batches};
use crate::data::sample_ranges::SampleRanges;
use crate::data::samples::Samples;
use crate::data::schedule::Schedule;
use crate::error::Result;

/// Bytes that a run allocates from its device, by purpose. Their sum is the peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// The weights, a working copy for products in 16 bits, and the LSTMs' weights in the kernels'
    /// order.
    pub parameters_bytes: usize,
    /// Gradients: their sum, a set for each shard in work, and the sets that a rank of several
    /// holds ([`Footprint::with_held_blocks`]).
    pub gradients_bytes: usize,
    /// The optimizer's moments.
    pub optimizer_bytes: usize,
    /// Bytes that the forward pass saves for the backward pass, for each shard in work.
    pub activations_bytes: usize,
    /// Batches: the one in work and the one being read, and two more while a validation interrupts
    /// training. Without a validation, several tasks with accumulation have a sample more, at most.
    /// Windows that pass through a GPU in chunks are in work and read chunk by chunk.
    /// The memory of samples that load themselves ahead
    /// ([`PrefetchingSource`](crate::PrefetchingSource)) is the source's.
    pub batches_bytes: usize,
    /// Carried states, for a run that carries them ([`Footprint::with_carried_states`]).
    pub carried_bytes: usize,
}

/// Reduction blocks of a whole step of `config` on `train_samples` training samples, or graphs: the
/// largest number of ranks without idle ones.
///
/// # Errors
/// [`Error::NothingLeft`](crate::Error::NothingLeft) for too few samples.
pub fn reduction_blocks(config: &Config, train_samples: usize) -> Result<usize> {
    let schedule = Schedule::new(config, train_samples)?;
    Ok(schedule.blocks_of(&schedule.step(0)).len())
}

/// Sizes of the batches that a run holds at once, in samples or graphs.
struct HeldBatches {
    /// Size of each of the two of a step, or of the two chunks of windows that pass through a GPU.
    step: usize,
    /// Size of each of the two of a validation, which interrupts training.
    validation: usize,
    /// Samples that are counted ahead.
    counted: usize,
}

impl HeldBatches {
    /// The batches of a run with `config` that validates on `validated` samples or graphs.
    fn new(config: &Config, validated: usize) -> Self {
        // Tasks of a step of several batches are counted ahead, sample by sample, where targets are
        // not in memory. The batches of a validation take no less than the sample that is counted,
        // and are not there at the same time.
        let counts_ahead = matches!(config.loss, Loss::Tasks(_)) && config.gradient_accumulation_steps > 1;
        HeldBatches {
            step: config.chunk_windows.unwrap_or(0).max(config.batch_capacity()),
            validation: if validated > 0 { config.batch_size } else { 0 },
            counted: usize::from(counts_ahead && validated == 0),
        }
    }
}

/// Number of states that a run carries. Its footprint depends on them besides shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedStates {
    /// Bars before the first bars of the training windows, by timeframe.
    training: Vec<usize>,
    /// States of each piece of a validation.
    validation: Vec<HeldStates>,
}

/// Number of states that a validation holds at once, by timeframe.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HeldStates {
    /// Last bars of the windows.
    ends: Vec<usize>,
    /// Bars that the windows cover.
    covered: Vec<usize>,
}

impl CarriedStates {
    /// Number of states of a run that trains on `train` and validates on `validation`, for a
    /// configuration that carries states or evaluates from them ([`Config::streams`]).
    ///
    /// # Errors
    /// [`Error::NeedsSeries`](crate::Error::NeedsSeries) for samples that are stored as windows,
    /// [`Error::Gather`](crate::Error::Gather), and whatever is wrong with series.
    pub fn new(
        config: &Config,
        samples: &dyn Samples,
        train: &SampleRanges,
        validation: &SampleRanges,
    ) -> Result<Self> {
        config.check_dense_samples(samples)?;
        let series = SlicedSeries::new(samples)?;
        let count = |rows: Vec<Vec<usize>>| rows.iter().map(Vec::len).collect();
        let training = series.carried_rows(if config.carry_state { train } else { SampleRanges::NONE })?;
        let evaluated = config.evaluated(validation);
        // The stretches of some are computed at once, see `Predictions`.
        let piece = match evaluated.len() < validation.len() {
            true => evaluated.len(),
            false => piece_of_batches(HELD_SAMPLES, config.batch_size),
        };
        let held = |piece: SampleRanges| {
            let ends = series.distinct_ends(&piece)?;
            let any = Pooling::Attention { heads: 1 };
            let covered = ends.iter().zip(&samples.shape().timeframes);
            let covered = covered.map(|(ends, timeframe)| read_rows(any, ends.clone(), timeframe.steps).len());
            Ok(HeldStates { covered: covered.collect(), ends: count(ends) })
        };
        let validation = evaluated.chunks(piece.max(1)).map(held).collect::<Result<_>>()?;
        Ok(CarriedStates { training: count(training), validation })
    }

    /// Numbers in each buffer of the states that windows of training start from, in the order in
    /// which they are taken: those that a step computes by timeframe, then all that are carried.
    fn training_lens(&self, config: &Config, shape: &SampleShape) -> Vec<usize> {
        let state_len = config.model.state_len();
        let places = |(&rows, timeframe): (&usize, &Timeframe)| {
            CarriedBars::places(rows, timeframe.steps, config.step_samples())
        };
        let pending = self.training.iter().zip(&shape.timeframes).map(places);
        pending.chain([self.training.iter().sum::<usize>()]).map(|bars| state_len * bars).collect()
    }

    /// Numbers in each buffer of the states that predictions of a validation are made from: of the
    /// piece that has most.
    ///
    /// # Panics
    /// If the configuration has no model, and thus no footprint.
    fn streamed(&self, config: &Config, shape: &SampleShape) -> StreamedLens {
        let model =
            Model::new(shape.clone(), config.model.for_loss(config.loss)).expect("a footprint is that of a model");
        let held = self.validation.iter().map(|HeldStates { ends, covered }| {
            let read = match config.model.pooling {
                Pooling::Last => ends,
                Pooling::Attention { .. } => covered,
            };
            let read = read.iter().zip(&shape.timeframes).map(|(&rows, timeframe)| (rows, timeframe.steps));
            StreamedLens::new(&model, config.compute(), read)
        });
        held.max_by_key(StreamedLens::total).unwrap_or_default()
    }
}

impl Footprint {
    /// The footprint of training on samples of `shape`, without carried states.
    /// `validation_samples` are validated.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn new(config: &Config, shape: &SampleShape, validation_samples: usize) -> Result<Self> {
        let capacity = config.compute().capacity(config.purpose());
        Footprint::with_room(config, shape, capacity, 1, validation_samples)
    }

    /// The footprint of training a model over graphs. `nodes` and `edges` are those of the largest
    /// graphs ([`Graphs::largest`](megabatch_nn::graph::Graphs::largest)); `validation_graphs` are
    /// validated.
    ///
    /// # Errors
    /// As [`Model::new`].
    pub fn for_graphs(
        config: &Config,
        shape: &SampleShape,
        nodes: usize,
        edges: usize,
        validation_graphs: usize,
    ) -> Result<Self> {
        let capacity = config.compute().graph_capacity(nodes, edges);
        Footprint::with_room(config, shape, capacity, nodes, validation_graphs)
    }

    /// The footprint with shards of `capacity` and `samples` samples for each unit of the
    /// batch size.
    fn with_room(
        config: &Config,
        shape: &SampleShape,
        capacity: Capacity,
        samples: usize,
        validated: usize,
    ) -> Result<Self> {
        config.loss.check_groups(shape.outputs)?;
        check_countable(config, shape, samples)?;
        let model = Model::new(shape.clone(), config.model.for_loss(config.loss))?;
        let weights = model.layout().len();
        let shards = config.compute().shards_at_once(&model, config.purpose());
        let packed = plan_len(&Engine::weights_plan(&model, config.purpose(), config.precision));
        let workspace = plan_len(&Engine::workspace_plan(&model, capacity, config.purpose(), config.precision));
        let working = Engine::working_weights_len(&model, config.precision);
        let moments = if config.optimizer.kind.has_moments() { 2 } else { 0 };
        let HeldBatches { step, validation, counted } = HeldBatches::new(config, validated);
        let rows = 2 * (step + validation);
        let sample = (0..shape.timeframes.len()).map(|k| shape.window_len(k)).sum::<usize>() + shape.outputs;
        let bytes = |numbers: usize| numbers * size_of::<f32>();
        Ok(Footprint {
            parameters_bytes: bytes(weights + working + packed),
            gradients_bytes: bytes((1 + shards) * weights),
            optimizer_bytes: bytes(moments * weights),
            activations_bytes: bytes(shards * workspace),
            batches_bytes: bytes((rows * samples + counted) * sample),
            carried_bytes: 0,
        })
    }

    /// This footprint with `states`: the states that windows start from, those that a step
    /// computes, and during a validation those that predictions are made from.
    ///
    /// # Panics
    /// If the configuration has no model, and thus no footprint.
    pub fn with_carried_states(self, config: &Config, shape: &SampleShape, states: &CarriedStates) -> Self {
        let training: usize = states.training_lens(config, shape).iter().sum();
        let numbers = training + states.streamed(config, shape).total();
        Footprint { carried_bytes: numbers * size_of::<f32>(), ..self }
    }

    /// This footprint for a rank of several that holds the gradients of `blocks` reduction blocks
    /// of a model of `parameters` until the sum over the previous blocks arrives.
    #[must_use]
    pub fn with_held_blocks(self, parameters: usize, blocks: usize) -> Self {
        let held = parameters * blocks * size_of::<f32>();
        Footprint { gradients_bytes: self.gradients_bytes + held, ..self }
    }

    /// Bytes of the batches of a validation of `validated` samples or graphs, for the configuration
    /// of this footprint. They are a part of [`Footprint::batches_bytes`].
    pub fn validation_bytes(&self, config: &Config, validated: usize) -> usize {
        let HeldBatches { step, validation, .. } = HeldBatches::new(config, validated);
        // Where something is validated, no sample is counted ahead.
        self.batches_bytes / (step + validation).max(1) * validation
    }

    /// Sum of all parts.
    pub fn total_bytes(&self) -> usize {
        self.parameters_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.batches_bytes
            + self.carried_bytes
    }
}

/// GPU memory of a run at its peak, tensor by tensor. It is taken from the first batch of the
/// largest size to the run's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuFootprint {
    /// The tensors, none of them empty.
    pub tensors: Vec<PlannedTensor>,
}

impl GpuFootprint {
    /// Parts of the tensors, in the order of a plan.
    pub const PARTS: [&str; 8] =
        ["bars", "graphs", "parameters", "gradients", "optimizer", "activations", "batches", "carried"];

    /// Footprint of training with `config` on the samples `train` of `samples`, validated on
    /// `validation`. Windows that every batch has in common are counted once. It is an upper bound:
    /// a batch may have more windows in common.
    ///
    /// With several `ranks` the footprint is that of the rank that takes most memory, as long as no
    /// rank is lost. A rank trains on its share of each batch, and validates its part in whole
    /// batches.
    ///
    /// # Errors
    /// As [`Config::check_on_gpu`], [`Loss::check_readout`] and [`Model::new`]; whatever is wrong
    /// with series, of which [`Error::Gather`](crate::Error::Gather) tells of those in a file; for
    /// too few samples of several ranks [`Error::NothingLeft`](crate::Error::NothingLeft);
    /// [`Error::NeedsSeries`](crate::Error::NeedsSeries) for carried state of samples that are
    /// stored as windows.
    pub fn new(
        config: &Config,
        samples: &dyn Samples,
        train: &SampleRanges,
        validation: &SampleRanges,
        ranks: usize,
    ) -> Result<Self> {
        config.check_on_gpu()?;
        config.loss.check_groups(samples.shape().outputs)?;
        config.loss.check_readout(config.model.readout)?;
        let config = Config { model: config.model.for_loss(config.loss), ..config.clone() };
        check_countable(&config, samples.shape(), samples.graphs().map_or(1, |graphs| graphs.largest().0))?;
        let model = Model::new(samples.shape().clone(), config.model)?;
        let validation = config.evaluated_on_gpu(validation);
        let carried = carried_bars(&config, samples, train)?;
        let shares = RankShare::distinct(&config, train, &validation, ranks)?;
        let batches = largest_batches(&config, samples, train, &validation, shares)?;
        let footprints = batches.into_iter().map(|batch| {
            let batch = LargestBatch { carried: carried.clone(), ..batch };
            GpuFootprint { tensors: megabatch_nn_cuda::tensors(&model, &config.on_device(), &batch) }
        });
        Ok(footprints.max_by_key(GpuFootprint::total_bytes).expect("there is a rank"))
    }

    /// Sum of all parts.
    pub fn total_bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// Bytes of the tensors of one of [`GpuFootprint::PARTS`].
    pub fn part_bytes(&self, part: &str) -> usize {
        self.tensors.iter().filter(|tensor| tensor.part == part).map(|tensor| tensor.bytes).sum()
    }
}

/// Bars of each timeframe whose states a run on the samples `train` carries, and how many of them a
/// step computes at most; empty where no states are carried.
fn carried_bars(config: &Config, samples: &dyn Samples, train: &SampleRanges) -> Result<Vec<[usize; 2]>> {
    if !config.carry_state {
        return Ok(Vec::new());
    }
    let rows = SlicedSeries::new(samples)?.carried_rows(train)?;
    let timeframes = rows.iter().zip(&samples.shape().timeframes);
    let counts = timeframes
        .map(|(rows, timeframe)| [rows.len(), CarriedBars::places(rows.len(), timeframe.steps, config.step_samples())]);
    Ok(counts.collect())
}
