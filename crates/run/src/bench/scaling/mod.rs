//! A forecast of training on more threads than this machine has.
//!
//! ```text
//! for N threads:  cut a step's tasks for N threads, measure each on the threads of this machine;
//!                 list scheduling of the measured times on N threads, with a measured hand-over
//! ```
//!
//! What follows the tasks in a step (sum of the shards' gradients, clipping, Adam, packing of
//! weights) is measured on the threads of this machine and counted as it is for any number.

mod forecast;
mod machine;
mod shares;

use std::time::Instant;

use megabatch_amp::{
    GradientFactors, Moments, OptimizerSettings, OptimizerStep, ParameterTensor, Rule, Threads, unscale_and_check,
    update,
};
use megabatch_gpu_core::Device;
use megabatch_nn::batch::{BatchStorage, BatchView, WindowOffsets};
use megabatch_nn::cpu::{Changes, Compute, Engine, Kept, MeasuredTask, Purpose, Totals};
use megabatch_nn::graph::{GraphBatch, Graphs};
use megabatch_nn::loss::{Loss, Objective};
use megabatch_nn::model::{Model, StepDropout, StepSeed, TensorSet};
use serde::Serialize;
use serde_json::json;

use super::SampleOrder;
use super::predict::SHUFFLED_APART;
use super::series::{MadeUp, SHUFFLED_SAMPLES, Work};
use crate::error::Result;
use crate::findings::Findings;
use forecast::forecast;
use machine::Machine;
use shares::Shares;

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
    /// Nodes of a graph whose shares are the batch, in place of the work's samples; `None` without.
    pub shares: Option<usize>,
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
    /// Sum of the shards' gradients, clipping, Adam, packing of weights.
    rest_s: f64,
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
    let shares = options.shares.map(Shares::new).transpose()?;
    let made_up = match (&shares, options.samples) {
        (Some(shares), _) => shares.made_up(options.work.features),
        (None, SampleOrder::Shuffled) => options.work.made_up(SHUFFLED_SAMPLES.max(options.work.batch())),
        (None, SampleOrder::Consecutive) => options.work.made_up(options.work.batch()),
    };
    let here = options.work.threads;
    let (mut rows, mut tasks): (Vec<Row>, Vec<_>) = (Vec::new(), Vec::new());
    // Where a step has more shards than threads here, its time beside the tasks is known only of a
    // step that is cut for them.
    let for_here = measure(options, &made_up, shares.as_ref(), here)?;
    let Measured { step_s: measured_s, rest_s, .. } = for_here;
    for threads in THREADS {
        let measured = match threads == here {
            true => for_here.clone(),
            false => Measured { rest_s, ..measure(options, &made_up, shares.as_ref(), threads)? },
        };
        let alone_s = rows.first().map(|one| one.step_s);
        rows.push(row(options, threads, &measured, alone_s, &machine));
        tasks.push(json!({ "threads": threads, "rest_s": measured.rest_s, "kinds": by_kind(&measured.tasks) }));
    }
    let forecast_s = rows.iter().find(|row| row.threads == here).map(|row| row.step_s);
    let mut text = table(&rows);
    text.push_str(&format!(
        "\nhand-over {:.1} µs; one core reads {:.1} GB/s from its cache, {:.1} GB/s from memory",
        machine.hand_over_s * 1e6,
        machine.cache_bytes_per_s / 1e9,
        machine.memory_bytes_per_s / 1e9,
    ));
    if let Some(forecast_s) = forecast_s {
        text.push_str(&format!(
            "\n{here} threads here: {:.2} ms a step measured, {:.2} ms forecast",
            measured_s * 1e3,
            forecast_s * 1e3
        ));
    }
    let json = json!({
        "forecasts": rows,
        "machine": machine,
        "measured_threads": here,
        "measured_step_s": measured_s,
        "forecast_step_s": forecast_s,
        "tasks": tasks,
    });
    Ok(Findings::new(text, &json))
}

/// The tasks of a step, each with its shortest time, and the shortest times of a whole step on the
/// threads of this machine and of the part of it that is no task.
#[derive(Clone)]
struct Measured {
    tasks: Vec<MeasuredTask>,
    step_s: f64,
    rest_s: f64,
}

