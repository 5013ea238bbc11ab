//! A training job before it runs: settings, data and split, and what they will take.

use std::path::{Path, PathBuf};

use anyhow::Result;
use megabatch_chunk_io::{ChunkPlan, Filling, Layout, PlanRequest, Residence, Shortage, Source};
use megabatch_gpu_core::Device;
use megabatch_trainer::{
    self as trainer, CarriedStates, Checkpoints, EarlyStopping, Footprint, Form, LastBatch, Loss, LrSchedule,
    LrScheduleKind, ModelConfig, OptimizerConfig, OptimizerKind, Run, Samples as _, Split,
};

use crate::adapt::samples::SourceSamples;
use crate::adapt::split::split_source;
use crate::config::Config;
use crate::failure::{self, Failure};
use crate::plan::{bytes, decoded_rows};

/// Memory that is assumed where the system does not tell how much is free.
const MEMORY_BYTES_ASSUMED: usize = 4 << 30;

/// Settings and data that belong together.
pub(crate) struct Job {
    pub(crate) device: Device,
    /// Bytes that the job may take.
    pub(crate) memory_bytes: usize,
    pub(crate) samples: SourceSamples,
    pub(crate) split: Split,
    pub(crate) config: Config,
    pub(crate) training: trainer::Config,
    /// How the data pass through memory.
    pub(crate) chunks: Result<ChunkPlan, Shortage>,
    /// Rows of the file that are decoded together, 1 where none are.
    stored_rows: usize,
}

/// What a job is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// To run: data that stay in memory are read.
    Run,
    /// To be looked at: windows are not read.
    Plan,
}

/// What the command line says about a job beside the configuration.
pub(crate) struct Request<'a> {
    pub(crate) config: Config,
    pub(crate) data: Option<&'a Path>,
    pub(crate) device: &'a str,
    pub(crate) max_steps: Option<u64>,
    /// Memory of another machine, to plan for it.
    pub(crate) memory_bytes: Option<usize>,
    pub(crate) intent: Intent,
}

impl Job {
    /// The job as the trainer takes it.
    pub(crate) fn run<'a>(&'a self, checkpoints: &'a Checkpoints) -> Run<'a> {
        let Split { train, validation, .. } = &self.split;
        Run { samples: &self.samples, train, validation, checkpoints: Some(checkpoints) }
    }

    /// Bytes that are held in memory for the data by now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.device.scope("data").usage().allocated_bytes
    }

    /// Bytes that the data hold in memory during a run: as samples, and what tells their times.
    pub(crate) fn data_bytes(&self, chunks: &ChunkPlan) -> usize {
        match self.samples.source().is_resident() {
            true => self.held_bytes(),
            false => self.held_bytes() + usize::try_from(chunks.data_bytes).unwrap_or(usize::MAX / 2),
        }
    }

    /// Bytes that `training` takes beside the data.
    pub(crate) fn footprint(&self, training: &trainer::Config) -> Result<Footprint> {
        footprint(&self.samples, &self.split, training)
    }

    /// How the data would pass through memory in batches of `batch_size`, beside a model that takes `model_bytes`.
    pub(crate) fn chunks_beside(&self, model_bytes: usize, batch_size: usize) -> Result<ChunkPlan, Shortage> {
        // Windows in memory are what is planned for, and not beside it.
        let windows_bytes = match self.samples.source() {
            source if source.layout() == Layout::Windows && source.is_resident() => source.shape().windows_bytes(),
            _ => 0,
        };
        let held_bytes = self.held_bytes() - windows_bytes as usize;
        let beside = Beside { model_bytes, held_bytes, batch_size, stored_rows: self.stored_rows };
        chunks(&self.samples, &self.config, self.memory_bytes, beside)
    }

    /// The size of a chunk, where the user set it.
    pub(crate) fn chunk_bytes_set(&self) -> Option<u64> {
        chunk_bytes_set(&self.config)
    }

    /// Opens the data and splits it.
    pub(crate) fn open(request: Request<'_>) -> Result<Self> {
        let Request { mut config, device, max_steps, .. } = request;
        if let Some(steps) = max_steps {
            config.set_count("training.max_steps", steps);
        }
        let device = training_device(device)?;
        let memory_bytes = request.memory_bytes.unwrap_or_else(|| free_memory_bytes(&device));
        device.set_budget_bytes(Some(memory_bytes));
        let path = data_path(&config, request.data)?;
        let open = |resident_bytes_max| {
            SourceSamples::open(&path, &device, resident_bytes_max).map_err(|error| not_even_data(error, memory_bytes))
        };
        let mut samples = open(0)?;
        let split = split_source(samples.source(), &config)?;
        let training = training_config(&config);
        let model_bytes = footprint(&samples, &split, &training)?.total_bytes();
        let held_bytes = device.usage().allocated_bytes;
        let stored_rows = stored_rows(samples.source())?;
        let beside = Beside { model_bytes, held_bytes, batch_size: training.batch_size, stored_rows };
        let chunks = chunks(&samples, &config, memory_bytes, beside);
        let stays = chunks.as_ref().is_ok_and(|chunks| chunks.residence == Residence::Resident);
        if request.intent == Intent::Run && stays && !samples.source().is_resident() {
            drop(samples);
            samples = open(usize::MAX)?;
        }
        Ok(Job { device, memory_bytes, samples, split, config, training, chunks, stored_rows })
    }
}

