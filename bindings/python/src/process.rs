//! The process that loaded the module, which may be the program `megabatch`. Its threads do not
//! survive a fork, and locks that they held stay locked in the child: work there would wait for
//! ever.

use std::ffi::OsString;
use std::sync::OnceLock;

use pyo3::prelude::*;

static LOADED_IN: OnceLock<u32> = OnceLock::new();

/// Does what a command line of the program `megabatch` says, and returns the exit code. The first
/// word names the program.
#[pyfunction]
pub(crate) fn program(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| megabatch::run(words))
}

/// Remembers this process as the one that loaded the module.
pub(crate) fn remember() {
    LOADED_IN.get_or_init(std::process::id);
}

/// True in a process that was forked from the one that loaded the module.
pub(crate) fn is_forked() -> bool {
    LOADED_IN.get().is_some_and(|&process| process != std::process::id())
}

/// Refuses work in a forked process.
///
/// # Errors
/// `ForkError`, which says what to do.
pub(crate) fn check(py: Python<'_>) -> PyResult<()> {
    if !is_forked() {
        return Ok(());
    }
    let text = "this process was forked after megabatch was imported, and the threads of megabatch stay behind in the \
                other one: give PyTorch's DataLoader num_workers=0 (megabatch gathers batches on all cores itself), \
                and multiprocessing the start method \"spawn\"";
    let class = py.import("megabatch.errors")?.getattr("ForkError")?;
    Err(PyErr::from_value(class.call1((text,))?))
}
