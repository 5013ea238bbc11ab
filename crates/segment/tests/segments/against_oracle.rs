//! Any rows in any segments, beside the oracle.

use megabatch_gpu_core::Buffer;
use megabatch_segment::ops;
use proptest::prelude::*;

use crate::oracle::Rows;
use crate::{EXTREMA, buffer, filled, plan, scope};

/// An index, the number of its segments, the columns, and numbers for its rows.
#[derive(Clone, Debug)]
struct Example {
    index: Vec<u32>,
    segments: usize,
    columns: usize,
    x: Vec<f32>,
}

/// Numbers of which many are equal, and some are not ordinary.
fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => (-40i8..40).prop_map(|x| f32::from(x) / 8.0),
        8 => -1e3f32..1e3,
        1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE / 8.0]),
    ]
}

fn examples() -> impl Strategy<Value = Example> {
    (1usize..12, 0usize..70, 0usize..60).prop_flat_map(|(segments, columns, rows)| {
        let index = prop::collection::vec(0..segments as u32, rows);
        let x = prop::collection::vec(number(), rows * columns);
        (index, x).prop_map(move |(index, x)| Example { index, segments, columns, x })
    })
}

/// One long segment among short ones, so that there are several levels of pieces.
fn long_example() -> Example {
    let index: Vec<u32> = (0..3000u32).map(|row| if row % 10 == 3 { row % 7 } else { 4 }).collect();
    let x = (0..9000u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 20) as f32 / 512.0 - 4.0).collect();
    Example { index, segments: 9, columns: 3, x }
}

/// A result may be off by `roundings` of f32 in proportion to `magnitude`, the sum of the absolute
/// values that went into it.
fn check(found: &[f32], expected: &[f64], magnitude: &[f64], roundings: f64) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), expected.len());
    for (k, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let found = f64::from(found);
        let off = (found - expected).abs();
        let allowed = roundings * f64::from(f32::EPSILON) / 2.0 * magnitude[k] + f64::from(f32::from_bits(1));
        let same = found == expected || found.is_nan() && expected.is_nan() || off <= allowed;
        prop_assert!(same, "element {} is {:e} where {:e} is right to {:e}", k, found, expected, allowed);
    }
    Ok(())
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| x.into()).collect()
}

fn check_sums(example: &Example) -> Result<(), TestCaseError> {
    let Example { index, segments, columns, x } = example;
    let rows = Rows { index, segments: *segments, columns: *columns };
    let (plan, len, x) = (plan(index, *segments), segments * columns, (buffer(x), wide(x)));
    let magnitude = rows.sum(&x.1.iter().map(|x| x.abs()).collect::<Vec<_>>());
    let roundings = index.len() as f64 + 1.0;
    let sum = filled(len, |out| ops::sum(&plan, &x.0, out).unwrap());
    check(&sum, &rows.sum(&x.1), &magnitude, roundings)?;
    let mean = filled(len, |out| ops::mean(&plan, &x.0, out).unwrap());
    check(&mean, &rows.mean(&x.1), &magnitude, roundings + 1.0)
}

fn check_extrema(example: &Example) -> Result<(), TestCaseError> {
    let Example { index, segments, columns, x } = example;
    let rows = Rows { index, segments: *segments, columns: *columns };
    let (plan, len) = (plan(index, *segments), segments * columns);
    for (sign, operation) in EXTREMA {
        let mut argument = Buffer::<u32>::zeros(&scope(), len).unwrap();
        let out = filled(len, |out| operation(&plan, &buffer(x), out, &mut argument).unwrap());
        let expected = rows.extremum(&wide(x), sign);
        check(&out, &expected.iter().map(|best| best.0).collect::<Vec<_>>(), &vec![0.0; len], 0.0)?;
        let arguments: Vec<usize> = argument.to_vec().unwrap().into_iter().map(|row| row as usize).collect();
        prop_assert_eq!(arguments, expected.iter().map(|best| best.1).collect::<Vec<_>>());
    }
    Ok(())
}

fn check_softmax(example: &Example) -> Result<(), TestCaseError> {
    let Example { index, segments, columns, x } = example;
    let rows = Rows { index, segments: *segments, columns: *columns };
    let y = filled(x.len(), |y| ops::softmax(&plan(index, *segments), &buffer(x), y).unwrap());
    let expected = rows.softmax(&wide(x));
    // x − m rounds once, and exp makes of that an error in proportion to |x − m|, which where exp
    // is not 0 is at most 104.
    check(&y, &expected, &expected, 2.0 * 104.0 + index.len() as f64 + 8.0)
}

fn check_gather(example: &Example) -> Result<(), TestCaseError> {
    let Example { index, segments, columns, x } = example;
    let rows = Rows { index, segments: *segments, columns: *columns };
    let values: Vec<f32> = (0..segments * columns).map(|k| x.get(k).copied().unwrap_or(k as f32)).collect();
    let out = filled(x.len(), |out| ops::gather(&plan(index, *segments), &buffer(&values), out).unwrap());
    check(&out, &rows.gather(&wide(&values)), &vec![0.0; x.len()], 0.0)
}

proptest! {
    #[test]
    fn sums_and_means(example in examples()) {
        check_sums(&example)?;
    }

    #[test]
    fn extrema_and_their_rows(example in examples()) {
        check_extrema(&example)?;
    }

    #[test]
    fn softmax(example in examples()) {
        check_softmax(&example)?;
    }

    #[test]
    fn gathering(example in examples()) {
        check_gather(&example)?;
    }
}

#[test]
fn long_segments() {
    let example = long_example();
    check_sums(&example).unwrap();
    check_extrema(&example).unwrap();
    check_softmax(&example).unwrap();
    check_gather(&example).unwrap();
}
