use std::fmt::Debug;

use bytemuck::Pod;
use half::{bf16, f16};
use megabatch_gpu_core::convert::{f32_to_bf16, f32_to_f16};
use megabatch_gpu_core::{Buffer, Device};

/// Operand types of products: f32, f16, bf16.
pub trait Operand: Pod + Debug + Send + Sync + private::Sealed {
    /// Type of the saved gates: f32 beside f32, else f16, as they lie within ±1, where it is eight
    /// times as fine as bf16.
    type SavedGate: Operand;

    /// Name of the type in the kernels.
    #[doc(hidden)]
    const SUFFIX: &'static str;

    /// True if tensor cores take it as it is.
    #[doc(hidden)]
    const IS_NARROW: bool;

    /// The same number.
    fn widen(self) -> f32;

    /// The nearest number, ties to even.
    fn narrow(value: f32) -> Self;

    /// The nearest number of each of `values`, as [`Operand::narrow`] has it.
    ///
    /// # Panics
    /// If the lengths differ.
    #[doc(hidden)]
    fn narrow_all(values: &[f32], narrow: &mut [Self]);
}

/// The elements of a buffer from number `start` on.
#[derive(Clone, Copy, Debug)]
pub struct TensorSlice<'a, T: Operand> {
    /// The buffer.
    pub buffer: &'a Buffer<T>,
    /// Number of the first element.
    pub start: usize,
}

impl<'a, T: Operand> From<&'a Buffer<T>> for TensorSlice<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        TensorSlice { buffer, start: 0 }
    }
}

impl<'a, T: Operand> TensorSlice<'a, T> {
    /// Panics if it ends too early, or is on another device.
    pub(super) fn assert_has(&self, len: usize, device: &Device) {
        let rest = self.buffer.len().checked_sub(self.start);
        assert!(rest.is_some_and(|rest| len <= rest), "{len} of {} elements from {} on", self.buffer.len(), self.start);
        device.assert_beside(self.buffer.scope().device());
    }

    pub(super) fn address(&self) -> u64 {
        self.buffer.address() + (self.start * size_of::<T>()) as u64
    }

    #[cfg(feature = "conformance")]
    pub(super) fn elements(&self) -> &'a [T] {
        &self.buffer.as_slice()[self.start..]
    }
}

mod private {
    pub trait Sealed {}
}

macro_rules! operand {
    ($type:ty, $kept:ty, $suffix:literal, $is_narrow:literal, $widen:expr, $narrow:expr, $narrow_all:expr) => {
        impl private::Sealed for $type {}

        impl Operand for $type {
            type SavedGate = $kept;
            const SUFFIX: &'static str = $suffix;
            const IS_NARROW: bool = $is_narrow;

            fn widen(self) -> f32 {
                $widen(self)
            }

            fn narrow(value: f32) -> Self {
                $narrow(value)
            }

            fn narrow_all(values: &[f32], narrow: &mut [Self]) {
                $narrow_all(values, narrow);
            }
        }
    };
}

operand!(f32, f32, "f32", false, std::convert::identity, std::convert::identity, copy);
operand!(f16, f16, "f16", true, f16::to_f32, f16::from_f32, f32_to_f16);
operand!(bf16, f16, "bf16", true, bf16::to_f32, bf16::from_f32, f32_to_bf16);

fn copy(values: &[f32], to: &mut [f32]) {
    to.copy_from_slice(values);
}
