//! Faults while saving: whatever fails, and wherever, the checkpoints before are there, and none is
//! half.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Layout, ModelConfig, SampleShape};
use megabatch_nn_cuda::Tuning;
use megabatch_order::LastBatch;

use super::*;
use crate::config::divergence::DivergenceState;
use crate::config::early_stopping::EarlyStoppingState;
use crate::config::learning_rate::LrSchedule;
use crate::config::optimizer::OptimizerConfig;

/// Fault of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It does nothing.
    Before,
    /// It does half of what it should, where it can be halved: as a disk that becomes full.
    Within,
    /// It does all, and fails nevertheless: as a disk that does not answer.
    After,
}

/// Behaviour of the operations after the one that failed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Works,
    /// They do nothing: the process was killed.
    Dead,
}

/// A disk whose n-th operation fails.
struct Faulty {
    calls: Cell<usize>,
    failing_call: usize,
    fault: Fault,
    then: Then,
}

impl Faulty {
    fn operation(
        &self,
        half: impl FnOnce() -> io::Result<()>,
        whole: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let call = self.calls.replace(self.calls.get() + 1);
        let failed = || Err(io::ErrorKind::StorageFull.into());
        match (call.cmp(&self.failing_call), self.fault) {
            (std::cmp::Ordering::Less, _) => whole(),
            (std::cmp::Ordering::Greater, _) if self.then == Then::Works => whole(),
            (std::cmp::Ordering::Equal, Fault::Within) => half().and_then(|()| failed()),
            (std::cmp::Ordering::Equal, Fault::After) => whole().and_then(|()| failed()),
            _ => failed(),
        }
    }

    fn has_failed(&self) -> bool {
        self.calls.get() > self.failing_call
    }
}

impl Storage for Faulty {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.operation(|| Ok(()), || Disk.create_folder(folder))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.operation(|| Disk.write(path, &bytes[..bytes.len() / 2]), || Disk.write(path, bytes))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.operation(|| Ok(()), || Disk.sync_folder(folder))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operation(|| Ok(()), || Disk.rename(from, to))
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.operation(|| fs::remove_file(folder.join(MODEL)), || Disk.remove_folder(folder))
    }
}

/// Weights and an optimizer whose numbers are all `value`.
fn numbers(value: f32) -> (TensorSet, Optimizer) {
    let scope = Device::cpu().scope("test");
    let mut layout = Layout::default();
    layout.push("w".to_owned(), &[3]);
    let mut parameters = TensorSet::zeros(&scope, &Arc::new(layout)).unwrap();
    parameters.values_mut().fill(value);
    let optimizer = Optimizer::new(&scope, OptimizerConfig::default(), &parameters).unwrap();
    (parameters, optimizer)
}

fn state(step: u64) -> State {
    State {
        unfinished: false,
        target_scales: None,
        scaler: None,
        updates: step,
        format_version: State::VERSION,
        step,
        epoch: 0,
        position_in_epoch: 0,
        run: RunSettings {
            shape: SampleShape { timeframes: vec![], outputs: 1 },
            model: ModelConfig::default(),
            train_samples: 9,
            validation_samples: 1,
            seed: 0,
            batch_size: 1,
            gradient_accumulation_steps: 1,
            run_length: 1,
            last_batch: LastBatch::Keep,
            optimizer: OptimizerConfig::default(),
            lr_schedule: LrSchedule::default(),
            steps: 9,
            loss: Loss::Mse,
            clip_norm: None,
            dropout: 0.0,
            carry_state: false,
            loss_on: megabatch_nn::batch::LossOn::LastStep,
            precision: megabatch_amp::Precision::Fp32,
            tf32: false,
            autotune: Tuning::Off,
            loss_scale: megabatch_amp::ScalerConfig::default(),
            is_weighted: false,
        },
        arithmetic: Arithmetic::here(Precision::Fp32),
        best: Some(Best { step: 1, loss: 0.5 }),
        early_stopping: EarlyStoppingState::default(),
        divergence: DivergenceState::default(),
    }
}

/// Saves a checkpoint of `step` whose numbers are all `value`.
fn save(checkpoints: &Checkpoints, storage: &dyn Storage, step: u64, value: f32) -> Result<PathBuf> {
    let (parameters, optimizer) = numbers(value);
    let state = state(step);
    checkpoints.save_on(storage, &state, checkpoints.encode(&state, &parameters, &optimizer, None)?)
}

