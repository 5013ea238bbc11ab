//! `cargo xtask arm`: the workspace for AArch64 Linux, built, tested and disassembled on a machine
//! of another kind.
//!
//! GNU's cross compiler builds HDF5 and links. Tests run under qemu, which emulates the CPU: it
//! shows bits and counts, never speed. A machine that is AArch64 itself runs `cargo xtask test`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::inner_loops;
use crate::limits::{self, succeed, succeed_without_limit};
use crate::nextest::{self, Nextest, Suite};
use crate::workspace::{Workspace, cargo};
use crate::{skipped, tools};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The target in names of environment variables that Cargo reads.
const CARGO_TARGET: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU";
/// The same in those that build scripts read.
const SCRIPT_TARGET: &str = "aarch64_unknown_linux_gnu";

const CXX: &str = "aarch64-linux-gnu-g++";
pub(crate) const EMULATOR: &str = "qemu-aarch64";

/// The section of `.config/nextest.toml`: an emulated test may take an hour.
const PROFILE: &str = "arm";

/// The kernel starts programs for AArch64 by the emulator where this file is.
const BINFMT: &str = "/proc/sys/fs/binfmt_misc/qemu-aarch64";

/// Something that the machine must have.
struct Part {
    name: &'static str,
    is_present: fn() -> bool,
    /// The command that installs it on Debian and Ubuntu.
    install: &'static str,
}

const RUST_LIBRARY: Part = Part {
    name: "Rust's standard library",
    is_present: has_rust_target,
    install: "rustup target add aarch64-unknown-linux-gnu",
};
/// Older ones record each page that is reserved, and take 13 GB of memory for a memory pool's.
const QEMU_MAJOR_MIN: u32 = 8;
const QEMU: Part = Part {
    name: "qemu 8 or later",
    is_present: || qemu_major().is_some_and(|major| major >= QEMU_MAJOR_MIN),
    install: "apt-get install qemu-user (Debian 12: --target-release bookworm-backports)",
};

const TO_BUILD: &[Part] = &[
    RUST_LIBRARY,
    Part {
        name: "the C and C++ cross compiler",
        is_present: || starts("aarch64-linux-gnu-gcc") && starts(CXX),
        install: "apt-get install gcc-aarch64-linux-gnu g++-aarch64-linux-gnu",
    },
];

const OBJDUMP: &str = "aarch64-linux-gnu-objdump";

const TO_DISASSEMBLE: &[Part] = &[Part {
    name: "the disassemblers",
    is_present: || starts("objdump") && starts(OBJDUMP),
    install: "apt-get install binutils binutils-aarch64-linux-gnu",
}];

/// Cargo's arguments for the unit tests of the CPU engine: they call every kernel, and need
/// neither HDF5 nor a CPU that has its instructions.
const KERNEL_TESTS: &[&str] = &[
    "test",
    "--no-run",
    "--release",
    "--locked",
    "--package",
    "megabatch-nn-cpu",
    "--lib",
    "--message-format",
    "json-render-diagnostics",
];

/// The C library is the one of a system for AArch64. With the cross compiler's, which `-L` would
/// name, programs hang at their first thread.
const TO_RUN: &[Part] = &[
    QEMU,
    Part {
        name: "the C and C++ libraries",
        is_present: || {
            ["/lib/ld-linux-aarch64.so.1", "/usr/lib/aarch64-linux-gnu/libstdc++.so.6"]
                .map(Path::new)
                .iter()
                .all(|file| file.exists())
        },
        install: "dpkg --add-architecture arm64 && apt-get update && apt-get install libc6:arm64 libstdc++6:arm64",
    },
];

/// Parts that compile with zig, make a root of another system and run programs in it.
const TO_EMULATE: &[Part] = &[
    RUST_LIBRARY,
    QEMU,
    Part {
        name: "apt and dpkg-deb",
        is_present: || starts("apt-get") && starts("dpkg-deb"),
        install: "Debian or Ubuntu",
    },
    Part {
        name: "the list of packages for arm64",
        is_present: knows_arm_packages,
        install: "dpkg --add-architecture arm64 && apt-get update",
    },
];

/// `arm check | build [ARGS…] | test [PACKAGE…] [-- FILTER…] | kernels`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if cfg!(target_arch = "aarch64") {
        bail!("this machine is AArch64 itself: `cargo xtask test` checks it");
    }
    let workspace = Workspace::load()?;
    match args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("check", [])) => check(&workspace),
        Some(("build", rest)) => build(&workspace, rest),
        Some(("test", rest)) => test(&workspace, rest),
        Some(("kernels", [])) => kernels(&workspace),
        _ => bail!("expected `arm check`, `arm build [ARGS…]`, `arm test [PACKAGE…] [-- FILTER…]` or `arm kernels`"),
    }
}

