//! `cargo xtask test`: the one gate that every change passes.

use std::cell::RefCell;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use megabatch_test_support::Requirement;

use crate::gates::{GATES, Gate};
use crate::passed::Passed;
use crate::session::{Depth, Session};
use crate::sources::Sources;
use crate::workspace::Workspace;
use crate::{skipped, tests_gate, timings};

/// Options of the command line.
struct Options {
    gates: Vec<&'static Gate>,
    /// Requirements for lack of which no test may be skipped.
    required: Vec<Requirement>,
    depth: Depth,
    /// Packages of the gate `tests`; empty for all.
    packages: Vec<String>,
    /// True if checks that have passed and have not changed are skipped.
    reuse: bool,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--list") {
        GATES.iter().for_each(|gate| println!("{:14} {}", gate.name, gate.checks));
        return Ok(());
    }
    if let Some((first, rest)) = args.split_first()
        && first == "--timings"
    {
        let rounds =
            rest.first().map_or(Ok(3), |rounds| rounds.parse()).context("--timings: expected rounds, such as 3")?;
        return timings::run(&Workspace::load()?, rounds);
    }
    let options = parse(args)?;
    let workspace = Workspace::load()?;
    let record = skipped::path(&workspace);
    skipped::clear_file(&record)?;
    let (sources, passed) = (Sources::read(&workspace)?, Passed::open(&workspace, options.reuse)?);
    let session = Session {
        workspace,
        sources,
        passed,
        depth: options.depth,
        packages: options.packages,
        timed: RefCell::default(),
    };
    let start = Instant::now();
    for gate in &options.gates {
        println!("\n== {}: {}", gate.name, gate.checks);
        let gate_start = Instant::now();
        (gate.run)(&session).with_context(|| format!("gate `{0}`; alone: cargo xtask test {0}", gate.name))?;
        println!("== {} passed in {:.0} s", gate.name, gate_start.elapsed().as_secs_f64());
    }
    println!();
    tests_gate::report_slow(&session);
    skipped::report(&record, &options.required)?;
    println!("All {} gates passed in {:.0} s.", options.gates.len(), start.elapsed().as_secs_f64());
    Ok(())
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options =
        Options { gates: Vec::new(), required: Vec::new(), depth: Depth::Usual, packages: Vec::new(), reuse: true };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--require" => {
                let name = args.next().context("--require needs a name, such as data")?;
                options.required.push(skipped::requirement(name)?);
            }
            "--package" => options.packages.push(args.next().context("--package needs a name")?.clone()),
            "--thorough" => options.depth = Depth::Thorough,
            "--again" => options.reuse = false,
            name => options.gates.push(gate(name)?),
        }
    }
    if options.gates.is_empty() {
        options.gates.extend(GATES);
    }
    Ok(options)
}

fn gate(name: &str) -> Result<&'static Gate> {
    match GATES.iter().find(|gate| gate.name == name) {
        Some(gate) => Ok(gate),
        None => bail!("no gate `{name}`; `cargo xtask test --list` names them"),
    }
}
