//! zig as the C compiler and linker: for an older C library than this machine's, or for another
//! kind of machine.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::arm;
use crate::tools::Venv;

const PACKAGES: &[&str] = &["ziglang"];

/// The kind of machine that is compiled for.
pub(crate) struct Target {
    /// Rust's name of it.
    pub(crate) triple: String,
    /// A system for it, if this machine emulates it: HDF5's build runs small programs.
    pub(crate) emulated_root: Option<PathBuf>,
}

/// Installs zig, and prepares `command`, of maturin, to use it.
///
/// # Errors
/// If PyPI has no zig.
pub(crate) fn configure(command: &mut Command, venv: &Venv, target: Option<&Target>) -> Result<()> {
    venv.ensure("zig", PACKAGES)?;
    // Another toolchain would not be zig's.
    command.env("CARGO_ZIGBUILD_PYTHON_PATH", venv.python()).env_remove("CMAKE_TOOLCHAIN_FILE");
    if let Some(root) = target.and_then(|target| target.emulated_root.as_ref()) {
        command.env("CMAKE_CROSSCOMPILING_EMULATOR", arm::EMULATOR).env("QEMU_LD_PREFIX", root);
    }
    Ok(())
}
