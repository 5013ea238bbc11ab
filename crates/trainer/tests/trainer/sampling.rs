//! Validations and evaluations of some of a part's samples.

use std::ops::ControlFlow;
use std::path::Path;

use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Model, ModelConfig, Pooling, SampleShape};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{
    Baselines, Checkpoints, Config, End, Error, EvaluationProgress, Event, Predictor, Run, SampleRanges, Samples,
    Selection, SeriesInMemory, Trainer,
};
use proptest::prelude::*;

use crate::made_up::{config, listen, pooling_of, samples};
use crate::resuming::{state, trainer};

/// A series with a sample at every bar of M1 and six at each of H1, without a gap.
fn long_series(count: usize) -> SeriesInMemory {
    let shape = samples(1).shape().clone();
    let wave = |len: usize, pace: f32| (0..len).map(|i| (i as f32 * pace).sin()).collect::<Vec<f32>>();
    let end = |steps: usize, n: usize, sharing: usize| steps - 1 + n / sharing;
    let timeframes = shape.timeframes.iter().zip([(1, 0.7), (6, 1.3)]);
    let series = timeframes.map(|(timeframe, (sharing, pace))| {
        let ends = (0..count).map(|n| end(timeframe.steps, n, sharing) as i64).collect();
        (wave((end(timeframe.steps, count - 1, sharing) + 1) * timeframe.features, pace), ends)
    });
    SeriesInMemory::new(shape.clone(), series.collect(), wave(2 * count, 0.3)).unwrap()
}

/// The samples of `stretch` alone, in series that begin where their warm-up does: four windows
/// before the first bar whose state is read.
fn with_its_warm_up(all: &SeriesInMemory, stretch: &[usize], pooling: Pooling) -> SeriesInMemory {
    let (shape, view) = (all.shape().clone(), all.series().unwrap());
    let timeframes = view.timeframes.iter().zip(&shape.timeframes);
    let series = timeframes.map(|(series, timeframe)| {
        let bars_read = if pooling == Pooling::Last { 1 } else { timeframe.steps };
        let start = (series.ends[stretch[0]] as usize + 1 - bars_read).saturating_sub(4 * timeframe.steps);
        let ends: Vec<i64> = stretch.iter().map(|&n| series.ends[n] - start as i64).collect();
        (series.values[start * timeframe.features..].to_vec(), ends)
    });
    let targets = stretch.iter().flat_map(|&n| view.targets[2 * n..2 * n + 2].to_vec()).collect();
    SeriesInMemory::new(shape.clone(), series.collect(), targets).unwrap()
}

fn predictor(shape: &SampleShape, model: ModelConfig, weights: &Path, batch_size: usize) -> Predictor {
    let model = Model::new(shape.clone(), model).unwrap();
    let compute = Compute { threads: 2, batch_size };
    Predictor::open(&Device::cpu(), model, weights, compute).unwrap().with_carried_state()
}

fn predictions(predictor: &mut Predictor, samples: &dyn Samples, indices: &SampleRanges) -> Vec<u32> {
    let mut all = Vec::new();
    let sink = |_: &[usize], outputs: &[f32]| {
        all.extend(outputs.iter().map(|y| y.to_bits()));
        Ok::<(), Error>(())
    };
    predictor.predict(Selection { samples, indices }, sink).unwrap();
    all
}

