//! PyTorch's numbers, as `torch_fixture.py` wrote them.

use std::collections::BTreeMap;

use megabatch_segment::tensor::{
    Extremum, ExtremumOutput, Fold, RowSegments, Schedule, Segments, Shape, Share, Softmax, extremum, fold, gather,
    plan_from_index, plan_len, softmax, softmax_backward,
};
use serde::Deserialize;

const SCHEDULE: Schedule = Schedule::CallingThread;

#[derive(Deserialize)]
struct Fixture {
    cases: BTreeMap<String, Case>,
}

/// Floats are their bits.
#[derive(Deserialize)]
struct Case {
    index: Vec<i64>,
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

/// Runs `check` on every case, with its segments and its sizes.
fn with_every_case(check: impl Fn(&str, &Case, &Segments<'_>, Shape)) {
    let fixture: Fixture = serde_json::from_str(include_str!("../torch_fixture.json")).unwrap();
    for (name, case) in &fixture.cases {
        let rows = case.index.len();
        let mut plan = vec![0; plan_len(rows, case.segments)];
        plan_from_index(&case.index, case.segments, &mut plan, SCHEDULE).unwrap();
        let shape = Shape { batches: 1, rows, columns: case.d_out.len() / case.segments };
        check(name, case, &Segments::new(&plan, case.segments), shape);
    }
}

#[test]
fn sums_and_means() {
    with_every_case(|name, case, segments, shape| {
        let (x, d_out) = (floats(&case.x), floats(&case.d_out));
        for (which, share, answer) in [(Fold::Sum, Share::Whole, &case.sum), (Fold::Mean, Share::Equal, &case.mean)] {
            let (mut out, mut d_x) = (vec![9.0; d_out.len()], vec![9.0; x.len()]);
            fold(which, segments, shape, &x, None, &mut out, SCHEDULE);
            check(&out, &answer.out, 0.0, name);
            gather(share, segments, RowSegments::Index(&case.index), shape, &d_out, &mut d_x, SCHEDULE);
            check(&d_x, &answer.d_x, 0.0, name);
        }
    });
}

/// Gradients are left out: PyTorch shares them among equal rows.
#[test]
fn extrema() {
    with_every_case(|name, case, segments, shape| {
        for (which, answer) in [(Extremum::Max, &case.amax), (Extremum::Min, &case.amin)] {
            let (mut values, mut arguments) = (vec![9.0; case.d_out.len()], vec![9; case.d_out.len()]);
            let out = ExtremumOutput { values: &mut values, arguments: &mut arguments };
            extremum(which, segments, shape, &floats(&case.x), None, out, SCHEDULE);
            check(&values, &answer.out, 0.0, name);
        }
    });
}

#[test]
fn softmaxes() {
    with_every_case(|name, case, segments, shape| {
        let (x, d_y) = (floats(&case.x), floats(&case.d_y));
        let (mut y, mut d_x) = (vec![9.0; x.len()], vec![9.0; x.len()]);
        softmax(Softmax::Plain, segments, shape, &x, &mut y, SCHEDULE);
        check(&y, &case.softmax.out, 8.0, name);
        softmax_backward(Softmax::Plain, segments, shape, &y, &d_y, &mut d_x, SCHEDULE);
        check(&d_x, &case.softmax.d_x, 16.0, name);
    });
}
