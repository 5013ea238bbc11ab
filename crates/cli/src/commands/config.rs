//! `megabatch config`: every key, its values and its default.

use megabatch_run::Result;
use megabatch_run::config::{reference_json, reference_page, template};
use serde_json::json;

use crate::answer::Answer;

/// Print every configuration key with its default and meaning, as Markdown or as a template
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch config > docs/reference/configuration.md
  megabatch config --yaml > config.yaml")]
pub(crate) struct Args {
    /// Print a configuration file with every key at its default, to be edited
    #[arg(long)]
    yaml: bool,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    if args.yaml {
        let yaml = template();
        return Ok(Answer::new(yaml.clone(), &json!({ "yaml": yaml })));
    }
    let page = reference_page();
    Ok(Answer::new(page.clone(), &json!({ "markdown": page, "settings": reference_json() })))
}
