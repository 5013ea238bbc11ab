//! Arguments of a kernel.

#![allow(unsafe_code, reason = "the driver is called")]

use std::ffi::c_void;
use std::hash::{Hash, Hasher};

/// The alignment of every value in an argument list: that of the widest type that PTX passes.
const ALIGN_BYTES: usize = 16;
/// Values that most kernels have at most.
const VALUES: usize = 16;

/// A value that a kernel can take as a parameter: a number, an address in the GPU's memory, or a
/// `#[repr(C)]` struct of such.
pub trait Argument: bytemuck::Pod {}

impl<T: bytemuck::Pod> Argument for T {}

/// Arguments in the order of a kernel's parameters. Made by [`arguments!`](crate::arguments).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The values, each from an own multiple of 16 bytes on.
    words: Vec<u128>,
    values: Vec<ArgumentValue>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ArgumentValue {
    /// As the caller wrote it, for messages.
    text: &'static str,
    first_word: usize,
    bytes: usize,
}

/// By the values: their texts and sizes are those of the kernel.
impl Hash for Arguments {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words.hash(state);
    }
}

impl Default for Arguments {
    fn default() -> Self {
        Arguments::new()
    }
}

impl Arguments {
    /// No arguments.
    pub fn new() -> Self {
        Arguments { words: Vec::with_capacity(VALUES), values: Vec::with_capacity(VALUES) }
    }

    /// These and `value` after them; messages call it `text`.
    #[must_use]
    pub fn with_value(mut self, text: &'static str, value: impl Argument) -> Self {
        let bytes = bytemuck::bytes_of(&value);
        let first_word = self.words.len();
        self.words.resize(first_word + bytes.len().div_ceil(ALIGN_BYTES), 0);
        bytemuck::cast_slice_mut(&mut self.words[first_word..])[..bytes.len()].copy_from_slice(bytes);
        self.values.push(ArgumentValue { text, first_word, bytes: bytes.len() });
        self
    }

    /// Each argument as it was written, with its size in bytes.
    pub(super) fn sizes(&self) -> impl ExactSizeIterator<Item = (&'static str, usize)> + '_ {
        self.values.iter().map(|value| (value.text, value.bytes))
    }

    /// The address of each value, which the driver only reads from. They are good as long as `self`
    /// is not changed.
    pub(super) fn addresses(&self) -> Vec<*mut c_void> {
        self.values.iter().map(|value| self.words[value.first_word..].as_ptr().cast_mut().cast()).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::arguments;

    #[test]
    fn values_stand_where_the_addresses_say() {
        let len = 3u32;
        let arguments = arguments![0x1234_5678_9ABC_DEF0u64, len, 1.5f32, [1u64, 2, 3], 7u8];
        let sizes: Vec<_> = arguments.sizes().collect();
        assert_eq!(
            sizes,
            [("0x1234_5678_9ABC_DEF0u64", 8), ("len", 4), ("1.5f32", 4), ("[1u64, 2, 3]", 24), ("7u8", 1)]
        );
        let addresses = arguments.addresses();
        assert!(addresses.iter().all(|address| address.addr() % super::ALIGN_BYTES == 0));
        // SAFETY: each address is that of a value of this type in `arguments`.
        unsafe {
            assert_eq!(addresses[0].cast::<u64>().read(), 0x1234_5678_9ABC_DEF0);
            assert_eq!(addresses[1].cast::<u32>().read(), 3);
            assert_eq!(addresses[2].cast::<f32>().read(), 1.5);
            assert_eq!(addresses[3].cast::<[u64; 3]>().read(), [1, 2, 3]);
            assert_eq!(addresses[4].cast::<u8>().read(), 7);
        }
    }
}