/// Each stretch is what it would be if the series began with its warm-up, in batches of any size.
#[test]
fn a_stretch_begins_with_its_warm_up() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("w.safetensors");
    let all = long_series(400);
    let stretches: Vec<Vec<usize>> = [0..10, 150..163, 300..310].map(Iterator::collect).to_vec();
    let indices: SampleRanges = stretches.iter().flatten().copied().collect();
    for pooling in [Pooling::Last, pooling_of(1, 5)] {
        let model = ModelConfig { pooling, ..config().model };
        let config = Config { model, ..config() };
        Trainer::new(&Device::cpu(), config, all.shape().clone()).unwrap().save_weights(&weights).unwrap();
        let open = |batch_size| predictor(all.shape(), model, &weights, batch_size);
        let found = predictions(&mut open(7).with_warm_up(), &all, &indices);
        let stretch_outputs = |stretch: &Vec<usize>| {
            let alone = with_its_warm_up(&all, stretch, pooling);
            predictions(&mut open(32), &alone, &SampleRanges::from(0..stretch.len()))
        };
        assert_eq!(found, stretches.iter().flat_map(stretch_outputs).collect::<Vec<_>>(), "{pooling}");
        assert_eq!(found, predictions(&mut open(400).with_warm_up(), &all, &indices));
        let whole = predictions(&mut open(32), &all, &indices);
        assert_eq!(found[..20], whole[..20], "the first stretch begins where its segment does");
        assert_ne!(found[20..], whole[20..]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Which samples are evaluated is a matter of their number and of how states begin.
    #[test]
    fn evaluated_samples_are_spread_over_their_part(
        len in 0usize..3_000, count in 1usize..3_000, batch_size in 1usize..100, carry_state in any::<bool>(),
    ) {
        let list: Vec<usize> = (0..len).map(|n| 5 + 3 * n).collect();
        let part: SampleRanges = list.iter().copied().collect();
        let config = Config { validation_samples: Some(count), carry_state, ..Config::default() };
        let evaluated: Vec<usize> = config.evaluated(&part).iter().collect();
        prop_assert_eq!(evaluated.len(), count.min(len));
        prop_assert!(evaluated.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(evaluated.iter().all(|sample| list.binary_search(sample).is_ok()));
        if evaluated.len() > 1 {
            prop_assert_eq!((evaluated.first(), evaluated.last()), (list.first(), list.last()));
        }
        let other = Config { batch_size, seed: 99, gradient_accumulation_steps: 7, threads: 1, ..config.clone() };
        prop_assert!(other.evaluated(&part).iter().eq(evaluated.iter().copied()));
        let all = Config { validation_samples: None, ..config };
        prop_assert_eq!(&*all.evaluated(&part), &part);
        let stretches = 1 + evaluated.windows(2).filter(|pair| pair[1] - pair[0] > 3).count();
        prop_assert!(!carry_state || stretches <= 16.max(count.div_ceil(64)), "{} stretches", stretches);
    }
}

/// A validation, and the errors of a part, are those of the samples that are chosen.
#[test]
fn a_validation_takes_the_samples_that_are_chosen() {
    let all = long_series(400);
    let (train, part) = (SampleRanges::from(0..150), SampleRanges::from(150..400));
    for carry_state in [false, true] {
        let config =
            Config { carry_state, max_steps: Some(3), batch_size: 32, validation_samples: Some(100), ..config() };
        let mut trainer = Trainer::new(&Device::cpu(), config.clone(), all.shape().clone()).unwrap();
        let run = Run { samples: &all, train: &train, validation: &part, checkpoints: None };
        let (mut losses, mut progress) = (Vec::new(), Vec::new());
        let observe = &mut |event: Event<'_>| {
            match event {
                Event::Validation(event) => losses.push(event.loss),
                Event::Validating(event) => progress.push((event.step, event.done, event.samples)),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        trainer.train(&run, observe).unwrap();
        assert_eq!(progress, [32, 64, 96, 100].map(|done| (3, done, 100)));
        let mut heard: Vec<usize> = Vec::new();
        let hear = &mut |done: usize| {
            // A number comes again while its next batch is waited for.
            if heard.last().copied().unwrap_or(0) < done {
                heard.push(done);
            }
            ControlFlow::Continue(())
        };
        let some = trainer.evaluate_drawn(&all, &config.draw(&part, Some(100)), None, hear).unwrap();
        assert_eq!((losses.as_slice(), some.samples), (&[some.loss][..], 100));
        assert_eq!(heard, [32, 64, 96, 100]);

        let chosen = config.draw(&part, Some(100));
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("w.safetensors");
        trainer.save_weights(&weights).unwrap();
        let model = Model::new(all.shape().clone(), config.model).unwrap();
        let compute = Compute { threads: 1, batch_size: 8 };
        let open = Predictor::open(&Device::cpu(), model, &weights, compute).unwrap();
        let mut other = if carry_state { open.with_carried_state().with_warm_up() } else { open.with_warm_up() };
        let quiet = &mut |_| ControlFlow::Continue(());
        assert_eq!(other.evaluate_drawn(&all, &chosen, Loss::Mse, None, quiet).unwrap(), some, "{carry_state}");
        let whole = trainer.evaluate(Selection { samples: &all, indices: &part }, None).unwrap();
        assert!(whole.samples == 250 && whole.loss != some.loss);
    }
}

/// Whoever breaks a validation finds the run as it was before it, and the run that goes on does it
/// first.
#[test]
fn a_validation_that_is_broken_off_is_done_by_the_run_that_goes_on() {
    let samples = samples(100);
    let (train, validation) = (SampleRanges::from(0..60), SampleRanges::from(60..100));
    let config = Config { max_steps: Some(12), validate_every_steps: Some(3), ..config() };
    let without = Run { samples: &samples, train: &train, validation: &validation, checkpoints: None };
    let validations = |event: Event<'_>, all: &mut Vec<(u64, f64)>| {
        if let Event::Validation(event) = event {
            all.push((event.step, event.loss));
        }
    };
    let (mut whole, mut expected) = (trainer(&config), Vec::new());
    let outcome = whole.train(&without, &mut |event| {
        validations(event, &mut expected);
        ControlFlow::Continue(())
    });
    let outcome = outcome.unwrap();
    assert_eq!(expected.len(), 5, "four, and one at the end of the epoch");
    // The step before, the first batch, one in the middle and the last one.
    for (step, batch) in [(3, 0), (6, 3), (8, 2), (12, 5)] {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(folder.path());
        let run = Run { checkpoints: Some(&checkpoints), ..without };
        let (mut found, mut batches) = (Vec::new(), 0);
        let stopped = trainer(&config).train(&run, &mut |event| {
            let mut asked = matches!(&event, Event::Step(event) if event.step == step && batch == 0);
            if let Event::Validating(event) = &event
                && event.step == step
            {
                batches += 1;
                asked = batches >= batch;
            }
            validations(event, &mut found);
            if asked { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let stopped = stopped.unwrap();
        assert_eq!((stopped.end, stopped.steps), (End::Stopped, step));
        let mut rest = trainer(&config);
        let resumed = rest.resume(&run).unwrap().unwrap();
        assert!(resumed.state.unfinished && resumed.state.step == step, "{step}");
        let finished = rest.train(&run, &mut |event| {
            validations(event, &mut found);
            ControlFlow::Continue(())
        });
        assert_eq!((finished.unwrap(), &found), (outcome, &expected), "broken off at step {step}");
        assert!(state(&rest) == state(&whole));
    }
    // The same trainer goes on, too, where nothing is saved.
    let mut trainer = trainer(&config);
    let breaks = &mut |event: Event<'_>| match event {
        Event::Validating(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    assert_eq!(trainer.train(&without, breaks).unwrap().steps, 3);
    assert_eq!(trainer.train(&without, &mut listen).unwrap(), outcome);
}

#[test]
fn an_evaluation_and_a_fit_end_when_they_are_asked_to() {
    let samples = samples(100);
    let all = SampleRanges::from(0..100);
    let selection = Selection { samples: &samples, indices: &all };
    let mut trainer = trainer(&config());
    let until =
        |last: usize| move |done: usize| if done >= last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let error = trainer.evaluate_drawn(&samples, &config().draw(&all, None), None, &mut until(16)).unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    let fit =
        |progress: &mut EvaluationProgress<'_>| Baselines::fit(&Device::cpu(), selection, None, Loss::Mse, progress);
    assert!(matches!(fit(&mut until(64)), Err(Error::Interrupted { .. })));
    let mut heard: Vec<usize> = Vec::new();
    let fitted = fit(&mut |done: usize| {
        if heard.last().copied().unwrap_or(0) < done {
            heard.push(done);
        }
        ControlFlow::Continue(())
    });
    assert!(fitted.is_ok() && heard == [64, 100], "{heard:?}");
}

#[test]
fn no_samples_at_all_are_refused() {
    let config = Config { validation_samples: Some(0), ..config() };
    let error = Trainer::new(&Device::cpu(), config, samples(1).shape().clone()).unwrap_err().to_string();
    assert!(error.starts_with("`validation_samples` is 0: expected 1 or more"), "{error}");
}