/// Measures steps that are cut for `threads` threads.
fn measure(options: &ScalingOptions, made_up: &MadeUp, shares: Option<&Shares>, threads: usize) -> Result<Measured> {
    let (work, device) = (&options.work, Device::cpu());
    let config = if shares.is_some() { Shares::model(work.model()) } else { work.model() };
    let model = Model::new(made_up.shape.clone(), config)?;
    let mut parameters = model.initial_parameters(&device.scope("initial"), 0)?;
    let zeros = |name| TensorSet::zeros(&device.scope(name), model.layout());
    let (mut gradients, mut exp_avg, mut exp_avg_sq) = (zeros("gradients")?, zeros("means")?, zeros("squares")?);
    let purpose = Purpose::Training { dropout: false, runs: None, kept: Kept::Everything };
    let compute = Compute { threads, batch_size: if shares.is_some() { 1 } else { work.batch() } };
    let engine = Engine::new(&device, &model, compute, purpose, work.precision)?;
    let mut engine = engine.on_threads(work.threads)?.measured();
    engine.make_room_for(&model, shares.map(|shares| shares as &dyn Graphs))?;
    let offsets = offsets(options, made_up, shares);
    let series = made_up.series.iter().map(|(values, _)| values.as_slice()).collect();
    let targets = &made_up.targets[..offsets.ends[0].len() * made_up.shape.outputs];
    let graphs = shares.map(|shares| GraphBatch::read(shares, &[0], None)).transpose()?;
    let batch = BatchView::new(&made_up.shape, series, &offsets, BatchStorage::Series, targets);
    let batch = batch.with_graphs(graphs.as_ref());
    let mut measured = Measured { tasks: Vec::new(), step_s: f64::INFINITY, rest_s: f64::INFINITY };
    for step in 0..=options.steps {
        let dropout = StepDropout { between_layers: None, in_graphs: StepSeed { seed: 0, step } };
        let objective = Objective { loss: Loss::Mse, count: targets.len(), position: 0, dropout, scale: 1.0 };
        let begin = Instant::now();
        gradients.clear();
        engine.load(&model, &parameters);
        let changes = Changes { gradients: &mut gradients, carried: None };
        let totals = engine.accumulate(&model, &parameters, &batch, objective, changes, Totals::default());
        engine.on_pool(|| {
            let examined = unscale_and_check(&[gradients.values()], 1.0, Threads::Pool);
            let factors = examined.factors(Some(1.0)).unwrap_or_else(GradientFactors::none);
            let moments = Moments { exp_avg: exp_avg.values_mut(), exp_avg_sq: exp_avg_sq.values_mut() };
            let (values, gradient) = (parameters.values_mut(), gradients.values());
            let tensor = ParameterTensor { values, gradient, moments: Some(moments), working_copy: None };
            update([tensor], &OptimizerStep { settings: adam(), number: step + 1, factors }, Threads::Pool);
        });
        let step_s = begin.elapsed().as_secs_f64();
        measured.note(engine.take_tasks(), step_s, (totals.forward + totals.backward).as_secs_f64());
    }
    Ok(measured)
}

fn adam() -> OptimizerSettings {
    let rule = Rule::Adam;
    OptimizerSettings { rule, lr: 1e-4, weight_decay: 0.0, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
}

impl Measured {
    /// Takes a step into account, of which `tasks_s` were its tasks.
    fn note(&mut self, tasks: Vec<MeasuredTask>, step_s: f64, tasks_s: f64) {
        self.step_s = self.step_s.min(step_s);
        self.rest_s = self.rest_s.min((step_s - tasks_s).max(0.0));
        if self.tasks.is_empty() {
            self.tasks = tasks;
        } else {
            let pairs = self.tasks.iter_mut().zip(tasks);
            pairs.for_each(|(best, task)| best.seconds = best.seconds.min(task.seconds));
        }
    }
}

/// The windows of the batch.
fn offsets(options: &ScalingOptions, made_up: &MadeUp, shares: Option<&Shares>) -> WindowOffsets {
    let place = |n: usize| match options.samples {
        SampleOrder::Shuffled if shares.is_none() => {
            n * SHUFFLED_APART % made_up.targets.len().div_ceil(made_up.shape.outputs)
        }
        _ => n,
    };
    let count = if shares.is_some() { made_up.targets.len() } else { options.work.batch() };
    let ends = made_up
        .series
        .iter()
        .map(|(_, ends)| (0..count).map(|n| usize::try_from(ends[place(n)]).expect("a row")).collect::<Vec<_>>());
    let ends: Vec<Vec<usize>> = ends.collect();
    let starts = ends.iter().zip(&made_up.shape.timeframes);
    let starts = starts.map(|(ends, of)| ends.iter().map(|end| end + 1 - of.steps).collect()).collect();
    WindowOffsets { starts, ends }
}

fn row(options: &ScalingOptions, threads: usize, measured: &Measured, alone_s: Option<f64>, machine: &Machine) -> Row {
    let of = forecast(&measured.tasks, threads, machine.hand_over_s);
    let memory = options.memory_gb_per_s.map_or(machine.memory_bytes_per_s * threads as f64, |rate| rate * 1e9);
    let memory_s = of.bytes / memory;
    let tasks_s = of.seconds.max(memory_s);
    let bounds = [("memory", memory_s), ("critical path", of.critical_path_s), ("work", of.work_s / threads as f64)];
    let largest = bounds.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("three bounds");
    let step_s = tasks_s + measured.rest_s;
    Row {
        threads,
        step_s,
        samples_per_s: options.shares.unwrap_or(options.work.batch()) as f64 / step_s,
        speed_up: alone_s.unwrap_or(step_s) / step_s,
        critical_path_s: of.critical_path_s,
        idle_share: of.idle_share(threads),
        tasks: measured.tasks.len(),
        rest_s: measured.rest_s,
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
        "threads  step ms  samples/s  speed-up  critical path ms  idle  tasks  work ms  rest ms   GB/s  bound"
            .to_owned();
    for row in rows {
        text.push_str(&format!(
            "\n{:7}  {:7.2}  {:9.0}  {:8.2}  {:16.2}  {:3.0}%  {:5}  {:7.1}  {:7.2}  {:5.1}  {}",
            row.threads,
            row.step_s * 1e3,
            row.samples_per_s,
            row.speed_up,
            row.critical_path_s * 1e3,
            row.idle_share * 100.0,
            row.tasks,
            row.work_s * 1e3,
            row.rest_s * 1e3,
            row.gb_per_s,
            row.bound
        ));
    }
    text
}
