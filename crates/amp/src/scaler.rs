use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Settings of the loss scale.
///
/// The defaults are those of `torch.amp.GradScaler`, with a floor of 1 and a ceiling of 2²⁴, where
/// PyTorch has none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalerConfig {
    /// The scale of the first step, between the floor and the ceiling.
    #[serde(rename = "initial_scale")]
    pub initial: f32,
    /// Growth factor of the scale, > 1. A power of two keeps scaling exact.
    pub growth_factor: f64,
    /// Backoff factor of the scale after overflows, in (0, 1). A power of two keeps scaling exact.
    pub backoff_factor: f64,
    /// Steps in a row without overflow after which the scale grows, ≥ 1.
    pub growth_interval: u32,
    /// Number of overflows in a row from which each one lowers the scale, ≥ 1. Earlier ones only
    /// skip their step.
    pub hysteresis: u32,
    /// The floor: the scale does not fall below it, and an overflow at it is an error.
    #[serde(rename = "min_scale")]
    pub floor: f32,
    /// The ceiling: the scale does not grow above it.
    #[serde(rename = "max_scale")]
    pub ceiling: f32,
}

impl Default for ScalerConfig {
    fn default() -> Self {
        ScalerConfig {
            initial: 65_536.0,
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            hysteresis: 1,
            floor: 1.0,
            ceiling: 16_777_216.0,
        }
    }
}

impl ScalerConfig {
    /// Refuses settings out of range.
    ///
    /// # Errors
    /// [`Error::Setting`] for the first of them.
    pub fn check(&self) -> Result<()> {
        let &ScalerConfig { initial, growth_factor, backoff_factor, floor, ceiling, .. } = self;
        let rules: [(bool, &str, &dyn ToString, &str); 7] = [
            (floor.is_normal() && floor > 0.0, "floor", &floor, "a positive normal number"),
            (ceiling.is_finite() && ceiling >= floor, "ceiling", &ceiling, "a number from the floor up"),
            (self.holds(initial), "initial", &initial, "a number from the floor to the ceiling"),
            (growth_factor > 1.0 && growth_factor.is_finite(), "growth_factor", &growth_factor, "a number above 1"),
            (backoff_factor > 0.0 && backoff_factor < 1.0, "backoff_factor", &backoff_factor, "a number in (0, 1)"),
            (self.growth_interval > 0, "growth_interval", &self.growth_interval, "1 or more"),
            (self.hysteresis > 0, "hysteresis", &self.hysteresis, "1 or more"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, setting, found, expected)) => Err(Error::Setting { setting, found: found.to_string(), expected }),
            None => Ok(()),
        }
    }

    fn holds(&self, scale: f32) -> bool {
        (self.floor..=self.ceiling).contains(&scale)
    }
}

/// State of a [`LossScaler`] in a checkpoint. Stored as decimal text it comes back to the bit from
/// a reader that rounds correctly; serde_json is one with its feature `float_roundtrip`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScalerState {
    /// The scale of the next step.
    pub scale: f32,
    /// Steps without overflow since the last overflow or growth: PyTorch's `growth_tracker`.
    pub clean_steps: u32,
    /// Overflows since the last step without one.
    pub overflows: u32,
}

/// Change of the scale by a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleChange {
    /// None.
    None,
    /// It grew.
    Growth,
    /// It fell.
    Backoff,
}

/// Place of an overflowed gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow<'a> {
    /// Name of the first tensor with an element that is infinite or NaN.
    pub tensor: &'a str,
    /// Index of that element in the tensor.
    pub index: usize,
}

/// Scales the loss so that small gradients do not underflow in fp16.
///
/// The loss is multiplied by [`scale`](Self::scale) before the backward pass and the gradients by
/// [`inverse`](Self::inverse) after it (Micikevicius et al., "Mixed precision training", 2018,
/// section 3.2). A step whose gradients overflow is skipped and lowers the scale; a long run of
/// steps without overflow raises it.
///
/// With `hysteresis` 1 its scale is that of `torch.amp.GradScaler` to the bit, as long as it stays
/// between floor and ceiling.
#[derive(Clone, Debug)]
pub struct LossScaler {
    config: ScalerConfig,
    state: ScalerState,
}

