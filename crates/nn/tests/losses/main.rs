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

/// Outputs and targets are rounded to single precision, by up to 6e-8 of numbers of a few units,
/// and so is each number of a gradient. Slopes are up to about as large as the errors. The oracle,
/// in double precision, is held to 1e-13.
const TOLERANCE: f64 = 1e-6;

#[test]
fn losses_and_gradients_are_those_of_pytorch() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("torch_losses.json")).unwrap();
    assert_eq!(cases.len(), 7);
    for Case { loss, outputs, targets, mean, gradient } in cases {
        assert!(targets.contains(&None), "{loss:?}: every case has a hole");
        let targets: Vec<f32> = targets.into_iter().map(|target| target.map_or(f32::NAN, |x| x as f32)).collect();
        let outputs: Vec<f32> = outputs.into_iter().map(|output| output as f32).collect();
        let terms = loss.terms(&targets);
        let found = loss.sum(&outputs, &targets) / terms as f64;
        assert!((found - mean).abs() < TOLERANCE, "{loss:?}: {found} for {mean}");
        let mut d = vec![f32::NAN; outputs.len()];
        loss.gradient(&outputs, &targets, terms, &mut d);
        for (d, expected) in d.iter().zip(&gradient) {
            assert!((f64::from(*d) - expected).abs() < TOLERANCE, "{loss:?}: {d} for {expected}");
        }
    }
}
