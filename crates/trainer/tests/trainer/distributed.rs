//! Several ranks, as threads of one process: they learn the bits of a process that is alone, or all
//! hear of what one of them could not do.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::model::{ModelConfig, Pooling};
use megabatch_trainer::{
    Checkpoints, Config, Divergence, End, Error, Event, IdleRanks, InMemory, LastBatch, Outcome, Peers as _, Relay,
    Run, SampleRanges, Samples, Trainer,
};
use proptest::prelude::*;

use crate::dense::instruments;
use crate::made_up::{Disturbance, Disturbed, config, listen, samples, series};
use crate::masks::with_targets;
use crate::resuming::state;
use crate::tasks::two;
use crate::thread_peers::{Faults, ThreadPeers};

/// Samples of a rank.
type MakeSamples<'a> = &'a (dyn Fn(usize) -> Box<dyn Samples> + Sync);

/// Results and events of one rank.
#[derive(Clone, PartialEq)]
struct Told {
    bits: Vec<u32>,
    updates: u64,
    /// Step, loss and norm to the bit.
    steps: Vec<(u64, u64, u64)>,
    /// Step, loss to the bit, and all errors.
    validations: Vec<(u64, u64, String)>,
    outcome: Outcome,
    worlds: Vec<usize>,
    cuts: usize,
}

impl fmt::Debug for Told {
    /// Without the bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps, {:?}, worlds {:?}, {} cuts", self.steps.len(), self.outcome, self.worlds, self.cuts)
    }
}

/// A run of several ranks.
struct World<'a> {
    samples: MakeSamples<'a>,
    /// Settings of a rank.
    config: &'a (dyn Fn(usize) -> Config + Sync),
    /// Device of a rank.
    device: &'a (dyn Fn(usize) -> Device + Sync),
    checkpoints: Option<&'a Path>,
    faults: Faults,
    idle: IdleRanks,
    relay: Relay,
    /// Rank whose observer wants to end after a step.
    stop: Option<(usize, u64)>,
    /// Every n-th sample is one to validate on.
    validates: usize,
}

impl<'a> World<'a> {
    fn new(samples: MakeSamples<'a>, config: &'a (dyn Fn(usize) -> Config + Sync)) -> Self {
        World {
            samples,
            config,
            device: &|_| Device::cpu(),
            checkpoints: None,
            faults: Faults::default(),
            idle: IdleRanks::Allow,
            // Many pieces of a small model.
            relay: Relay { piece_len: 300, overlaps: true },
            stop: None,
            validates: 5,
        }
    }

    /// Trains with `world` ranks.
    fn train(&self, world: usize) -> Vec<Result<Told, Error>> {
        ThreadPeers::run(world, &self.faults, |peers| {
            let rank = peers.rank();
            Ok::<_, ()>(self.train_one(rank, Some(peers)))
        })
    }

    fn alone(&self) -> Told {
        self.train_one(0, None).unwrap()
    }

    fn train_one(&self, rank: usize, peers: Option<ThreadPeers>) -> Result<Told, Error> {
        let samples = (self.samples)(rank);
        let (train, validation): (SampleRanges, SampleRanges) =
            (0..samples.len()).partition(|&n| n % self.validates > 0 || n == 0);
        let checkpoints =
            self.checkpoints.map(|folder| Checkpoints { every_steps: Some(2), ..Checkpoints::new(folder) });
        let run = Run { samples: &*samples, train: &train, validation: &validation, checkpoints: checkpoints.as_ref() };
        let mut trainer = Trainer::new(&(self.device)(rank), (self.config)(rank), samples.shape().clone())?;
        if let Some(peers) = peers {
            trainer.join(Box::new(peers), self.idle)?;
            trainer.set_relay(self.relay);
        }
        let (mut steps, mut validations, mut worlds, mut cuts) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut observe = |event: Event<'_>| {
            match event {
                Event::Step(step) => {
                    steps.push((step.step, step.loss.to_bits(), step.grad_norm.to_bits()));
                    if self.stop == Some((rank, step.step)) {
                        return ControlFlow::Break(());
                    }
                }
                Event::Validation(validation) => {
                    let errors = serde_json::to_string(&validation.metrics).expect("errors serialize");
                    validations.push((validation.step, validation.loss.to_bits(), errors));
                }
                Event::Reformed { world, .. } => worlds.push(world),
                Event::Shortage(_) => cuts += 1,
                _ => {}
            }
            ControlFlow::Continue(())
        };
        trainer.resume(&run)?;
        let outcome = trainer.train(&run, &mut observe)?;
        let (bits, updates) = state(&trainer);
        Ok(Told { bits, updates, steps, validations, outcome, worlds, cuts })
    }
}

