//! Flat bars without volume, in which vendors write the time that a market is closed.
//!
//! ```text
//! a run: flat bars without volume, of one price, each a bar's length after the one before
//! its bars after the first hour are fillers and dropped; after half a day where no bar has volume
//! daily bars: those of Saturdays and Sundays, at the close before them, are fillers
//! ```
//!
//! A run's first hour stays, as nothing tells it from quiet trade while it lasts. What is dropped
//! does not depend on later bars, so that appended bars change nothing before them. The whole run
//! is no evidence for a clock: it hides the end of the week.

use std::ops::Range;

use crate::clean::sessions::is_at_a_weekend;
use crate::error::Result;
use crate::error::row_error::RowError;
use crate::parse::bar_file::BarFile;
use crate::parse::quiet::QuietTimes;
use crate::parse::row::BarRow;
use crate::parse::row_store::RowStore;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, HOUR_NS, RowTime};

/// Time after which a run is of a closed market, where other bars have volume, and where none has.
const QUIET_NS: i64 = HOUR_NS;
const QUIET_WITHOUT_VOLUME_NS: i64 = 12 * HOUR_NS;

/// A run of flat bars without volume.
#[derive(Debug)]
struct Run {
    first_ns: i64,
    last_ns: i64,
    price: f64,
    bars: i64,
    /// Bars of it that were dropped.
    fillers: i64,
}

/// The run of flat bars without volume with which bars end that were known before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownRun {
    /// Open time of the last of them.
    pub(crate) open_time: i64,
    pub(crate) close: f64,
    /// Their number; 0 if the last known bar is not flat or has a volume.
    pub(crate) bars: i64,
}

/// Finder of fillers in rows as they come.
#[derive(Debug)]
pub(crate) struct FillerFinder {
    base_ns: i64,
    are_days: bool,
    run: Option<Run>,
    last_close: Option<f64>,
    quiet: Vec<Range<i64>>,
}

impl FillerFinder {
    pub(crate) fn new(base: Timeframe) -> Self {
        FillerFinder {
            base_ns: base.duration_ns(),
            are_days: base >= Timeframe::D1,
            run: None,
            last_close: None,
            quiet: Vec::new(),
        }
    }

    /// Goes on with the `known` run, behind which so many `fillers` were dropped, before the first
    /// row, which is stamped at `stamp` and opens at `open_time`. The row may be one of the run.
    pub(crate) fn go_on(&mut self, known: KnownRun, fillers: i64, stamp: RowTime, open_time: i64) {
        let step_ns = open_time - known.open_time - fillers * self.base_ns;
        let again = if step_ns > 0 { 0 } else { 1 - step_ns / self.base_ns };
        if again == 0 {
            self.last_close = Some(known.close);
        }
        let bars = known.bars + fillers - again;
        if known.bars > 0 && bars > 0 && step_ns <= self.base_ns {
            let last_ns = stamp.ns() - self.base_ns;
            self.run = Some(Run { first_ns: last_ns, last_ns, price: known.close, bars, fillers: 0 });
        }
    }

    /// Takes the next row; true if it is a filler. `have_volume` is true if some bar has volume.
    pub(crate) fn add(&mut self, row: &BarRow, have_volume: bool) -> bool {
        let quiet_ns = quiet_ns(have_volume);
        let before = self.last_close.replace(row.close);
        if !row.is_quiet() {
            self.end_run();
            return false;
        }
        if self.are_days {
            return before == Some(row.close) && is_weekend_bar(row.stamp);
        }
        let stamp_ns = row.stamp.ns();
        match &mut self.run {
            Some(run) if run.price == row.close && stamp_ns - run.last_ns == self.base_ns => {
                run.last_ns = stamp_ns;
                let is_filler = run.bars * self.base_ns >= quiet_ns;
                run.bars += 1;
                run.fillers += i64::from(is_filler);
                is_filler
            }
            _ => {
                self.end_run();
                let (first_ns, price) = (stamp_ns, row.close);
                self.run = Some(Run { first_ns, last_ns: stamp_ns, price, bars: 1, fillers: 0 });
                false
            }
        }
    }

    /// Takes rows none of which is quiet.
    fn pass_over(&mut self, rows: &RowStore) {
        self.end_run();
        self.last_close = rows.len().checked_sub(1).map(|last| rows.get(last).close).or(self.last_close);
    }

    /// Times of the fillers so far, and of the run that goes on. Each is given once.
    fn quiet_times(&mut self) -> Vec<Range<i64>> {
        let mut quiet = std::mem::take(&mut self.quiet);
        quiet.extend(self.run.as_ref().filter(|run| run.fillers > 0).map(|run| run.first_ns..run.last_ns + 1));
        quiet
    }

