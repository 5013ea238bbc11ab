//! Bars of a longer timeframe, made from shorter ones as they come.
//!
//! Bins start at multiples of the timeframe on a [`BinClock`], those of weeks on Mondays. A bin's
//! open is its first bar's, its close and spread its last bar's, its high and low are the extremes,
//! its volume is the sum; a further column follows its [`ColumnRule`]. A bin without any bar does
//! not exist, nor does one that has not closed.

use std::ops::Range;

use crate::bars::{Bar, Bars};
use crate::error::{Error, Result};
use crate::series::column_feature::ColumnRule;
use crate::time::bin_clock::BinClock;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::display_utc;

/// The bin of one timeframe that has not closed yet.
#[derive(Clone, Debug)]
pub(crate) struct Binning {
    timeframe: Timeframe,
    base: Timeframe,
    clock: BinClock,
    /// Rules of further columns.
    rules: Vec<ColumnRule>,
    open: Option<Bar>,
    /// When the bin of the last bar begins and ends.
    bin: Range<i64>,
    /// Base bars in it.
    bars: usize,
}

impl Binning {
    /// Nothing so far. The further columns of the bars follow `rules`.
    ///
    /// # Errors
    /// [`Error::NotAMultiple`].
    pub(crate) fn new(timeframe: Timeframe, base: Timeframe, clock: &BinClock, rules: Vec<ColumnRule>) -> Result<Self> {
        match timeframe.is_multiple_of(base) {
            true => Ok(Binning { timeframe, base, clock: clock.clone(), rules, open: None, bin: 0..0, bars: 0 }),
            false => Err(Error::NotAMultiple { timeframe, base }),
        }
    }

    /// No bars of the timeframe. Base bars stay as they are, and have no clock.
    pub(crate) fn no_bars(&self) -> Bars {
        let bars = Bars::with_capacity(self.timeframe, 0);
        if self.timeframe == self.base { bars } else { Bars { bins: self.clock.clone(), ..bars } }
    }

    /// Forgets the open bin: its segment ended.
    pub(crate) fn restart(&mut self) {
        (self.open, self.bars) = (None, 0);
    }

    /// Takes the next base bar. Hands the bins that have closed by its close to `take`, in order of
    /// time: the bin of the bars before it, if the last bars of that bin were missing, and its own,
    /// if it is the last bar in it.
    ///
    /// # Errors
    /// [`Error::Straddles`].
    pub(crate) fn push(&mut self, bar: &Bar, take: impl FnMut(Bar)) -> Result<()> {
        if self.timeframe != self.base {
            self.enter_bin(bar.open_time);
            if bar.open_time + self.base.duration_ns() > self.bin.end {
                return Err(straddles(self.timeframe, self.base, &self.clock, bar.open_time));
            }
        }
        self.push_by_close(bar, take);
        Ok(())
    }

    /// Takes the next base bar as [`Binning::push`] does. A bar that lies in two bins is of the one
    /// in which it closes.
    pub(crate) fn push_by_close(&mut self, bar: &Bar, mut take: impl FnMut(Bar)) {
        if self.timeframe == self.base {
            take(bar.clone());
            return;
        }
        let close_time = bar.open_time + self.base.duration_ns();
        let Range { start: open_time, end } = self.closing_bin(bar.open_time);
        if self.open.as_ref().is_some_and(|bin| bin.open_time != open_time) {
            self.close(&mut take);
        }
        match &mut self.open {
            Some(bin) => bin.extend(bar, &self.rules),
            bin => *bin = Some(Bar { open_time, ..bar.clone() }),
        }
        self.bars += 1;
        if close_time == end {
            self.close(&mut take);
        }
    }

    /// The bin in which the base bar closes that opens at `open_time`. A base bar of the timeframe
    /// is its own bin.
    pub(crate) fn closing_bin(&mut self, open_time: i64) -> Range<i64> {
        let close_time = open_time + self.base.duration_ns();
        if self.timeframe == self.base {
            return open_time..close_time;
        }
        self.enter_bin(close_time - 1);
        self.bin.clone()
    }

