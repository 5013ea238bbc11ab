//! Doubts about bars that are followed: their clock, pauses and prices, beside the bars that were
//! known before.

use crate::bars::{Bar, Bars};
use crate::clean::fillers::KnownRun;
use crate::clean::gaps::Gap;
use crate::clean::jumps::PAIR_SPACING_MAX_NS;
use crate::clean::weekly_close::WeekEnds;
use crate::parse::format_name::FormatName;
use crate::parse::symbol::is_currency_pair;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, HOUR_NS, display_utc};
use crate::time::zone::Zone;

/// Bars that were known before with which rows are compared: two years of minutes.
const KNOWN_MAX: usize = 1 << 20;
/// Relative difference of equal prices, whose noise is not rounded off.
const PRICE_TOLERANCE: f64 = 1e-6;
/// Largest factor between the closes of neighbouring bars of one instrument.
const CLOSE_FACTOR_MAX: f64 = 10.0;
/// Largest factor between such closes of a pair of currencies where bars are shorter than a day.
const PAIR_CLOSE_FACTOR_MAX: f64 = 1.05;
/// Largest factor between such closes of a pair of currencies where bars are days or longer.
const PAIR_DAYS_CLOSE_FACTOR_MAX: f64 = 1.1;
/// Time of known bars that shows the pauses of a market, its weekends among them.
const PAUSES_SHOWN_NS: i64 = 14 * DAY_NS;

/// The last bars that were known before, without further columns.
#[derive(Debug, Default)]
pub struct KnownBars(Vec<Bar>);

impl KnownBars {
    /// The last ones of `bars`.
    pub fn new(bars: &Bars) -> Self {
        let first = bars.len().saturating_sub(KNOWN_MAX);
        KnownBars((first..bars.len()).map(|k| bars.without_columns(k)).collect())
    }

    /// The run of flat bars of `base` without volume that the last ones are; `None` without bars.
    pub(super) fn quiet_run(&self, base: Timeframe) -> Option<KnownRun> {
        let last = self.0.last()?;
        let is_of_run = |(place, bar): &(i64, &Bar)| {
            let is_flat = bar.prices().into_iter().all(|price| price == last.close);
            is_flat && bar.volume == 0.0 && last.open_time - bar.open_time == place * base.duration_ns()
        };
        let bars = (0..).zip(self.0.iter().rev()).take_while(is_of_run).count() as i64;
        Some(KnownRun { open_time: last.open_time, close: last.close, bars })
    }

    /// Longest times between neighbouring bars of `base`; `None` for too few bars to show the
    /// pauses of their market.
    fn longest_steps(&self, base: Timeframe) -> Option<LongestSteps> {
        let span_ns = self.0.last()?.open_time - self.0.first()?.open_time;
        if span_ns < PAUSES_SHOWN_NS {
            return None;
        }
        let mut longest = LongestSteps { weekend_ns: 0, in_week_ns: 0, in_day_ns: 0 };
        for pair in self.0.windows(2) {
            let pause = Gap { from: pair[0].open_time + base.duration_ns(), to: pair[1].open_time };
            let step_ns = pair[1].open_time - pair[0].open_time;
            if pause.spans_a_saturday_noon() {
                longest.weekend_ns = longest.weekend_ns.max(step_ns);
            } else if step_ns > longest.in_day_ns && !pause.is_of_a_holiday() {
                longest.in_week_ns = longest.in_week_ns.max(step_ns);
                if is_within_a_day(pair[0].open_time, pair[1].open_time) {
                    longest.in_day_ns = step_ns;
                }
            }
        }
        Some(longest)
    }

    /// The ends of the weeks of bars of `base`.
    fn week_ends(&self, base: Timeframe) -> WeekEnds {
        let mut ends = WeekEnds::new(base);
        for pair in self.0.windows(2) {
            ends.add_pause(pair[0].open_time, pair[1].open_time, base.duration_ns());
        }
        ends
    }
}

/// Longest times from the opening of a known bar to that of the next.
#[derive(Clone, Copy, Debug)]
struct LongestSteps {
    /// With a Saturday noon UTC between them.
    weekend_ns: i64,
    /// Within a week, except for holidays.
    in_week_ns: i64,
    /// Between bars of one day in UTC, which leaves out the nights of a market.
    in_day_ns: i64,
}

/// Doubts about bars as they come, each a sentence without the name of their source.
#[derive(Debug)]
pub(super) struct BarDoubts {
    base: Timeframe,
    /// True for bars of a pair of currencies.
    is_pair: bool,
    /// Bars that rows of their times must equal; none once one was another.
    known: KnownBars,
    longest_steps: Option<LongestSteps>,
    /// Close of the last bar, known before or not.
    last_close: Option<f64>,
    has_told_scale: bool,
    /// The last known bar after more trades.
    finished: Option<Bar>,
    /// The ends of weeks that rows without offset show; `None` once the clock was doubted, and
    /// where weeks show none.
    week_ends: Option<WeekEnds>,
    /// The last row's time, if it is without offset.
    last_wall_ns: Option<i64>,
    /// True once a bar that is not known had a volume, or prices that need one.
    has_shown_volume: bool,
}

