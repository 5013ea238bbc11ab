//! Operations on tensors beside loops over their numbers.

use half::bf16;

use super::*;

/// Rows of several batches in segments, of which one is empty, one a piece and one of two levels.
struct Case {
    shape: Shape,
    segments: usize,
    index: Vec<i64>,
    plan: Vec<u32>,
    /// `[batches, rows, columns]`.
    x: Vec<f64>,
    /// `[batches, segments, columns]`.
    values: Vec<f64>,
}

const SEGMENTS: usize = 5;

impl Case {
    fn new(columns: usize, is_sorted: bool) -> Self {
        let mut index: Vec<i64> = [(0, 3), (2, 512), (3, 1200), (4, 2)]
            .into_iter()
            .flat_map(|(segment, rows)| std::iter::repeat_n(segment, rows))
            .collect();
        let rows = index.len();
        if !is_sorted {
            // 619 is coprime to the number of rows.
            index = (0..rows).map(|row| index[row * 619 % rows]).collect();
        }
        let mut plan = vec![0; plan_len(rows, SEGMENTS)];
        plan_from_index(&index, SEGMENTS, &mut plan, Schedule::CallingThread).unwrap();
        let shape = Shape { batches: 2, rows, columns };
        let numbers = |len: usize| (0..len).map(|k| ((k * 7919) % 257) as f64 / 128.0 - 1.0).collect();
        Case {
            shape,
            segments: SEGMENTS,
            index,
            plan,
            x: numbers(2 * rows * columns),
            values: numbers(2 * SEGMENTS * columns),
        }
    }

    fn segments(&self) -> Segments<'_> {
        Segments::new(&self.plan, self.segments)
    }

    /// For each number of the segments the places of its rows in `x`, with their numbers as rows.
    fn places(&self) -> Vec<Vec<(usize, usize)>> {
        let Shape { batches, rows, columns } = self.shape;
        let mut places = vec![Vec::new(); batches * self.segments * columns];
        for (batch, row, column) in positions(batches, rows, columns) {
            let segment = self.index[row] as usize;
            places[(batch * self.segments + segment) * columns + column]
                .push(((batch * rows + row) * columns + column, row));
        }
        places
    }
}

fn positions(batches: usize, rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..batches * rows * columns).map(move |k| (k / (rows * columns), k / columns % rows, k % columns))
}

fn each_case(check: impl Fn(&Case, Schedule)) {
    for columns in [1, 3, 8, 85] {
        for (is_sorted, schedule) in
            [(true, Schedule::CallingThread), (false, Schedule::CallingThread), (false, Schedule::Pool)]
        {
            check(&Case::new(columns, is_sorted), schedule);
        }
    }
}

fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() <= 1e-9 * expected.abs().max(1.0);
    let differs = found.iter().zip(expected).position(|pair| !is_near(pair));
    assert_eq!(differs.map(|k| (k, found[k], expected[k])), None);
}

#[test]
fn segments_are_folded() {
    each_case(|case, schedule| {
        for (which, base) in [(Fold::Sum, None), (Fold::Sum, Some(&case.values)), (Fold::Mean, Some(&case.values))] {
            let (mut out, base) = (vec![f64::NAN; case.values.len()], base.map(Vec::as_slice));
            fold(which, &case.segments(), case.shape, &case.x, base, &mut out, schedule);
            let expected = case.places().into_iter().enumerate().map(|(k, places)| {
                let sum =
                    places.iter().map(|&(place, _)| case.x[place]).sum::<f64>() + base.map_or(0.0, |base| base[k]);
                if which == Fold::Mean { sum / places.len().max(1) as f64 } else { sum }
            });
            assert_near(&out, &expected.collect::<Vec<_>>());
        }
    });
}

