//! A training run before it starts: settings, data, split and their memory.

pub(crate) mod cache;
pub(crate) mod computing;
mod gpu_memory;
pub(crate) mod settings;
pub(crate) mod splits;

use std::path::{Path, PathBuf};

use megabatch_chunk_io::{
    CacheBounds, ChunkPlan, MemoryShortage, NonFinite, PlanRequest, ReadBy, Residence, SeriesSource, Source,
    StoredDataset,
};
use megabatch_gpu_core::Device;
use megabatch_gpu_core::snapshot::Block;
use megabatch_nn::model::{Encoder, Model, SampleShape};
use megabatch_nn_cpu::Compute;
use megabatch_order::Rank;
use megabatch_trainer as trainer;
use megabatch_trainer::{
    CarriedStates, Checkpoints, DrawnSamples, Footprint, GpuFootprint, Predictor, Run, SampleRanges, Samples,
    Selection, Split, Trainer, cross_sectional_deviation, reduction_blocks,
};

use crate::adapters::data::Data;
use crate::adapters::neighbours::Neighbours;
use crate::adapters::samples::DataFile;
use crate::config::choices::{Residency, SampleLimit};
use crate::config::{self, Config, IneffectiveSetting, RunTraits};
use crate::error::{Error, Kind, Result};
use crate::host::Host;
use crate::text::bytes;
use computing::{Computing, DeviceRequest, RequestedGpu};
pub(crate) use gpu_memory::ChunkLimit;
use gpu_memory::{GPU_NEEDS_SERIES, hold_for_gpu};
use settings::{check_classes, check_precision, data_choose_order, targets_choose_temperature, training_config};

/// `training.test_samples: auto`: the standard error of a mean over so many independent samples is
/// 0.7 % of their deviation.
const TEST_SAMPLES_AUTO: usize = 20_000;
/// Passes that a step makes over each of its samples, where an evaluation makes one: forward, and
/// backward to the inputs and to the weights.
const TRAINING_PASSES: u64 = 3;
/// All samples are taken for the errors up to this part of the work of training.
const TEST_SHARE: u64 = 10;

/// Memory that is assumed where the system does not tell how much is free.
const MEMORY_BYTES_ASSUMED: usize = 4 << 30;

/// Settings, data, split and device of a run.
pub(crate) struct TrainingSetup {
    /// The CPU, whose memory data, weights and batches are in.
    pub(crate) device: Device,
    /// GPU that computes steps instead.
    pub(crate) gpu: Option<Device>,
    /// The GPU that the run is to compute on. For a plan it need not be here.
    pub(crate) gpu_asked: Option<RequestedGpu>,
    /// Why a GPU that is there is not used, where the choice was left open.
    pub(crate) gpu_passed_over: Option<String>,
    /// Bytes that the job may take.
    pub(crate) memory_bytes: usize,
    pub(crate) data: Data,
    /// The files of the data.
    pub(crate) files: Vec<DataFile>,
    pub(crate) split: Split,
    pub(crate) config: Config,
    pub(crate) training: trainer::Config,
    /// `training.rank_temperature`, where the targets decided.
    pub(crate) temperature: Option<f64>,
    /// Relation of neighbours, where it decides the order.
    pub(crate) neighbours: Option<Neighbours>,
    /// Passage of the data through memory.
    pub(crate) chunks: Result<ChunkPlan, MemoryShortage>,
    /// Bytes held before any windows: a whole series, or the times of windows.
    held_beside_bytes: usize,
    /// Rows of the file that are decoded together, 1 where none are.
    stored_rows: usize,
    /// True if windows come to the GPU batch by batch because a chunk of the size that the user set
    /// does not hold two batches.
    pub(crate) has_small_chunks: bool,
    /// Limit of the chunks in which windows pass through the GPU, beside the user's size; `None`
    /// where they are those that come from the file.
    pub(crate) chunk_limit: Option<ChunkLimit>,
    /// Sizes of the series, where it may stay in its file.
    streamable: Option<StreamableSeries>,
    /// Carried states; `None` where windows begin with zeros.
    pub(crate) carried: Option<CarriedStates>,
    cache_folder: Option<PathBuf>,
    /// Processes that train together.
    pub(crate) ranks: usize,
}

/// Purpose of opening a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Run: data that stay in memory are read.
    Run,
    /// Plan: windows are not read.
    Plan,
}

