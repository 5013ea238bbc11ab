//! Recipe of a series file: the files, how they are read, and the series made of them. `ingest`
//! takes it as arguments and writes it into the file; `leak` reads it there and makes the series
//! again, `predict --follow` goes on with it.

mod choices;
mod lists;
mod recordings;

pub(crate) mod windows;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, ValueEnum};
use megabatch_bars::{
    DateOrder, FormatName, GapPolicy, OnError, ReadOptions, Scaling, SeriesSpec, SymbolPattern, TargetKind, Timeframe,
    Window, Zone, bar_files,
};
use megabatch_chunk_io::AttributeValue;
use serde_json::Value;

use crate::duration::Duration;
use crate::failure::Failure;
pub(crate) use choices::Calendar;
use choices::{Quotes, Repeated, Stamp, WeekendRule};
use lists::{FeatureList, PipSizes, symbol_name};
pub(crate) use recordings::Recordings;
use windows::Windows;

/// The arguments that decide what a series file holds.
#[derive(clap::Args, Clone, Debug, PartialEq)]
pub(crate) struct Recipe {
    /// Files of bars, in any order, or folders of them; .gz is read as it is. Files of several
    /// symbols become several instruments
    #[arg(required_unless_present = "bid")]
    pub(crate) bars: Vec<PathBuf>,
    /// Files of bars of the bid, to be joined with those of the ask to their mean and a spread
    #[arg(long, requires = "ask", conflicts_with = "bars", num_args = 1..)]
    pub(crate) bid: Vec<PathBuf>,
    /// Files of bars of the ask
    #[arg(long, requires = "bid", num_args = 1..)]
    pub(crate) ask: Vec<PathBuf>,
    /// Symbol; taken from the files' names if not given
    #[arg(long, value_parser = symbol_name)]
    symbol: Option<String>,
    /// Where the symbol stands in the files' names: {} for it, * for anything else (DA-{}-T-*);
    /// names without their endings
    #[arg(long, conflicts_with = "symbol")]
    symbol_pattern: Option<SymbolPattern>,
    /// Size of a pip in units of the price, for all symbols or by symbol (EURUSD=0.0001,AAPL=0.01);
    /// known for currency pairs, and not needed where neither target nor features are in pips
    #[arg(long, allow_hyphen_values = true)]
    pip_size: Option<PipSizes>,
    /// Format of the files: histdata, metatrader, iso, year-last, epoch; recognised if not given
    #[arg(long)]
    format: Option<FormatName>,
    /// Order of day and month where the year comes last; found if all dates can be read in one
    /// order only
    #[arg(long)]
    date_order: Option<DateOrder>,
    /// Which end of a bar its timestamp is
    #[arg(long, value_enum, default_value_t = Stamp::Open)]
    time: Stamp,
    /// Zone of the timestamps: UTC, +02:00, America/New_York, new-york+7 or london-5; if not given,
    /// UTC for ISO timestamps, and for others found from the weekly closes
    #[arg(long, allow_hyphen_values = true)]
    zone: Option<Zone>,
    /// Timeframe of the bars; found from their spacing if not given
    #[arg(long)]
    base: Option<Timeframe>,
    /// Prices as they were quoted, or adjusted for splits and dividends by the file's adjusted
    /// close
    #[arg(long, value_enum, default_value_t = Quotes::Auto)]
    prices: Quotes,
    /// What happens to rows that cannot be used as they stand: fail, skip (drop and count), or
    /// repair (put right what can be put right without inventing anything, drop the rest). Of
    /// several instruments, one that cannot be used at all is left out and named by skip and repair
    #[arg(long, default_value_t = OnError::Fail)]
    on_error: OnError,
    /// Which of several rows of one time stays, where the zone's daylight saving does not tell them
    /// apart
    #[arg(long, value_enum, default_value_t = Repeated::Refuse)]
    repeats: Repeated,
    /// Which bars of several instruments are read; an instrument is listed from its first bar on,
    /// until it has had none for four weeks
    #[arg(long, value_enum, default_value_t = Calendar::All)]
    pub(crate) calendar: Calendar,
    /// Window of each timeframe in bars
    #[arg(long, default_value = "M1:480,M5:288,M15:192,H1:96,H4:48")]
    timeframes: Windows,
    /// Features of a bar, separated by commas; `default` and `all` stand for several
    #[arg(long, default_value = "default")]
    features: FeatureList,
    /// Future bars K whose price changes are the targets
    #[arg(long, default_value_t = 36)]
    horizon: usize,
    /// What is predicted: the change in pips up to each future bar (cumulative) or within it
    /// (increment), or the log return up to it (log_return)
    #[arg(long, default_value = "cumulative")]
    target: TargetKind,
    /// Every how many bars there is a sample; several instruments have theirs at common times
    #[arg(long, default_value_t = 1)]
    stride: usize,
    /// Longest hole in the bars that windows may reach across; a longer one ends a segment
    #[arg(long, default_value = "4d")]
    longest_hole: Duration,
    /// Whether windows may reach across weekends
    #[arg(long, value_enum, default_value_t = WeekendRule::Span)]
    weekends: WeekendRule,
    /// How features are scaled: robust (median, interquartile range), standard (mean, deviation) or
    /// none
    #[arg(long, default_value = "robust")]
    scaling: Scaling,
    /// Share of the samples, the earliest, on which the scaling is fitted: the first number of
    /// data.split
    #[arg(long, default_value_t = 0.7)]
    train_fraction: f64,
}

impl Recipe {
    /// Every file that is read.
    pub(crate) fn files(&self) -> Vec<&Path> {
        self.bars.iter().chain(&self.bid).chain(&self.ask).map(PathBuf::as_path).collect()
    }

