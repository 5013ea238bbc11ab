//! Training steps, without data that have to be read.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use megabatch_gpu_core::Device;
use megabatch_nn::graph::Graphs;
use megabatch_trainer::{
    Config, Event, OptimizerConfig, OptimizerKind, Run, SampleRanges, Samples, StepEvent, Trainer,
};
use serde_json::json;

use super::SampleOrder;
use super::rings::{GraphSize, Rings};
use super::series::{SHUFFLED_SAMPLES, Work};
use crate::command_report::CommandReport;
use crate::error::Result;
use crate::host::Host;
use crate::setup::computing::DeviceRequest;
use crate::text::bytes;
use crate::usage::peak_rss_bytes;

/// Training steps to measure.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// The model and its batches.
    pub work: Work,
    /// Timed steps, after one untimed step, or on a GPU after a second of them.
    pub steps: u64,
    /// Samples of a batch.
    pub samples: SampleOrder,
    /// Compute half of the gates again in the backward pass, in place of keeping them.
    pub gradient_checkpointing: bool,
    /// Round the inputs of fp32 products to TF32 on a GPU.
    pub tf32: bool,
    /// Train graph attention over batches of graphs of this size, in place of an LSTM over windows.
    pub graphs: Option<GraphSize>,
    /// `cpu`, `auto`, `cuda` or `cuda:N`.
    pub device: String,
}

/// Steps and time before a GPU's steps are timed: after these kernels are compiled, every shape of
/// a batch has come twice, so that its commands are captured, and clocks have risen.
const GPU_WARM_UP_STEPS: u64 = 12;
const GPU_WARM_UP: Duration = Duration::from_secs(1);
/// Most untimed steps.
const WARM_UP_STEPS_MAX: u64 = 1_000_000;

/// Measures training steps on synthetic numbers: forward, loss, backward, clipping and Adam.
///
/// # Errors
/// A capacity error for a model that does not fit into memory, a device error for a device that is
/// not here.
pub fn train(options: &TrainOptions, host: &Host<'_>) -> Result<CommandReport> {
    let work = &options.work;
    let samples: Box<dyn Samples> = match options.graphs {
        Some(size) => Box::new(Rings::new(size, 4 * work.batch(), work.features)?),
        None if options.samples == SampleOrder::Shuffled => Box::new(work.samples(SHUFFLED_SAMPLES)?),
        None => Box::new(work.samples(4 * work.batch())?),
    };
    let (cpu, config, shape) = (Device::cpu(), config(options), samples.shape().clone());
    let gpu = DeviceRequest::select(&options.device, host)?.computing(config.check_on_gpu())?.gpu;
    let mut trainer = match &gpu {
        Some(gpu) => Trainer::on_gpu(gpu, &cpu, config, shape)?,
        None => Trainer::new(&cpu, config, shape)?,
    };
    trainer.time_gpu()?;
    let warm_up = if gpu.is_some() { (GPU_WARM_UP_STEPS, GPU_WARM_UP) } else { (1, Duration::ZERO) };
    let timed = timed(&mut trainer, &*samples, Timing { warm_up, steps: options.steps })?;
    // A capture takes the host milliseconds, once for each shape.
    let usual = timed.steps.iter().filter(|step| step.captures.is_none());
    let usual_s: f64 = usual.clone().map(|step| step.samples as f64 / step.samples_per_s).sum();
    let gpu_s: Option<f64> = timed.steps.iter().map(|step| step.gpu_s).sum();
    let mut rates: Vec<f64> = timed.steps.iter().map(|step| step.samples_per_s).collect();
    rates.sort_by(f64::total_cmp);
    let (best, median) = (rates[rates.len() - 1], rates[rates.len() / 2]);
    let allocated = cpu.usage().allocated_bytes_peak;
    let activations = cpu.scope("activations").usage().allocated_bytes_peak;
    let gpu_peak_bytes = gpu.as_ref().map(|gpu| gpu.usage().allocated_bytes_peak);
    let mut text = format!(
        "{best:.1} samples/s (median {median:.1}), {} allocated at the peak, {} of it for activations",
        bytes(allocated),
        bytes(activations)
    );
    if let Some(gpu_peak_bytes) = gpu_peak_bytes {
        text.push_str(&format!("; on {} {}", trainer.device(), bytes(gpu_peak_bytes)));
    }
    let json = json!({
        "samples_per_s": best,
        "samples_per_s_median": median,
        "samples_per_s_mean": (usual.clone().count() > 0).then(|| (usual.count() * work.batch()) as f64 / usual_s),
        "captures": timed.steps.iter().filter_map(|step| step.captures).sum::<u64>(),
        "step_s": work.batch() as f64 / best,
        "peak_rss_bytes": peak_rss_bytes(),
        "peak_allocated_bytes": allocated,
        "peak_activations_bytes": activations,
        "peak_gpu_bytes": gpu_peak_bytes,
        "gpu_s": gpu_s,
        "gpu_busy": gpu_s.map(|gpu_s| gpu_s / timed.seconds),
        "device": trainer.device().to_string(),
        "parameters": trainer.parameters().values().len(),
    });
    Ok(CommandReport::new(text, &json))
}

fn config(options: &TrainOptions) -> Config {
    let work = &options.work;
    Config {
        model: if options.graphs.is_some() { Rings::model(work.hidden) } else { work.model() },
        optimizer: OptimizerConfig { kind: OptimizerKind::Adam, weight_decay: 0.0, ..OptimizerConfig::default() },
        max_steps: Some(options.steps + WARM_UP_STEPS_MAX),
        batch_size: work.batch(),
        run_length: (options.samples == SampleOrder::Shuffled).then_some(1),
        threads: work.threads,
        precision: work.precision,
        tf32: options.tf32,
        gradient_checkpointing: options.gradient_checkpointing,
        ..Config::default()
    }
}

/// Steps that are timed, and the steps and time before them.
#[derive(Clone, Copy)]
struct Timing {
    warm_up: (u64, Duration),
    steps: u64,
}

/// The steps after the warm-up, and how long they took together, with what came between them.
struct Timed {
    steps: Vec<StepEvent>,
    seconds: f64,
}

fn timed(trainer: &mut Trainer, samples: &dyn Samples, timing: Timing) -> Result<Timed> {
    let train = SampleRanges::from(0..samples.graphs().map_or(samples.len(), Graphs::len));
    let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut timed = Timed { steps: Vec::new(), seconds: 0.0 };
    let ((warm_up_steps, warm_up), start) = (timing.warm_up, Instant::now());
    let mut begun: Option<Instant> = None;
    trainer.train(&run, &mut |event| {
        let Event::Step(step) = event else { return ControlFlow::Continue(()) };
        match begun {
            Some(begun) => {
                timed.steps.push(step);
                timed.seconds = begun.elapsed().as_secs_f64();
            }
            None if step.step >= warm_up_steps && start.elapsed() >= warm_up => {
                begun = Some(Instant::now());
            }
            None => {}
        }
        let is_done = timed.steps.len() as u64 == timing.steps;
        if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(timed)
}
