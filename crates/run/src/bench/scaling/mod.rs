//! A forecast of training on more threads than this machine has.
//!
//! ```text
//! for N threads:  cut a step's tasks for N threads, and measure each on the threads of this machine
//!                 list scheduling of the measured times on N threads, with a measured hand-over
//! ```
//!
//! What follows the tasks in a step (sum of the shards' gradients, clipping, Adam, packing of
//! weights) is measured on the threads of this machine and counted as it is for any number.

mod forecast;
mod machine;

use megabatch_gpu_core::Device;
use megabatch_nn::batch::{BatchStorage, BatchView, WindowOffsets};
use megabatch_nn::cpu::{Changes, Compute, Engine, Kept, MeasuredTask, Purpose, Totals};
use megabatch_nn::loss::{Loss, Objective};
use megabatch_nn::model::Model;
use megabatch_nn::model::dropout::{StepDropout, StepSeed};
use megabatch_nn::model::tensor::TensorSet;
use megabatch_trainer::Trainer;
use serde::Serialize;
use serde_json::json;

use super::SampleOrder;
use super::predict::SHUFFLED_APART;
use super::series::{MadeUp, SHUFFLED_SAMPLES, Work};
use super::train::{self, TrainOptions};
use crate::error::Result;
use crate::findings::Findings;
use forecast::{Forecast, forecast};
use machine::Machine;

/// Numbers of threads that are forecast.
const THREADS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// A bound holds if it is so much of the forecast.
const HOLDS: f64 = 0.9;

/// A training step to forecast.
#[derive(Clone, Debug)]
pub struct ScalingOptions {
    /// The model and its batches; its threads are those that measure.
    pub work: Work,
    /// Measured steps for each number of threads.
    pub steps: u64,
    /// Samples of a batch.
    pub samples: SampleOrder,
    /// Rate of the memory of the machine that is forecast, in GB/s; `None` for that of one core
    /// here, times the threads.
    pub memory_gb_per_s: Option<f64>,
}

/// The forecast for one number of threads.
#[derive(Debug, Serialize)]
struct Row {
    threads: usize,
    step_s: f64,
    samples_per_s: f64,
    speed_up: f64,
    critical_path_s: f64,
    idle_share: f64,
    tasks: usize,
    work_s: f64,
    gb_per_s: f64,
    /// What bounds the tasks: `work`, `critical path`, `memory` or, between them, `schedule`.
    bound: &'static str,
}

/// Forecasts training steps on 1 to 128 threads from tasks that are measured here.
///
/// # Errors
/// A capacity error for a model that does not fit into memory.
pub fn scaling(options: &ScalingOptions) -> Result<Findings> {
    let machine = Machine::measure(options.work.threads)?;
    let (rest_s, measured_s) = steps_here(options)?;
    let made_up = options.work.made_up(samples_to_draw_from(options));
    let mut rows: Vec<Row> = Vec::new();
    let mut tasks_s = Vec::new();
    for threads in THREADS {
        let tasks = measure(options, &made_up, threads)?;
        let forecast = forecast(&tasks, threads, machine.hand_over_s);
        let alone_s = rows.first().map(|one| one.step_s);
        rows.push(row(options, threads, &tasks, forecast, rest_s, alone_s, &machine));
        tasks_s.push(json!({ "threads": threads, "kinds": by_kind(&tasks) }));
    }
    let here = options.work.threads;
    let of_here = rows.iter().find(|row| row.threads == here).map(|row| row.step_s);
    let mut text = table(&rows);
    text.push_str(&format!(
        "\nhand-over {:.1} µs; one core reads {:.1} GB/s from its cache, {:.1} GB/s from memory; after the tasks {:.2} ms a step",
        machine.hand_over_s * 1e6,
        machine.cache_bytes_per_s / 1e9,
        machine.memory_bytes_per_s / 1e9,
        rest_s * 1e3
    ));
    if let Some(forecast_s) = of_here {
        text.push_str(&format!(
            "\n{here} threads here: {:.2} ms a step measured, {:.2} ms forecast",
            measured_s * 1e3,
            forecast_s * 1e3
        ));
    }
    let json = json!({
        "forecasts": rows,
        "machine": machine,
        "rest_s": rest_s,
        "measured_threads": here,
        "measured_step_s": measured_s,
        "forecast_step_s": of_here,
        "tasks": tasks_s,
    });
    Ok(Findings::new(text, &json))
}

fn samples_to_draw_from(options: &ScalingOptions) -> usize {
    match options.samples {
        SampleOrder::Shuffled => SHUFFLED_SAMPLES.max(options.work.batch()),
        SampleOrder::Consecutive => options.work.batch(),
    }
}

/// The time of a whole step on the threads of this machine, and the part of it that is no task.
fn steps_here(options: &ScalingOptions) -> Result<(f64, f64)> {
    let training = TrainOptions {
        work: options.work,
        steps: options.steps,
        samples: options.samples,
        gradient_checkpointing: false,
        device: "cpu".to_owned(),
    };
    let samples = options.work.samples(samples_to_draw_from(options).max(4 * options.work.batch()))?;
    let shape = megabatch_trainer::Samples::shape(&samples).clone();
    let mut trainer = Trainer::new(&Device::cpu(), train::config(&training), shape)?;
    let timed = train::timed(&mut trainer, &samples, None)?;
    let shortest = |seconds: &dyn Fn(&megabatch_trainer::StepEvent) -> f64| {
        timed.steps.iter().map(seconds).fold(f64::INFINITY, f64::min)
    };
    let step_s = |step: &megabatch_trainer::StepEvent| options.work.batch() as f64 / step.samples_per_s;
    let rest_s = |step: &megabatch_trainer::StepEvent| step_s(step) - step.forward_s - step.backward_s;
    Ok((shortest(&rest_s).max(0.0), shortest(&step_s)))
}

