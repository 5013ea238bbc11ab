//! A run that was ended, asked to stop or killed goes on as if it had not been: same weights, same
//! moments, same log.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stage::{SERIES, SMALL, Stage};

#[cfg(unix)]
mod full_disk;
mod killed;

/// Compares `run`, which was resumed, with one that was not, after `steps` steps with `settings`.
fn check_same(stage: &Stage, settings: &str, steps: u64) {
    let line = format!("train --data series.h5 --out whole --max-steps {steps} {settings}");
    assert_eq!(stage.succeeds(&line)["finished"], true);
    let [whole, resumed] = ["whole", "run"].map(|run| stage.checkpoint(run, steps));
    assert!(whole[0] == resumed[0], "the weights differ after {steps} steps");
    assert!(whole[1] == resumed[1], "the optimizer's moments differ after {steps} steps");
    let log = |run| -> Vec<(u64, f64, f64)> {
        let number = |metric: &Value, key: &str| metric[key].as_f64().unwrap();
        let step =
            |metric: &Value| (metric["step"].as_u64().unwrap(), number(metric, "loss"), number(metric, "grad_norm"));
        stage.metrics(run, "step").iter().map(step).collect()
    };
    let resumed = log("run");
    assert_eq!(resumed.iter().map(|step| step.0).collect::<Vec<_>>(), (1..=steps).collect::<Vec<_>>());
    assert_eq!(resumed, log("whole"));
}

/// Compares the best weights of the two runs of [`check_same`]. A run that was ended before does
/// not have the same: it was validated there.
fn check_same_best(stage: &Stage) {
    assert_eq!(stage.succeeds("eval --run run"), stage.succeeds("eval --run whole"));
}

#[test]
fn a_run_that_ended_goes_on() {
    let stage = Stage::with_series();
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 7 {SMALL}"));
    stage.succeeds("train --out run --resume --max-steps 12");
    let answer = stage.succeeds("train --out run --resume --max-steps 20");
    assert_eq!((&answer["steps"], &answer["finished"]), (&20.into(), &true.into()));
    check_same(&stage, SMALL, 20);
}

#[test]
fn a_run_that_is_complete_stays_as_it_is() {
    let stage = Stage::with_run();
    let before = stage.checkpoint("run", 9);
    let answer = stage.succeeds("train --out run --resume");
    assert_eq!((&answer["steps"], &answer["finished"]), (&9.into(), &true.into()));
    assert!(stage.checkpoint("run", 9) == before);
    assert_eq!(stage.metrics("run", "step").len(), 9);
}

#[test]
fn data_may_move_but_not_change() {
    let stage = Stage::with_run();
    std::fs::rename(stage.path("series.h5"), stage.path("moved.h5")).unwrap();
    stage.succeeds("train --out run --resume --data moved.h5 --max-steps 10");
    assert!(stage.text("run/config.yaml").contains("moved.h5"));
    stage.succeeds("eval --run run");

    let before = stage.text("run/config.yaml");
    stage.succeeds(&SERIES.replace("series.h5", "other.h5 --seed 1"));
    let [message, _] = stage.fails("train --out run --resume --set data.purge=0s", 2);
    assert!(message.contains("began with other samples to train on and to validate"), "{message}");
    let [message, _] = stage.fails("train --out run --resume --data other.h5", 3);
    assert!(message.starts_with("other.h5: not the data that the run in run was trained on"), "{message}");
    assert_eq!(stage.text("run/config.yaml"), before);
}

#[test]
fn a_run_that_was_killed_goes_on() {
    let stage = Stage::with_series();
    let Long { mut process, .. } = Long::start(&stage);
    process.kill().unwrap();
    process.wait().unwrap();

    // A kill at a worse moment leaves a line cut short and a checkpoint half written.
    let log = stage.text("run/metrics.jsonl");
    let last: Value = log.lines().rev().find_map(|line| serde_json::from_str(line).ok()).unwrap();
    stage.write("run/metrics.jsonl", &format!("{}\n{{\"event\":\"step\",\"st", log.trim_end()));
    std::fs::create_dir(stage.path("run/checkpoints/.unfinished-killed")).unwrap();

    // Steps after the last checkpoint are in the log already and are done again.
    let steps = last["step"].as_u64().unwrap() + 3;
    let answer = stage.succeeds(&format!("train --out run --resume --max-steps {steps}"));
    assert_eq!((&answer["steps"], &answer["finished"]), (&steps.into(), &true.into()));
    check_same(&stage, SMALL, steps);
    check_same_best(&stage);
    let is_unfinished = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with('.');
    let unfinished: Vec<PathBuf> = stage.contents().into_keys().filter(is_unfinished).collect();
    assert!(unfinished.is_empty(), "{unfinished:?}");
}

