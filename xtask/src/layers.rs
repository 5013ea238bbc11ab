//! The layer table: which crate may depend on which. The one in ARCHITECTURE.md is drawn from this.

use anyhow::{Result, bail};

use crate::workspace::Workspace;

/// Each library, and the program, with the members it may depend on. The developers' packages may
/// use any of them; none may use these.
const LAYERS: &[(&str, &[&str])] = &[
    ("megabatch-cuda-lazy", &[]),
    ("megabatch-mpi-lazy", &[]),
    ("megabatch-gpu-core", &["megabatch-cuda-lazy"]),
    ("megabatch-atomic-file", &[]),
    ("megabatch-bars", &[]),
    ("megabatch-simt", &[]),
    ("megabatch-test-support", &[]),
    ("megabatch-doctor", &[]),
    ("megabatch-order", &[]),
    ("megabatch-alloc-lab", &["megabatch-gpu-core"]),
    ("megabatch-amp", &["megabatch-gpu-core"]),
    ("megabatch-chunk-io", &["megabatch-atomic-file", "megabatch-gpu-core", "megabatch-order"]),
    ("megabatch-segment", &["megabatch-gpu-core"]),
    ("megabatch-graph-cache", &["megabatch-atomic-file", "megabatch-gpu-core", "megabatch-segment"]),
    (
        "megabatch-nn",
        &["megabatch-amp", "megabatch-atomic-file", "megabatch-gpu-core", "megabatch-order", "megabatch-segment"],
    ),
    ("megabatch-nn-cpu", &["megabatch-nn", "megabatch-amp", "megabatch-gpu-core", "megabatch-order"]),
    ("megabatch-nn-cuda", &["megabatch-nn", "megabatch-amp", "megabatch-atomic-file", "megabatch-gpu-core"]),
    // For tests: the libraries whose models it computes have it as a dev-dependency.
    ("megabatch-reference", &["megabatch-nn", "megabatch-order"]),
    (
        "megabatch-trainer",
        &[
            "megabatch-nn",
            "megabatch-nn-cpu",
            "megabatch-nn-cuda",
            "megabatch-amp",
            "megabatch-atomic-file",
            "megabatch-gpu-core",
            "megabatch-order",
        ],
    ),
    (
        "megabatch-run",
        &[
            "megabatch-alloc-lab",
            "megabatch-amp",
            "megabatch-atomic-file",
            "megabatch-bars",
            "megabatch-chunk-io",
            "megabatch-doctor",
            "megabatch-gpu-core",
            "megabatch-graph-cache",
            "megabatch-mpi-lazy",
            "megabatch-nn",
            "megabatch-nn-cpu",
            "megabatch-nn-cuda",
            "megabatch-order",
            "megabatch-segment",
            "megabatch-trainer",
        ],
    ),
    // A face sees the other libraries through `run` only.
    ("megabatch", &["megabatch-run"]),
    // PyTorch's allocator is of use to a program of Python's alone.
    ("megabatch-torch-pool", &["megabatch-gpu-core"]),
    // Operations on PyTorch's tensors are of use to a program of Python's alone, too.
    // A wheel brings the program.
    ("megabatch-python", &["megabatch", "megabatch-run", "megabatch-segment", "megabatch-torch-pool"]),
];

/// Developers' packages, which nothing depends on.
const COMPOSERS: &[&str] = &["megabatch-benches", "xtask"];

/// Fails on an edge that the table does not have, and on a member that it does not know.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let edges = workspace.packages.iter().map(|package| (package.name.as_str(), package.depends_on.as_slice()));
    let faults = faults(edges);
    if !faults.is_empty() {
        bail!("the layer table in xtask/src/layers.rs does not allow this:\n  {}", faults.join("\n  "));
    }
    Ok(())
}

fn faults<'a>(members: impl Iterator<Item = (&'a str, &'a [String])>) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, depends_on) in members {
        let allowed = match LAYERS.iter().find(|(library, _)| *library == name) {
            Some((_, allowed)) => allowed.to_vec(),
            None if COMPOSERS.contains(&name) => LAYERS.iter().map(|(library, _)| *library).collect(),
            None => {
                faults.push(format!("{name} is a member of the workspace, but has no row in the table"));
                continue;
            }
        };
        let strangers = depends_on.iter().filter(|dependency| !allowed.contains(&dependency.as_str()));
        faults.extend(strangers.map(|stranger| format!("{name} depends on {stranger}")));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, depends_on: &[&str]) -> Vec<String> {
        let depends_on: Vec<String> = depends_on.iter().map(|&name| name.to_owned()).collect();
        faults([(name, depends_on.as_slice())].into_iter())
    }

    #[test]
    fn edges_are_held_against_the_table() {
        assert!(check("megabatch-trainer", &["megabatch-gpu-core"]).is_empty());
        assert!(check("megabatch-run", &["megabatch-bars", "megabatch-chunk-io"]).is_empty());
        assert!(check("megabatch", &["megabatch-run"]).is_empty());
        assert_eq!(check("megabatch", &["megabatch-bars"]), ["megabatch depends on megabatch-bars"]);
        assert_eq!(
            check("megabatch-trainer", &["megabatch-chunk-io"]),
            ["megabatch-trainer depends on megabatch-chunk-io"]
        );
        assert_eq!(check("megabatch-bars", &["megabatch"]), ["megabatch-bars depends on megabatch"]);
        assert_eq!(check("megabatch-new", &[]).len(), 1);
    }
}
