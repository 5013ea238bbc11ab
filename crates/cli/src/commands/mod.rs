//! The commands, one file each: arguments at the top, then what it does. Each returns an
//! [`Answer`].

mod bench;
mod compare;
mod completions;
mod config;
mod convert;
mod demo;
mod doctor;
mod eval;
mod export;
mod graph;
mod import;
mod ingest;
mod inspect;
mod leak;
mod memory;
mod monitor;
mod plan;
mod predict;
mod synth;
mod ticks;
mod train;
mod trained;

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use megabatch_run::Result;
use megabatch_run::config::SettingSources;

use crate::answer::{Answer, Form};

/// An argument with a choice of words, each for a variant of a type of the library.
macro_rules! choice {
    (
        $(#[$about:meta])*
        $visibility:vis enum $argument:ident => $type:ident {
            $($(#[$help:meta])* $word:ident => $variant:ident,)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, clap::ValueEnum)]
        $visibility enum $argument {
            $($(#[$help])* $word,)+
        }

        impl From<$argument> for $type {
            fn from(argument: $argument) -> Self {
                match argument {
                    $($argument::$word => $type::$variant,)+
                }
            }
        }
    };
}

use choice;

/// A training runtime for recurrent models on market data
///
/// `ingest` turns bars into aligned series of several timeframes, `train` trains an LSTM on them,
/// and `eval` shows errors beside baselines. `megabatch demo` does all three on synthetic bars.
#[derive(Parser)]
#[command(
    name = "megabatch",
    version,
    max_term_width = 110,
    after_help = "Exit codes: 0 done, 1 run failed, 2 usage or configuration, \
3 data, 4 would not fit, 5 NaN or infinity, 6 device, 129 SIGHUP, 130 SIGINT, 143 SIGTERM."
)]
pub(crate) struct Cli {
    /// Print the answer, and any error, as JSON; an error is the last line of standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Doctor(doctor::Args),
    Ingest(Box<ingest::Args>),
    Ticks(Box<ticks::Args>),
    Synth(synth::Args),
    Inspect(inspect::Args),
    Leak(leak::Args),
    Plan(plan::Args),
    Convert(convert::Args),
    Train(train::Args),
    Eval(eval::Args),
    Monitor(monitor::Args),
    Compare(compare::Args),
    Predict(predict::Args),
    Export(export::Args),
    Import(import::Args),
    Graph(graph::Args),
    Memory(memory::Args),
    Bench(bench::Args),
    Config(config::Args),
    Completions(completions::Args),
}

/// Parses the words of a command line, of which the first names the program.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = with_negative_numbers(Cli::command());
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The command with options that take negative numbers for values and not for options, so that a
/// wrong one is told with what the option expects.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let taking_them = |arg: clap::Arg| {
        let is_option = arg.get_action().takes_values() && !arg.is_positional();
        arg.allow_negative_numbers(is_option)
    };
    command.mut_args(taking_them).mut_subcommands(with_negative_numbers)
}

/// Reads the number of optimizer steps that `--max-steps` gives.
fn step_count(text: &str) -> Result<u64, String> {
    text.parse::<u64>()
        .ok()
        .filter(|&steps| steps >= 1)
        .ok_or_else(|| "expected a whole number of steps, 1 or more".to_owned())
}

/// Does what the command says; a screen of its own is for an answer in `form` of text alone.
pub(crate) fn run(command: Command, form: Form) -> Result<Answer> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Ingest(args) => ingest::run(&args),
        Command::Ticks(args) => ticks::run(&args),
        Command::Synth(args) => synth::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Leak(args) => leak::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Monitor(args) => monitor::run(&args, form),
        Command::Compare(args) => compare::run(&args),
        Command::Predict(args) => predict::run(&args, form),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Graph(args) => graph::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}

/// Settings by `--config` and `--set`.
fn settings(file: Option<&Path>, set: &[String]) -> SettingSources {
    SettingSources { file: file.map(Path::to_owned), set: set.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_well_formed_and_every_command_has_an_example() {
        let command = Cli::command();
        with_negative_numbers(command.clone()).debug_assert();
        for command in command.get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("megabatch {}", command.get_name())), "{}", command.get_name());
        }
    }

    // `--horizon -5` was told to be no argument, with the advice to write `-- -5`.
    #[test]
    fn negative_numbers_are_values_of_their_options() {
        for (line, expected) in [
            ("ingest a.csv --out b.h5 --horizon -5", "expected a whole number of bars from 1 on, such as 12"),
            ("ingest a.csv --out b.h5 --stride -1", "expected a whole number of bars from 1 on, such as 12"),
            ("graph build a.csv --kind cosine --out b.mbg --k -3", "invalid value '-3' for '--k <K>'"),
            ("graph bench --nodes -1", "expected 2 or more"),
        ] {
            let words: Vec<OsString> = format!("megabatch {line}").split(' ').map(OsString::from).collect();
            let Err(error) = parse(&words) else { panic!("{line}") };
            assert!(error.to_string().contains(expected), "{error}");
        }
        let words = ["megabatch", "graph", "build", "a", "--kind", "correlation", "--out", "b", "--threshold", "-0.5"];
        assert!(parse(&words.map(OsString::from)).is_ok());
    }
}
