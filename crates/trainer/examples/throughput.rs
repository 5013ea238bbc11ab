//! Samples per second of training steps, for five timeframes and for one, on made-up series: bf16
//! beside single precision, in alternating rounds of one process; milliseconds of a prediction for
//! one sample, also in eight bits; and bars per second of a model that follows them.
//!
//! `cargo run --release -p megabatch-trainer --example throughput -- [THREADS]
//! [multi|single|one|stream] [ROUNDS]`

use std::ops::ControlFlow;
use std::time::Instant;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::{Model, ModelConfig, SampleShape, Timeframe, save_weights};
use megabatch_nn_cpu::{Compute, StreamingPredictor};
use megabatch_trainer::{
    Config, Error, Event, Predictor, Result, Run, SampleRanges, Samples, Selection, SeriesInMemory, Trainer,
};

const STEPS: u64 = 5;
const PRECISIONS: [Precision; 2] = [Precision::Fp32, Precision::Bf16];
/// Bars of the shortest timeframe between the ends of neighbouring batches' samples, when they are
/// shuffled.
const APART: usize = 1009;

/// A measured case: name, T and bars of the first timeframe in one of this, F, samples in a batch.
struct Case {
    name: &'static str,
    timeframes: &'static [(&'static str, usize, usize)],
    features: usize,
    batch_size: usize,
}

const CASES: [Case; 2] = [
    Case {
        name: "multi",
        timeframes: &[("M1", 480, 1), ("M5", 288, 5), ("M15", 192, 15), ("H1", 96, 60), ("H4", 48, 240)],
        features: 128,
        batch_size: 64,
    },
    Case { name: "single", timeframes: &[("", 360, 1)], features: 167, batch_size: 128 },
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let threads = arguments.first().and_then(|threads| threads.parse().ok()).unwrap_or(2);
    let rounds = arguments.get(2).and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let asked = |index: usize, name: &str| arguments.get(index).is_none_or(|asked| asked == name);
    for case in CASES.iter().filter(|case| asked(1, case.name)) {
        measure(case, 1, "consecutive", threads, rounds)?;
        measure(case, APART, "shuffled", threads, rounds)?;
    }
    if asked(1, "one") {
        measure_one(threads, rounds)?;
    }
    if asked(1, "stream") {
        measure_streaming()?;
    }
    Ok(())
}

/// Prints how long a prediction for one sample of one timeframe takes: the fastest of each round's
/// fifty, and the median over the rounds of the ratio to single precision.
fn measure_one(threads: usize, rounds: usize) -> Result<()> {
    const PREDICTIONS: usize = 50;
    let case = Case { batch_size: PREDICTIONS + 1, ..CASES[1] };
    let samples = series(&case, 1)?;
    let indices = SampleRanges::from(0..case.batch_size);
    let device = Device::cpu();
    let model = || Model::new(Samples::shape(&samples).clone(), ModelConfig { hidden: 128, ..ModelConfig::default() });
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("weights.safetensors");
    save_weights(&path, &model()?.initial_parameters(&device.scope("parameters"), 1)?)?;
    let open = || Predictor::open(&device, model()?, &path, Compute { threads, batch_size: 1 });
    let mut predictors =
        [("fp32", open()?), ("bf16", open()?.with_precision(Precision::Bf16)?), ("int8", open()?.with_int8()?)];
    let mut times_ms = [(); 3].map(|()| Vec::new());
    let mut ratios = [(); 3].map(|()| Vec::new());
    for _ in 0..rounds {
        for (n, (_, predictor)) in predictors.iter_mut().enumerate() {
            let mut done = Vec::new();
            predictor.predict(Selection { samples: &samples, indices: &indices }, |_, _| {
                done.push(Instant::now());
                Ok::<(), Error>(())
            })?;
            let each = done.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3);
            times_ms[n].push(each.fold(f64::INFINITY, f64::min));
            ratios[n].push(times_ms[0][times_ms[0].len() - 1] / times_ms[n][times_ms[n].len() - 1]);
        }
    }
    for ((name, _), (times_ms, ratios)) in predictors.iter().zip(times_ms.iter_mut().zip(&mut ratios)) {
        let (time, ratio) = (median(times_ms), median(ratios));
        println!("one sample, {threads} threads, {name}: {time:.3} ms, beside fp32 {ratio:.2}");
    }
    Ok(())
}

