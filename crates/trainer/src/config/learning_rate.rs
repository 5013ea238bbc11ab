use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Learning-rate schedule: a pure function of the step, so that a resumed run needs no memory of
/// it.
///
/// Step s of S, both counted from 0, with the optimizer's rate lr and W = `warmup_steps`:
///
/// 1. s < W: lr · (s + 1) / W, a line from lr / W at the first step to lr at step W - 1. PyTorch's
///    `LinearLR(start_factor=1/W, total_iters=W-1)`. A run of no more than W steps ends on this
///    line.
/// 2. Else, constant: lr.
/// 3. Else, cosine (Loshchilov and Hutter, "SGDR", 2017, without restarts): half a cosine from lr
///    at the line's end, or at step 0 without one, to `lr_min` at step S - 1. PyTorch's
///    `CosineAnnealingLR(T_max=S-1-P, eta_min=lr_min)` from step P = max(W, 1) - 1 on.
/// 4. One cycle, which has a rise of its own, so that W must be 0: see [`OneCycle`].
///
/// W = 0 and W = 1 are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LrSchedule {
    /// The curve after the warm-up.
    pub kind: LrScheduleKind,
    /// W: steps in which the rate rises to the optimizer's.
    pub warmup_steps: u64,
    /// The rate at the last step of a cosine, from 0 to the optimizer's; a constant rate has no use
    /// for it.
    pub lr_min: f64,
}

/// The curve of the learning rate after its warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LrScheduleKind {
    /// The optimizer's rate to the end.
    #[default]
    Constant,
    /// Half a cosine to the lowest rate at the last step.
    Cosine,
    /// Up to the optimizer's rate, then down to a small fraction of the first rate.
    OneCycle(OneCycle),
}

/// One cycle of the rate (Smith and Topin, "Super-Convergence", 2018), as PyTorch's `OneCycleLR`
/// with `anneal_strategy="cos"` and `three_phase=False`.
///
/// In S steps the rate goes along half a cosine from lr / `div_factor` at step 0 up to lr at step
/// `pct_start` · S - 1, and along another one down to lr / `div_factor` / `final_div_factor` at
/// step S - 1. The peak is seldom a whole step, and where it lies before step 0 the run begins on
/// the way down.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneCycle {
    /// Share of the steps in which the rate rises, from 0 to 1.
    pub pct_start: f64,
    /// Ratio of the highest rate to the first, ≥ 1.
    pub div_factor: f64,
    /// Ratio of the first rate to the last, ≥ 1.
    pub final_div_factor: f64,
}

impl Default for OneCycle {
    /// PyTorch's.
    fn default() -> Self {
        OneCycle { pct_start: 0.3, div_factor: 25.0, final_div_factor: 1e4 }
    }
}

impl OneCycle {
    fn check(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.pct_start) {
            return Err(Error::setting("pct_start", &self.pct_start, "a share from 0 to 1"));
        }
        let factors = [("div_factor", self.div_factor), ("final_div_factor", self.final_div_factor)];
        match factors.into_iter().find(|(_, factor)| !(1.0..f64::INFINITY).contains(factor)) {
            Some((setting, factor)) => Err(Error::setting(setting, &factor, "a number from 1 up")),
            None => Ok(()),
        }
    }

    /// The rate of step `step` in a run whose last step is `last`, both counted from 0. Later steps
    /// have the rate of the last one.
    fn rate(&self, lr: f64, step: u64, last: u64) -> f64 {
        let (step, last) = (step.min(last) as f64, last as f64);
        let first_rate = lr / self.div_factor;
        let peak = self.pct_start * (last + 1.0) - 1.0;
        if step <= peak {
            // A rise that is a single step begins at its end.
            return if peak > 0.0 { cosine_between(first_rate, lr, step / peak) } else { lr };
        }
        cosine_between(lr, first_rate / self.final_div_factor, (step - peak) / (last - peak))
    }
}

/// Half a cosine from `start` to `end`, at `share` of its way. Both ends are exact: the cosine is 1
/// and -1 there.
fn cosine_between(start: f64, end: f64, share: f64) -> f64 {
    let weight = 0.5 * (1.0 + (PI * share).cos());
    start * weight + end * (1.0 - weight)
}

impl LrScheduleKind {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            LrScheduleKind::Constant => "constant",
            LrScheduleKind::Cosine => "cosine",
            LrScheduleKind::OneCycle(_) => "one_cycle",
        }
    }
}

impl LrSchedule {
    pub(crate) fn check(&self, lr: f64) -> Result<()> {
        match self.kind {
            LrScheduleKind::Cosine if !(0.0..=lr).contains(&self.lr_min) => {
                Err(Error::setting("lr_min", &self.lr_min, "a number from 0 to `lr`"))
            }
            LrScheduleKind::OneCycle(_) if self.warmup_steps > 0 => {
                let expected = "0 with `lr_schedule` one_cycle, which rises by itself in `pct_start` of the steps";
                Err(Error::setting("warmup_steps", &self.warmup_steps, expected))
            }
            LrScheduleKind::OneCycle(one_cycle) => one_cycle.check(),
            LrScheduleKind::Constant | LrScheduleKind::Cosine => Ok(()),
        }
    }

