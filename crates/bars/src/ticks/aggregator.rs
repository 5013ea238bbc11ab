use std::ops::Range;

use crate::ticks::bar_rule::BarRule;
use crate::ticks::options::TickVolume;
use crate::time::bin_clock::BinClock;

/// Volumes of coins have eight decimals.
const VOLUME_POINTS: f64 = 1e8;
/// Volumes from here on have fewer exact decimals, and stay as they are.
const VOLUME_MAX: f64 = 1e7;

/// A usable tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Nanoseconds since 1970 UTC.
    pub(crate) time_ns: i64,
    pub(crate) price: f64,
    /// Ask less bid; NaN where one of them is not known.
    pub(crate) spread: f64,
    pub(crate) volume: f64,
}

/// A bar made from ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TickBar {
    /// Start of the bin of a timeframe, or time of the first tick: nanoseconds since 1970 UTC.
    pub open_time: i64,
    /// End of the bin of a timeframe, or time of the last tick.
    pub close_time: i64,
    /// Price of the first tick.
    pub open: f64,
    /// Highest price.
    pub high: f64,
    /// Lowest price.
    pub low: f64,
    /// Price of the last tick.
    pub close: f64,
    /// Number of ticks, or sum of their volumes.
    pub volume: f64,
    /// Ask less bid of the last tick that has both; 0 if none has.
    pub spread: f64,
    /// Number of ticks.
    pub ticks: u64,
}

/// Groups ticks, which come in order of time, into bars.
pub(crate) struct Aggregator {
    rule: BarRule,
    bins: BinClock,
    volume: TickVolume,
    /// The bar under way.
    bar: Option<TickBar>,
}

impl Aggregator {
    pub(crate) fn new(rule: BarRule, bins: BinClock, volume: TickVolume) -> Self {
        Aggregator { rule, bins, volume, bar: None }
    }

    /// Adds a tick; gives the bar that ends with it, or before it.
    pub(crate) fn push(&mut self, tick: &Tick) -> Option<TickBar> {
        let ended = match (self.rule, &self.bar) {
            (BarRule::Timeframe(_), Some(bar)) if tick.time_ns >= bar.close_time => self.bar.take(),
            _ => None,
        };
        let amount = match self.volume {
            TickVolume::Ticks => 1.0,
            TickVolume::Sum => tick.volume,
        };
        match &mut self.bar {
            Some(bar) => bar.add(tick, amount),
            None => self.bar = Some(TickBar::new(tick, amount, self.bin(tick.time_ns))),
        }
        let bar = self.bar.as_mut()?;
        let is_full = match self.rule {
            BarRule::Timeframe(_) => return ended,
            BarRule::Ticks(count) => bar.ticks >= count.get(),
            BarRule::Volume(volume) => bar.volume >= volume,
        };
        bar.close_time = tick.time_ns;
        if is_full { self.bar.take() } else { None }
    }

    /// The bar of a timeframe that the last ticks are in.
    pub(crate) fn finish(&mut self) -> Option<TickBar> {
        if self.rule.has_fixed_length() { self.bar.take() } else { None }
    }

    /// Ticks behind the last bar that is full.
    pub(crate) fn unused_ticks(&self) -> u64 {
        self.bar.map_or(0, |bar| bar.ticks)
    }

    fn bin(&self, time_ns: i64) -> Range<i64> {
        match self.rule {
            BarRule::Timeframe(timeframe) => self.bins.bin(timeframe, time_ns),
            BarRule::Ticks(_) | BarRule::Volume(_) => time_ns..time_ns,
        }
    }
}

impl TickBar {
    fn new(tick: &Tick, amount: f64, bin: Range<i64>) -> Self {
        TickBar {
            open_time: bin.start,
            close_time: bin.end,
            open: tick.price,
            high: tick.price,
            low: tick.price,
            close: tick.price,
            volume: amount,
            spread: if tick.spread.is_nan() { 0.0 } else { tick.spread },
            ticks: 1,
        }
    }

    /// The bar without the noise of binary fractions in a sum of volumes.
    pub(crate) fn with_decimal_volume(self) -> Self {
        let volume = (self.volume * VOLUME_POINTS).round() / VOLUME_POINTS;
        if self.volume < VOLUME_MAX { TickBar { volume, ..self } } else { self }
    }

    fn add(&mut self, tick: &Tick, amount: f64) {
        self.high = self.high.max(tick.price);
        self.low = self.low.min(tick.price);
        self.close = tick.price;
        self.volume += amount;
        self.ticks += 1;
        if !tick.spread.is_nan() {
            self.spread = tick.spread;
        }
    }
}
