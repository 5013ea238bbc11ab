//! Checkpoints: a run that was interrupted ends in the same bits as one that was not.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::LazyLock;

use megabatch_gpu_core::Device;
use megabatch_nn::loss::{Ascending, Loss};
use megabatch_trainer::{
    Checkpoints, Config, End, Error, Event, InMemory, LrSchedule, LrScheduleKind, OneCycle, OptimizerKind, Outcome,
    Run, SampleRanges, Samples, Trainer,
};

use crate::made_up::{Disturbance, Disturbed, cell_of, config, fusion_of, listen, pooling_of, samples};

pub(crate) static TRAIN: LazyLock<SampleRanges> = LazyLock::new(|| SampleRanges::from(0..90));

pub(crate) fn run<'a>(samples: &'a dyn Samples, checkpoints: Option<&'a Checkpoints>) -> Run<'a> {
    static VALIDATION: LazyLock<SampleRanges> = LazyLock::new(|| SampleRanges::from_iter([90, 93, 99]));
    Run { samples, train: &TRAIN, validation: &VALIDATION, checkpoints }
}

pub(crate) fn trainer(config: &Config) -> Trainer {
    Trainer::new(&Device::cpu(), config.clone(), samples(1).shape().clone()).unwrap()
}

/// Weights, moments and number of updates, bit for bit.
pub(crate) fn state(trainer: &Trainer) -> (Vec<u32>, u64) {
    let moments = trainer.optimizer().moments().into_iter();
    let sets = moments.flat_map(|moments| [&moments.exp_avg, &moments.exp_avg_sq]).chain([trainer.parameters()]);
    (sets.flat_map(|set| set.values().iter().map(|x| x.to_bits())).collect(), trainer.optimizer().steps())
}

pub(crate) fn stop_after(steps: u64) -> impl FnMut(Event<'_>) -> ControlFlow<()> {
    move |event| match event {
        Event::Step(step) if step.step == steps => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    }
}

#[test]
fn a_resumed_run_ends_in_the_same_bits() {
    let samples = samples(100);
    let adam = OptimizerKind::Adam;
    for (batch_size, gradient_accumulation_steps, run_length, kind) in [
        // Twelve steps an epoch: step 10 is in the middle of one.
        (8, 1, None, OptimizerKind::AdamW),
        (3, 3, Some(1), adam),
        (40, 2, Some(7), adam),
        (9, 1, Some(4), OptimizerKind::Sgd),
    ] {
        let mut config =
            Config { batch_size, gradient_accumulation_steps, run_length, max_steps: Some(20), ..config() };
        config.optimizer.kind = kind;
        config.model.pooling = pooling_of(if kind == adam { 1 } else { 0 }, config.model.hidden);
        config.model.fusion = fusion_of(kind != adam, config.model.hidden);
        config.model.cell = cell_of(kind == OptimizerKind::Sgd);
        config.loss = Loss::Huber { delta: 0.5 };
        config.lr_schedule = LrSchedule { kind: LrScheduleKind::Cosine, warmup_steps: 3, lr_min: 1e-5 };
        if kind == OptimizerKind::Sgd {
            config.loss = Loss::Quantile { levels: Ascending::new(&[0.25, 0.5, 0.75]).unwrap() };
            config.lr_schedule =
                LrSchedule { kind: LrScheduleKind::OneCycle(OneCycle::default()), ..LrSchedule::default() };
        }
        let mut whole = trainer(&config);
        let outcome = whole.train(&run(&samples, None), &mut listen).unwrap();
        assert_eq!(outcome.steps, 20);

        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(folder.path().join("checkpoints"));
        let run = run(&samples, Some(&checkpoints));
        let stopped = trainer(&config).train(&run, &mut stop_after(10)).unwrap();
        assert_eq!((stopped.steps, stopped.end), (10, End::Stopped));
        let mut rest = trainer(&config);
        let resumed = rest.resume(&run).unwrap().unwrap();
        assert_eq!((resumed.state.step, resumed.skipped.len()), (10, 0));
        assert_eq!((resumed.changed.as_slice(), &resumed.other_arithmetic), (&[][..], &None));
        assert_eq!(rest.train(&run, &mut listen).unwrap(), outcome);
        assert!(
            state(&rest) == state(&whole),
            "{batch_size} x {gradient_accumulation_steps}, {run_length:?}, {kind:?}"
        );
        assert_eq!(outcome.best.is_some(), rest.resume(&run).unwrap().unwrap().state.best.is_some());
    }
}