/// Lints of all targets, compiled as for AArch64.
fn check(workspace: &Workspace) -> Result<()> {
    require(TO_BUILD)?;
    let mut clippy =
        command(workspace, cargo(&workspace.root, &["clippy", "--workspace", "--all-targets", "--locked"]))?;
    succeed(clippy.args(["--target", TARGET, "--", "--deny", "warnings"]))
}

/// The program, with ARGS of `cargo build` such as `--release`.
fn build(workspace: &Workspace, args: &[String]) -> Result<()> {
    require(TO_BUILD)?;
    let mut build = command(workspace, cargo(&workspace.root, &["build", "--locked", "--package", "megabatch"]))?;
    succeed(build.args(["--target", TARGET]).args(args))?;
    println!("xtask: the program is in {}", workspace.target_dir.join(TARGET).display());
    Ok(())
}

fn test(workspace: &Workspace, args: &[String]) -> Result<()> {
    require(TO_BUILD)?;
    require(TO_RUN)?;
    if !Path::new(BINFMT).exists() {
        println!(
            "xtask: tests that start the program will fail, because the kernel does not know the emulator; on Debian \
            and Ubuntu: apt-get install qemu-user-binfmt"
        );
    }
    let nextest = Nextest::find(workspace).context("cargo-nextest runs the emulated tests")?;
    let record = skipped::path(workspace);
    skipped::clear_file(&record)?;
    let run = nextest.command(workspace, &["run", "--locked", "--no-fail-fast", "--target", TARGET]);
    let mut run = command(workspace, run)?;
    run.args(["--profile", PROFILE]).args(selection(workspace, args)?);
    run.env("MEGABATCH_PYTHON", tools::python_for_tests(workspace)?).env(skipped::RECORD, &record);
    let report = workspace.root.join("target/nextest").join(PROFILE).join("junit.xml");
    skipped::clear_file(&report)?;
    // An emulated suite takes as long as it takes.
    let outcome = succeed_without_limit(&mut run);
    if let Ok(junit) = fs::read_to_string(&report) {
        print!("{}", times(&nextest::suites(&junit)?));
    }
    skipped::report(&record, &[])?;
    outcome
}

/// Prints the innermost loops of the CPU engine's kernels, for this machine and for AArch64.
fn kernels(workspace: &Workspace) -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        bail!("kernels for AArch64 are read beside those for x86-64, which this machine is not");
    }
    require(TO_BUILD)?;
    require(TO_DISASSEMBLE)?;
    let mut for_arm = command(workspace, cargo(&workspace.root, KERNEL_TESTS))?;
    for_arm.args(["--target", TARGET]);
    let mut found = inner_loops::kernels(&disassembly(&mut cargo(&workspace.root, KERNEL_TESTS), "objdump")?);
    found.extend(inner_loops::kernels(&disassembly(&mut for_arm, OBJDUMP)?));
    print!("{}", inner_loops::table(&found));
    let missing = inner_loops::missing(&found);
    if !missing.is_empty() {
        bail!("no loop of a kernel was found in {}: is it inlined?", missing.join(", "));
    }
    Ok(())
}

/// Machine code of the test program that `build` makes, as `objdump` prints it.
fn disassembly(build: &mut Command, objdump: &str) -> Result<String> {
    let messages = limits::stdout(build)?;
    let program = test_program(&String::from_utf8_lossy(&messages)).context("cargo names no test program")?;
    let mut disassemble = Command::new(objdump);
    disassemble.args(["--disassemble", "--demangle", "--no-show-raw-insn", &program]);
    Ok(String::from_utf8_lossy(&limits::stdout(&mut disassemble)?).into_owned())
}

/// Path of the program in Cargo's messages, a line of JSON each.
fn test_program(messages: &str) -> Option<String> {
    let mut messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.find_map(|message| message["executable"].as_str().map(str::to_owned))
}

/// Arguments of nextest for `[PACKAGE…] [-- FILTER…]`: a package is named with or without
/// `megabatch-`, and no package means all.
fn selection(workspace: &Workspace, args: &[String]) -> Result<Vec<String>> {
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let (packages, filters) = (&args[..end], args.get(end + 1..).unwrap_or_default());
    let mut chosen = Vec::new();
    for name in packages {
        let is_named = |package: &str| package == name || package.strip_prefix("megabatch-") == Some(name);
        let package = workspace.packages.iter().find(|package| is_named(&package.name));
        let package = package.with_context(|| format!("there is no package `{name}`"))?;
        chosen.extend(["--package".to_owned(), package.name.clone()]);
    }
    if chosen.is_empty() {
        chosen.push("--workspace".to_owned());
    }
    chosen.extend(filters.iter().cloned());
    Ok(chosen)
}

