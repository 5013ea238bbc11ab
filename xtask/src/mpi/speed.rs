//! `cargo xtask mpi speed`: two processes of one thread beside one process of two threads.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Mpi, PATIENCE, launch, launchers, wait};
use crate::limits::succeed;
use crate::tools;
use crate::workspace::{Workspace, cargo};

const ROUNDS_DEFAULT: usize = 5;
const STEPS: usize = 30;
/// Steps before caches and the network of processes are warm.
const WARM_UP_STEPS: usize = 5;
/// The least part of the speed of one process that two have to reach.
const GOAL: f64 = 0.93;
/// The default model over the five timeframes of the series.
const SETTINGS: [&str; 3] =
    ["gpu_optimization.batch_size=128", "distributed.timeout=60", "training.validation_samples=128"];

/// Processes and threads whose speed is measured.
#[derive(Clone, Copy)]
struct Contestant {
    name: &'static str,
    ranks: u32,
    threads: u32,
}

const CONTESTANTS: [Contestant; 2] = [
    Contestant { name: "one process of two threads", ranks: 1, threads: 2 },
    Contestant { name: "two processes of one thread", ranks: 2, threads: 1 },
];

/// Alternates both for so many rounds, and prints the ratio of their speeds.
pub(super) fn run(workspace: &Workspace, bars: &Path, rounds: Option<&String>) -> Result<()> {
    let rounds = rounds.map_or(Ok(ROUNDS_DEFAULT), |rounds| rounds.parse());
    let rounds = rounds.context("expected `mpi speed [ROUNDS]`")?;
    ensure!(rounds > 0, "expected one round or more");
    let mut build = cargo(&workspace.root, &["build", "--release", "--package", "megabatch"]);
    succeed(tools::with_cmake(&mut build, workspace)?)?;
    let binary = workspace.target_dir.join("release").join(format!("megabatch{}", std::env::consts::EXE_SUFFIX));
    let folder = workspace.target_dir.join("mpi-speed");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("{}: cannot be removed", folder.display()))?;
    }
    fs::create_dir_all(&folder)?;
    let data = folder.join("eurusd15.h5");
    succeed(Command::new(&binary).arg("ingest").arg(bars).arg("--out").arg(&data).args(["--stride", "15"]))?;
    let openmpi = launchers(workspace)?.swap_remove(0);
    let speed = |contestant: Contestant, round: usize| -> Result<f64> {
        let out = folder.join(format!("{}-{round}", contestant.ranks));
        train(&openmpi, &binary, contestant, &data, &out)?;
        let speed = samples_per_s(&out)?;
        fs::remove_dir_all(&out)?;
        Ok(speed)
    };
    let mut ratios = Vec::new();
    for round in 0..rounds {
        // Each begins every other round.
        let first = round % 2;
        let mut speeds = [0.0; 2];
        for at in [first, 1 - first] {
            speeds[at] = speed(CONTESTANTS[at], round)?;
        }
        let [one, two] = speeds;
        let names = CONTESTANTS.map(|contestant| contestant.name);
        println!("mpi speed: {}: {one:.1} samples/s; {}: {two:.1}; ratio {:.3}", names[0], names[1], two / one);
        ratios.push(two / one);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "mpi speed: ratio {:.3}, from {:.3} to {:.3} in {rounds} rounds; goal: {GOAL} or more",
        median(&ratios),
        ratios[0],
        ratios[rounds - 1]
    );
    Ok(())
}

fn train(mpi: &Mpi, binary: &Path, contestant: Contestant, data: &Path, out: &Path) -> Result<()> {
    let text = |path: &Path| path.display().to_string();
    let Contestant { ranks, threads, .. } = contestant;
    let mut program = vec![text(binary), "train".to_owned(), "--data".to_owned(), text(data)];
    program.extend(["--out".to_owned(), text(out), "--max-steps".to_owned(), STEPS.to_string()]);
    let threads = format!("training.threads={threads}");
    for setting in SETTINGS.iter().copied().chain([threads.as_str()]) {
        program.extend(["--set".to_owned(), setting.to_owned()]);
    }
    if ranks == 1 {
        program.extend(["--distributed".to_owned(), "off".to_owned()]);
        let done = Command::new(&program[0]).args(&program[1..]).output()?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        return Ok(());
    }
    program.extend(["--distributed".to_owned(), "mpi".to_owned()]);
    let log = out.with_extension("log");
    let mut job = launch(mpi, &[], ranks, &program, &log)?;
    ensure!(wait(&mut job, PATIENCE)? == Some(true), "{}", fs::read_to_string(&log)?);
    Ok(())
}

/// The median speed of the steps that `metrics.jsonl` of a run has.
fn samples_per_s(run: &Path) -> Result<f64> {
    let metrics = fs::read_to_string(run.join("metrics.jsonl"))?;
    let events = metrics.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let speeds =
        events.iter().filter(|event| event["event"] == "step").filter_map(|step| step["samples_per_s"].as_f64());
    let mut speeds: Vec<f64> = speeds.skip(WARM_UP_STEPS).collect();
    ensure!(speeds.len() == STEPS - WARM_UP_STEPS, "{}: {} steps", run.display(), speeds.len());
    speeds.sort_by(f64::total_cmp);
    Ok(median(&speeds))
}

/// The middle of sorted numbers, of which there is one at least.
fn median(sorted: &[f64]) -> f64 {
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_that_of_both_sides() {
        assert_eq!([&[3.0][..], &[1.0, 2.0], &[1.0, 5.0, 6.0]].map(median), [3.0, 1.5, 5.0]);
    }
}