#[test]
fn products_and_integers_are_exact() {
    let case = Case::new(3, false);
    let x: Vec<i32> = (0..case.x.len() as i32).map(|k| if k % 97 == 0 { 2 } else { 1 }).collect();
    let mut out = vec![0; case.values.len()];
    fold(Fold::Product, &case.segments(), case.shape, &x, None, &mut out, Schedule::CallingThread);
    let product =
        |places: Vec<(usize, usize)>| places.into_iter().fold(1i32, |one, (place, _)| one.wrapping_mul(x[place]));
    assert_eq!(out, case.places().into_iter().map(product).collect::<Vec<_>>());
}

#[test]
fn sixteen_bits_are_rounded_once() {
    let case = Case::new(1, true);
    let x = vec![bf16::from_f32(1.0); case.x.len()];
    let mut out = vec![bf16::ZERO; case.values.len()];
    fold(Fold::Sum, &case.segments(), case.shape, &x, None, &mut out, Schedule::CallingThread);
    // Added one by one, 1200 ones would stay at 256.
    assert_eq!(out[3], bf16::from_f32(1200.0));
}

/// Numbers below and above those that stand for no rows.
fn halves(len: usize) -> Vec<f64> {
    (0..len).map(|k| if k % 2 == 0 { 0.5 } else { -0.5 }).collect()
}

#[test]
fn extrema_have_the_first_row() {
    each_case(|case, schedule| {
        for (which, base) in
            [(Extremum::Max, None), (Extremum::Min, None), (Extremum::Max, Some(halves(case.values.len())))]
        {
            let (mut values, mut arguments) = (vec![f64::NAN; case.values.len()], vec![-1; case.values.len()]);
            let out = ExtremumOutput { values: &mut values, arguments: &mut arguments };
            extremum(which, &case.segments(), case.shape, &case.x, base.as_deref(), out, schedule);
            let none = case.shape.rows as i64;
            for (k, places) in case.places().into_iter().enumerate() {
                let mut best = base.as_ref().map(|base| (base[k], none));
                for (place, row) in places {
                    let x = case.x[place];
                    let takes = best.is_none_or(|(best, _)| if which == Extremum::Max { x > best } else { x < best });
                    best = if takes { Some((x, row as i64)) } else { best };
                }
                assert_eq!((values[k], arguments[k]), best.unwrap_or((0.0, none)), "{k}");
            }
            let mut d_x = vec![f64::NAN; case.x.len()];
            extremum_backward(&case.segments(), case.shape, &arguments, &case.values, &mut d_x, schedule);
            let mut expected = vec![0.0; case.x.len()];
            for (k, places) in case.places().into_iter().enumerate() {
                if let Some(&(place, _)) = places.iter().find(|&&(_, row)| row as i64 == arguments[k]) {
                    expected[place] = case.values[k];
                }
            }
            assert_eq!(d_x, expected);
        }
    });
}

#[test]
fn rows_gather_from_their_segments() {
    each_case(|case, schedule| {
        for share in [Share::Whole, Share::Equal] {
            let mut expected = vec![0.0; case.x.len()];
            for (k, places) in case.places().into_iter().enumerate() {
                let over = if share == Share::Equal { places.len() as f64 } else { 1.0 };
                places.iter().for_each(|&(place, _)| expected[place] = case.values[k] / over);
            }
            let mut forms = vec![RowSegments::Index(&case.index)];
            forms.extend(case.segments().order().is_none().then_some(RowSegments::Offsets));
            for form in forms {
                let mut out = vec![f64::NAN; case.x.len()];
                gather(share, &case.segments(), form, case.shape, &case.values, &mut out, schedule);
                assert_eq!(out, expected, "{share:?}");
            }
        }
    });
}

