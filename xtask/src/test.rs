//! `cargo xtask test`: the one gate that every change passes.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use megabatch_test_support::Requirement;

use crate::gates::{GATES, Gate};
use crate::skipped;
use crate::workspace::Workspace;

/// What the command line asks for.
struct Options {
    gates: Vec<&'static Gate>,
    /// Inputs for want of which no test may be skipped.
    required: Vec<Requirement>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--list") {
        GATES.iter().for_each(|gate| println!("{:14} {}", gate.name, gate.checks));
        return Ok(());
    }
    let options = parse(args)?;
    let workspace = Workspace::load()?;
    let record = skipped::path(&workspace);
    skipped::clear(&record)?;
    let start = Instant::now();
    for gate in &options.gates {
        println!("\n== {}: {}", gate.name, gate.checks);
        let gate_start = Instant::now();
        (gate.run)(&workspace).with_context(|| format!("gate `{0}`; alone: cargo xtask test {0}", gate.name))?;
        println!("== {} passed in {:.0} s", gate.name, gate_start.elapsed().as_secs_f64());
    }
    println!();
    skipped::report(&record, &options.required)?;
    println!("All {} gates passed in {:.0} s.", options.gates.len(), start.elapsed().as_secs_f64());
    Ok(())
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options { gates: Vec::new(), required: Vec::new() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--require" => {
                let name = args.next().context("--require needs a name, such as data")?;
                options.required.push(skipped::requirement(name)?);
            }
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
