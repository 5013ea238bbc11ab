//! Measures how much of the relay of gradients is hidden behind their computation.
//!
//! `cargo run --release -p megabatch-trainer --example relay_overlap -- [ROUNDS] [GBIT_PER_S]
//! [LATENCY_US]`
//!
//! First, when each group of parameters has its gradients, as a part of the time of the fastest of
//! some batches: on one thread, on two threads with a block each, and on two that share one. Then
//! the time of the fastest of some steps of two ranks of one thread each, in turn: without a
//! network, with a relay after the computation, and with one during it. The ranks are threads of
//! this process; a message arrives when the link's rate and latency let it.
//!
//! Five timeframes of 48 bars of 8 features, H = 128, blocks of 32 samples.
//!
//! `… -- table` prints simulated times of a step by number of ranks instead.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::{BatchStorage, BatchView, WindowOffsets};
use megabatch_nn::loss::{Loss, Objective};
use megabatch_nn::model::{Model, ModelConfig, SampleShape, StepDropout, StepSeed, Timeframe};
use megabatch_nn_cpu::{BlockSinks, CheckpointPolicy, Compute, Engine, FinalGradients, Purpose};
use megabatch_trainer::{
    Config, Event, IdleRanks, InMemory, Relay, Result, Run, SampleRanges, Trainer, bytes_in_a_row_a_step,
};

#[path = "../tests/thread_peers/mod.rs"]
#[allow(dead_code, reason = "made for all tests with several ranks, and not all of it is needed here")]
mod thread_peers;

use thread_peers::{Faults, Link, ThreadPeers, relay_seconds};

const BLOCK: usize = 32;
const STEPS: u64 = 25;
const BATCHES: usize = 25;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "table") {
        print_table();
        return Ok(());
    }
    let number = |at: usize, default: f64| words.get(at).map_or(default, |word| word.parse().expect("a number"));
    let (rounds, gbit_per_s, latency_us) = (number(0, 5.0) as usize, number(1, 1.0), number(2, 50.0));
    assert!(rounds > 0, "one round or more");
    for (threads, blocks) in [(1, 1), (2, 2), (2, 1)] {
        print_readiness(threads, blocks)?;
    }
    let link = Link { latency: Duration::from_secs_f64(latency_us * 1e-6), bytes_per_s: gbit_per_s * 1.25e8 };
    let parameters = Model::new(shape(), ModelConfig::default())?.layout().len();
    let in_a_row = bytes_in_a_row_a_step(parameters, 2);
    println!(
        "\n2 ranks of 1 thread, 1 block each, {parameters} parameters, {gbit_per_s} Gbit/s, {latency_us} µs: the relay's bytes take {:.1} ms",
        1e3 * in_a_row as f64 / link.bytes_per_s
    );
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let mut cases = [(None, true), (Some(link), false), (Some(link), true)];
        // Each is the first in turn.
        cases.rotate_left(round % 3);
        let mut found = [0.0; 3];
        for (n, (link, overlaps)) in cases.into_iter().enumerate() {
            found[(n + round) % 3] = step_seconds(link, overlaps)?;
        }
        let [without, after, during] = found.map(|seconds| 1e3 * seconds);
        ratios.push(during / after);
        println!(
            "no network {without:.1} ms, relay after it {after:.1} ms, relay during it {during:.1} ms; ratio {:.3}",
            during / after
        );
    }
    println!("ratio {:.3}, the median of {rounds} rounds", median(ratios));
    Ok(())
}

/// Part of a batch after which its forward pass is over, as it was measured.
const FORWARD: f64 = 0.40;

/// Step times by ranks, simulated: a second of computation in 1,024 blocks, ranks of 16 threads, a
/// million parameters in five timeframes, of which each is done after a fifth of the backward pass.
fn print_table() {
    const BLOCKS: usize = 1024;
    const THREADS: usize = 16;
    const PARAMETERS: usize = 1_000_000;
    for ranks in (0..=10).map(|n| 1usize << n) {
        let blocks = BLOCKS / ranks;
        let computation = blocks as f64 / BLOCKS as f64;
        let last_round = computation / blocks.div_ceil(THREADS) as f64;
        let during = |part: f64| {
            let backward = (5.0 * part).ceil() / 5.0;
            computation - last_round * (1.0 - FORWARD) * (1.0 - backward)
        };
        let mut line = format!("| {ranks} |");
        for (gbit_per_s, latency_us) in [(10.0, 30.0), (100.0, 2.0)] {
            let link = Link { latency: Duration::from_secs_f64(latency_us * 1e-6), bytes_per_s: gbit_per_s * 1.25e8 };
            let agreement = 2.0 * link.latency.as_secs_f64() * (ranks as f64).log2();
            let after = relay_seconds(PARAMETERS, ranks, link, |_| computation);
            let during = relay_seconds(PARAMETERS, ranks, link, during);
            for seconds in [after, during].map(|seconds| seconds.max(computation) + agreement) {
                line.push_str(&format!(" {:.1} ms, {:.1} |", 1e3 * seconds, 1.0 / seconds));
            }
        }
        println!("{line}");
    }
}

