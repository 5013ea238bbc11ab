//! Which outputs of a layer the layer above does not see.
//!
//! True if a number is dropped is a pure function of (seed, step, timeframe, window, layer, t,
//! unit). Samples that share a window therefore share its mask, however they are spread over
//! batches, shards and threads, and the backward pass draws the forward pass's mask again in place
//! of keeping it. The numbers are those of Philox4x32-10, see [`megabatch_order::random`]: (seed,
//! step, timeframe, layer) make its key, (unit, t / 4, the window's end) its counter, and t mod 4
//! picks one of the four words of its answer, so that sixteen units of four steps are sixteen equal
//! computations.

use megabatch_order::random::{Stream, bits, halves, philox4x32};

use crate::error::{Error, Result};

/// Dropout of one optimizer step.
#[derive(Clone, Copy, Debug)]
pub struct StepDropout {
    /// Between LSTM layers; `None` without it.
    pub between_layers: Option<Dropout>,
    /// Seed and step of dropout in graphs.
    pub in_graphs: StepSeed,
}

/// Optimizer step that dropout belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSeed {
    /// Seed of the run.
    pub seed: u64,
    /// The step, counted from 0.
    pub step: u64,
}

/// The dropout of one optimizer step, as `torch.nn.LSTM` defines it: on the outputs of every layer
/// but the last, each dropped with the probability `rate`, the others scaled by 1 / (1 - `rate`).
/// It takes other numbers from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    rate: f32,
    key: u64,
}

/// The mask of one layer's outputs in one timeframe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mask {
    /// Key of the random words.
    pub key: [u32; 2],
    /// Words below it drop their number.
    pub dropped_below: u32,
    /// 1 / (1 - rate): factor of the numbers that stay.
    pub scale: f64,
}

impl Dropout {
    /// The dropout of optimizer step `step`, counted from 0.
    ///
    /// # Errors
    /// [`Error::Setting`] for a rate that is not in [0, 1).
    pub fn for_step(rate: f32, seed: u64, step: u64) -> Result<Self> {
        check_rate(rate)?;
        Ok(Dropout { rate, key: bits(Stream { seed, name: "dropout" }, step) })
    }

    /// The mask of the outputs of layer `layer`, counted from 0, in the timeframe `timeframe`.
    pub fn mask(self, timeframe: &str, layer: usize) -> Mask {
        Mask::new(bits(Stream { seed: self.key, name: timeframe }, layer as u64), self.rate)
    }
}

impl Mask {
    /// The mask of the numbers that `key` leads to.
    pub fn new(key: u64, rate: f32) -> Self {
        let rate = f64::from(rate);
        // A rate below 1 is at most 1 - 2⁻²⁴ in single precision, which is below 2³² here.
        Mask { key: halves(key), dropped_below: (rate * 2f64.powi(32)) as u32, scale: 1.0 / (1.0 - rate) }
    }

    /// Factor of the output of unit `unit` at step `t`, counted from 0: 0 or 1 / (1 - rate). `end`
    /// stands for the window: the row of its last bar in the series, or the sample's index where
    /// samples are not slices of series.
    pub fn factor(self, end: usize, t: usize, unit: usize) -> f64 {
        let [end_low, end_high] = halves(end as u64);
        let words = philox4x32(self.key, [unit as u32, (t / 4) as u32, end_low, end_high]);
        if words[t % 4] < self.dropped_below { 0.0 } else { self.scale }
    }
}

/// Refuses a rate with which nothing, or less, would be left.
pub fn check_rate(rate: f32) -> Result<()> {
    check_rate_of("dropout", rate)
}

