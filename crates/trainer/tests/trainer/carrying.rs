//! Training from carried states: as the definition has it, across interruptions, and refused where
//! it cannot be.

use std::error::Error as StdError;
use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use megabatch_gpu_core::Device;
use megabatch_nn::batch::SeriesView;
use megabatch_nn::model::{SampleShape, Timeframe};
use megabatch_order::Order;
use megabatch_trainer::{
    Batch, CarriedStates, Checkpoints, Config, Event, OptimizerConfig, OptimizerKind, Run, SampleRanges, Samples,
    SeriesInMemory, Trainer,
};

use crate::by_hand::ByHand;
use crate::made_up::{config, fusion_of, listen, pooling_of, samples, series, shape_and_len_from, steps_of};
use crate::resuming::state;

fn carrying() -> Config {
    Config { carry_state: true, dropout: 0.25, ..config() }
}

/// Two passes over the samples in short runs, so that windows find states of earlier steps and of
/// the pass before. The trainer computes in single precision: 1e-7 a rounding, which a dozen steps
/// at a rate of 0.5 pass on.
#[test]
fn windows_start_where_the_last_steps_came_to() {
    let samples = series();
    let train = SampleRanges::from(0..100);
    for (pooling, lr) in [(0, 0.5), (1, 0.02)] {
        let sgd = OptimizerConfig { kind: OptimizerKind::Sgd, lr, weight_decay: 0.0, ..OptimizerConfig::default() };
        let mut config = Config { optimizer: sgd, clip_norm: None, batch_size: 9, epochs: 2, ..carrying() };
        config.run_length = Some(4);
        config.model.layer_norm = pooling == 1;
        config.model.pooling = pooling_of(pooling, config.model.hidden);
        config.model.fusion = fusion_of(pooling == 1, config.model.hidden);
        let mut trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
        let mut by_hand = ByHand::new(&samples, &config);
        let order = Order::new(train.len(), 4, config.seed).unwrap();
        let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
        trainer
            .train(&run, &mut |event| {
                if let Event::Step(step) = event {
                    let (epoch, first) = (step.epoch, (step.step - 1) as usize % 12 * 9);
                    let epoch_order = order.epoch(epoch);
                    let step_samples: Vec<usize> =
                        (first..first + step.samples).map(|at| epoch_order.sample(at)).collect();
                    let (loss, _) = by_hand.step(&step_samples);
                    assert!((step.loss - loss).abs() < 1e-5 * loss, "step {}: {} for {loss}", step.step, step.loss);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        for (name, _, found) in trainer.parameters().tensors() {
            let expected = by_hand.reference.parameter_mut(name).unwrap().iter();
            let apart = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-5, "{name} is off by {apart}");
        }
    }
}

/// The state at the bar before a segment is carried to no window in it, although the window before
/// it computed it.
#[test]
fn nothing_is_carried_into_a_segment() {
    let shape = SampleShape { timeframes: vec![Timeframe { name: "M1".into(), steps: 2, features: 1 }], outputs: 1 };
    let losses_of_the_second_epoch = |segment_starts: Vec<i64>, carry_state| {
        let values = [0.9, -0.4, 0.3, 0.8].to_vec();
        let samples = SeriesInMemory::new(shape.clone(), vec![(values, vec![1, 3])], vec![0.5, 0.25]).unwrap();
        let samples = samples.with_segments(vec![segment_starts]).unwrap();
        // Nothing is learnt, so that only the start can make a difference.
        let lr = 1e-30;
        let sgd = OptimizerConfig { kind: OptimizerKind::Sgd, lr, weight_decay: 0.0, ..OptimizerConfig::default() };
        let config = Config { optimizer: sgd, batch_size: 1, epochs: 2, dropout: 0.0, carry_state, ..config() };
        let mut trainer = Trainer::new(&Device::cpu(), config, shape.clone()).unwrap();
        let run = Run {
            samples: &samples,
            train: &SampleRanges::from_iter([0, 1]),
            validation: SampleRanges::NONE,
            checkpoints: None,
        };
        let steps = steps_of(&mut trainer, &run);
        let mut losses: Vec<f64> = steps.iter().filter(|step| step.epoch == 1).map(|step| step.loss).collect();
        losses.sort_by(f64::total_cmp);
        losses
    };
    let carried = losses_of_the_second_epoch(vec![], true);
    assert_eq!(losses_of_the_second_epoch(vec![0], true), carried);
    let divided = losses_of_the_second_epoch(vec![0, 2], true);
    assert_ne!(divided, carried);
    assert_eq!(divided, losses_of_the_second_epoch(vec![], false));
}

#[test]
fn a_resumed_run_goes_on_from_the_states_that_it_carried() {
    let samples = series();
    let (train, validation) = (SampleRanges::from(0..90), SampleRanges::from_iter([91, 99]));
    let mut config = Config { max_steps: Some(30), run_length: Some(3), ..carrying() };
    config.model.layer_norm = true;
    config.model.pooling = pooling_of(2, config.model.hidden);
    config.model.fusion = fusion_of(true, config.model.hidden);
    let trainer = |config: &Config| Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let checkpoints = folders.each_ref().map(|folder| Checkpoints::new(folder.path()));
    let [whole_run, run] = checkpoints.each_ref().map(|checkpoints| Run {
        samples: &samples,
        train: &train,
        validation: &validation,
        checkpoints: Some(checkpoints),
    });
    let mut whole = trainer(&config);
    whole.train(&whole_run, &mut listen).unwrap();

    let stop = &mut |event: Event<'_>| match event {
        Event::Step(step) if step.step == 17 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    trainer(&config).train(&run, stop).unwrap();
    let mut rest = trainer(&config);
    assert_eq!(rest.resume(&run).unwrap().unwrap().state.step, 17);
    rest.train(&run, &mut listen).unwrap();
    assert!(state(&rest) == state(&whole));
    let carried =
        |folder: &tempfile::TempDir| fs::read(folder.path().join("step-00000030/carried.safetensors")).unwrap();
    assert!(carried(&folders[0]) == carried(&folders[1]));

    let mut fresh = trainer(&config);
    let damaged = folders[1].path().join("step-00000030/carried.safetensors");
    let bytes = fs::read(&damaged).unwrap();
    fs::write(&damaged, &bytes[..bytes.len() - 1]).unwrap();
    let resumed = fresh.resume(&run).unwrap().unwrap();
    assert!(resumed.skipped[0].to_string().contains("carried.safetensors: damaged"), "{:?}", resumed.skipped);
    let error = trainer(&Config { carry_state: false, ..config }).resume(&run).unwrap_err().to_string();
    assert!(error.contains("`carry_state` true, but this run has false"), "{error}");
}

/// Series that come without targets once.
struct FailsOnce {
    inner: SeriesInMemory,
    calls: AtomicUsize,
    at_call: usize,
}

impl Samples for FailsOnce {
    shape_and_len_from!(inner);

    fn gather(&self, _: &[usize], _: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        panic!("series are not gathered");
    }

    fn series(&self) -> Option<SeriesView<'_>> {
        let view = self.inner.series()?;
        let fails = self.calls.fetch_add(1, Relaxed) == self.at_call;
        Some(if fails { SeriesView { targets: &[], ..view } } else { view })
    }
}

/// The trainer goes on by itself, or goes back to its last checkpoint, from where other samples
/// come next than those of the step that failed.
#[test]
fn a_step_that_fails_halfway_leaves_no_states() {
    let config = Config { batch_size: 4, gradient_accumulation_steps: 2, max_steps: Some(14), ..carrying() };
    let train = SampleRanges::from(0..100);
    let trainer = || Trainer::new(&Device::cpu(), config.clone(), series().shape().clone()).unwrap();
    let samples = series();
    let mut whole = trainer();
    whole
        .train(
            &Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None },
            &mut listen,
        )
        .unwrap();
    let mut failed_after = Vec::new();
    for (at_call, goes_back) in (0..20).map(|at_call| (at_call, false)).chain((14..18).map(|at_call| (at_call, true))) {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints { every_steps: Some(3), ..Checkpoints::new(folder.path()) };
        let samples = FailsOnce { inner: series(), calls: AtomicUsize::new(0), at_call };
        let checkpoints = goes_back.then_some(&checkpoints);
        let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints };
        let (mut trainer, mut steps) = (trainer(), 0);
        let first = trainer.train(&run, &mut |event| {
            steps += u64::from(matches!(event, Event::Step(_)));
            ControlFlow::Continue(())
        });
        if first.is_err() {
            failed_after.push(steps);
            if goes_back {
                assert_eq!(trainer.resume(&run).unwrap().unwrap().state.step, steps / 3 * 3);
            }
            trainer.train(&run, &mut listen).unwrap();
        }
        assert!(state(&trainer) == state(&whole), "failed after step {steps}, goes back: {goes_back}");
    }
    // The first four readings are before the first batch; two batches are a step.
    assert_eq!(failed_after, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 5, 5, 6, 6]);
}

#[test]
fn samples_that_are_stored_as_windows_are_refused_by_the_name_of_the_setting() {
    let samples = samples(20);
    let run = Run {
        samples: &samples,
        train: &SampleRanges::from_iter([0, 1, 2]),
        validation: &SampleRanges::from_iter([3]),
        checkpoints: None,
    };
    let mut trainer = Trainer::new(&Device::cpu(), carrying(), samples.shape().clone()).unwrap();
    let expected = "`carry_state` is true: expected false for samples that are stored as windows, which do not tell \
                    what bar came before";
    for error in [
        trainer.train(&run, &mut listen).map(drop).unwrap_err(),
        CarriedStates::new(&carrying(), &samples, run.train, SampleRanges::NONE).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), expected);
    }
}