/// Prints how long a model of one timeframe takes for the M1 bars of a year, one step a bar.
fn measure_streaming() -> Result<()> {
    const BARS: usize = 372_000;
    const FEATURES: usize = 16;
    let timeframe = Timeframe { name: "M1".to_owned(), steps: 480, features: FEATURES };
    let shape = SampleShape { timeframes: vec![timeframe], outputs: 36 };
    let model = Model::new(shape, ModelConfig { hidden: 128, layers: 1, ..ModelConfig::default() })?;
    let device = Device::cpu();
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let path = folder.path().join("weights.safetensors");
    save_weights(&path, &model.initial_parameters(&device.scope("parameters"), 1)?)?;
    let mut follower = StreamingPredictor::open(&device, model, &path)?;
    let bars: Vec<f32> = (0..BARS * FEATURES).map(|i| (i as f32 * 0.7).sin()).collect();
    let start = Instant::now();
    follower.push(0, &bars);
    let seconds = start.elapsed().as_secs_f64();
    println!("stream: {BARS} bars in {seconds:.2} s, {:.0} bars/s", BARS as f64 / seconds);
    Ok(())
}

/// Samples whose ends are `stride` bars of the first timeframe apart.
fn series(case: &Case, stride: usize) -> Result<SeriesInMemory> {
    let numbers = |len: usize| (0..len).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<f32>>();
    let timeframe =
        |&(name, steps, _): &(&str, usize, usize)| Timeframe { name: name.to_owned(), steps, features: case.features };
    let shape = SampleShape { timeframes: case.timeframes.iter().map(timeframe).collect(), outputs: 36 };
    let series = case.timeframes.iter().map(|&(_, steps, minutes)| {
        let end = |n: usize| (steps - 1 + n * stride / minutes) as i64;
        let bars = end(case.batch_size) as usize + 1;
        (numbers(bars * case.features), (0..case.batch_size).map(end).collect())
    });
    SeriesInMemory::new(shape, series.collect(), numbers(case.batch_size * 36))
}

/// Prints the median step of each precision, and the median over the rounds of their ratio.
fn measure(case: &Case, stride: usize, order: &str, threads: usize, rounds: usize) -> Result<()> {
    let samples = series(case, stride)?;
    let mut rates = PRECISIONS.map(|_| Vec::new());
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let mut round = [0.0; PRECISIONS.len()];
        for ((precision, rates), own) in PRECISIONS.into_iter().zip(&mut rates).zip(&mut round) {
            let mut steps = steps(case, &samples, threads, precision)?;
            *own = median(&mut steps);
            rates.extend(steps);
        }
        ratios.push(round[1] / round[0]);
    }
    for (precision, rates) in PRECISIONS.into_iter().zip(&mut rates) {
        let rate = median(rates);
        let best = rates[rates.len() - 1];
        println!("{} {order}, {threads} threads, {precision}: {rate:.0} samples/s, best {best:.0}", case.name);
    }
    let ratio = median(&mut ratios);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    println!(
        "{} {order}, {threads} threads: bf16 beside fp32 {ratio:.2}, in the rounds {least:.2} to {most:.2}",
        case.name
    );
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Samples per second of the steps after the first.
fn steps(case: &Case, samples: &SeriesInMemory, threads: usize, precision: Precision) -> Result<Vec<f64>> {
    let model = ModelConfig { hidden: 128, layers: 1, ..ModelConfig::default() };
    let batch_size = case.batch_size;
    let config = Config { model, batch_size, threads, precision, max_steps: Some(STEPS), ..Config::default() };

    let device = Device::cpu();
    let mut trainer = Trainer::new(&device, config, Samples::shape(samples).clone())?;
    let train = SampleRanges::from(0..batch_size);
    let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut rates = Vec::new();
    trainer.train(&run, &mut |event| {
        if let Event::Step(step) = event {
            rates.push(step.samples_per_s);
        }
        ControlFlow::Continue(())
    })?;
    rates.remove(0);
    Ok(rates)
}