/// The tasks of a step that is cut for `threads` threads, each with its shortest time.
fn measure(options: &ScalingOptions, made_up: &MadeUp, threads: usize) -> Result<Vec<MeasuredTask>> {
    let (work, device) = (&options.work, Device::cpu());
    let model = Model::new(made_up.shape.clone(), work.model())?;
    let parameters = model.initial_parameters(&device.scope("initial"), 0)?;
    let mut gradients = TensorSet::zeros(&device.scope("gradients"), model.layout())?;
    let purpose = Purpose::Training { dropout: false, runs: None, kept: Kept::Everything };
    let compute = Compute { threads, batch_size: work.batch() };
    let engine = Engine::new(&device, &model, compute, purpose, work.precision)?;
    let mut engine = engine.on_threads(work.threads)?.measured();
    engine.load(&model, &parameters);
    let offsets = offsets(options, made_up);
    let series = made_up.series.iter().map(|(values, _)| values.as_slice()).collect();
    let targets = &made_up.targets[..work.batch() * made_up.shape.outputs];
    let batch = BatchView::new(&made_up.shape, series, &offsets, BatchStorage::Series, targets);
    let dropout = StepDropout { between_layers: None, in_graphs: StepSeed { seed: 0, step: 0 } };
    let objective = Objective { loss: Loss::Mse, count: targets.len(), position: 0, dropout, scale: 1.0 };
    let mut best: Vec<MeasuredTask> = Vec::new();
    for _ in 0..=options.steps {
        let changes = Changes { gradients: &mut gradients, carried: None };
        engine.accumulate(&model, &parameters, &batch, objective, changes, Totals::default());
        let tasks = engine.take_tasks();
        if best.is_empty() {
            best = tasks;
        } else {
            best.iter_mut().zip(tasks).for_each(|(best, task)| best.seconds = best.seconds.min(task.seconds));
        }
    }
    Ok(best)
}

/// The windows of the batch.
fn offsets(options: &ScalingOptions, made_up: &MadeUp) -> WindowOffsets {
    let place = |n: usize| match options.samples {
        SampleOrder::Shuffled => n * SHUFFLED_APART % made_up.targets.len().div_ceil(made_up.shape.outputs),
        SampleOrder::Consecutive => n,
    };
    let ends = made_up.series.iter().map(|(_, ends)| {
        (0..options.work.batch()).map(|n| usize::try_from(ends[place(n)]).expect("a row")).collect::<Vec<_>>()
    });
    let ends: Vec<Vec<usize>> = ends.collect();
    let starts = ends.iter().zip(&made_up.shape.timeframes);
    let starts = starts.map(|(ends, of)| ends.iter().map(|end| end + 1 - of.steps).collect()).collect();
    WindowOffsets { starts, ends }
}

fn row(
    options: &ScalingOptions,
    threads: usize,
    tasks: &[MeasuredTask],
    of: Forecast,
    rest_s: f64,
    alone_s: Option<f64>,
    machine: &Machine,
) -> Row {
    let memory = options.memory_gb_per_s.map_or(machine.memory_bytes_per_s * threads as f64, |rate| rate * 1e9);
    let memory_s = of.bytes / memory;
    let tasks_s = of.seconds.max(memory_s);
    let bounds = [("memory", memory_s), ("critical path", of.critical_path_s), ("work", of.work_s / threads as f64)];
    let largest = bounds.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("three bounds");
    let step_s = tasks_s + rest_s;
    Row {
        threads,
        step_s,
        samples_per_s: options.work.batch() as f64 / step_s,
        speed_up: alone_s.unwrap_or(step_s) / step_s,
        critical_path_s: of.critical_path_s,
        idle_share: of.idle_share(threads),
        tasks: tasks.len(),
        work_s: of.work_s,
        gb_per_s: of.bytes / tasks_s / 1e9,
        bound: if largest.1 >= HOLDS * tasks_s { largest.0 } else { "schedule" },
    }
}

/// Number and time of the tasks of each kind.
fn by_kind(tasks: &[MeasuredTask]) -> serde_json::Value {
    let mut kinds: Vec<&str> = tasks.iter().map(|task| task.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = |kind: &str| {
        let seconds: Vec<f64> = tasks.iter().filter(|task| task.kind == kind).map(|task| task.seconds).collect();
        json!({
            "kind": kind,
            "tasks": seconds.len(),
            "seconds": seconds.iter().sum::<f64>(),
            "longest_s": seconds.iter().copied().fold(0.0, f64::max),
        })
    };
    kinds.into_iter().map(kind).collect()
}

fn table(rows: &[Row]) -> String {
    let mut text =
        "threads  step ms  samples/s  speed-up  critical path ms  idle  tasks  work ms   GB/s  bound".to_owned();
    for row in rows {
        text.push_str(&format!(
            "\n{:7}  {:7.2}  {:9.0}  {:8.2}  {:16.2}  {:3.0}%  {:5}  {:7.1}  {:5.1}  {}",
            row.threads,
            row.step_s * 1e3,
            row.samples_per_s,
            row.speed_up,
            row.critical_path_s * 1e3,
            row.idle_share * 100.0,
            row.tasks,
            row.work_s * 1e3,
            row.gb_per_s,
            row.bound
        ));
    }
    text
}
