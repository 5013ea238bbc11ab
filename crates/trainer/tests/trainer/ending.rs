//! When a run ends, and the learning rate on the way there.

use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use megabatch_gpu_core::Device;
use megabatch_trainer::{
    Batch, Checkpoints, Config, EarlyStopping, End, Event, IdleRanks, InMemory, LrSchedule, LrScheduleKind,
    OptimizerConfig, OptimizerKind, Outcome, Peers as _, Run, SampleRanges, Samples, Trainer,
};

use crate::made_up::{config, listen, samples, shape_and_len_from, steps_of};
use crate::thread_peers::{Faults, ThreadPeers};

static TRAIN: LazyLock<SampleRanges> = LazyLock::new(|| SampleRanges::from(0..16));
static VALIDATION: LazyLock<SampleRanges> = LazyLock::new(|| SampleRanges::from_iter([20, 22, 24, 26]));

fn run<'a>(samples: &'a InMemory, checkpoints: Option<&'a Checkpoints>) -> Run<'a> {
    Run { samples, train: &TRAIN, validation: &VALIDATION, checkpoints }
}

fn trainer(config: &Config) -> Trainer {
    Trainer::new(&Device::cpu(), config.clone(), samples(1).shape().clone()).unwrap()
}

/// Samples whose fourth batch is read until nobody wants it.
struct Halting {
    inner: InMemory,
    halts: AtomicBool,
    batches: AtomicUsize,
}

impl Samples for Halting {
    shape_and_len_from!(inner);

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let (start, number) = (Instant::now(), self.batches.fetch_add(1, Relaxed));
        while number == 3 && self.halts.load(Relaxed) {
            if batch.stop().load(Relaxed) {
                return Err("nobody wants it".into());
            }
            assert!(start.elapsed() < Duration::from_secs(60), "nobody stopped it");
            std::thread::yield_now();
        }
        self.inner.gather(samples, batch)
    }

    fn targets(&self) -> Option<&[f32]> {
        self.inner.targets()
    }
}

/// Two steps an epoch, each followed by a validation; with such a rate the loss soon stops falling.
fn restless(early_stopping: Option<EarlyStopping>) -> Config {
    let mut config = Config { max_steps: Some(40), validate_every_steps: Some(1), early_stopping, ..config() };
    config.optimizer.lr = 0.2;
    config
}

/// The loss of each validation.
fn validations(config: &Config) -> (Vec<f64>, Outcome) {
    let samples = samples(30);
    let mut losses = Vec::new();
    let outcome = trainer(config).train(&run(&samples, None), &mut |event| {
        if let Event::Validation(validation) = event {
            losses.push(validation.loss);
        }
        ControlFlow::Continue(())
    });
    (losses, outcome.unwrap())
}

/// The number of validations after which the rule, read word for word, ends a run.
fn end(losses: &[f64], EarlyStopping { patience, min_delta }: EarlyStopping) -> u64 {
    let (mut last, mut since) = (f64::INFINITY, 0);
    for (index, &loss) in (1..).zip(losses) {
        (last, since) = if loss < last - min_delta { (loss, 0) } else { (last, since + 1) };
        if since == patience {
            return index;
        }
    }
    panic!("a run of {} validations is too short for this test", losses.len());
}

#[test]
fn a_run_ends_when_its_validation_loss_no_longer_falls() {
    let (losses, outcome) = validations(&restless(None));
    assert_eq!((losses.len(), outcome.end), (40, End::Finished));
    for (patience, min_delta) in [(1, 0.0), (3, 0.0), (2, 0.05)] {
        let rule = EarlyStopping { patience, min_delta };
        let expected = end(&losses, rule);
        let (_, outcome) = validations(&restless(Some(rule)));
        assert_eq!((outcome.steps, outcome.end), (expected, End::StoppedEarly), "{rule:?}");
        let best = losses[..expected as usize].iter().copied().fold(f64::INFINITY, f64::min);
        assert_eq!(outcome.best.unwrap().loss, best, "small improvements make a best one too");
    }
}

