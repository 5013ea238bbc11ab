//! A training job before it runs: settings, data and split, and what they will take.

use std::path::{Path, PathBuf};

use anyhow::Result;
use megabatch_gpu_core::Device;
use megabatch_trainer::{
    self as trainer, Checkpoints, EarlyStopping, Form, LastBatch, Loss, LrSchedule, LrScheduleKind, ModelConfig,
    OptimizerConfig, OptimizerKind, Run, Split,
};

use crate::adapt::samples::SourceSamples;
use crate::adapt::split::split_source;
use crate::config::Config;
use crate::failure::{self, Failure};
use crate::plan::bytes;

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
}

/// What the command line says about a job beside the configuration.
pub(crate) struct Request<'a> {
    pub(crate) config: Config,
    pub(crate) data: Option<&'a Path>,
    pub(crate) device: &'a str,
    pub(crate) max_steps: Option<u64>,
    /// Memory of another machine, to plan for it.
    pub(crate) memory_bytes: Option<usize>,
}

impl Job {
    /// The job as the trainer takes it.
    pub(crate) fn run<'a>(&'a self, checkpoints: &'a Checkpoints) -> Run<'a> {
        let Split { train, validation, .. } = &self.split;
        Run { samples: &self.samples, train, validation, checkpoints: Some(checkpoints) }
    }

    /// Bytes that the data hold in memory.
    pub(crate) fn data_bytes(&self) -> usize {
        self.device.scope("data").usage().allocated_bytes
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
        let samples =
            SourceSamples::open(&path, &device, memory_bytes).map_err(|error| not_even_data(error, memory_bytes))?;
        let split = split_source(samples.source(), &config)?;
        let training = training_config(&config);
        Ok(Job { device, memory_bytes, samples, split, config, training })
    }
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
