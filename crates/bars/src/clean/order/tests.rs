use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::bars::Bars;
use crate::clean::sessions::SessionDays;
use crate::error::row_error::OnError;
use crate::time::timestamp::{DAY_NS, DateStyle, HOUR_NS, MINUTE_NS, parse_stamp};

fn clock(zone: &Zone) -> RowClock<'_> {
    let (base, repeats, days) = (Timeframe::M1, Repeats::Refuse, RowDays::all(SessionDays::AsStamped));
    RowClock { zone, base, stamp_delay_ns: 0, repeats, days, beside_shorter: false }
}

fn ledger(on_error: OnError) -> RowLedger {
    RowLedger::new(PathBuf::from("bars.csv"), on_error)
}

/// Rows at minutes after the start of 1970, each with a price.
fn rows(minutes: &[(i64, f64)]) -> Vec<BarRow> {
    let row =
        |(&(minute, price), line): (&(i64, f64), u64)| BarRow::flat(RowTime::Utc(minute * MINUTE_NS), price, line);
    minutes.iter().zip(1..).map(row).collect()
}

/// The bars of rows in order.
fn sorted(rows: &[BarRow], clock: RowClock<'_>, ledger: &mut RowLedger) -> Result<Bars> {
    let mut bars = Bars::with_capacity(clock.base, 0);
    in_order(&rows.into(), clock, ledger, None, |_, bar| {
        bars.push(bar);
        Ok(())
    })?;
    Ok(bars)
}

/// Kind, rows and first line of what was dropped and fixed.
type Account = (Vec<(RowError, u64, u64)>, Vec<(RowFix, u64, u64)>);

fn account(ledger: RowLedger) -> Account {
    let (dropped, fixed) = ledger.close();
    let dropped = dropped.iter().map(|tally| (tally.kind, tally.rows, tally.first_line)).collect();
    (dropped, fixed.iter().map(|tally| (tally.kind, tally.rows, tally.first_line)).collect())
}

/// The minutes and prices of the bars, and the account.
fn ordered(minutes: &[(i64, f64)], on_error: OnError, repeats: Repeats) -> (Vec<(i64, f64)>, Account) {
    let (zone, mut ledger) = (Zone::utc(), ledger(on_error));
    let bars = sorted(&rows(minutes), RowClock { repeats, ..clock(&zone) }, &mut ledger).unwrap();
    let bars = bars.open_time.iter().zip(&bars.close).map(|(ns, close)| (ns / MINUTE_NS, *close)).collect();
    (bars, account(ledger))
}

#[test]
fn copies_duplicates_and_rows_out_of_order() {
    let given = [(0, 1.0), (2, 1.0), (4, 1.0), (2, 1.0), (2, 7.0), (1, 8.0), (1, 8.0), (1, 9.0), (5, 1.0)];
    let (bars, (dropped, fixed)) = ordered(&given, OnError::Skip, Repeats::Refuse);
    assert_eq!(bars, [(0, 1.0), (2, 1.0), (4, 1.0), (5, 1.0)]);
    assert_eq!(dropped, [(RowError::Copy, 1, 4), (RowError::Duplicate, 1, 5), (RowError::Backward, 3, 6)]);
    assert_eq!(fixed, []);

    let (bars, (dropped, fixed)) = ordered(&given, OnError::Repair, Repeats::Refuse);
    assert_eq!(bars, [(0, 1.0), (1, 8.0), (2, 1.0), (4, 1.0), (5, 1.0)]);
    assert_eq!(dropped, [(RowError::Copy, 2, 4), (RowError::Duplicate, 2, 5)]);
    assert_eq!(fixed, [(RowFix::Sorted, 1, 6)]);

    let (bars, (dropped, _)) = ordered(&given, OnError::Repair, Repeats::Last);
    assert_eq!(bars, [(0, 1.0), (1, 9.0), (2, 7.0), (4, 1.0), (5, 1.0)]);
    assert_eq!(dropped, [(RowError::Copy, 2, 4), (RowError::Duplicate, 2, 2)]);
}

