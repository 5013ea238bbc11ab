#![forbid(unsafe_code)]

//! Losses and their gradients against PyTorch's of `torch_losses.json`, which `torch_fixture.py`
//! beside this file writes.

use megabatch_nn::loss::Loss;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    loss: Loss,
    outputs: Vec<f64>,
    /// None where it is not known.
    targets: Vec<Option<f64>>,
    mean: f64,
    gradient: Vec<f64>,
}

/// Both sum up to 45 terms of order 1 in double precision.
const TOLERANCE: f64 = 1e-13;

#[test]
fn losses_and_gradients_are_those_of_pytorch() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("torch_losses.json")).unwrap();
    assert_eq!(cases.len(), 7);
    for Case { loss, outputs, targets, mean, gradient } in cases {
        assert!(targets.contains(&None), "{loss:?}: every case has a hole");
        let targets: Vec<f64> = targets.into_iter().map(|target| target.unwrap_or(f64::NAN)).collect();
        let terms = loss.terms(&targets);
        let found = loss.sum(&outputs, &targets) / terms as f64;
        assert!((found - mean).abs() < TOLERANCE, "{loss:?}: {found} for {mean}");
        let mut d = vec![f64::NAN; outputs.len()];
        loss.gradient(&outputs, &targets, terms, &mut d);
        for (d, expected) in d.iter().zip(&gradient) {
            assert!((d - expected).abs() < TOLERANCE, "{loss:?}: {d} for {expected}");
        }
    }
}
