//! Losses of samples with targets that are not known, and tasks.

use std::fs;

use megabatch_nn::loss::Loss;
use megabatch_reference::loss;
use serde::Deserialize;

use crate::fixture::folder;

#[derive(Deserialize)]
struct Case {
    loss: Loss,
    outputs: Vec<f64>,
    /// None where it is not known.
    targets: Vec<Option<f64>>,
    mean: f64,
    gradient: Vec<f64>,
}

/// Sums of up to 45 terms of order 1.
const TOLERANCE: f64 = 1e-13;

#[test]
fn losses_and_gradients_are_those_of_pytorch() {
    let text = fs::read_to_string(folder("nn").join("losses/torch_losses.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    assert_eq!(cases.len(), 7);
    for Case { loss: case_loss, outputs, targets, mean, gradient } in cases {
        let targets: Vec<f64> = targets.into_iter().map(|target| target.unwrap_or(f64::NAN)).collect();
        let width = if let Loss::Tasks(tasks) = case_loss { tasks.targets() } else { 3 };
        let found = loss(case_loss, &outputs, &targets, width);
        assert!((found.mean - mean).abs() < TOLERANCE, "{case_loss:?}: {} for {mean}", found.mean);
        for (found, expected) in found.gradient.iter().zip(&gradient) {
            assert!((found - expected).abs() < TOLERANCE, "{case_loss:?}: {found} for {expected}");
        }
    }
}