#[test]
fn a_stated_choice_among_repeats_is_no_error() {
    for (repeats, close) in [(Repeats::First, 1.0), (Repeats::Last, 7.0)] {
        let (bars, (dropped, _)) = ordered(&[(0, 1.0), (0, 7.0), (1, 1.0)], OnError::Fail, repeats);
        assert_eq!((bars[0].1, dropped[0].0, dropped[0].1), (close, RowError::Duplicate, 1));
    }
}

/// Minutes from midnight on, a price each, and the hours that they make, each beside its first
/// minute.
fn minutes_and_hours(hours: i64, hour_first: bool) -> Vec<BarRow> {
    let price = |minute: i64| 1.0 + ((minute * 37) % 101) as f64 / 128.0;
    let mut rows = Vec::new();
    for hour in 0..hours {
        let prices: Vec<f64> = (60 * hour..60 * hour + 60).map(price).collect();
        let (high, low) = (prices.iter().copied().fold(0.0, f64::max), prices.iter().copied().fold(9.0, f64::min));
        let stamp = |minute: i64| RowTime::Utc((60 * hour + minute) * MINUTE_NS);
        let whole = BarRow::new(stamp(0), prices[0], high, low, prices[59], 0);
        let minutes = (0..).zip(&prices).map(|(minute, price)| BarRow::flat(stamp(minute), *price, 0));
        let begin = rows.len() + usize::from(!hour_first);
        rows.extend(minutes);
        rows.insert(begin, whole);
    }
    (1..).zip(&mut rows).for_each(|(line, row)| row.line = line);
    rows
}

#[test]
fn bars_of_two_timeframes_are_refused_whatever_is_wanted() {
    for (on_error, repeats, hour_first) in [
        (OnError::Skip, Repeats::Refuse, true),
        (OnError::Skip, Repeats::Refuse, false),
        (OnError::Repair, Repeats::Refuse, true),
        (OnError::Fail, Repeats::First, true),
        (OnError::Fail, Repeats::Last, false),
    ] {
        let refused = |rows: &[BarRow]| {
            let (zone, mut ledger) = (Zone::utc(), ledger(on_error));
            sorted(rows, RowClock { repeats, ..clock(&zone) }, &mut ledger).err().map(|error| error.to_string())
        };
        let mut rows = minutes_and_hours(5, hour_first);
        let error = refused(&rows).expect("hours between minutes");
        assert!(error.contains("5 rows have the time of another row, the first in line 1,"), "{error}");
        assert!(error.contains("close as H1 bars: bars of M1 and H1 are mixed"), "{error}");
        assert_eq!(refused(&minutes_and_hours(2, hour_first)), None, "two may be chance");
        // The first minute of each hour twice, once unfinished: neither closes as the hour does.
        for row in rows.iter_mut().filter(|row| row.high > row.low) {
            row.close = row.open;
        }
        assert_eq!(refused(&rows), None);
    }
}

#[test]
fn a_row_is_sorted_in_only_where_it_has_room() {
    let (zone, mut ledger) = (Zone::utc(), ledger(OnError::Repair));
    let mut rows = rows(&[(0, 1.0), (3, 1.0), (5, 1.0), (1, 2.0), (1, 3.0)]);
    // Half a minute before, and after, a bar.
    rows[3].stamp = RowTime::Utc(5 * MINUTE_NS / 2);
    rows[4].stamp = RowTime::Utc(7 * MINUTE_NS / 2);
    let bars = sorted(&rows, clock(&zone), &mut ledger).unwrap();
    assert_eq!((bars.len(), account(ledger)), (3, (vec![(RowError::Backward, 2, 4)], vec![])));
}

