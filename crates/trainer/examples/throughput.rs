#![forbid(unsafe_code)]

//! Samples per second of one training step, for five timeframes and for one, on made-up numbers.
//!
//! `cargo run -p megabatch-trainer --example throughput -- [THREADS]`

use std::ops::ControlFlow;

use megabatch_gpu_core::Device;
use megabatch_trainer::{
    Config, Event, InMemory, ModelConfig, Result, Run, SampleShape, StepEvent, Timeframe, Trainer,
};

const STEPS: u64 = 6;

fn main() -> Result<()> {
    let threads = std::env::args().nth(1).and_then(|threads| threads.parse().ok()).unwrap_or(2);
    let five = [("M1", 480), ("M5", 288), ("M15", 192), ("H1", 96), ("H4", 48)];
    measure("five timeframes, F = 128, H = 128, batch 64", shape(&five, 128), 64, threads)?;
    measure("one timeframe, T = 360, F = 167, H = 128, batch 128", shape(&[("", 360)], 167), 128, threads)
}

fn shape(windows: &[(&str, usize)], features: usize) -> SampleShape {
    let timeframe = |&(name, steps): &(&str, usize)| Timeframe { name: name.to_owned(), steps, features };
    SampleShape { timeframes: windows.iter().map(timeframe).collect(), outputs: 36 }
}

/// Prints the median of the steps after the first.
fn measure(title: &str, shape: SampleShape, batch_size: usize, threads: usize) -> Result<()> {
    let numbers = |len: usize| (0..len).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<f32>>();
    let windows = shape.timeframes.iter().map(|tf| numbers(batch_size * tf.steps * tf.features)).collect();
    let samples = InMemory::new(shape.clone(), windows, numbers(batch_size * shape.outputs))?;
    let model = ModelConfig { hidden: 128, layers: 1, bias: true };
    let config = Config { model, batch_size, threads, max_steps: Some(STEPS), ..Config::default() };

    let device = Device::cpu();
    let mut trainer = Trainer::new(&device, config, shape)?;
    let train: Vec<usize> = (0..batch_size).collect();
    let run = Run { samples: &samples, train: &train, validation: &[], checkpoints: None };
    let mut steps: Vec<StepEvent> = Vec::new();
    trainer.train(&run, &mut |event| {
        if let Event::Step(step) = event {
            steps.push(step);
        }
        ControlFlow::Continue(())
    })?;
    steps.remove(0);
    steps.sort_by(|a, b| a.samples_per_s.total_cmp(&b.samples_per_s));
    let StepEvent { samples_per_s, forward_s, backward_s, optimizer_s, .. } = &steps[steps.len() / 2];
    let mib = device.usage().allocated_bytes_peak >> 20;
    println!(
        "{title}, {threads} threads: {samples_per_s:.0} samples/s (forward {forward_s:.3} s, backward {backward_s:.3} s, \
         optimizer {optimizer_s:.3} s; {mib} MiB at the peak)"
    );
    Ok(())
}
