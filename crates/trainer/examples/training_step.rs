//! Training steps of one shape on made-up series, for profilers and for counting instructions.
//!
//! `cargo run --release -p megabatch-trainer --example training_step -- [STEPS] [key=value…]`, with
//! the keys of `Shape`.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Instant;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::{ModelConfig, SampleShape, Timeframe};
use megabatch_trainer::{Config, Event, Result, Run, SampleRanges, Samples, SeriesInMemory, Trainer};

const TARGETS: usize = 36;
const USAGE: &str = "training_step [STEPS] [timeframes|bars|features|hidden|layers|batch|threads|apart=NUMBER…]\
 [precision=fp32|bf16|fp16]";

/// Shape of the model.
#[derive(Clone, Copy)]
struct Shape {
    /// LSTMs: of windows of all bars, half as many, a third and so on.
    timeframes: usize,
    bars: usize,
    features: usize,
    hidden: usize,
    layers: usize,
    batch: usize,
    threads: usize,
    /// Bars between the ends of neighbouring samples.
    apart: usize,
    precision: Precision,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            timeframes: 1,
            bars: 40,
            features: 24,
            hidden: 48,
            layers: 1,
            batch: 32,
            threads: 1,
            apart: 1,
            precision: Precision::Fp32,
        }
    }
}

impl Shape {
    /// Sets the value of `key=value`, if that is one.
    fn set(&mut self, argument: &str) -> Option<()> {
        let (key, value) = argument.split_once('=')?;
        if key == "precision" {
            self.precision = Precision::ALL.into_iter().find(|precision| precision.name() == value)?;
            return Some(());
        }
        let field = match key {
            "timeframes" => &mut self.timeframes,
            "bars" => &mut self.bars,
            "features" => &mut self.features,
            "hidden" => &mut self.hidden,
            "layers" => &mut self.layers,
            "batch" => &mut self.batch,
            "threads" => &mut self.threads,
            "apart" => &mut self.apart,
            _ => return None,
        };
        *field = value.parse().ok().filter(|&value| value > 0)?;
        Some(())
    }
}

fn main() -> ExitCode {
    let (mut steps, mut shape) = (1, Shape::default());
    for argument in std::env::args().skip(1) {
        if let Ok(number) = argument.parse() {
            steps = number;
        } else if shape.set(&argument).is_none() {
            eprintln!("`{argument}` is neither a number of steps nor a key=value\n{USAGE}");
            return ExitCode::from(2);
        }
    }
    match train(shape, steps) {
        Ok(step_s_min) => println!("{steps} steps, the fastest in {:.3} ms", step_s_min * 1e3),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Golden ratio's multiplicative hash of the index: numbers in [-1, 1) that look random.
fn noise(len: usize) -> Vec<f32> {
    (0..len as u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn series(shape: Shape) -> Result<SeriesInMemory> {
    let steps = |k: usize| (shape.bars / (k + 1)).max(1);
    let timeframe = |k| Timeframe { name: format!("M{}", k + 1), steps: steps(k), features: shape.features };
    let samples = SampleShape { timeframes: (0..shape.timeframes).map(timeframe).collect(), outputs: TARGETS };
    let timeframe_series = |k: usize| {
        let ends: Vec<i64> = (0..shape.batch).map(|n| (steps(k) - 1 + n * shape.apart / (k + 1)) as i64).collect();
        (noise((ends[shape.batch - 1] as usize + 1) * shape.features), ends)
    };
    SeriesInMemory::new(samples, (0..shape.timeframes).map(timeframe_series).collect(), noise(shape.batch * TARGETS))
}

/// The seconds of the fastest of `steps` training steps.
fn train(shape: Shape, steps: u64) -> Result<f64> {
    let samples = series(shape)?;
    let model = ModelConfig { hidden: shape.hidden, layers: shape.layers, ..ModelConfig::default() };
    let Shape { batch: batch_size, threads, precision, .. } = shape;
    let config = Config { model, batch_size, threads, precision, max_steps: Some(steps), ..Config::default() };
    let mut trainer = Trainer::new(&Device::cpu(), config, samples.shape().clone())?;
    let train = SampleRanges::from(0..batch_size);
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let (mut before, mut step_s_min) = (Instant::now(), f64::INFINITY);
    trainer.train(&run, &mut |event| {
        if let Event::Step(_) = event {
            step_s_min = step_s_min.min(before.elapsed().as_secs_f64());
            before = Instant::now();
        }
        ControlFlow::Continue(())
    })?;
    Ok(step_s_min)
}
