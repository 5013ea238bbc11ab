//! Runs that diverge: they go back and on at half the rate, bit for bit as a run with that rate, or
//! give up.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use megabatch_trainer::{
    Checkpoints, Config, Divergence, End, Error, Event, OptimizerKind, RollbackEvent, Run, SampleRanges, Samples,
};

use crate::made_up::{Disturbance, Disturbed, config, listen, samples};
use crate::resuming::{TRAIN, state, trainer};

fn run<'a>(samples: &'a dyn Samples, checkpoints: &'a Checkpoints) -> Run<'a> {
    Run { samples, train: &TRAIN, validation: SampleRanges::NONE, checkpoints: Some(checkpoints) }
}

fn checkpoints(folder: &Path) -> Checkpoints {
    Checkpoints { every_steps: Some(4), ..Checkpoints::new(folder) }
}

fn rolling_back(max_rollbacks: u32, loss_spike_factor: Option<f64>) -> Config {
    let divergence = Divergence { max_rollbacks, loss_spike_factor };
    Config { max_steps: Some(20), divergence, ..config() }
}

/// Samples of which the tenth batch that is read has `value` for its first target.
fn disturbed(value: f32) -> Disturbed {
    Disturbed::new(samples(90), Disturbance::Deliver { at_call: 9, place: 2, value })
}

