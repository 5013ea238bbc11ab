//! Files of one symbol that may cover the same time, joined into one.
//!
//! ```text
//! next bars of all files, in a heap by time, then by the order in which the files are named
//! the first bar of a time is taken; the others of that time must be the same, and count a copy
//! a target that an earlier file did not know yet is taken from the one that does
//! the last bar of a file may be unfinished: of files that end with it, the one with more is taken
//! own bars with which a file ends may differ: that of a file that goes on after it is taken
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::bars::Bar;
use crate::clean::grid::settle_off_grid;
use crate::clean::midnights::FileMidnights;
use crate::clean::order::{RowClock, in_order};
use crate::clean::sessions::RowDays;
use crate::clean::spread;
use crate::error::bar_difference::BarDifference;
use crate::error::row_error::RowError;
use crate::error::{Error, Result};
use crate::parse::bar_file::BarFile;
use crate::parse::ledger::RowCount;
use crate::parse::options::ReadOptions;
use crate::parse::symbol_rows::SymbolRows;
use crate::place::{BarCursor, ReadPlace, StoredBars};
use crate::read::compared::is_same;
use crate::read::summary::FileSummary;
use crate::read::{FileBars, JoinedFiles};
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::display_utc;
use crate::time::zone::Zone;

/// Way from a bar back to its line: its file is read once more.
pub(super) struct RowLines<'a> {
    /// Clock of each file.
    pub(super) zones: Vec<Zone>,
    /// Midnights of files of days.
    pub(super) midnights: FileMidnights,
    pub(super) base: Timeframe,
    pub(super) stamp_delay_ns: i64,
    /// Days of the rows of each file.
    pub(super) days: Vec<RowDays>,
    pub(super) options: &'a ReadOptions,
    pub(super) symbols: &'a SymbolRows,
    pub(super) place: &'a ReadPlace<'a>,
}

impl RowLines<'_> {
    /// Line of the bar of the `file`-th file that opens at `open_time`.
    fn line_of(&self, file: usize, summary: &FileSummary, open_time: i64) -> Result<u64> {
        let mut source = BarFile::read(&summary.path, self.options, self.symbols, self.place)?;
        settle_off_grid(&mut source, self.base)?;
        if let Some(midnights) = self.midnights.for_file(file) {
            midnights.settle(&mut source, self.options.zone_or_fallback())?;
        }
        spread::in_units_of_the_price(&mut source)?;
        let (zone, days, repeats) = (&self.zones[file], self.days[file], self.options.repeats);
        let RowLines { base, stamp_delay_ns, .. } = *self;
        let beside_shorter = self.options.has_shorter(base);
        let clock = RowClock { zone, base, stamp_delay_ns, repeats, days, beside_shorter };
        let mut line = 0;
        in_order(&source.rows, clock, &mut source.ledger, self.place.rows(), |row, bar| {
            if bar.open_time == open_time {
                line = row.line;
            }
            Ok(())
        })?;
        Ok(line)
    }
}

/// Bars of one file that an earlier one has.
#[derive(Clone, Copy, Default)]
struct Copies {
    rows: u64,
    /// Open time of the first.
    first: i64,
}

