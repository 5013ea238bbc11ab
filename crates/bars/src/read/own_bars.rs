//! Bars of longer timeframes from files of their own, in the place of those that shorter bars make.
//!
//! ```text
//! made of the shorter bars   [10:00 [11:00        [13:00    which bars there are, and their closes
//! of its own file            [10:00        [12:00 [13:00    prices, volume, spread
//! taken                       own    made          own
//! ```

use std::path::Path;
use std::sync::Arc;

use crate::bar_source::{BarSource, pieces_of};
use crate::bars::{Bar, Bars};
use crate::error::{Error, Result};
use crate::median::median;
use crate::parse::symbol::{is_of_a_coin, trades_around_the_clock};
use crate::place::{BarCursor, for_each_bar};
use crate::read::SpooledRecording;
use crate::read::compared::is_same;
use crate::read::summary::{OwnBars, ReadSummary};
use crate::series::binning::Binning;
use crate::spool::{SpoolWriter, SpooledBars};
use crate::time::bin_clock::BinClock;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS, counted, display_duration, display_utc};

impl SpooledRecording {
    /// Puts its own bars of longer timeframes in the place of those that its bars make in bins of
    /// `clock`: in a series they count from the end of their bin on, as those would. A bar that
    /// opens with no bin, on a day or longer by its date, is refused, and so are bars that agree
    /// better with prices of a bar or half an hour to a day after them, be it for two months alone,
    /// bars of other prices altogether, and few other days of currencies that end after their bin
    /// by their own time. A bin without an own bar has the one that is made; an own bar without a
    /// bin is not used, and neither is one after which no file that has it goes on, which may be
    /// unfinished. Files without volumes or spreads leave those that are made. Temporary files lie
    /// in `folder`.
    ///
    /// # Errors
    /// [`Error::OwnBars`], [`Error::NotAMultiple`], [`Error::Straddles`] and [`Error::Spool`].
    pub fn with_own_bars(self, clock: &BinClock, folder: &Path) -> Result<Self> {
        let SpooledRecording { symbol, bars, own, mut summary } = self;
        let mut placed = Vec::with_capacity(own.len());
        for (given, account) in own.iter().zip(&mut summary.own) {
            placed.push(Arc::new(place(given, &bars, clock, account, folder)?));
            summary.warnings.extend(account.warning());
        }
        Ok(SpooledRecording { symbol, bars: bars.with_own(placed), own: Vec::new(), summary })
    }
}

/// The bars of `given` that have a bin with bars of `base`, each opening with its bin.
fn place(
    given: &SpooledBars,
    base: &SpooledBars,
    clock: &BinClock,
    account: &mut OwnBars,
    folder: &Path,
) -> Result<SpooledBars> {
    let (timeframe, base_ns) = (given.timeframe(), base.timeframe().duration_ns());
    let mut binning = Binning::new(timeframe, base.timeframe(), clock, Vec::new())?;
    let counts = account.summary.bars;
    // Weeks of coins begin on that day.
    let are_of_sundays = !is_of_a_coin(&account.summary.symbol) && are_of_sundays(given)?;
    let mut placing = Placing {
        timeframe,
        clock,
        given: BarCursor::new(given),
        has_volume: counts.without_volume < counts.all,
        has_spread: counts.with_spread > 0,
        unfinished: account.summary.last_times.clone(),
        account,
        first_open_time: None,
        closes: Closes::new(timeframe),
        distances: Vec::new(),
        ranges: Vec::new(),
        may_be_later: false,
        are_of_sundays,
        writer: SpoolWriter::unnamed(folder, timeframe, 0)?,
    };
    let (mut piece, mut made) = (Bars::with_capacity(base.timeframe(), 0), Vec::new());
    for range in pieces_of(0..base.len()) {
        base.read(range, &mut piece)?;
        for index in 0..piece.len() {
            let bar = piece.without_columns(index);
            placing.first_open_time.get_or_insert(bar.open_time);
            placing.closes.add_base(bar.open_time + base_ns, bar.close);
            binning.push(&bar, |bin| made.push(bin))?;
            made.drain(..).try_for_each(|bin| placing.take(&bin))?;
        }
    }
    placing.finish(given.len() as u64)
}