/// The step and the number of the checkpoint that a run would go on from.
fn resume(checkpoints: &Checkpoints) -> Option<(u64, f32)> {
    let (mut parameters, mut optimizer) = numbers(f32::NAN);
    let State { run, arithmetic, .. } = state(0);
    let resumed =
        checkpoints.load_latest(u64::MAX, &run, &arithmetic, &mut parameters, &mut optimizer, None).unwrap()?;
    assert!(resumed.skipped.is_empty() && resumed.changed.is_empty(), "{resumed:?}");
    Some((resumed.state.step, parameters.values()[0]))
}

fn steps(checkpoints: &Checkpoints) -> Vec<u64> {
    checkpoints.list().unwrap().into_iter().map(|(step, _)| step).collect()
}

fn hidden(checkpoints: &Checkpoints) -> usize {
    checkpoints.entries().unwrap().iter().filter(|path| file_name(path).starts_with('.')).count()
}

/// Saves step `step` with the number 9 after `saved` (number = step) with every fault; checks what
/// is left, and that the run can go on.
fn check(saved: &[u64], step: u64) {
    let mut failing_call = 0;
    loop {
        let mut reached = false;
        for (fault, then) in [Fault::Before, Fault::Within, Fault::After]
            .into_iter()
            .flat_map(|fault| [(fault, Then::Works), (fault, Then::Dead)])
        {
            let folder = tempfile::tempdir().unwrap();
            let checkpoints = Checkpoints { keep_last: 2, ..Checkpoints::new(folder.path().join("checkpoints")) };
            for &step in saved {
                save(&checkpoints, &Disk, step, step as f32).unwrap();
            }
            let before = steps(&checkpoints);
            let storage = Faulty { calls: Cell::new(0), failing_call, fault, then };
            let result = save(&checkpoints, &storage, step, 9.0);
            let case =
                format!("{saved:?} then {step}, operation {failing_call} fails {fault:?}, then {then:?}: {result:?}");

            assert!(result.is_ok() || storage.has_failed(), "{case}");
            for (_, path) in checkpoints.list().unwrap() {
                State::load(&path).unwrap_or_else(|error| panic!("{case}: half a checkpoint: {error}"));
            }
            // A process that lives puts back at once what it moved aside.
            let newest = steps(&checkpoints).last().copied();
            assert!(then == Then::Dead || newest >= saved.last().copied(), "{case}: the newest is {newest:?}");

            let previous = saved.last().map(|&step| (step, step as f32));
            let found = resume(&checkpoints);
            let new = Some((step, 9.0));
            assert!(found == new || (result.is_err() && found == previous), "{case}: resumed from {found:?}");
            let now = steps(&checkpoints);
            let kept = |step: &&u64| **step == 1 || before.len() < 2 || before[before.len() - 2..].contains(step);
            // Pruning begins once the new checkpoint is in place.
            let kept: Vec<_> = before.iter().filter(kept).filter(|step| found != new || **step != 2).collect();
            assert!(kept.iter().all(|step| now.contains(step)), "{case}: {before:?} became {now:?}");
            assert_eq!(hidden(&checkpoints), 0, "{case}");

            save(&checkpoints, &Disk, step, 9.0).unwrap_or_else(|error| panic!("{case}: and for ever: {error}"));
            assert_eq!(resume(&checkpoints), new, "{case}");
            reached |= storage.has_failed();
        }
        if !reached {
            break;
        }
        failing_call += 1;
    }
    // A folder, five files, two flushes and a rename at least.
    assert!(failing_call >= 9, "only {failing_call} operations were made to fail");
}

#[test]
fn a_failure_while_the_first_is_saved_leaves_none_or_a_whole_one() {
    check(&[], 1);
}

#[test]
fn a_failure_while_another_is_saved_leaves_those_before() {
    // Step 1 is the best; with two kept beside it, saving step 4 removes step 2.
    check(&[1, 2, 3], 4);
}

#[test]
fn a_failure_while_one_is_replaced_leaves_the_old_or_the_new_one() {
    check(&[1, 3], 3);
    check(&[1], 1);
}

#[test]
fn what_an_earlier_attempt_left_does_not_get_into_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let left = folder.path().join(".unfinished-step-00000004");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("left"), "").unwrap();
    let path = save(&checkpoints, &Disk, 4, 9.0).unwrap();
    assert!(path.join(MODEL).exists() && !path.join("left").exists());
    assert_eq!(hidden(&checkpoints), 0);
}
