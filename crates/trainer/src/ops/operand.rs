#![forbid(unsafe_code)]

use std::fmt::Debug;

use bytemuck::Pod;
use half::{bf16, f16};

/// What products read: f32, f16, bf16.
pub trait Operand: Pod + Debug + Send + Sync + private::Sealed {
    /// What gates are kept as for the backward pass: f32 beside f32, else f16, as they lie within ±1, where it is eight times as fine as bf16.
    type Kept: Operand;

    /// How the kernels call the type.
    #[doc(hidden)]
    const SUFFIX: &'static str;

    /// Whether tensor cores take it as it is.
    #[doc(hidden)]
    const IS_NARROW: bool;

    /// The same number.
    fn widen(self) -> f32;

    /// The nearest number, ties to even.
    fn narrow(value: f32) -> Self;
}

mod private {
    pub trait Sealed {}
}

macro_rules! operand {
    ($type:ty, $kept:ty, $suffix:literal, $is_narrow:literal, $widen:expr, $narrow:expr) => {
        impl private::Sealed for $type {}

        impl Operand for $type {
            type Kept = $kept;
            const SUFFIX: &'static str = $suffix;
            const IS_NARROW: bool = $is_narrow;

            fn widen(self) -> f32 {
                $widen(self)
            }

            fn narrow(value: f32) -> Self {
                $narrow(value)
            }
        }
    };
}

operand!(f32, f32, "f32", false, std::convert::identity, std::convert::identity);
operand!(f16, f16, "f16", true, f16::to_f32, f16::from_f32);
operand!(bf16, f16, "bf16", true, bf16::to_f32, bf16::from_f32);