/// True for weeks of which most open on a Sunday, as MetaTrader dates them.
fn are_of_sundays(given: &SpooledBars) -> Result<bool> {
    let mut sundays = 0;
    if given.timeframe() == Timeframe::W1 {
        let is_before_monday = |day: i64| Timeframe::W1.bin(day + DAY_NS).start == day + DAY_NS;
        for_each_bar(given, |bar| {
            sundays += usize::from(is_before_monday(bar.open_time - bar.open_time.rem_euclid(DAY_NS)));
            Ok(())
        })?;
    }
    Ok(2 * sundays > given.len())
}

/// Own bars of one timeframe, on their way to the bins of the base bars.
struct Placing<'a> {
    timeframe: Timeframe,
    clock: &'a BinClock,
    given: BarCursor<&'a SpooledBars>,
    has_volume: bool,
    has_spread: bool,
    /// When the own bars open that may be unfinished.
    unfinished: Vec<i64>,
    account: &'a mut OwnBars,
    /// When the first base bar of all opens.
    first_open_time: Option<i64>,
    closes: Closes,
    /// Distance of each own close that is compared from the close that is made.
    distances: Vec<f64>,
    /// Range of the bar that is made, for each of them.
    ranges: Vec<f64>,
    /// True if a bar of a market that is open around the clock ends after its bin by its own time.
    may_be_later: bool,
    /// True if the own bars are weeks that are dated on the Sunday before their Monday.
    are_of_sundays: bool,
    writer: SpoolWriter,
}

/// Own bars that are compared, at least, before they are refused for other prices.
const COMPARED_MIN: usize = 50;

