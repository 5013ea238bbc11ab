//! Checkpoints: a run that was interrupted ends in the same bits as one that was not.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use crate::made_up::{Disturbance, Disturbed, config, listen, samples};
use megabatch_gpu_core::Device;
use megabatch_trainer::{
    Arithmetic, Checkpoints, Config, End, Error, Event, Form, InMemory, Loss, LrSchedule, LrScheduleKind, ModelConfig,
    OptimizerKind, Outcome, Run, Samples, State, Trainer,
};
use xxhash_rust::xxh3::xxh3_128;

const TRAIN: [usize; 90] = {
    let mut all = [0; 90];
    let mut n = 0;
    while n < all.len() {
        all[n] = n;
        n += 1;
    }
    all
};

fn run<'a>(samples: &'a dyn Samples, checkpoints: Option<&'a Checkpoints>) -> Run<'a> {
    const VALIDATION: [usize; 3] = [90, 93, 99];
    Run { samples, train: &TRAIN, validation: &VALIDATION, checkpoints }
}

fn trainer(config: &Config) -> Trainer {
    Trainer::new(&Device::cpu(), config.clone(), samples(1).shape().clone()).unwrap()
}

/// Weights, moments and number of updates, bit for bit.
fn state(trainer: &Trainer) -> (Vec<u32>, u64) {
    let moments = trainer.optimizer().moments().into_iter();
    let sets = moments.flat_map(|moments| [&moments.exp_avg, &moments.exp_avg_sq]).chain([trainer.parameters()]);
    (sets.flat_map(|set| set.values().iter().map(|x| x.to_bits())).collect(), trainer.optimizer().steps())
}

fn stop_after(steps: u64) -> impl FnMut(Event<'_>) -> ControlFlow<()> {
    move |event| match event {
        Event::Step(step) if step.step == steps => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    }
}

#[test]
fn a_resumed_run_ends_in_the_same_bits() {
    let samples = samples(100);
    let adam = OptimizerKind::Adam;
    for (batch_size, accumulation_steps, run_length, kind) in [
        // Twelve steps an epoch: step 10 is in the middle of one.
        (8, 1, None, OptimizerKind::AdamW),
        (3, 3, Some(1), adam),
        (40, 2, Some(7), adam),
        (9, 1, Some(4), OptimizerKind::Sgd),
    ] {
        let mut config = Config { batch_size, accumulation_steps, run_length, max_steps: Some(20), ..config() };
        config.optimizer.kind = kind;
        config.loss = Loss::Huber { delta: 0.5 };
        config.lr_schedule = LrSchedule { kind: LrScheduleKind::Cosine, warmup_steps: 3, lr_min: 1e-5 };
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
        assert!(state(&rest) == state(&whole), "{batch_size} x {accumulation_steps}, {run_length:?}, {kind:?}");
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

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn saved(folder: &Path, keep_last: usize) -> (Checkpoints, InMemory, Outcome) {
    let config_text = "training:\n  seed: 11\n".to_owned();
    let checkpoints = Checkpoints { folder: folder.to_owned(), keep_last, every_steps: Some(2), config_text };
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
fn what_cannot_be_read_is_passed_over_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, samples, _) = saved(folder.path(), 3);
    let config = Config { max_steps: Some(11), ..config() };
    let run = run(&samples, Some(&checkpoints));
    let mut whole = trainer(&config);
    whole.resume(&run).unwrap();

    let newest = folder.path().join("step-00000011");
    let model = fs::read(newest.join("model.safetensors")).unwrap();
    fs::write(newest.join("model.safetensors"), &model[..model.len() - 1]).unwrap();
    fs::remove_file(folder.path().join("step-00000010/optimizer.safetensors")).unwrap();
    fs::create_dir(folder.path().join(".unfinished-killed")).unwrap();
    fs::write(folder.path().join(".unfinished-killed/model.safetensors"), "half").unwrap();
    fs::create_dir(folder.path().join("step-of-mine")).unwrap();

    let mut rest = trainer(&config);
    let resumed = rest.resume(&run).unwrap().unwrap();
    assert_eq!((resumed.state.step, resumed.state.epoch, resumed.state.position_in_epoch), (8, 0, 64));
    assert!(matches!(resumed.skipped[..], [Error::Checkpoint { .. }, Error::File { .. }]), "{:?}", resumed.skipped);
    rest.train(&run, &mut listen).unwrap();
    assert!(state(&rest) == state(&whole));
    assert_eq!(names(folder.path()), ["step-00000008", "step-00000010", "step-00000011", "step-of-mine"]);
    assert_eq!(trainer(&config).resume(&run).unwrap().unwrap().state.step, 11);
}

/// Replaces `from` by `to` in a checkpoint's state.json, and its checksum.
fn edit_state(checkpoint: &Path, from: &str, to: &str) {
    let (state, sums) = (checkpoint.join("state.json"), checkpoint.join("checksums.xxh128"));
    let before = fs::read_to_string(&state).unwrap();
    let after = before.replace(from, to);
    assert_ne!(after, before, "{from} is not in state.json");
    let sum = |text: &str| format!("{:032x}", xxh3_128(text.as_bytes()));
    let list = fs::read_to_string(&sums).unwrap().replace(&sum(&before), &sum(&after));
    fs::write(&sums, list).unwrap();
    fs::write(&state, after).unwrap();
}

/// One bit anywhere in any file.
#[test]
fn a_damaged_checkpoint_is_passed_over_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, samples, _) = saved(folder.path(), 2);
    let run = run(&samples, Some(&checkpoints));
    let newest = folder.path().join("step-00000011");
    for name in names(&newest) {
        let path = newest.join(&name);
        let whole = fs::read(&path).unwrap();
        for at in [0, whole.len() / 2, whole.len() - 2] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            let resumed = trainer(&config()).resume(&run).unwrap().unwrap();
            assert_eq!(resumed.state.step, 10, "byte {at} of {name}");
            let reason = resumed.skipped[0].to_string();
            assert!(
                reason.contains("step-00000011") && reason.contains(": damaged: "),
                "byte {at} of {name}: {reason}"
            );
            assert!(State::of_checkpoint(&newest).is_err());
        }
        fs::write(&path, whole).unwrap();
    }
    assert_eq!(trainer(&config()).resume(&run).unwrap().unwrap().state.step, 11);
}

