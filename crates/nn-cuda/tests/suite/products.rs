//! Products by cuBLASLt.

use megabatch_gpu_core::{Buffer, CublasLt, Device};
use megabatch_nn::Result;
use megabatch_nn_cuda::{Tuner, Tuning};

use super::inter_layer::{buffer, narrow};
use megabatch_nn_cuda::ops::{
    Arithmetic, Operand, Output, Product, Scratch, TensorSlice, Transpose, by_library, multiply,
};

/// Aligned, ragged on every side, a single element, and so deep that there is a workspace.
const SHAPES: [[usize; 3]; 6] = [[64, 64, 64], [19, 37, 45], [1, 1, 1], [65, 8, 33], [5, 66, 16], [8, 3, 1100]];

/// All layouts and shapes, with a start and without, of operands that begin at the first byte of a
/// buffer and that do not. Sums of K products within ±1 may differ by `tolerance` for 64 of them.
///
/// # Panics
/// If the library is not here, fails, or multiplies nothing.
pub(super) fn by_library_as_on_cpu<T: Operand>(device: &Device, arithmetic: Arithmetic, tolerance: f32) -> Result<()> {
    let tuner = Tuner::new(Tuning::Fast);
    let Device::Cuda(cuda) = device else { panic!("cuBLASLt is a library of GPUs") };
    assert!(CublasLt::open(cuda)?.is_some(), "cuBLASLt is not here");
    let mut done = 0;
    for layout in [Transpose::Nt, Transpose::Nn, Transpose::Tt, Transpose::Tn] {
        for (shape, starts) in SHAPES.into_iter().flat_map(|shape| [(shape, true), (shape, false)]) {
            let tolerance = tolerance * (shape[2] as f32 / 64.0).sqrt().max(1.0);
            let is_done = one::<T>(device, &tuner, shape, layout, arithmetic, starts, tolerance)?;
            done += usize::from(is_done);
        }
    }
    assert!(done > 0, "cuBLASLt has no way for any product of {}", T::SUFFIX);
    let notes = tuner.take_notes();
    assert!(notes.is_empty(), "{notes:?}");
    Ok(())
}

/// True if the library has a way.
fn one<T: Operand>(
    device: &Device,
    tuner: &Tuner,
    shape: [usize; 3],
    layout: Transpose,
    arithmetic: Arithmetic,
    starts: bool,
    tolerance: f32,
) -> Result<bool> {
    let [rows, columns, inner] = shape;
    let product = |device: &Device, by_library_alone: bool| {
        let scope = device.scope("ops");
        let offset = usize::from(starts);
        let (a, b) = (narrow::<T>(&scope, "a", rows * inner + offset)?, narrow::<T>(&scope, "b", columns * inner)?);
        let bias = starts.then(|| buffer(&scope, "start", columns)).transpose()?;
        let (a, bias) = (TensorSlice { buffer: &a, start: offset }, bias.as_ref().map(TensorSlice::from));
        let product = Product { a, b: (&b).into(), bias, shape, layout, arithmetic };
        let (mut out, mut scratch) = (Buffer::zeros(&scope, 1 + rows * columns)?, Scratch::tuned(&scope, tuner)?);
        let is_done = if by_library_alone {
            by_library(&product, &mut out, 1, &mut scratch)?
        } else {
            multiply(&product, Output::Overwrite, &mut out, 1, &mut scratch)?;
            true
        };
        Ok::<_, megabatch_nn::Error>((is_done, out.to_vec()?))
    };
    let ((is_done, found), (_, expected)) = (product(device, true)?, product(&Device::cpu(), false)?);
    for (k, (found, expected)) in found.iter().zip(&expected).enumerate().filter(|_| is_done) {
        let error = (found - expected).abs();
        assert!(
            error <= tolerance,
            "{shape:?} {layout:?} in {}, number {k} is {found} where {expected} is right",
            T::SUFFIX
        );
    }
    Ok(is_done)
}
