use proptest::prelude::*;

use super::*;

/// Products of two uniform numbers in [-1, 1): denser about zero, as weights are.
fn noise(len: usize, salt: u32) -> Vec<f32> {
    // The finaliser of MurmurHash3 (Appleby).
    let uniform = |k: u32| {
        let k = (k ^ salt).wrapping_mul(0x9e37_79b9);
        let k = (k ^ k >> 16).wrapping_mul(0x85eb_ca6b);
        let k = (k ^ k >> 13).wrapping_mul(0xc2b2_ae35);
        ((k ^ k >> 16) >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len as u32).map(|k| uniform(2 * k) * uniform(2 * k + 1)).collect()
}

/// The formulas of the module, a number after another.
fn plain(x: &[f32], weights: &[f32], outputs: usize, inputs: usize) -> Vec<f32> {
    let quantized = |row: &[f32]| -> (Vec<i32>, f32) {
        let greatest = row.iter().fold(0.0f32, |greatest, x| greatest.max(x.abs()));
        let inverse = if greatest == 0.0 { 0.0 } else { 127.0 / greatest };
        (row.iter().map(|x| (x * inverse).round_ties_even() as i32).collect(), greatest / 127.0)
    };
    let rows = weights.chunks_exact(inputs).map(quantized).collect::<Vec<_>>();
    let mut out = Vec::new();
    for (x, x_scale) in x.chunks_exact(inputs).map(quantized) {
        out.extend(rows.iter().take(outputs).map(|(w, w_scale)| {
            let sum: i32 = x.iter().zip(w).map(|(x, w)| x * w).sum();
            sum as f32 * (x_scale * w_scale)
        }));
    }
    out
}

fn check(x: &[f32], weights: &[f32], shape: [usize; 2]) {
    let matrix = QuantizedMatrix::quantize(weights, shape[0], shape[1]).unwrap();
    let expected = plain(x, weights, shape[0], shape[1]);
    for form in KernelForm::all() {
        let mut out = vec![f32::NAN; expected.len()];
        matrix.multiply_by(form, x, &mut out);
        assert_eq!(out, expected, "{form:?}, {shape:?}");
    }
}

#[test]
fn every_form_adds_exactly() {
    for (outputs, inputs) in [(1, 1), (3, 2), (15, 4), (16, 5), (17, 63), (64, 64), (130, 7), (200, 33)] {
        for rows in [0, 1, 2, 7, 8, 9, 17, ROWS + 1] {
            check(&noise(rows * inputs, 5), &noise(outputs * inputs, 9), [outputs, inputs]);
        }
    }
}

#[test]
fn the_largest_sums_do_not_overflow() {
    for sign in [1.0, -1.0] {
        check(&vec![sign; INPUTS_MAX], &vec![1.0; INPUTS_MAX], [1, INPUTS_MAX]);
    }
    let error = QuantizedMatrix::quantize(&vec![0.0; INPUTS_MAX + 1], 1, INPUTS_MAX + 1).unwrap_err();
    assert!(error.to_string().starts_with("inputs: "), "{error}");
}

#[test]
fn a_product_is_as_accurate_as_its_bits() {
    let (outputs, inputs, rows) = (128, 256, 32);
    let (x, weights) = (noise(rows * inputs, 5), noise(outputs * inputs, 9));
    let matrix = QuantizedMatrix::quantize(&weights, outputs, inputs).unwrap();
    let mut found = vec![0.0; rows * outputs];
    matrix.multiply(&x, &mut found);
    let mut exact = Vec::new();
    for (x, n) in x.chunks_exact(inputs).flat_map(|x| (0..outputs).map(move |n| (x, n))) {
        exact
            .push(x.iter().zip(&weights[n * inputs..]).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>() as f32);
    }
    // Errors are uniform within half a step of 1/127, 1/440 in the root of the mean square, beside
    // 1/3 of the numbers: 43 dB, and 3 less for two sides.
    let (product, of_weights) = (Accuracy::of(&exact, &found), matrix.accuracy(&weights));
    assert!((of_weights.sqnr_db - 43.3).abs() < 1.0, "{of_weights}");
    assert!((product.sqnr_db - 40.3).abs() < 1.5, "{product}");
    assert!(of_weights.max_error <= 0.5 / 127.0 * 1.001, "{of_weights}");
}

#[test]
fn channels_have_scales_of_their_own() {
    let weights = [1e-6f32, -2e-6, 3e6, 1e6, 0.0, 0.0];
    let matrix = QuantizedMatrix::quantize(&weights, 3, 2).unwrap();
    let close = |(found, exact): (&f32, &f32)| (found - exact).abs() <= exact.abs() * 0.01;
    assert!(matrix.dequantized().iter().zip(&weights).all(close), "{:?}", matrix.dequantized());
    assert_eq!((matrix.shape(), matrix.bytes()), ([3, 2], 16 * 4 + 3 * 8));
    assert_eq!([matrix.at(0, 0), matrix.at(0, 1), matrix.at(1, 0), matrix.at(2, 1)], [64, -127, 127, 0]);
    assert_eq!(matrix.scales(), [2e-6 / 127.0, 3e6 / 127.0, 0.0]);
}

#[test]
fn what_is_not_finite_is_not_hidden() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = QuantizedMatrix::quantize(&[0.0, 1.0, 2.0, 3.0, bad, 5.0], 2, 3).unwrap_err();
        assert_eq!(error, Error::NotFiniteWeight { output: 1, input: 1 });
        let matrix = QuantizedMatrix::quantize(&[1.0, 2.0], 1, 2).unwrap();
        let mut out = [0.0; 2];
        matrix.multiply(&[1.0, 1.0, bad, 1.0], &mut out);
        assert!(out[0].is_finite() && out[1].is_nan(), "{out:?}");
    }
    // The largest and the least numbers.
    let matrix = QuantizedMatrix::quantize(&[1.0, 0.5], 1, 2).unwrap();
    for (x, expected) in [([f32::MAX / 2.0, 0.0], f32::MAX / 2.0), ([f32::from_bits(1), 0.0], 0.0), ([0.0; 2], 0.0)] {
        let mut out = [f32::NAN];
        matrix.multiply(&x, &mut out);
        assert!((out[0] - expected).abs() <= expected * 1e-6, "{x:?}: {out:?}");
    }
}

#[test]
fn matrices_without_numbers() {
    let mut out = [1.0; 3];
    QuantizedMatrix::quantize(&[], 3, 0).unwrap().multiply(&[], &mut out);
    assert_eq!(out, [0.0; 3]);
    QuantizedMatrix::quantize(&[], 0, 3).unwrap().multiply(&[1.0; 6], &mut []);
}

proptest! {
    #[test]
    fn any_shape(shape in (1usize..70, 1usize..70, 0usize..20), salt in any::<u32>(), exponent in -30i32..30) {
        let (outputs, inputs, rows) = shape;
        let x: Vec<f32> = noise(rows * inputs, salt).into_iter().map(|x| x * 2f32.powi(exponent)).collect();
        check(&x, &noise(outputs * inputs, !salt), [outputs, inputs]);
    }
}
