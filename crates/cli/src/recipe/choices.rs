//! Values of a recipe's arguments that are one of a few words, as the library knows them.

use clap::ValueEnum;
use megabatch_bars::{Prices, Repeats, StampedAt, Weekends};

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Stamp {
    /// The bar's beginning
    Open,
    /// The bar's end
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Quotes {
    /// Adjusted where the file has an adjusted close, as quoted otherwise
    Auto,
    /// As they were quoted
    Quoted,
    /// As they would have been without later splits and dividends
    Adjusted,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Repeated {
    /// None: the second is an error, treated as --on-error says
    Refuse,
    /// The first
    First,
    /// The last
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum WeekendRule {
    /// Like any other hole
    Span,
    /// A weekend ends a segment
    Split,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Calendar {
    /// Every bar of every instrument
    All,
    /// The bars at times at which at least half of the instruments that are listed then have one
    Common,
}

impl From<Stamp> for StampedAt {
    fn from(stamp: Stamp) -> Self {
        match stamp {
            Stamp::Open => StampedAt::Open,
            Stamp::Close => StampedAt::Close,
        }
    }
}

impl From<Quotes> for Prices {
    fn from(quotes: Quotes) -> Self {
        match quotes {
            Quotes::Auto => Prices::AdjustedIfGiven,
            Quotes::Quoted => Prices::AsQuoted,
            Quotes::Adjusted => Prices::Adjusted,
        }
    }
}

impl From<Repeated> for Repeats {
    fn from(repeated: Repeated) -> Self {
        match repeated {
            Repeated::Refuse => Repeats::Refuse,
            Repeated::First => Repeats::First,
            Repeated::Last => Repeats::Last,
        }
    }
}

impl From<WeekendRule> for Weekends {
    fn from(rule: WeekendRule) -> Self {
        match rule {
            WeekendRule::Span => Weekends::Spanned,
            WeekendRule::Split => Weekends::NotSpanned,
        }
    }
}