impl LossScaler {
    /// A scaler before its first step.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting out of range.
    pub fn new(config: ScalerConfig) -> Result<Self> {
        let state = ScalerState { scale: config.initial, clean_steps: 0, overflows: 0 };
        Self::resume(config, state)
    }

    /// A scaler that continues from `state`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting out of range, and for a state whose scale is not between
    /// floor and ceiling.
    pub fn resume(config: ScalerConfig, state: ScalerState) -> Result<Self> {
        config.check()?;
        if !config.holds(state.scale) {
            return Err(Error::setting("state.scale", &state.scale, "a number from the floor to the ceiling"));
        }
        Ok(LossScaler { config, state })
    }

    /// Current loss scale.
    pub fn scale(&self) -> f32 {
        self.state.scale
    }

    /// Factor of the gradients: 1 / scale, rounded once.
    pub fn inverse(&self) -> f32 {
        (1.0 / f64::from(self.state.scale)) as f32
    }

    /// The settings.
    pub fn config(&self) -> &ScalerConfig {
        &self.config
    }

    /// State for a checkpoint.
    pub fn state(&self) -> ScalerState {
        self.state
    }

    /// Updates the scale after a step without overflow, or with the first overflow of its
    /// gradients.
    ///
    /// # Errors
    /// [`Error::ScaleCollapsed`] where the scale would have to fall below its floor; the scaler is
    /// then as before.
    pub fn update(&mut self, overflow: Option<Overflow<'_>>) -> Result<ScaleChange> {
        match overflow {
            Some(overflow) => self.overflowed(overflow),
            None => Ok(self.went_well()),
        }
    }

    fn overflowed(&mut self, Overflow { tensor, index }: Overflow<'_>) -> Result<ScaleChange> {
        let ScalerConfig { backoff_factor, hysteresis, floor, .. } = self.config;
        let ScalerState { scale, overflows, .. } = self.state;
        let overflows = overflows.saturating_add(1);
        let falls = overflows >= hysteresis;
        if falls && scale <= floor {
            return Err(Error::ScaleCollapsed { scale, tensor: tensor.to_owned(), index });
        }
        let lowered = ((f64::from(scale) * backoff_factor) as f32).max(floor);
        self.state = ScalerState { scale: if falls { lowered } else { scale }, clean_steps: 0, overflows };
        Ok(if falls { ScaleChange::Backoff } else { ScaleChange::None })
    }

