//! `megabatch ingest`: bars as text become aligned multi-timeframe series in one HDF5 file.

use std::path::PathBuf;

use clap::ValueEnum;
use megabatch_run::Result;
use megabatch_run::ingest::{
    Calendar, DateOrder, FeatureList, FormatName, OnError, PipSizes, Prices, Recipe, Repeats, Scaling, StampedAt,
    SymbolPattern, TargetKind, Timeframe, Weekends, Windows, Zone, ingest, symbol_name,
};
use megabatch_run::text::Duration;

use crate::answer::Answer;

/// Read bars and write aligned series: closed bars only, features, targets, scaled on the training
/// span
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch ingest DAT_ASCII_EURUSD_M1_2018.csv.gz --out eurusd.h5 --stride 15
  megabatch ingest bars.csv --out series.h5 --timeframes M1:480,H1:96 --zone +02:00
  megabatch ingest EURUSD.csv GBPUSD.csv USDJPY.csv --out majors.h5
  megabatch ingest shares/ --out shares.h5 --timeframes D1:60 --target log_return --horizon 5 --on-error skip
  megabatch ingest --bid usdjpy-bid.csv --ask usdjpy-ask.csv --out usdjpy.h5 --on-error repair")]
pub(crate) struct Args {
    #[command(flatten)]
    recipe: RecipeArgs,
    /// The series file to write
    #[arg(long)]
    out: PathBuf,
}

/// What decides what a series file holds.
#[derive(clap::Args)]
struct RecipeArgs {
    /// Files of bars, in any order, or folders of them; .gz is read as it is. Files of several
    /// symbols become several instruments
    #[arg(required_unless_present = "bid")]
    bars: Vec<PathBuf>,
    /// Files of bars of the bid, to be joined with those of the ask to their mean and a spread
    #[arg(long, requires = "ask", conflicts_with = "bars", num_args = 1..)]
    bid: Vec<PathBuf>,
    /// Files of bars of the ask
    #[arg(long, requires = "bid", num_args = 1..)]
    ask: Vec<PathBuf>,
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
    #[arg(long, value_enum, default_value_t = StampArg::Open)]
    time: StampArg,
    /// Zone of the timestamps: UTC, +02:00, America/New_York, new-york+7 or london-5; if not given,
    /// UTC for ISO timestamps, and for others found from the weekly closes
    #[arg(long, allow_hyphen_values = true)]
    zone: Option<Zone>,
    /// Timeframe of the bars; found from their spacing if not given
    #[arg(long)]
    base: Option<Timeframe>,
    /// Prices as they were quoted, or adjusted for splits and dividends by the file's adjusted
    /// close
    #[arg(long, value_enum, default_value_t = QuotesArg::Auto)]
    prices: QuotesArg,
    /// What happens to rows that cannot be used as they stand: fail, skip (drop and count), or
    /// repair (put right what can be put right without inventing anything, drop the rest). Of
    /// several instruments, one that cannot be used at all is left out and named by skip and repair
    #[arg(long, default_value_t = OnError::Fail)]
    on_error: OnError,
    /// Which of several rows of one time stays, where the zone's daylight saving does not tell them
    /// apart
    #[arg(long, value_enum, default_value_t = RepeatedArg::Refuse)]
    repeats: RepeatedArg,
    /// Which bars of several instruments are read; an instrument is listed from its first bar on,
    /// until it has had none for four weeks
    #[arg(long, value_enum, default_value_t = CalendarArg::All)]
    calendar: CalendarArg,
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
    #[arg(long, value_enum, default_value_t = WeekendRuleArg::Span)]
    weekends: WeekendRuleArg,
    /// How features are scaled: robust (median, interquartile range), standard (mean, deviation) or
    /// none
    #[arg(long, default_value = "robust")]
    scaling: Scaling,
    /// Share of the samples, the earliest, on which the scaling is fitted: the first number of
    /// data.split
    #[arg(long, default_value_t = 0.7)]
    train_fraction: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum StampArg {
    /// The bar's beginning
    Open,
    /// The bar's end
    Close,
}

#[derive(Clone, Copy, ValueEnum)]
enum QuotesArg {
    /// Adjusted where the file has an adjusted close, as quoted otherwise
    Auto,
    /// As they were quoted
    Quoted,
    /// As they would have been without later splits and dividends
    Adjusted,
}

#[derive(Clone, Copy, ValueEnum)]
enum RepeatedArg {
    /// None: the second is an error, treated as --on-error says
    Refuse,
    /// The first
    First,
    /// The last
    Last,
}

#[derive(Clone, Copy, ValueEnum)]
enum WeekendRuleArg {
    /// Like any other hole
    Span,
    /// A weekend ends a segment
    Split,
}

#[derive(Clone, Copy, ValueEnum)]
enum CalendarArg {
    /// Every bar of every instrument
    All,
    /// The bars at times at which at least half of the instruments that are listed then have one
    Common,
}

impl From<StampArg> for StampedAt {
    fn from(stamp: StampArg) -> Self {
        match stamp {
            StampArg::Open => StampedAt::Open,
            StampArg::Close => StampedAt::Close,
        }
    }
}

impl From<QuotesArg> for Prices {
    fn from(quotes: QuotesArg) -> Self {
        match quotes {
            QuotesArg::Auto => Prices::AdjustedIfGiven,
            QuotesArg::Quoted => Prices::AsQuoted,
            QuotesArg::Adjusted => Prices::Adjusted,
        }
    }
}

impl From<RepeatedArg> for Repeats {
    fn from(repeated: RepeatedArg) -> Self {
        match repeated {
            RepeatedArg::Refuse => Repeats::Refuse,
            RepeatedArg::First => Repeats::First,
            RepeatedArg::Last => Repeats::Last,
        }
    }
}

impl From<WeekendRuleArg> for Weekends {
    fn from(rule: WeekendRuleArg) -> Self {
        match rule {
            WeekendRuleArg::Span => Weekends::Spanned,
            WeekendRuleArg::Split => Weekends::NotSpanned,
        }
    }
}

impl From<CalendarArg> for Calendar {
    fn from(calendar: CalendarArg) -> Self {
        match calendar {
            CalendarArg::All => Calendar::All,
            CalendarArg::Common => Calendar::Common,
        }
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
            base: self.base,
            prices: self.prices.into(),
            on_error: self.on_error,
            repeats: self.repeats.into(),
            calendar: self.calendar.into(),
            timeframes: self.timeframes.clone(),
            features: self.features.clone(),
            horizon: self.horizon,
            target: self.target,
            stride: self.stride,
            longest_hole: self.longest_hole,
            weekends: self.weekends.into(),
            scaling: self.scaling,
            train_fraction: self.train_fraction,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    Ok(ingest(&args.recipe.recipe(), &args.out)?.into())
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
