//! `cargo xtask instructions [--check]`: instructions that training steps execute, counted by
//! valgrind, beside the committed table.
//!
//! Counts do not depend on what else a machine does, so that a change of a percent is one of the
//! code. Valgrind emulates a CPU with AVX2 and FMA, so the AVX2 form is counted. A step's count is
//! half the difference between three steps and one.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::limits::{succeed, succeed_without_limit};
use crate::tools;
use crate::workspace::{Workspace, cargo};

/// The committed table, relative to the root.
const TABLE: &str = "benches/instructions.tsv";

/// Tolerance of a count above the table's, in percent. Below, the table is to be written anew.
const TOLERANCE_PERCENT: u64 = 2;

/// Arguments of the example `training_step`.
const CASES: &[(&str, &[&str])] = &[
    ("consecutive", &[]),
    ("nothing in common", &["apart=40"]),
    ("five timeframes", &["timeframes=5"]),
    ("two layers, odd sizes", &["layers=2", "hidden=33", "features=19", "batch=33"]),
];

/// Functions that are counted by themselves; the rest of ours goes into one sum.
const KERNELS: &[&str] = &["product", "outer", "forward", "forward_units", "cell_backward"];
const REST: &str = "the rest of ours";

/// Instructions of a step by (case, function).
type Counts = BTreeMap<(String, String), u64>;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let is_check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("instructions takes --check or nothing, but there is `{}`", args.join(" ")),
    };
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("xtask: instructions are counted with valgrind, which is not here: skipped");
        return Ok(());
    }
    let workspace = Workspace::load()?;
    let counts = count(&workspace)?;
    if counts.is_empty() {
        println!("xtask: this processor has no AVX2, whose instructions the table has: skipped");
        return Ok(());
    }
    let path = workspace.root.join(TABLE);
    if !is_check {
        print!("{}", text_of(&counts));
        return std::fs::write(&path, text_of(&counts)).with_context(|| format!("cannot write {}", path.display()));
    }
    let committed = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let complaints = complaints(&parsed(&committed)?, &counts);
    if !complaints.is_empty() {
        bail!(
            "{}\nIf that is meant, or the compiler is another one, run `cargo xtask instructions` and commit {TABLE}",
            complaints.join("\n")
        );
    }
    println!("{} counts are within {TOLERANCE_PERCENT} % of {TABLE}", counts.len());
    Ok(())
}

/// Counts all cases; none on a CPU without AVX2.
fn count(workspace: &Workspace) -> Result<Counts> {
    let mut build =
        cargo(&workspace.root, &["build", "--release", "--package", "megabatch-trainer", "--example", "training_step"]);
    succeed(tools::with_cmake(&mut build, workspace)?)?;
    let program = workspace.target_dir.join("release/examples/training_step");
    let mut counts = Counts::new();
    for (case, arguments) in CASES {
        let [one, three] = [1, 3].map(|steps| functions(&program, arguments, steps, &workspace.target_dir));
        let (one, three) = (one?, three?);
        let count = |run: &BTreeMap<String, u64>, function: &str| run.get(function).copied().unwrap_or(0);
        let step = |function: &str| count(&three, function).saturating_sub(count(&one, function)) / 2;
        if !three.keys().any(|function| kernel_of(function).is_some()) {
            return Ok(Counts::new());
        }
        for function in three.keys().filter(|function| function.contains("megabatch_")) {
            let name = kernel_of(function).unwrap_or(REST);
            *counts.entry(((*case).to_owned(), name.to_owned())).or_default() += step(function);
        }
    }
    Ok(counts)
}

/// The kernel that a function is, compiled for AVX2.
fn kernel_of(function: &str) -> Option<&'static str> {
    let name = function.strip_prefix("megabatch_nn_cpu::kernel::avx2::")?;
    KERNELS.iter().copied().find(|kernel| *kernel == name)
}

