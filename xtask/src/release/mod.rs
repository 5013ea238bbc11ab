//! `cargo xtask release`: wheels, and archives of the program, for x86-64 and AArch64 Linux, with
//! the terms and a list of all that is linked in, and checksums. zig compiles C and links, for the
//! C library of manylinux_2_28. What is made is tried where there is no compiler.

mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::arm;
use crate::components::{bill_of_materials, linked, terms};
use crate::limits::{self, succeed};
use crate::python;
use crate::tools::{Venv, with_cmake};
use crate::workspace::{Workspace, cargo};
use crate::zig;

/// The version of the workspace, which is the program's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Largest size of a wheel.
const WHEEL_BYTES_MAX: u64 = 15_000_000;

/// A kind of CPU that Linux runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Architecture {
    X86,
    Arm,
}

impl Architecture {
    const ALL: [Self; 2] = [Architecture::X86, Architecture::Arm];

    /// Name in tags of wheels and in names of files.
    fn name(self) -> &'static str {
        match self {
            Architecture::X86 => "x86_64",
            Architecture::Arm => "aarch64",
        }
    }

    fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.name())
    }

    fn is_native(self) -> bool {
        cfg!(target_os = "linux") && std::env::consts::ARCH == self.name()
    }
}

/// Packages that need the stand-in of `[patch.crates-io]`, which a package leaves behind.
const NEEDS_PATCH: [&str; 6] = [
    "megabatch",
    "megabatch-cuda-lazy",
    "megabatch-graph-cache",
    "megabatch-run",
    "megabatch-segment",
    "megabatch-torch-pool",
];

/// `release [x86_64] [aarch64] | crates`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    if args == ["crates"] {
        return package_crates(&workspace);
    }
    let chosen = chosen(args)?;
    for &architecture in &chosen {
        match architecture {
            _ if architecture.is_native() => {}
            Architecture::Arm => arm::require_emulator()?,
            Architecture::X86 => bail!("what is made for x86-64 is made on x86-64 Linux, where it can be tried"),
        }
    }
    let folder = empty_folder(&workspace.target_dir.join("artefacts"))?;
    let mut made = Vec::new();
    for &architecture in &chosen {
        made.push(Artefacts::make(&workspace, architecture, &folder)?);
    }
    write_checksums(&folder)?;
    let mut trials = Vec::new();
    for artefacts in &made {
        trials.push(artefacts.try_out(&workspace)?);
    }
    trial::compare(&trials)?;
    println!("xtask: {} has what was made", folder.display());
    Ok(())
}

fn chosen(args: &[String]) -> Result<Vec<Architecture>> {
    if args.is_empty() {
        return Ok(Architecture::ALL.to_vec());
    }
    let find = |arg: &String| {
        let found = Architecture::ALL.into_iter().find(|architecture| architecture.name() == arg);
        found.with_context(|| format!("expected `release [x86_64] [aarch64]`, not `{arg}`"))
    };
    args.iter().map(find).collect()
}

/// The files of one architecture.
struct Artefacts {
    architecture: Architecture,
    wheel: PathBuf,
    /// The program alone.
    program: PathBuf,
}

impl Artefacts {
    fn make(workspace: &Workspace, architecture: Architecture, folder: &Path) -> Result<Self> {
        let triple = architecture.target();
        println!("xtask: {triple}: the wheel");
        let target = zig::Target { triple, emulated_root: emulated_root(workspace, architecture)? };
        let wheel = python::build_wheel(workspace, Some(&target), folder)?;
        let bytes = fs::metadata(&wheel)?.len();
        if bytes > WHEEL_BYTES_MAX {
            bail!("{} has {bytes} bytes, more than {WHEEL_BYTES_MAX}", wheel.display());
        }
        println!("xtask: {}: the program", target.triple);
        let program = build_program(workspace, &target)?;
        pack(workspace, architecture, &program, folder)?;
        Ok(Artefacts { architecture, wheel, program })
    }

    fn try_out(&self, workspace: &Workspace) -> Result<trial::Outcome> {
        let name = self.architecture.name();
        let folder = workspace.target_dir.join("release-trial").join(name);
        let place = if self.architecture.is_native() {
            trial::Place::native(&folder, &self.wheel)?
        } else {
            trial::Place::emulated(&folder, &self.wheel, &arm_root(workspace))?
        };
        place.run(name, &self.program)
    }
}

