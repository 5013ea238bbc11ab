#![forbid(unsafe_code)]

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How the learning rate changes over a run: a pure function of the step, so that a resumed run needs no memory of it.
///
/// Step s of S, both counted from 0, with the optimizer's rate lr and W = `warmup_steps`:
///
/// 1. s < W: lr · (s + 1) / W, a line from lr / W at the first step to lr at step W - 1. PyTorch's
///    `LinearLR(start_factor=1/W, total_iters=W-1)`. A run of no more than W steps ends on this line.
/// 2. Else, constant: lr.
/// 3. Else, cosine (Loshchilov and Hutter, "SGDR", 2017, without restarts): half a cosine from lr at the line's end, or at
///    step 0 without one, to `lr_min` at step S - 1. PyTorch's `CosineAnnealingLR(T_max=S-1-P, eta_min=lr_min)` from step
///    P = max(W, 1) - 1 on.
///
/// W = 0 and W = 1 are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LrSchedule {
    /// The curve after the warm-up.
    pub kind: LrScheduleKind,
    /// W: steps in which the rate rises to the optimizer's.
    pub warmup_steps: u64,
    /// The rate at the last step of a cosine, from 0 to the optimizer's; a constant rate has no use for it.
    pub lr_min: f64,
}

/// The curve of the learning rate after its warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LrScheduleKind {
    /// The optimizer's rate to the end.
    #[default]
    Constant,
    /// Half a cosine to the lowest rate at the last step.
    Cosine,
}

impl LrSchedule {
    pub(crate) fn check(&self, lr: f64) -> Result<()> {
        match self.kind {
            LrScheduleKind::Cosine if !(0.0..=lr).contains(&self.lr_min) => {
                Err(Error::setting("training.lr_min", &self.lr_min, "a number from 0 to training.lr"))
            }
            LrScheduleKind::Constant | LrScheduleKind::Cosine => Ok(()),
        }
    }

    /// The rate of step `step` of `steps`, counted from 0, for an optimizer of rate `lr`. Past the last step a cosine stays at
    /// its lowest rate.
    pub fn rate(&self, lr: f64, step: u64, steps: u64) -> f64 {
        if step < self.warmup_steps {
            return lr * ((step + 1) as f64 / self.warmup_steps as f64);
        }
        match self.kind {
            LrScheduleKind::Constant => lr,
            LrScheduleKind::Cosine => {
                let peak = self.warmup_steps.max(1) - 1;
                let last = steps.saturating_sub(1);
                // A single step after which nothing falls is at the peak.
                let share = if last > peak { (step.min(last) - peak) as f64 / (last - peak) as f64 } else { 0.0 };
                // Both ends are exact: the cosine is 1 and -1 there.
                let weight = 0.5 * (1.0 + (PI * share).cos());
                lr * weight + self.lr_min * (1.0 - weight)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cosine(warmup_steps: u64, lr_min: f64) -> LrSchedule {
        LrSchedule { kind: LrScheduleKind::Cosine, warmup_steps, lr_min }
    }

    /// cos(π/4) = 1/√2 and cos(π/3) = 1/2 make what PyTorch's two schedulers give, by hand.
    #[test]
    fn rates_are_those_of_pytorch() {
        let root = 0.5f64.sqrt();
        let constant = LrSchedule { warmup_steps: 4, ..LrSchedule::default() };
        for (schedule, lr, expected) in [
            (LrSchedule::default(), 0.1, vec![0.1, 0.1, 0.1]),
            (constant, 0.8, vec![0.2, 0.4, 0.6, 0.8, 0.8, 0.8]),
            // T_max = 4.
            (cosine(0, 0.0), 1.0, vec![1.0, 0.5 + 0.5 * root, 0.5, 0.5 - 0.5 * root, 0.0]),
            // T_max = 3, from 0.3 to 0.1 by way of three and one quarter of the way.
            (cosine(1, 0.1), 0.3, vec![0.3, 0.25, 0.15, 0.1]),
            // Two steps of warm-up, then T_max = 3.
            (cosine(2, 0.1), 0.3, vec![0.15, 0.3, 0.25, 0.15, 0.1]),
            (cosine(3, 0.0), 0.3, vec![0.1, 0.2, 0.3]),
            (cosine(9, 0.0), 0.9, vec![0.1, 0.2, 0.3]),
            (cosine(0, 0.0), 0.3, vec![0.3]),
        ] {
            let steps = expected.len() as u64;
            for (step, expected) in (0..).zip(expected) {
                let rate = schedule.rate(lr, step, steps);
                assert!((rate - expected).abs() < 1e-15, "{schedule:?}, step {step}: {rate} for {expected}");
            }
        }
    }

    proptest! {
        #[test]
        fn rates_rise_then_fall_between_exact_ends(
            warmup in 0u64..40, steps in 1u64..100, lr in 1e-5f64..1.0, share in 0.0f64..=1.0,
        ) {
            let schedule = cosine(warmup, lr * share);
            let rates: Vec<f64> = (0..steps).map(|step| schedule.rate(lr, step, steps)).collect();
            let peak = warmup.max(1) as usize - 1;
            prop_assert!(rates.windows(2).take(peak).all(|pair| pair[0] < pair[1]));
            prop_assert!(rates.windows(2).skip(peak).all(|pair| pair[0] >= pair[1] * (1.0 - 1e-15)));
            prop_assert!(rates.get(peak).is_none_or(|&rate| rate == lr));
            if steps as usize > peak + 1 {
                prop_assert_eq!(rates[steps as usize - 1], schedule.lr_min);
                prop_assert_eq!(schedule.rate(lr, steps + 5, steps), schedule.lr_min);
            }
        }
    }

    #[test]
    fn a_lowest_rate_out_of_range_is_named() {
        for lr_min in [-0.1, 0.2, f64::NAN] {
            let message = cosine(0, lr_min).check(0.1).unwrap_err().to_string();
            assert!(message.starts_with("training.lr_min is "), "{message}");
        }
        cosine(0, 0.1).check(0.1).unwrap();
        LrSchedule { lr_min: 0.2, ..LrSchedule::default() }.check(0.1).unwrap();
    }
}
