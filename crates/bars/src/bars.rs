use crate::time::bin_clock::BinClock;
use crate::time::timeframe::Timeframe;

/// Bars of one timeframe in order of time, one vector a column; all of one length.
///
/// Open times increase strictly; there may be gaps between them. A bar is known at its close time
/// and not before.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Time that each bar covers.
    pub timeframe: Timeframe,
    /// Clock of bars that were made from shorter ones; bars of files have UTC, and all last the
    /// duration of their timeframe.
    pub bins: BinClock,
    /// When each bar opens, in nanoseconds since 1970 UTC.
    pub open_time: Vec<i64>,
    /// First price.
    pub open: Vec<f64>,
    /// Highest price.
    pub high: Vec<f64>,
    /// Lowest price.
    pub low: Vec<f64>,
    /// Last price.
    pub close: Vec<f64>,
    /// Volume in the source's unit; 0 where it gives none.
    pub volume: Vec<f64>,
    /// Ask less bid at each bar's close, in units of the price; empty where the source tells none.
    pub spread: Vec<f64>,
    /// Further columns that were asked for, one vector each: see
    /// [`ReadOptions::columns`](crate::ReadOptions::columns).
    pub columns: Vec<Vec<f64>>,
}

/// One bar.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Bar {
    /// When it opens, in nanoseconds since 1970 UTC.
    pub open_time: i64,
    /// First price.
    pub open: f64,
    /// Highest price.
    pub high: f64,
    /// Lowest price.
    pub low: f64,
    /// Last price.
    pub close: f64,
    /// Volume in the source's unit.
    pub volume: f64,
    /// Ask less bid at the close, in units of the price; 0 where it is not known.
    pub spread: f64,
    /// Its values in further columns.
    pub columns: Box<[f64]>,
}

impl Bars {
    /// No bars, with room for `capacity`.
    pub fn with_capacity(timeframe: Timeframe, capacity: usize) -> Self {
        let column = || Vec::with_capacity(capacity);
        Bars {
            timeframe,
            bins: BinClock::default(),
            open_time: Vec::with_capacity(capacity),
            open: column(),
            high: column(),
            low: column(),
            close: column(),
            volume: column(),
            spread: Vec::new(),
            columns: Vec::new(),
        }
    }

    /// Number of bars.
    pub fn len(&self) -> usize {
        self.open_time.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.open_time.is_empty()
    }

    /// When bar `index` closes, in nanoseconds since 1970 UTC.
    ///
    /// # Panics
    /// When there is no such bar.
    pub fn close_time(&self, index: usize) -> i64 {
        self.close_after(self.open_time[index])
    }

    /// When the bar closes that opens at `open_time`, in nanoseconds since 1970 UTC.
    pub(crate) fn close_after(&self, open_time: i64) -> i64 {
        match self.bins.is_utc() && !self.timeframe.is_calendar_month() {
            true => open_time + self.timeframe.duration_ns(),
            false => self.bins.bin(self.timeframe, open_time).end,
        }
    }

    /// Bar `index`.
    ///
    /// # Panics
    /// When there is no such bar.
    #[inline]
    pub fn bar(&self, index: usize) -> Bar {
        Bar { columns: self.values(index), ..self.without_columns(index) }
    }

    /// Makes `bar` the bar `index`, in its memory.
    ///
    /// # Panics
    /// When there is no such bar.
    #[inline]
    pub(crate) fn copy_into(&self, index: usize, bar: &mut Bar) {
        let mut columns = std::mem::take(&mut bar.columns);
        if columns.len() != self.columns.len() {
            columns = vec![0.0; self.columns.len()].into();
        }
        for (value, column) in columns.iter_mut().zip(&self.columns) {
            *value = column[index];
        }
        *bar = Bar { columns, ..self.without_columns(index) };
    }

    #[inline]
    pub(crate) fn without_columns(&self, index: usize) -> Bar {
        Bar {
            open_time: self.open_time[index],
            open: self.open[index],
            high: self.high[index],
            low: self.low[index],
            close: self.close[index],
            volume: self.volume[index],
            spread: self.spread.get(index).copied().unwrap_or(0.0),
            columns: Box::default(),
        }
    }

    /// The further columns of bar `index`.
    #[inline]
    fn values(&self, index: usize) -> Box<[f64]> {
        // Most bars have none, and are made often.
        if self.columns.is_empty() {
            return Box::default();
        }
        self.columns.iter().map(|column| column[index]).collect()
    }

