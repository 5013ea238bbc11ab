#![forbid(unsafe_code)]

use proptest::prelude::*;

use super::*;

#[test]
fn mse_and_its_gradient() {
    let (y, target) = ([1.0, 2.0, 5.0], [1.0, 0.0, 6.0]);
    assert_eq!(Loss::Mse.sum(&y, &target), 5.0);
    let mut d = [f64::NAN; 3];
    Loss::Mse.gradient(&y, &target, 4, &mut d);
    assert_eq!(d, [0.0, 1.0, -0.5]);
}

/// Errors of 0, ±½, ±δ, ±4 for δ = 2, by hand.
#[test]
fn huber_and_its_gradient() {
    let loss = Loss::Huber { delta: 2.0 };
    let target = [1.0; 7];
    let y = [1.0, 1.5, 0.5, 3.0, -1.0, 5.0, -3.0];
    let values = [0.0, 0.125, 0.125, 2.0, 2.0, 6.0, 6.0];
    for ((y, target), value) in y.iter().zip(&target).zip(values) {
        assert_eq!(loss.sum(&[*y], &[*target]), value, "{y}");
    }
    let mut d = [f64::NAN; 7];
    loss.gradient(&y, &target, 4, &mut d);
    assert_eq!(d, [0.0, 0.125, -0.125, 0.5, -0.5, 0.5, -0.5]);
}

/// Errors of 0, ±½, ±2 for a level of ¾, by hand.
#[test]
fn quantile_and_its_gradient() {
    let loss = Loss::Quantile { levels: Ascending::one(0.75) };
    let target = [1.0; 5];
    let y = [1.0, 1.5, 0.5, 3.0, -1.0];
    let values = [0.0, 0.125, 0.375, 0.5, 1.5];
    for ((y, target), value) in y.iter().zip(&target).zip(values) {
        assert_eq!(loss.sum(&[*y], &[*target]), value, "{y}");
    }
    let mut d = [f64::NAN; 5];
    loss.gradient(&y, &target, 2, &mut d);
    assert_eq!(d, [0.0, 0.125, -0.375, 0.125, -0.375]);
}

/// Two targets of two levels, by hand: each target has its outputs side by side.
#[test]
fn several_quantiles_have_an_output_each() {
    let loss = Loss::Quantile { levels: Ascending::new(&[0.25, 0.75]).unwrap() };
    assert_eq!((loss.outputs_per_target(), loss.terms(&[1.0, f64::NAN, 5.0])), (2, 4));
    let (y, targets) = ([0.0, 2.0, 7.0, 4.0], [1.0, 5.0]);
    assert_eq!(loss.sum(&y, &targets), 0.25 + 0.25 + 1.5 + 0.75);
    let mut d = [f64::NAN; 4];
    loss.gradient(&y, &targets, 4, &mut d);
    assert_eq!(d, [-0.0625, 0.0625, 0.1875, -0.1875]);
}

#[test]
fn the_level_nearest_to_the_median_stands_for_all() {
    for (levels, expected) in [(&[0.9][..], 0), (&[0.1, 0.5, 0.9], 1), (&[0.25, 0.75], 0), (&[0.1, 0.2, 0.6], 2)] {
        assert_eq!(Loss::Quantile { levels: Ascending::new(levels).unwrap() }.point(), expected, "{levels:?}");
    }
    assert_eq!((Loss::Mse.point(), Loss::CrossEntropy.point()), (0, 0));
}

