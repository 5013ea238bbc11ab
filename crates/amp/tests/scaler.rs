//! The scaler beside PyTorch's, step by step, as `scaler_fixture.py` recorded it.

use std::collections::BTreeMap;

use megabatch_amp::{LossScaler, Overflow, ScalerConfig};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    cases: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
struct Case {
    initial_scale: f32,
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u32,
    steps: String,
    /// (steps done, bits of the scale from then on, growth tracker then)
    scales: Vec<(usize, u32, u32)>,
}

#[test]
fn every_decision_is_that_of_pytorch() {
    let fixture: Fixture = serde_json::from_str(include_str!("scaler_fixture.json")).unwrap();
    assert!(fixture.cases.len() >= 8);
    for (name, case) in &fixture.cases {
        let config = ScalerConfig {
            initial: case.initial_scale,
            growth_factor: case.growth_factor,
            backoff_factor: case.backoff_factor,
            growth_interval: case.growth_interval,
            hysteresis: 1,
            // PyTorch has neither floor nor ceiling.
            floor: f32::MIN_POSITIVE,
            ceiling: f32::MAX,
        };
        let mut scaler = LossScaler::new(config).unwrap();
        let (mut expected, mut changes) = (case.scales[0], case.scales[1..].iter());
        let mut next = changes.next();
        for (done, step) in (1..).zip(case.steps.chars()) {
            let overflow = (step == 'x').then_some(Overflow { tensor: "p", index: 1 });
            scaler.update(overflow).unwrap();
            if let Some(&change) = next.filter(|change| change.0 == done) {
                (expected, next) = (change, changes.next());
                assert_eq!(scaler.state().clean_steps, change.2, "{name}: growth tracker after {done} steps");
            }
            assert_eq!(scaler.scale().to_bits(), expected.1, "{name}: scale after {done} steps");
        }
        assert!(next.is_none(), "{name}: all changes were seen");
    }
}
