use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::row_error::OnError;
use crate::error::{Error, Result};
use crate::parse::format_name::FormatName;
use crate::parse::symbol::symbol_among;
use crate::parse::symbol_pattern::SymbolPattern;
use crate::time::date_order::DateOrder;
use crate::time::timeframe::Timeframe;
use crate::time::zone::Zone;

/// Options of reading files. By default everything is inferred from their content.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The format; recognised when `None`.
    pub format: Option<FormatName>,
    /// The order of day and month in dates with the year last; when `None`, the one in which all
    /// dates of a file can be read.
    pub date_order: Option<DateOrder>,
    /// The clock of timestamps without offset. When `None`: the zone that the header names; UTC for
    /// ISO timestamps; for the other formats the clock on which the weeks close on Friday at 17:00
    /// in New York. An offset or a zone in the rows always counts.
    pub zone: Option<Zone>,
    /// The clock of timestamps without offset where neither `zone` nor the file states one, such as
    /// that of the bars before.
    pub fallback_zone: Option<Zone>,
    /// The clock of days and weeks without offset, where none of the above is known: that of the
    /// shorter bars beside which they stand.
    pub day_zone: Option<Zone>,
    /// The clocks by which files of the same source were read before, by format. That of a format
    /// stays where no known clock fits the ends of the weeks.
    pub known_zones: BTreeMap<FormatName, Zone>,
    /// End of the bar that is stamped.
    pub stamped_at: StampedAt,
    /// The timeframe of the bars; the commonest spacing when `None`.
    pub base: Option<Timeframe>,
    /// Which prices are read.
    pub prices: Prices,
    /// Treatment of rows that cannot be used as they stand.
    pub on_error: OnError,
    /// Treatment of two different rows of one time that the zone cannot tell apart.
    pub repeats: Repeats,
    /// Treatment of files of one symbol that cover the same time.
    pub overlaps: Overlaps,
    /// The symbol; inferred from the files' names when `None`.
    pub symbol: Option<String>,
    /// Symbols of a series whose files these are. `EURUSD.r` among them is that of a file whose
    /// name begins so and would stand for EURUSD, if EURUSD is none of them.
    pub known_symbols: Vec<String>,
    /// The symbols whose rows are read of files that have rows of others too, where none is stated.
    pub file_symbols: BTreeMap<PathBuf, Vec<String>>,
    /// Pattern of the symbol in the files' names.
    ///
    /// When `None`, the symbol is the first part of a name that starts with a currency pair; or
    /// else
    /// the part between `DA-` and `-T-` or after `daily_adjusted_` or `daily_` (daily shares from
    /// Alpha Vantage); or else the first part that is a pair of a coin; or else the whole name
    /// without its endings and without the words for a side, a timeframe and a vendor.
    /// `DAT_ASCII_EURUSD_M1_2018.csv.gz` and `EURUSD5.csv` are EURUSD, `DA-BRK.B-T-2021-04-21.csv`
    /// is BRK.B, `Bitstamp_BTCUSD_1h.csv` is BTCUSD, `AAPL_M15.csv` is AAPL.
    pub symbol_pattern: Option<SymbolPattern>,
    /// Further columns of numbers that are read, by their exact names in the header; one may be
    /// there several times. They become [`Bars::columns`](crate::Bars::columns) in this order.
    ///
    /// A field may say that there is no value (empty, `NaN`, `null`, `-`). Rows at the start of a
    /// file in which a column has none yet are dropped, whatever [`OnError`] says: its values begin
    /// later. A later row without a value cannot be used as it stands.
    pub columns: Vec<String>,
    /// Columns of numbers that are read as well and may be without a value, NaN in the bars. They
    /// come after the others.
    pub target_columns: Vec<String>,
    /// Column of times, by the clock of the rows: that of the bar which decides the targets of its
    /// row. It comes last in the bars, as the close time of that bar in nanoseconds since 1970 UTC,
    /// rounded up to whole seconds, which are exact in 64 bits; NaN where a field is empty.
    pub label_end_column: Option<String>,
    /// Longer timeframes whose files are read too where a symbol has files of shorter bars:
    /// [`SpooledRecording::own`](crate::SpooledRecording::own). Files of others are compared.
    pub own_bars: Vec<Timeframe>,
    /// Timeframe of the shortest bars beside which these stand, if there are others. Days and weeks
    /// open at midnight UTC before the date that their time has on the clock of their exchange.
    /// Beside shorter bars that is no earlier than their time: they may have trades until then.
    pub beside: Option<Timeframe>,
}