impl BarDoubts {
    /// Nothing so far of bars of `base`, and no known ones.
    pub(super) fn new(base: Timeframe, symbol: Option<&str>) -> Self {
        BarDoubts {
            base,
            is_pair: symbol.is_some_and(is_currency_pair),
            known: KnownBars::default(),
            longest_steps: None,
            last_close: None,
            has_told_scale: false,
            finished: None,
            week_ends: (base < Timeframe::D1).then(|| WeekEnds::new(base)),
            last_wall_ns: None,
            has_shown_volume: false,
        }
    }

    /// The same beside the `known` bars.
    pub(super) fn comparing_with(self, known: KnownBars) -> Self {
        let last_close = known.0.last().map(|known| known.close);
        let base = self.base;
        // The weeks of shares show no clock.
        let week_ends = self.week_ends.filter(|_| !known.week_ends(base).close_elsewhere());
        BarDoubts { longest_steps: known.longest_steps(base), known, last_close, week_ends, ..self }
    }

    /// The last of the known bars, where a row since the last call has more of it.
    pub(super) fn take_finished_bar(&mut self) -> Option<Bar> {
        self.finished.take()
    }

    /// True if `bar` has the prices of the last known one, and its time.
    pub(super) fn has_known_prices(&self, bar: &Bar) -> bool {
        let known = self.known.0.last().filter(|known| known.open_time == bar.open_time);
        known.is_some_and(|known| !has_other_price(known, bar))
    }

    /// Takes the time of a row without offset, `close_delay_ns` before its bar closes; true if a
    /// week has ended before it.
    pub(super) fn ends_week(&mut self, wall_ns: i64, close_delay_ns: i64) -> bool {
        let before = self.last_wall_ns.replace(wall_ns);
        let (Some(ends), Some(before)) = (&mut self.week_ends, before) else { return false };
        ends.add_pause(before, wall_ns, close_delay_ns)
    }

    /// A doubt once several weeks of the rows end as on another clock than `zone`, that they are
    /// read by.
    pub(super) fn clock(&mut self, format: FormatName, zone: &Zone) -> Option<String> {
        let doubt = self.week_ends.as_ref()?.doubt(format, zone)?;
        self.week_ends = None;
        Some(format!("{doubt}; state the zone of these bars, and ingest those before anew with their zone stated"))
    }

    /// True if a bar has the prices of the known one of its time.
    pub(super) fn is_repeat(&self, bar: &Bar) -> bool {
        let place = self.known.0.binary_search_by_key(&bar.open_time, |known| known.open_time);
        place.is_ok_and(|place| {
            let mut pairs = bar.prices().into_iter().zip(self.known.0[place].prices());
            pairs.all(|(own, known)| !is_other_price(own, known))
        })
    }

    /// A doubt at the first bar that has other prices than the known one of its time. The last
    /// known one may have been unfinished.
    pub(super) fn known_bar(&mut self, bar: &Bar, line: u64) -> Option<String> {
        let place = self.known.0.binary_search_by_key(&bar.open_time, |known| known.open_time).ok()?;
        let is_last = place + 1 == self.known.0.len();
        let has_values = bar.columns.iter().all(|value| value.is_finite());
        if is_last && has_values && has_more_trades(&self.known.0[place], bar) {
            self.finished = Some(bar.clone());
            return None;
        }
        let pairs = bar.prices().into_iter().zip(self.known.0[place].prices());
        let named = ["open", "high", "low", "close"].into_iter().zip(pairs);
        let mut unlike = named.filter(|(_, (own, known))| is_other_price(*own, *known));
        let (name, (own, known)) = unlike.next()?;
        self.known = KnownBars::default();
        Some(format!(
            "line {line}: the bar that opens at {} has the {name} {own}, and the bars before have {known} there: they were changed since, or are those of another instrument; the ones of before count",
            display_utc(bar.open_time)
        ))
    }

    /// A doubt about days with an adjusted price, the first of which opens at `open_time`, of which
    /// no row was one of the bars before: no price shows if all were adjusted anew since.
    pub(super) fn common_bars(&self, open_time: i64) -> Option<String> {
        (!self.known.0.is_empty() && self.base >= Timeframe::D1).then(|| {
            format!(
                "the bars from {} on have no bar in common with those of before: if a dividend or split since has changed adjusted prices, nothing shows it, and predictions across the join are wrong; begin with some bars of before",
                display_utc(open_time)
            )
        })
    }