    fn went_well(&mut self) -> ScaleChange {
        self.state.overflows = 0;
        self.state.clean_steps = self.state.clean_steps.saturating_add(1);
        if self.state.clean_steps < self.config.growth_interval {
            return ScaleChange::None;
        }
        self.state.clean_steps = 0;
        let grown = (f64::from(self.state.scale) * self.config.growth_factor) as f32;
        if grown > self.config.ceiling {
            return ScaleChange::None;
        }
        self.state.scale = grown;
        ScaleChange::Growth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Option<Overflow<'_>> = Some(Overflow { tensor: "head.weight", index: 7 });

    fn small() -> ScalerConfig {
        ScalerConfig { initial: 8.0, growth_interval: 2, floor: 2.0, ceiling: 16.0, ..ScalerConfig::default() }
    }

    /// The scale after each step; `x` is a step that overflows.
    fn scales(config: ScalerConfig, steps: &str) -> Vec<f32> {
        let mut scaler = LossScaler::new(config).unwrap();
        let step = |step| {
            scaler.update(if step == 'x' { HERE } else { None }).unwrap();
            scaler.scale()
        };
        steps.chars().map(step).collect()
    }

    #[test]
    fn the_scale_stays_between_floor_and_ceiling() {
        assert_eq!(scales(small(), "......"), [8.0, 16.0, 16.0, 16.0, 16.0, 16.0]);
        assert_eq!(scales(small(), "xx..."), [4.0, 2.0, 2.0, 4.0, 4.0]);
        let odd = ScalerConfig { backoff_factor: 0.1, ..small() };
        assert_eq!(scales(odd, "x"), [2.0]);
    }

    #[test]
    fn hysteresis_forgives_overflows_that_stand_alone() {
        let config = ScalerConfig { hysteresis: 3, ..small() };
        assert_eq!(scales(config, "xx.xx.xxxx"), [8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 4.0, 2.0]);
        // An overflow that changes no scale interrupts the clean steps all the same.
        assert_eq!(scales(config, ".x.."), [8.0, 8.0, 8.0, 16.0]);
    }

    #[test]
    fn an_overflow_at_the_floor_names_the_first_tensor() {
        let mut scaler = LossScaler::new(ScalerConfig { initial: 2.0, ..small() }).unwrap();
        scaler.update(None).unwrap();
        let before = scaler.state();
        let expected = Error::ScaleCollapsed { scale: 2.0, tensor: "head.weight".to_owned(), index: 7 };
        assert_eq!(scaler.update(HERE), Err(expected.clone()));
        assert!(expected.to_string().contains("head.weight at index 7"), "{expected}");
        assert_eq!(scaler.state(), before);
        assert_eq!(scaler.update(None), Ok(ScaleChange::Growth));
    }

    #[test]
    fn a_scaler_goes_on_from_its_state() {
        let config = ScalerConfig { growth_factor: 1.3, backoff_factor: 0.7, hysteresis: 2, ..small() };
        let steps = "..x.xx.....xx.";
        let whole = scales(config, steps);
        for cut in 0..steps.len() {
            let mut scaler = LossScaler::new(config).unwrap();
            for step in steps[..cut].chars() {
                scaler.update(if step == 'x' { HERE } else { None }).unwrap();
            }
            let text = serde_json::to_string(&scaler.state()).unwrap();
            let state: ScalerState = serde_json::from_str(&text).unwrap();
            assert_eq!(state.scale.to_bits(), scaler.scale().to_bits());
            let mut resumed = LossScaler::resume(config, state).unwrap();
            for (step, &expected) in steps[cut..].chars().zip(&whole[cut..]) {
                resumed.update(if step == 'x' { HERE } else { None }).unwrap();
                assert_eq!(resumed.scale().to_bits(), expected.to_bits());
            }
        }
    }

    #[test]
    fn the_inverse_of_a_power_of_two_is_exact() {
        for exponent in -126..=126 {
            let scale = 2f32.powi(exponent);
            let config = ScalerConfig { initial: scale, floor: f32::MIN_POSITIVE, ceiling: f32::MAX, ..small() };
            assert_eq!(LossScaler::new(config).unwrap().inverse() * scale, 1.0);
        }
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let good = ScalerConfig::default();
        let cases = [
            (ScalerConfig { initial: 0.5, ..good }, "initial"),
            (ScalerConfig { initial: f32::NAN, ..good }, "initial"),
            (ScalerConfig { growth_factor: 1.0, ..good }, "growth_factor"),
            (ScalerConfig { backoff_factor: 1.0, ..good }, "backoff_factor"),
            (ScalerConfig { growth_interval: 0, ..good }, "growth_interval"),
            (ScalerConfig { hysteresis: 0, ..good }, "hysteresis"),
            (ScalerConfig { floor: 0.0, ..good }, "floor"),
            (ScalerConfig { ceiling: f32::INFINITY, ..good }, "ceiling"),
        ];
        for (config, name) in cases {
            assert!(LossScaler::new(config).unwrap_err().to_string().starts_with(name));
        }
        let state = ScalerState { scale: f32::INFINITY, clean_steps: 0, overflows: 0 };
        assert!(LossScaler::resume(good, state).unwrap_err().to_string().starts_with("state.scale"));
    }
}