/// Joins files in the order in which they are named. Own bars with which one of them ends may
/// differ.
pub(super) fn join_equal(pieces: Vec<FileBars>, are_own: bool, lines: &RowLines<'_>) -> Result<JoinedFiles> {
    let mut begins = Vec::with_capacity(pieces.len());
    for piece in &pieces {
        begins.push(piece.bars.first_open_time()?);
    }
    let next_of = |(file, begin): (usize, &Option<i64>)| Some(Reverse((begin.as_ref().copied()?, file)));
    let mut next: BinaryHeap<Reverse<(i64, usize)>> = begins.iter().enumerate().filter_map(next_of).collect();
    let mut cursors: Vec<Option<BarCursor<&StoredBars>>> = pieces.iter().map(|_| None).collect();
    let mut copies = vec![Copies::default(); pieces.len()];
    let mut whole = lines.place.sink(lines.base, lines.options.all_columns())?;
    let ends_with = |file: usize, time: i64| pieces[file].summary.last_open_time == Some(time);
    let mut unfinished: Vec<(usize, i64)> = Vec::new();
    let mut taken: Option<(usize, Bar)> = None;
    // True if a file goes on after the bar that is taken.
    let mut is_finished = false;
    let mut last_times = Vec::new();
    while let Some(mut first) = next.peek_mut() {
        let Reverse((time, file)) = *first;
        let cursor = cursors[file].get_or_insert_with(|| BarCursor::new(&pieces[file].bars));
        let bar = cursor.next()?.expect("a file in the heap has a next bar");
        match cursor.peek_open_time()? {
            Some(following) => *first = Reverse((following, file)),
            None => {
                cursors[file] = None;
                PeekMut::pop(first);
            }
        }
        let Some((earlier, expected)) = taken.as_mut().filter(|(_, taken)| taken.open_time == time) else {
            if let Some((_, before)) = taken.replace((file, bar)) {
                last_times.extend((!is_finished).then_some(before.open_time));
                whole.push(before)?;
            }
            is_finished = !ends_with(file, time);
            continue;
        };
        let is_equal = is_equal(&bar, expected) && take_targets(expected, &bar, lines.options.targets());
        let mut copied = file;
        let is_copy = is_equal || (are_own && ends_with(file, time));
        if !is_copy && are_own && !is_finished {
            // The files before end with the bar, and this one has more.
            copied = std::mem::replace(earlier, file);
            *expected = bar;
        } else if !is_copy {
            if !is_finished && expected.is_continued_by(&bar) {
                unfinished.push((*earlier, time));
                (*earlier, *expected) = (file, bar);
                is_finished = !ends_with(file, time);
                continue;
            }
            if ends_with(file, time) && bar.is_continued_by(expected) {
                unfinished.push((file, time));
                continue;
            }
            let (summary, other) = (&pieces[file].summary, pieces[*earlier].summary.path.clone());
            let line = lines.line_of(file, summary, time)?;
            let difference = Box::new(difference(&bar, expected));
            return Err(Error::UnlikeBars {
                path: summary.path.clone(),
                line,
                time: display_utc(time),
                other,
                difference,
            });
        }
        is_finished |= !ends_with(file, time);
        let copies = &mut copies[copied];
        if copies.rows == 0 {
            copies.first = time;
        }
        copies.rows += 1;
    }
    if let Some((_, last)) = taken {
        last_times.extend((!is_finished).then_some(last.open_time));
        whole.push(last)?;
    }
    drop(cursors);
    let mut in_time: Vec<usize> = (0..pieces.len()).collect();
    in_time.sort_by_key(|&file| begins[file]);
    let mut summaries: Vec<Option<FileSummary>> = Vec::with_capacity(pieces.len());
    for (file, piece) in pieces.into_iter().enumerate() {
        let mut summary = piece.summary;
        if copies[file].rows > 0 {
            let first_line = lines.line_of(file, &summary, copies[file].first)?;
            count_dropped(&mut summary, RowCount { kind: RowError::Copy, rows: copies[file].rows, first_line });
        }
        if let Some(&(_, time)) = unfinished.iter().find(|(own, _)| *own == file) {
            let first_line = lines.line_of(file, &summary, time)?;
            count_dropped(&mut summary, RowCount { kind: RowError::Unfinished, rows: 1, first_line });
        }
        summaries.push(Some(summary));
    }
    let files = in_time.into_iter().filter_map(|file| summaries[file].take()).collect();
    Ok(JoinedFiles { bars: whole.finish()?, files, last_times })
}

/// Takes the last `count` columns, the targets, that only `other` knows. False where both know
/// other values, or other columns differ.
fn take_targets(bar: &mut Bar, other: &Bar, count: usize) -> bool {
    let targets = bar.columns.len() - count;
    bar.columns.iter_mut().zip(&other.columns).enumerate().all(|(place, (own, other))| {
        if place >= targets && own.is_nan() {
            *own = *other;
        }
        own.to_bits() == other.to_bits() || (place >= targets && other.is_nan())
    })
}

