//! `cargo xtask test`: the one gate that every change passes.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::gates::{GATES, Gate};
use crate::workspace::Workspace;

pub(crate) fn run(args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--list") {
        GATES.iter().for_each(|gate| println!("{:14} {}", gate.name, gate.checks));
        return Ok(());
    }
    let chosen = choose(args)?;
    let workspace = Workspace::load()?;
    let start = Instant::now();
    for gate in &chosen {
        println!("\n== {}: {}", gate.name, gate.checks);
        let gate_start = Instant::now();
        (gate.run)(&workspace).with_context(|| format!("gate `{0}`; alone: cargo xtask test {0}", gate.name))?;
        println!("== {} passed in {:.0} s", gate.name, gate_start.elapsed().as_secs_f64());
    }
    println!("\nAll {} gates passed in {:.0} s.", chosen.len(), start.elapsed().as_secs_f64());
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Gate>> {
    if names.is_empty() {
        return Ok(GATES.iter().collect());
    }
    let mut chosen = Vec::new();
    for name in names {
        match GATES.iter().find(|gate| gate.name == name) {
            Some(gate) => chosen.push(gate),
            None => bail!("no gate `{name}`; `cargo xtask test --list` names them"),
        }
    }
    Ok(chosen)
}