impl Placing<'_> {
    /// Takes the next bar that base bars make.
    fn take(&mut self, made: &Bar) -> Result<()> {
        while let Some(open_time) = self.given.peek_open_time()? {
            let is_before = open_time + self.timeframe.duration_ns() <= made.open_time;
            let start = if is_before { open_time } else { self.start(open_time)? };
            if start > made.open_time {
                break;
            }
            let own = self.given.next()?.expect("it was seen");
            if start == made.open_time {
                let is_finished = self.unfinished.binary_search(&own.open_time).is_err();
                return if is_finished { self.put(&own, made) } else { Ok(()) };
            }
        }
        self.account.made += 1;
        Ok(())
    }

    /// When the bin opens whose own bar opens at `open_time`, which may be a date.
    fn start(&self, open_time: i64) -> Result<i64> {
        let start_at = |time: i64| {
            let bin_start = |time: i64| self.clock.bin(self.timeframe, time).start;
            // The clock may be moved on the Sunday.
            let next = bin_start(time + DAY_NS + DAY_NS / 2);
            let is_next = self.are_of_sundays && (next - time - DAY_NS).abs() <= HOUR_NS;
            if bin_start(time) == time { Some(time) } else { is_next.then_some(next) }
        };
        let is_date = self.timeframe >= Timeframe::D1 && open_time.rem_euclid(DAY_NS) == 0;
        let by_date = || start_at(self.clock.utc_ns(open_time)).filter(|_| is_date);
        start_at(open_time).or_else(by_date).ok_or_else(|| {
            let (timeframe, clock, opens) = (self.timeframe, self.clock, display_utc(open_time));
            self.fault(format!(
                "have one that opens at {opens}, and no {timeframe} bar opens then on the clock {clock}"
            ))
        })
    }

    fn put(&mut self, own: &Bar, made: &Bar) -> Result<()> {
        let [prices, others] = [own, made].map(Bar::prices);
        let is_partial = self.first_open_time.is_some_and(|first| made.open_time < first);
        if !is_partial {
            self.distances.push((own.close - made.close).abs());
            self.ranges.push(made.high - made.low);
        }
        if is_partial {
            self.account.partial += 1;
        } else if is_same(prices, others) {
            self.account.same += 1;
        } else {
            if self.account.different.first.is_none() {
                self.account.example = example(own, made, self.account.base);
            }
            self.account.different.add(made.open_time);
        }
        // A clock is moved by an hour at most between the bars that open earliest.
        let ReadSummary { symbol, early_ns, .. } = &self.account.summary;
        let ends_later = own.open_time + early_ns > made.open_time + HOUR_NS;
        self.may_be_later |= ends_later && trades_around_the_clock(symbol);
        self.closes.add_own(self.clock.bin(self.timeframe, made.open_time).end, own.close, made.close);
        self.writer.push(Bar {
            open_time: made.open_time,
            volume: if self.has_volume { own.volume } else { made.volume },
            spread: if self.has_spread { own.spread } else { made.spread },
            columns: Box::default(),
            ..*own
        })
    }

    /// The bars that have a bin, of `count` that were given.
    fn finish(mut self, count: u64) -> Result<SpooledBars> {
        if let Some(late_ns) = self.closes.later_by() {
            let (base, late) = (self.account.base, display_duration(late_ns));
            return Err(self.fault(format!(
                "close as the {base} bars do {late} later, and would bring later prices into samples"
            )));
        }
        if self.are_of_sundays && self.closes.are_earlier() {
            let fault = "have the closes of the weeks before, as dates of their ends do: date each of its first day";
            return Err(self.fault(fault.to_owned()));
        }
        // A bar that begins before the base bars is not compared.
        let OwnBars { same, different, partial, .. } = &*self.account;
        let may_differ = different.count > 0 || (*same == 0 && *partial > 0);
        if self.may_be_later && self.closes.own.len() < CLOSES_MIN && may_differ {
            let (base, closes) = (self.account.base, counted(self.closes.own.len() as u64, "close", "closes"));
            return Err(self.fault(format!(
                "end after those that {base} bars make, by their times, and {closes} of them cannot show whether they have later prices: give {CLOSES_MIN} or more, or leave own bars out"
            )));
        }
        let (base, same, compared) = (self.account.base, self.account.same, self.distances.len());
        if compared >= COMPARED_MIN
            && 100 * same < compared as u64
            && median(&mut self.distances) > median(&mut self.ranges)
        {
            return Err(self.fault(format!(
                "have other prices than the {base} bars make: {same} of {compared} are equal, and closes differ by more than the range of a bar; are they of another instrument, or adjusted?"
            )));
        }
        self.account.unfinished = self.unfinished.len() as u64;
        self.account.not_covered = count - self.account.used() - self.account.unfinished;
        self.writer.finish()
    }

    fn fault(&self, fault: String) -> Error {
        Error::OwnBars { instrument: self.account.summary.symbol.clone(), timeframe: self.timeframe, fault }
    }
}

/// The first price that differs, of the close, open, high and low.
fn example(own: &Bar, made: &Bar, base: Timeframe) -> String {
    let prices = [
        ("close", own.close, made.close),
        ("open", own.open, made.open),
        ("high", own.high, made.high),
        ("low", own.low, made.low),
    ];
    let differs = |(_, own, made): &(&str, f64, f64)| !is_same([*own; 4], [*made; 4]);
    let (price, own, made) = prices.into_iter().find(differs).expect("a price differs");
    format!("{price} {own}, of {base} {made}")
}

/// Distance of the times at which closes are compared.
const STEP_NS: i64 = 30 * MINUTE_NS;
/// Farthest of them: a day, by which files may stamp otherwise.
const STEPS_MAX: i64 = 48;
/// Time whose own closes are compared by themselves: two clocks may differ in summer alone.
const SPAN_NS: i64 = 60 * DAY_NS;
/// Own closes that are compared, at least.
const CLOSES_MIN: usize = 8;
/// Distance from later closes, as a share of that from the closes of the same time, that shows
/// another clock.
const SHARE_MAX: f64 = 0.5;

/// Closes of own bars, and of the base bars around them: by another clock, own bars have closes of
/// later times.
struct Closes {
    /// Length of an own bar, by which files that are stamped at its end differ.
    bar_ns: i64,
    /// Time of which one base close is kept.
    kept_ns: i64,
    /// When the last base bar of each `kept_ns` closes, and its close.
    base: Vec<(i64, f64)>,
    /// Closes of own bars at multiples of [`STEP_NS`].
    own: Vec<OwnClose>,
}

