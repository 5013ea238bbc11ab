//! Matrix products with sums in f32.

#![allow(unsafe_code, reason = "kernels are launched")]

mod call;
#[cfg(feature = "conformance")]
#[path = "tests/conformance.rs"]
mod conformance;
mod gemm_plan;
mod library;
#[cfg(test)]
mod tests;

use megabatch_gpu_core::{Buffer, Cuda, Device};
use megabatch_nn::Result;

use super::operand::{Operand, TensorSlice};
use super::product_kind::{Arithmetic, Method, Output, TileConfig, Transpose};
use super::scratch::Scratch;
pub(super) use call::{Call, Operands, PTX, add_parts};
#[cfg(feature = "conformance")]
pub use conformance::by_library;
use gemm_plan::{GemmPlan, kind_of, question};
pub(crate) use gemm_plan::{product_partials_len, rows_partials_len};

/// A product `[M, N]` over an inner dimension of K.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a, T: Operand> {
    /// The first operand.
    pub a: TensorSlice<'a, T>,
    /// The second operand.
    pub b: TensorSlice<'a, T>,
    /// Bias `[N]`, added to every row.
    pub bias: Option<TensorSlice<'a, f32>>,
    /// M, N, K.
    pub shape: [usize; 3],
    /// Layout of `a` and `b`.
    pub layout: Transpose,
    /// Arithmetic of f32 products.
    pub arithmetic: Arithmetic,
}

impl<T: Operand> Product<'_, T> {
    /// The device of an output that begins at an element. Panics if a buffer ends too early for the
    /// shape or is on another device.
    fn assert_fits(&self, out: &Buffer<f32>, start: usize) -> Device {
        let ([rows, columns, inner], device) = (self.shape, out.scope().device().clone());
        self.a.assert_has(rows * inner, &device);
        self.b.assert_has(columns * inner, &device);
        TensorSlice { buffer: out, start }.assert_has(rows * columns, &device);
        self.bias.iter().for_each(|bias| bias.assert_has(columns, &device));
        device
    }
}

impl Arithmetic {
    /// The product of `a` and `b`, without a bias.
    pub(crate) fn product<'a, T: Operand>(
        self,
        a: TensorSlice<'a, T>,
        b: TensorSlice<'a, T>,
        shape: [usize; 3],
        layout: Transpose,
    ) -> Product<'a, T> {
        Product { a, b, bias: None, shape, layout, arithmetic: self }
    }
}

/// Writes a product `[M, N]` to `out` from element `start` on, or adds it there. On a GPU a product
/// of few outputs over many rows is split unless it has a bias, and its parts are added in order:
/// how, is decided by the shape alone, so that the bits do not depend on the GPU, unless the
/// scratch is of a run that lets sums be added in another order.
///
/// # Errors
/// [`Error::Memory`](megabatch_nn::Error::Memory): what the device says of the launch, or that
/// there is no memory for the parts of a split product, in `scratch`.
///
/// # Panics
/// If a buffer ends too early for the shape, and if arrays are on several devices.
pub fn multiply<T: Operand>(
    product: &Product<'_, T>,
    output: Output,
    out: &mut Buffer<f32>,
    start: usize,
    scratch: &mut Scratch,
) -> Result<()> {
    let device = product.assert_fits(out, start);
    scratch.assert_beside(&device);
    match &device {
        Device::Cuda(device) => cuda(device, product, output, TensorSlice { buffer: out, start }.address(), scratch),
        _ => cpu_arm!(conformance::multiply(product, output, &mut out.as_mut_slice()[start..])),
    }
}

fn cuda<T: Operand>(
    device: &Cuda,
    product: &Product<'_, T>,
    output: Output,
    to: u64,
    scratch: &mut Scratch,
) -> Result<()> {
    let len = product.shape[0] * product.shape[1];
    let operands = Operands::new(product, to);
    let parts =
        if product.bias.is_some() { 0 } else { scratch.address_of::<f32>(product_partials_len(product.shape))? };
    let run = |cut: TileConfig| {
        let plan = GemmPlan::new(cut, product.shape, product.bias.is_some());
        let call = Call::new::<T>(product.shape, product.layout, product.arithmetic, plan, output);
        if plan.splits == 1 {
            // SAFETY: `multiply` has seen that the buffers have the lengths of the shape.
            return unsafe { call.submit(device, operands) };
        }
        // SAFETY: as above; `parts` has room for the output of every split, of which there are no
        // more than the rule's.
        unsafe {
            Call { output: Output::Overwrite, ..call }.submit(device, Operands { out: parts, ..operands })?;
        }
        // SAFETY: `parts` has the output of every split, and there are `len` elements from `to` on.
        // What is submitted to the default stream later, the next use of the scratch included, runs
        // after it.
        unsafe { add_parts(device, parts, plan.splits, to, len, output) }
    };
    let (kind, tuner) = (kind_of(product, output), scratch.products_mut().tuner().clone());
    // SAFETY: as for a call that is not split; `parts` has as many numbers as the shape asks a
    // scratch for.
    let by_library = || unsafe { library::multiply(&tuner, device, product, operands, parts) };
    // Doing it again changes nothing: there are several ways only where the output is overwritten.
    let measured = |method| match method {
        Method::Kernel(cut) => device.elapsed_ms(|| run(cut)),
        Method::Library => library::elapsed_ms(device, by_library),
    };
    let question = || {
        let library = kind.is_for_library().then(|| tuner.library_name(device)).flatten();
        question::<T>(kind, tuner.is_fast(), library)
    };
    match scratch.products_mut().choose(device, kind, question, measured)? {
        Method::Kernel(cut) => run(cut),
        Method::Library if by_library() => Ok(()),
        Method::Library => run(TileConfig::BY_RULE),
    }
}
