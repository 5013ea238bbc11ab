use megabatch_nn::model::{SampleShape, Timeframe};
use megabatch_order::random::{Stream, uniform};

use super::*;
use crate::data::sample_ranges::SampleRanges;
use crate::data::samples::{Batch, InMemory, Samples};

#[path = "../../../tests/baselines/mod.rs"]
mod unwatched;

use unwatched::fit_numbers;

/// Two timeframes; targets are linear in the last bars, the second one constant; one feature
/// repeats another.
fn linear_samples(samples: usize) -> InMemory {
    let timeframe = |name: &str, steps| Timeframe { name: name.to_owned(), steps, features: 2 };
    let shape = SampleShape { timeframes: vec![timeframe("M1", 3), timeframe("H1", 2)], outputs: 2 };
    let draw = |name, len: usize| -> Vec<f32> {
        (0..len as u64).map(|i| uniform(Stream { seed: 1, name }, i) as f32 - 0.5).collect()
    };
    let (m1, mut h1) = (draw("m1", samples * 6), draw("h1", samples * 4));
    for n in 0..samples {
        h1[n * 4 + 3] = m1[n * 6 + 5];
    }
    let targets = (0..samples).flat_map(|n| [2.0 * m1[n * 6 + 4] - h1[n * 4 + 2] + 0.5, 3.0]).collect();
    InMemory::new(shape, vec![m1, h1], targets).unwrap()
}

#[test]
fn linear_targets_are_predicted_and_means_are_means() {
    let samples = linear_samples(200);
    let device = Device::cpu();
    let indices = SampleRanges::from(0..150);
    let baselines = fit_numbers(&device, Selection { samples: &samples, indices: &indices }).unwrap();
    let mut batch = Batch::new(&device.scope("test"), samples.shape(), 50).unwrap();
    batch.resize(50);
    samples.gather(&(150..200).collect::<Vec<_>>(), &mut batch).unwrap();

    let [zeros, means, linear] = predictions(&baselines, &batch.view());
    assert!(zeros.iter().all(|&y| y == 0.0));
    let training: f64 = (0..150).map(|n| f64::from(samples_target(&samples, n))).sum::<f64>() / 150.0;
    assert!((f64::from(means[0]) - training).abs() < 1e-6 && means[1] == 3.0, "{means:?}");
    // The ridge moves the coefficients by about its share, 1e-8, and single precision rounds the
    // result.
    let error = linear.iter().zip(batch.view().targets()).map(|(y, target)| (y - target).abs()).fold(0.0, f32::max);
    assert!(error < 1e-5, "{error}");
}

/// Targets that are not known leave each horizon with the coefficients that its other samples have
/// by themselves.
#[test]
fn a_horizon_is_fitted_on_its_known_targets() {
    let whole = linear_samples(150);
    let (shape, device) = (whole.shape().clone(), Device::cpu());
    let mut batch = Batch::new(&device.scope("test"), &shape, 150).unwrap();
    batch.resize(150);
    whole.gather(&(0..150).collect::<Vec<_>>(), &mut batch).unwrap();
    let (windows, targets) = batch.slices_mut();
    let windows: Vec<Vec<f32>> = windows.into_iter().map(|windows| windows.to_vec()).collect();
    // Noise, so that every sample matters.
    targets.iter_mut().enumerate().for_each(|(i, target)| *target += (i as f32 * 0.7).sin());
    let whole = InMemory::new(shape.clone(), windows.clone(), targets.to_vec()).unwrap();
    let is_known = |n: usize| n >= 70 && !n.is_multiple_of(3);
    targets.chunks_exact_mut(2).enumerate().filter(|(n, _)| !is_known(*n)).for_each(|(_, row)| row[1] = f32::NAN);
    let part = InMemory::new(shape.clone(), windows.clone(), targets.to_vec()).unwrap();
    targets.chunks_exact_mut(2).for_each(|row| row[1] = f32::NAN);
    let none = InMemory::new(shape.clone(), windows, targets.to_vec()).unwrap();
    let known: SampleRanges = (0..150).filter(|&n| is_known(n)).collect();
    let all = SampleRanges::from(0..150);
    let fit = |samples, indices: &SampleRanges| {
        let fitted = fit_numbers(&device, Selection { samples, indices }).unwrap();
        predictions(&fitted, &batch.view())
    };
    let [part, none, all, alone] = [fit(&part, &all), fit(&none, &all), fit(&whole, &all), fit(&whole, &known)];
    for (row, contender) in (0..150).flat_map(|n| [1, 2].map(|contender| (2 * n, contender))) {
        assert_eq!(part[contender][row], all[contender][row]);
        let (found, expected) = (part[contender][row + 1], alone[contender][row + 1]);
        // The sums are added up in another order.
        assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
        assert!(none[contender][row + 1].is_nan() && none[contender][row] == all[contender][row]);
    }
}

/// Predictions of `no_change`, `mean` and `linear`.
fn predictions(baselines: &Baselines, batch: &BatchView<'_>) -> [Vec<f32>; 3] {
    let all = baselines.predict(batch).into_iter().map(|(_, values)| values);
    all.collect::<Vec<_>>().try_into().unwrap()
}

fn samples_target(samples: &InMemory, n: usize) -> f32 {
    let mut batch = Batch::new(&Device::cpu().scope("test"), samples.shape(), 1).unwrap();
    batch.resize(1);
    samples.gather(&[n], &mut batch).unwrap();
    batch.view().targets()[0]
}

#[test]
fn cholesky_solves_a_system_by_hand() {
    let mut a = [4.0, f64::NAN, 2.0, 5.0];
    cholesky(&mut a, 2);
    assert_eq!([a[0], a[2], a[3]], [2.0, 1.0, 2.0]);
    let mut b = [8.0, 14.0];
    substitute(&a, 2, &mut b);
    assert_eq!(b, [0.75, 2.5]);
}

#[test]
fn no_samples_is_an_error() {
    let samples = linear_samples(1);
    let nothing = Selection { samples: &samples, indices: SampleRanges::NONE };
    assert!(matches!(fit_numbers(&Device::cpu(), nothing), Err(Error::NothingLeft { .. })));
}
