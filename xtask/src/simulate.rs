//! `cargo xtask simulate`: the memory pool in lockstep with its model, for many more events than an
//! ordinary test has time for.
//!
//! It runs the library's own test, which documents the comparison, with more events.

use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::limits::succeed_without_limit;
use crate::workspace::{Workspace, cargo};

const EVENTS_DEFAULT: u64 = 10_000_000;
const SEED_DEFAULT: u64 = 1;
const TEST: &str = "as_long_as_asked";

/// `simulate [--events N] [--seed S]`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let [events, seed] = parse(args)?;
    let workspace = Workspace::load()?;
    let mut test = cargo(&workspace.root, &["test", "--package", "megabatch-gpu-core", "--test", "simulation", "--"]);
    test.args(["--exact", TEST, "--nocapture"]).stderr(Stdio::inherit());
    test.env("MEGABATCH_SIMULATION_EVENTS", events.to_string()).env("MEGABATCH_SIMULATION_SEED", seed.to_string());
    println!("xtask: {events} events from seed {seed} on; a million take about half a minute");
    succeed_without_limit(&mut test)
}

/// The number of events and the first seed.
fn parse(args: &[String]) -> Result<[u64; 2]> {
    let mut asked = [EVENTS_DEFAULT, SEED_DEFAULT];
    for pair in args.chunks(2) {
        let place = match pair[0].as_str() {
            "--events" => &mut asked[0],
            "--seed" => &mut asked[1],
            other => bail!("unknown option `{other}`: expected --events N or --seed S"),
        };
        let value = pair.get(1).with_context(|| format!("{} wants a number", pair[0]))?;
        *place = value.parse().with_context(|| format!("`{value}` is no number for {}", pair[0]))?;
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<[u64; 2]> {
        parse(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_come_in_any_order() {
        assert_eq!(parsed(&[]).unwrap(), [EVENTS_DEFAULT, SEED_DEFAULT]);
        assert_eq!(parsed(&["--seed", "7", "--events", "100"]).unwrap(), [100, 7]);
        for wrong in [&["--events"][..], &["--events", "many"], &["100"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