fn shape() -> SampleShape {
    let timeframe = |name: &str| Timeframe { name: name.to_owned(), steps: 48, features: 8 };
    SampleShape { timeframes: ["M1", "M5", "M15", "H1", "H4"].map(timeframe).to_vec(), outputs: 1 }
}

/// Numbers in (-1, 1) without pattern.
fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f64 * 12.9898 + 1.0).sin() as f32).collect()
}

fn windows(samples: usize) -> Vec<Vec<f32>> {
    (0..shape().timeframes.len()).map(|k| numbers(samples * shape().window_len(k))).collect()
}

/// The middle of some numbers.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Prints when `threads` threads are done with each group of the gradients of `blocks` blocks.
fn print_readiness(threads: usize, blocks: usize) -> Result<()> {
    let (device, shape, samples) = (Device::cpu(), shape(), blocks * BLOCK);
    let model = Model::new(shape.clone(), ModelConfig::default())?;
    let parameters = model.initial_parameters(&device.scope("parameters"), 1)?;
    let purpose = Purpose::Training { dropout: false, runs: None, kept: CheckpointPolicy::Everything };
    let mut engine = Engine::new(&device, &model, Compute { threads, batch_size: samples }, purpose, Precision::Fp32)?;
    engine.load(&model, &parameters);
    let (windows, targets) = (windows(samples), numbers(samples));
    let mut offsets = WindowOffsets::with_capacity(&shape, samples);
    offsets.lay_windows(&shape, samples);
    offsets.end_at_samples(&(0..samples).collect::<Vec<_>>());
    let features = windows.iter().map(Vec::as_slice).collect();
    let batch = BatchView::new(&shape, features, &offsets, BatchStorage::Windows, &targets);
    let dropout = StepDropout { between_layers: None, in_graphs: StepSeed { seed: 1, step: 0 } };
    let objective = Objective { loss: Loss::Mse, count: samples, position: 0, dropout, scale: 1.0 };

    let groups = model.gradient_groups();
    // The fastest batch: its time, that of its forward pass, and those at which groups are final.
    let mut fastest = (f64::INFINITY, 0.0, Vec::new());
    for _ in 0..BATCHES {
        let ends = Mutex::new(vec![0.0f64; groups.len()]);
        let begin = Instant::now();
        let finals = |gradients: FinalGradients<'_>| {
            let group = groups.iter().position(|group| *group == gradients.range).expect("a group of the model");
            let mut ends = ends.lock().expect("nobody panics with the lock held");
            ends[group] = begin.elapsed().as_secs_f64().max(ends[group]);
        };
        let sinks = BlockSinks { blocks: &mut |_| (), finals: Some(&finals) };
        let times = engine.accumulate_blocks(&model, &parameters, &batch, objective, sinks);
        let all = begin.elapsed().as_secs_f64();
        if all < fastest.0 {
            let ends = ends.into_inner().expect("nobody panicked with the lock held");
            fastest = (all, times.forward.as_secs_f64(), ends);
        }
    }
    let (all, forward, ends) = fastest;
    println!("{threads} threads, {blocks} blocks, {:.1} ms: the forward pass ends at {:.2}", 1e3 * all, forward / all);
    for (group, end) in groups.iter().zip(ends) {
        let (first, _) = model.layout().element(group.start);
        println!("    {:.2}  {first} and the {} numbers from it on", end / all, group.len());
    }
    Ok(())
}

/// The time of the fastest step of two ranks of one thread with a block each.
fn step_seconds(link: Option<Link>, overlaps: bool) -> Result<f64> {
    let faults = Faults { link, ..Faults::default() };
    let samples = InMemory::new(shape(), windows(2 * BLOCK), numbers(2 * BLOCK))?;
    let train = SampleRanges::from(0..2 * BLOCK);
    let found = ThreadPeers::run(2, &faults, |peers| {
        let config =
            Config { batch_size: 2 * BLOCK, threads: 1, epochs: STEPS, max_steps: Some(STEPS), ..Config::default() };
        let mut trainer = Trainer::new(&Device::cpu(), config, shape())?;
        trainer.join(Box::new(peers), IdleRanks::Refuse)?;
        trainer.set_relay(Relay { overlaps, ..Relay::default() });
        let (mut last, mut times) = (Instant::now(), Vec::new());
        let mut observe = |event: Event<'_>| {
            if let Event::Step(_) = event {
                times.push(last.elapsed().as_secs_f64());
                last = Instant::now();
            }
            ControlFlow::Continue(())
        };
        trainer.train(
            &Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None },
            &mut observe,
        )?;
        Ok::<_, megabatch_trainer::Error>(times.into_iter().fold(f64::INFINITY, f64::min))
    });
    Ok(found[0])
}
