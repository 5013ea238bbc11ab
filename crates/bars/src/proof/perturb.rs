use crate::bars::{Bar, Bars};
use crate::clean::gap::GapPolicy;
use crate::clean::gaps::Gap;
use crate::error::look_ahead::Perturbation;
use crate::time::bin_clock::BinClock;

/// A future that did not happen, drawn at random.
pub(crate) struct OtherFuture {
    pub(crate) random: SplitMix64,
    pub(crate) perturbation: Perturbation,
    /// The time at which it begins: no bar of it closes by then.
    pub(crate) time: i64,
    /// This many bars follow at least, without a forbidden hole among or before them, so that a
    /// horizon stays full.
    pub(crate) bars_min: usize,
    /// Clock of the bins of longer timeframes.
    pub(crate) bins: BinClock,
    pub(crate) holes: GapPolicy,
}

impl OtherFuture {
    /// The bars that had closed by the time, and others after them.
    pub(crate) fn replace_in(mut self, bars: &Bars) -> Bars {
        let known = bars.open_time.partition_point(|&open_time| bars.close_after(open_time) <= self.time);
        let mut changed = bars.clone();
        changed.truncate(known);
        match self.perturbation {
            Perturbation::Values => (known..bars.len()).for_each(|k| changed.push(self.other_values(bars.bar(k)))),
            Perturbation::Times => self.push_elsewhere(&mut changed, bars),
        }
        changed
    }

    /// Adds bars of other values at other times: fewer or more, closer together or farther apart.
    fn push_elsewhere(&mut self, changed: &mut Bars, bars: &Bars) {
        let (known, later) = (changed.len(), bars.len() - changed.len());
        if bars.is_empty() {
            return;
        }
        for k in 0..self.bars_min + self.random.below(later + 1) {
            let model = bars.bar((known + self.random.below(later.max(1))).min(bars.len() - 1));
            let open_time = self.next_open_time(changed, bars.open_time.get(known + k), k < self.bars_min);
            changed.push(Bar { open_time, ..self.other_values(model) });
        }
    }

    /// When the next bar opens instead of at `true_time`: at a multiple of its length on the clock
    /// of the bins, so that it lies in one bin of every timeframe.
    fn next_open_time(&mut self, bars: &Bars, true_time: Option<&i64>, is_needed: bool) -> i64 {
        let duration_ns = bars.timeframe.duration_ns();
        let last_close = bars.len().checked_sub(1).map_or(self.time, |last| bars.close_time(last));
        let earliest = last_close.max(self.time);
        let whole_bin = |time_ns: i64| self.bins.next_whole_bin(bars.timeframe, time_ns);
        let soonest = whole_bin(earliest);
        let missing = match self.random.below(8) {
            0 => self.random.below(300),
            1 => self.random.below(5),
            _ => 0,
        };
        let may_be = |open_time: &i64| !is_needed || !self.holes.forbids(Gap { from: last_close, to: *open_time });
        let missed_ns = missing as i64 * duration_ns;
        let candidates = [whole_bin(soonest + missed_ns), soonest, whole_bin(soonest + duration_ns)];
        let other = candidates.into_iter().find(|open_time| Some(open_time) != true_time && may_be(open_time));
        other.unwrap_or(if may_be(&soonest) { soonest } else { earliest })
    }

    fn other_values(&mut self, mut bar: Bar) -> Bar {
        let mut factor = || (self.random.unit() - 0.5).exp();
        let (open, close) = (bar.open * factor(), bar.close * factor());
        let high = open.max(close) * factor().max(1.0);
        let low = open.min(close) * factor().min(1.0);
        let (volume, spread) = ((bar.volume + 1.0) * factor(), (bar.spread + bar.close * 1e-4) * factor());
        bar.columns.iter_mut().for_each(|value| *value = *value * factor() + factor());
        Bar { open, high, low, close, volume, spread, ..bar }
    }
}

