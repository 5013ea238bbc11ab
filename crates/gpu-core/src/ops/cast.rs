//! Converts between element types.

#![allow(unsafe_code, reason = "kernels are launched")]

use bytemuck::Pod;
use half::{bf16, f16};

use crate::buffer::Buffer;
use crate::convert;
use crate::device::{Cuda, Device};
use crate::error::Result;
use crate::kernel::{Arguments, Kernel, Launch};

/// Elements that a thread of the kernel converts.
const PER_THREAD: usize = 4;

/// An element type that converts to `To`: f32 to and from f16 and bf16, f16 to and from bf16, f64
/// to f32.
pub trait CastTo<To: Pod>: Pod + private::Sealed {
    /// The kernel in `cast.cu`.
    #[doc(hidden)]
    const KERNEL: &'static str;

    /// Converts slices of the same length on the CPU.
    #[doc(hidden)]
    fn cast_slice(src: &[Self], dst: &mut [To]);
}

mod private {
    pub trait Sealed {}
}

/// Converts every element of `src` to the type of `dst`, rounded to nearest with ties to even. What
/// is too large becomes infinite; a NaN stays one, but its bits are the device's: the CPU keeps
/// sign and leading payload, a GPU has one NaN only.
///
/// # Errors
/// Errors of the launch; none on the CPU.
///
/// # Panics
/// If the lengths differ.
pub fn cast<From: CastTo<To>, To: Pod>(src: &Buffer<From>, dst: &mut Buffer<To>) -> Result<()> {
    assert_eq!(src.len(), dst.len(), "a cast is between buffers of the same length");
    src.scope().device().assert_beside(dst.scope().device());
    match dst.scope().device().clone() {
        Device::Cpu(_) => From::cast_slice(src.as_slice(), dst.as_mut_slice()),
        Device::Cuda(device) => cuda(&device, src, dst)?,
    }
    Ok(())
}

fn cuda<From: CastTo<To>, To: Pod>(device: &Cuda, src: &Buffer<From>, dst: &mut Buffer<To>) -> Result<()> {
    let kernel = Kernel { module: "cast", ptx: crate::ptx!("cast"), name: From::KERNEL };
    let arguments = Arguments::new()
        .with_value("from", src.address())
        .with_value("to", dst.address())
        .with_value("len", src.len() as u64);
    // SAFETY: the kernel reads and writes `len` elements of its types, which both buffers have;
    // what is submitted to the default stream later, the memory's next use included, runs after it.
    unsafe { kernel.submit(device, Launch::for_threads(src.len().div_ceil(PER_THREAD)), &arguments) }
}

macro_rules! casts {
    ($($src:ty => $dst:ty: $kernel:literal, $convert:expr;)*) => {
        $(impl CastTo<$dst> for $src {
            const KERNEL: &'static str = $kernel;

            fn cast_slice(src: &[Self], dst: &mut [$dst]) {
                $convert(src, dst);
            }
        })*
    };
}

casts! {
    f32 => f16: "cast_f32_f16", convert::f32_to_f16;
    f16 => f32: "cast_f16_f32", convert::f16_to_f32;
    f32 => bf16: "cast_f32_bf16", convert::f32_to_bf16;
    bf16 => f32: "cast_bf16_f32", convert::bf16_to_f32;
    f16 => bf16: "cast_f16_bf16", convert::f16_to_bf16;
    bf16 => f16: "cast_bf16_f16", convert::bf16_to_f16;
    f64 => f32: "cast_f64_f32", f64_to_f32;
}

impl private::Sealed for f16 {}
impl private::Sealed for bf16 {}
impl private::Sealed for f32 {}
impl private::Sealed for f64 {}