#[test]
fn a_single_level_is_read_as_it_was_once_written() {
    let loss: Loss = serde_json::from_str(r#"{"quantile":{"level":0.75}}"#).unwrap();
    assert_eq!(loss, Loss::Quantile { levels: Ascending::one(0.75) });
    assert_eq!(serde_json::from_str::<Loss>(&serde_json::to_string(&loss).unwrap()).unwrap(), loss);
}

/// Outputs of three classes for two targets, by hand: all equal, and so far apart that one has all
/// of the probability.
#[test]
fn classes_and_their_gradient() {
    let loss = Loss::Classes(Classes::Thresholds(Ascending::new(&[-1.0, 1.0]).unwrap()));
    assert_eq!((loss.outputs_per_target(), loss.terms(&[0.0, f64::NAN, 5.0]), loss.name()), (3, 2, "cross_entropy"));
    let (y, targets) = ([2.0, 2.0, 2.0, 1000.0, 0.0, 0.0], [0.0, 1.5]);
    assert!((loss.sum(&y, &targets) - (3f64.ln() + 1000.0)).abs() < 1e-12);
    let mut d = [f64::NAN; 6];
    loss.gradient(&y, &targets, 2, &mut d);
    let expected = [1.0 / 6.0, -1.0 / 3.0, 1.0 / 6.0, 0.5, 0.0, -0.5];
    assert!(d.iter().zip(expected).all(|(d, expected)| (d - expected).abs() < 1e-15), "{d:?}");

    let labels = Loss::Classes(Classes::Labels(3));
    assert!(labels.sum(&y[..3], &[7.0]).is_nan());
    labels.gradient(&y[..3], &[7.0], 1, &mut d[..3]);
    assert!(d[..3].iter().all(|d| d.is_nan()));
    assert_eq!(labels.sum(&y[..3], &[1.0]), loss.sum(&y[..3], &[0.0]));
}

#[test]
fn at_delta_both_branches_are_one_number() {
    for delta in [0.1, 1.0, 1.345, 7e5] {
        let (below, beyond) = (0.5 * (delta * delta), delta * (delta - 0.5 * delta));
        assert_eq!((huber(delta, delta), huber(-delta, delta)), (beyond, beyond), "{delta}");
        assert_eq!(below, beyond, "{delta}");
        assert_eq!((limited(delta, delta), limited(-delta, delta)), (delta, -delta));
    }
}

#[test]
fn what_is_not_a_number_stays_so() {
    for loss in [Loss::Mse, Loss::Huber { delta: 1.0 }, Loss::Quantile { levels: Ascending::one(0.5) }] {
        let mut d = [0.0];
        loss.gradient(&[f32::NAN], &[0.0f32], 1, &mut d);
        assert!(d[0].is_nan() && loss.sum(&[f32::NAN], &[0.0f32]).is_nan(), "{loss:?}");
    }
}

#[test]
fn a_delta_out_of_range_is_named() {
    for delta in [0.0, -1.0, 1e-60, f64::NAN, f64::INFINITY] {
        let message = Loss::Huber { delta }.check().unwrap_err().to_string();
        assert!(message.starts_with("training.huber_delta is "), "{message}");
    }
    Loss::Huber { delta: 1e-3 }.check().unwrap();
}

#[test]
fn a_level_out_of_range_is_named() {
    for levels in [&[0.0][..], &[1.0], &[-0.5], &[0.1, 1.0 - 1e-12]] {
        let levels = Ascending::new(levels).unwrap();
        let message = Loss::Quantile { levels }.check().unwrap_err().to_string();
        assert!(message.starts_with("training.quantile is "), "{message}");
    }
    Loss::Quantile { levels: Ascending::one(0.01) }.check().unwrap();
}

/// Losses that compare a target with its output.
fn any_loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::Mse),
        (0.01f64..6.0).prop_map(|delta| Loss::Huber { delta }),
        prop::collection::vec(0.01f64..0.09, 1..9).prop_map(|steps| {
            let mut level = 0.0;
            let mut next = |step| {
                level += step;
                level
            };
            let levels: Vec<f64> = steps.into_iter().map(&mut next).collect();
            Loss::Quantile { levels: Ascending::new(&levels).unwrap() }
        }),
        Just(Loss::Classes(Classes::Thresholds(Ascending::new(&[-1.5, 0.0, 1.0]).unwrap()))),
    ]
}

