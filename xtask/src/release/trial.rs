//! A trial of what is released, where there is no compiler: the wheel in an environment of its own,
//! and the program alone, do one job. Both reach the same weights.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::arm;
use crate::limits::{self, succeed};
use crate::release::empty_folder;
use crate::tools::Venv;

/// The job: its commands, with PRECISION in place of one of [`PRECISIONS`].
const JOB: &[&str] = &[
    "synth bars.csv --days 42",
    "ingest bars.csv --out series.h5 --symbol EURUSD --stride 20 --timeframes M1:60,M5:24",
    "leak series.h5 --samples 4",
    "train --data series.h5 --out PRECISION --max-steps 20 --set model.hidden=16 --set training.precision=PRECISION",
    "eval --run PRECISION",
    "export --run PRECISION --format safetensors --out PRECISION.safetensors",
];
const PRECISIONS: [&str; 2] = ["fp32", "bf16"];

/// The same files, read by Python.
const PYTHON: &str = "\
import megabatch as mb
ds = mb.open('series.h5')
batch = next(iter(ds.split([0.7, 0.15, 0.15])[0].loader(batch_size=8)))
assert batch['M1'].shape == (8, 60, len(ds.features['M1'])), batch['M1'].shape
print(mb.load_run('fp32').evaluate())
";

/// Largest relative difference of weights between CPUs after the job, over the largest weight.
const DIFFERENCE_MAX: f64 = 1e-2;

/// An environment with the wheel in it and no compiler.
pub(super) struct Place {
    folder: PathBuf,
    /// Words before those of Python's.
    python: Vec<OsString>,
    /// Words before the name of a program.
    launcher: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
}

/// Bytes of the exported weights by precision.
pub(super) type Outcome = BTreeMap<&'static str, Vec<u8>>;

impl Place {
    /// A new environment of this machine's Python, with nothing on its path but its own programs.
    pub(super) fn native(folder: &Path, wheel: &Path) -> Result<Self> {
        let folder = empty_folder(folder)?;
        let venv = Venv::open(folder.join("venv"))?;
        succeed(pip(&venv).arg("install").arg(wheel))?;
        let bin = folder.join("venv/bin");
        ensure!(bin.join("megabatch").exists(), "the wheel brings no program");
        let variables = vec![("PATH", bin.into_os_string())];
        Ok(Place { folder, python: vec![venv.python().into()], launcher: Vec::new(), variables })
    }

    /// Debian's Python in `root`, emulated, with the wheel and numpy of that machine.
    pub(super) fn emulated(folder: &Path, wheel: &Path, root: &Path) -> Result<Self> {
        let folder = empty_folder(folder)?;
        let python = fs::canonicalize(root.join("usr/bin/python3")).context("there is no Python in the packages")?;
        let name = python.file_name().unwrap_or_default().to_string_lossy();
        let version = name.strip_prefix("python").context("Python's name has its version")?.to_owned();
        let packages = folder.join("packages");
        let venv = Venv::open(folder.with_file_name("installer"))?;
        let mut install = pip(&venv);
        install.args(["install", "--only-binary=:all:", "--implementation", "cp", "--python-version", &version]);
        let abi = format!("cp{}", version.replace('.', ""));
        install.args(["--abi", &abi, "--abi", "abi3", "--abi", "none"]);
        for platform in ["manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64"] {
            install.args(["--platform", platform]);
        }
        succeed(install.arg("--target").arg(&packages).arg(wheel))?;
        let variables = vec![
            ("PATH", OsString::new()),
            ("QEMU_LD_PREFIX", root.into()),
            ("PYTHONHOME", root.join("usr").into()),
            ("PYTHONPATH", packages.into()),
        ];
        // The emulator by its path: the path of programs is empty.
        let emulator = which(arm::EMULATOR)?;
        Ok(Place {
            folder,
            python: vec![emulator.clone().into(), python.into()],
            launcher: vec![emulator.into()],
            variables,
        })
    }

    /// Does the job with the wheel's program and with `program`, and returns its weights.
    ///
    /// # Errors
    /// If a command fails; if the two do not agree to the bit.
    pub(super) fn run(&self, name: &str, program: &Path) -> Result<Outcome> {
        let start = Instant::now();
        let with_wheel = [self.python.clone(), vec!["-m".into(), "megabatch".into()]].concat();
        let with_program = [self.launcher.clone(), vec![program.into()]].concat();
        let wheel = self.job("wheel", &with_wheel)?;
        self.succeed(&self.folder.join("wheel"), &self.python, &["-c", PYTHON])?;
        println!("xtask: {name}: the wheel's job took {:.0} s", start.elapsed().as_secs_f64());
        if self.job("program", &with_program)? != wheel {
            bail!("{name}: the wheel and the program reach other weights");
        }
        println!("xtask: {name}: the wheel and the program reach the same weights");
        Ok(wheel)
    }

