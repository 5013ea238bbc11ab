//! Columns of a file of bars.

/// Columns by role, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BarColumns {
    /// Date and time, or the date alone.
    pub(crate) time: usize,
    /// The time of day, where it stands apart from the date.
    pub(crate) clock: Option<usize>,
    /// Open.
    pub(crate) open: usize,
    /// High.
    pub(crate) high: usize,
    /// Low.
    pub(crate) low: usize,
    /// Close.
    pub(crate) close: usize,
    /// Close adjusted for splits and dividends.
    pub(crate) adjusted: Option<usize>,
    /// New shares for an old one.
    pub(crate) split: Option<usize>,
    /// Dividend of a share.
    pub(crate) dividend: Option<usize>,
    /// Volume; none means zero.
    pub(crate) volume: Option<usize>,
    /// Ask less bid.
    pub(crate) spread: Option<usize>,
    /// The symbol of each row.
    pub(crate) symbol: Option<usize>,
}

impl BarColumns {
    /// The first column for every role that has to be.
    pub(crate) const NONE: BarColumns = BarColumns {
        time: 0,
        clock: None,
        open: 0,
        high: 0,
        low: 0,
        close: 0,
        adjusted: None,
        split: None,
        dividend: None,
        volume: None,
        spread: None,
        symbol: None,
    };

    /// Open, high, low and close.
    pub(crate) fn prices(&self) -> [usize; 4] {
        [self.open, self.high, self.low, self.close]
    }

    /// The header line that names these columns.
    pub(crate) fn header(&self, delimiter: char) -> String {
        let named = [
            (Some(self.time), "date"),
            (self.clock, "time"),
            (Some(self.open), "open"),
            (Some(self.high), "high"),
            (Some(self.low), "low"),
            (Some(self.close), "close"),
            (self.adjusted, "adj close"),
            (self.split, "stock splits"),
            (self.dividend, "dividends"),
            (self.volume, "volume"),
            (self.spread, "spread"),
            (self.symbol, "symbol"),
        ];
        let last = named.iter().filter_map(|(column, _)| *column).max().unwrap_or_default();
        let name =
            |place: usize| named.iter().find(|(column, _)| *column == Some(place)).map_or("other", |(_, name)| name);
        (0..=last).map(name).collect::<Vec<_>>().join(&delimiter.to_string())
    }
}
