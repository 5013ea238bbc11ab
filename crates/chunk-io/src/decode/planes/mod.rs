//! Byte planes, as the shuffle filter leaves them, to f32: the shuffle, the byte order and the
//! width undone in one pass.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;

use std::array;

use half::f16;
use megabatch_gpu_core::convert;

use super::floats::{BLOCK, ByteOrder, FloatType, FloatWidth};

/// Converts as many elements as `out` has. `plane(k)` is byte k of each, in the order of the file.
pub(super) fn to_f32<'a>(float: FloatType, plane: impl Fn(usize) -> &'a [u8], out: &mut [f32]) {
    match float.width {
        FloatWidth::F16 => from_halves(ordered(float.order, plane), out),
        FloatWidth::F32 => join_u32(ordered(float.order, plane), bytemuck::cast_slice_mut(out)),
        FloatWidth::F64 => from_doubles(ordered(float.order, plane), out),
    }
}

/// The planes of N-byte elements, the least significant first.
fn ordered<'a, const N: usize>(order: ByteOrder, plane: impl Fn(usize) -> &'a [u8]) -> [&'a [u8]; N] {
    array::from_fn(|k| match order {
        ByteOrder::Little => plane(k),
        ByteOrder::Big => plane(N - 1 - k),
    })
}

fn from_halves(planes: [&[u8]; 2], out: &mut [f32]) {
    let mut block = [f16::ZERO; BLOCK];
    for (start, out) in (0..).step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let block = &mut block[..out.len()];
        join_u16(planes.map(|plane| &plane[start..]), bytemuck::cast_slice_mut(block));
        convert::f16_to_f32(block, out);
    }
}

fn from_doubles(planes: [&[u8]; 8], out: &mut [f32]) {
    let mut block = [0; BLOCK];
    for (start, out) in (0..).step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let block = &mut block[..out.len()];
        join_u64(planes.map(|plane| &plane[start..]), block);
        out.iter_mut().zip(&*block).for_each(|(out, &bits)| *out = f64::from_bits(bits) as f32);
    }
}

/// A join in the widest form that the CPU has.
macro_rules! join {
    ($name:ident, $word:ty) => {
        fn $name(planes: [&[u8]; size_of::<$word>()], out: &mut [$word]) {
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the CPU has the instructions.
                #[allow(unsafe_code, reason = "the vector forms ask for their instructions")]
                return unsafe { avx2::$name(planes, out) };
            }
            portable::$name(planes, out);
        }
    };
}

join!(join_u16, u16);
join!(join_u32, u32);
join!(join_u64, u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the chosen and the portable form with the definition, at lengths around a vector
    /// and unaligned starts.
    macro_rules! check {
        ($name:ident, $word:ty) => {
            const N: usize = size_of::<$word>();
            let bytes: Vec<u8> = (0..N as u32 * 300).map(|k| (k.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            for len in (0..130).chain([255, 256, 257]) {
                for start in [0, 1, 7] {
                    let planes: [&[u8]; N] = array::from_fn(|byte| &bytes[byte * 300 + start..][..len]);
                    let expected: Vec<$word> =
                        (0..len).map(|k| <$word>::from_le_bytes(planes.map(|plane| plane[k]))).collect();
                    for join in [$name, portable::$name] {
                        let mut found = vec![0; len];
                        join(planes, &mut found);
                        assert_eq!(found, expected, "{len} from {start}");
                    }
                }
            }
        };
    }

    #[test]
    fn two_planes_are_joined() {
        check!(join_u16, u16);
    }

    #[test]
    fn four_planes_are_joined() {
        check!(join_u32, u32);
    }

    #[test]
    fn eight_planes_are_joined() {
        check!(join_u64, u64);
    }
}
