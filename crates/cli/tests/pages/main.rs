//! The pages of the documentation: their commands run, their links lead somewhere, and their tables
//! are the program's. `cargo xtask test` runs this program, and no other of this crate, after a
//! change of a page.
mod commands;
mod links;
#[expect(dead_code, reason = "the program `cli` uses the rest")]
#[path = "../cli/stage.rs"]
mod stage;

use std::fs;
use std::path::{Path, PathBuf};

use crate::stage::Stage;

/// The root of the workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_about_memory_shows_the_table_of_today() {
    let table = Stage::new().said("memory table");
    let page = fs::read_to_string(workspace().join("docs/measurements/memory.md")).unwrap();
    assert!(page.contains(table.trim_end()), "docs/measurements/memory.md is old; put this table into it:\n{table}");
}
