//! Targets by two prices and a time, of which one is reached first.

use std::fmt;
use std::str::FromStr;

use crate::bars::Bars;

/// Begins the name of the target.
pub(crate) const TRIPLE_BARRIER: &str = "triple_barrier:";

/// A price above the close at a sample, one below it, and the end of the horizon: the first that
/// the bars after the sample reach decides its class (López de Prado, Advances in Financial Machine
/// Learning, 2018, section 3.4, there by closes).
///
/// The class is 1 where a high reaches the upper price first, -1 where a low reaches the lower one,
/// and 0 where neither does within the horizon. A bar that opens beyond a price reaches that one
/// first. Of a bar whose high and low reach both nobody knows which came first: the target is not
/// known. The label ends with the bar that decides it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TripleBarrier {
    /// Distance of the upper price from the close, above 0.
    pub up: f64,
    /// Distance of the lower price, above 0.
    pub down: f64,
    /// Unit of both.
    pub unit: BarrierUnit,
}

/// Unit of the distance of a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierUnit {
    /// `return`: a part of the close; 0.002 is 0.2 %.
    Return,
    /// `pips`: sizes of a pip.
    Pips,
    /// `atr`: Wilder's mean over 14 base bars of the true range, as in the feature `atr_14`. Before
    /// it begins, targets are not known.
    Atr,
}

/// The first bar that decides a label.
pub(crate) struct Decision {
    /// Class, NaN where it is not known.
    pub(crate) class: f64,
    /// Bars from the sample's own to the one that decides.
    pub(crate) bars: usize,
}

impl BarrierUnit {
    const ALL: [BarrierUnit; 3] = [BarrierUnit::Return, BarrierUnit::Pips, BarrierUnit::Atr];

    const fn name(self) -> &'static str {
        match self {
            BarrierUnit::Return => "return",
            BarrierUnit::Pips => "pips",
            BarrierUnit::Atr => "atr",
        }
    }
}

impl TripleBarrier {
    /// Label of the sample at the close of bar `t`, decided by the `horizon` bars after it. `unit`
    /// is the size of the unit in prices.
    ///
    /// # Panics
    /// When there are fewer bars.
    pub(crate) fn decide(&self, bars: &Bars, t: usize, horizon: usize, unit: f64) -> Decision {
        let close = bars.close[t];
        let (upper, lower) = (close + self.up * unit, close - self.down * unit);
        if unit.is_nan() {
            return Decision { class: f64::NAN, bars: horizon };
        }
        for bars_after in 1..=horizon {
            let k = t + bars_after;
            let class = match (bars.high[k] >= upper, bars.low[k] <= lower) {
                (false, false) => continue,
                (true, false) => 1.0,
                (false, true) => -1.0,
                (true, true) if bars.open[k] >= upper => 1.0,
                (true, true) if bars.open[k] <= lower => -1.0,
                (true, true) => f64::NAN,
            };
            return Decision { class, bars: bars_after };
        }
        Decision { class: 0.0, bars: horizon }
    }
}

impl fmt::Display for TripleBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TRIPLE_BARRIER}{}:{}:{}", self.up, self.down, self.unit.name())
    }
}

impl FromStr for TripleBarrier {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.strip_prefix(TRIPLE_BARRIER).ok_or(())?.split(':').collect();
        let [up, down, unit] = parts[..] else { return Err(()) };
        let distance = |text: &str| text.parse().ok().filter(|&number: &f64| number > 0.0 && number.is_finite());
        Ok(TripleBarrier {
            up: distance(up).ok_or(())?,
            down: distance(down).ok_or(())?,
            unit: BarrierUnit::ALL.into_iter().find(|own| own.name() == unit).ok_or(())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Bar;
    use crate::time::timeframe::Timeframe;

    #[test]
    fn the_first_barrier_that_is_reached_decides() {
        // Open, high and low of three bars after a close of 100.
        let cases = [
            ([[100.0, 101.0, 99.0], [100.0, 102.0, 99.0], [100.0, 103.0, 90.0]], 1.0, 2),
            ([[100.0, 101.9, 98.0], [100.0, 105.0, 99.0], [100.0, 101.0, 99.0]], -1.0, 1),
            ([[100.0, 101.0, 99.0], [100.0, 101.0, 99.0], [100.0, 101.0, 99.0]], 0.0, 3),
            ([[103.0, 103.0, 97.0], [0.0; 3], [0.0; 3]], 1.0, 1),
            ([[98.0, 103.0, 97.0], [0.0; 3], [0.0; 3]], -1.0, 1),
            ([[100.0, 103.0, 97.0], [0.0; 3], [0.0; 3]], f64::NAN, 1),
        ];
        let barrier = TripleBarrier { up: 2.0, down: 2.0, unit: BarrierUnit::Pips };
        for (after, class, decided) in cases {
            let mut bars = Bars::with_capacity(Timeframe::M1, 0);
            bars.push(Bar { close: 100.0, high: 200.0, ..Bar::default() });
            for (open_time, [open, high, low]) in (1..).zip(after) {
                bars.push(Bar { open_time, open, high, low, ..Bar::default() });
            }
            let found = barrier.decide(&bars, 0, 3, 1.0);
            assert_eq!((found.class.to_bits(), found.bars), (class.to_bits(), decided), "{after:?}");
            assert!(barrier.decide(&bars, 0, 3, f64::NAN).class.is_nan());
        }
    }

    #[test]
    fn names_are_read_back() {
        for text in ["triple_barrier:2:1.5:atr", "triple_barrier:0.002:0.001:return", "triple_barrier:10:10:pips"] {
            assert_eq!(text.parse::<TripleBarrier>().unwrap().to_string(), text);
        }
        for text in
            ["triple_barrier:2:1.5", "triple_barrier:0:1:atr", "triple_barrier:1:inf:pips", "triple_barrier:1:1:x"]
        {
            assert_eq!(text.parse::<TripleBarrier>(), Err(()), "{text}");
        }
    }
}