/// Random numbers from a seed: `SplitMix64` (Steele, Lea and Flood, Fast splittable pseudorandom
/// number generators, 2014).
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In 0..1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// In 0..`end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::timeframe::Timeframe;
    use crate::time::timestamp::MINUTE_NS;

    fn minutes(len: i64) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        for minute in 0..len {
            let (open, close) = (1.5, 1.25);
            bars.push(Bar {
                open_time: minute * MINUTE_NS,
                open,
                high: 2.0,
                low: 1.0,
                close,
                volume: 3.0,
                spread: 0.1,
                columns: Box::new([-2.0, 0.0]),
            });
        }
        bars
    }

    fn other(bars: &Bars, perturbation: Perturbation, seed: u64) -> Bars {
        let holes = GapPolicy { longest_ns: 2 * MINUTE_NS, ..GapPolicy::default() };
        let (random, bins) = (SplitMix64(seed), BinClock::default());
        OtherFuture { random, perturbation, time: 10 * MINUTE_NS, bars_min: 6, bins, holes }.replace_in(bars)
    }

    #[test]
    fn what_had_closed_stays_and_all_else_changes() {
        let bars = minutes(40);
        for seed in 0..50 {
            for perturbation in Perturbation::ALL {
                let changed = other(&bars, perturbation, seed);
                (0..10).for_each(|k| assert_eq!(changed.bar(k), bars.bar(k)));
                assert!(changed.len() >= 16 && changed.open_time[10] >= 10 * MINUTE_NS);
                for k in 10..changed.len() {
                    let Bar { open, high, low, close, volume, spread, .. } = changed.bar(k);
                    assert!(low > 0.0 && low <= open.min(close) && high >= open.max(close), "{:?}", changed.bar(k));
                    assert!(
                        open != 1.5 && close != 1.25 && high != 2.0 && low != 1.0 && volume != 3.0 && spread != 0.1
                    );
                }
            }
            assert_eq!(other(&bars, Perturbation::Values, seed).open_time, bars.open_time);
            let shifted = other(&bars, Perturbation::Times, seed);
            assert!(shifted.open_time[10..16].iter().zip(&bars.open_time[10..]).all(|(other, time)| other != time));
            assert!(shifted.open_time[9..16].windows(2).all(|pair| pair[1] - pair[0] <= 3 * MINUTE_NS));
            assert!(shifted.open_time.iter().all(|open_time| open_time % MINUTE_NS == 0));
        }
    }

    /// February closed after 28 days, and was taken as open where a month was one of 31.
    #[test]
    fn a_short_bin_has_closed_at_its_end() {
        let day_ns = 1_440 * MINUTE_NS;
        let mut months = Bars::with_capacity(Timeframe::MN1, 0);
        for day in [17_532, 17_563, 17_591] {
            months.push(Bar { open_time: day * day_ns, ..minutes(1).bar(0) });
        }
        let holes = GapPolicy { longest_ns: 40 * day_ns, ..GapPolicy::default() };
        let (random, bins, perturbation) = (SplitMix64(1), BinClock::default(), Perturbation::Values);
        let future = OtherFuture { random, perturbation, time: 17_591 * day_ns, bars_min: 0, bins, holes };
        let changed = future.replace_in(&months);
        assert_eq!(changed.bar(1), months.bar(1));
        assert_ne!(changed.bar(2), months.bar(2));
    }

    #[test]
    fn seeds_differ_and_repeat() {
        let bars = minutes(20);
        assert_eq!(other(&bars, Perturbation::Times, 1), other(&bars, Perturbation::Times, 1));
        assert_ne!(other(&bars, Perturbation::Times, 1), other(&bars, Perturbation::Times, 2));
    }

    #[test]
    fn a_recording_that_ends_before_the_time_goes_on() {
        assert_eq!(other(&minutes(7), Perturbation::Values, 1), minutes(7));
        let longer = other(&minutes(7), Perturbation::Times, 1);
        assert!(longer.len() == 13 && longer.open_time[7] >= 10 * MINUTE_NS, "{longer:?}");
        assert!(other(&minutes(0), Perturbation::Times, 1).is_empty());
    }
}
