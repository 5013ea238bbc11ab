//! The kernels of this folder on the CPU, for the tests of the operations.
#![forbid(unsafe_code)]

use std::sync::LazyLock;

use megabatch_simt::{Arg, Geometry, Kernels};

use super::launch::Launch;

static KERNELS: LazyLock<Kernels> = LazyLock::new(|| {
    let sources = ["cast", "copy_strided", "fill", "reduce"];
    let sources = sources.map(|name| format!("{}/src/ops/{name}.cu", env!("CARGO_MANIFEST_DIR")));
    Kernels::compile(&sources).unwrap_or_else(|error| panic!("{error}"))
});

/// Launches `kernel`, as a GPU would be asked to; nothing for an empty grid.
pub(super) fn run(kernel: &str, launch: Option<Launch>, arguments: &mut [Arg<'_>]) {
    let Some(Launch { blocks, threads }) = launch else { return };
    let done = KERNELS.launch(kernel, Geometry::linear(blocks, threads), arguments);
    done.unwrap_or_else(|error| panic!("{error}"));
}