    /// The rate of step `step` of `steps`, counted from 0, for an optimizer of rate `lr`. Past the
    /// last step it stays as it was there.
    pub fn rate(&self, lr: f64, step: u64, steps: u64) -> f64 {
        if step < self.warmup_steps {
            return lr * ((step + 1) as f64 / self.warmup_steps as f64);
        }
        let last = steps.saturating_sub(1);
        match self.kind {
            LrScheduleKind::Constant => lr,
            LrScheduleKind::OneCycle(one_cycle) => one_cycle.rate(lr, step, last),
            LrScheduleKind::Cosine => {
                let peak = self.warmup_steps.max(1) - 1;
                // A single step after which nothing falls is at the peak.
                let share = if last > peak { (step.min(last) - peak) as f64 / (last - peak) as f64 } else { 0.0 };
                cosine_between(lr, self.lr_min, share)
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

    fn one_cycle(one_cycle: OneCycle) -> LrSchedule {
        LrSchedule { kind: LrScheduleKind::OneCycle(one_cycle), ..LrSchedule::default() }
    }

    /// The optimizer's rate before each step of `OneCycleLR(max_lr=lr, total_steps=n,
    /// anneal_strategy="cos")` of PyTorch 2.15.
    #[test]
    fn one_cycle_is_that_of_pytorch() {
        let given = |pct_start, div_factor, final_div_factor| OneCycle { pct_start, div_factor, final_div_factor };
        let default = OneCycle::default();
        for (cycle, lr, expected) in [
            (
                default,
                0.1,
                &[
                    0.0040000000000000036,
                    0.052000000000000005,
                    0.1,
                    0.09504846320134738,
                    0.0811745653949763,
                    0.06112620219362893,
                    0.03887419780637107,
                    0.0188258346050237,
                    0.004951936798652629,
                    4e-07,
                ][..],
            ),
            (
                given(0.5, 10.0, 100.0),
                0.01,
                &[
                    0.0009999999999999992,
                    0.004109423525312736,
                    0.009140576474687263,
                    0.009505339495172583,
                    0.00611649206511179,
                    0.0018906684397156264,
                    1e-05,
                ],
            ),
            // The peak lies before the first step, and in a run of one step so does all but the
            // end.
            (default, 1.0, &[0.9944154354509117, 0.46263710266697505, 4e-06]),
            (default, 1.0, &[4e-06]),
            (given(0.0, 25.0, 1e4), 0.5, &[0.42677698818985565, 0.250001, 0.07322501181014432, 2e-06]),
            (given(1.0, 4.0, 1e4), 0.5, &[0.125, 0.21875, 0.40624999999999994, 0.5]),
        ] {
            for (step, &rate_of_torch) in (0..).zip(expected) {
                let rate = one_cycle(cycle).rate(lr, step, expected.len() as u64);
                assert!((rate - rate_of_torch).abs() <= 1e-15, "{cycle:?}, step {step}: {rate} for {rate_of_torch}");
            }
        }
    }

    #[test]
    fn a_rise_of_one_step_is_the_peak() {
        // PyTorch divides by zero here.
        let schedule = one_cycle(OneCycle { pct_start: 0.25, ..OneCycle::default() });
        assert_eq!(schedule.rate(0.3, 0, 4), 0.3);
        assert_eq!(schedule.rate(0.3, 3, 4), schedule.rate(0.3, 9, 4));
    }

    #[test]
    fn a_cycle_out_of_range_is_named() {
        let default = OneCycle::default();
        for (cycle, setting) in [
            (OneCycle { pct_start: 1.5, ..default }, "`pct_start` is 1.5"),
            (OneCycle { pct_start: f64::NAN, ..default }, "`pct_start` is NaN"),
            (OneCycle { div_factor: 0.5, ..default }, "`div_factor` is 0.5"),
            (OneCycle { final_div_factor: f64::INFINITY, ..default }, "`final_div_factor` is inf"),
        ] {
            let message = one_cycle(cycle).check(0.1).unwrap_err().to_string();
            assert!(message.starts_with(setting), "{message}");
        }
        let message = LrSchedule { warmup_steps: 3, ..one_cycle(default) }.check(0.1).unwrap_err().to_string();
        assert!(message.starts_with("`warmup_steps` is 3"), "{message}");
    }

    proptest! {
        #[test]
        fn a_cycle_rises_to_its_peak_and_falls_to_its_end(
            steps in 1u64..100, lr in 1e-5f64..1.0, pct_start in 0.0f64..=1.0, div in 1.5f64..100.0, end in 1.0f64..1e5,
        ) {
            let cycle = OneCycle { pct_start, div_factor: div, final_div_factor: end };
            let rates: Vec<f64> = (0..steps).map(|step| one_cycle(cycle).rate(lr, step, steps)).collect();
            let turn = (0..rates.len()).max_by(|&a, &b| rates[a].total_cmp(&rates[b])).unwrap();
            let rounding = 1e-15 * lr;
            prop_assert!(rates[..=turn].windows(2).all(|pair| pair[0] <= pair[1] + rounding));
            prop_assert!(rates[turn..].windows(2).all(|pair| pair[1] <= pair[0] + rounding));
            prop_assert!((turn as f64 - (pct_start * steps as f64 - 1.0)).abs() <= 1.0, "{} of {:?}", turn, rates);
            prop_assert!(rates.iter().all(|&rate| rate > 0.0 && rate <= lr + rounding));
        }

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
            assert!(message.starts_with("`lr_min` is "), "{message}");
        }
        cosine(0, 0.1).check(0.1).unwrap();
        LrSchedule { lr_min: 0.2, ..LrSchedule::default() }.check(0.1).unwrap();
    }
}
