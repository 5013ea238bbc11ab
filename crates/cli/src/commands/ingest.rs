//! `megabatch ingest`: bars as text become aligned multi-timeframe series in one HDF5 file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches};
use megabatch_run::ingest::{
    Bins, Calendar, ContextFile, DateOrder, FeatureList, FormatName, OnError, Overlaps, PipSizes, Prices, Recipe,
    Repeats, Scaling, StampedAt, SymbolPattern, TargetKind, Timeframe, Weekends, Windows, Zone, append, column_name,
    ingest, symbol_name,
};
use megabatch_run::text::Duration;
use megabatch_run::{Error, Result};

use crate::answer::Answer;
use crate::commands::choice;
use crate::host::host;

/// Read bars and write aligned series: closed bars only, features, targets, scaled on the training
/// span
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch ingest DAT_ASCII_EURUSD_M1_2018.csv.gz --out eurusd.h5 --stride 15
  megabatch ingest bars.csv --out series.h5 --timeframes M1:480,H1:96 --zone +02:00
  megabatch ingest MT5/ --out eurusd.h5 --timeframes M1:480,H1:96,H4:48 --own-bars --bins new-york+7
  megabatch ingest EURUSD.csv GBPUSD.csv USDJPY.csv --out majors.h5
  megabatch ingest shares/ --out shares.h5 --timeframes D1:60 --target log_return --horizon 5 --on-error skip
  megabatch ingest --append EURUSD-2026-11-25.csv --out eurusd.h5
  megabatch ingest --bid usdjpy-bid.csv --ask usdjpy-ask.csv --out usdjpy.h5 --on-error repair")]
pub(crate) struct Args {
    /// Before the options, which are taken out as they are parsed
    #[command(flatten)]
    stated: StatedOptions,
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Add the bars, or a longer --context alone, to the series that --out names. It keeps its
    /// scalers and all options of then; none need be stated again
    #[arg(long)]
    append: bool,
    /// The series file to write
    #[arg(long)]
    out: PathBuf,
}

/// Names of the arguments on the command line, including those of a recipe.
struct StatedOptions(Vec<String>);

