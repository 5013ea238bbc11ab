//! Runs that are killed at random moments, several times each, and go on with another number of
//! threads, end as one that nobody touched.
//!
//! `MEGABATCH_KILLED_RUNS` says how many runs; `cargo xtask kill` asks for a hundred.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stage::Stage;

const RUNS: usize = 3;
/// A run is killed once, twice or three times.
const KILLS_MAX: usize = 3;
/// Threads of the sessions of a run, in turn.
const THREADS: [usize; 3] = [3, 16, 2];
const SEED: u64 = 20_180_104;

const BARS: &str = "synth bars.csv --days 12";
const SERIES: &str =
    "ingest bars.csv --out series.h5 --symbol EURUSD --stride 15 --horizon 4 --timeframes M1:24,M15:12";
const SETTINGS: &str = "--set model.hidden=8 --set training.batch_size=16 --set training.run_length=4 --set training.epochs=12 \
    --set training.loss=huber --set training.lr_schedule=cosine --set training.warmup_steps=30 --set training.early_stopping=8 \
    --set model.layers=2 --set model.dropout=0.1 --set training.carry_state=true";

/// The same in fp16 with a loss scale that changes every few steps: it grows after three steps
/// without overflow, up to where gradients overflow.
const FP16: &str = "--set training.precision=fp16 --set training.loss_scale_initial=1048576 --set training.loss_scale_growth_interval=3 \
    --set training.loss_scale_growth_factor=4 --set training.loss_scale_ceiling=1e12 --set training.epochs=6";

/// Random numbers by SplitMix64 (Steele, Lea and Flood, 2014), the same at every call of the test.
struct Random(u64);

impl Random {
    /// A number in [0, 1).
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[test]
fn runs_killed_at_random_moments_end_like_one_that_was_not() {
    check(SETTINGS);
}

#[test]
fn the_loss_scale_too_goes_on_after_a_kill() {
    let steps = check(&format!("{SETTINGS} {FP16}"));
    let scales: BTreeSet<u64> = steps.iter().filter_map(|step| Some(step["loss_scale"].as_f64()?.to_bits())).collect();
    assert!(scales.len() > 3 && steps.iter().any(|step| step["overflow"].is_string()), "{scales:?}");
}

#[test]
fn a_streamed_run_too_ends_like_one_that_was_not_killed() {
    check(&format!("{SETTINGS} --set data.residency=streamed --set data.cache_gb=0.0001"));
}

/// Compares runs that are killed with one that was not, whose steps are given back.
fn check(settings: &str) -> Vec<Value> {
    let runs = std::env::var("MEGABATCH_KILLED_RUNS").map_or(RUNS, |runs| runs.parse().expect("a number of runs"));
    let stage = Stage::new();
    stage.succeeds(BARS);
    stage.succeeds(SERIES);
    let start = Instant::now();
    let answer = stage.succeeds(&format!("train --data series.h5 --out whole {settings}"));
    let wall = start.elapsed();
    let whole = Ending::read(&stage, "whole");
    assert_eq!(whole.log.iter().filter(|line| line["event"] == "step").count() as u64, answer["steps"]);

    let mut random = Random(SEED);
    let mut moments: BTreeMap<&str, usize> = BTreeMap::new();
    for k in 0..runs {
        let run = format!("run{k}");
        let hit = kill_and_resume(&stage, settings, &run, 1 + k % KILLS_MAX, wall, &mut random);
        whole.require_same(&Ending::read(&stage, &run), &format!("{run} of seed {SEED}, killed {hit:?}"));
        hit.into_iter().for_each(|moment| *moments.entry(moment).or_default() += 1);
        std::fs::remove_dir_all(stage.path(&run)).unwrap();
    }
    let kills: usize = moments.values().sum();
    let list: Vec<String> = moments.iter().map(|(moment, count)| format!("{count} {moment}")).collect();
    println!(
        "killed: {runs} of {runs} runs ended bit for bit like the one that was not killed; {kills} kills over {} steps and {:.1} s: {}",
        answer["steps"],
        wall.as_secs_f64(),
        list.join(", ")
    );
    whole.log.into_iter().filter(|line| line["event"] == "step").collect()
}

/// Kills `run` up to `kills` times at moments drawn over the time that a whole run takes, at least
/// once, and lets it end; where it was each time.
fn kill_and_resume(
    stage: &Stage,
    settings: &str,
    run: &str,
    kills: usize,
    wall: Duration,
    random: &mut Random,
) -> Vec<&'static str> {
    let mut hit = Vec::new();
    while hit.len() < kills {
        let moment = wall.mul_f64(random.share());
        let threads = THREADS[hit.len() % THREADS.len()];
        if stage.kill_after(&next_command(stage, settings, run, threads), moment).is_none() {
            hit.push(where_it_was(stage, run));
        } else if hit.is_empty() {
            // It was done before its moment came: another run takes its place.
            std::fs::remove_dir_all(stage.path(run)).unwrap();
        } else {
            break;
        }
    }
    let answer = stage.succeeds(&next_command(stage, settings, run, THREADS[kills % THREADS.len()]));
    assert_eq!(answer["finished"], true, "{run}: {answer}");
    hit
}