#[test]
fn a_run_that_waits_for_samples_ends_where_it_stands() {
    let samples = Halting { inner: samples(30), halts: AtomicBool::new(true), batches: AtomicUsize::new(0) };
    let config = Config { max_steps: Some(6), ..config() };
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let validation = SampleRanges::NONE;
    let run = Run { samples: &samples, train: &TRAIN, validation, checkpoints: Some(&checkpoints) };
    let mut done = 0;
    let stopped = trainer(&config).train(&run, &mut |event| {
        match event {
            Event::Step(step) => done = step.step,
            Event::Waiting if done == 3 => return ControlFlow::Break(()),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    let stopped = stopped.unwrap();
    assert_eq!((stopped.steps, stopped.end), (3, End::Stopped));

    samples.halts.store(false, Relaxed);
    let (mut rest, mut whole) = (trainer(&config), trainer(&config));
    assert_eq!(rest.resume(&run).unwrap().unwrap().state.step, 3);
    let outcome = rest.train(&run, &mut listen).unwrap();
    assert_eq!(whole.train(&Run { checkpoints: None, ..run }, &mut listen).unwrap(), outcome);
    assert_eq!((outcome.steps, outcome.end), (6, End::Finished));
    assert_eq!(rest.parameters().values(), whole.parameters().values());
}

/// A rank waited on, and its signal ended the process a minute later, without a checkpoint.
#[test]
fn one_of_several_ranks_that_waits_for_samples_ends_all_where_they_stand() {
    let config = Config { max_steps: Some(6), ..config() };
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let validation = SampleRanges::NONE;
    let outcomes = ThreadPeers::run(2, &Faults::default(), |peers| {
        // Rank 1 has no block of a step, and waits for rank 0.
        let rank = peers.rank();
        let samples = Halting { inner: samples(30), halts: AtomicBool::new(rank == 0), batches: AtomicUsize::new(0) };
        let mut trainer = trainer(&config);
        trainer.join(Box::new(peers), IdleRanks::Allow).unwrap();
        let run = Run { samples: &samples, train: &TRAIN, validation, checkpoints: Some(&checkpoints) };
        let mut done = 0;
        trainer.train(&run, &mut |event| {
            match event {
                Event::Step(step) => done = step.step,
                Event::Waiting if rank == 0 && done == 3 => return ControlFlow::Break(()),
                _ => {}
            }
            ControlFlow::Continue(())
        })
    });
    let ends: Vec<_> = outcomes.iter().map(|outcome| (outcome.steps, outcome.end)).collect();
    assert_eq!(ends, [(3, End::Stopped); 2]);

    let samples = samples(30);
    let run = Run { samples: &samples, train: &TRAIN, validation, checkpoints: Some(&checkpoints) };
    let (mut rest, mut whole) = (trainer(&config), trainer(&config));
    assert_eq!(rest.resume(&run).unwrap().unwrap().state.step, 3);
    let outcome = rest.train(&run, &mut listen).unwrap();
    assert_eq!(whole.train(&Run { checkpoints: None, ..run }, &mut listen).unwrap(), outcome);
    assert_eq!(rest.parameters().values(), whole.parameters().values());
}

#[test]
fn a_resumed_run_ends_early_at_the_same_step_and_stays_ended() {
    let samples = samples(30);
    let rule = EarlyStopping { patience: 3, min_delta: 0.0 };
    let config = restless(Some(rule));
    let (_, whole) = validations(&config);
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints { keep_last: 1, ..Checkpoints::new(folder.path()) };
    let run = run(&samples, Some(&checkpoints));
    // Two of the three validations are over when it is interrupted.
    let interrupted = trainer(&config).train(&run, &mut |event| match event {
        Event::Step(step) if step.step == whole.steps - 1 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert_eq!(interrupted.unwrap().end, End::Stopped);
    let mut rest = trainer(&config);
    assert_eq!(rest.resume(&run).unwrap().unwrap().state.early_stopping.validations, 2);
    assert_eq!(rest.train(&run, &mut listen).unwrap(), whole);

    let mut ended = trainer(&config);
    assert_eq!(ended.resume(&run).unwrap().unwrap().state.step, whole.steps);
    assert_eq!(ended.train(&run, &mut |event| panic!("{event:?}")).unwrap(), whole);

    let patient = restless(Some(EarlyStopping { patience: 1000, ..rule }));
    let mut on = trainer(&patient);
    assert!(on.resume(&run).unwrap().unwrap().changed.is_empty());
    let outcome = on.train(&run, &mut listen).unwrap();
    assert_eq!((outcome.steps, outcome.end), (40, End::Finished));
}

#[test]
fn early_stopping_needs_something_to_watch() {
    let samples = samples(30);
    let mut trainer = trainer(&restless(Some(EarlyStopping { patience: 3, min_delta: 0.0 })));
    let error = trainer
        .train(&Run { validation: SampleRanges::NONE, ..run(&samples, None) }, &mut listen)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("`early_stopping` is 3: expected none where nothing is validated"), "{error}");
}

/// The rates that events tell, and the weights after the last step.
fn rates(config: &Config) -> (Vec<f64>, Vec<f32>) {
    let samples = samples(30);
    let mut trainer = trainer(config);
    let rates = steps_of(&mut trainer, &run(&samples, None)).iter().map(|step| step.lr).collect();
    (rates, trainer.parameters().values().to_vec())
}

#[test]
fn every_step_uses_the_rate_of_its_schedule() {
    let lr_schedule = LrSchedule { kind: LrScheduleKind::Cosine, warmup_steps: 2, lr_min: 0.0 };
    let (told, _) = rates(&Config { max_steps: Some(5), lr_schedule, ..config() });
    let expected = [0.0005, 0.001, 0.00075, 0.00025, 0.0];
    assert_eq!(told.len(), expected.len());
    assert!(told.iter().zip(expected).all(|(told, expected)| (told - expected).abs() < 1e-18), "{told:?}");

    // The first step of plain descent moves the weights by the rate times the gradient: a quarter
    // of that without warm-up.
    let optimizer =
        OptimizerConfig { kind: OptimizerKind::Sgd, lr: 1.0, weight_decay: 0.0, ..OptimizerConfig::default() };
    let after_one = |warmup_steps| {
        let lr_schedule = LrSchedule { warmup_steps, ..LrSchedule::default() };
        rates(&Config { max_steps: Some(1), optimizer, lr_schedule, ..config() }).1
    };
    let (whole, quarter) = (after_one(0), after_one(4));
    let before = trainer(&config()).parameters().values().to_vec();
    let moved =
        |after: &[f32]| after.iter().zip(&before).map(|(after, before)| f64::from(after - before)).collect::<Vec<_>>();
    // A weight of up to 1 rounds what it moved by to 6e-8.
    assert!(moved(&whole).iter().any(|moved| moved.abs() > 1e-3));
    assert!(moved(&quarter).iter().zip(moved(&whole)).all(|(quarter, whole)| (4.0 * quarter - whole).abs() < 5e-7));
}