/// Samples by rank.
type Make = fn(usize) -> Box<dyn Samples>;

/// Runs that compute in different ways: their samples and settings.
fn cases() -> Vec<(Make, Config)> {
    let from_windows: Make = |_| Box::new(samples(230));
    let from_series: Make = |_| Box::new(series());
    let from_instruments: Make = |_| Box::new(instruments(&[33, 7, 50, 21, 64, 25]));
    let holed: Make =
        |_| Box::new(with_targets(170, |n, k, target| if (n + k).is_multiple_of(3) { target } else { f32::NAN }));
    let config = Config { batch_size: 80, epochs: 2, validate_every_steps: Some(1), ..config() };
    let attention = ModelConfig { pooling: Pooling::attention(config.model.hidden), ..config.model };
    let dense = Config { loss_on: LossOn::EveryStep, run_length: Some(8), batch_size: 64, ..config.clone() };
    vec![
        (from_windows, config.clone()),
        // Batches that end within blocks, and steps of several.
        (
            from_windows,
            Config { batch_size: 50, gradient_accumulation_steps: 3, run_length: Some(1), ..config.clone() },
        ),
        (from_windows, Config { batch_size: 33, last_batch: LastBatch::Drop, clip_norm: Some(0.01), ..config.clone() }),
        (from_series, Config { batch_size: 100, model: attention, dropout: 0.3, ..config.clone() }),
        (from_series, Config { gradient_accumulation_steps: 2, model: attention, ..dense.clone() }),
        (from_instruments, Config { run_length: Some(3), batch_size: 96, ..dense.clone() }),
        (from_instruments, Config { run_length: Some(10), batch_size: 9, gradient_accumulation_steps: 5, ..dense }),
        (from_windows, Config { precision: Precision::Bf16, ..config.clone() }),
        (
            from_windows,
            Config { precision: Precision::Fp16, dropout: 0.25, gradient_accumulation_steps: 2, ..config.clone() },
        ),
        (holed, Config { loss: two(0.3), batch_size: 60, gradient_accumulation_steps: 2, ..config.clone() }),
        (holed, Config { gradient_checkpointing: true, ..config }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the model, the precision and the world: every rank has the bits of a process that
    /// is alone.
    #[test]
    fn ranks_learn_what_one_process_does(
        case in 0usize..11, world in 1usize..10, threads in 1usize..3,
        piece_len in prop_oneof![Just(1 << 16), 40usize..2000], overlaps in any::<bool>(),
    ) {
        let (samples, settings) = &cases()[case];
        let config_for = |rank| Config { threads: 1 + (rank + threads) % 3, ..settings.clone() };
        let world_of = World { relay: Relay { piece_len, overlaps }, ..World::new(samples, &config_for) };
        let alone = world_of.alone();
        prop_assert!(alone.steps.len() > 1 && !alone.validations.is_empty());
        for told in world_of.train(world) {
            prop_assert!(told.unwrap() == alone, "case {case}, {world} ranks");
        }
    }

    /// A rank that dies at any moment leaves others that learn the same.
    #[test]
    fn a_rank_that_dies_changes_nothing_that_is_learnt(
        case in 0usize..11, world in 2usize..5, dying in 0usize..4, operation in 1u64..120,
    ) {
        let (samples, settings) = &cases()[case];
        let config_for = |_| settings.clone();
        let dying = dying % world;
        let faults = Faults { deaths: vec![(dying, operation)], timeout: Duration::from_secs(20), ..Faults::default() };
        let world_of = World { faults, ..World::new(samples, &config_for) };
        let alone = world_of.alone();
        let found = world_of.train(world);
        let dead = found[dying].is_err();
        for (rank, told) in found.into_iter().enumerate().filter(|(rank, _)| *rank != dying) {
            match told {
                Ok(told) => {
                    prop_assert!(!dead || told.worlds == [world - 1] || told.steps.len() == alone.steps.len());
                    prop_assert!(Told { worlds: Vec::new(), ..told } == alone, "case {case}, rank {rank} of {world}");
                }
                // Before the first step there is nothing to go on from.
                Err(error) => prop_assert!(matches!(error, Error::Peer(_)) && operation < 20, "{error}"),
            }
        }
    }
}

/// Each rank predicts its part, and says so; the errors of every rank are those of all samples.
#[test]
fn ranks_share_a_validation() {
    let settings = Config { batch_size: 70, max_steps: Some(2), ..config() };
    let samples = samples(660);
    let (train, validation): (SampleRanges, SampleRanges) = (0..660).partition(|n| n % 3 > 0);
    let run = Run { samples: &samples, train: &train, validation: &validation, checkpoints: None };
    let told = |mut trainer: Trainer| {
        let (mut done, mut events) = (Vec::new(), Vec::new());
        trainer.train(&run, &mut |event| {
            match event {
                Event::Validating(event) => done.push(event.done),
                Event::Validation(event) => events.push(event),
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        Ok::<_, Error>((done, events))
    };
    let new = || Trainer::new(&Device::cpu(), settings.clone(), samples.shape().clone());
    let (done, alone) = told(new().unwrap()).unwrap();
    assert_eq!((done, alone.len()), (vec![70, 140, 210, 220], 1));
    let found = ThreadPeers::run(3, &Faults::default(), |peers| {
        let mut trainer = new()?;
        trainer.join(Box::new(peers), IdleRanks::Refuse)?;
        told(trainer)
    });
    // 220 samples are seven blocks of 32, the last of 28.
    let expected = [vec![70, 96, 220], vec![64, 220], vec![60, 220]];
    for ((done, events), expected) in found.into_iter().zip(expected) {
        assert_eq!(done, expected);
        assert_eq!(events, alone);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Ranks that die one after the other, also while the others go on without the first or end the
    /// run, leave others that learn the same, and in time.
    #[test]
    fn ranks_that_die_one_after_the_other_change_nothing_that_is_learnt(
        case in 0usize..11, world in 3usize..6, dying in 0usize..5, operation in 12u64..200, later in 0u64..60,
    ) {
        let (samples, settings) = &cases()[case];
        let config_for = |_| settings.clone();
        let (first, second) = (dying % world, (dying + 1) % world);
        // Both at once where `later` is none: operations are counted by rank.
        let deaths = vec![(first, operation), (second, operation + later)];
        let faults = Faults { deaths, timeout: Duration::from_secs(20), ..Faults::default() };
        let world_of = World { faults, ..World::new(samples, &config_for) };
        let alone = world_of.alone();
        let found = world_of.train(world);
        for (rank, told) in found.into_iter().enumerate().filter(|(rank, _)| *rank != first && *rank != second) {
            match told {
                Ok(told) => {
                    prop_assert!(told.worlds.iter().all(|left| *left < world && *left >= world - 2));
                    prop_assert!(Told { worlds: Vec::new(), ..told } == alone, "case {case}, rank {rank} of {world}");
                }
                // Before the first step there is nothing to go on from.
                Err(error) => prop_assert!(matches!(error, Error::Peer(_)) && operation < 20, "{error}"),
            }
        }
    }
}

#[test]
fn a_run_of_four_ranks_goes_on_with_any_number() {
    let settings = Config { batch_size: 80, gradient_accumulation_steps: 2, max_steps: Some(9), ..config() };
    let (samples, config_for): (MakeSamples<'_>, _) = (&|_| Box::new(samples(230)), |_: usize| settings.clone());
    let whole = World::new(samples, &config_for).alone();
    for (first, then) in [(4, 1), (4, 2), (4, 7), (1, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let world = World { checkpoints: Some(folder.path()), ..World::new(samples, &config_for) };
        // Another rank than the one that saves wants to end.
        let stop = World { stop: Some((first - 1, 4)), ..world };
        for told in stop.train(first) {
            let told = told.unwrap();
            assert_eq!(told.outcome.end, End::Stopped);
            // All hear of it in the next step, or at once where there are no others.
            assert_eq!(told.outcome.steps, 5, "{first} ranks");
        }
        let goes_on = World { stop: None, ..stop };
        for told in goes_on.train(then) {
            let told = told.unwrap();
            assert_eq!((&told.bits, told.updates, told.steps[0].0), (&whole.bits, whole.updates, 6));
            assert_eq!(told.outcome.best, whole.outcome.best);
        }
    }
}

#[test]
fn without_a_way_to_reform_all_ranks_end() {
    let settings = Config { batch_size: 80, epochs: 3, ..config() };
    let config_for = |_| settings.clone();
    let timeout = Duration::from_millis(300);
    for faults in [
        Faults { deaths: vec![(1, 40)], can_reform: false, timeout, ..Faults::default() },
        Faults { hangs: vec![(1, 40)], can_reform: false, timeout, ..Faults::default() },
        Faults { dropped: (30..60).map(|at| (0, at)).collect(), can_reform: false, timeout, ..Faults::default() },
    ] {
        let world = World { faults, ..World::new(&|_| Box::new(samples(230)), &config_for) };
        for told in world.train(3) {
            let Err(Error::Peer(lost)) = told else { panic!("{told:?}") };
            assert!(!lost.can_reform, "{lost}");
        }
    }
}

#[test]
fn memory_that_one_rank_lacks_is_cut_on_all() {
    let settings = Config { batch_size: 128, epochs: 2, ..config() };
    let config_for = |_| settings.clone();
    let samples: MakeSamples<'_> = &|_| Box::new(samples(300));
    let alone = World::new(samples, &config_for).alone();
    let mut cut = 0;
    for request in 5..60 {
        let device = |rank| {
            let device = Device::cpu();
            if rank == 1 {
                device.refuse_requests(request..request + 1);
            }
            device
        };
        let world = World { device: &device, ..World::new(samples, &config_for) };
        let found: Vec<Told> = world.train(3).into_iter().map(Result::unwrap).collect();
        assert!(found.iter().all(|told| told.cuts <= 1), "request {request}");
        cut += found.iter().map(|told| told.cuts).sum::<usize>();
        for told in found {
            assert!(Told { cuts: 0, ..told } == alone, "request {request}");
        }
    }
    assert!(cut > 30, "{cut} cuts");
}

#[test]
fn data_that_one_rank_cannot_read_end_all_in_the_same_step() {
    let settings = Config { batch_size: 96, epochs: 4, ..config() };
    let config_for = |_| settings.clone();
    let samples: MakeSamples<'_> = &|rank| match rank {
        1 => Box::new(Disturbed::new(samples(300), Disturbance::Fail { at_call: 3 })),
        _ => Box::new(samples(300)),
    };
    let found = World::new(samples, &config_for).train(3);
    for (rank, told) in found.into_iter().enumerate() {
        let error = told.unwrap_err();
        assert!(error.to_string().contains("the disk is on fire"), "{error}");
        assert_eq!(matches!(error, Error::OnRank { rank: 1, is_shortage: false, .. }), rank != 1, "{error}");
    }
}

#[test]
fn a_divergence_of_one_rank_rolls_all_back() {
    let divergence = Divergence { max_rollbacks: 2, loss_spike_factor: Some(50.0) };
    let settings = Config { batch_size: 96, max_steps: Some(14), divergence, ..config() };
    let config_for = |_| settings.clone();
    for value in [f32::NEG_INFINITY, 1e6] {
        let samples: MakeSamples<'_> = &|rank| match rank {
            2 => Box::new(Disturbed::new(samples(300), Disturbance::Deliver { at_call: 7, place: 2, value })),
            _ => Box::new(samples(300)),
        };
        let folder = tempfile::tempdir().unwrap();
        let validates = usize::MAX;
        let world = World { checkpoints: Some(folder.path()), validates, ..World::new(samples, &config_for) };
        let found: Vec<Told> = world.train(3).into_iter().map(Result::unwrap).collect();
        assert_eq!(found[0].outcome.rollbacks, 1, "{value}");
        assert!(found.iter().all(|told| *told == found[0]), "{value}");
    }
}

/// Gradients of one block are finite, and their sum over two is not: on rank 0 if it has both, and
/// else on every rank.
#[test]
fn a_sum_of_gradients_that_is_not_finite_is_named() {
    let settings = Config { batch_size: 96, ..config() };
    let config_for = |_| settings.clone();
    let all_samples: MakeSamples<'_> = &|_| {
        let mut shape = samples(1).shape().clone();
        shape.outputs = 1;
        let windows = (0..shape.timeframes.len()).map(|k| vec![0.5; 120 * shape.window_len(k)]).collect();
        Box::new(InMemory::new(shape, windows, vec![3e38; 120]).unwrap())
    };
    for overlaps in [true, false] {
        for world in 1..=3 {
            let relay = Relay { overlaps, ..World::new(all_samples, &config_for).relay };
            for told in (World { relay, ..World::new(all_samples, &config_for) }).train(world) {
                let Err(Error::NotFinite { step: 1, tensor, .. }) = &told else { panic!("{told:?}") };
                assert!(tensor.starts_with("the gradient of "), "{world} ranks: {tensor}");
            }
        }
    }
}

#[test]
fn a_full_disk_of_the_first_rank_ends_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no folder");
    std::fs::write(&file, "").unwrap();
    let settings = Config { batch_size: 96, ..config() };
    let config_for = |_| settings.clone();
    let world = World { checkpoints: Some(&file), ..World::new(&|_| Box::new(samples(300)), &config_for) };
    for (rank, told) in world.train(3).into_iter().enumerate() {
        let error = told.unwrap_err();
        assert_eq!(matches!(error, Error::OnRank { rank: 0, .. }), rank > 0, "{error}");
        assert!(error.to_string().contains("no folder"), "{error}");
    }
}

#[test]
fn ranks_that_differ_are_refused_by_name() {
    let base = Config { batch_size: 96, ..config() };
    let mut other_lr = base.clone();
    other_lr.optimizer.lr *= 2.0;
    for (other, expected) in [
        (Config { seed: 7, ..base.clone() }, "`seed`: 7, and 11 there"),
        (other_lr, "another `optimizer` than rank 0"),
        (Config { epochs: 2, ..base.clone() }, "`epochs`: 2, and 1 there"),
    ] {
        let config_for = |rank| if rank == 1 { other.clone() } else { base.clone() };
        let expected = expected.replace(": 7, and", " than rank 0: 7, and").replace(": 2, and", " than rank 0: 2, and");
        for told in World::new(&|_| Box::new(samples(300)), &config_for).train(3) {
            let error = told.unwrap_err().to_string();
            assert!(error.contains(&expected) && error.contains("rank 1 has another"), "{error}");
        }
    }
    let fewer: MakeSamples<'_> = &|rank| Box::new(samples(if rank == 2 { 290 } else { 300 }));
    let config_for = |_| base.clone();
    let error = World::new(fewer, &config_for).train(3).remove(2).unwrap_err().to_string();
    assert!(error.contains("another training samples than rank 0"), "{error}");
}

#[test]
fn what_ranks_cannot_do_together_is_refused() {
    let base = Config { batch_size: 96, ..config() };
    let config_for = |_| base.clone();
    let world = World { idle: IdleRanks::Refuse, ..World::new(&|_| Box::new(samples(300)), &config_for) };
    assert!(world.train(3).iter().all(Result::is_ok));
    for told in world.train(4) {
        assert!(matches!(told, Err(Error::TooManyRanks { ranks: 4, blocks: 3 })), "{told:?}");
    }
    let carrying = |_| Config { carry_state: true, ..base.clone() };
    let told = World::new(&|_| Box::new(series()), &carrying).train(1).remove(0);
    assert!(matches!(told, Err(Error::NotDistributed { setting: "carry_state", .. })), "{told:?}");
    // A world of one is alone.
    assert!(world.train(1).remove(0).unwrap() == world.alone());
    let (mut trainer, samples) =
        (Trainer::new(&Device::cpu(), base, samples(1).shape().clone()).unwrap(), samples(300));
    let train = SampleRanges::from(0..300);
    trainer.join(Box::new(ThreadPeers::world_of(1, &Faults::default()).remove(0)), IdleRanks::Refuse).unwrap();
    assert!(trainer.leave().is_some() && trainer.leave().is_none());
    trainer
        .train(
            &Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None },
            &mut listen,
        )
        .unwrap();
}
