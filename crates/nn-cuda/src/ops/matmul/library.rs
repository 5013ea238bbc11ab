//! Products by cuBLASLt.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::{Cuda, FactorType, MatrixAddresses, MatrixProduct};
use megabatch_nn::Result;

use super::super::operand::Operand;
use super::call::Operands;
use super::{Product, product_partials_len};
use crate::tuning::Tuner;

/// True if the library multiplied, in place of what the output held: not where a run has none, or
/// it has no way for this product. It has the memory for the parts of a sum that a kernel of ours
/// would take, and none beside it.
///
/// # Safety
/// The memory at the addresses has the operands of the shape, and from `parts` on
/// [`product_partials_len`] numbers where there is no bias. Nothing else touches it meanwhile.
pub(super) unsafe fn multiply<T: Operand>(
    tuner: &Tuner,
    device: &Cuda,
    requested: &Product<'_, T>,
    operands: Operands,
    parts: u64,
) -> bool {
    let Operands { a, b, bias, out } = operands;
    let factors = match T::SUFFIX {
        "f16" => FactorType::F16,
        "bf16" => FactorType::Bf16,
        _ => FactorType::Tf32,
    };
    let product = MatrixProduct { shape: requested.shape, transposed: requested.layout.transposed(), factors };
    let bytes = if bias == 0 { product_partials_len(requested.shape) * size_of::<f32>() } else { 0 };
    let workspace = if bytes == 0 { (0, 0) } else { (parts, bytes) };
    let at = MatrixAddresses { a, b, bias, out, workspace };
    // SAFETY: as the caller promised.
    tuner.by_library(device, |library| unsafe { library.multiply(&product, &at) })
}

/// Time of the library's product: infinite where it does not multiply.
pub(super) fn elapsed_ms(device: &Cuda, multiply: impl FnOnce() -> bool) -> Result<f32> {
    let mut is_done = false;
    let elapsed_ms = device.elapsed_ms(|| {
        is_done = multiply();
        Ok::<(), megabatch_nn::Error>(())
    })?;
    Ok(if is_done { elapsed_ms } else { f32::INFINITY })
}