fn is_equal(one: &Bar, other: &Bar) -> bool {
    let numbers = |bar: &Bar| [bar.volume, bar.spread].map(f64::to_bits);
    is_same(one.prices(), other.prices()) && numbers(one) == numbers(other)
}

/// The first field of `found`, of the file that is named later, that is another one in `first`.
fn difference(found: &Bar, first: &Bar) -> BarDifference {
    let number = |field, found: f64, first: f64| {
        (found.to_bits() != first.to_bits()).then_some(BarDifference::Number { field, found, first })
    };
    let price = || {
        let pairs = found.prices().into_iter().zip(first.prices());
        let mut named = ["open", "high", "low", "close"].into_iter().zip(pairs);
        named.find_map(|(field, (found, first))| number(field, found, first))
    };
    // Noise of prices is no difference.
    let other_price = if is_same(found.prices(), first.prices()) { None } else { price() };
    match other_price.or_else(|| number("volume", found.volume, first.volume)) {
        Some(number) => number,
        None if found.spread.to_bits() == first.spread.to_bits() => BarDifference::Column,
        None if found.spread == 0.0 => BarDifference::NoSpread { spread: first.spread, is_first: true },
        None if first.spread == 0.0 => BarDifference::NoSpread { spread: found.spread, is_first: false },
        None => BarDifference::Number { field: "spread", found: found.spread, first: first.spread },
    }
}