#[test]
fn a_row_that_leaves_the_order_is_the_culprit() {
    let far = 5_000_000;
    // Minutes; the lines of outliers when skipping; the minutes left when repairing.
    let cases: [(&[i64], &[i64], &[i64]); 6] = [
        (&[0, 1, far, 2, 3, 4], &[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4]),
        (&[far, 0, 1, 2], &[0, 1, 2], &[0, 1, 2]),
        (&[0, 1, far, far + 1, 2, 3, far, 4, 5], &[0, 1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]),
        (&[0, 1, 5, 2, 3, 4, 6], &[0, 1, 2, 3, 4, 6], &[0, 1, 2, 3, 4, 5, 6]),
        (&[far, far + 1, 0, far + 2, far + 3], &[far, far + 1, far + 2, far + 3], &[far, far + 1, far + 2, far + 3]),
        // Neither of two rows in each other's place is the culprit: the first stays.
        (&[0, 2, 1, 3], &[0, 2, 3], &[0, 1, 2, 3]),
    ];
    for (given, skipped, repaired) in cases {
        let rows: Vec<(i64, f64)> = given.iter().map(|&minute| (minute, 1.0)).collect();
        for (on_error, expected) in [(OnError::Skip, skipped), (OnError::Repair, repaired)] {
            let (bars, (dropped, _)) = ordered(&rows, on_error, Repeats::Refuse);
            assert_eq!(bars.iter().map(|bar| bar.0).collect::<Vec<_>>(), expected, "{given:?} {on_error}");
            let dropped: u64 = dropped.iter().map(|(_, rows, _)| rows).sum();
            assert_eq!(bars.len() as u64 + dropped, given.len() as u64, "{given:?} {on_error}");
        }
    }
    let given = [(0, 1.0), (1, 1.0), (far, 1.0), (2, 1.0), (3, 1.0)];
    let (zone, mut failing) = (Zone::utc(), ledger(OnError::Fail));
    let error = sorted(&rows(&given), clock(&zone), &mut failing).unwrap_err().to_string();
    assert!(error.contains("line 3: stray timestamp") && error.contains("before 1970-01-01T00:02:00Z"), "{error}");
    let (_, (dropped, fixed)) = ordered(&given, OnError::Repair, Repeats::Refuse);
    assert_eq!((dropped, fixed), (vec![(RowError::Outlier, 1, 3)], vec![]));
}

/// Rows on the wall clock of New York, each with a price.
fn on_the_wall(times: &[(&str, f64)], on_error: OnError) -> Result<(Vec<i64>, Account)> {
    let stamp = |time: &str| parse_stamp(time.as_bytes(), DateStyle::Dashed).unwrap();
    let rows: Vec<BarRow> =
        times.iter().zip(1..).map(|(&(time, price), line)| BarRow::flat(stamp(time), price, line)).collect();
    let (zone, mut ledger) = ("America/New_York".parse().unwrap(), ledger(on_error));
    let clock = RowClock { base: Timeframe::M30, ..clock(&zone) };
    // In half hours after 05:00 UTC on the day of the change, when it is 01:00 for the first time.
    let first = stamp("2018-11-04T05:00Z").ns();
    let bars = sorted(&rows, clock, &mut ledger)?;
    Ok((bars.open_time.iter().map(|ns| (ns - first) / (HOUR_NS / 2)).collect(), account(ledger)))
}

#[test]
fn an_hour_that_passes_twice_is_told_apart_whatever_is_wanted() {
    let times = [
        ("2018-11-04 00:30", 1.0),
        ("2018-11-04 01:00", 1.0),
        ("2018-11-04 01:30", 2.0),
        ("2018-11-04 01:00", 1.0), // as in the first pass, by chance
        ("2018-11-04 01:30", 3.0),
        ("2018-11-04 02:00", 1.0),
    ];
    for on_error in OnError::ALL {
        let (bars, account) = on_the_wall(&times, on_error).unwrap();
        assert_eq!(bars, [-1, 0, 1, 2, 3, 4]);
        assert_eq!(account, (vec![], vec![(RowFix::SecondPass, 2, 4)]));
    }
    // A first pass with a hole, and one that is all there is.
    let holed = [("2018-11-04 01:00", 1.0), ("2018-11-04 01:00", 2.0), ("2018-11-04 01:30", 1.0)];
    assert_eq!(on_the_wall(&holed, OnError::Fail).unwrap().0, [0, 2, 3]);
    assert_eq!(on_the_wall(&holed[1..], OnError::Fail).unwrap().0, [0, 1]);
}

#[test]
fn an_hour_written_twice_did_not_pass_twice() {
    let times = [
        ("2018-11-04 01:00", 1.0),
        ("2018-11-04 01:30", 2.0),
        ("2018-11-04 01:00", 1.0),
        ("2018-11-04 01:30", 2.0),
        ("2018-11-04 02:00", 3.0),
    ];
    for on_error in OnError::ALL {
        let (bars, account) = on_the_wall(&times, on_error).unwrap();
        assert_eq!((bars, account), (vec![0, 1, 4], (vec![(RowError::Copy, 2, 3)], vec![])));
    }
}