impl FromArgMatches for StatedOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let ids = matches.ids().map(clap::Id::as_str);
        let stated = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        Ok(StatedOptions(stated.map(|id| id.replace('_', "-")).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = StatedOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for StatedOptions {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

/// Bars, windows, features and targets of a series file.
#[derive(clap::Args)]
struct RecipeArgs {
    /// Files of bars, in any order, or folders; plain, .gz, .zip or .parquet. Files of several
    /// symbols become several instruments
    #[arg(required_unless_present_any = ["bid", "context"])]
    bars: Vec<PathBuf>,
    /// Files of bid bars, or folders; with --ask they give mean prices and a spread
    #[arg(long, requires = "ask", conflicts_with = "bars", num_args = 1..)]
    bid: Vec<PathBuf>,
    /// Files of ask bars, or folders
    #[arg(long, requires = "bid", num_args = 1..)]
    ask: Vec<PathBuf>,
    /// Symbol [default: from the file names]
    #[arg(long, value_parser = symbol_name)]
    symbol: Option<String>,
    /// Pattern of file names without extension: {} is the symbol, * anything else (DA-{}-T-*)
    #[arg(long, conflicts_with = "symbol")]
    symbol_pattern: Option<SymbolPattern>,
    /// Size of a pip in units of the price, for all symbols or by symbol (EURUSD=0.0001,AAPL=0.01).
    /// Known for currency pairs; needed only if targets or features are in pips
    #[arg(long, allow_hyphen_values = true)]
    pip_size: Option<PipSizes>,
    /// Format of the files: histdata, metatrader, iso, year-last, epoch [default: recognised]
    #[arg(long)]
    format: Option<FormatName>,
    /// Order of day and month in dates with the year last [default: the only one that fits all
    /// dates]
    #[arg(long)]
    date_order: Option<DateOrder>,
    /// Meaning of a bar's timestamp
    #[arg(long, value_enum, default_value_t = StampArg::Open)]
    time: StampArg,
    /// Zone of the timestamps: UTC, +02:00, America/New_York, new-york+7 or london-5 [default: UTC
    /// for ISO timestamps, else inferred from weekly closes]
    #[arg(long, allow_hyphen_values = true)]
    zone: Option<Zone>,
    /// Timeframe of the bars; files whose bars are evidently longer or shorter are compared with
    /// them [default: from their spacing]
    #[arg(long)]
    base: Option<Timeframe>,
    /// Prices as they were quoted, or adjusted for splits and dividends by the file's adjusted
    /// close
    #[arg(long, value_enum, default_value_t = QuotesArg::Auto)]
    prices: QuotesArg,
    /// Treatment of defective rows: fail, skip (drop and count), or repair (fix what can be fixed
    /// without inventing anything, drop the rest). skip and repair exclude and name unusable
    /// instruments
    #[arg(long, default_value_t = OnError::Fail)]
    on_error: OnError,
    /// Row kept if several have the same time and daylight saving does not explain it
    #[arg(long, value_enum, default_value_t = RepeatedArg::Refuse)]
    repeats: RepeatedArg,
    /// Files of one symbol that cover the same time
    #[arg(long, value_enum, default_value_t = OverlapsArg::Refuse)]
    overlaps: OverlapsArg,
    /// Bars that are used if there are several instruments. An instrument is listed from its first
    /// bar until it has had none for four weeks
    #[arg(long, value_enum, default_value_t = CalendarArg::All)]
    calendar: CalendarArg,
    /// Window of each timeframe in bars
    #[arg(long, default_value = "M1:480,M5:288,M15:192,H1:96,H4:48")]
    timeframes: Windows,
    /// Clock at whose multiples of a timeframe bars start that are made from shorter ones, weeks on
    /// Mondays: UTC, +02:00, America/New_York, chicago+7 or Europe/Berlin+1 (hours from a city or
    /// zone), new-york+7, whose days close at 17:00 in New York, or exchange, the clock that the
    /// bars' times are read by
    #[arg(long, default_value = "UTC", allow_hyphen_values = true)]
    bins: Bins,
    /// Take the bars of longer timeframes as a symbol's own files have them (EURUSD_H1.csv beside
    /// EURUSD_M1.csv), each from the end of its bin on, and make those of the others
    #[arg(long)]
    own_bars: bool,
    /// Features of a bar, separated by commas, or `default` or `all`; column:NAME is a column of
    /// the files, and column:NAME:sum its sum in longer bars (last, first, sum, mean, min or max)
    #[arg(long, default_value = "default")]
    features: FeatureList,
    /// Bars of another instrument, as SYMBOL=FILE; may be repeated. The features that it has too
    /// stand beside those of each bar, by its last bar that had closed, with the time since
    /// its close over the length of a bar: SYMBOL.log_return, SYMBOL.age
    #[arg(long, value_name = "SYMBOL=FILE")]
    context: Vec<ContextFile>,
    /// Future bars that decide the targets: K price changes, or the values of columns
    #[arg(long, default_value_t = 36, value_parser = bar_count)]
    horizon: usize,
    /// Target: change in pips up to each future bar (cumulative) or within it (increment), or log
    /// return up to it (log_return); or triple_barrier:UP:DOWN:UNIT, the class -1, 0 or 1 of the
    /// price that is reached first (UNIT: return, pips or atr); or column:NAME, a column of the
    /// files that the bars of the horizon decide, several separated by commas
    #[arg(long, default_value = "cumulative")]
    target: TargetKind,
    /// Column, as column:NAME, of the times of the bars that decide targets which are columns
    /// [default: the horizon decides]
    #[arg(long, value_parser = column_name)]
    label_end: Option<String>,
    /// Column, as column:NAME, of the weight of a sample in the loss of training: numbers from 0
    /// on; a bar without one has weight 0 [default: all samples count alike]
    #[arg(long, value_parser = column_name)]
    weight: Option<String>,
    /// Base bars from one sample to the next. Above 1, several instruments share one grid of times,
    /// and each has samples at those at which it has a bar
    #[arg(long, default_value_t = 1, value_parser = bar_count)]
    stride: usize,
    /// Longest gap between bars that windows may reach across; a longer one ends a segment
    #[arg(long, default_value = "4d")]
    longest_hole: Duration,
    /// Rule for windows across weekends
    #[arg(long, value_enum, default_value_t = WeekendRuleArg::Span)]
    weekends: WeekendRuleArg,
    /// Scaling of features: robust (median, interquartile range), standard (mean, deviation) or
    /// none
    #[arg(long, default_value = "robust")]
    scaling: Scaling,
    /// Share of the earliest samples that the scaling is fitted on; use the first number of
    /// data.split
    #[arg(long, default_value_t = 0.7)]
    train_fraction: f64,
}

choice! {
    enum StampArg => StampedAt {
        /// The bar's beginning
        Open => Open,
        /// The bar's end
        Close => Close,
    }
}

choice! {
    enum QuotesArg => Prices {
        /// Adjusted where the file has an adjusted close, as quoted otherwise
        Auto => AdjustedIfGiven,
        /// As they were quoted
        Quoted => AsQuoted,
        /// Adjusted for later splits and dividends
        Adjusted => Adjusted,
    }
}

choice! {
    enum RepeatedArg => Repeats {
        /// None: the second is an error, treated as --on-error says
        Refuse => Refuse,
        /// The first
        First => First,
        /// The last
        Last => Last,
    }
}

choice! {
    enum OverlapsArg => Overlaps {
        /// An error
        Refuse => Refuse,
        /// Equal bars are taken once, and different ones are an error, unless a file ends with an
        /// unfinished one
        Once => EqualOnce,
    }
}

choice! {
    enum WeekendRuleArg => Weekends {
        /// Like any other gap
        Span => Spanned,
        /// A gap with a Saturday noon UTC in it ends a segment
        Split => NotSpanned,
    }
}

choice! {
    enum CalendarArg => Calendar {
        /// Every bar of every instrument
        All => All,
        /// Bars at times at which at least half of the listed instruments have one; of two
        /// instruments, every bar
        Common => Common,
    }
}

impl RecipeArgs {
    fn recipe(&self) -> Recipe {
        Recipe {
            bars: self.bars.clone(),
            bid: self.bid.clone(),
            ask: self.ask.clone(),
            symbol: self.symbol.clone(),
            symbol_pattern: self.symbol_pattern.clone(),
            pip_size: self.pip_size.clone(),
            format: self.format,
            date_order: self.date_order,
            time: self.time.into(),
            zone: self.zone.clone(),
            known_zones: BTreeMap::new(),
            day_zone: None,
            known_symbols: Vec::new(),
            file_symbols: BTreeMap::new(),
            base: self.base,
            prices: self.prices.into(),
            on_error: self.on_error,
            repeats: self.repeats.into(),
            overlaps: self.overlaps.into(),
            calendar: self.calendar.into(),
            timeframes: self.timeframes.clone(),
            bins: self.bins.clone(),
            own_bars: self.own_bars,
            features: self.features.clone(),
            context: self.context.clone(),
            function_columns: Vec::new(),
            horizon: self.horizon,
            target: self.target.clone(),
            label_end: self.label_end.clone(),
            weight: self.weight.clone(),
            stride: self.stride,
            longest_hole: self.longest_hole,
            weekends: self.weekends.into(),
            scaling: self.scaling,
            train_fraction: self.train_fraction,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let recipe = args.recipe.recipe();
    if !args.append && recipe.bars.is_empty() && recipe.bid.is_empty() {
        return Err(Error::usage(
            "--context: there are no bars beside which it could stand: name files of bars; with --append, a longer context needs none",
        ));
    }
    let report = match args.append {
        true => append(&recipe, &args.stated.0, &args.out, &host())?,
        false => ingest(&recipe, &args.out, &host())?,
    };
    Ok(report.into())
}

/// A number of bars.
fn bar_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|&count: &usize| count > 0);
    count.ok_or_else(|| "expected a whole number of bars from 1 on, such as 12".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        recipe: RecipeArgs,
    }

    fn parsed(text: &str) -> Option<Recipe> {
        let words = std::iter::once("ingest").chain(text.split_whitespace());
        Words::try_parse_from(words).ok().map(|words| words.recipe.recipe())
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        assert_eq!(parsed("a.csv"), Some(Recipe { bars: vec!["a.csv".into()], ..Recipe::default() }));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for text in ["", "--bid a.csv", "--ask a.csv", "x.csv --bid a.csv --ask b.csv", "x.csv --longest-hole 5"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert_eq!(parsed("x.csv --symbol X --symbol-pattern {}"), None);
        // An instrument without a name was written into the file.
        assert_eq!(parsed("x.csv --symbol="), None);
    }
}