/// The instructions that each function executes itself in a run of so many steps.
fn functions(program: &Path, arguments: &[&str], steps: u64, folder: &Path) -> Result<BTreeMap<String, u64>> {
    let out = folder.join("instructions.callgrind");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", "--compress-strings=no", "--compress-pos=no"]);
    valgrind.arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.arg(program).arg(steps.to_string()).args(arguments);
    succeed_without_limit(&mut valgrind)?;
    let profile = std::fs::read_to_string(&out).with_context(|| format!("cannot read {}", out.display()))?;
    Ok(self_costs(&profile))
}

/// The costs of functions themselves in callgrind's format, uncompressed: `fn=NAME`, then `LINE
/// COST`; the line after `calls=` has what a callee took.
fn self_costs(profile: &str) -> BTreeMap<String, u64> {
    let mut costs = BTreeMap::new();
    let (mut function, mut in_callee) = (None, false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = Some(name);
        } else if line.starts_with("calls=") {
            in_callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
            if let (false, Some(name), Some(cost)) = (in_callee, function, cost) {
                *costs.entry(name.to_owned()).or_default() += cost;
            }
            in_callee = false;
        }
    }
    costs
}

fn text_of(counts: &Counts) -> String {
    let rows = counts.iter().map(|((case, function), count)| format!("{case}\t{function}\t{count}\n"));
    format!("case\tfunction\tinstructions\n{}", rows.collect::<String>())
}

fn parsed(table: &str) -> Result<Counts> {
    let row = |line: &str| {
        let [case, function, count] = line.split('\t').collect::<Vec<_>>()[..] else { return None };
        Some(((case.to_owned(), function.to_owned()), count.parse().ok()?))
    };
    let rows = table.lines().skip(1);
    rows.map(|line| row(line).with_context(|| format!("{TABLE}: `{line}` is no case, function and count"))).collect()
}

/// Complaints: counts missing from the table, missing from the run, or too large.
fn complaints(table: &Counts, counted: &Counts) -> Vec<String> {
    let mut found = Vec::new();
    for ((case, function), &count) in counted {
        match table.get(&(case.clone(), function.clone())) {
            None => found.push(format!("{case}: {function} is not in {TABLE}")),
            Some(&before) if count * 100 > before * (100 + TOLERANCE_PERCENT) => {
                let percent = (count as f64 / before as f64 - 1.0) * 100.0;
                found.push(format!(
                    "{case}: {function} executes {count} instructions, {percent:.1} % more than {before}"
                ));
            }
            Some(_) => {}
        }
    }
    let lost = table.keys().filter(|key| !counted.contains_key(*key));
    found.extend(lost.map(|(case, function)| format!("{case}: {function} is in {TABLE} and executes nothing")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_those_of_functions_themselves() {
        let profile =
            "events: Ir\nfl=a.rs\nfn=one\n3 5\n4 7\ncfn=two\ncalls=2 9\n4 100\n5 1\n\nfn=two\n9 50\nfn=one\n6 2\n";
        let costs = self_costs(profile);
        assert_eq!((costs["one"], costs["two"], costs.len()), (15, 50, 2));
    }

    #[test]
    fn a_table_is_read_as_it_is_written_and_more_than_two_percent_are_told() {
        let counts = |cost: &[(&str, u64)]| -> Counts {
            cost.iter().map(|&(function, count)| (("a case".to_owned(), function.to_owned()), count)).collect()
        };
        let table = counts(&[("outer", 1000), ("product", 2000)]);
        assert_eq!(parsed(&text_of(&table)).unwrap(), table);
        assert!(parsed("case\tfunction\tinstructions\na case\touter\n").is_err());
        let cases = [
            (counts(&[("outer", 1020), ("product", 1000)]), &[][..]),
            (counts(&[("outer", 1021), ("product", 2000)]), &["outer executes 1021"]),
            (counts(&[("outer", 1000), ("product", 2000), ("forward", 1)]), &["forward is not in"]),
            (counts(&[("outer", 1000)]), &["product is in"]),
        ];
        for (counted, expected) in cases {
            let found = complaints(&table, &counted);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(found, expected)| found.contains(expected)), "{found:?}");
        }
    }
}