#[test]
fn a_run_goes_back_to_its_last_checkpoint_and_on_at_half_the_rate() {
    // What it must come to: eight steps, and twelve at half the rate.
    let folder = tempfile::tempdir().unwrap();
    let (samples, at_half) = (samples(90), checkpoints(&folder.path().join("at half")));
    let first = Config { max_steps: Some(8), ..config() };
    trainer(&first).train(&run(&samples, &at_half), &mut listen).unwrap();
    let mut second = Config { max_steps: Some(20), ..config() };
    second.optimizer.lr *= 0.5;
    let mut expected = trainer(&second);
    expected.resume(&run(&samples, &at_half)).unwrap().unwrap();
    expected.train(&run(&samples, &at_half), &mut listen).unwrap();

    for (value, loss_spike_factor) in [(f32::NEG_INFINITY, None), (f32::INFINITY, Some(9.0)), (1e6, Some(50.0))] {
        let (samples, checkpoints) = (disturbed(value), checkpoints(&folder.path().join(value.to_string())));
        let mut trainer = trainer(&rolling_back(3, loss_spike_factor));
        let (mut rollbacks, mut rates) = (Vec::new(), Vec::new());
        let outcome = trainer.train(&run(&samples, &checkpoints), &mut |event| {
            match event {
                Event::Rollback(rollback) => rollbacks.push(rollback),
                Event::Step(step) => rates.push((step.step, step.lr)),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        let outcome = outcome.unwrap();
        assert_eq!((outcome.steps, outcome.end, outcome.rollbacks), (20, End::Finished, 1), "{value}");
        let [RollbackEvent { step, failed_step, rollbacks, max_rollbacks, rate_factor, cause, .. }] = &rollbacks[..]
        else {
            panic!("{rollbacks:?}");
        };
        assert_eq!((*step, *failed_step, *rollbacks, *max_rollbacks, *rate_factor), (8, 10, 1, 3, 0.5));
        assert!(cause.starts_with("step 10: the loss is "), "{cause}");
        let steps = (1..=9).map(|step| (step, 1e-3)).chain((9..=20).map(|step| (step, 5e-4)));
        assert_eq!(rates, steps.collect::<Vec<_>>());
        assert!(state(&trainer) == state(&expected), "{value}");
    }
}

/// Such a rate that the weights overflow within a few steps.
fn reckless(max_rollbacks: u32) -> Config {
    let mut config = Config { clip_norm: None, ..rolling_back(max_rollbacks, Some(100.0)) };
    config.optimizer.kind = OptimizerKind::Sgd;
    config.optimizer.lr = 1e4;
    config
}

#[test]
fn a_rate_that_is_too_high_is_halved_until_it_is_not() {
    let (samples, folder) = (samples(90), tempfile::tempdir().unwrap());
    let (whole_folder, killed_folder) = (checkpoints(&folder.path().join("whole")), folder.path().join("killed"));
    let mut whole = trainer(&reckless(40));
    let mut rollbacks = 0;
    let outcome = whole.train(&run(&samples, &whole_folder), &mut |event| {
        if let Event::Rollback(_) = event {
            rollbacks += 1;
            // What a process leaves that is killed before it has saved where it stands.
            if rollbacks == 3 {
                copy(&whole_folder.folder, &killed_folder);
            }
        }
        ControlFlow::Continue(())
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.end, outcome.rollbacks), (End::Finished, rollbacks));
    assert!(rollbacks > 3, "{rollbacks}");

    let stopped_folder = checkpoints(&folder.path().join("stopped"));
    let stopped = trainer(&reckless(40)).train(&run(&samples, &stopped_folder), &mut |event| match event {
        Event::Rollback(RollbackEvent { rollbacks: 3, .. }) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert_eq!((stopped.unwrap().end, stopped_folder.list().unwrap().is_empty()), (End::Stopped, false));
    for (folder, done) in [(stopped_folder, 3), (checkpoints(&killed_folder), 2)] {
        let mut rest = trainer(&reckless(40));
        let resumed = rest.resume(&run(&samples, &folder)).unwrap().unwrap();
        assert_eq!(resumed.state.divergence.rollbacks, done);
        assert_eq!(rest.train(&run(&samples, &folder), &mut listen).unwrap(), outcome);
        assert!(state(&rest) == state(&whole), "after {done} rollbacks");
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &to) } else { assert!(fs::copy(&path, &to).is_ok()) }
    }
}

#[test]
fn after_so_many_rollbacks_a_run_gives_up() {
    let (samples, folder) = (samples(90), tempfile::tempdir().unwrap());
    let checkpoints = checkpoints(folder.path());
    let error = trainer(&reckless(2)).train(&run(&samples, &checkpoints), &mut listen).unwrap_err();
    assert!(matches!(error, Error::Diverged { rollbacks: 2, .. }), "{error}");
    assert!(error.to_string().starts_with("diverged again after rollback 2, the last one allowed"), "{error}");
    // What was saved is good: with more patience the run goes on from there.
    let mut patient = trainer(&reckless(40));
    assert_eq!(patient.resume(&run(&samples, &checkpoints)).unwrap().unwrap().state.divergence.rollbacks, 2);
    assert!(patient.train(&run(&samples, &checkpoints), &mut listen).unwrap().rollbacks > 2);
}

#[test]
fn without_rollbacks_a_divergence_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for (value, factor, exploded) in [(f32::INFINITY, None, false), (1e6, Some(50.0), true)] {
        let (samples, checkpoints) = (disturbed(value), checkpoints(&folder.path().join(value.to_string())));
        let mut trainer = trainer(&rolling_back(0, factor));
        let error = trainer.train(&run(&samples, &checkpoints), &mut listen).unwrap_err();
        assert_eq!(matches!(error, Error::LossSpike { step: 10, factor: 50.0, .. }), exploded, "{error}");
        assert_eq!(trainer.optimizer().steps(), 9, "nothing was updated");
        assert_eq!(checkpoints.list().unwrap().last().unwrap().0, 8);
    }
    // A large number alone is no reason to stop.
    let (samples, checkpoints) = (disturbed(1e6), checkpoints(&folder.path().join("large")));
    let outcome = trainer(&rolling_back(3, None)).train(&run(&samples, &checkpoints), &mut listen).unwrap();
    assert_eq!((outcome.end, outcome.rollbacks), (End::Finished, 0));
}

#[test]
fn going_back_takes_checkpoints() {
    let samples = samples(90);
    let run = Run { samples: &samples, train: &TRAIN, validation: SampleRanges::NONE, checkpoints: None };
    let error = trainer(&rolling_back(1, None)).train(&run, &mut listen).unwrap_err().to_string();
    assert!(error.starts_with("`max_rollbacks` is 1: expected 0 where no checkpoints are kept"), "{error}");
}
