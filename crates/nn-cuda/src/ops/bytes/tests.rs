use megabatch_nn_cpu::conformance::quantize_rows;
use megabatch_simt::Arg;

use super::super::harness::{HARNESS, noise};
use super::*;

/// A matrix of eight bits, made of numbers that are others for each name.
pub(in super::super) fn matrix(name: &'static str, shape: [usize; 2]) -> QuantizedMatrix {
    let weights = noise(name, shape[0] * shape[1], 1.0 / (shape[1] as f32).sqrt());
    QuantizedMatrix::quantize(&weights, shape[0], shape[1]).unwrap()
}

/// Rows with one of zeros, one of a single number that is not, and, where there are more, ones of
/// which the scale overflows or is none.
fn rows(rows: usize, depth: usize) -> Vec<f32> {
    let mut x = noise("x", rows * depth, 3.0);
    x.iter_mut().skip(depth).take(depth).for_each(|x| *x = 0.0);
    for (row, value) in [(2, 1e-42), (3, f32::INFINITY), (4, f32::NAN)] {
        if row < rows {
            x[row * depth] = value;
        }
    }
    x.iter_mut().skip(2 * depth + 1).take(depth - 1).for_each(|x| *x = 0.0);
    x
}

fn bits(values: &[f32]) -> Vec<u32> {
    // What is not a number is one thing.
    values.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

/// Quantises rows and multiplies them, on the CPU and by the kernels, from a bias or from
/// nothing.
fn check(count: usize, depth: usize, outputs: usize, has_start: bool) {
    let scope = Device::cpu().scope("test");
    let x = rows(count, depth);
    let x_of = Buffer::from_slice(&scope, &x).unwrap();
    let mut expected = DeviceInt8Rows::empty(&scope).unwrap();
    expected.quantize((&x_of).into(), [count, depth]).unwrap();
    let padded = padded(depth);
    let (mut bytes, mut scales) = (vec![7i8; count * 2 * padded], vec![9.0f32; count]);
    let mut arguments = [
        Arg::from(&x[..]),
        Arg::from(bytemuck::cast_slice_mut::<i8, u32>(&mut bytes)),
        Arg::from(&mut scales[..]),
        Arg::from(count as u64),
        Arg::from(depth as u32),
        Arg::from(padded as u32),
    ];
    HARNESS.run("quantize", Launch::for_threads(count * WARP), &mut arguments);
    assert_eq!(bytes, expected.bytes.as_slice(), "{count} rows of {depth}");
    assert_eq!(bits(&scales), bits(expected.scales.as_slice()), "{count} rows of {depth}");

    let weights = DeviceInt8Matrix::new(&scope, &matrix("weights", [outputs, depth])).unwrap();
    let start = noise("start", outputs, 1.0);
    let start_of = has_start.then(|| Buffer::from_slice(&scope, &start).unwrap());
    let mut product = Buffer::from_slice(&scope, &vec![5.0f32; count * outputs + 3]).unwrap();
    multiply_int8(&expected, &weights, start_of.as_ref().map(TensorSlice::from), &mut product, 3).unwrap();
    let mut found = vec![8.0f32; count * outputs];
    let mut arguments = [
        Arg::from(expected.bytes.as_slice()),
        Arg::from(expected.scales.as_slice()),
        Arg::from(weights.bytes.as_slice()),
        Arg::from(weights.scales.as_slice()),
        if has_start { Arg::from(&start[..]) } else { Arg::null() },
        Arg::from(&mut found[..]),
        Arg::from(count as u64),
        Arg::from(outputs as u64),
        Arg::from(padded as u64),
    ];
    HARNESS.run("product_of_bytes", launch(count, outputs), &mut arguments);
    assert_eq!(bits(&found), bits(&product.as_slice()[3..]), "{count} rows of {depth} by {outputs}");
}

#[test]
fn rows_padded_with_zeros_have_the_same_product() {
    let scope = Device::cpu().scope("test");
    let product = |depth: usize| {
        let weights = DeviceInt8Matrix::new(&scope, &matrix("weights", [8, 5])).unwrap().for_rows_of(depth);
        let mut x = vec![0.0f32; 3 * depth];
        x.chunks_exact_mut(depth)
            .zip(noise("x", 15, 2.0).chunks_exact(5))
            .for_each(|(to, row)| to[..5].copy_from_slice(row));
        let mut rows = DeviceInt8Rows::empty(&scope).unwrap();
        rows.quantize(TensorSlice::from(&Buffer::from_slice(&scope, &x).unwrap()), [3, depth]).unwrap();
        let mut product = Buffer::zeros(&scope, 24).unwrap();
        multiply_int8(&rows, &weights, None, &mut product, 0).unwrap();
        bits(product.as_slice())
    };
    assert_eq!(product(8), product(5));
}

#[test]
fn the_kernels_have_the_cpus_bits() {
    for sizes in [[1, 1, 4], [5, 3, 8], [6, 32, 4], [65, 33, 68], [70, 100, 132]] {
        check(sizes[0], sizes[1], sizes[2], true);
        check(sizes[0], sizes[1], sizes[2], false);
    }
}

#[test]
fn rows_have_the_bits_of_the_processors_fast_form() {
    let ([count, depth], scope) = ([7, 45], Device::cpu().scope("test"));
    let x = rows(count, depth);
    let x_of = Buffer::from_slice(&scope, &x).unwrap();
    let mut own = DeviceInt8Rows::empty(&scope).unwrap();
    own.quantize((&x_of).into(), [count, depth]).unwrap();

    let expected = quantize_rows(&x, depth);
    assert_eq!(bits(&expected.scales), bits(own.scales.as_slice()));
    let bytes = own.bytes.as_slice().chunks_exact(padded(depth));
    let values = |part: usize| -> Vec<i32> {
        bytes.clone().skip(part).step_by(2).flat_map(|row| &row[..depth]).copied().map(i32::from).collect()
    };
    assert_eq!([values(0), values(1)], [expected.high, expected.low]);
}

#[test]
fn a_product_is_near_that_of_the_numbers() {
    let ([count, depth, outputs], scope) = ([2, 300, 8], Device::cpu().scope("test"));
    let (x, quantized) = (noise("x", count * depth, 2.0), matrix("weights", [outputs, depth]));
    let x_of = Buffer::from_slice(&scope, &x).unwrap();
    let (mut rows, weights) =
        (DeviceInt8Rows::empty(&scope).unwrap(), DeviceInt8Matrix::new(&scope, &quantized).unwrap());
    rows.quantize((&x_of).into(), [count, depth]).unwrap();
    let mut found = Buffer::zeros(&scope, count * outputs).unwrap();
    multiply_int8(&rows, &weights, None, &mut found, 0).unwrap();
    let dequantized = quantized.dequantized();
    for (k, &found) in found.as_slice().iter().enumerate() {
        let (row, n) = (k / outputs, k % outputs);
        let weights = &dequantized[(n % 4 * outputs / 4 + n / 4) * depth..][..depth];
        let expected: f32 = x[row * depth..][..depth].iter().zip(weights).map(|(x, w)| x * w).sum();
        assert!((found - expected).abs() < 2e-3, "{found} for {expected}");
    }
}