/// Moves rows from those that became bars to those that were dropped.
fn count_dropped(summary: &mut FileSummary, dropped: RowCount<RowError>) {
    summary.kept -= dropped.rows;
    match summary.dropped.iter_mut().find(|tally| tally.kind == dropped.kind) {
        Some(tally) => {
            tally.rows += dropped.rows;
            tally.first_line = tally.first_line.min(dropped.first_line);
        }
        None => {
            summary.dropped.push(dropped);
            summary.dropped.sort_by_key(|tally| tally.kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;

    use super::*;
    use crate::parse::options::Overlaps;
    use crate::read::read;

    const MINUTES: usize = 400;

    /// Minutes `rows` of one history; the close of one of them is another where `changed` says so.
    fn write(folder: &Path, file: usize, rows: std::ops::Range<usize>, changed: Option<usize>) -> PathBuf {
        let row = |k: usize| {
            let close = 1.5 + (k as f64 * 0.7).sin() / 8.0 + if changed == Some(k) { 0.001 } else { 0.0 };
            let minute = format!("2024-03-05 {:02}:{:02}:00", k / 60, k % 60);
            format!("{minute},1.5,1.8,1.2,{close:.5},{}\n", 10 + k % 7)
        };
        let path = folder.join(format!("EURUSD_{file}.csv"));
        let text: String = rows.map(row).collect();
        std::fs::write(&path, format!("time,open,high,low,close,volume\n{text}")).unwrap();
        path
    }

    /// A file that ends with an unfinished bar was refused beside one that goes on.
    #[test]
    fn the_bar_with_which_a_file_ends_may_be_unfinished() {
        let folder = tempfile::tempdir().unwrap();
        let options = ReadOptions { overlaps: Overlaps::EqualOnce, ..ReadOptions::default() };
        let expected = read(&[write(folder.path(), 9, 0..MINUTES, None)], &options).unwrap();
        let (first, next) = (write(folder.path(), 0, 0..100, None), write(folder.path(), 1, 90..MINUTES, None));
        let text = std::fs::read_to_string(&first).unwrap();
        let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
        let time = last.split(',').next().unwrap();
        let end_with = |numbers: &str| std::fs::write(&first, format!("{before}\n{time},{numbers}\n")).unwrap();
        end_with("1.5,1.6,1.4,1.55,1");
        for paths in [[&first, &next], [&next, &first]] {
            let joined = read(&paths, &options).unwrap();
            assert_eq!(joined.bars, expected.bars);
            let dropped = |kind| joined.summary.dropped(kind);
            assert_eq!((dropped(RowError::Copy), dropped(RowError::Unfinished)), (9, 1));
        }
        for other in ["1.45,1.6,1.4,1.55,1", "1.5,1.9,1.4,1.55,1", "1.5,1.6,1.1,1.55,1", "1.5,1.6,1.4,1.55,99"] {
            end_with(other);
            let error = read(&[&first, &next], &options).unwrap_err();
            assert!(matches!(error, Error::UnlikeBars { .. }), "{other}: {error}");
        }
    }

    // MetaTrader 4 exports no spread; bars without one were told of dividends.
    #[test]
    fn the_first_field_that_differs_is_named() {
        let first = Bar { open: 1.0, high: 2.0, low: 1.0, close: 2.0, volume: 5.0, spread: 0.5, ..Bar::default() };
        let without = Bar { spread: 0.0, ..first.clone() };
        for (found, first, said) in [
            (&without, &first, "it has no spread, and the other has the spread 0.5"),
            (&first, &without, "it has the spread 0.5, and the other has none"),
            (&Bar { spread: 0.25, ..first.clone() }, &first, "its spread is 0.25, and the other's 0.5"),
            (&Bar { close: 1.5, spread: 0.0, ..first.clone() }, &first, "its close is 1.5, and the other's 2"),
            (&Bar { volume: 6.0, ..first.clone() }, &first, "its volume is 6, and the other's 5"),
            (&Bar { close: 2.0 + 1e-15, volume: 6.0, ..first.clone() }, &first, "its volume is 6, and the other's 5"),
            (&first, &first, "a further column has another value"),
        ] {
            assert_eq!(difference(found, first).to_string(), said);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Files that overlap anyhow, and cover everything, are the one file; a bar that differs is
        /// named with the later file and its line.
        #[test]
        fn equal_bars_are_taken_once(
            cuts in prop::collection::vec((0..MINUTES, 2..MINUTES), 1..5), first in any::<bool>(), at in 0..MINUTES,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let options = ReadOptions { overlaps: Overlaps::EqualOnce, ..ReadOptions::default() };
            let whole = write(folder.path(), 9, 0..MINUTES, None);
            let expected = read(&[&whole], &options).unwrap();
            let parts: Vec<_> = cuts.iter().map(|&(start, len)| start.min(MINUTES - 2)..(start + len).min(MINUTES)).collect();
            let mut paths: Vec<PathBuf> =
                parts.iter().enumerate().map(|(k, rows)| write(folder.path(), k, rows.clone(), None)).collect();
            paths.insert(if first { 0 } else { paths.len() }, whole.clone());
            let joined = read(&paths, &options).unwrap();
            prop_assert_eq!(&joined.bars, &expected.bars);
            let (kept, copies) = (joined.summary.kept(), joined.summary.dropped(RowError::Copy));
            prop_assert_eq!((kept as usize, (kept + copies) as usize), (MINUTES, MINUTES + parts.iter().map(ExactSizeIterator::len).sum::<usize>()));
            let refused = read(&paths, &ReadOptions::default()).unwrap_err();
            prop_assert!(matches!(refused, Error::Overlap { .. }), "{refused}");

            let rows = parts[0].clone();
            // The last bar of a file may be unfinished.
            let changed = rows.start + at % (rows.len() - 1);
            let path = write(folder.path(), 0, rows.clone(), Some(changed));
            match read(&[&whole, &path], &options) {
                Err(Error::UnlikeBars { path: found, line, time, other, difference }) => {
                    prop_assert!(difference.to_string().starts_with("its close is 1."), "{difference}");
                    prop_assert_eq!((found, line, other), (path, (changed - rows.start) as u64 + 2, whole));
                    let expected = format!("{:02}:{:02}", changed / 60, changed % 60);
                    prop_assert!(time.contains(&expected), "{time}");
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
