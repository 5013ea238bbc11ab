//! `megabatch config`: every key, its values and its default.

use anyhow::Result;
use serde_json::json;

use crate::answer::Answer;
use crate::config::reference_page;

/// Print every configuration key with its default and meaning, as Markdown
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch config > docs/configuration.md")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<Answer> {
    let page = reference_page();
    Ok(Answer::new(page.clone(), &json!({ "markdown": page })))
}
