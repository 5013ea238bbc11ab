use crate::date_order::DateOrder;
use crate::format_name::FormatName;
use crate::timeframe::Timeframe;
use crate::trouble::OnError;
use crate::zone::Zone;

/// How files are read. By default everything is told from their content.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The format; recognised when `None`.
    pub format: Option<FormatName>,
    /// The order of day and month in dates with the year last; when `None`, the one in which all dates of a file can be
    /// read.
    pub date_order: Option<DateOrder>,
    /// The clock of timestamps without offset. When `None`: UTC for ISO timestamps; for the other formats the clock on
    /// which the weeks close on Friday at 17:00 in New York. An offset in the file always counts.
    pub zone: Option<Zone>,
    /// Which end of the bar is stamped.
    pub stamped_at: StampedAt,
    /// The timeframe of the bars; the commonest spacing when `None`.
    pub base: Option<Timeframe>,
    /// Which prices are read.
    pub prices: Prices,
    /// What to do with rows that cannot be used as they stand.
    pub on_error: OnError,
    /// What becomes of two different rows of one time that the zone does not tell apart.
    pub repeats: Repeats,
    /// The symbol; told from the files' names when `None`.
    pub symbol: Option<String>,
}

/// Which end of its bar a timestamp stands for. Every known format stamps the open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StampedAt {
    /// The bar opens at its timestamp.
    #[default]
    Open,
    /// The bar closes at its timestamp.
    Close,
}

/// Which prices are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prices {
    /// Those that were quoted.
    #[default]
    AsQuoted,
    /// Open, high, low and close times adjusted close / close: as they would have been without later splits and
    /// dividends. The volume stays as it is. Adjusted prices are known only after those splits and dividends: they
    /// tell returns rightly, and levels not.
    Adjusted,
}

/// What becomes of two different rows of one time that the zone does not tell apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeats {
    /// The second is an error: the reader stops there, or drops it, as [`OnError`] says.
    #[default]
    Refuse,
    /// The first stays and the others are counted as dropped, whatever [`OnError`] says.
    First,
    /// The last stays and the others are counted as dropped, whatever [`OnError`] says: for files to which corrected
    /// rows were added.
    Last,
}