/// As a run that is killed: an error ends it without a last checkpoint, wherever it happens.
#[test]
fn a_run_that_dies_anywhere_is_resumed_from_its_last_checkpoint() {
    let config = Config { batch_size: 15, max_steps: Some(14), ..config() };
    let mut whole = trainer(&config);
    whole.train(&run(&samples(100), None), &mut listen).unwrap();
    for at_call in 0..16 {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints { every_steps: Some(4), ..Checkpoints::new(folder.path()) };
        let faulty = Disturbed::new(samples(100), Disturbance::Fail { at_call });
        let died = trainer(&config).train(&run(&faulty, Some(&checkpoints)), &mut listen).unwrap_err();
        assert!(matches!(died, Error::Gather { .. }), "{died}");

        let samples = samples(100);
        let run = run(&samples, Some(&checkpoints));
        let mut rest = trainer(&config);
        rest.resume(&run).unwrap();
        rest.train(&run, &mut listen).unwrap();
        assert!(state(&rest) == state(&whole), "died at call {at_call}");
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn saved(folder: &Path, keep_last: usize) -> (Checkpoints, InMemory, Outcome) {
    let config_text = "training:\n  seed: 11\n".to_owned();
    let checkpoints = Checkpoints { keep_last, every_steps: Some(2), config_text, ..Checkpoints::new(folder) };
    let samples = samples(100);
    let config = Config { max_steps: Some(11), ..config() };
    let outcome = trainer(&config).train(&run(&samples, Some(&checkpoints)), &mut listen).unwrap();
    (checkpoints, samples, outcome)
}

#[test]
fn the_last_and_the_best_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (_, _, outcome) = saved(folder.path(), 3);
    // The only validation is the one at the end, which is therefore the best.
    assert_eq!(outcome.best.unwrap().step, 11);
    assert_eq!(names(folder.path()), ["step-00000008", "step-00000010", "step-00000011"]);
    assert_eq!(
        names(&folder.path().join("step-00000011")),
        ["checksums.xxh128", "config.yaml", "model.safetensors", "optimizer.safetensors", "state.json"]
    );
    let text = fs::read_to_string(folder.path().join("step-00000011/config.yaml")).unwrap();
    assert_eq!(text, "training:\n  seed: 11\n");
}

#[test]
fn the_best_survives_later_ones_that_are_worse() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints { keep_last: 1, every_steps: Some(1), ..Checkpoints::new(folder.path()) };
    let samples = samples(100);
    let mut config = Config { max_steps: Some(30), validate_every_steps: Some(1), ..config() };
    // With such a rate the validation loss cannot go on falling.
    config.optimizer.lr = 0.5;
    let mut trainer = trainer(&config);
    let best = trainer.train(&run(&samples, Some(&checkpoints)), &mut listen).unwrap().best.unwrap();
    assert!(best.step < 30);
    assert_eq!(names(folder.path()), [format!("step-{:08}", best.step), "step-00000030".to_owned()]);
}

#[test]
fn a_cosine_keeps_its_length_and_a_constant_rate_does_not() {
    let samples = samples(100);
    for kind in [LrScheduleKind::Cosine, LrScheduleKind::Constant] {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(folder.path());
        let run = run(&samples, Some(&checkpoints));
        let lr_schedule = LrSchedule { kind, ..LrSchedule::default() };
        let with = |max_steps| Config { max_steps: Some(max_steps), lr_schedule, ..config() };
        trainer(&with(4)).train(&run, &mut listen).unwrap();
        let mut longer = trainer(&with(6));
        match (kind, longer.resume(&run)) {
            (LrScheduleKind::Constant, Ok(Some(resumed))) => {
                assert!(resumed.changed.is_empty());
                assert_eq!(longer.train(&run, &mut listen).unwrap().steps, 6);
            }
            (LrScheduleKind::Cosine, Err(error)) => {
                let expected = "`epochs` or `max_steps` (steps that the learning rate's curve is drawn over) 4, but this run has 6;";
                assert!(error.to_string().contains(expected), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn without_a_checkpoint_there_is_nothing_to_resume_and_a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let samples = samples(100);
    let nowhere = Checkpoints::new(folder.path().join("none"));
    assert!(trainer(&config()).resume(&run(&samples, Some(&nowhere))).unwrap().is_none());

    fs::write(folder.path().join("file"), "").unwrap();
    let blocked = Checkpoints::new(folder.path().join("file/checkpoints"));
    let config = Config { max_steps: Some(1), ..config() };
    let error = trainer(&config).train(&run(&samples, Some(&blocked)), &mut listen).unwrap_err();
    assert!(error.to_string().contains("file/checkpoints: cannot make the folder"), "{error}");
}