/// The configuration of a run, and the arguments that override it.
pub(crate) struct Request<'a> {
    pub(crate) config: Config,
    pub(crate) data: Option<&'a Path>,
    pub(crate) device: &'a str,
    pub(crate) max_steps: Option<u64>,
    /// Memory of another machine, to plan for it.
    pub(crate) memory_bytes: Option<usize>,
    /// Processes that share the memory of the machine.
    pub(crate) processes: usize,
    /// Processes among them that share the memory of the GPU, if it is one.
    pub(crate) gpu_processes: usize,
    /// Processes that train together; 0 and 1 both mean one.
    pub(crate) ranks: usize,
    pub(crate) intent: Intent,
    /// Its cache folder keeps the choice of GPU kernels, and which series were verified.
    pub(crate) host: &'a Host<'a>,
}

impl<'a> Request<'a> {
    /// A job of one process on this machine's CPU, with data and steps as `config` says.
    pub(crate) fn new(config: Config, intent: Intent, host: &'a Host<'a>) -> Self {
        Request {
            config,
            data: None,
            device: "cpu",
            max_steps: None,
            memory_bytes: None,
            processes: 1,
            gpu_processes: 1,
            ranks: 1,
            intent,
            host,
        }
    }
}

impl TrainingSetup {
    /// Device that computes steps.
    pub(crate) fn computes_on(&self) -> &Device {
        self.gpu.as_ref().unwrap_or(&self.device)
    }

    /// The trainer of a run, with first weights.
    ///
    /// # Errors
    /// As `Trainer::new` and `Trainer::on_gpu`.
    pub(crate) fn trainer(&self, shape: SampleShape) -> trainer::Result<Trainer> {
        let Some(gpu) = &self.gpu else { return Trainer::new(&self.device, self.training.clone(), shape) };
        let mut trainer = Trainer::on_gpu(gpu, &self.device, self.training.clone(), shape)?;
        trainer.time_gpu()?;
        if let Some(folder) = &self.cache_folder {
            trainer.keep_tuning_in(&folder.join("kernels"));
        }
        Ok(trainer)
    }

    /// The job as the trainer takes it.
    pub(crate) fn run<'a>(&'a self, checkpoints: &'a Checkpoints) -> Run<'a> {
        let Split { train, validation, .. } = &self.split;
        Run { samples: self.data.samples(), train, validation, checkpoints: Some(checkpoints) }
    }

    /// The model with the weights of the file `weights`, in use on samples that
    /// [`trainer::Config::evaluated`] chooses from `part`. It takes no more memory than training,
    /// once the trainer is dropped.
    pub(crate) fn predictor(&self, weights: &Path, part: &SampleRanges) -> Result<Predictor> {
        let TrainingSetup { device, training, data, .. } = self;
        let model = Model::new(data.samples().shape().clone(), training.model)?;
        let compute = Compute { threads: training.threads, batch_size: training.batch_size };
        let predictor = Predictor::open(device, model, weights, compute)?.with_precision(training.precision)?;
        let predictor = if training.streams() { predictor.with_carried_state() } else { predictor };
        Ok(if training.evaluated(part).len() < part.len() { predictor.with_warm_up() } else { predictor })
    }

    /// Optimizer steps of the whole run.
    pub(crate) fn planned_steps(&self) -> u64 {
        let steps_per_epoch = self.split.train.len().div_ceil(self.training.step_samples()) as u64;
        self.training.max_steps.unwrap_or(self.training.epochs.saturating_mul(steps_per_epoch))
    }

