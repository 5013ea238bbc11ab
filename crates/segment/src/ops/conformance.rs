//! Conformance suite of every operation on every device; the CPU's plain form is right.

#![forbid(unsafe_code)]

use megabatch_gpu_core::{Buffer, Device, Scope};

use super::{
    extremum_backward, extremum_backward_shared, gather, max, mean, mean_backward, min, softmax, softmax_backward, sum,
};
use crate::error::Result;
use crate::plan::SegmentPlan;

/// A case by the name of what it asserts. It fails with the device's error, and panics where the
/// device's answer is wrong.
pub type Case = (&'static str, fn(&Device) -> Result<()>);

/// The cases.
pub const CASES: &[Case] = &[
    ("segments are summed and averaged with the CPU's bits", |device| same(device, sums)),
    ("extrema and their rows are the CPU's, and so are the gradients", |device| same(device, extrema)),
    ("softmax of segments and its gradient have the CPU's bits", |device| same(device, softmaxes)),
];

/// Segments of which some are empty, one is a piece, one a piece and a row, and one several levels
/// deep.
const LENGTHS: [u32; 9] = [3, 0, 1, 512, 513, 0, 5000, 40, 0];

const COLUMNS: [usize; 4] = [1, 4, 7, 64];

/// A plan with numbers for its rows and its segments, on a device.
struct Example {
    scope: Scope,
    plan: SegmentPlan,
    /// `[rows, columns]`.
    x: Buffer<f32>,
    d_x: Buffer<f32>,
    /// `[segments, columns]`.
    values: Buffer<f32>,
    out: Buffer<f32>,
}

/// Result of an operation, as bits, with one form of NaN.
type Bits = Vec<u32>;

/// Runs `operate` on `device` and on the CPU, with sorted rows and with unsorted ones, and
/// compares.
fn same(device: &Device, operate: fn(&mut Example) -> Result<Bits>) -> Result<()> {
    let segment_of = || LENGTHS.iter().zip(0u32..).flat_map(|(&len, segment)| (0..len).map(move |_| segment));
    let sorted: Vec<u32> = segment_of().collect();
    let rows = sorted.len();
    // 5,087 is coprime to the number of rows.
    let unsorted: Vec<u32> = (0..rows).map(|row| sorted[row * 5087 % rows]).collect();
    for index in [&sorted, &unsorted] {
        for columns in COLUMNS {
            let on = |device: &Device| operate(&mut Example::new(&device.scope("segment"), index, columns)?);
            let (found, expected) = (on(device)?, on(&Device::cpu())?);
            let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(differs, None, "of {} numbers, {columns} columns, on {device}", expected.len());
        }
    }
    Ok(())
}

impl Example {
    fn new(scope: &Scope, index: &[u32], columns: usize) -> Result<Self> {
        let (rows, segments) = (index.len() * columns, LENGTHS.len() * columns);
        Ok(Example {
            scope: scope.clone(),
            plan: SegmentPlan::from_index(scope, index, LENGTHS.len())?,
            x: Buffer::from_slice(scope, &noise(rows))?,
            d_x: Buffer::zeros(scope, rows)?,
            values: Buffer::from_slice(scope, &noise(segments))?,
            out: Buffer::zeros(scope, segments)?,
        })
    }
}

fn sums(on: &mut Example) -> Result<Bits> {
    let mut bits = Bits::new();
    for operation in [sum, mean] {
        operation(&on.plan, &on.x, &mut on.out)?;
        keep(&mut bits, &on.out)?;
    }
    for operation in [gather, mean_backward] {
        operation(&on.plan, &on.values, &mut on.d_x)?;
        keep(&mut bits, &on.d_x)?;
    }
    Ok(bits)
}

fn extrema(on: &mut Example) -> Result<Bits> {
    let mut bits = Bits::new();
    let mut argument = Buffer::zeros(&on.scope, on.out.len())?;
    for operation in [max, min] {
        operation(&on.plan, &on.x, &mut on.out, &mut argument)?;
        keep(&mut bits, &on.out)?;
        bits.extend(argument.to_vec()?);
        extremum_backward(&on.plan, &argument, &on.values, &mut on.d_x)?;
        keep(&mut bits, &on.d_x)?;
        extremum_backward_shared(&on.plan, &on.x, &on.out, &on.values, &mut on.d_x)?;
        keep(&mut bits, &on.d_x)?;
    }
    Ok(bits)
}

fn softmaxes(on: &mut Example) -> Result<Bits> {
    let mut bits = Bits::new();
    let mut y = Buffer::zeros(&on.scope, on.x.len())?;
    softmax(&on.plan, &on.x, &mut y)?;
    keep(&mut bits, &y)?;
    softmax_backward(&on.plan, &y, &on.x, &mut on.d_x)?;
    keep(&mut bits, &on.d_x)?;
    Ok(bits)
}

fn keep(bits: &mut Bits, numbers: &Buffer<f32>) -> Result<()> {
    bits.extend(numbers.to_vec()?.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }));
    Ok(())
}

/// Numbers of which some are equal, and a few infinite or NaN.
fn noise(len: usize) -> Vec<f32> {
    let number = |k: u32| match k.wrapping_mul(2_654_435_761) >> 8 {
        _ if k % 6007 == 5 => f32::NAN,
        _ if k % 5003 == 7 => f32::NEG_INFINITY,
        bits => (bits % 3001) as f32 / 128.0 - 11.0,
    };
    (0..len as u32).map(number).collect()
}