impl ReadOptions {
    /// All further columns.
    pub(crate) fn own_columns(&self) -> Vec<WantedColumn> {
        let numbers = self.columns.iter().chain(&self.target_columns).map(|name| (name, false));
        let all = numbers.chain(self.label_end_column.iter().map(|name| (name, true)));
        all.map(|(name, is_time)| WantedColumn { name: name.clone(), is_time }).collect()
    }

    /// True if the numbers or times in a column of this name are read.
    pub(crate) fn wants(&self, name: &[u8]) -> bool {
        self.own_columns().iter().any(|wanted| wanted.name.as_bytes() == name)
    }

    /// Number of all further columns.
    pub fn all_columns(&self) -> usize {
        self.columns.len() + self.targets()
    }

    /// The options without columns of targets: those of bars that come are not known.
    #[must_use]
    pub fn without_targets(self) -> Self {
        ReadOptions { target_columns: Vec::new(), label_end_column: None, ..self }
    }

    /// Number of further columns that may be without a value.
    pub(crate) fn targets(&self) -> usize {
        self.target_columns.len() + usize::from(self.label_end_column.is_some())
    }

    /// The stated zone, or the one of files that state none.
    pub(crate) fn zone_or_fallback(&self) -> Option<&Zone> {
        self.zone.as_ref().or(self.fallback_zone.as_ref())
    }

    /// The options for bars of `base`, with the clock of days for days and longer bars.
    pub(crate) fn for_bars(&self, base: Timeframe) -> Self {
        let days = self.day_zone.clone().filter(|_| base >= Timeframe::D1);
        ReadOptions { fallback_zone: self.fallback_zone.clone().or(days), ..self.clone() }
    }

    /// True if bars of `base` stand beside shorter ones.
    pub(crate) fn has_shorter(&self, base: Timeframe) -> bool {
        self.beside.is_some_and(|shortest| shortest < base)
    }

    /// The symbol whose bars a file holds: the one that is stated, or what its name stands for.
    ///
    /// # Errors
    /// [`Error::UnlikeName`] for a name that does not fit the pattern.
    pub fn symbol_of(&self, path: &Path) -> Result<String> {
        match (&self.symbol, &self.symbol_pattern) {
            (Some(symbol), _) => Ok(symbol.clone()),
            (None, None) => Ok(symbol_among(path, &self.known_symbols)),
            (None, Some(pattern)) => pattern
                .symbol_of(path)
                .ok_or_else(|| Error::UnlikeName { path: path.to_owned(), pattern: pattern.to_string() }),
        }
    }
}

/// A further column of the files.
#[derive(Clone, Debug)]
pub(crate) struct WantedColumn {
    /// Name in the header.
    pub(crate) name: String,
    /// True for times, false for numbers.
    pub(crate) is_time: bool,
}

/// End of the bar that a timestamp stands for. Every known format stamps the open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StampedAt {
    /// The bar opens at its timestamp.
    #[default]
    Open,
    /// The bar closes at its timestamp. Bars of days and longer are dated by their day all the
    /// same.
    Close,
}

impl StampedAt {
    /// The time from the open of a bar of `base` to its timestamp. A date is a midnight before its
    /// day, and its bar closes after it.
    pub(crate) fn delay_ns(self, base: Timeframe) -> i64 {
        match self {
            StampedAt::Close if base < Timeframe::D1 => base.duration_ns(),
            StampedAt::Open | StampedAt::Close => 0,
        }
    }
}

/// Which prices are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prices {
    /// Adjusted where the file has an adjusted close, and as quoted otherwise.
    #[default]
    AdjustedIfGiven,
    /// Prices as quoted.
    AsQuoted,
    /// Open, high, low and close times adjusted close / close: as they would have been without
    /// later splits and dividends. The vendor's multipliers are used (Yahoo's help, "What is the
    /// adjusted close?": those of splits and dividends by the standards of the Center for Research
    /// in Security Prices). The volume stays as it is. Adjusted prices are known only after those
    /// splits and dividends: returns are right, price levels are not.
    Adjusted,
}

/// Treatment of two different rows of one time that the zone cannot tell apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeats {
    /// The second is an error: the reader stops there, or drops it, as [`OnError`] says.
    #[default]
    Refuse,
    /// The first stays and the others are counted as dropped, whatever [`OnError`] says.
    First,
    /// The last stays and the others are counted as dropped, whatever [`OnError`] says: for files
    /// to which corrected rows were added.
    Last,
}

/// Treatment of files of one symbol and timeframe that cover the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlaps {
    /// They are refused.
    #[default]
    Refuse,
    /// A bar that several of them have is taken from the one that is named first, and the others
    /// count it as a copy; they are refused where it is not the same. Of a file's last bar, which
    /// may be unfinished, another file may have more: that is taken.
    EqualOnce,
}