/// What data have to leave room for, and what they are taken in.
struct Beside {
    model_bytes: usize,
    /// Of a series all; of windows what tells their times.
    held_bytes: usize,
    batch_size: usize,
    stored_rows: usize,
}

/// Rows of windows that are decoded together: a chunk that ends with them leaves none to be decoded twice.
fn stored_rows(source: &Source) -> Result<usize> {
    if source.layout() == Layout::Series {
        return Ok(1);
    }
    Ok(source.storage()?.iter().filter_map(decoded_rows).max().unwrap_or(1))
}

/// How `samples` pass through memory of `memory_bytes`.
fn chunks(
    samples: &SourceSamples,
    config: &Config,
    memory_bytes: usize,
    Beside { model_bytes, held_bytes, batch_size, stored_rows }: Beside,
) -> Result<ChunkPlan, Shortage> {
    let source = samples.source();
    if source.layout() == Layout::Series {
        return Ok(ChunkPlan::resident(source.shape(), held_bytes as u64));
    }
    let batch_bytes = source.shape().sample_bytes().saturating_mul(batch_size as u64);
    ChunkPlan::of(&PlanRequest {
        shape: source.shape(),
        resident_bytes: source.shape().windows_bytes(),
        device_bytes: memory_bytes as u64,
        model_bytes: (model_bytes + held_bytes) as u64,
        filling: Filling::Device,
        // Without the chunk loader a chunk is a batch.
        chunk_bytes: if config.flag("gpu_optimization.use_chunk_loader") {
            chunk_bytes_set(config)
        } else {
            Some(batch_bytes)
        },
        batch_size,
        stored_rows,
    })
}

fn chunk_bytes_set(config: &Config) -> Option<u64> {
    config.optional_number("gpu_optimization.chunk_size_gb").map(|gigabytes| (gigabytes * 1e9) as u64)
}

/// Bytes that `training` takes beside the data.
fn footprint(samples: &SourceSamples, split: &Split, training: &trainer::Config) -> Result<Footprint> {
    let shape = samples.shape();
    let footprint = Footprint::of(training, shape, split.validation.len())?;
    if !training.carry_state {
        return Ok(footprint);
    }
    let states = CarriedStates::of(samples, &split.train, &split.validation)?;
    Ok(footprint.with_carried_states(training, shape, &states))
}

