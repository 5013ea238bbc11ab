//! Products on the CPU, and by the library alone.

#![allow(unsafe_code, reason = "the library is called")]

use megabatch_gpu_core::{Buffer, Device};
use megabatch_nn::Result;

use super::{Operand, Operands, Output, Product, Scratch, TensorSlice, library, product_partials_len};

/// As [`multiply`](super::multiply) by the library alone, where it is here and has a way.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory).
pub fn by_library<T: Operand>(
    product: &Product<'_, T>,
    out: &mut Buffer<f32>,
    start: usize,
    scratch: &mut Scratch,
) -> Result<bool> {
    let Device::Cuda(device) = product.assert_fits(&*out, start) else { return Ok(false) };
    let parts =
        if product.bias.is_some() { 0 } else { scratch.address_of::<f32>(product_partials_len(product.shape))? };
    let tuner = scratch.products_mut().tuner().clone();
    let operands = Operands::new(product, TensorSlice { buffer: out, start }.address());
    // SAFETY: the buffers have the lengths of the shape, as was seen above, and the scratch has the
    // parts. What is submitted to the default stream later runs after it.
    Ok(unsafe { library::multiply(&tuner, &device, product, operands, parts) })
}

/// A product on the CPU.
pub(super) fn multiply<T: Operand>(product: &Product<'_, T>, output: Output, out: &mut [f32]) {
    let ([rows, columns, inner], a, b) = (product.shape, product.a.elements(), product.b.elements());
    for (k, out) in out[..rows * columns].iter_mut().enumerate() {
        let (row, column) = (k / columns, k % columns);
        let term = |l: usize| {
            let [is_a_transposed, is_b_transposed] = product.layout.transposed();
            let a = if is_a_transposed { a[l * rows + row] } else { a[row * inner + l] };
            let b = if is_b_transposed { b[l * columns + column] } else { b[column * inner + l] };
            a.widen() * b.widen()
        };
        let sum: f32 = (0..inner).map(term).sum::<f32>() + product.bias.map_or(0.0, |bias| bias.elements()[column]);
        *out = if output == Output::Add { *out + sum } else { sum };
    }
}
