//! Made-up samples for tests, and a source of them that fails on request.

use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use megabatch_gpu_core::Device;
use megabatch_nn::model::{Cell, Fusion, ModelConfig, Pooling, SampleShape, Timeframe};
use megabatch_trainer::{
    Batch, Config, Event, InMemory, Run, SampleRanges, Samples, SeriesInMemory, StepEvent, Trainer,
};

/// Two timeframes whose targets depend on the windows' last bars.
pub(crate) fn samples(count: usize) -> InMemory {
    let timeframe = |name: &str, steps, features| Timeframe { name: name.to_owned(), steps, features };
    let shape = SampleShape { timeframes: vec![timeframe("M1", 6, 3), timeframe("H1", 4, 2)], outputs: 2 };
    let wave = |len: usize, pace: f32| (0..len).map(|i| (i as f32 * pace).sin()).collect::<Vec<f32>>();
    let (m1, h1) = (wave(count * 18, 0.7), wave(count * 8, 1.3));
    let targets = (0..count).flat_map(|n| [m1[n * 18 + 15], 0.5 * h1[n * 8 + 6] - m1[n * 18 + 16]]).collect();
    InMemory::new(shape, vec![m1, h1], targets).unwrap()
}

/// As [`samples`], of one timeframe whose windows have 48 steps.
pub(crate) fn long_windows(count: usize) -> InMemory {
    let timeframe = Timeframe { name: "M1".to_owned(), steps: 48, features: 3 };
    let shape = SampleShape { timeframes: vec![timeframe], outputs: 2 };
    let windows: Vec<f32> = (0..count * 48 * 3).map(|i| (i as f32 * 0.7).sin()).collect();
    let targets = (0..count * 2).map(|i| (i as f32 * 0.3).cos()).collect();
    InMemory::new(shape, vec![windows], targets).unwrap()
}

/// A hundred samples as slices of series: three windows end at each bar of M1 and six at each of
/// H1, of which the 60th sample's begins a second segment, two bars after its start.
pub(crate) fn series() -> SeriesInMemory {
    let shape = samples(1).shape().clone();
    let wave = |len: usize, pace: f32| (0..len).map(|i| (i as f32 * pace).sin()).collect::<Vec<f32>>();
    let (mut series, mut starts) = (Vec::new(), Vec::new());
    for (timeframe, (sharing, pace)) in shape.timeframes.iter().zip([(3, 0.7), (6, 1.3)]) {
        let end = |n: usize| timeframe.steps - 1 + n / sharing + if n < 60 { 0 } else { timeframe.steps + 2 };
        starts.push(vec![0, (end(60) - 1 - timeframe.steps) as i64]);
        let ends = (0..100).map(|n| end(n) as i64).collect();
        series.push((wave((end(99) + 1) * timeframe.features, pace), ends));
    }
    SeriesInMemory::new(shape, series, wave(200, 0.3)).unwrap().with_segments(starts).unwrap()
}

/// A small model and small steps; tests change what they are about.
pub(crate) fn config() -> Config {
    let model = ModelConfig { hidden: 5, layers: 2, ..ModelConfig::default() };
    Config { model, batch_size: 8, threads: 2, seed: 11, ..Config::default() }
}

/// A cell of each kind.
pub(crate) fn cell_of(gru: bool) -> Cell {
    if gru { Cell::Gru } else { Cell::Lstm }
}

/// The last state; attention of a few heads; or of as many as there are units.
pub(crate) fn pooling_of(choice: usize, hidden: usize) -> Pooling {
    [Pooling::Last, Pooling::attention(hidden), Pooling::Attention { heads: hidden }][choice]
}

/// Side by side, or attention. The norms in it turn vectors of very few units into their signs, and
/// gradients into what rounding leaves of them.
pub(crate) fn fusion_of(fuses: bool, hidden: usize) -> Fusion {
    if fuses && hidden > 3 { Fusion::attention(hidden) } else { Fusion::Concat }
}

/// An observer that only listens.
pub(crate) fn listen(_: Event<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Trains, and gives what was told of each step.
pub(crate) fn steps_of(trainer: &mut Trainer, run: &Run<'_>) -> Vec<StepEvent> {
    let mut steps = Vec::new();
    let observe = &mut |event: Event<'_>| {
        if let Event::Step(step) = event {
            steps.push(step);
        }
        ControlFlow::Continue(())
    };
    trainer.train(run, observe).unwrap();
    steps
}

/// Trains on all of `samples`, and gives the trainer and what it told of each step.
pub(crate) fn trained_on_all(config: &Config, samples: &dyn Samples) -> (Trainer, Vec<StepEvent>) {
    let train = SampleRanges::from(0..samples.len());
    let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let steps = steps_of(&mut trainer, &run);
    (trainer, steps)
}

pub(crate) fn losses(steps: &[StepEvent]) -> Vec<f64> {
    steps.iter().map(|step| step.loss).collect()
}

/// `shape` and `len` of samples that have those of a field.
macro_rules! shape_and_len_from {
    ($inner:tt) => {
        fn shape(&self) -> &megabatch_nn::model::SampleShape {
            self.$inner.shape()
        }

        fn len(&self) -> usize {
            self.$inner.len()
        }
    };
}
pub(crate) use shape_and_len_from;

/// Samples that change on the way, or fail.
pub(crate) struct Disturbed {
    inner: InMemory,
    calls: AtomicUsize,
    disturbance: Disturbance,
}

/// Disturbance at a call of `gather`, counted from 0.
pub(crate) enum Disturbance {
    /// The call fails.
    Fail { at_call: usize },
    /// The call delivers this number in the first place of the k-th window, or of the targets past
    /// the windows.
    Deliver { at_call: usize, place: usize, value: f32 },
}

impl Disturbed {
    pub(crate) fn new(inner: InMemory, disturbance: Disturbance) -> Self {
        Disturbed { inner, calls: AtomicUsize::new(0), disturbance }
    }
}

impl Samples for Disturbed {
    shape_and_len_from!(inner);

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let call = self.calls.fetch_add(1, Relaxed);
        self.inner.gather(samples, batch)?;
        match self.disturbance {
            Disturbance::Fail { at_call } if call == at_call => return Err("the disk is on fire".into()),
            Disturbance::Deliver { at_call, place, value } if call == at_call => {
                let windows = batch.shape().timeframes.len();
                let to = if place < windows { batch.features_mut(place) } else { batch.targets_mut() };
                to[0] = value;
            }
            _ => {}
        }
        Ok(())
    }
}
