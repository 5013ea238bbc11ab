//! `cargo xtask gpu-check`: the programs that `scripts/gpu-check build` packs for a machine without
//! Rust.

use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use crate::limits::{self, succeed};
use crate::session::Session;
use crate::tools;
use crate::workspace::{Workspace, cargo};

/// Packages of the programs, which are built together, so that they share what they are made of.
const PACKAGES: &[&str] = &[
    "--package",
    "megabatch-gpu-core",
    "--package",
    "megabatch-nn-cuda",
    "--package",
    "megabatch-trainer",
    "--package",
    "megabatch",
    "--features",
    "megabatch-gpu-core/cuda",
];

/// The checks and measurements with all their kernels compiled in, and megabatch itself.
const PROGRAMS: &[&str] =
    &["--example", "gpu-check", "--example", "gpu_layers", "--example", "gpu_operations", "--bin", "megabatch"];

/// `gpu-check [--dev]`: a release build, or a development build for rehearsals.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let mut build = cargo(&workspace.root, &["build", "--locked"]);
    match args {
        [] => build.arg("--release").args(PACKAGES),
        // Of the whole workspace, as tests are built: nothing is compiled a second time. Rehearsals
        // run on the fake machine.
        [flag] if flag == "--dev" => build.args(["--workspace", "--example", "fake_machine"]),
        _ => bail!(
            "gpu-check takes --dev or nothing, but there is `{}`; scripts/gpu-check runs what it builds",
            args.join(" ")
        ),
    };
    succeed(tools::with_cmake(build.args(PROGRAMS), &workspace)?)
}

/// The calls of a campaign that are rehearsed, and suites of theirs that tests run already.
const REHEARSED: [&[&str]; 6] = [
    &["truth", "a", "--skip", "operations"],
    &["truth", "b", "--skip", "operations,kernels,training"],
    &["speed", "a"],
    &["speed", "b"],
    &["whole", "a"],
    &["whole", "b"],
];

/// The command lines of a campaign on a GPU, two at once, from the unpacked archive of a
/// development build under the fake driver.
pub(crate) fn rehearsal(session: &Session) -> Result<()> {
    if !cfg!(target_os = "linux") {
        println!("skipped: the fake driver is Linux's");
        return Ok(());
    }
    let workspace = &session.workspace;
    let python = tools::python_for_tests(workspace)?;
    let script = |words: &[&str]| -> Result<()> {
        let mut command = Command::new(workspace.root.join("scripts/gpu-check"));
        command.args(words).current_dir(&workspace.root).env("PYTHON", &python);
        command.env("CARGO_TARGET_DIR", &workspace.target_dir);
        tools::with_cmake(&mut command, workspace)?;
        let output = limits::output(&mut command).with_context(|| format!("{command:?}"))?;
        if !output.status.success() {
            let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            bail!("{command:?} ended with {}:\n{}", output.status, texts.join("\n"));
        }
        Ok(())
    };
    session.passed.unless_unchanged("gpu rehearsal", session.sources.rehearsal_key(), || {
        script(&["build", "--dev"])?;
        let calls = Mutex::new(REHEARSED.iter());
        let next = || calls.lock().expect("no thread panics with it").next();
        let rehearse = || -> Result<()> {
            while let Some(call) = next() {
                script(&[&["rehearse", "--dev"], *call].concat())?;
            }
            Ok(())
        };
        let (one, other) = limits::beside(rehearse, rehearse);
        one.and(other)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// Scripts that `scripts/gpu-check build` packs, without their ending.
    fn packed(root: &Path) -> BTreeSet<String> {
        let script = fs::read_to_string(root.join("scripts/gpu-check")).unwrap();
        let list = script.lines().find_map(|line| line.trim().strip_prefix("for script in ")?.strip_suffix("; do"));
        list.expect("a list of scripts").split(' ').map(str::to_owned).collect()
    }

    /// On the machine with the GPU there is nothing but what was packed.
    #[test]
    fn scripts_are_packed_with_what_they_import() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let (packed, peers) = (packed(root), root.join("benches/peers"));
        assert!(packed.contains("gpu_speed"));
        for script in &packed {
            let text = fs::read_to_string(peers.join(format!("{script}.py"))).unwrap();
            let modules = text.lines().filter_map(|line| line.strip_prefix("from ")?.split(' ').next());
            for module in modules.filter(|module| peers.join(format!("{module}.py")).exists()) {
                assert!(packed.contains(module), "{script}.py imports {module}.py, which is not packed");
            }
        }
    }
}