/// The same for the rate that is called `setting`.
pub(crate) fn check_rate_of(setting: &'static str, rate: f32) -> Result<()> {
    if (0.0..1.0).contains(&rate) {
        return Ok(());
    }
    Err(Error::setting(setting, &rate, "0 or more and less than 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The indices that a mask is a function of.
    #[derive(Clone, Copy)]
    struct At {
        seed: u64,
        step: u64,
        timeframe: &'static str,
        layer: usize,
        end: usize,
        t: usize,
        unit: usize,
    }

    const AT: At = At { seed: 1, step: 7, timeframe: "M1", layer: 0, end: 479, t: 5, unit: 3 };

    /// One of them and numbers that follow each other along it.
    type Along = (&'static str, fn(usize) -> At);

    impl At {
        fn is_dropped(self, rate: f32) -> bool {
            let dropout = Dropout::for_step(rate, self.seed, self.step).unwrap();
            dropout.mask(self.timeframe, self.layer).factor(self.end, self.t, self.unit) == 0.0
        }
    }

    /// Along every index the rate is that asked for, and whether a number is dropped tells nothing
    /// of its neighbour: both within five standard errors over 20,000 numbers.
    #[test]
    fn numbers_are_dropped_at_the_rate_and_independently_of_their_neighbours() {
        const COUNT: usize = 20_000;
        let along: [Along; 7] = [
            ("seed", |i| At { seed: i as u64, ..AT }),
            ("step", |i| At { step: i as u64, ..AT }),
            ("layer", |i| At { layer: i, ..AT }),
            ("end", |i| At { end: i, ..AT }),
            ("t", |i| At { t: i, ..AT }),
            ("unit", |i| At { unit: i, ..AT }),
            ("units, then steps", |i| At { t: i / 128, unit: i % 128, ..AT }),
        ];
        for rate in [0.1f32, 0.5, 0.9] {
            for (name, at) in along {
                let dropped: Vec<f64> = (0..COUNT).map(|i| f64::from(u8::from(at(i).is_dropped(rate)))).collect();
                let p = f64::from(rate);
                let mean = dropped.iter().sum::<f64>() / COUNT as f64;
                let error = (p * (1.0 - p) / COUNT as f64).sqrt();
                assert!((mean - p).abs() < 5.0 * error, "{name}: {mean} of {p}");
                for lag in [1, 2, 3, 4, 16, 128] {
                    let pairs = dropped.iter().zip(&dropped[lag..]).map(|(a, b)| (a - p) * (b - p));
                    let correlation = pairs.sum::<f64>() / (p * (1.0 - p) * (COUNT - lag) as f64);
                    assert!(correlation.abs() < 5.0 / (COUNT as f64).sqrt(), "{name}, {lag} on: {correlation}");
                }
            }
        }
    }

    #[test]
    fn timeframes_have_masks_of_their_own() {
        let differ = |a: &'static str, b| {
            let dropped = |timeframe, unit| At { timeframe, unit, ..AT }.is_dropped(0.5);
            let other = |unit| dropped(a, unit) != dropped(b, unit);
            (0..1000).filter(|&i| other(i)).count()
        };
        for (a, b) in [("M1", "M5"), ("M1", ""), ("H1", "H4")] {
            // Half of a thousand, within five standard errors.
            assert!((421..=579).contains(&differ(a, b)), "{a} and {b} differ in {} of 1000", differ(a, b));
        }
    }

    /// Kept numbers are scaled up by the share of those lost, so that the layer above sees the same
    /// mean; ends past 2³² are told apart.
    #[test]
    fn factors_are_those_of_inverted_dropout() {
        let mask = |rate| Dropout::for_step(rate, 3, 4).unwrap().mask("M1", 1);
        assert!((0..1000).all(|unit| mask(0.0).factor(0, 0, unit) == 1.0));
        assert!((0..1000).all(|unit| [0.0, 4.0].contains(&mask(0.75).factor(9, 1, unit))));
        assert!((0..100).any(|unit| mask(0.5).factor(1, 0, unit) != mask(0.5).factor(1 + (1 << 32), 0, unit)));
    }

    #[test]
    fn rates_outside_their_range_are_refused() {
        for rate in [-0.1, 1.0, 1.5, f32::NAN, f32::INFINITY] {
            let error = Dropout::for_step(rate, 1, 1).unwrap_err().to_string();
            assert_eq!(error, format!("`dropout` is {rate}: expected 0 or more and less than 1"));
        }
        assert!(Dropout::for_step(1.0f32.next_down(), 1, 1).is_ok());
    }
}