    fn job(&self, name: &str, program: &[OsString]) -> Result<Outcome> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let (once, by_precision): (Vec<&str>, Vec<&str>) =
            JOB.iter().copied().partition(|line| !line.contains("PRECISION"));
        for line in once {
            self.succeed(&folder, program, &line.split(' ').collect::<Vec<_>>())?;
        }
        let mut outcome = Outcome::new();
        for precision in PRECISIONS {
            for line in &by_precision {
                let line = line.replace("PRECISION", precision);
                self.succeed(&folder, program, &line.split(' ').collect::<Vec<_>>())?;
            }
            let weights = folder.join(format!("{precision}.safetensors"));
            outcome
                .insert(precision, fs::read(&weights).with_context(|| format!("cannot read {}", weights.display()))?);
        }
        Ok(outcome)
    }

    /// Runs a command with nothing in its environment but what is needed to start it.
    fn succeed(&self, folder: &Path, program: &[OsString], words: &[&str]) -> Result<()> {
        let (first, rest) = program.split_first().expect("a program has a name");
        let mut command = Command::new(first);
        command.args(rest).args(words).current_dir(folder).env_clear();
        command.env("HOME", &self.folder).envs(self.variables.iter().map(|(name, value)| (*name, value)));
        let output = limits::output(&mut command)?;
        if !output.status.success() {
            bail!("{command:?} ended with {}\n{}", output.status, String::from_utf8_lossy(&output.stdout));
        }
        Ok(())
    }
}

/// Compares the weights of two kinds of CPUs.
///
/// # Errors
/// If they are further apart than rounding takes them.
pub(super) fn compare(outcomes: &[Outcome]) -> Result<()> {
    let [first, second] = outcomes else { return Ok(()) };
    for (precision, weights) in first {
        let difference = difference(weights, &second[precision])?;
        println!("xtask: {precision}: the weights of both CPUs differ by {difference:.1e} of the largest");
        ensure!(difference <= DIFFERENCE_MAX, "{precision}: that is more than rounding");
    }
    Ok(())
}

/// Largest difference of two files of weights (safetensors: 8 bytes of the header's length, the
/// header, then values, here of f32), over the largest value.
fn difference(left: &[u8], right: &[u8]) -> Result<f64> {
    let values = |file: &[u8]| -> Result<Vec<f64>> {
        let length = u64::from_le_bytes(*file.first_chunk().context("a file of weights is empty")?);
        let data = file.get(8 + usize::try_from(length)?..).context("a file of weights is cut short")?;
        let (chunks, rest) = data.as_chunks();
        ensure!(rest.is_empty(), "a file of weights is cut short");
        Ok(chunks.iter().map(|&bytes| f64::from(f32::from_le_bytes(bytes))).collect())
    };
    let (left, right) = (values(left)?, values(right)?);
    ensure!(left.len() == right.len() && !left.is_empty(), "two files of weights have other sizes");
    let largest = left.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let furthest = left.iter().zip(&right).fold(0.0_f64, |furthest, (left, right)| furthest.max((left - right).abs()));
    Ok(furthest / largest)
}

fn pip(venv: &Venv) -> Command {
    let mut pip = Command::new(venv.python());
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
    pip
}

/// The path of a program.
fn which(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file());
    found.with_context(|| format!("{name} is not on the path"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(values: &[f32]) -> Vec<u8> {
        let mut file = 2_u64.to_le_bytes().to_vec();
        file.extend(b"{}");
        values.iter().for_each(|value| file.extend(value.to_le_bytes()));
        file
    }

    #[test]
    fn weights_are_compared_by_the_largest() {
        assert_eq!(difference(&weights(&[1.0, -4.0]), &weights(&[1.5, -4.0])).unwrap(), 0.125);
        assert!(difference(&weights(&[1.0]), &weights(&[1.0, 2.0])).is_err());
        assert!(difference(&weights(&[]), &weights(&[])).is_err());
        assert!(difference(&weights(&[1.0])[..13], &weights(&[1.0])).is_err());
        let outcome = |value| Outcome::from([("fp32", weights(&[1.0, value]))]);
        assert!(compare(&[outcome(0.5), outcome(0.5 + 1e-4)]).is_ok());
        assert!(compare(&[outcome(0.5), outcome(0.6)]).is_err());
        assert!(compare(&[outcome(0.5)]).is_ok());
    }
}
