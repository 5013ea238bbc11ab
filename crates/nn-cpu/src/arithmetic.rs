//! Arithmetic of matrix products in a run of some precision, on this CPU.
//!
//! | precision | instructions of the CPU | arithmetic | 16-bit operands are rounded |
//! | --- | --- | --- | --- |
//! | fp32 | any | [`CpuArithmetic::Fp32`] | – |
//! | bf16 | for bf16, if they pay | [`CpuArithmetic::Bf16`] | when a product packs them |
//! | bf16 | others | [`CpuArithmetic::Emulated`] | when they are written |
//! | fp16 | any | [`CpuArithmetic::Emulated`] | when they are written |

use megabatch_amp::{Precision, round_to};

use crate::kernel::bf16::Bf16Isa;

/// Arithmetic of matrix products. Sums are in fp32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuArithmetic {
    /// Operands in fp32.
    Fp32,
    /// Instructions for fp32, on operands of this precision.
    Emulated(Precision),
    /// Instructions for bf16.
    Bf16(Bf16Isa),
}

impl CpuArithmetic {
    /// The fastest arithmetic of this CPU for products in a run of `precision`.
    pub(crate) fn for_precision(precision: Precision) -> Self {
        CpuArithmetic::new(precision, Bf16Isa::best())
    }

    /// Arithmetic for products in a run of `precision`, with `bf16_isa` for bf16.
    pub(crate) fn new(precision: Precision, bf16_isa: Option<Bf16Isa>) -> Self {
        match (precision, bf16_isa) {
            (Precision::Fp32, _) => CpuArithmetic::Fp32,
            (Precision::Bf16, Some(isa)) => CpuArithmetic::Bf16(isa),
            (emulated @ (Precision::Bf16 | Precision::Fp16), _) => CpuArithmetic::Emulated(emulated),
        }
    }

    /// Precision of the operands.
    pub(crate) fn precision(self) -> Precision {
        match self {
            CpuArithmetic::Fp32 => Precision::Fp32,
            CpuArithmetic::Emulated(precision) => precision,
            CpuArithmetic::Bf16(_) => Precision::Bf16,
        }
    }

    /// The instruction set for bf16, if products are computed by one.
    pub(crate) fn bf16_isa(self) -> Option<Bf16Isa> {
        match self {
            CpuArithmetic::Bf16(isa) => Some(isa),
            CpuArithmetic::Fp32 | CpuArithmetic::Emulated(_) => None,
        }
    }

    /// True if operands in panels are rounded in memory, before a product reads them.
    pub(crate) fn is_emulated(self) -> bool {
        matches!(self, CpuArithmetic::Emulated(_))
    }

    /// Rounds `values` to the precision of the operands, in place.
    pub(crate) fn round(self, values: &mut [f32]) {
        round_to(self.precision(), values);
    }
}
