//! Prints the variables of a process that is to find a fake GPU with the kernels of these folders:
//! one object a folder.
//!
//! ```text
//! env $(cargo run -p megabatch-simt --example fake_machine -- crates/*/src/ops) PROGRAM …
//! ```
use std::path::{Path, PathBuf};

use megabatch_simt::driver::FakeDriver;
use megabatch_simt::{Checks, CompileOptions, Kernels};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let objects = std::env::args().skip(1).map(|folder| object(Path::new(&folder))).collect::<Result<Vec<_>, _>>()?;
    println!("LD_LIBRARY_PATH={} {}={}", FakeDriver::folder().display(), FakeDriver::KERNELS, objects.join(":"));
    Ok(())
}

/// The shared object with all kernels of a folder.
fn object(folder: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let mut sources: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    sources.retain(|path| path.extension().is_some_and(|ending| ending == "cu"));
    sources.sort();
    let options = CompileOptions { checks: Checks::Barriers, ..CompileOptions::default() };
    Ok(Kernels::compile_with(&sources, &options)?.path().display().to_string())
}