/// Number of tests and their time together, for each program.
fn times(suites: &[Suite]) -> String {
    let row = |suite: &Suite| {
        let seconds: f64 = suite.tests.iter().map(|test| test.seconds).sum();
        format!("  {seconds:7.1} s  {} ({} tests, {} failed)\n", suite.id, suite.tests.len(), suite.failures)
    };
    suites.iter().map(row).collect()
}

/// `command` with compilers, linker, emulator and cmake for AArch64.
fn command(workspace: &Workspace, mut command: Command) -> Result<Command> {
    let folder = workspace.target_dir.join("arm");
    let file = folder.join("toolchain.cmake");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(&file, cmake_toolchain(&workspace.root)).with_context(|| format!("cannot write {}", file.display()))?;
    tools::with_cmake(&mut command, workspace)?;
    command.envs(environment(file.into_os_string()));
    Ok(command)
}

/// Variables that Cargo, build scripts and tests read. Tests compile C++ for the CPU that runs
/// them, by the compiler in `CXX`, which build scripts would use for this machine.
fn environment(cmake_toolchain: OsString) -> Vec<(String, OsString)> {
    let for_cargo = [("LINKER", "aarch64-linux-gnu-gcc".to_owned()), ("RUNNER", format!("env CXX={CXX} {EMULATOR}"))]
        .map(|(name, value)| (format!("{CARGO_TARGET}_{name}"), OsString::from(value)));
    let for_scripts = [
        ("CC", OsString::from("aarch64-linux-gnu-gcc")),
        ("CXX", OsString::from(CXX)),
        ("AR", OsString::from("aarch64-linux-gnu-ar")),
        ("CMAKE_TOOLCHAIN_FILE", cmake_toolchain),
    ]
    .map(|(name, value)| (format!("{name}_{SCRIPT_TARGET}"), value));
    for_cargo.into_iter().chain(for_scripts).collect()
}

/// CMake's file for HDF5, which also says what the file of a build for this machine says.
fn cmake_toolchain(root: &Path) -> String {
    format!(
        "set(CMAKE_SYSTEM_NAME Linux)\n\
        set(CMAKE_SYSTEM_PROCESSOR aarch64)\n\
        set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)\n\
        set(CMAKE_CXX_COMPILER {CXX})\n\
        set(CMAKE_CROSSCOMPILING_EMULATOR {EMULATOR})\n\
        include(\"{}\")\n",
        root.join("scripts/dev-optimisation.cmake").display()
    )
}

/// Requires what [`unpack_python`] needs, and what compiles for it and runs it with zig.
///
/// # Errors
/// Names what is missing, with the command that installs it.
pub(crate) fn require_emulator() -> Result<()> {
    require(TO_EMULATE)
}

/// Unpacks Debian's Python for AArch64, with all that it and numpy need, into `root`, once.
///
/// # Errors
/// If the packages cannot be had.
pub(crate) fn unpack_python(root: &Path) -> Result<()> {
    let stamp = root.join("unpacked");
    if stamp.exists() {
        return Ok(());
    }
    let packages = root.with_file_name("packages");
    for folder in [root, &packages.join("partial")] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let status = packages.join("status");
    // A system with no package: all that Python needs is downloaded, and nothing is installed.
    fs::write(&status, "")?;
    let mut download = Command::new("apt-get");
    download.args(["install", "--download-only", "--assume-yes", "--quiet", "--no-install-recommends"]);
    download.args(["-o", "APT::Architecture=arm64", "-o", "APT::Architectures::=arm64"]);
    download.arg("-o").arg(format!("Dir::State::status={}", status.display()));
    download.arg("-o").arg(format!("Dir::Cache::archives={}", packages.display()));
    succeed(download.args(["python3", "libstdc++6"]))?;
    for entry in fs::read_dir(&packages)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            succeed(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(root))?;
        }
    }
    fs::write(&stamp, "").with_context(|| format!("cannot write {}", stamp.display()))
}

/// Fails if a part is missing, and names the command that installs it.
fn require(parts: &[Part]) -> Result<()> {
    let missing: Vec<&Part> = parts.iter().filter(|part| !(part.is_present)()).collect();
    if !missing.is_empty() {
        bail!("missing for AArch64; the commands are those of Debian and Ubuntu:\n{}", listing(&missing));
    }
    Ok(())
}