/// Packages the libraries for a registry, and checks them as they are in their packages. Those in
/// [`NEEDS_PATCH`] are not checked: nobody can build them so.
fn package_crates(workspace: &Workspace) -> Result<()> {
    let published = workspace.packages.iter().filter(|package| package.is_published_library);
    let names: Vec<&str> = published.map(|package| package.name.as_str()).collect();
    let mut package = cargo(&workspace.root, &["package", "--locked", "--no-verify"]);
    succeed(package.args(names.iter().flat_map(|name| ["--package", name])))?;

    let packages = workspace.target_dir.join("package");
    let folder = empty_folder(&packages.join("unpacked"))?;
    for name in &names {
        let file = packages.join(format!("{name}-{VERSION}.crate"));
        succeed(Command::new("tar").arg("--extract").arg("--file").arg(file).arg("--directory").arg(&folder))?;
    }
    fs::write(folder.join("Cargo.toml"), manifest_of_unpacked(&names))?;
    fs::copy(workspace.root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let mut check = cargo(&folder, &["check", "--workspace", "--lib", "--target-dir"]);
    succeed(with_cmake(check.arg(packages.join("check")), workspace)?)?;
    println!("xtask: {} has the packages", packages.display());
    Ok(())
}

/// A workspace of unpacked packages, which find each other there and not in the registry.
fn manifest_of_unpacked(names: &[&str]) -> String {
    let members = names.iter().filter(|name| !NEEDS_PATCH.contains(name));
    let members: String = members.map(|name| format!("  \"{name}-{VERSION}\",\n")).collect();
    let patches: String = names.iter().map(|name| format!("{name} = {{ path = \"{name}-{VERSION}\" }}\n")).collect();
    format!("[workspace]\nresolver = \"3\"\nmembers = [\n{members}]\n\n[patch.crates-io]\n{patches}")
}

/// The folder of Debian's files for AArch64.
fn arm_root(workspace: &Workspace) -> PathBuf {
    workspace.target_dir.join("arm/root")
}

/// The root of the emulated system, for an architecture that this machine emulates.
fn emulated_root(workspace: &Workspace, architecture: Architecture) -> Result<Option<PathBuf>> {
    if architecture.is_native() {
        return Ok(None);
    }
    let root = arm_root(workspace);
    arm::unpack_python(&root)?;
    Ok(Some(root))
}

/// Builds the program without symbols, and returns its path. maturin builds it, as a wheel that is
/// unpacked: so it shares the crates that the module's wheel was built of.
fn build_program(workspace: &Workspace, target: &zig::Target) -> Result<PathBuf> {
    let folder = empty_folder(&workspace.target_dir.join("release-trial").join(&target.triple))?;
    let venv = Venv::open(workspace.target_dir.join("python"))?;
    let mut maturin = Command::new(venv.program("maturin"));
    maturin.current_dir(&workspace.root).args([
        "build",
        "--manifest-path",
        "crates/cli/Cargo.toml",
        "--bindings",
        "bin",
    ]);
    maturin.args(["--release", "--locked", "--strip", "--zig", "--compatibility", python::MANYLINUX]);
    maturin.args(["--target", &target.triple, "--out"]).arg(&folder);
    zig::configure(&mut maturin, &venv, Some(target))?;
    succeed(with_cmake(&mut maturin, workspace)?)?;
    let wheel = python::newest_in(&folder)?;
    succeed(Command::new(venv.python()).args(["-m", "zipfile", "--extract"]).arg(wheel).arg(&folder))?;
    let program = folder.join(format!("megabatch-{VERSION}.data/scripts/megabatch"));
    // The archive of a wheel keeps no rights.
    succeed(Command::new("chmod").arg("755").arg(&program))?;
    Ok(program)
}

/// Makes an empty folder.
fn empty_folder(folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder.to_owned())
}

/// Packs the program with its terms and the list of what is linked into it.
fn pack(workspace: &Workspace, architecture: Architecture, program: &Path, folder: &Path) -> Result<()> {
    let name = format!("megabatch-{VERSION}-{}-linux", architecture.name());
    let packed = empty_folder(&workspace.target_dir.join("release-trial").join(&name))?;
    let components = linked(workspace, "megabatch", &architecture.target())?;
    fs::copy(program, packed.join("megabatch")).with_context(|| format!("cannot copy {}", program.display()))?;
    for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", python::TERMS_OF_C] {
        let from = workspace.root.join(file);
        let to = packed.join(from.file_name().unwrap_or_default());
        fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    fs::write(packed.join(python::TERMS_OF_CRATES), terms(&components)?)?;
    fs::write(packed.join("megabatch.cyclonedx.json"), bill_of_materials(&components, "megabatch", VERSION))?;
    // The same bytes for the same files: no times, owners or order of the folder.
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--create"]);
    tar.args(["--use-compress-program", "gzip --no-name"]);
    tar.arg("--file").arg(folder.join(format!("{name}.tar.gz"))).arg("--directory");
    succeed(tar.arg(workspace.target_dir.join("release-trial")).arg(&name))
}

/// Writes `SHA256SUMS` of the files in `folder`, for `sha256sum --check`.
fn write_checksums(folder: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name());
    }
    names.sort();
    let output = limits::output(Command::new("sha256sum").args(&names).current_dir(folder))?;
    anyhow::ensure!(output.status.success(), "sha256sum failed");
    let file = folder.join("SHA256SUMS");
    fs::write(&file, output.stdout).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_packages_find_each_other() {
        let manifest = manifest_of_unpacked(&["megabatch-bars", "megabatch-run"]);
        let (members, patches) = manifest.split_once("[patch.crates-io]").unwrap();
        assert!(members.contains("megabatch-bars-") && !members.contains("megabatch-run-"), "{manifest}");
        assert!(patches.contains("megabatch-bars = {") && patches.contains("megabatch-run = {"), "{manifest}");
    }

    #[test]
    fn architectures_are_chosen_by_name() {
        let chosen = |args: &[&str]| chosen(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        assert_eq!(chosen(&[]).unwrap(), Architecture::ALL);
        assert_eq!(chosen(&["aarch64"]).unwrap(), [Architecture::Arm]);
        assert!(chosen(&["arm"]).unwrap_err().to_string().contains("`arm`"));
    }
}
