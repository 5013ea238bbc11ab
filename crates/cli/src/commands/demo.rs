//! `megabatch demo`: a run on synthetic bars, from text to report.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser as _;
use megabatch_run::text::shown;
use megabatch_run::{Context as _, Error, Result};
use serde_json::json;

use super::Cli;
use crate::answer::{Answer, Form};
use crate::standard_error::tell;

/// Run ingest, plan, train, evaluation and report on synthetic bars, in about a minute
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch demo --out demo")]
pub(crate) struct Args {
    /// Folder for everything that the demo makes
    #[arg(long, default_value = "megabatch-demo")]
    out: PathBuf,
    /// Replace an earlier demo in that folder
    #[arg(long)]
    force: bool,
}

/// The file that marks a folder as a demo's, which alone may be replaced.
const MARK: &str = "made-by-megabatch-demo";

/// Each command as a user would type it, in a folder of its own.
const STEPS: &[(&str, &str)] = &[
    ("Made-up one-minute bars of 23 weeks", "synth BARS --days 161"),
    (
        "Aligned series of five timeframes, closed bars only",
        "ingest BARS --out SERIES --symbol EURUSD --stride 15 --timeframes M1:60,M5:48,M15:32,H1:24,H4:12",
    ),
    ("Proof that no sample sees the future", "leak SERIES --samples 8"),
    ("What the run will take", "plan --data SERIES SETTINGS"),
    ("Training", "train --data SERIES --out RUN SETTINGS"),
    ("Error by horizon", "eval --run RUN --data SERIES"),
    ("Predictions of the first hundred samples", "predict --run RUN --data SERIES --samples 0..100 --out PREDICTIONS"),
];

const SETTINGS: &str =
    "--set model.hidden=32 --set training.epochs=6 --set training.lr=0.003 --set training.run_length=8";

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let start = Instant::now();
    prepare(args)?;
    let file = |name: &str| args.out.join(name);
    let names = [
        ("BARS", file("bars.csv")),
        ("SERIES", file("series.h5")),
        ("RUN", file("run")),
        ("PREDICTIONS", file("predictions.csv")),
    ];
    for (title, step) in STEPS {
        let command = step.replace("SETTINGS", SETTINGS);
        let words: Vec<String> = command.split(' ').map(|word| fill_in(word, &names)).collect();
        tell(format_args!("\n== {title}\n$ megabatch {}\n", words.join(" ")));
        let cli = Cli::try_parse_from(std::iter::once("megabatch".to_owned()).chain(words));
        let cli = cli.map_err(|error| Error::failed(error.to_string()))?;
        super::run(cli.command, Form::Text)?.print_to_stderr();
    }
    let report = std::path::absolute(file("run/report.html"))?;
    let text = format!("\nDone in {:.0} s. The report: {}", start.elapsed().as_secs_f64(), report.display());
    Ok(Answer::new(
        text,
        &json!({ "out": shown(&args.out), "report": report, "seconds": start.elapsed().as_secs_f64() }),
    ))
}

fn fill_in(word: &str, names: &[(&str, PathBuf)]) -> String {
    let found = names.iter().find(|(name, _)| *name == word);
    found.map_or(word.to_owned(), |(_, path)| path.display().to_string())
}

/// Makes the demo's folder; only a folder that an earlier demo made is ever removed.
fn prepare(args: &Args) -> Result<()> {
    let mark = args.out.join(MARK);
    let is_empty = |folder: &Path| folder.read_dir().map_or(true, |mut entries| entries.next().is_none());
    if !is_empty(&args.out) {
        if !mark.exists() {
            return Err(Error::usage(format!(
                "{}: holds something else; name another folder with --out",
                args.out.display()
            )));
        }
        if !args.force {
            return Err(Error::usage(format!("{}: holds an earlier demo; --force replaces it", args.out.display())));
        }
        std::fs::remove_dir_all(&args.out).with_context(|| format!("{}: cannot be removed", args.out.display()))?;
    }
    let make = || std::fs::create_dir_all(&args.out).and_then(|()| std::fs::write(mark, ""));
    make().with_context(|| format!("{}: cannot be written to", args.out.display()))
}