#[test]
fn softmax_and_its_logarithm_have_their_gradients() {
    each_case(|case, schedule| {
        for which in [Softmax::Plain, Softmax::Logarithm { eps: 0.0 }] {
            let (mut y, mut d_x) = (vec![f64::NAN; case.x.len()], vec![f64::NAN; case.x.len()]);
            softmax(which, &case.segments(), case.shape, &case.x, &mut y, schedule);
            let d_y: Vec<f64> = case.x.iter().map(|x| x * x - 0.3).collect();
            softmax_backward(which, &case.segments(), case.shape, &y, &d_y, &mut d_x, schedule);
            let (mut expected, mut gradients) = (vec![0.0; case.x.len()], vec![0.0; case.x.len()]);
            for places in case.places() {
                let sum: f64 = places.iter().map(|&(place, _)| case.x[place].exp()).sum();
                let probability = |place: usize| case.x[place].exp() / sum;
                let dot: f64 = places.iter().map(|&(place, _)| probability(place) * d_y[place]).sum();
                let total: f64 = places.iter().map(|&(place, _)| d_y[place]).sum();
                for (place, _) in places {
                    (expected[place], gradients[place]) = match which {
                        Softmax::Plain => (probability(place), probability(place) * (d_y[place] - dot)),
                        Softmax::Logarithm { .. } => (probability(place).ln(), d_y[place] - probability(place) * total),
                    };
                }
            }
            assert_near(&y, &expected);
            assert_near(&d_x, &gradients);
        }
    });
}

#[test]
fn many_short_segments_of_narrow_rows_have_the_bits_of_others() {
    let (rows, segments) = (5000usize, 2000usize);
    let index: Vec<i64> = (0..rows as i64).map(|row| row * row * 7919 % segments as i64).collect();
    let mut plan = vec![0; plan_len(rows, segments)];
    plan_from_index(&index, segments, &mut plan, Schedule::CallingThread).unwrap();
    let segments = Segments::new(&plan, segments);
    let numbers = |columns: usize, factor: usize| -> Vec<f32> {
        let number = |k: usize| ((k / columns * 31 + k % columns * 7) * factor % 997) as f32 / 99.0 - 5.0;
        (0..rows * columns).map(number).collect()
    };
    for which in [Softmax::Plain, Softmax::Logarithm { eps: 1e-12 }] {
        let first_column = |columns: usize| {
            let shape = Shape { batches: 1, rows, columns };
            let (x, d_y) = (numbers(columns, 13), numbers(columns, 17));
            let (mut y, mut d_x) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            softmax(which, &segments, shape, &x, &mut y, Schedule::CallingThread);
            softmax_backward(which, &segments, shape, &y, &d_y, &mut d_x, Schedule::CallingThread);
            let first = |numbers: &[f32]| numbers.iter().step_by(columns).map(|x| x.to_bits()).collect::<Vec<_>>();
            (first(&y), first(&d_x))
        };
        let expected = first_column(3);
        for columns in [1, 2, 4, 8] {
            assert!(first_column(columns) == expected, "{columns} columns, {which:?}");
        }
    }
}

#[test]
fn rows_without_a_segment_have_no_gradient() {
    let mut plan = vec![9; plan_len(4, 2)];
    plan_from_offsets(&[1, 2, 3], 4, &mut plan).unwrap();
    let (segments, shape) = (Segments::new(&plan, 2), Shape { batches: 1, rows: 4, columns: 1 });
    let mut out = vec![7.0; 4];
    gather(Share::Whole, &segments, RowSegments::Offsets, shape, &[5.0, 6.0], &mut out, Schedule::CallingThread);
    assert_eq!(out, [0.0, 5.0, 6.0, 0.0]);
    let mut out = [7.0; 4];
    softmax(Softmax::Plain, &segments, shape, &[1.0, 2.0, 3.0, 4.0], &mut out, Schedule::CallingThread);
    assert_eq!(out, [0.0, 1.0, 1.0, 0.0]);
}

#[test]
#[should_panic(expected = "a row is in two segments")]
fn a_plan_that_was_overwritten_is_refused() {
    let plan = [0, 1, 2, 1, 0, 0];
    let (segments, shape) = (Segments::new(&plan, 2), Shape { batches: 1, rows: 2, columns: 1 });
    softmax(Softmax::Plain, &segments, shape, &[1.0, 2.0], &mut [0.0; 2], Schedule::CallingThread);
}