#[test]
fn a_row_out_of_order_in_that_hour_is_no_second_pass() {
    let stamp = |minute: i64| RowTime::Wall(17_839 * DAY_NS + HOUR_NS + minute * MINUTE_NS); // 2018-11-04 01:00
    let minutes = [0, 1, 3, 2, 4, 59, 0, 1];
    let rows: Vec<BarRow> =
        (1..).zip(minutes).map(|(line, minute)| BarRow::flat(stamp(minute), line as f64, line)).collect();
    let (zone, mut ledger) = ("America/New_York".parse().unwrap(), ledger(OnError::Repair));
    let bars = sorted(&rows, clock(&zone), &mut ledger).unwrap();
    let opens: Vec<i64> = bars.open_time.iter().map(|ns| (ns - bars.open_time[0]) / MINUTE_NS).collect();
    assert_eq!(opens, [0, 1, 2, 3, 4, 59, 60, 61]);
    assert_eq!(account(ledger), (vec![], vec![(RowFix::SecondPass, 2, 7), (RowFix::Sorted, 1, 4)]));
}

#[test]
fn an_hour_thrice_is_once_too_often() {
    let times = [1.0, 2.0, 3.0].map(|price| ("2018-11-04 01:00", price));
    let (bars, account) = on_the_wall(&times, OnError::Skip).unwrap();
    assert_eq!((bars, account.0), (vec![0, 2], vec![(RowError::Duplicate, 1, 3)]));
}

#[test]
fn a_time_that_is_skipped_is_told() {
    let times = [("2018-03-11 01:30", 1.0), ("2018-03-11 02:30", 1.0), ("2018-03-11 03:00", 1.0)];
    let error = on_the_wall(&times, OnError::Fail).unwrap_err().to_string();
    assert!(error.contains("line 2: time that does not exist") && error.contains("America/New_York"), "{error}");
    for on_error in [OnError::Skip, OnError::Repair] {
        let (bars, account) = on_the_wall(&times, on_error).unwrap();
        assert_eq!((bars.len(), account), (2, (vec![(RowError::NoSuchTime, 1, 2)], vec![])));
    }
}

proptest! {
    /// Every row is a bar or dropped; repairs keep exactly one row of every minute, in order.
    #[test]
    fn every_row_is_accounted_for(minutes in prop::collection::vec((0i64..30, 0u8..3), 1..60)) {
        let given: Vec<(i64, f64)> = minutes.iter().map(|&(minute, price)| (minute, f64::from(price) + 1.0)).collect();
        for on_error in [OnError::Skip, OnError::Repair] {
            let (bars, (dropped, _)) = ordered(&given, on_error, Repeats::Refuse);
            let dropped: u64 = dropped.iter().map(|(_, rows, _)| rows).sum();
            prop_assert_eq!(bars.len() as u64 + dropped, given.len() as u64);
            prop_assert!(bars.is_sorted());
        }
        let (bars, _) = ordered(&given, OnError::Repair, Repeats::Refuse);
        prop_assert!(bars.iter().all(|bar| given.contains(bar)));
        let found: Vec<i64> = bars.iter().map(|bar| bar.0).collect();
        let mut expected: Vec<i64> = given.iter().map(|row| row.0).collect();
        expected.sort_unstable();
        expected.dedup();
        prop_assert_eq!(found, expected);
    }

    /// Twofold times in any order neither panic nor are lost.
    #[test]
    fn any_order_in_the_twofold_hour(minutes in prop::collection::vec((0u8..4, 0u8..2), 1..40)) {
        let times: Vec<(String, f64)> = minutes.iter()
            .map(|&(half, price)| (format!("2018-11-04 0{}:{}0", 1 + half / 2, half % 2 * 3), f64::from(price) + 1.0)).collect();
        let times: Vec<(&str, f64)> = times.iter().map(|(time, price)| (time.as_str(), *price)).collect();
        let (bars, (dropped, _)) = on_the_wall(&times, OnError::Repair).unwrap();
        prop_assert_eq!(bars.len() + dropped.iter().map(|(_, rows, _)| *rows as usize).sum::<usize>(), times.len());
    }
}