#[cfg(unix)]
#[test]
fn a_run_that_is_asked_to_stop_saves_and_goes_on() {
    // `kill -INT` of a run ended it with exit code 0, as the end of training does.
    for (signal, exit_code) in signals() {
        let stage = Stage::with_series();
        let Long { process, stderr } = Long::start(&stage);
        // Nobody reads what is said to a terminal that was closed, which may signal twice.
        let (signals, stderr) = if signal == "HUP" { (2, None) } else { (1, Some(stderr)) };
        for _ in 0..signals {
            kill(&process, signal);
        }
        let mut rest = String::new();
        if let Some(mut stderr) = stderr {
            stderr.read_to_string(&mut rest).unwrap();
        }
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(exit_code), "{signal}: {rest}");

        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&answer["finished"], &answer["evaluation"]), (&false.into(), &Value::Null), "{signal}");
        let stopped_at = answer["steps"].as_u64().unwrap();
        stage.checkpoint("run", stopped_at);
        assert_eq!(stage.metrics("run", "step").len() as u64, stopped_at, "{signal}");
        assert_eq!(stage.metrics("run", "end")[0]["how"], "stopped", "{signal}");
        assert!(stage.said("monitor run").contains("; stopped; --resume goes on"), "{signal}");
        stage.succeeds(&format!("train --out run --resume --max-steps {}", stopped_at + 3));
        check_same(&stage, SMALL, stopped_at + 3);
        check_same_best(&stage);
    }
}

/// A signal to a command that does not look for one left its temporary file, without a word.
#[cfg(unix)]
#[test]
fn a_command_that_a_signal_ends_says_so_and_leaves_nothing() {
    for (signal, exit_code) in signals() {
        let stage = Stage::new();
        let mut command = stage.command("synth bars.csv --days 3650");
        let mut process = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while !stage.has_temporary_file() {
            assert!(process.try_wait().unwrap().is_none(), "it ended before its signal");
            assert!(begun.elapsed() < Duration::from_secs(60), "no file was begun");
        }
        kill(&process, signal);
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(exit_code), "{signal}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("megabatch: ended by SIG{signal}\n"));
        assert!(stage.contents().is_empty(), "{:?}", stage.contents().keys());
    }
}

/// Under `nohup` a run goes on without its terminal.
#[cfg(unix)]
#[test]
fn a_signal_that_is_ignored_stays_so() {
    let stage = Stage::new();
    let program = stage.command("synth series.h5 --samples 200000").get_program().to_owned();
    let line = format!("trap '' HUP; {} synth series.h5 --samples 200000 & kill -HUP $!; wait $!", program.display());
    let status = Command::new("sh").args(["-c", &line]).current_dir(stage.path("")).status().unwrap();
    assert!(status.success() && stage.path("series.h5").exists(), "{status}");
}

/// Signals that ask a command to stop, and its exit codes after them. A child ignores SIGHUP where
/// this process does, as under `nohup`.
#[cfg(unix)]
fn signals() -> impl Iterator<Item = (&'static str, i32)> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    let [hangup, rest @ ..] = [("HUP", 129), ("INT", 130), ("TERM", 143)];
    std::iter::once(hangup).filter(move |_| ignored & 1 == 0).chain(rest)
}

#[cfg(unix)]
fn kill(process: &Child, signal: &str) {
    let kill = Command::new("sh").args(["-c", &format!("kill -{signal} {}", process.id())]).status().unwrap();
    assert!(kill.success());
}

/// A run that goes on for much longer than the tests that end it in the midst.
struct Long {
    process: Child,
    stderr: BufReader<ChildStderr>,
}