    /// The recipe with the files of bars that stand in its folders in their place.
    pub(crate) fn with_files_of_folders(mut self) -> Result<Self> {
        let files = self.bars.iter().map(|path| bar_files(path)).collect::<Result<Vec<_>, _>>()?;
        self.bars = files.into_iter().flatten().collect();
        Ok(self)
    }

    pub(crate) fn read_options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            date_order: self.date_order,
            zone: self.zone.clone(),
            stamped_at: self.time.into(),
            base: self.base,
            prices: self.prices.into(),
            on_error: self.on_error,
            repeats: self.repeats.into(),
            symbol: self.symbol.clone(),
            symbol_pattern: self.symbol_pattern.clone(),
        }
    }

    /// Definition of the series.
    pub(crate) fn spec(&self) -> SeriesSpec {
        let window = |&(timeframe, seq_len): &(Timeframe, usize)| Window { timeframe, seq_len };
        SeriesSpec {
            windows: self.timeframes.0.iter().map(window).collect(),
            features: self.features.0.clone(),
            horizon: self.horizon,
            target_kind: self.target,
            stride: self.stride,
            scaling: self.scaling,
            train_fraction: self.train_fraction,
            holes: GapPolicy { longest_ns: self.longest_hole.ns, weekends: self.weekends.into() },
        }
    }

    /// The recipe as arguments, those at their defaults too: what another version by default does
    /// changes nothing in it.
    pub(crate) fn to_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let given = [
            ("symbol", self.symbol.clone()),
            ("symbol-pattern", self.symbol_pattern.as_ref().map(ToString::to_string)),
            ("pip-size", self.pip_size.as_ref().map(ToString::to_string)),
            ("format", self.format.map(|format| format.to_string())),
            ("date-order", self.date_order.map(|order| order.to_string())),
            ("zone", self.zone.as_ref().map(ToString::to_string)),
            ("base", self.base.map(|base| base.to_string())),
            ("time", Some(word(&self.time))),
            ("prices", Some(word(&self.prices))),
            ("on-error", Some(self.on_error.to_string())),
            ("repeats", Some(word(&self.repeats))),
            ("calendar", Some(word(&self.calendar))),
            ("timeframes", Some(self.timeframes.to_string())),
            ("features", Some(self.features.to_string())),
            ("horizon", Some(self.horizon.to_string())),
            ("target", Some(self.target.to_string())),
            ("stride", Some(self.stride.to_string())),
            ("longest-hole", Some(self.longest_hole.to_string())),
            ("weekends", Some(word(&self.weekends))),
            ("scaling", Some(self.scaling.to_string())),
            ("train-fraction", Some(self.train_fraction.to_string())),
        ];
        words.extend(given.into_iter().filter_map(|(name, value)| value.map(|value| format!("--{name}={value}"))));
        for (side, paths) in [("bid", &self.bid), ("ask", &self.ask)] {
            words.extend(paths.iter().map(|path| format!("--{side}={}", path.display())));
        }
        words.push("--".to_owned());
        words.extend(self.bars.iter().map(|path| path.display().to_string()));
        words
    }

    /// The account of its bars in the series file at `path`, which is its attribute `source`, and
    /// the recipe in it.
    pub(crate) fn of_series(path: &Path, source: Option<&AttributeValue>) -> Result<(Value, Self)> {
        let account = match source {
            Some(AttributeValue::Text(text)) => serde_json::from_str(text).unwrap_or_default(),
            _ => Value::Null,
        };
        let words: Option<Vec<String>> = serde_json::from_value(account["recipe"].clone()).ok();
        let recipe = words.and_then(|words| Recipe::from_words(&words)).ok_or_else(|| {
            Failure::data(format!(
                "{}: /@source: expected the recipe by which `ingest` made the file, found none; make it again from its bars",
                path.display()
            ))
        })?;
        Ok((account, recipe))
    }

    /// The recipe that [`Recipe::to_words`] wrote; `None` where the words are none of a recipe.
    pub(crate) fn from_words(words: &[String]) -> Option<Self> {
        #[derive(Parser)]
        struct Words {
            #[command(flatten)]
            recipe: Recipe,
        }
        Words::try_parse_from(std::iter::once("ingest").chain(words.iter().map(String::as_str)))
            .ok()
            .map(|words| words.recipe)
    }
}

fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is skipped").get_name().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Recipe> {
        Recipe::from_words(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_recipe_reads_back_as_it_was_written() {
        for text in [
            "EURUSD.csv",
            "a.csv b.csv --symbol X --pip-size 0.5 --format iso --zone new-york+7 --base M5 --time close --on-error repair",
            "a.csv --pip-size=A=0.1,B=2 --repeats last --timeframes H1:9,M1:3 --features rsi_14,body --horizon 3 --stride 7",
            "folder --symbol-pattern DA-{}-T-* --target log_return --prices quoted --calendar common",
            "a.csv --longest-hole 90m --weekends split --scaling none --train-fraction 0.123456789 --prices adjusted --target increment",
            "--bid a.csv b.csv --ask c.csv d.csv --zone=-05:00",
        ] {
            let recipe = parsed(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(Recipe::from_words(&recipe.to_words()), Some(recipe), "{text}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for text in [
            "",
            "--bid a.csv",
            "--ask a.csv",
            "x.csv --bid a.csv --ask b.csv",
            "x.csv --longest-hole 5",
            "x.csv --symbol X --symbol-pattern {}",
            // An instrument without a name was written into the file.
            "x.csv --symbol=",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
