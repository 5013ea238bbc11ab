//! The backward passes beside finite differences of the oracle.

use megabatch_gpu_core::Buffer;
use megabatch_segment::ops;

use crate::oracle::Rows;
use crate::{EXTREMA, buffer, filled, plan, scope};

/// Half the distance between the two points of a difference. In f64 its error is of the order of
/// its square.
const STEP: f64 = 1e-5;

const INDEX: [u32; 11] = [3, 0, 3, 1, 3, 0, 5, 3, 1, 5, 3];
const ROWS: Rows<'static> = Rows { index: &INDEX, segments: 6, columns: 5 };

/// Numbers no two of which are nearer than the step.
fn numbers(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32)
        .map(|k| ((k + seed).wrapping_mul(2_654_435_761) >> 22) as f32 / 128.0 - 4.0 + k as f32 * 1e-3)
        .collect()
}

/// The gradient of Σ d_out · `forward`(x), by central differences.
fn differences(x: &[f32], d_out: &[f32], forward: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
    let weighed = |x: &[f64]| forward(x).iter().zip(d_out).map(|(out, &d)| out * f64::from(d)).sum::<f64>();
    let difference = |k: usize| {
        let at = |offset: f64| {
            let mut x = x.clone();
            x[k] += offset;
            weighed(&x)
        };
        (at(STEP) - at(-STEP)) / (2.0 * STEP)
    };
    (0..x.len()).map(difference).collect()
}

/// The tolerance is that of f32 arithmetic on numbers below 10, and of the differences.
fn check(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (k, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(found) - expected).abs() < 2e-5, "{what}: element {k} is {found} where {expected} is right");
    }
}

#[test]
fn sum_mean_and_gather() {
    let (x, d_out) = (numbers(INDEX.len() * 5, 1), numbers(6 * 5, 2));
    let plan = plan(&INDEX, 6);
    let d_x = filled(x.len(), |d_x| ops::gather(&plan, &buffer(&d_out), d_x).unwrap());
    check(&d_x, &differences(&x, &d_out, |x| ROWS.sum(x)), "sum");
    let d_x = filled(x.len(), |d_x| ops::mean_backward(&plan, &buffer(&d_out), d_x).unwrap());
    check(&d_x, &differences(&x, &d_out, |x| ROWS.mean(x)), "mean");
    let d_values = filled(d_out.len(), |d_values| ops::sum(&plan, &buffer(&x), d_values).unwrap());
    check(&d_values, &differences(&d_out, &x, |values| ROWS.gather(values)), "gather");
}

#[test]
fn extrema() {
    let (x, d_out) = (numbers(INDEX.len() * 5, 3), numbers(6 * 5, 4));
    let (plan, x_there, d_out_there) = (plan(&INDEX, 6), buffer(&x), buffer(&d_out));
    for (sign, operation) in EXTREMA {
        let (mut out, mut argument) = (buffer(&d_out), Buffer::<u32>::zeros(&scope(), d_out.len()).unwrap());
        operation(&plan, &x_there, &mut out, &mut argument).unwrap();
        let forward = |x: &[f64]| ROWS.extremum(x, sign).into_iter().map(|(value, _)| value).collect();
        let expected = differences(&x, &d_out, forward);
        let backward = |d_x: &mut Buffer<f32>| ops::extremum_backward(&plan, &argument, &d_out_there, d_x).unwrap();
        check(&filled(x.len(), backward), &expected, "extremum");
        let shared =
            |d_x: &mut Buffer<f32>| ops::extremum_backward_shared(&plan, &x_there, &out, &d_out_there, d_x).unwrap();
        check(&filled(x.len(), shared), &expected, "extremum, shared");
    }
}

#[test]
fn softmax() {
    let (x, d_y) = (numbers(INDEX.len() * 5, 5), numbers(INDEX.len() * 5, 6));
    let plan = plan(&INDEX, 6);
    let y = filled(x.len(), |y| ops::softmax(&plan, &buffer(&x), y).unwrap());
    let d_x = filled(x.len(), |d_x| ops::softmax_backward(&plan, &buffer(&y), &buffer(&d_y), d_x).unwrap());
    check(&d_x, &differences(&x, &d_y, |x| ROWS.softmax(x)), "softmax");
}

#[test]
fn equal_rows_share_and_the_first_takes_all() {
    let (plan, x, d_out) = (plan(&[0, 1, 0, 0], 2), buffer(&[2.0, 5.0, 2.0, 1.0]), buffer(&[6.0, 7.0]));
    let (mut out, mut argument) = (buffer(&[0.0; 2]), Buffer::<u32>::zeros(&scope(), 2).unwrap());
    ops::max(&plan, &x, &mut out, &mut argument).unwrap();
    let all = filled(4, |d_x| ops::extremum_backward(&plan, &argument, &d_out, d_x).unwrap());
    assert_eq!(all, [6.0, 7.0, 0.0, 0.0]);
    let shared = filled(4, |d_x| ops::extremum_backward_shared(&plan, &x, &out, &d_out, d_x).unwrap());
    assert_eq!(shared, [3.0, 7.0, 3.0, 0.0]);
}
