//! Conformance suite of every operation on every device; the CPU's plain form is right.

use bytemuck::Pod;
use half::{bf16, f16};

use super::{CastTo, Dimension, Reducible, Reduction, StridedCopy, cast, copy_strided, fill, reduce};
use crate::buffer::Buffer;
use crate::captures::Captures;
use crate::device::Device;
use crate::error::Result;

/// A case and its assertion as a name. It fails with the device's error, and panics where the
/// device's answer is wrong.
pub type Case = (&'static str, fn(&Device) -> Result<()>);

/// The cases.
pub const CASES: &[Case] = &[
    ("fill sets every element", fills),
    ("cast rounds as the CPU does", casts),
    ("a strided copy transposes, cuts out and repeats", strided_copies),
    ("rows are summed and their maxima found with the CPU's bits", reductions),
    ("what comes again is captured, replayed and changed", replays),
];

/// Below, at and above a vector, a block and a chunk, and a length of many blocks.
const LENGTHS: &[usize] = &[0, 1, 3, 4, 5, 255, 256, 257, 1023, 1024, 1025, 8191, 8192, 8193, 100_003];

fn fills(device: &Device) -> Result<()> {
    fn check<T: Pod + PartialEq + std::fmt::Debug>(device: &Device, value: T) -> Result<()> {
        for &len in LENGTHS {
            let mut buffer = Buffer::zeros(&device.scope("fill"), len)?;
            fill(&mut buffer, value)?;
            assert!(buffer.to_vec()?.iter().all(|element| *element == value), "{len} times {value:?} on {device}");
        }
        Ok(())
    }
    check(device, 0xa5u8)?;
    check(device, f16::from_f32(-1.5))?;
    check(device, 3.25f32)?;
    check(device, [7u64, u64::MAX])
}

fn casts(device: &Device) -> Result<()> {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    let words: Vec<u32> = bits(200_000);
    for &len in LENGTHS {
        let halves = &all[all.len() - len.min(all.len())..];
        casts_from_16_bits(device, halves)?;
        check_cast::<f32, f16>(device, bytemuck::cast_slice(&words[..len]))?;
        check_cast::<f32, bf16>(device, bytemuck::cast_slice(&words[..len]))?;
        check_cast::<f64, f32>(device, bytemuck::cast_slice(&words[..len / 2 * 2]))?;
    }
    casts_from_16_bits(device, &all)
}

fn casts_from_16_bits(device: &Device, bits: &[u16]) -> Result<()> {
    let halves: Vec<f16> = bits.iter().map(|&bits| f16::from_bits(bits)).collect();
    let bfloats: Vec<bf16> = bits.iter().map(|&bits| bf16::from_bits(bits)).collect();
    check_cast::<f16, f32>(device, &halves)?;
    check_cast::<f16, bf16>(device, &halves)?;
    check_cast::<bf16, f32>(device, &bfloats)?;
    check_cast::<bf16, f16>(device, &bfloats)
}

/// A float type, of which a NaN may have any bits.
trait Float: Pod {
    fn is_nan(self) -> bool;
}

macro_rules! floats {
    ($($float:ty),*) => {
        $(impl Float for $float {
            fn is_nan(self) -> bool {
                <$float>::is_nan(self)
            }
        })*
    };
}

floats!(f16, bf16, f32);

fn check_cast<From: CastTo<To>, To: Float>(device: &Device, src: &[From]) -> Result<()> {
    let computed_on = |device: &Device| -> Result<Vec<To>> {
        let mut dst = Buffer::zeros(&device.scope("cast"), src.len())?;
        cast(&Buffer::from_slice(&device.scope("cast"), src)?, &mut dst)?;
        dst.to_vec()
    };
    check_same(&computed_on(device)?, &computed_on(&Device::cpu())?, From::KERNEL);
    Ok(())
}

fn check_same<T: Float>(found: &[T], expected: &[T], what: &str) {
    for (k, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let same = bytemuck::bytes_of(&found) == bytemuck::bytes_of(&expected);
        let bits = (bytemuck::bytes_of(&found), bytemuck::bytes_of(&expected));
        assert!(same || found.is_nan() && expected.is_nan(), "{what}: element {k} is, and should be: {bits:x?}");
    }
}

fn strided_copies(device: &Device) -> Result<()> {
    fn check<T: Pod + PartialEq + std::fmt::Debug>(
        device: &Device,
        dimensions: &[(usize, usize, usize)],
    ) -> Result<()> {
        let dimension = |&(len, from_stride, to_stride)| Dimension { len, from_stride, to_stride };
        let dimensions: Vec<Dimension> = dimensions.iter().map(dimension).collect();
        let copy = StridedCopy { from_start: 5, to_start: 3, dimensions: &dimensions };
        let values = bits(40_000);
        let values: &[T] = &bytemuck::cast_slice(&values)[..20_000];
        let computed_on = |device: &Device| -> Result<Vec<T>> {
            let mut dst = Buffer::zeros(&device.scope("copy"), values.len())?;
            copy_strided(&Buffer::from_slice(&device.scope("copy"), values)?, &mut dst, &copy)?;
            dst.to_vec()
        };
        let (found, expected) = (computed_on(device)?, computed_on(&Device::cpu())?);
        let same = bytemuck::cast_slice::<T, u8>(&found) == bytemuck::cast_slice::<T, u8>(&expected);
        assert!(same, "{copy:?} of {} bytes on {device}", size_of::<T>());
        Ok(())
    }
    let boxes: &[&[(usize, usize, usize)]] = &[
        &[],
        &[(10_000, 1, 1)],
        &[(100, 1, 130), (130, 100, 1)],
        &[(33, 0, 200), (200, 3, 1)],
        &[(7, 1, 720), (6, 7, 120), (5, 42, 24), (4, 210, 6), (3, 840, 2), (2, 2520, 1)],
    ];
    for dimensions in boxes {
        check::<u8>(device, dimensions)?;
        check::<u16>(device, dimensions)?;
        check::<f32>(device, dimensions)?;
        check::<u64>(device, dimensions)?;
    }
    Ok(())
}

fn reductions(device: &Device) -> Result<()> {
    for &columns in LENGTHS {
        for rows in if columns < 10_000 { 1..3 } else { 1..2 } {
            let x: Vec<f32> = bits(rows * columns).iter().map(|&bits| bits as i32 as f32 * 1e-6).collect();
            check_reduction(device, &x, rows)?;
            check_reduction(device, &x.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>(), rows)?;
            check_reduction(device, &x.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>(), rows)?;
        }
    }
    check_reduction::<f32>(device, bytemuck::cast_slice(&bits(3_000)), 100)
}

fn check_reduction<T: Reducible>(device: &Device, x: &[T], rows: usize) -> Result<()> {
    for reduction in [Reduction::Sum, Reduction::Max] {
        let computed_on = |device: &Device| -> Result<Vec<f32>> {
            let mut out = Buffer::zeros(&device.scope("reduce"), rows)?;
            reduce(reduction, &Buffer::from_slice(&device.scope("reduce"), x)?, &mut out)?;
            out.to_vec()
        };
        let what = format!("{reduction:?} of {rows} rows, {} elements of {}", x.len(), T::SUFFIX);
        check_same(&computed_on(device)?, &computed_on(&Device::cpu())?, &what);
    }
    Ok(())
}

/// Kernels, zeros and copies, each three times: submitted, captured and replayed. They are more
/// than the captures that are kept, so some captures are updated.
fn replays(device: &Device) -> Result<()> {
    let (scope, mut captures) = (device.scope("replays"), Captures::default());
    let zeros = || Buffer::<u32>::zeros(&scope, 3000);
    let (filled, cut, copied) = (&mut zeros()?, &mut zeros()?, &mut zeros()?);
    for number in 1..40u32 {
        for round in 0..3 {
            fill(copied, 77)?;
            captures.run(device, || {
                fill(filled, number)?;
                fill(cut, 2 * number)?;
                cut.set_zero_at(1000, number as usize)?;
                copied.copy_from_buffer(cut)?;
                fill(cut, 3 * number)
            })?;
            let zeros = 1000..1000 + number as usize;
            let expected: Vec<u32> = (0..3000).map(|k| if zeros.contains(&k) { 0 } else { 2 * number }).collect();
            assert!(copied.to_vec()? == expected, "copy {number}, round {round} on {device}");
            for (buffer, value) in [(&*filled, number), (&*cut, 3 * number)] {
                assert!(buffer.to_vec()?.iter().all(|&k| k == value), "fill {number}, round {round} on {device}");
            }
        }
        assert!(captures.kept() > 0 || matches!(device, Device::Cpu(_)), "{device} captures nothing");
    }
    Ok(())
}

/// Numbers that look random: the golden ratio's multiplicative hash of their index.
fn bits(count: usize) -> Vec<u32> {
    (1..=count as u32).map(|k| k.wrapping_mul(2_654_435_761) ^ k.rotate_left(11)).collect()
}