proptest! {
    /// No number is a better prediction of all the targets than the one that so many of them lie
    /// below.
    #[test]
    fn the_least_quantile_loss_is_at_the_quantile(
        mut targets in prop::collection::vec(-5.0f64..5.0, 1..40), other in -6.0f64..6.0, level in 0.01f64..0.99,
    ) {
        targets.sort_unstable_by(f64::total_cmp);
        let quantile = targets[(level * targets.len() as f64).ceil() as usize - 1];
        let sum = |y: f64| Loss::Quantile { levels: Ascending::one(level) }.sum(&vec![y; targets.len()], &targets);
        prop_assert!(sum(quantile) <= sum(other) + 1e-12);
    }

    #[test]
    fn gradients_are_slopes(
        errors in prop::collection::vec(-5.0f64..5.0, 1..20),
        loss in any_loss(),
    ) {
        const STEP: f64 = 1e-6;
        // Of an error as small as the step, the slope on one side of zero alone is meant.
        prop_assume!(errors.iter().all(|error| error.abs() > STEP));
        let width = loss.outputs_per_target();
        let errors = &errors[..errors.len() / width * width];
        let targets = vec![0.25; errors.len() / width];
        let mut y: Vec<f64> = errors.iter().map(|error| error + 0.25).collect();
        let mut d = vec![0.0; y.len()];
        loss.gradient(&y, &targets, y.len(), &mut d);
        for (index, d) in d.iter().enumerate() {
            let at = y[index];
            let mut mean_at = |x: f64| {
                y[index] = x;
                loss.sum(&y, &targets) / y.len() as f64
            };
            let slope = (mean_at(at + STEP) - mean_at(at - STEP)) / (2.0 * STEP);
            y[index] = at;
            // Where the step straddles ±δ the slope is off by up to half the step; a sum of up to
            // 500 rounds by 1e-13.
            prop_assert!((slope - d).abs() < 1e-6, "{} and {}", slope, d);
        }
    }

    #[test]
    fn a_huge_delta_makes_half_the_mean_square(
        errors in prop::collection::vec(-1e3f64..1e3, 1..20),
    ) {
        let huber = Loss::Huber { delta: 1e30 };
        let targets = vec![0.0; errors.len()];
        prop_assert_eq!(huber.sum(&errors, &targets), 0.5 * Loss::Mse.sum(&errors, &targets));
        let (mut half, mut whole) = (vec![0.0; errors.len()], vec![0.0; errors.len()]);
        huber.gradient(&errors, &targets, 8, &mut half);
        Loss::Mse.gradient(&errors, &targets, 8, &mut whole);
        prop_assert!(half.iter().zip(&whole).all(|(half, whole)| *half == 0.5 * whole));
    }

    /// Unknown targets, whatever is predicted for them, leave what the others come to as it is.
    #[test]
    fn unknown_targets_are_as_if_they_were_not_there(
        rows in prop::collection::vec((prop::collection::vec(-3.0f64..3.0, 9), any::<bool>()), 0..20), loss in any_loss(),
    ) {
        let width = loss.outputs_per_target();
        let target = |(row, is_known): &(Vec<f64>, bool)| if *is_known { row[8] } else { f64::NAN };
        let all = |rows: &[(Vec<f64>, bool)]| -> (Vec<f64>, Vec<f64>) {
            (rows.iter().flat_map(|(row, _)| &row[..width]).copied().collect(), rows.iter().map(target).collect())
        };
        let known: Vec<(Vec<f64>, bool)> = rows.iter().filter(|(_, is_known)| *is_known).cloned().collect();
        let ((y, targets), (known_y, known_targets)) = (all(&rows), all(&known));
        prop_assert_eq!(loss.terms(&targets), loss.terms_of(known.len()));
        prop_assert_eq!(loss.sum(&y, &targets), loss.sum(&known_y, &known_targets));
        let (mut d, mut known_d) = (vec![f64::NAN; y.len()], vec![f64::NAN; known_y.len()]);
        loss.gradient(&y, &targets, 7, &mut d);
        loss.gradient(&known_y, &known_targets, 7, &mut known_d);
        let mut known_d = known_d.chunks_exact(width);
        for ((_, is_known), d) in rows.iter().zip(d.chunks_exact(width)) {
            let zeros = vec![0.0; width];
            prop_assert_eq!(d, if *is_known { known_d.next().unwrap() } else { &zeros });
        }
    }
}
