//! A recipe from options by name, for Python.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use megabatch_bars::{TargetKind, Timeframe, Zone};

use super::{Bins, ContextFile, FeatureList, PipSizes, Recipe, Windows, column_name, symbol_name};
use crate::error::{Error, Result};

/// Options of a recipe, as `ingest` has them.
const NAMES: [&str; 30] = [
    "ask",
    "base",
    "bid",
    "bins",
    "calendar",
    "context",
    "date-order",
    "features",
    "format",
    "function-columns",
    "horizon",
    "label-end",
    "longest-hole",
    "on-error",
    "overlaps",
    "own-bars",
    "pip-size",
    "prices",
    "repeats",
    "scaling",
    "stride",
    "symbol",
    "symbol-pattern",
    "target",
    "time",
    "timeframes",
    "train-fraction",
    "weekends",
    "weight",
    "zone",
];

impl Recipe {
    /// The recipe that reads the files `bars` with options of these names and values, as `ingest`
    /// takes them: `("timeframes", "M1:480,H1:96")`.
    ///
    /// # Errors
    /// A usage error that names the option, as an argument of Python, and what was expected.
    pub fn from_options<'a>(bars: Vec<PathBuf>, options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let mut recipe = Recipe { bars, ..Recipe::default() };
        for (name, value) in options {
            let argument = argument(name);
            if !NAMES.contains(&name) {
                return Err(unknown(&argument).with_field("key", argument));
            }
            let fault = |expected: String| {
                let error = Error::usage(format!("{argument}={value}: {expected}"));
                error.with_field("key", argument.clone()).with_field("found", value).with_field("expected", expected)
            };
            if let Some(reason) = reason(name, value) {
                return Err(fault(reason));
            }
            recipe.set(name, value).ok_or_else(|| fault(expected(name).to_owned()))?;
        }
        // Longer bars of other instruments are appended without bars; `ingest` requires these.
        if !recipe.files().is_empty() {
            recipe.check()?;
        }
        Ok(recipe)
    }
}

/// The name of an option as an argument of Python.
fn argument(option: &str) -> String {
    option.replace('-', "_")
}

fn unknown(name: &str) -> Error {
    let known = NAMES.map(argument);
    let nearest = known.iter().min_by_key(|known| strsim::damerau_levenshtein(known, name)).expect("there are options");
    Error::usage(format!("{name}: no option of a recipe; the nearest is {nearest}, and all are {}", known.join(", ")))
}

/// Reason why the text is no value of the option, from the value's type.
fn reason(name: &str, value: &str) -> Option<String> {
    fn written<T: FromStr<Err: Display>>(text: &str) -> Option<String> {
        text.parse::<T>().err().map(|error| error.to_string())
    }
    match name {
        "timeframes" => written::<Windows>(value),
        "features" => written::<FeatureList>(value),
        "pip-size" => written::<PipSizes>(value),
        "base" => written::<Timeframe>(value),
        "target" => written::<TargetKind>(value),
        "context" => written::<ContextFile>(value),
        "bins" => written::<Bins>(value),
        "zone" => written::<Zone>(value),
        "label-end" | "weight" => column_name(value).err(),
        "symbol" => symbol_name(value).err(),
        _ => None,
    }
}

/// Expected form of an option whose type has no text for it.
fn expected(name: &str) -> &'static str {
    match name {
        "calendar" => "expected all or common",
        "horizon" | "stride" => "expected a whole number",
        "longest-hole" => "expected a duration, such as 4d or 90m",
        "on-error" => "expected fail, skip or repair",
        "prices" => "expected auto, quoted or adjusted",
        "overlaps" => "expected refuse or once",
        "own-bars" => "expected true or false",
        "repeats" => "expected refuse, first or last",
        "scaling" => "expected a kind of scaling, such as robust or none",
        "time" => "expected open or close",
        "train-fraction" => "expected a number from 0 to 1",
        "weekends" => "expected span or split",
        _ => "not understood",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(options: &[(&str, &str)]) -> Result<Recipe> {
        Recipe::from_options(vec!["EURUSD.csv".into()], options.iter().copied())
    }

    #[test]
    fn options_are_those_of_ingest() {
        let recipe = made(&[("timeframes", "M1:60,H1:12"), ("target", "log_return"), ("horizon", "3")]).unwrap();
        assert_eq!((recipe.timeframes.to_string().as_str(), recipe.horizon), ("M1:60,H1:12", 3));
        // Every option that a file keeps can be given.
        let words = Recipe { symbol: Some("X".to_owned()), ..recipe }.to_words();
        let names = words.iter().filter_map(|word| word.strip_prefix("--")?.split_once('='));
        let given: Vec<(&str, &str)> = names.collect();
        assert!(given.len() > 10 && made(&given).is_ok());
    }

    #[test]
    fn a_wrong_option_is_named_with_what_was_expected() {
        for (option, message) in [
            (("horizn", "3"), "the nearest is horizon"),
            (
                ("on-eror", "skip"),
                "on_eror: no option of a recipe; the nearest is on_error, and all are ask, base, bid,",
            ),
            (("on-error", "x"), "on_error=x: expected fail, skip or repair"),
            (("horizon", "x"), "horizon=x: expected a whole number"),
            (("timeframes", "M1:0"), "timeframes=M1:0: `M1:0` is no window"),
            (("target", "moves"), "target=moves: "),
            (("weekends", "yes"), "weekends=yes: expected span or split"),
            (("bins", "nowhere"), "bins=nowhere: unknown time zone `nowhere`: expected UTC, an offset such as"),
            (("symbol", " "), "the symbol is empty"),
        ] {
            let error = made(&[option]).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            assert!(error.fields().iter().any(|(name, _)| *name == "key"), "{error}");
        }
        assert!(Recipe::from_options(Vec::new(), []).unwrap().check().is_err());
        let both = [("symbol", "X"), ("symbol-pattern", "{}")];
        assert!(made(&both).is_err());
    }
}
