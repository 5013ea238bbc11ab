//! Floats as they lie in a file to f32.
use half::f16;
use megabatch_gpu_core::convert;

/// Elements that are put in the CPU's byte order before they are converted: few enough to
/// stay in the first-level cache.
pub(super) const BLOCK: usize = 512;

/// An IEEE 754 binary float in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatType {
    pub(crate) width: FloatWidth,
    pub(crate) order: ByteOrder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatWidth {
    F16,
    F32,
    F64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl FloatType {
    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        match self.width {
            FloatWidth::F16 => 2,
            FloatWidth::F32 => 4,
            FloatWidth::F64 => 8,
        }
    }
}

/// Converts the floats in `bytes` to f32: f16 exactly, f64 to nearest with ties to even, f32 bit
/// for bit.
///
/// # Panics
/// If `bytes` is not as long as `out.len()` elements are.
pub(crate) fn to_f32(float: FloatType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(bytes.len(), out.len() * float.bytes(), "as many elements are read as there is room for");
    match (float.width, float.order) {
        (FloatWidth::F16, ByteOrder::Little) => from_halves(bytes, out, u16::from_le_bytes),
        (FloatWidth::F16, ByteOrder::Big) => from_halves(bytes, out, u16::from_be_bytes),
        (FloatWidth::F32, ByteOrder::Little) => from_words(bytes, out, f32::from_le_bytes),
        (FloatWidth::F32, ByteOrder::Big) => from_words(bytes, out, f32::from_be_bytes),
        (FloatWidth::F64, ByteOrder::Little) => from_words(bytes, out, |bytes| f64::from_le_bytes(bytes) as f32),
        (FloatWidth::F64, ByteOrder::Big) => from_words(bytes, out, |bytes| f64::from_be_bytes(bytes) as f32),
    }
}

fn from_words<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    let (words, _) = bytes.as_chunks::<N>();
    out.iter_mut().zip(words).for_each(|(out, &word)| *out = value(word));
}

fn from_halves(bytes: &[u8], out: &mut [f32], bits: impl Fn([u8; 2]) -> u16) {
    let (words, _) = bytes.as_chunks::<2>();
    let mut block = [f16::ZERO; BLOCK];
    for (words, out) in words.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let block = &mut block[..out.len()];
        block.iter_mut().zip(words).for_each(|(half, &word)| *half = f16::from_bits(bits(word)));
        convert::f16_to_f32(block, out);
    }
}
