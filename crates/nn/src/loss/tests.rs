use proptest::prelude::*;

use super::*;
use crate::oracle;

#[test]
fn mse_and_its_gradient() {
    let (y, target) = ([1.0, 2.0, 5.0], [1.0, 0.0, 6.0]);
    assert_eq!(Loss::Mse.sum(&y, &target), 5.0);
    let mut d = [f32::NAN; 3];
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
    let mut d = [f32::NAN; 7];
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
    let mut d = [f32::NAN; 5];
    loss.gradient(&y, &target, 2, &mut d);
    assert_eq!(d, [0.0, 0.125, -0.375, 0.125, -0.375]);
}

/// Two targets of two levels, by hand: each target has its outputs side by side.
#[test]
fn several_quantiles_have_an_output_each() {
    let loss = Loss::Quantile { levels: Ascending::new(&[0.25, 0.75]).unwrap() };
    assert_eq!((loss.outputs_per_target(), loss.terms(&[1.0, f32::NAN, 5.0])), (2, 4));
    let (y, targets) = ([0.0, 2.0, 7.0, 4.0], [1.0, 5.0]);
    assert_eq!(loss.sum(&y, &targets), 0.25 + 0.25 + 1.5 + 0.75);
    let mut d = [f32::NAN; 4];
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
fn levels_are_read_as_they_are_written() {
    let loss = Loss::Quantile { levels: Ascending::one(0.75) };
    assert_eq!(serde_json::from_str::<Loss>(&serde_json::to_string(&loss).unwrap()).unwrap(), loss);
}

/// Outputs of three classes for two targets, by hand: all equal, and so far apart that one has all
/// of the probability.
#[test]
fn classes_and_their_gradient() {
    let loss = Loss::Classes(Classes::Thresholds(Ascending::new(&[-1.0, 1.0]).unwrap()));
    assert_eq!((loss.outputs_per_target(), loss.terms(&[0.0, f32::NAN, 5.0]), loss.name()), (3, 2, "cross_entropy"));
    let (y, targets) = ([2.0, 2.0, 2.0, 1000.0, 0.0, 0.0], [0.0, 1.5]);
    assert!((loss.sum(&y, &targets) - (3f64.ln() + 1000.0)).abs() < 1e-12);
    let mut d = [f32::NAN; 6];
    loss.gradient(&y, &targets, 2, &mut d);
    let expected = [1.0 / 6.0, -1.0 / 3.0, 1.0 / 6.0, 0.5, 0.0, -0.5];
    assert!(d.iter().zip(expected).all(|(d, expected)| (d - expected).abs() < 1e-7), "{d:?}");

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
        let delta = delta as f32;
        assert_eq!((limited(delta, delta), limited(-delta, delta)), (delta, -delta));
    }
}

#[test]
fn what_is_not_a_number_stays_so() {
    for loss in [Loss::Mse, Loss::Huber { delta: 1.0 }, Loss::Quantile { levels: Ascending::one(0.5) }] {
        let mut d = [0.0];
        loss.gradient(&[f32::NAN], &[0.0], 1, &mut d);
        assert!(d[0].is_nan() && loss.sum(&[f32::NAN], &[0.0]).is_nan(), "{loss:?}");
    }
}

#[test]
fn a_delta_out_of_range_is_named() {
    for delta in [0.0, -1.0, 1e-60, f64::NAN, f64::INFINITY] {
        let message = Loss::Huber { delta }.check().unwrap_err().to_string();
        assert!(message.starts_with("`huber_delta` is "), "{message}");
    }
    Loss::Huber { delta: 1e-3 }.check().unwrap();
}

#[test]
fn a_level_out_of_range_is_named() {
    for levels in [&[0.0][..], &[1.0], &[-0.5], &[0.1, 1.0 - 1e-12]] {
        let levels = Ascending::new(levels).unwrap();
        let message = Loss::Quantile { levels }.check().unwrap_err().to_string();
        assert!(message.starts_with("`quantile` is "), "{message}");
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
        mut targets in prop::collection::vec(-5.0f32..5.0, 1..40), other in -6.0f32..6.0, level in 0.01f64..0.99,
    ) {
        targets.sort_unstable_by(f32::total_cmp);
        let quantile = targets[(level * targets.len() as f64).ceil() as usize - 1];
        let sum = |y: f32| Loss::Quantile { levels: Ascending::one(level) }.sum(&vec![y; targets.len()], &targets);
        prop_assert!(sum(quantile) <= sum(other) + 1e-12);
    }

    /// Errors of up to 5 are rounded to single precision, and so are the slopes, of up to 12.
    #[test]
    fn losses_and_gradients_are_the_oracles(
        errors in prop::collection::vec(-5.0f32..5.0, 1..20),
        loss in any_loss(),
    ) {
        let width = loss.outputs_per_target();
        let errors = &errors[..errors.len() / width * width];
        let targets: Vec<f32> = (0..errors.len() / width).map(|k| if k % 5 == 3 { f32::NAN } else { 0.25 }).collect();
        let y: Vec<f32> = errors.iter().map(|error| error + 0.25).collect();
        let (terms, mut d) = (loss.terms(&targets), vec![f32::NAN; y.len()]);
        loss.gradient(&y, &targets, terms, &mut d);
        let expected = oracle::loss(loss, &y, &targets, 1);
        prop_assert!((loss.sum(&y, &targets) / terms.max(1) as f64 - expected.mean).abs() < 1e-12);
        for (d, expected) in wide(&d).into_iter().zip(expected.gradient) {
            prop_assert!((d - expected).abs() * (terms as f64) < 3e-6, "{} and {}", d, expected);
        }
    }

    #[test]
    fn a_huge_delta_makes_half_the_mean_square(
        errors in prop::collection::vec(-1e3f32..1e3, 1..20),
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
        rows in prop::collection::vec((prop::collection::vec(-3.0f32..3.0, 9), any::<bool>()), 0..20), loss in any_loss(),
    ) {
        let width = loss.outputs_per_target();
        let target = |(row, is_known): &(Vec<f32>, bool)| if *is_known { row[8] } else { f32::NAN };
        let all = |rows: &[(Vec<f32>, bool)]| -> (Vec<f32>, Vec<f32>) {
            (rows.iter().flat_map(|(row, _)| &row[..width]).copied().collect(), rows.iter().map(target).collect())
        };
        let known: Vec<(Vec<f32>, bool)> = rows.iter().filter(|(_, is_known)| *is_known).cloned().collect();
        let ((y, targets), (known_y, known_targets)) = (all(&rows), all(&known));
        prop_assert_eq!(loss.terms(&targets), loss.terms_of(known.len()));
        prop_assert_eq!(loss.sum(&y, &targets), loss.sum(&known_y, &known_targets));
        let (mut d, mut known_d) = (vec![f32::NAN; y.len()], vec![f32::NAN; known_y.len()]);
        loss.gradient(&y, &targets, 7, &mut d);
        loss.gradient(&known_y, &known_targets, 7, &mut known_d);
        let mut known_d = known_d.chunks_exact(width);
        for ((_, is_known), d) in rows.iter().zip(d.chunks_exact(width)) {
            let zeros = vec![0.0; width];
            prop_assert_eq!(d, if *is_known { known_d.next().unwrap() } else { &zeros });
        }
    }
}
