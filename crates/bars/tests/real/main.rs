//! Tests on published files. They are found through `MEGABATCH_DATA` and skipped, with a line that says so, without it.

mod chain;
mod dirty;
mod files;
mod pairs;
mod shares;
mod year;

use std::path::PathBuf;

/// The path of a published file, or `None`, said aloud, where there are none.
fn published(name: &str) -> Option<PathBuf> {
    match std::env::var_os("MEGABATCH_DATA") {
        Some(folder) => Some(PathBuf::from(folder).join(name)),
        None => {
            println!("skipped: MEGABATCH_DATA is not set, so {name} is not read");
            None
        }
    }
}