/// The command of a user whose run was killed: a run that has not begun is begun, one that has goes
/// on.
fn next_command(stage: &Stage, settings: &str, run: &str, threads: usize) -> String {
    let threads = format!("--set training.threads={threads}");
    if stage.path(&format!("{run}/config.yaml")).exists() {
        format!("train --out {run} --resume {threads}")
    } else {
        format!("train --data series.h5 --out {run} {settings} {threads}")
    }
}

/// Activity of a killed run, from its folder.
fn where_it_was(stage: &Stage, run: &str) -> &'static str {
    let checkpoints = std::fs::read_dir(stage.path(&format!("{run}/checkpoints")));
    let is_unfinished =
        |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().starts_with('.');
    if checkpoints.is_ok_and(|mut entries| entries.any(is_unfinished)) {
        return "while saving";
    }
    let Ok(log) = std::fs::read_to_string(stage.path(&format!("{run}/metrics.jsonl"))) else {
        return "before the first step";
    };
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let steps = lines.iter().find_map(|line| line["steps"].as_u64());
    match lines.last() {
        None => "before the first step",
        Some(last) if last["event"] == "checkpoint" && last["step"].as_u64() == steps => "in evaluation and report",
        Some(last) if last["event"] == "validation" => "between validation and checkpoint",
        Some(last) if last["event"] == "checkpoint" => "after a checkpoint or at the start of a resume",
        Some(_) => "in steps or validation",
    }
}

/// All that two runs must share: every file of every checkpoint, the errors on the test split, what
/// the log says of learning, and the names of all files but TensorBoard's, of which each session
/// leaves one.
struct Ending {
    names: Vec<PathBuf>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    log: Vec<Value>,
}

impl Ending {
    fn read(stage: &Stage, run: &str) -> Self {
        let root = stage.path(run);
        let contents = stage.contents_of(run);
        let relative = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_owned();
        // The configuration has the run's name in it, and the checksums are also of the
        // configuration.
        let is_result = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            path.starts_with("checkpoints") && name != "config.yaml" && name != "checksums.xxh128"
                || name == "evaluation.json"
        };
        let names = contents.keys().map(relative).filter(|name| name.parent() != Some(Path::new("tb"))).collect();
        let files =
            contents.into_iter().map(|(path, bytes)| (relative(&path), bytes)).filter(|(path, _)| is_result(path));
        Ending { files: files.collect(), names, log: learning(stage, run) }
    }

    fn require_same(&self, other: &Ending, what: &str) {
        let missing: Vec<&PathBuf> = self.names.iter().filter(|name| !other.names.contains(name)).collect();
        assert!(missing.is_empty(), "{what}: {missing:?} are not there");
        // A kill between saving the last checkpoint and removing the one that it replaces leaves
        // both.
        let surplus: BTreeSet<&Path> = other
            .names
            .iter()
            .filter(|name| !self.names.contains(name))
            .map(|name| {
                let is_checkpoint =
                    name.components().count() > 1 && name.to_string_lossy().starts_with("checkpoints/step-");
                assert!(is_checkpoint, "{what}: {} is left", name.display());
                if name.components().count() == 2 { name.as_path() } else { name.parent().unwrap() }
            })
            .collect();
        assert!(surplus.len() <= 1, "{what}: {surplus:?} are left");
        for (path, bytes) in &self.files {
            assert!(other.files[path] == *bytes, "{what}: {} differs", path.display());
        }
        assert_eq!(self.log.len(), other.log.len(), "{what}: lines of the log");
        for (line, theirs) in self.log.iter().zip(&other.log) {
            assert_eq!(line, theirs, "{what}");
        }
    }
}

/// The lines of the log on steps and validations, without times, and without bytes: those read
/// depend on what is cached, those allocated on the number of threads.
fn learning(stage: &Stage, run: &str) -> Vec<Value> {
    let lines = stage.text(&format!("{run}/metrics.jsonl"));
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    // Warnings are a session's own: each says once what it sees.
    let is_learning =
        |line: &Value| ["step", "validation", "epoch", "rollback"].iter().any(|event| line["event"] == *event);
    let mut kept: Vec<Value> = lines.filter(is_learning).collect();
    for line in &mut kept {
        line.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_s") && !key.contains("bytes"));
    }
    kept
}