    /// The samples of `part`, or graphs, that the errors after `steps` training steps are computed
    /// from. All are taken where the default choice has no known target.
    pub(crate) fn draw_for_errors<'a>(&self, part: &'a SampleRanges, steps: u64) -> Result<DrawnSamples<'a>> {
        let samples_max = match self.config.get(&config::training::TEST_SAMPLES) {
            SampleLimit::None => None,
            SampleLimit::Samples(samples) => Some(samples),
            SampleLimit::Auto => {
                let trained = steps.saturating_mul(self.training.step_samples() as u64);
                let work = trained.saturating_mul(TRAINING_PASSES) / TEST_SHARE;
                let is_little = part.len() as u64 <= work;
                (!is_little).then_some(TEST_SAMPLES_AUTO)
            }
        };
        let drawn = self.training.draw(part, samples_max);
        let may_take_all = self.config.get(&config::training::TEST_SAMPLES) == SampleLimit::Auto && drawn.is_estimate();
        match may_take_all && !self.data.any_target_known(&drawn.samples)? {
            true => Ok(self.training.draw(part, None)),
            false => Ok(drawn),
        }
    }

    /// Traits that decide which settings act.
    pub(crate) fn traits(&self) -> RunTraits {
        let model = &self.training.model;
        RunTraits {
            is_graph_file: matches!(self.data, Data::Graphs(_)),
            is_windows: self.data.is_windows(),
            validates: !self.split.validation.is_empty(),
            has_graphs: self.data.samples().graphs().is_some(),
            has_graph_attention: model.graph.is_some(),
            has_lstms: model.encoder == Encoder::Recurrent,
            is_fp16: self.training.precision.needs_loss_scale(),
            is_on_gpu: self.gpu.is_some() || self.gpu_asked.is_some(),
        }
    }

    /// Refuses settings of another kind of data: who sets them expects another split.
    ///
    /// # Errors
    /// A usage failure that names the first.
    pub(crate) fn require_settings_of_its_data(&self) -> Result<()> {
        let ineffective = self.config.ineffective(&self.traits());
        let Some(IneffectiveSetting { path, text, unmet }) =
            ineffective.into_iter().find(|setting| setting.unmet.concerns_data_kind())
        else {
            return Ok(());
        };
        let instead = match path {
            "data.folds" | "data.fold_number" => "; data.walk_forward tests bars fold after fold",
            _ => "",
        };
        Err(Error::usage(format!(
            "{path}={text} has no effect{}: {} would be split as if it were not set. Leave it out{instead}",
            unmet.reason(),
            self.data.path().display()
        )))
    }

    /// Bytes held in memory for the data now.
    pub(crate) fn held_bytes(&self) -> usize {
        let scopes = self.device.usage_by_scope();
        let booked = scopes.iter().filter(|(label, _)| is_of_data(label)).map(|(_, usage)| usage.allocated_bytes);
        booked.sum::<usize>() + self.data.beside_bytes()
    }

    /// Bytes of each block of the device that is held for the data now, in order of address.
    pub(crate) fn data_blocks(&self) -> Vec<usize> {
        let snapshot = self.device.snapshot(0);
        let is_held = |block: &&Block| block.owner.as_deref().is_some_and(is_of_data);
        snapshot.blocks().filter(is_held).map(|block| block.requested_bytes).collect()
    }

    /// Bytes of the data in memory during a run: samples, times and a file of graphs.
    pub(crate) fn data_bytes(&self, chunks: &ChunkPlan) -> usize {
        let planned = usize::try_from(chunks.data_bytes).unwrap_or(usize::MAX / 2);
        match chunks.residence {
            _ if self.data.source().is_none_or(Source::is_resident) => self.held_bytes(),
            Residence::Resident if !self.data.is_windows() => planned,
            Residence::Streamed => self.held_beside_bytes + planned,
            _ => self.held_bytes() + planned,
        }
    }

    /// `training` as it counts beside the data. Chunks of a GPU take the place of those that are
    /// loaded, which are counted as data.
    pub(crate) fn beside_data(&self, training: &trainer::Config) -> trainer::Config {
        let loads_chunks = self.chunks.as_ref().is_ok_and(|chunks| chunks.residence == Residence::Chunked);
        trainer::Config { chunk_windows: training.chunk_windows.filter(|_| !loads_chunks), ..training.clone() }
    }

    /// Bytes that `training` takes beside the data.
    pub(crate) fn footprint(&self, training: &trainer::Config) -> Result<Footprint> {
        let counted = self.beside_data(training);
        let footprint = footprint(self.data.samples(), &self.split, &counted, self.carried.as_ref())?;
        if self.ranks < 2 {
            return Ok(footprint);
        }
        let shape = self.data.samples().shape().clone();
        let parameters = Model::new(shape, training.model.for_loss(training.loss))?.layout().len();
        Ok(footprint.with_held_blocks(parameters, self.held_blocks(training)?))
    }

    /// Most blocks of a step whose gradients one of several ranks holds until the sum of the ranks
    /// before it arrives.
    pub(crate) fn held_blocks(&self, training: &trainer::Config) -> Result<usize> {
        if self.gpu_asked.is_some() {
            // The gradients of a GPU are one block.
            return Ok(1);
        }
        // Rank 0 holds none, and the first of the others most.
        let blocks = reduction_blocks(training, self.split.train.len())?;
        Ok(Rank::new(1, self.ranks)?.slice(0..blocks).len())
    }

    /// Bytes that `training` takes on a GPU; of several processes, that of the one that takes most.
    pub(crate) fn gpu_footprint(&self, training: &trainer::Config) -> trainer::Result<GpuFootprint> {
        let Split { train, validation, .. } = &self.split;
        GpuFootprint::new(training, self.data.samples(), train, validation, self.ranks)
    }

    /// Passage of the data through memory in batches of `batch_size`, beside a model that takes
    /// `model_bytes`.
    pub(crate) fn chunks_beside(&self, model_bytes: usize, batch_size: usize) -> Result<ChunkPlan, MemoryShortage> {
        let TrainingSetup { held_beside_bytes: held_bytes, stored_rows, .. } = *self;
        let streamable = self.streamable.clone();
        let other = OtherMemory { model_bytes, held_bytes, batch_size, stored_rows, streamable };
        chunks(&self.data, &self.config, self.memory_bytes, other)
    }

    /// The size of a chunk, where the user set it.
    pub(crate) fn chunk_bytes_set(&self) -> Option<u64> {
        chunk_bytes_set(&self.config)
    }

    /// Opens the data and splits it.
    pub(crate) fn open(request: Request<'_>) -> Result<Self> {
        let Request { mut config, device: device_name, max_steps, .. } = request;
        check_precision(&config)?;
        check_classes(&config)?;
        if let Some(steps) = max_steps {
            config.set_count(&config::training::MAX_STEPS, steps);
        }
        let named = match request.intent {
            Intent::Run => DeviceRequest::select(device_name, request.host)?,
            Intent::Plan => DeviceRequest::select_for_plan(device_name, request.host)?,
        };
        named.leave_to_driver(&config);
        let mut gpu_asked = named.asked(&config);
        let mut memory_bytes = request.memory_bytes;
        if let Some(gpu) = &mut gpu_asked
            && let Some(bytes) = memory_bytes.take()
        {
            gpu.set_memory(bytes, &config);
        }
        gpu_asked.iter_mut().for_each(|gpu| gpu.share_among(request.gpu_processes));
        let device = Device::cpu();
        let memory_bytes = memory_bytes.unwrap_or_else(|| free_memory_bytes(&device) / request.processes);
        device.set_budget_bytes(Some(memory_bytes));
        let path = data_path(&config, request.data)?;
        let not_even_data = |error| not_even_data(error, memory_bytes);
        let mut data = Data::open(&path, &config, &device, NonFinite::Fail, request.host).map_err(not_even_data)?;
        let split = data.split(&config)?;
        if config.get(&config::training::LOSS).is_none() && config.get(&config::training::TASKS).is_none() {
            config.set_word(&config::training::LOSS, data.default_loss());
        }
        let temperature = match targets_choose_temperature(&config) && data.samples().graphs().is_some() {
            true => {
                settle_temperature(&mut config, &device, Selection { samples: data.samples(), indices: &split.train })?
            }
            false => None,
        };
        let neighbours = data_choose_order(&config).then(|| Neighbours::find(&data)).transpose()?;
        let mut training = training_config(&config, &data, neighbours)?;
        // More make no other step, and much memory.
        training.batch_size = training.batch_size.min(split.train.len().max(1));
        let unfit = |error| Error::from(error).context(path.display().to_string());
        training.check_samples(data.samples()).map_err(unfit)?;
        training.check()?;
        training.check_validation(&split.validation)?;
        let mut computing = named.computing(training.check_on_gpu())?;
        let is_auto = gpu_asked.is_none();
        if is_auto && request.memory_bytes.is_some() {
            // The memory of the CPU or of another machine.
            computing.gpu = None;
        }
        if let (true, Some(gpu)) = (is_auto, &computing.gpu) {
            match hold_for_gpu(&config, &training, &mut data) {
                Ok(()) => gpu_asked = Some(RequestedGpu::from_device(gpu, &config)),
                Err(reason) => computing.skip_gpu(&reason),
            }
        }
        let Computing { gpu, skip_reason: gpu_passed_over } = computing;
        let is_on_gpu = gpu.is_some() || gpu_asked.is_some();
        let streamable = match is_on_gpu && training.streams() {
            true => {
                if let (Some(Residency::Streamed), Some(series)) = (config.get(&config::data::RESIDENCY), data.series())
                {
                    return Err(Error::usage(format!(
                        "data.residency=streamed: {GPU_NEEDS_SERIES}, {}; leave it at auto",
                        bytes(usize::try_from(series.resident_bytes()).unwrap_or(usize::MAX))
                    )));
                }
                if data.streamable().is_some() {
                    data.hold().map_err(|error| not_even_data(error.into()))?;
                }
                None
            }
            false => data.streamable().map(StreamableSeries::new).transpose()?,
        };
        let carried = || CarriedStates::new(&training, data.samples(), &split.train, &split.validation);
        let carried = training.streams().then(carried).transpose()?;
        let model_bytes = footprint(data.samples(), &split, &training, carried.as_ref())?.total_bytes();
        let cached_bytes = device.scope("data/cache").usage().allocated_bytes;
        let held_beside_bytes = device.usage().allocated_bytes - cached_bytes + data.beside_bytes();
        let stored_rows = stored_rows(&data)?;
        let batch_size = training.batch_size;
        let other = OtherMemory {
            model_bytes,
            held_bytes: held_beside_bytes,
            batch_size,
            stored_rows,
            streamable: streamable.clone(),
        };
        let chunks = chunks(&data, &config, memory_bytes, other);
        if let Ok(chunks) = &chunks {
            let is_run = request.intent == Intent::Run;
            let ready = match chunks.residence {
                // The plan of a GPU reads where windows of a series end.
                Residence::Resident if is_run || (is_on_gpu && !data.is_windows()) => data.hold_parts(&split),
                Residence::Streamed if is_run => {
                    data.set_cache(usize::try_from(chunks.data_bytes).unwrap_or(usize::MAX))
                }
                _ => Ok(()),
            };
            ready.map_err(|error| not_even_data(error.into()))?;
        }
        // Graphs that leave too little memory for the model are refused by the plan.
        if request.intent == Intent::Run && model_bytes + held_beside_bytes <= memory_bytes {
            data.hold_graphs()?;
        }
        let files = data.files(request.host)?;
        let mut setup = TrainingSetup {
            device,
            gpu,
            gpu_asked,
            gpu_passed_over,
            memory_bytes,
            data,
            files,
            split,
            config,
            training,
            temperature,
            neighbours,
            chunks,
            held_beside_bytes,
            stored_rows,
            has_small_chunks: false,
            chunk_limit: None,
            streamable,
            carried,
            cache_folder: request.host.cache_folder.clone(),
            ranks: request.ranks,
        };
        setup.fit_to_gpu(is_auto)?;
        setup.keep_on_gpu()?;
        Ok(setup)
    }
}

