//! PyTorch's numbers, as `torch_fixture.py` wrote them.

use std::collections::BTreeMap;

use megabatch_gpu_core::Buffer;
use megabatch_segment::{SegmentPlan, ops};
use serde::Deserialize;

use crate::{EXTREMA, buffer, filled, plan, scope};

#[derive(Deserialize)]
struct Fixture {
    cases: BTreeMap<String, Case>,
}

/// Floats are their bits.
#[derive(Deserialize)]
struct Case {
    index: Vec<u32>,
    segments: usize,
    x: Vec<i32>,
    d_out: Vec<i32>,
    d_y: Vec<i32>,
    sum: Answer,
    mean: Answer,
    amax: Answer,
    amin: Answer,
    softmax: Answer,
}

#[derive(Deserialize)]
struct Answer {
    out: Vec<i32>,
    d_x: Vec<i32>,
}

fn floats(bits: &[i32]) -> Vec<f32> {
    bits.iter().map(|&bits| f32::from_bits(bits as u32)).collect()
}

/// Both NaN, or as near as `roundings` of f32 leave two orders of the same arithmetic.
fn check(found: &[f32], expected: &[i32], roundings: f32, what: &str) {
    let expected = floats(expected);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (k, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let near = (found - expected).abs() <= roundings * f32::EPSILON * expected.abs().max(0.1);
        let same = found == expected || found.is_nan() && expected.is_nan() || near;
        assert!(same, "{what}: element {k} is {found:e}, and PyTorch's {expected:e}");
    }
}

fn with_every_case(check: impl Fn(&str, &Case, &SegmentPlan)) {
    let fixture: Fixture = serde_json::from_str(include_str!("../torch_fixture.json")).unwrap();
    for (name, case) in &fixture.cases {
        check(name, case, &plan(&case.index, case.segments));
    }
}

#[test]
fn sums_and_means() {
    with_every_case(|name, case, plan| {
        let (x, d_out) = (buffer(&floats(&case.x)), buffer(&floats(&case.d_out)));
        let sum = filled(d_out.len(), |out| ops::sum(plan, &x, out).unwrap());
        check(&sum, &case.sum.out, 0.0, name);
        let d_x = filled(x.len(), |d_x| ops::gather(plan, &d_out, d_x).unwrap());
        check(&d_x, &case.sum.d_x, 0.0, name);
        let mean = filled(d_out.len(), |out| ops::mean(plan, &x, out).unwrap());
        check(&mean, &case.mean.out, 0.0, name);
        let d_x = filled(x.len(), |d_x| ops::mean_backward(plan, &d_out, d_x).unwrap());
        check(&d_x, &case.mean.d_x, 0.0, name);
    });
}

#[test]
fn extrema() {
    with_every_case(|name, case, plan| {
        let (x, d_out) = (buffer(&floats(&case.x)), buffer(&floats(&case.d_out)));
        for ((_, operation), answer) in EXTREMA.into_iter().zip([&case.amax, &case.amin]) {
            let (mut out, mut argument) = (buffer(&floats(&case.d_out)), Buffer::zeros(&scope(), d_out.len()).unwrap());
            operation(plan, &x, &mut out, &mut argument).unwrap();
            check(out.as_slice(), &answer.out, 0.0, name);
            let shared = |d_x: &mut Buffer<f32>| ops::extremum_backward_shared(plan, &x, &out, &d_out, d_x).unwrap();
            check(&filled(x.len(), shared), &answer.d_x, 0.0, name);
        }
    });
}

#[test]
fn softmax() {
    with_every_case(|name, case, plan| {
        let (x, d_y) = (buffer(&floats(&case.x)), buffer(&floats(&case.d_y)));
        let y = filled(x.len(), |y| ops::softmax(plan, &x, y).unwrap());
        check(&y, &case.softmax.out, 8.0, name);
        let d_x = filled(x.len(), |d_x| ops::softmax_backward(plan, &buffer(&y), &d_y, d_x).unwrap());
        check(&d_x, &case.softmax.d_x, 16.0, name);
    });
}
