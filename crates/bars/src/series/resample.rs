use std::borrow::Cow;
use std::ops::Range;

use crate::bar_source::BarSource;
use crate::bars::{Bar, Bars};
use crate::error::{Error, Result};
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::display_utc;

/// Makes longer bars from shorter ones.
///
/// Bins start at multiples of the timeframe since 1970 UTC, those of weeks on Mondays. A bin's open
/// is its first bar's, its close its last bar's, its high and low are the extremes, its volume is
/// the sum and its spread its last bar's. A bin without any bar gives none. A bin that ends after
/// the last given bar closes is left out, because more of it may follow. Bars of the timeframe
/// asked for come back unchanged, wherever they start.
///
/// # Errors
/// [`Error::NotAMultiple`] when the timeframe is shorter than the bars' or no multiple of it;
/// [`Error::Straddles`] when a bar lies in two bins.
pub fn resample(bars: &Bars, timeframe: Timeframe) -> Result<Bars> {
    resample_part(bars, 0..bars.len(), timeframe).map(Cow::into_owned)
}

/// Makes longer bars from some of the bars, as if those were all.
pub(crate) fn resample_part(bars: &Bars, part: Range<usize>, timeframe: Timeframe) -> Result<Cow<'_, Bars>> {
    let base = bars.timeframe;
    if timeframe == base {
        return Ok(if part.len() == bars.len() { Cow::Borrowed(bars) } else { Cow::Owned(bars.part(part)) });
    }
    let (bin_ns, base_ns) = (timeframe.duration_ns(), base.duration_ns());
    if bin_ns % base_ns != 0 {
        return Err(Error::NotAMultiple { timeframe, base });
    }
    let mut bins = Bars::with_capacity(timeframe, part.len().div_ceil((bin_ns / base_ns) as usize));
    for index in part.clone() {
        let bar = bars.bar(index);
        let bin_open_time = timeframe.bin_open_time(bar.open_time);
        if bar.open_time + base_ns > bin_open_time + bin_ns {
            return Err(Error::Straddles { timeframe, base, open_time: display_utc(bar.open_time) });
        }
        match bins.open_time.last() {
            Some(&open_time) if open_time == bin_open_time => bins.extend_last(&bar),
            _ => bins.push(Bar { open_time: bin_open_time, ..bar }),
        }
    }
    if let Some(last) = part.last() {
        bins.drop_unclosed(bars.close_time(last));
    }
    Ok(Cow::Owned(bins))
}

impl Bars {
    /// A copy of some of the bars.
    pub(crate) fn part(&self, part: Range<usize>) -> Bars {
        let mut copy = Bars::with_capacity(self.timeframe, part.len());
        BarSource::read(self, part, &mut copy).expect("bars in memory are read");
        copy
    }

    /// Takes one more bar into the last bin.
    fn extend_last(&mut self, bar: &Bar) {
        let last = self.len() - 1;
        self.high[last] = self.high[last].max(bar.high);
        self.low[last] = self.low[last].min(bar.low);
        self.close[last] = bar.close;
        self.volume[last] += bar.volume;
        if !self.spread.is_empty() || bar.spread != 0.0 {
            self.spread.resize(last + 1, 0.0);
            self.spread[last] = bar.spread;
        }
    }

