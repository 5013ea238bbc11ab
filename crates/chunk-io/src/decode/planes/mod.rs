//! Byte planes, as the shuffle filter leaves them, to f32: the shuffle, the byte order and the width undone in one pass.

mod portable;

use std::array;

use half::f16;
use megabatch_gpu_core::convert;

use super::floats::{BLOCK, ByteOrder, Float, FloatWidth};

/// Converts as many elements as `out` has. `plane(k)` is byte k of each, in the order of the file.
pub(super) fn to_f32<'a>(float: Float, plane: impl Fn(usize) -> &'a [u8], out: &mut [f32]) {
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

/// A join of N planes in the widest form that the processor has.
macro_rules! join {
    ($name:ident, $word:ty, $planes:literal) => {
        fn $name(planes: [&[u8]; $planes], out: &mut [$word]) {
            portable::$name(planes, out);
        }
    };
}

join!(join_u16, u16, 2);
join!(join_u32, u32, 4);
join!(join_u64, u64, 8);