/// Rust's `as` rounds to nearest, ties to even.
fn f64_to_f32(src: &[f64], dst: &mut [f32]) {
    src.iter().zip(dst).for_each(|(&src, dst)| *dst = src as f32);
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;
    use proptest::prelude::*;

    use super::super::HARNESS;
    use super::*;

    /// Equal bits, or both NaN.
    fn check<From: CastTo<To>, To: Pod>(src: &[From], is_nan: fn(To) -> bool) {
        let mut expected = vec![To::zeroed(); src.len()];
        From::cast_slice(src, &mut expected);
        let mut found = vec![To::zeroed(); src.len()];
        let launch = Launch::for_threads(src.len().div_ceil(PER_THREAD));
        let mut arguments = [Arg::from(src), Arg::from(&mut found[..]), Arg::from(src.len() as u64)];
        HARNESS.run(From::KERNEL, launch, &mut arguments);
        for (k, (&found, &expected)) in found.iter().zip(&expected).enumerate() {
            let same = bytemuck::bytes_of(&found) == bytemuck::bytes_of(&expected);
            assert!(same || is_nan(found) && is_nan(expected), "{} of element {k} of {}", From::KERNEL, src.len());
        }
    }

    fn check_f32s(src: &[f32]) {
        check::<f32, f16>(src, f16::is_nan);
        check::<f32, bf16>(src, bf16::is_nan);
    }

    fn check_f64s(src: &[f64]) {
        check::<f64, f32>(src, f32::is_nan);
    }

    fn check_16_bits(bits: &[u16]) {
        let halves: Vec<f16> = bits.iter().map(|&bits| f16::from_bits(bits)).collect();
        let bfloats: Vec<bf16> = bits.iter().map(|&bits| bf16::from_bits(bits)).collect();
        check::<f16, f32>(&halves, f32::is_nan);
        check::<f16, bf16>(&halves, bf16::is_nan);
        check::<bf16, f32>(&bfloats, f32::is_nan);
        check::<bf16, f16>(&bfloats, f16::is_nan);
    }

    #[test]
    fn kernels_convert_every_16_bit_value() {
        check_16_bits(&(0..=u16::MAX).collect::<Vec<_>>());
    }

    #[test]
    fn kernels_round_ties_subnormals_and_what_is_too_large() {
        let uppers = (0..=u16::MAX).step_by(7).flat_map(|upper| {
            [0u32, 0x0fff, 0x1000, 0x1001, 0x3000, 0x7fff, 0x8000, 0x8001].map(|tail| u32::from(upper) << 16 | tail)
        });
        let values: Vec<f32> = uppers.map(f32::from_bits).collect();
        check_f32s(&values);
        let ties = values.iter().flat_map(|&value| {
            let (value, step) = (f64::from(value), f64::from(value.next_up()) - f64::from(value));
            [value, value + step / 2.0, (value + step / 2.0).next_up(), value + step * 0.75, value * 1e300]
        });
        check_f64s(&ties.collect::<Vec<_>>());
    }

    #[test]
    fn kernels_take_every_length_around_a_vector_and_a_block() {
        for len in (0..10).chain([1023, 1024, 1025, 3000]) {
            check_f32s(&vec![1.0 / 3.0; len]);
            check_f64s(&vec![1.0 / 3.0; len]);
            check_16_bits(&vec![0x3555; len]);
        }
    }

    #[test]
    fn buffers_are_cast_as_slices_are() {
        let scope = Device::cpu().scope("test");
        let src = Buffer::from_slice(&scope, &[1.0f32, f32::NAN, 65_520.0, -1e-8]).unwrap();
        let mut dst = Buffer::<f16>::zeros(&scope, 4).unwrap();
        cast(&src, &mut dst).unwrap();
        let bits: Vec<u16> = dst.as_slice().iter().map(|half| half.to_bits()).collect();
        assert_eq!(bits, [0x3c00, 0x7e00, 0x7c00, 0x8000]);
    }

    proptest! {
        #[test]
        fn kernels_convert_any_bits(bits in prop::collection::vec(any::<u64>(), 0..3000)) {
            check_f64s(bytemuck::cast_slice(&bits));
            check_f32s(bytemuck::cast_slice(&bits));
            check_16_bits(bytemuck::cast_slice(&bits));
        }
    }
}
