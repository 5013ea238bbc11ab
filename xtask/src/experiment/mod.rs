//! `cargo xtask experiment`: whole runs on public data, from the published files to a line of
//! results.
//!
//! The data are not part of the project: `MEGABATCH_DATA` names the folder that has them.

mod dgcnn;
mod graphs;
mod runner;
mod shares;

use anyhow::{Result, bail};

use runner::Runner;

/// Name and function of an experiment.
type Experiment = (&'static str, fn(&Runner) -> Result<String>);

const EXPERIMENTS: &[Experiment] = &[
    ("cora", graphs::cora),
    ("mutag", graphs::mutag),
    ("proteins", graphs::proteins),
    ("molecules", graphs::molecules),
    ("sp500", shares::sp500),
];

/// `experiment NAME…`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let names: Vec<&str> = EXPERIMENTS.iter().map(|(name, _)| *name).collect();
    if args.is_empty() {
        bail!("which experiment? there are {}", names.join(", "));
    }
    let chosen = args.iter().map(|arg| {
        let found = EXPERIMENTS.iter().find(|(name, _)| name == arg);
        found.ok_or_else(|| anyhow::anyhow!("`{arg}` is no experiment; there are {}", names.join(", ")))
    });
    let chosen = chosen.collect::<Result<Vec<_>>>()?;
    for (name, experiment) in chosen {
        println!("{}", experiment(&Runner::new(name)?)?);
    }
    Ok(())
}