    /// Adds a bar at the end. The first one with a spread begins the column of spreads, with 0 for
    /// the bars before it.
    ///
    /// # Panics
    /// When it does not open after the last one, or has another number of columns.
    pub fn push(&mut self, bar: Bar) {
        assert!(self.open_time.last().is_none_or(|&last| last < bar.open_time), "bars are in order of time");
        if !self.spread.is_empty() || bar.spread != 0.0 {
            self.spread.resize(self.len(), 0.0);
            self.spread.push(bar.spread);
        }
        self.ensure_columns(bar.columns.len());
        self.open_time.push(bar.open_time);
        self.open.push(bar.open);
        self.high.push(bar.high);
        self.low.push(bar.low);
        self.close.push(bar.close);
        self.volume.push(bar.volume);
        for (column, value) in self.columns.iter_mut().zip(bar.columns) {
            column.push(value);
        }
    }

    /// Adds bars at the end.
    ///
    /// # Panics
    /// When the first of them does not open after the last one, or they have another number of
    /// columns.
    pub(crate) fn extend(&mut self, bars: &Bars) {
        let is_later = self.open_time.last().zip(bars.open_time.first()).is_none_or(|(last, first)| last < first);
        assert!(is_later, "bars are in order of time");
        if !(self.spread.is_empty() && bars.spread.is_empty()) {
            self.spread.resize(self.len(), 0.0);
            self.spread.extend_from_slice(&bars.spread);
            self.spread.resize(self.len() + bars.len(), 0.0);
        }
        self.ensure_columns(bars.columns.len());
        self.columns.iter_mut().zip(&bars.columns).for_each(|(column, values)| column.extend_from_slice(values));
        self.open_time.extend_from_slice(&bars.open_time);
        self.open.extend_from_slice(&bars.open);
        self.high.extend_from_slice(&bars.high);
        self.low.extend_from_slice(&bars.low);
        self.close.extend_from_slice(&bars.close);
        self.volume.extend_from_slice(&bars.volume);
    }

    /// Drops every bar from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.open_time.truncate(len);
        for column in
            [&mut self.open, &mut self.high, &mut self.low, &mut self.close, &mut self.volume, &mut self.spread]
        {
            column.truncate(len);
        }
        self.columns.iter_mut().for_each(|column| column.truncate(len));
    }

    /// Takes `count` columns from the first bar on.
    pub(crate) fn ensure_columns(&mut self, count: usize) {
        if self.is_empty() {
            self.columns.resize_with(count, Vec::new);
        }
        assert_eq!(self.columns.len(), count, "all bars have the same columns");
    }
}

impl Bar {
    /// Open, high, low and close.
    pub(crate) fn prices(&self) -> [f64; 4] {
        [self.open, self.high, self.low, self.close]
    }

    /// True if `later` may be the same bar after more trades: of the same time and open, with at
    /// least the range and the volume, and not the same in all of them. Spreads and further columns
    /// do not count.
    pub fn is_continued_by(&self, later: &Self) -> bool {
        (self.prices(), self.volume) != (later.prices(), later.volume)
            && (self.open_time, self.open) == (later.open_time, later.open)
            && self.high <= later.high
            && self.low >= later.low
            && self.volume <= later.volume
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(open_time: i64, spread: f64) -> Bar {
        Bar { open_time, open: 1.0, high: 1.0, low: 1.0, close: 1.0, volume: 0.0, spread, ..Bar::default() }
    }

    #[test]
    fn a_bar_goes_on_with_more_range_or_volume_and_the_same_open() {
        let first = Bar { open: 2.0, high: 3.0, low: 1.0, close: 2.0, volume: 4.0, ..bar(5, 0.0) };
        for (later, expected) in [
            (Bar { close: 2.5, ..first.clone() }, true),
            (Bar { high: 4.0, low: 0.5, ..first.clone() }, true),
            (Bar { volume: 5.0, ..first.clone() }, true),
            (Bar { spread: 0.5, columns: [1.0].into(), ..first.clone() }, false),
            (Bar { open_time: 6, volume: 5.0, ..first.clone() }, false),
            (Bar { open: 2.5, ..first.clone() }, false),
            (Bar { high: 2.5, ..first.clone() }, false),
            (Bar { low: 1.5, ..first.clone() }, false),
            (Bar { volume: 3.0, ..first.clone() }, false),
        ] {
            assert_eq!(first.is_continued_by(&later), expected, "{later:?}");
        }
    }

    #[test]
    fn spreads_begin_with_the_first_that_is_known() {
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        for (open_time, spread, column) in [(0, 0.0, vec![]), (1, 0.5, vec![0.0, 0.5]), (2, 0.0, vec![0.0, 0.5, 0.0])] {
            bars.push(bar(open_time, spread));
            assert_eq!((&bars.spread, bars.bar(bars.len() - 1)), (&column, bar(open_time, spread)));
        }
        bars.truncate(2);
        assert_eq!((bars.len(), &bars.spread), (2, &vec![0.0, 0.5]));
    }
}