    /// Drops the last bin if it has not closed by the end of the bars that it was made from.
    fn drop_unclosed(&mut self, end: i64) {
        let last = self.len() - 1;
        if self.close_time(last) > end {
            self.truncate(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::timestamp::MINUTE_NS;

    fn minute(minute: i64, price: f64) -> Bar {
        let open_time = minute * MINUTE_NS;
        Bar {
            open_time,
            open: price,
            high: price + 2.0,
            low: price - 2.0,
            close: price + 1.0,
            volume: 1.0,
            spread: price / 1e4,
        }
    }

    fn minutes(opens: impl IntoIterator<Item = i64>) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        opens.into_iter().for_each(|open| bars.push(minute(open, 100.0 + open as f64)));
        bars
    }

    #[test]
    fn bins_are_aligned_and_closed() {
        // Two bars of the bin [0, 5), none of [5, 10), all of [10, 15), and the start of [15, 20).
        let bins = resample(&minutes([3, 4, 10, 11, 12, 13, 14, 15]), Timeframe::M5).unwrap();
        assert_eq!(bins.open_time, [0, 10 * MINUTE_NS]);
        let first =
            Bar { open_time: 0, open: 103.0, high: 106.0, low: 101.0, close: 105.0, volume: 2.0, spread: 104.0 / 1e4 };
        assert_eq!(bins.bar(0), first);
        assert_eq!((bins.bar(1).open, bins.bar(1).close, bins.bar(1).volume), (110.0, 115.0, 5.0));
    }

    #[test]
    fn a_bin_appears_when_its_last_minute_closes() {
        for (minutes_given, bins) in [(0, 0), (1, 0), (4, 0), (5, 1), (6, 1), (9, 1), (10, 2)] {
            assert_eq!(resample(&minutes(0..minutes_given), Timeframe::M5).unwrap().len(), bins, "{minutes_given}");
        }
    }

    /// `--timeframes D1:20,W1:8` was refused, as there was no longer timeframe than a day.
    #[test]
    fn days_become_weeks_from_monday_on() {
        let mut days = Bars::with_capacity(Timeframe::D1, 0);
        // Friday to the Monday after the next: 2018-06-29, then a full week of trade, then
        // 2018-07-09.
        for (place, day) in [17_711, 17_714, 17_715, 17_716, 17_717, 17_718, 17_721].into_iter().enumerate() {
            days.push(minute(day * 1_440, 100.0 + place as f64));
        }
        let weeks = resample(&days, Timeframe::W1).unwrap();
        assert_eq!(weeks.open_time, [17_707, 17_714].map(|day| day * 1_440 * MINUTE_NS));
        assert_eq!((weeks.open[1], weeks.close[1], weeks.high[1], weeks.volume[1]), (101.0, 106.0, 107.0, 5.0));
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let mut hours = Bars::with_capacity(Timeframe::H1, 1);
        hours.push(minute(30, 100.0));
        assert!(matches!(resample(&hours, Timeframe::M5), Err(Error::NotAMultiple { .. })));
        assert_eq!(resample(&hours, Timeframe::H1).unwrap(), hours);
        // Half past the hour, so that one bar in four lies in two bins.
        hours.push(minute(3 * 60 + 30, 100.0));
        let straddles = resample(&hours, Timeframe::H4).unwrap_err().to_string();
        assert!(straddles.contains("the H1 bar that opens at 1970-01-01T03:30:00Z lies in two H4 bins"), "{straddles}");
    }

    proptest! {
        /// Every bin is what a search over all base bars says it is.
        #[test]
        fn agrees_with_a_search(steps in prop::collection::vec(1i64..9, 1..80), prices in prop::collection::vec(50u32..150, 80)) {
            let mut bars = Bars::with_capacity(Timeframe::M1, 0);
            let mut open = 0;
            for (step, price) in steps.iter().zip(&prices) {
                open += step;
                bars.push(minute(open, f64::from(*price)));
            }
            let bins = resample(&bars, Timeframe::M15).unwrap();
            let end = bars.close_time(bars.len() - 1);
            let inside = |start: i64| -> Vec<usize> {
                (0..bars.len()).filter(|&k| (start..start + 15).contains(&(bars.open_time[k] / MINUTE_NS))).collect()
            };
            let is_closed = |start: &i64| !inside(*start).is_empty() && (start + 15) * MINUTE_NS <= end;
            let starts: Vec<i64> = (0..60).map(|bin| bin * 15).filter(is_closed).collect();
            prop_assert_eq!(bins.open_time.iter().map(|ns| ns / MINUTE_NS).collect::<Vec<_>>(), starts.clone());
            for (bin, &start) in starts.iter().enumerate() {
                let inside = inside(start);
                prop_assert_eq!(bins.open[bin], bars.open[inside[0]]);
                prop_assert_eq!(bins.close[bin], bars.close[inside[inside.len() - 1]]);
                prop_assert_eq!(bins.high[bin], inside.iter().map(|&k| bars.high[k]).fold(f64::MIN, f64::max));
                prop_assert_eq!(bins.low[bin], inside.iter().map(|&k| bars.low[k]).fold(f64::MAX, f64::min));
                prop_assert_eq!(bins.volume[bin], inside.len() as f64);
                prop_assert_eq!(bins.spread[bin], bars.spread[inside[inside.len() - 1]]);
            }
        }
    }
}
