use megabatch_bars::{Bar, Bars, Feature, GapPolicy, Scaling, SeriesSpec, Timeframe, Weekends, Window};

use crate::whole::{WholeSeries, align, instrument};

const HOUR_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 24 * HOUR_NS;
/// 2018-01-07 22:00 UTC, a Sunday: currencies begin to trade.
const SUNDAY_NS: i64 = 17_538 * DAY_NS + 22 * HOUR_NS;
const WEEK_HOURS: usize = 5 * 24;

/// Hours of weeks that last from Sunday 22:00 to Friday 22:00, with the given holidays left out:
/// week and hour in it.
fn weeks(count: usize, holidays: &[(usize, std::ops::Range<usize>)]) -> Bars {
    let mut bars = Bars::with_capacity(Timeframe::H1, count * WEEK_HOURS);
    for week in 0..count {
        for hour in 0..WEEK_HOURS {
            if holidays.iter().any(|(holiday, hours)| *holiday == week && hours.contains(&hour)) {
                continue;
            }
            let open_time = SUNDAY_NS + week as i64 * 7 * DAY_NS + hour as i64 * HOUR_NS;
            let price = 1.1 + 0.01 * ((week * WEEK_HOURS + hour) as f64 * 0.7).sin();
            bars.push(Bar { open_time, open: price, high: price, low: price, close: price, ..Bar::default() });
        }
    }
    bars
}

fn aligned(bars: &Bars, weekends: Weekends) -> WholeSeries {
    let windows = [(Timeframe::H1, 10), (Timeframe::H4, 5)];
    let spec = SeriesSpec {
        windows: windows.map(|(timeframe, seq_len)| Window { timeframe, seq_len }).to_vec(),
        features: vec![Feature::LogReturn, Feature::Body],
        horizon: 3,
        scaling: Scaling::None,
        holes: GapPolicy { weekends, ..GapPolicy::default() },
        ..SeriesSpec::default()
    };
    align(&[instrument("EURUSD", bars, 1e-4)], &spec).unwrap()
}

#[test]
fn spanned_weekends_end_nothing() {
    let bars = weeks(6, &[]);
    let series = aligned(&bars, Weekends::Spanned);
    assert_eq!((series.header.segments.len(), series.header.excluded.len()), (1, 0));
    // The first week opens at 22:00, in a bin of H4 that lasts until midnight: the sixth bin closes
    // 22 hours later.
    assert_eq!(series.len(), 6 * WEEK_HOURS - 3 - (2 + 5 * 4 - 1));
}

#[test]
fn every_week_is_a_segment_where_weekends_are_not_spanned() {
    let bars = weeks(6, &[]);
    let series = aligned(&bars, Weekends::NotSpanned);
    assert_eq!((series.header.segments.len(), series.header.excluded.len()), (6, 0));
    assert_eq!(series.len(), 6 * (WEEK_HOURS - 3 - (2 + 5 * 4 - 1)));
    let week = |time: i64| (time - SUNDAY_NS).div_euclid(7 * DAY_NS);
    for (n, &start) in series.receptive_start.iter().enumerate() {
        let time = series.sample_time[n];
        assert!(start < time && week(start) == week(time) && week(time + 3 * HOUR_NS - 1) == week(time), "{n}");
    }
    // Friday's last bin of H4 would close at midnight, after trading: it is left out, so that 29 of
    // 30 bins and a warm-up of one bar remain.
    assert_eq!(series.header.timeframes[1].segment_start, [0, 29, 58, 87, 116, 145]);
    assert_eq!(series.timeframes[1].close_time.len(), 6 * 29);
}

#[test]
fn a_weekend_that_a_holiday_lengthens_is_still_one() {
    // The third week ends a day early: a hole of three days and one of four.
    let early = weeks(4, &[(2, 96..120)]);
    assert_eq!(aligned(&early, Weekends::Spanned).header.segments.len(), 1);
    assert_eq!(aligned(&early, Weekends::NotSpanned).header.segments.len(), 4);
    // A day without trading in mid-week is no weekend; a week without trading is longer than four
    // days.
    let midweek = weeks(4, &[(1, 26..50)]);
    assert_eq!(aligned(&midweek, Weekends::NotSpanned).header.segments.len(), 4);
    let missing = weeks(4, &[(1, 0..120)]);
    assert_eq!(aligned(&missing, Weekends::Spanned).header.segments.len(), 2);
}