    /// Makes the bin that holds `time` that of the last bar.
    fn enter_bin(&mut self, time: i64) {
        if !self.bin.contains(&time) {
            self.bin = self.clock.bin(self.timeframe, time);
        }
    }

    /// Hands the open bin to `take` if it ends by `time`: later bars are of other bins.
    pub(crate) fn close_by(&mut self, time: i64, mut take: impl FnMut(Bar)) {
        if self.open.is_some() && self.bin.end <= time {
            self.close(&mut take);
        }
    }

    /// Closes the open bin.
    fn close(&mut self, take: &mut impl FnMut(Bar)) {
        let (Some(mut bin), bars) = (self.open.take(), std::mem::take(&mut self.bars)) else { return };
        for (value, rule) in bin.columns.iter_mut().zip(&self.rules) {
            *value = rule.close(*value, bars);
        }
        take(bin);
    }
}

/// Error of a base bar that lies in two bins.
pub(crate) fn straddles(timeframe: Timeframe, base: Timeframe, clock: &BinClock, open_time: i64) -> Error {
    Error::Straddles { timeframe, base, clock: clock.to_string(), open_time: display_utc(open_time) }
}

impl Bar {
    /// Takes in one more bar, the next of the same bin.
    fn extend(&mut self, bar: &Bar, rules: &[ColumnRule]) {
        self.high = self.high.max(bar.high);
        self.low = self.low.min(bar.low);
        self.close = bar.close;
        self.volume += bar.volume;
        self.spread = bar.spread;
        for ((value, next), rule) in self.columns.iter_mut().zip(&bar.columns).zip(rules) {
            rule.extend(value, *next);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::bin_clock::tests::{TIMEFRAMES, WEEKS};
    use crate::time::timestamp::MINUTE_NS;

    fn minute(minute: i64, price: f64) -> Bar {
        Bar {
            open_time: minute * MINUTE_NS,
            open: price,
            high: price + 2.0,
            low: price - 2.0,
            close: price + 1.0,
            volume: 1.0,
            spread: price / 1e4,
            columns: Box::new([price; 6]),
        }
    }

    fn minutes(opens: impl IntoIterator<Item = i64>) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        opens.into_iter().for_each(|open| bars.push(minute(open, 100.0 + open as f64)));
        bars
    }

    /// The bins that have closed by the close of the last bar.
    fn closed(bars: &Bars, timeframe: Timeframe) -> Result<Bars> {
        closed_on(&BinClock::default(), bars, timeframe)
    }

    fn closed_on(clock: &BinClock, bars: &Bars, timeframe: Timeframe) -> Result<Bars> {
        let mut binning = Binning::new(timeframe, bars.timeframe, clock, ColumnRule::ALL.to_vec())?;
        let mut bins = binning.no_bars();
        for index in 0..bars.len() {
            binning.push(&bars.bar(index), |bin| bins.push(bin))?;
        }
        Ok(bins)
    }

    #[test]
    fn bins_are_aligned_and_closed() {
        // Two bars of the bin [0, 5), none of [5, 10), all of [10, 15), and the start of [15, 20).
        let bins = closed(&minutes([3, 4, 10, 11, 12, 13, 14, 15]), Timeframe::M5).unwrap();
        assert_eq!(bins.open_time, [0, 10 * MINUTE_NS]);
        let first = Bar {
            open_time: 0,
            open: 103.0,
            high: 106.0,
            low: 101.0,
            close: 105.0,
            volume: 2.0,
            spread: 104.0 / 1e4,
            columns: Box::new([104.0, 103.0, 207.0, 103.5, 103.0, 104.0]),
        };
        assert_eq!(bins.bar(0), first);
        assert_eq!((bins.bar(1).open, bins.bar(1).close, bins.bar(1).volume), (110.0, 115.0, 5.0));
    }

    #[test]
    fn a_bin_appears_when_its_last_minute_closes() {
        for (minutes_given, bins) in [(0, 0), (1, 0), (4, 0), (5, 1), (6, 1), (9, 1), (10, 2)] {
            assert_eq!(closed(&minutes(0..minutes_given), Timeframe::M5).unwrap().len(), bins, "{minutes_given}");
        }
    }

    /// `--timeframes D1:20,W1:8` was refused, as there was no longer timeframe than a day.
    #[test]
    fn days_become_weeks_from_monday_on() {
        let mut days = Bars::with_capacity(Timeframe::D1, 0);
        // Friday to the Monday after the next: 2018-06-29, then a full week of trade, then
        // 2018-07-09. The week closes after the weekend.
        for (place, day) in [17_711, 17_714, 17_715, 17_716, 17_717, 17_718, 17_721].into_iter().enumerate() {
            days.push(minute(day * 1_440, 100.0 + place as f64));
        }
        let weeks = closed(&days, Timeframe::W1).unwrap();
        assert_eq!(weeks.open_time, [17_707, 17_714].map(|day| day * 1_440 * MINUTE_NS));
        assert_eq!((weeks.open[1], weeks.close[1], weeks.high[1], weeks.volume[1]), (101.0, 106.0, 107.0, 5.0));
    }

    /// A bar of a month, whose bins differ in length, closes with its last day.
    #[test]
    fn days_become_months_of_the_calendar() {
        // From 2018-01-30 to 2018-03-31, each day.
        let mut days = Bars::with_capacity(Timeframe::D1, 0);
        (17_561..17_622).for_each(|day| days.push(minute(day * 1_440, day as f64)));
        let months = closed(&days, Timeframe::MN1).unwrap();
        let [january, february, march, april] =
            [17_532, 17_563, 17_591, 17_622].map(|day: i64| day * 1_440 * MINUTE_NS);
        assert_eq!(months.open_time, [january, february, march]);
        assert_eq!([0, 1, 2].map(|month| months.close_time(month)), [february, march, april]);
        assert_eq!(months.volume, [2.0, 28.0, 31.0]);
        let mut weeks = Bars::with_capacity(Timeframe::W1, 0);
        weeks.push(minute(17_714 * 1_440, 100.0));
        assert!(matches!(closed(&weeks, Timeframe::MN1), Err(Error::NotAMultiple { .. })));
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let mut hours = Bars::with_capacity(Timeframe::H1, 1);
        hours.push(minute(30, 100.0));
        assert!(matches!(closed(&hours, Timeframe::M5), Err(Error::NotAMultiple { .. })));
        assert_eq!(closed(&hours, Timeframe::H1).unwrap(), hours);
        // Half past the hour, so that one bar in four lies in two bins.
        hours.push(minute(3 * 60 + 30, 100.0));
        let straddles = closed(&hours, Timeframe::H4).unwrap_err().to_string();
        assert!(straddles.contains("the H1 bar that opens at 1970-01-01T03:30:00Z lies in two H4 bins"), "{straddles}");
        assert!(straddles.contains("start at multiples of H4 on the clock UTC"), "{straddles}");
        // By a clock on which the hour of half past three is no half hour, it lies in one.
        let india: BinClock = "+05:30".parse().unwrap();
        hours.truncate(0);
        (2..14).for_each(|hour| hours.push(minute(hour * 60 + 30, 100.0)));
        let bins = closed_on(&india, &hours, Timeframe::H4).unwrap();
        assert_eq!(bins.open_time, [150, 390, 630].map(|minute| minute * MINUTE_NS));
    }

    /// Bars of four hours in a broker's time are of its days, and were of two days in UTC.
    #[test]
    fn days_of_a_broker_are_made_of_its_longer_bars() {
        let broker: BinClock = "new-york+7".parse().unwrap();
        // From Thursday 2018-01-04 00:00 on that clock, 22:00 UTC the day before.
        let first = (17_534 * 24 + 22) * 60;
        let mut bars = Bars::with_capacity(Timeframe::H4, 0);
        (0..7).for_each(|bar| bars.push(minute(first + bar * 240, 100.0 + bar as f64)));
        let refused = closed(&bars, Timeframe::D1).unwrap_err().to_string();
        assert!(refused.contains("opens at 2018-01-03T22:00:00Z lies in two D1 bins"), "{refused}");
        let days = closed_on(&broker, &bars, Timeframe::D1).unwrap();
        assert_eq!((days.open_time[0], days.close_time(0)), (first * MINUTE_NS, (first + 1_440) * MINUTE_NS));
        assert_eq!((days.len(), days.open[0], days.close[0], days.volume[0]), (1, 100.0, 106.0, 6.0));
        // Bars that are not binned keep their length.
        let own = closed_on(&broker, &bars, Timeframe::H4).unwrap();
        assert_eq!((own.bins.is_utc(), own), (true, bars));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Around the changes of clocks, a bin closes with the last minute before it ends by its
        /// clock, or with the first bar after.
        #[test]
        fn bins_of_clocks_agree_with_a_search(
            place in 0..WEEKS.len(), timeframe in 0..TIMEFRAMES.len(), first in 8_600usize..10_200,
            steps in prop::collection::vec(prop_oneof![9 => 1usize..60, 1 => 60usize..4_000, 2 => Just(0)], 1..80),
        ) {
            let (week, timeframe) = (&WEEKS[place], TIMEFRAMES[timeframe]);
            let starts = week.starts(timeframe);
            let bin = |minute: i64| starts.partition_point(|&start| start <= minute);
            let mut minutes = Vec::new();
            let mut at = week.first + 10 * 1_440 + first as i64;
            for step in steps {
                // A step of 0 goes on to the last minute of a bin.
                let last = starts[bin(at)] - 1;
                at = if step == 0 && minutes.last() != Some(&last) { last } else { at };
                // The week of the last bar ends within the weeks that are searched.
                if at < week.first + 26 * 1_440 && minutes.last() != Some(&at) {
                    minutes.push(at);
                }
                at = (at + step as i64).min(week.first + 26 * 1_440);
            }
            let expected = |minutes: &[i64]| -> Vec<(i64, i64, i64, usize)> {
                let last = minutes[minutes.len() - 1];
                let bins = minutes.chunk_by(|&one, &next| bin(one) == bin(next));
                let facts = |own: &[i64]| (starts[bin(own[0]) - 1], starts[bin(own[0])], own[0], own.len());
                bins.map(facts).filter(|&(_, end, ..)| end <= last + 1).collect()
            };
            for count in 1..=minutes.len() {
                let mut bars = Bars::with_capacity(Timeframe::M1, 0);
                minutes[..count].iter().for_each(|&at| bars.push(minute(at, (at - week.first) as f64)));
                let found = closed_on(&week.clock, &bars, timeframe).unwrap();
                let facts = |bin: usize| {
                    let [open, end] = [found.open_time[bin], found.close_time(bin)].map(|time| time / MINUTE_NS);
                    (open, end, week.first + found.open[bin] as i64, found.volume[bin] as usize)
                };
                let found: Vec<(i64, i64, i64, usize)> = (0..found.len()).map(facts).collect();
                prop_assert_eq!(found, expected(&minutes[..count]), "{} {}", week.clock, timeframe);
            }
        }

        /// Every bin is what a search over all base bars says it is.
        #[test]
        fn agrees_with_a_search(steps in prop::collection::vec(1i64..9, 1..80), prices in prop::collection::vec(50u32..150, 80)) {
            let mut bars = Bars::with_capacity(Timeframe::M1, 0);
            let mut open = 0;
            for (step, price) in steps.iter().zip(&prices) {
                open += step;
                bars.push(minute(open, f64::from(*price)));
            }
            let bins = closed(&bars, Timeframe::M15).unwrap();
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
                let prices: Vec<f64> = inside.iter().map(|&k| bars.open[k]).collect();
                let sum: f64 = prices.iter().sum();
                let expected = [
                    prices[prices.len() - 1],
                    prices[0],
                    sum,
                    sum / prices.len() as f64,
                    prices.iter().copied().fold(f64::MAX, f64::min),
                    prices.iter().copied().fold(f64::MIN, f64::max),
                ];
                prop_assert_eq!(&*bins.bar(bin).columns, &expected);
            }
        }
    }
}