/// True for the label of a scope of the data.
fn is_of_data(label: &str) -> bool {
    label.strip_prefix("data").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Sets `training.rank_temperature` in `config` to the deviation of targets within the graphs of
/// `train`, to three digits.
fn settle_temperature(config: &mut Config, device: &Device, train: Selection<'_>) -> Result<Option<f64>> {
    let Some(deviation) = cross_sectional_deviation(device, train)? else { return Ok(None) };
    let rounded: f64 = format!("{deviation:.2e}").parse().expect("a number as it is written");
    config.set_number(&config::training::RANK_TEMPERATURE, rounded);
    Ok(Some(rounded))
}

/// Memory of everything but the data, and the facts of the data that chunks depend on.
struct OtherMemory {
    model_bytes: usize,
    held_bytes: usize,
    batch_size: usize,
    stored_rows: usize,
    streamable: Option<StreamableSeries>,
}

/// Sizes of a series that may stay in its file.
#[derive(Clone, Debug)]
struct StreamableSeries {
    /// Bytes that it adds if it is held in memory.
    resident_bytes: u64,
    cache: CacheBounds,
}

impl StreamableSeries {
    fn new(series: &SeriesSource) -> megabatch_chunk_io::Result<Self> {
        Ok(StreamableSeries { resident_bytes: series.resident_bytes(), cache: series.cache_bounds()? })
    }
}

/// Rows of windows that are decoded together. A chunk of a multiple of them decodes none twice.
fn stored_rows(data: &Data) -> Result<usize> {
    match data.source() {
        Some(source) if data.is_windows() => Ok(source.storage()?.iter().filter_map(decoded_rows).max().unwrap_or(1)),
        _ => Ok(1),
    }
}

/// Passage of `data` through memory of `memory_bytes`.
fn chunks(
    data: &Data,
    config: &Config,
    memory_bytes: usize,
    OtherMemory { model_bytes, held_bytes, batch_size, stored_rows, streamable }: OtherMemory,
) -> Result<ChunkPlan, MemoryShortage> {
    let shape = data.shape();
    if !data.is_windows() {
        let Some(StreamableSeries { resident_bytes, cache }) = streamable else {
            return Ok(ChunkPlan::resident(shape, held_bytes as u64));
        };
        let resident_bytes = resident_bytes + held_bytes as u64;
        let stays = match config.get(&config::data::RESIDENCY) {
            Some(Residency::Resident) => true,
            Some(Residency::Streamed) => false,
            _ => model_bytes as u64 + resident_bytes <= memory_bytes as u64,
        };
        if stays {
            return Ok(ChunkPlan::resident(shape, resident_bytes));
        }
        let CacheBounds { bytes_min, bytes_max, .. } = cache;
        let left = memory_bytes.saturating_sub(model_bytes + held_bytes);
        let set = config.get(&config::data::CACHE_GB).map(|gigabytes| (gigabytes * 1e9) as usize);
        let cache_bytes = set.unwrap_or(left / 2).clamp(bytes_min, bytes_max.max(bytes_min));
        return Ok(ChunkPlan::streamed(shape, cache.taken_bytes(cache_bytes) as u64));
    }
    let batch_bytes = shape.sample_bytes().saturating_mul(batch_size as u64);
    ChunkPlan::new(&PlanRequest {
        shape,
        resident_bytes: shape.windows_bytes(),
        device_bytes: memory_bytes as u64,
        model_bytes: (model_bytes + held_bytes) as u64,
        // Without the chunk loader a chunk is a batch.
        chunk_bytes: if config.get(&config::gpu_optimization::USE_CHUNK_LOADER) {
            chunk_bytes_set(config)
        } else {
            Some(batch_bytes)
        },
        batch_size,
        stored_rows,
    })
}

fn chunk_bytes_set(config: &Config) -> Option<u64> {
    config.get(&config::gpu_optimization::CHUNK_SIZE_GB).map(|gigabytes| (gigabytes * 1e9) as u64)
}

/// Bytes that `training` takes beside the data.
fn footprint(
    samples: &dyn Samples,
    split: &Split,
    training: &trainer::Config,
    carried: Option<&CarriedStates>,
) -> Result<Footprint> {
    let shape = samples.shape();
    let footprint = match samples.graphs() {
        Some(graphs) => {
            let (nodes, edges) = graphs.largest();
            Footprint::for_graphs(training, shape, nodes, edges, split.validation.len())?
        }
        None => Footprint::new(training, shape, split.validation.len())?,
    };
    Ok(carried.map_or(footprint, |states| footprint.with_carried_states(training, shape, states)))
}

/// Adds the limit to an error if the data alone do not fit into it.
fn not_even_data(error: Error, memory_bytes: usize) -> Error {
    match error.kind() {
        Kind::Capacity => error.context(format!("the data alone do not fit into {}", bytes(memory_bytes))),
        _ => error,
    }
}

/// Bytes that the device could hand out now.
pub(crate) fn free_memory_bytes(device: &Device) -> usize {
    device.free_bytes().unwrap_or(MEMORY_BYTES_ASSUMED)
}

/// The data file: the argument, or the configuration's.
pub(crate) fn data_path(config: &Config, argument: Option<&Path>) -> Result<PathBuf> {
    let path = argument.map(Path::to_owned).or_else(|| config.get(&config::data::PATH));
    path.ok_or_else(|| Error::usage("no data: give --data FILE, or data.path in the configuration"))
}

/// Makes the path of the graphs in `config` absolute, so that a run finds them from any folder.
pub(crate) fn make_graph_absolute(config: &mut Config) -> Result<()> {
    let Some(graph) = config.get(&config::model::GRAPH) else { return Ok(()) };
    Ok(config.set_path(&config::model::GRAPH, &std::path::absolute(graph)?)?)
}

/// Rows that are decoded together, where rows are not read one by one.
pub(crate) fn decoded_rows(stored: &StoredDataset) -> Option<usize> {
    let chunk_rows = stored.chunk.as_ref().map(|chunk| chunk[0]);
    chunk_rows.filter(|_| stored.read_by != ReadBy::Position)
}
