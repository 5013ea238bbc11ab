//! The script that mends an environment: its order, and that a shell understands it.

use std::process::{Command, Stdio};

use crate::environment::{cpu_scatter, grace_hopper};
use crate::patient::Patient;

fn script(patient: &Patient) -> String {
    let script = patient.examine().script().expect("there is something to mend");
    let mut shell = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut shell.stdin.take().unwrap(), script.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success(), "{script}");
    script
}

#[test]
fn it_uninstalls_empties_the_cache_installs_and_proves() {
    let script = script(&cpu_scatter());
    let places =
        ["pip uninstall -y torch-scatter", "pip cache purge", "pip install", "scatter_max(values, groups, dim=0)"]
            .map(|part| script.find(part).unwrap_or_else(|| panic!("no `{part}` in\n{script}")));
    assert!(places.is_sorted(), "{script}");
    assert!(script.starts_with("#!/bin/sh\n") && script.contains("\nset -eu\n"));
}

#[test]
fn without_a_scatter_it_proves_with_what_pytorch_has() {
    let script = script(&grace_hopper());
    assert!(
        script.contains("scatter_reduce(0, groups, values, \"amax\")") && !script.contains("torch_scatter"),
        "{script}"
    );
}