struct OwnClose {
    time: i64,
    close: f64,
    /// The close that base bars make.
    made: f64,
}

impl Closes {
    fn new(timeframe: Timeframe) -> Self {
        let bar_ns = timeframe.duration_ns();
        // Every time at which closes are compared is a multiple of it.
        let (mut kept_ns, mut rest) = (STEP_NS, bar_ns);
        while rest != 0 {
            (kept_ns, rest) = (rest, kept_ns % rest);
        }
        Closes { bar_ns, kept_ns, base: Vec::new(), own: Vec::new() }
    }

    fn add_base(&mut self, close_time: i64, close: f64) {
        let kept_ns = self.kept_ns;
        let step = |time: i64| (time - 1).div_euclid(kept_ns);
        match self.base.last_mut() {
            Some(last) if step(last.0) == step(close_time) => *last = (close_time, close),
            _ => self.base.push((close_time, close)),
        }
    }

    fn add_own(&mut self, time: i64, close: f64, made: f64) {
        if time.rem_euclid(STEP_NS) == 0 {
            self.own.push(OwnClose { time, close, made });
        }
    }

    /// Time by which the own closes are those of later base bars, in all or for a while.
    fn later_by(&self) -> Option<i64> {
        let span = |own: &OwnClose| own.time.div_euclid(SPAN_NS);
        let spans = self.own.chunk_by(|one, other| span(one) == span(other));
        spans.chain([&self.own[..]]).find_map(|own| self.later_by_in(own))
    }

    /// The same, of some own closes.
    fn later_by_in(&self, own: &[OwnClose]) -> Option<i64> {
        let distance: f64 = own.iter().map(|own| (own.close - own.made).abs()).sum();
        if own.len() < CLOSES_MIN || distance == 0.0 {
            return None;
        }
        let distance_after = |late_ns: i64| -> f64 {
            own.iter().map(|own| (own.close - self.base_close(own.time + late_ns)).abs()).sum()
        };
        let bar_ns = Some(self.bar_ns).filter(|&bar_ns| bar_ns < STEP_NS);
        let times = bar_ns.into_iter().chain((1..=STEPS_MAX).map(|step| step * STEP_NS));
        let later = times.map(|late_ns| (late_ns, distance_after(late_ns)));
        let (late_ns, least) = later.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        (least < SHARE_MAX * distance).then_some(late_ns)
    }

    /// True if the own closes are those of base bars by the length of an own bar before, as where
    /// bars are dated at their ends.
    fn are_earlier(&self) -> bool {
        let distance: f64 = self.own.iter().map(|own| (own.close - own.made).abs()).sum();
        let before = |own: &OwnClose| (own.close - self.base_close(own.time - self.bar_ns)).abs();
        self.own.iter().map(before).sum::<f64>() < SHARE_MAX * distance
    }