#[test]
fn checkpoints_of_another_run_or_format_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, samples, _) = saved(folder.path(), 1);
    let run = run(&samples, Some(&checkpoints));
    let with_kind = |kind| {
        let mut config = config();
        config.optimizer.kind = kind;
        config
    };
    for (config, setting) in [
        (Config { seed: 12, ..config() }, "training.seed 11, but this run has 12"),
        (Config { batch_size: 4, ..config() }, "training.batch_size 8, but this run has 4"),
        (Config { run_length: Some(1), ..config() }, "training.run_length 8, but this run has 1"),
        (with_kind(OptimizerKind::Sgd), "training.optimizer adamw, but this run has sgd"),
        (Config { loss: Loss::Huber { delta: 1.0 }, ..config() }, "training.loss mse, but this run has huber"),
        // Not by the shapes of tensors, of which the user knows nothing.
        (
            Config { model: ModelConfig { hidden: 6, ..config().model }, ..config() },
            "model.hidden 5, but this run has 6",
        ),
    ] {
        let mut trainer = trainer(&config);
        let before = state(&trainer);
        let error = trainer.resume(&run).unwrap_err().to_string();
        assert!(error.contains(setting), "{error}");
        assert!(state(&trainer) == before);
    }
    let fewer = Run { train: &TRAIN[..80], ..run };
    let error = trainer(&config()).resume(&fewer).unwrap_err().to_string();
    assert!(error.contains("data.split (training samples) 90, but this run has 80"), "{error}");

    edit_state(&folder.path().join("step-00000011"), "\"format_version\": 2", "\"format_version\": 1");
    let error = trainer(&config()).resume(&run).unwrap_err().to_string();
    assert!(error.contains("state.json: format_version 1, but this build reads 2; go on with the program"), "{error}");
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
                let expected = "training.epochs (steps that the cosine is drawn over) 4, but this run has 6;";
                assert!(error.to_string().contains(expected), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_makes_a_resumed_run_another_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, samples, _) = saved(folder.path(), 1);
    let run = run(&samples, Some(&checkpoints));
    let mut changed = Config { max_steps: Some(12), form: Form::Plain, ..config() };
    changed.optimizer.lr = 1e-4;
    let mut trainer = trainer(&changed);
    let resumed = trainer.resume(&run).unwrap().unwrap();
    assert_eq!(
        resumed.changed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["training.lr is 0.0001, it was 0.001"]
    );
    assert_eq!(resumed.other_arithmetic, Some(Arithmetic::here(Form::Plain)));
    let Arithmetic { instruction_set, .. } = resumed.state.arithmetic;
    assert_eq!(instruction_set, Arithmetic::here(Form::Fast).instruction_set);

    // From then on it is the run's own.
    trainer.train(&run, &mut listen).unwrap();
    let resumed = trainer.resume(&run).unwrap().unwrap();
    assert!(resumed.changed.is_empty() && resumed.other_arithmetic.is_none(), "{resumed:?}");

    edit_state(&folder.path().join("step-00000012"), &instruction_set, "riscv64 portable");
    let resumed = trainer.resume(&run).unwrap().unwrap();
    assert_eq!(resumed.state.arithmetic.to_string(), "training.form plain on riscv64 portable");
    assert_eq!(resumed.other_arithmetic, Some(Arithmetic::here(Form::Plain)));
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