    fn end_run(&mut self) {
        if let Some(run) = self.run.take().filter(|run| run.fillers > 0) {
            self.quiet.push(run.first_ns..run.last_ns + 1);
        }
    }
}

/// Time after which a run is of a closed market. `have_volume` is true if some bar has volume.
fn quiet_ns(have_volume: bool) -> i64 {
    if have_volume { QUIET_NS } else { QUIET_WITHOUT_VOLUME_NS }
}

/// True for a daily bar of a Saturday or Sunday, whichever midnight near its day it is stamped at.
fn is_weekend_bar(stamp: RowTime) -> bool {
    is_at_a_weekend(stamp.ns().saturating_add(DAY_NS / 2).div_euclid(DAY_NS))
}

/// Drops the fillers of a symbol's files of `base` bars, and counts them. A run goes on in the next
/// file. `have_volume` is true if some bar of the symbol has volume. Returns the number of fillers
/// with which the last file ends.
pub(crate) fn drop_fillers(sources: &mut [BarFile], base: Timeframe, have_volume: bool) -> Result<i64> {
    let mut in_order: Vec<&mut BarFile> = sources.iter_mut().collect();
    in_order.sort_by_key(|source| source.rows.stamps().next().map(RowTime::ns));
    let mut finder = FillerFinder::new(base);
    in_order.into_iter().try_for_each(|source| drop_from(source, &mut finder, have_volume))?;
    Ok(finder.run.map_or(0, |run| run.fillers))
}

/// Drops the fillers of the next file.
fn drop_from(source: &mut BarFile, finder: &mut FillerFinder, have_volume: bool) -> Result<()> {
    if source.quiet_rows == 0 {
        finder.pass_over(&source.rows);
        return Ok(());
    }
    let mut dropped: Vec<Range<usize>> = Vec::new();
    for (index, row) in source.rows.iter().enumerate() {
        if finder.add(&row, have_volume) {
            source.ledger.drop_row(row.line, RowError::Filler);
            match dropped.last_mut().filter(|range| range.end == index) {
                Some(range) => range.end += 1,
                None => dropped.push(index..index + 1),
            }
        }
    }
    let quiet = finder.quiet_times();
    let count: usize = dropped.iter().map(ExactSizeIterator::len).sum();
    if count > 0 {
        source.rows = source.rows.without(&dropped)?;
        source.quiet = QuietTimes::new(quiet);
        source.warnings.push(format!(
            "{count} flat bars without volume of {} are not used: they fill time at which the market is closed",
            source.path.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of the fillers among rows of stamp, price and volume.
    fn fillers(base: Timeframe, have_volume: bool, rows: &[(i64, f64, f64)]) -> Vec<usize> {
        let mut finder = FillerFinder::new(base);
        let is_filler = |&(bars, price, volume): &(i64, f64, f64)| {
            let stamp = RowTime::Wall(bars * base.duration_ns());
            finder.add(&BarRow { volume, ..BarRow::flat(stamp, price, 1) }, have_volume)
        };
        let found: Vec<bool> = rows.iter().map(is_filler).collect();
        (0..rows.len()).filter(|&place| found[place]).collect()
    }

    #[test]
    fn a_run_is_of_a_closed_market_after_its_first_hour() {
        let run = |bars: std::ops::Range<i64>, price: f64, volume: f64| bars.map(move |bar| (bar, price, volume));
        let hours: Vec<_> = run(0..20, 1.0, 0.0).collect();
        assert_eq!(fillers(Timeframe::H1, true, &hours), (1..20).collect::<Vec<_>>());
        assert_eq!(fillers(Timeframe::H1, false, &hours), (12..20).collect::<Vec<_>>());
        assert_eq!(fillers(Timeframe::M15, true, &hours), (4..20).collect::<Vec<_>>());
        assert_eq!(fillers(Timeframe::M1, true, &hours), [] as [usize; 0]);
        for broken in [(7, 1.0, 3.0), (7, 2.0, 0.0), (9, 1.0, 0.0)] {
            let rows: Vec<_> = run(0..7, 1.0, 0.0).chain([broken]).chain(run(10..13, 1.0, 0.0)).collect();
            assert_eq!(fillers(Timeframe::M15, true, &rows), [4, 5, 6], "{broken:?}");
        }
        // 1970-01-03 was a Saturday.
        let days = [(0, 1.0, 0.0), (1, 1.0, 5.0), (2, 1.0, 0.0), (3, 1.0, 0.0), (4, 1.0, 0.0), (9, 1.5, 0.0)];
        assert_eq!(fillers(Timeframe::D1, true, &days), [2, 3]);
    }
}