    /// The last base close up to `time`, at which there is one.
    fn base_close(&self, time: i64) -> f64 {
        let count = self.base.partition_point(|&(close_time, _)| close_time <= time);
        self.base[count.saturating_sub(1)].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2018-07-02, in summer: the day of `new-york+7` begins three hours before.
    const MONDAY_NS: i64 = 17_714 * DAY_NS;

    fn price(hour: i64) -> f64 {
        1.0 + (hour * hour * 7_919 % 613) as f64 / 1_000.0
    }

    fn spooled(timeframe: Timeframe, bars: &[Bar], folder: &Path) -> SpooledBars {
        let mut writer = SpoolWriter::unnamed(folder, timeframe, 0).unwrap();
        bars.iter().for_each(|bar| writer.push(bar.clone()).unwrap());
        writer.finish().unwrap()
    }

    #[test]
    fn days_of_a_broker_take_the_place_of_those_that_hours_make() {
        let folder = tempfile::tempdir().unwrap();
        let clock: BinClock = "new-york+7".parse().unwrap();
        let hour = |hour: i64| {
            let (open_time, open) = (MONDAY_NS + (hour - 3) * HOUR_NS, price(hour));
            Bar { open_time, open, high: open + 0.1, low: open - 0.1, close: open, volume: 1.0, ..Bar::default() }
        };
        let hours: Vec<Bar> = (0..5 * 24).map(hour).collect();
        let mut binning = Binning::new(Timeframe::D1, Timeframe::H1, &clock, Vec::new()).unwrap();
        let mut days = Vec::new();
        hours.iter().for_each(|bar| binning.push(bar, |bin| days.push(bin)).unwrap());
        assert_eq!(days.len(), 5);
        let placed_early = |symbol: &str, hours: &[Bar], own: &[Bar], early_ns: i64| {
            let base = spooled(Timeframe::H1, hours, folder.path());
            let given = spooled(Timeframe::D1, own, folder.path());
            let summary = ReadSummary::new(&given, Vec::new(), symbol.to_owned(), Vec::new()).unwrap();
            let mut account = OwnBars::unplaced(summary, Timeframe::H1);
            account.summary.early_ns = early_ns;
            place(&given, &base, &clock, &mut account, folder.path()).map(|bars| (bars, account))
        };
        let placed = |hours: &[Bar], own: &[Bar]| placed_early("X", hours, own, 0);
        // By their dates: one day is missing, one has another close, and two have no hours.
        let day = |day: usize| {
            let open_time = MONDAY_NS + day as i64 * DAY_NS;
            Bar {
                open_time,
                close: days[day.min(4)].close + if day == 3 { 0.01 } else { 0.0 },
                ..days[day.min(4)].clone()
            }
        };
        let own: Vec<Bar> = [0, 2, 3, 4, 5, 6].map(day).to_vec();
        let (found, account) = placed(&hours, &own).unwrap();
        let mut bars = Bars::with_capacity(Timeframe::D1, 0);
        found.read(0..found.len(), &mut bars).unwrap();
        assert_eq!(bars.open_time, [0, 2, 3, 4].map(|day: usize| days[day].open_time));
        assert_eq!(bars.close, [0, 2, 3, 4].map(|place: usize| day(place).close));
        assert_eq!((account.same, account.different.count, account.made, account.not_covered), (3, 1, 1, 2));
        let text = account.to_string();
        assert!(text.starts_with("X D1: 3 of 4 own bars equal the bars made of H1; 1 differs, the first at"), "{text}");
        assert!(text.contains("2018-07-04T21:00:00Z (close ") && text.contains("; 1 bar made of H1, which"), "{text}");
        assert_eq!(account.warning(), None);
        // Of the first day hours are missing.
        let (found, account) = placed(&hours[5..], &days).unwrap();
        assert_eq!((found.len(), account.same, account.partial, account.used()), (5, 4, 1, 5));

        let late: Vec<Bar> = own.iter().map(|bar| Bar { open_time: bar.open_time + HOUR_NS, ..bar.clone() }).collect();
        let error = placed(&hours, &late).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("X: its own D1 bars have one that opens at 2018-07-02T01:00:00Z, and no"), "{error}");

        // Days of New York that end hours after those of the broker, of which one differs: four
        // cannot show that they have later prices.
        let early_ns = 4 * HOUR_NS;
        let error = placed_early("EURUSD", &hours, &own, early_ns).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("EURUSD: its own D1 bars end after those that H1 bars make, by their"), "{error}");
        let later = &hours[5..];
        for (symbol, hours, own, same) in
            [("EURUSD", &hours[..], &days, 5), ("EURUSD", later, &days, 4), ("AAPL", &hours[..], &own, 3)]
        {
            let (_, account) = placed_early(symbol, hours, own, early_ns).unwrap();
            assert_eq!(account.same, same, "{symbol}");
        }
    }

    /// MetaTrader dates its weeks on Sundays, on which no bin of a week opens.
    #[test]
    fn weeks_of_sundays_are_those_from_the_next_day_on() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["new-york+7", "UTC", "America/New_York"] {
            let clock: BinClock = name.parse().unwrap();
            let first = clock.utc_ns(MONDAY_NS);
            let hour = |hour: i64| {
                let (open_time, open) = (first + hour * HOUR_NS, price(hour));
                Bar { open_time, open, high: open + 0.1, low: open - 0.1, close: open, volume: 1.0, ..Bar::default() }
            };
            let hours: Vec<Bar> = (0..5 * 7 * 24).map(hour).collect();
            let mut binning = Binning::new(Timeframe::W1, Timeframe::H1, &clock, Vec::new()).unwrap();
            let mut weeks = Vec::new();
            hours.iter().for_each(|bar| binning.push(bar, |bin| weeks.push(bin)).unwrap());
            assert_eq!(weeks.len(), 5);
            let placed_by = |symbol: &str, day: &dyn Fn(usize) -> i64| {
                let dated = |(week, bar): (usize, &Bar)| {
                    let open_time = MONDAY_NS + (7 * week as i64 + day(week)) * DAY_NS;
                    Bar { open_time, ..bar.clone() }
                };
                let own: Vec<Bar> = weeks.iter().enumerate().map(dated).collect();
                let base = spooled(Timeframe::H1, &hours, folder.path());
                let given = spooled(Timeframe::W1, &own, folder.path());
                let summary = ReadSummary::new(&given, Vec::new(), symbol.to_owned(), Vec::new()).unwrap();
                let mut account = OwnBars::unplaced(summary, Timeframe::H1);
                place(&given, &base, &clock, &mut account, folder.path()).map(|_| (account.same, account.made))
            };
            let placed = |symbol: &str, is_sunday: &dyn Fn(usize) -> bool| {
                placed_by(symbol, &|week| if is_sunday(week) { -1 } else { 0 })
            };
            for sundays in [5, 3] {
                assert_eq!(placed("EURUSD", &|week| week < sundays).unwrap(), (5, 0), "{name} {sundays}");
            }
            for (symbol, sundays) in [("EURUSD", 2), ("BTCUSD", 5)] {
                let error = placed(symbol, &|week| week < sundays).unwrap_err().to_string();
                assert!(error.contains("have one that opens at 2018-07-01T00:00:00Z, and no W1 bar opens"), "{error}");
            }
            // Sundays that end weeks, as pandas dates them.
            let error = placed_by("EURUSD", &|_| 6).unwrap_err().to_string();
            assert!(error.contains("its own W1 bars have the closes of the weeks before"), "{name}: {error}");
        }
    }

    #[test]
    fn closes_of_later_times_show_and_those_of_another_vendor_do_not() {
        for (late, noise, expected) in
            [(0, 0.0, None), (0, 0.001, None), (1, 0.0, Some(1)), (7, 0.001, Some(7)), (-2, 0.0, None)]
        {
            let mut closes = Closes::new(Timeframe::H1);
            (0..200).for_each(|hour| closes.add_base(hour * HOUR_NS, price(hour)));
            (10..150).for_each(|hour| closes.add_own(hour * HOUR_NS, price(hour + late) + noise, price(hour)));
            assert_eq!(closes.later_by(), expected.map(|hours: i64| hours * HOUR_NS), "{late}");
        }
    }

    // Half of the closes were those of the same time, and all together differed as much.
    #[test]
    fn closes_of_later_times_show_where_clocks_differ_in_summer_alone() {
        let mut closes = Closes::new(Timeframe::H1);
        (0..8_800).for_each(|hour| closes.add_base(hour * HOUR_NS, price(hour)));
        let late = |hour: i64| i64::from((2_000..7_000).contains(&hour));
        (0..8_700).for_each(|hour| closes.add_own(hour * HOUR_NS, price(hour + late(hour)), price(hour)));
        assert_eq!(closes.later_by(), Some(HOUR_NS));
    }

    // Bars that are shorter than half an hour, stamped a bar early, were taken.
    #[test]
    fn closes_of_the_next_bar_show() {
        for (late, expected) in [(0, None), (1, Some(5 * MINUTE_NS)), (-1, None)] {
            let mut closes = Closes::new(Timeframe::M5);
            (0..6_000).for_each(|minute| closes.add_base(minute * MINUTE_NS, price(minute / 5)));
            (10..1_000).for_each(|bar| closes.add_own(bar * 5 * MINUTE_NS, price(bar + late), price(bar)));
            assert_eq!(closes.later_by(), expected, "{late}");
        }
    }
}