/// The device of that name, as far as the trainer can use it. `auto` is the best one that it can.
fn training_device(name: &str) -> Result<Device> {
    match Device::select(if name == "auto" { "cpu" } else { name })? {
        device @ Device::Cpu(_) => Ok(device),
        device => Err(Failure::device(format!(
            "device `{device}` is present, but the trainer runs on the CPU only so far; use cpu or auto"
        ))),
    }
}

/// Says what did not fit, where the memory that was granted does not hold the data alone.
fn not_even_data(error: megabatch_chunk_io::Error, memory_bytes: usize) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    match failure::kind(&error) {
        failure::Kind::Capacity => error.context(format!("the data alone do not fit into {}", bytes(memory_bytes))),
        _ => error,
    }
}

/// Bytes that the device could hand out now.
pub(crate) fn free_memory_bytes(device: &Device) -> usize {
    device.free_bytes().unwrap_or(MEMORY_BYTES_ASSUMED)
}

/// The data file: the argument, or the configuration's.
pub(crate) fn data_path(config: &Config, argument: Option<&Path>) -> Result<PathBuf> {
    let path = argument.map(Path::to_owned).or_else(|| config.path("data.path"));
    path.ok_or_else(|| Failure::usage("no data: give --data FILE, or data.path in the configuration"))
}

/// The trainer's settings from the user's.
pub(crate) fn training_config(config: &Config) -> trainer::Config {
    let kind = match config.text("training.optimizer") {
        Some("sgd") => OptimizerKind::Sgd,
        Some("adam") => OptimizerKind::Adam,
        _ => OptimizerKind::AdamW,
    };
    trainer::Config {
        model: model_config(config),
        dropout: config.number("model.dropout") as f32,
        carry_state: config.flag("training.carry_state"),
        lr_schedule: LrSchedule {
            kind: match config.text("training.lr_schedule") {
                Some("cosine") => LrScheduleKind::Cosine,
                _ => LrScheduleKind::Constant,
            },
            warmup_steps: config.count("training.warmup_steps") as u64,
            lr_min: config.number("training.lr_min"),
        },
        early_stopping: config.optional_count("training.early_stopping").map(|patience| EarlyStopping {
            patience: u32::try_from(patience).unwrap_or(u32::MAX),
            min_delta: config.number("training.early_stopping_min_delta"),
        }),
        optimizer: OptimizerConfig {
            kind,
            lr: config.number("training.lr"),
            weight_decay: config.number("training.weight_decay"),
            ..OptimizerConfig::default()
        },
        clip_norm: config.optional_number("training.clip_norm"),
        loss: loss(config),
        epochs: config.count("training.epochs") as u64,
        max_steps: config.optional_count("training.max_steps").map(|steps| steps as u64),
        batch_size: config.count("gpu_optimization.batch_size"),
        accumulation_steps: config.count("gpu_optimization.gradient_accumulation_steps"),
        run_length: config.optional_count("training.run_length"),
        last_batch: LastBatch::Keep,
        seed: config.count("training.seed") as u64,
        threads: threads(config),
        form: form(config),
        validate_every_steps: config.optional_count("training.validate_every_steps").map(|steps| steps as u64),
    }
}

/// The loss, which validation and evaluation measure too.
pub(crate) fn loss(config: &Config) -> Loss {
    match config.text("training.loss") {
        Some("huber") => Loss::Huber { delta: config.number("training.huber_delta") },
        _ => Loss::Mse,
    }
}

/// The model's sizes.
pub(crate) fn model_config(config: &Config) -> ModelConfig {
    ModelConfig {
        hidden: config.count("model.hidden"),
        layers: config.count("model.layers"),
        bias: config.flag("model.bias"),
        ..ModelConfig::default()
    }
}

/// How the model is computed.
pub(crate) fn form(config: &Config) -> Form {
    match config.text("training.form") {
        Some("plain") => Form::Plain,
        _ => Form::Fast,
    }
}

/// Threads that compute.
pub(crate) fn threads(config: &Config) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    config.optional_count("training.threads").unwrap_or_else(all)
}