fn listing(missing: &[&Part]) -> String {
    missing.iter().map(|part| format!("  {}: {}\n", part.name, part.install)).collect()
}

fn starts(program: &str) -> bool {
    succeed(Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null())).is_ok()
}

fn qemu_major() -> Option<u32> {
    let output = limits::output(Command::new(EMULATOR).arg("--version")).ok()?;
    major_version(&String::from_utf8_lossy(&output.stdout))
}

/// The first number after the word `version`.
fn major_version(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("version ")?;
    version.split('.').next()?.parse().ok()
}

fn knows_arm_packages() -> bool {
    let output = limits::output(Command::new("dpkg").arg("--print-foreign-architectures"));
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).lines().any(|line| line == "arm64"))
}

fn has_rust_target() -> bool {
    let output = limits::output(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]));
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim_end()).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nextest::TimedTest;
    use crate::workspace::Package;

    #[test]
    fn versions_of_qemu_are_read() {
        assert_eq!(major_version("qemu-aarch64 version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\n"), Some(7));
        assert_eq!(major_version("qemu-aarch64 version 10.0.2\n"), Some(10));
        assert_eq!(major_version("no qemu"), None);
    }

    fn workspace(names: &[&str]) -> Workspace {
        let package = |name: &&str| Package {
            name: (*name).to_owned(),
            folder: Path::new("crates").join(name),
            depends_on: Vec::new(),
            is_published_library: true,
            tests: Vec::new(),
        };
        let packages = names.iter().map(package).collect();
        Workspace { root: "/root".into(), target_dir: "/root/target".into(), packages }
    }

    #[test]
    fn packages_have_long_and_short_names_and_filters_follow() {
        let workspace = workspace(&["megabatch", "megabatch-nn-cpu", "xtask"]);
        let chosen = |args: &[&str]| {
            selection(&workspace, &args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>())
                .map(|args| args.join(" "))
        };
        assert_eq!(chosen(&[]).unwrap(), "--workspace");
        assert_eq!(chosen(&["--", "golden"]).unwrap(), "--workspace golden");
        assert_eq!(
            chosen(&["nn-cpu", "megabatch", "--", "kernel::", "cell"]).unwrap(),
            "--package megabatch-nn-cpu --package megabatch kernel:: cell"
        );
        assert!(chosen(&["nn-gpu"]).unwrap_err().to_string().contains("nn-gpu"));
    }

    #[test]
    fn missing_parts_are_named_with_their_commands() {
        let part = |name, is_present| Part { name, is_present, install: "apt-get install it" };
        assert!(require(&[part("one", || true)]).is_ok());
        let refusal = require(&[part("one", || true), part("two", || false), part("three", || false)]).unwrap_err();
        let refusal = refusal.to_string();
        assert!(refusal.ends_with("  two: apt-get install it\n  three: apt-get install it\n"), "{refusal}");
        assert!(!refusal.contains("one:"), "{refusal}");
    }

    #[test]
    fn tools_of_the_target_are_named_for_the_target_alone() {
        let variables = environment("/t/toolchain.cmake".into());
        let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str());
        let linker = value("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER");
        assert_eq!(linker, Some("aarch64-linux-gnu-gcc".as_ref()));
        let file = value("CMAKE_TOOLCHAIN_FILE_aarch64_unknown_linux_gnu");
        assert_eq!(file, Some("/t/toolchain.cmake".as_ref()));
        // Build scripts for this machine take no compiler of another.
        assert!(["CC", "CXX", "AR", "CMAKE_TOOLCHAIN_FILE"].into_iter().all(|name| value(name).is_none()));
        let file = cmake_toolchain(Path::new("/root"));
        assert!(file.ends_with("include(\"/root/scripts/dev-optimisation.cmake\")\n"), "{file}");
    }

    #[test]
    fn the_test_program_is_read_off_cargos_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/target/release/deps/kernels-1\"}\n\
            {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(test_program(messages).as_deref(), Some("/target/release/deps/kernels-1"));
        assert_eq!(test_program("{\"reason\":\"build-finished\",\"success\":true}\n"), None);
    }

    #[test]
    fn times_are_those_of_programs() {
        let test = |seconds| TimedTest { name: "one".to_owned(), seconds };
        let suite = Suite { id: "megabatch-nn-cpu".to_owned(), failures: 1, tests: vec![test(1.5), test(0.25)] };
        assert_eq!(times(&[suite]), "      1.8 s  megabatch-nn-cpu (2 tests, 1 failed)\n");
    }
}
