//! Tests on published files, which `MEGABATCH_DATA` finds. Without it they are reported as skipped.

mod dirty;
mod files;
mod shares;
#[path = "../whole/mod.rs"]
mod whole;
mod year;

use std::path::PathBuf;

use megabatch_test_support::published_data;

/// The path of a published file; without the data, `None`, and the running test counts as skipped.
fn published(name: &str) -> Option<PathBuf> {
    Some(published_data(name)?.join(name))
}