impl Long {
    /// Starts it, and waits until it has saved a checkpoint.
    fn start(stage: &Stage) -> Self {
        let line = format!("train --data series.h5 --out run --max-steps 50000 {SMALL} --json");
        let mut process = stage.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(process.stderr.take().unwrap());
        // The checkpoint of an epoch's end follows the line on its validation, and precedes that of
        // the next.
        let mut line = String::new();
        for epoch in 1..=2 {
            line.clear();
            // Lines on what the model can be used for come first.
            while line.is_empty() || line.starts_with("after training: ") {
                line.clear();
                stderr.read_line(&mut line).unwrap();
            }
            assert!(line.starts_with(&format!("epoch {epoch}, step ")), "{line}");
        }
        assert!(stage.path("run/checkpoints/step-00000009").is_dir());
        Long { process, stderr }
    }
}

#[test]
fn a_resumed_run_ends_where_it_was_to_end() {
    let stage = Stage::with_series();
    // More steps than the epochs have, and fewer.
    for (run, steps) in [("more", 100_u64), ("fewer", 20)] {
        let settings = format!("--max-steps {steps} {SMALL} --set training.epochs=3 --set training.lr_schedule=cosine");
        stage.succeeds(&format!("train --data series.h5 --out {run} {settings}"));
        let whole = stage.checkpoint(run, steps);
        // As if the run had been killed before its last checkpoint.
        std::fs::remove_dir_all(stage.path(&format!("{run}/checkpoints/step-{steps:08}"))).unwrap();
        let answer = stage.succeeds(&format!("train --out {run} --resume"));
        assert_eq!(answer["steps"], steps);
        assert!(stage.checkpoint(run, steps) == whole, "{run}");
    }
}

/// `eval` judged weights that were never trained, without a word.
#[test]
fn weights_of_before_training_are_warned_of() {
    let stage = Stage::with_series();
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 1 {SMALL}"));
    assert!(!stage.told("eval --run run").contains("step 0"));
    // As if the run had been killed in its first step.
    std::fs::remove_dir_all(stage.path("run/checkpoints/step-00000001")).unwrap();
    let told = stage.told("eval --run run");
    assert!(told.contains("warning: run: the weights are those of step 0, before training"), "{told}");
    stage.succeeds("export --run run --out weights.safetensors");
    stage.succeeds(&format!("import weights.safetensors --data series.h5 --out imported {SMALL}"));
    assert!(!stage.told("eval --run imported").contains("step 0"), "its weights are meant");
}

#[test]
fn fewer_steps_than_are_done_leave_the_run_as_it_was() {
    let stage = Stage::with_run();
    let config = stage.text("run/config.yaml");
    let answer = stage.succeeds("train --out run --resume --max-steps 1");
    assert!(answer["steps"].as_u64().unwrap() > 1, "{answer}");
    assert_eq!(stage.text("run/config.yaml"), config);
}

#[test]
fn a_run_is_trained_by_one_process_at_a_time() {
    let stage = Stage::with_run();
    let other = std::fs::File::open(stage.path("run")).unwrap();
    other.try_lock().unwrap();
    let before = stage.contents();
    let [message, _] = stage.fails("train --out run --resume --max-steps 20", 2);
    assert!(message.contains("run: another process trains in this folder"), "{message}");
    assert!(stage.contents() == before);
    drop(other);
    stage.succeeds("train --out run --resume --max-steps 20");
}

#[test]
fn a_single_number_that_changed_is_other_data() {
    let stage = Stage::with_run();
    stage.damage("series.h5", |path| {
        let values = hdf5::File::open_rw(path).and_then(|file| file.dataset("series/M1/values")).unwrap();
        let mut changed = values.read_raw::<f32>().unwrap();
        changed[77] += 1.0;
        values.write_raw(&changed).unwrap();
    });
    for line in ["train --out run --resume --max-steps 20", "eval --run run"] {
        let [message, _] = stage.fails(line, 3);
        assert!(message.contains("/series/M1/values[0]: expected rows 0 to "), "{line}: {message}");
    }
    // Its mark of verification deleted, the change is meant.
    stage.with_hdf5("series.h5", |_| ());
    let [message, _] = stage.fails("train --out run --resume --max-steps 20", 3);
    assert!(message.contains("series.h5: not the data that the run in run was trained on"), "{message}");
    // Its errors on other samples mean something else.
    let [message, _] = stage.fails("eval --run run", 3);
    assert!(message.contains("series.h5: changed since run was trained on it"), "{message}");
    let told = stage.told("eval --run run --force");
    assert!(told.contains("series.h5: changed since run was trained on it"), "{told}");
}
