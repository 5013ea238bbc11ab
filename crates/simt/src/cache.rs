//! Compiled kernels and drivers, kept by the content that they were compiled from.
//!
//! The folder is the user's, so that a new clone of the repository finds what another has compiled.
//! A name is a hash of sources, headers, flags and the compiler's version; paths have no part in
//! it.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::error::{Error, Result};

/// The system's C++ compiler, or the one that `CXX` names.
pub(crate) fn compiler() -> String {
    env::var("CXX").unwrap_or_else(|_| "c++".to_owned())
}

/// The first lines of `compiler --version`, asked once a process.
pub(crate) fn compiler_version() -> Result<&'static [u8]> {
    static VERSION: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(version) = VERSION.get() {
        return Ok(version);
    }
    let program = compiler();
    let output = Command::new(&program).arg("--version").output();
    let output = output.map_err(|source| Error::NoCompiler { program, source })?;
    Ok(VERSION.get_or_init(|| output.stdout))
}

/// `simt` below `MEGABATCH_CACHE`, else below the user's cache folder (`XDG_CACHE_HOME/megabatch`
/// or `~/.cache/megabatch`), else in the target folder of the running test.
pub(crate) fn folder() -> Result<PathBuf> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let candidates = [
        variable("MEGABATCH_CACHE"),
        variable("XDG_CACHE_HOME").map(|path| path.join("megabatch")),
        variable("HOME").map(|path| path.join(".cache/megabatch")),
        target_folder(),
    ];
    let candidates = candidates.into_iter().flatten().chain([env::temp_dir()]).map(|path| path.join("simt"));
    let mut refused = None;
    for folder in candidates {
        match fs::create_dir_all(&folder) {
            Ok(()) => return Ok(folder),
            Err(source) => refused = Some(Error::Io { path: folder, source }),
        }
    }
    Err(refused.expect("the temporary folder is a candidate"))
}

/// Cargo puts a test program in `<target>/<profile>/deps`.
fn target_folder() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folder = program.parent().filter(|folder| folder.ends_with("deps"))?;
    Some(folder.parent()?.parent()?.to_owned())
}

/// Creates `file` if it does not exist. One process runs `make`, and others wait for it; `make`
/// gets the path of an unfinished file, which is renamed when it is whole.
pub(crate) fn once(file: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if file.exists() {
        return Ok(());
    }
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { path, source }
    };
    let lock_path = file.with_extension("lock");
    let lock = File::create(&lock_path).map_err(io(&lock_path))?;
    lock.lock().map_err(io(&lock_path))?;
    if file.exists() {
        return Ok(());
    }
    let unfinished = file.with_extension("unfinished");
    make(&unfinished)?;
    fs::rename(&unfinished, file).map_err(io(&unfinished))
}