    /// A doubt about a pause of an hour or more, before the bar that opens at `open_time` and after
    /// the `earlier` one, that is longer than those of the known bars: over a weekend than their
    /// weekends, else than their pauses within a day, or within a week. A history of some months
    /// need not show the great holidays, nor the hour by which a change of the clocks makes a pause
    /// longer.
    pub(super) fn pause(&self, open_time: i64, earlier: Option<i64>) -> Option<String> {
        let (earlier, longest) = (earlier?, self.longest_steps?);
        let pause = Gap { from: earlier + self.base.duration_ns(), to: open_time };
        let (longest_ns, place) = match pause.spans_a_saturday_noon() {
            true => (longest.weekend_ns.max(DAY_NS), ""),
            false if is_within_a_day(earlier, open_time) => (longest.in_day_ns, " within a day"),
            false => (longest.in_week_ns, " within a week"),
        };
        let step_ns = open_time - earlier;
        let is_of_the_clocks = || step_ns <= longest_ns + HOUR_NS && are_clocks_moved(earlier, open_time);
        // `ingest` tells shorter pauses apart as those of minutes.
        let is_short = pause.duration_ns() < HOUR_NS;
        if is_short || step_ns <= longest_ns || pause.is_of_a_holiday() || is_of_the_clocks() {
            return None;
        }
        Some(format!(
            "there is no bar from {} to {}, and the bars before have no pause of that length{place}: are bars missing, or was it a holiday?",
            display_utc(pause.from),
            display_utc(pause.to)
        ))
    }

    /// A doubt about the volumes of bars of which features need them: at the first bar with several
    /// prices, if neither it nor one before it has a volume.
    pub(super) fn volume(&mut self, bar: &Bar) -> Option<String> {
        let is_quiet = bar.volume == 0.0 && bar.high == bar.low;
        if is_quiet || std::mem::replace(&mut self.has_shown_volume, true) || bar.volume > 0.0 {
            return None;
        }
        Some(format!(
            "no bar up to the one that opens at {} has a volume, and those before have: features of the volume are those of a volume of 0; give bars with volumes",
            display_utc(bar.open_time)
        ))
    }

    /// A doubt at the first bar whose close is far from that of the bar before it, which opens at
    /// `earlier`.
    pub(super) fn scale(&mut self, bar: &Bar, earlier: Option<i64>) -> Option<String> {
        let before = self.last_close.replace(bar.close)?;
        let factor = before.max(bar.close) / before.min(bar.close);
        if self.has_told_scale || factor <= PAIR_CLOSE_FACTOR_MAX {
            return None;
        }
        let is_near = earlier.is_some_and(|earlier| bar.open_time - earlier <= PAIR_SPACING_MAX_NS);
        let factor_max = match self.is_pair && is_near {
            true if self.base < Timeframe::D1 => PAIR_CLOSE_FACTOR_MAX,
            true => PAIR_DAYS_CLOSE_FACTOR_MAX,
            false => CLOSE_FACTOR_MAX,
        };
        if factor <= factor_max {
            return None;
        }
        self.has_told_scale = true;
        Some(format!(
            "the bar that opens at {} closes at {}, and the bar before it at {before}: is it one of another instrument, or in another unit?",
            display_utc(bar.open_time),
            bar.close
        ))
    }
}

/// True if bars that open at two instants are of one day in UTC.
fn is_within_a_day(earlier: i64, later: i64) -> bool {
    earlier.div_euclid(DAY_NS) == later.div_euclid(DAY_NS)
}

/// True if the clock of New York or London is moved between two instants.
fn are_clocks_moved(from_utc_ns: i64, to_utc_ns: i64) -> bool {
    ["America/New_York", "Europe/London"].iter().any(|name| {
        let zone: Zone = name.parse().expect("both zones are known");
        zone.is_moved_between(from_utc_ns, to_utc_ns)
    })
}

/// True if `later` may be the `known` bar after more trades. Noise of prices is no sign of them,
/// and neither is a volume where none was known.
fn has_more_trades(known: &Bar, later: &Bar) -> bool {
    let has_more_volume = known.volume > 0.0 && known.volume < later.volume;
    (has_other_price(known, later) || has_more_volume) && known.is_continued_by(later)
}

/// True if `bar` has another price than the `known` one. Noise makes none.
fn has_other_price(known: &Bar, bar: &Bar) -> bool {
    let mut prices = bar.prices().into_iter().zip(known.prices());
    prices.any(|(own, known)| is_other_price(own, known))
}

fn is_other_price(own: f64, known: f64) -> bool {
    (own - known).abs() > PRICE_TOLERANCE * known.abs()
}
