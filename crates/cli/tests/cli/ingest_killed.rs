//! Ingest and append that are killed at random moments end with the bytes of one that nobody
//! touched.
//!
//! `MEGABATCH_KILLED_RUNS` says how many runs; `cargo xtask kill` asks for a hundred.

use std::fs;
use std::time::{Duration, Instant};

use crate::stage::Stage;

const RUNS: usize = 3;
/// Days of each symbol.
const DAYS: u32 = 12;
const SYMBOLS: [&str; 4] = ["EURUSD", "GBPUSD", "AUDUSD", "NZDUSD"];
const INGEST: &str = "ingest EURUSD.csv GBPUSD.csv AUDUSD.csv NZDUSD.csv --timeframes M1:60,M5:24,H1:12";

fn runs() -> usize {
    std::env::var("MEGABATCH_KILLED_RUNS").map_or(RUNS, |runs| runs.parse().expect("a number of runs"))
}

#[test]
fn ingest_killed_at_random_moments_ends_with_the_same_bytes() {
    let runs = runs();
    let stage = Stage::new();
    for (seed, symbol) in SYMBOLS.iter().enumerate() {
        stage.succeeds(&format!("synth {symbol}.csv --days {DAYS} --seed {seed}"));
    }
    let start = Instant::now();
    stage.succeeds(&format!("{INGEST} --out whole.h5"));
    let wall = start.elapsed();
    let whole = stage.read("whole.h5");
    let (mut kills, mut kept) = (0, 0);
    for run in 0..runs {
        // Moments evenly over the time that a whole run takes, twice over in each run.
        for half in 0..2 {
            let share = (run as f64 + 0.5) / runs as f64 / 2.0 + 0.5 * f64::from(half);
            if !is_done_within(&stage, wall.mul_f64(share)) {
                kills += 1;
                assert!(!stage.path("out.h5").exists(), "a file that is not whole has the name of one");
                let spool = fs::read_dir(stage.path(".out.h5.spool")).into_iter().flatten().flatten();
                kept += spool.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "json")).count();
            }
        }
        stage.succeeds(&format!("{INGEST} --out out.h5"));
        assert!(stage.read("out.h5") == whole, "run {run} has other bytes");
        fs::remove_file(stage.path("out.h5")).unwrap();
        let left =
            fs::read_dir(stage.path(".")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(left.filter(|name| name.starts_with('.')).collect::<Vec<_>>(), [] as [String; 0]);
    }
    println!(
        "killed: {runs} of {runs} series had the bytes of the one that was not killed; {kills} kills of ingest over {:.1} s, after which {kept} symbols were not read again",
        wall.as_secs_f64()
    );
    assert!(kills > 0, "nothing was killed");
}

#[test]
fn append_killed_at_random_moments_leaves_the_series_or_the_new_one() {
    let runs = runs();
    let stage = Stage::new();
    for (seed, symbol) in SYMBOLS.iter().enumerate() {
        stage.succeeds(&format!("synth {symbol}.csv --days {DAYS} --seed {seed}"));
        let bars = stage.text(&format!("{symbol}.csv"));
        let at = bars.match_indices('\n').nth(12_000).unwrap().0 + 1;
        stage.write(&format!("{symbol}-old.csv"), &bars[..at]);
        stage.write(&format!("{symbol}-new.csv"), &bars[at..]);
    }
    let named = |part: &str| SYMBOLS.map(|symbol| format!("{symbol}-{part}.csv")).join(" ");
    stage.succeeds(&format!("ingest {} --timeframes M1:60,M5:24,H1:12 --out old.h5", named("old")));
    let append = format!("ingest --append {} --out out.h5", named("new"));
    let (old, out) = (stage.read("old.h5"), stage.path("out.h5"));
    fs::write(&out, &old).unwrap();
    let start = Instant::now();
    stage.succeeds(&append);
    let (wall, whole) = (start.elapsed(), stage.read("out.h5"));
    assert!(whole.len() > old.len());
    let mut kills = 0;
    for run in 0..runs {
        fs::write(&out, &old).unwrap();
        for half in 0..2 {
            let share = (run as f64 + 0.5) / runs as f64 / 2.0 + 0.5 * f64::from(half);
            if stage.kill_after(&append, wall.mul_f64(share)).is_none() {
                kills += 1;
            }
            let found = stage.read("out.h5");
            assert!(found == old || found == whole, "a file that is neither the old series nor the new one");
        }
        stage.succeeds(&append);
        assert!(stage.read("out.h5") == whole, "run {run} has other bytes");
        let left =
            fs::read_dir(stage.path(".")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(left.filter(|name| name.starts_with('.')).collect::<Vec<_>>(), [] as [String; 0]);
    }
    println!(
        "killed: {runs} of {runs} appended series had the bytes of the one that was not killed; {kills} kills of append over {:.1} s",
        wall.as_secs_f64()
    );
    assert!(kills > 0, "nothing was killed");
}

/// Runs ingest for `life` and kills it; true if it was done before. Its file is removed then.
fn is_done_within(stage: &Stage, life: Duration) -> bool {
    if let Some(status) = stage.kill_after(&format!("{INGEST} --out out.h5"), life) {
        assert!(status.success() && stage.path("out.h5").exists(), "{status}");
    }
    // A killed one may have ended in the last moment.
    let is_done = stage.path("out.h5").exists();
    if is_done {
        fs::remove_file(stage.path("out.h5")).unwrap();
    }
    is_done
}
