use proptest::prelude::*;

use super::*;
use crate::oracle::{self, wide};

fn task(targets: [usize; 2], loss: TaskLoss, weight: f64) -> Task {
    Task { targets, loss, weight }
}

/// Five targets in three groups, the last of two classes a target.
fn three() -> Tasks {
    let levels = Ascending::new(&[0.25, 0.75]).unwrap();
    Tasks::new(&[
        task([0, 2], TaskLoss::Huber { delta: 1.0 }, 0.5),
        task([2, 3], TaskLoss::Quantile { levels }, 0.2),
        task([3, 5], TaskLoss::Classes(Classes::Labels(2)), 0.3),
    ])
    .unwrap()
}

#[test]
fn groups_have_their_outputs_side_by_side() {
    let groups = Loss::Tasks(three()).groups(5);
    let places: Vec<_> = groups.iter().map(|group| (group.targets.clone(), group.outputs.clone())).collect();
    assert_eq!(places, [(0..2, 0..2), (2..3, 2..4), (3..5, 4..8)]);
    assert_eq!((Loss::Tasks(three()).outputs(5), Loss::Mse.outputs(5)), (8, 5));
    assert_eq!(Loss::Tasks(three()).terms_max(7, 5), 7 * (2 + 2 + 2));
}

#[test]
fn the_loss_is_the_weighted_mean_of_the_groups() {
    let loss = Loss::Tasks(three());
    // Two samples; of the second, one number and both classes are not known.
    let (y, targets) = (
        [0.5, 4.0, 0.0, 2.0, 3.0, 3.0, 3.0, 3.0, 2.0, 9.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, f32::NAN, 1.0, f32::NAN, f32::NAN],
    );
    let huber = (0.125 + 3.5 + 1.5) / 3.0;
    let quantile = (0.25 + 0.25 + 0.0 + 0.0) / 4.0;
    let expected = 0.5 * huber + 0.2 * quantile + 0.3 * 2f64.ln();
    let terms = loss.terms(&targets);
    assert_eq!(terms, 3 + 4 + 2);
    let found = loss.sum(&y, &targets) / terms as f64;
    assert!((found - expected).abs() < 1e-12, "{found} for {expected}");
    // A group of which nothing is known adds nothing.
    let found = loss.sum(&y[8..], &targets[5..]) / loss.terms(&targets[5..]) as f64;
    assert!((found - 0.5 * 1.5).abs() < 1e-12, "{found}");
}

#[test]
fn what_is_wrong_with_a_task_is_named() {
    let mse = |targets, weight| task(targets, TaskLoss::Mse, weight);
    for (tasks, expected) in [
        (vec![], "`tasks` is a list of 0: expected 1 to 8 tasks"),
        (vec![mse([1, 2], 1.0)], "`tasks[0].targets` is 1..2: expected 0..END"),
        (vec![mse([0, 2], 0.5), mse([3, 4], 0.5)], "`tasks[1].targets` is 3..4: expected 2..END"),
        (vec![mse([0, 2], 0.5), mse([2, 2], 0.5)], "`tasks[1].targets` is 2..2: expected 2..END"),
        (vec![mse([0, 2], 0.0)], "`tasks[0].weight` is 0: expected a positive number"),
        (vec![mse([0, 2], 0.5), mse([2, 3], 0.4)], "`tasks`: the sum of all weights is 0.9: expected 1"),
        (
            vec![mse([0, 1], 0.5), task([1, 2], TaskLoss::Huber { delta: -1.0 }, 0.5)],
            "`tasks[1].huber_delta` is -1: expected a positive number",
        ),
    ] {
        let message = Tasks::new(&tasks).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
    let message = Loss::Tasks(three()).check_groups(6).unwrap_err().to_string();
    assert!(message.starts_with("`tasks[2].targets` is ..5: expected 6 as its end"), "{message}");
}

#[test]
fn tasks_are_kept_as_a_list() {
    let loss = Loss::Tasks(three());
    let text = serde_json::to_string(&loss).unwrap();
    assert_eq!(serde_json::from_str::<Loss>(&text).unwrap(), loss);
    assert!(serde_json::from_str::<Loss>(&text.replace("0.5", "0.6")).is_err());
    assert_eq!(
        three().to_string(),
        "0..2 huber x 0.5 (1); 2..3 quantile x 0.2 (0.25, 0.75); 3..5 cross_entropy x 0.3 (2)"
    );
}

proptest! {
    /// In single precision, slopes of up to 3.
    #[test]
    fn losses_and_gradients_are_the_oracles(
        rows in prop::collection::vec((prop::collection::vec(-3.0f32..3.0, 8), prop::collection::vec(any::<bool>(), 5)), 1..6),
    ) {
        let loss = Loss::Tasks(three());
        let y: Vec<f32> = rows.iter().flat_map(|(y, _)| y.clone()).collect();
        let target = |(k, &known): (usize, &bool)| match (known, k) {
            (false, _) => f32::NAN,
            (true, 3) => 1.0,
            (true, 4) => 0.0,
            (true, _) => 0.1,
        };
        let targets: Vec<f32> = rows.iter().flat_map(|(_, known)| known.iter().enumerate().map(target).collect::<Vec<_>>()).collect();
        let terms = loss.terms(&targets).max(1);
        let mut d = vec![f32::NAN; y.len()];
        loss.gradient(&y, &targets, terms, &mut d);
        let expected = oracle::loss(loss, &y, &targets, 5);
        prop_assert!((loss.sum(&y, &targets) / terms as f64 - expected.mean).abs() < 1e-12);
        for (d, expected) in wide(&d).into_iter().zip(expected.gradient) {
            prop_assert!((d - expected).abs() < 1e-6, "{} and {}", d, expected);
        }
    }

    /// Parts of a step, whose counts are known ahead, add up to the whole.
    #[test]
    fn parts_add_up_to_the_step(
        rows in prop::collection::vec((prop::collection::vec(-3.0f32..3.0, 8), prop::collection::vec(any::<bool>(), 5)), 2..9), cut in 0usize..9,
    ) {
        let whole = three();
        let cut = cut.min(rows.len());
        let y: Vec<f32> = rows.iter().flat_map(|(y, _)| y.clone()).collect();
        let target = |known: &bool| if *known { 1.0 } else { f32::NAN };
        let targets: Vec<f32> = rows.iter().flat_map(|(_, known)| known.iter().map(target).collect::<Vec<_>>()).collect();
        let parts = Loss::Tasks(whole.with_step_counts(whole.count(&targets)));
        let loss = Loss::Tasks(whole);
        let sum = parts.sum(&y[..8 * cut], &targets[..5 * cut]) + parts.sum(&y[8 * cut..], &targets[5 * cut..]);
        prop_assert!((sum - loss.sum(&y, &targets)).abs() < 1e-9);
        let (mut d, mut part_gradients) = (vec![0.0; y.len()], vec![0.0; y.len()]);
        loss.gradient(&y, &targets, 7, &mut d);
        let (first, second) = part_gradients.split_at_mut(8 * cut);
        parts.gradient(&y[..8 * cut], &targets[..5 * cut], 7, first);
        parts.gradient(&y[8 * cut..], &targets[5 * cut..], 7, second);
        prop_assert_eq!(d, part_gradients);
    }
}
