//! Which checkpoint a run goes on from: not a damaged one, and not one of another run.

use std::fs;
use std::path::Path;

use megabatch_amp::Precision;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::ModelConfig;
use megabatch_trainer::{Arithmetic, Checkpoints, Config, Error, OptimizerKind, Run, State};
use xxhash_rust::xxh3::xxh3_128;

use crate::made_up::{config, listen};
use crate::resuming::{TRAIN, names, run, saved, state, stop_after, trainer};

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
    let kept = ["step-00000008", "step-00000010", "step-00000011", "step-of-mine"];
    let aside = ["unreadable-step-00000010", "unreadable-step-00000011"];
    assert_eq!(names(folder.path()), [&kept[..], &aside].concat());
    assert_eq!(trainer(&config).resume(&run).unwrap().unwrap().state.step, 11);
}

/// A run that resumed past newer checkpoints that are damaged saved one, and removed it at once as
/// the oldest of too many: the run ended with an error, and so did every further try.
#[test]
fn what_is_saved_after_damaged_checkpoints_is_kept() {
    for keep_last in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let (checkpoints, samples, _) = saved(folder.path(), 3);
        for newer in ["step-00000010", "step-00000011"] {
            fs::write(folder.path().join(newer).join("model.safetensors"), "").unwrap();
        }
        let checkpoints = Checkpoints { keep_last, keep_best: false, every_steps: None, ..checkpoints };
        let run = run(&samples, Some(&checkpoints));
        let mut rest = trainer(&Config { max_steps: Some(11), ..config() });
        assert_eq!(rest.resume(&run).unwrap().unwrap().skipped_paths.len(), 2);
        rest.train(&run, &mut stop_after(9)).unwrap();
        let kept = &["step-00000008", "step-00000009"][2 - keep_last..];
        let aside = ["unreadable-step-00000010", "unreadable-step-00000011"];
        assert_eq!(names(folder.path()), [kept, &aside].concat());
        let mut rest = trainer(&Config { max_steps: Some(11), ..config() });
        assert_eq!(rest.resume(&run).unwrap().unwrap().state.step, 9);
        assert_eq!(rest.train(&run, &mut listen).unwrap().steps, 11);
    }
}

/// Newer checkpoints that nobody resumed from do not count either.
#[test]
fn newer_checkpoints_do_not_drive_out_what_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, samples, _) = saved(folder.path(), 3);
    let run = run(&samples, Some(&checkpoints));
    trainer(&config()).train(&run, &mut stop_after(3)).unwrap();
    let newer = ["step-00000008", "step-00000010", "step-00000011"];
    assert_eq!(names(folder.path()), [&["step-00000002", "step-00000003"][..], &newer].concat());
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
            assert!(State::load(&newest).is_err());
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
        (Config { seed: 12, ..config() }, "`seed` 11, but this run has 12"),
        (Config { batch_size: 4, ..config() }, "`batch_size` 8, but this run has 4"),
        (Config { run_length: Some(1), ..config() }, "`run_length` 8, but this run has 1"),
        (with_kind(OptimizerKind::Sgd), "`optimizer` adamw, but this run has sgd"),
        (Config { loss: Loss::Huber { delta: 1.0 }, ..config() }, "`loss` mse, but this run has huber"),
        // Not by the shapes of tensors, of which the user knows nothing.
        (Config { model: ModelConfig { hidden: 6, ..config().model }, ..config() }, "`hidden` 5, but this run has 6"),
    ] {
        let mut trainer = trainer(&config);
        let before = state(&trainer);
        let error = trainer.resume(&run).unwrap_err().to_string();
        assert!(error.contains(setting), "{error}");
        assert!(state(&trainer) == before);
    }
    let fewer = Run { train: &TRAIN.slice(0..80), ..run };
    let error = trainer(&config()).resume(&fewer).unwrap_err().to_string();
    assert!(error.contains("`split` (training samples) 90, but this run has 80"), "{error}");

    edit_state(&folder.path().join("step-00000011"), "\"format_version\": 2", "\"format_version\": 1");
    let error = trainer(&config()).resume(&run).unwrap_err().to_string();
    assert!(error.contains("state.json: format_version 1, but this build reads 2; go on with the program"), "{error}");
}

#[test]
fn what_makes_a_resumed_run_another_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoints, samples, _) = saved(folder.path(), 1);
    let run = run(&samples, Some(&checkpoints));
    let mut changed = Config { max_steps: Some(12), ..config() };
    changed.optimizer.lr = 1e-4;
    let mut trainer = trainer(&changed);
    let resumed = trainer.resume(&run).unwrap().unwrap();
    let Arithmetic { instruction_set } = resumed.state.arithmetic;
    assert_eq!(instruction_set, Arithmetic::here(Precision::Fp32).instruction_set);
    assert_eq!(resumed.other_arithmetic, None);

    edit_state(&folder.path().join("step-00000011"), &instruction_set, "riscv64 portable");
    let resumed = trainer.resume(&run).unwrap().unwrap();
    assert_eq!(resumed.changed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["`lr` is 0.0001, it was 0.001"]);
    assert_eq!(resumed.state.arithmetic.to_string(), "riscv64 portable");
    assert_eq!(resumed.other_arithmetic, Some(Arithmetic::here(Precision::Fp32)));

    // From then on it is the run's own.
    trainer.train(&run, &mut listen).unwrap();
    let resumed = trainer.resume(&run).unwrap().unwrap();
    assert!(resumed.changed.is_empty() && resumed.other_arithmetic.is_none(), "{resumed:?}");
}
