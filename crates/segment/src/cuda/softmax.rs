//! Softmax and its logarithm over the rows of each segment, and their gradients.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::{arguments, ptx};

use super::{GpuSegments, Operation};
use crate::error::Result;
use crate::tensor::Softmax;

const SOFTMAX: Operation = Operation { module: "segment/softmax", ptx: ptx!("softmax") };

/// Threads that look for rows without a segment, of which there are seldom any.
const OUTSIDE_THREADS: usize = 1 << 14;

/// Reduction over the rows of a segment, as softmax.cu counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    /// The greatest number.
    Greatest = 0,
    /// The sum of eˣ⁻ᵐ, where m is the greatest.
    Exponentials = 1,
    /// The sum of y d_y.
    Products = 2,
    /// The sum of d_y.
    Gradients = 3,
}

/// Addresses of the tensors of a pass: x twice, or y and its gradient; and the result.
#[derive(Clone, Copy)]
struct Tensors {
    one: u64,
    other: u64,
    to: u64,
}

impl GpuSegments<'_> {
    /// Bytes that [`softmax`](Self::softmax) and [`softmax_backward`](Self::softmax_backward) work
    /// with.
    pub fn softmax_bytes(&self) -> usize {
        3 * self.wide_bytes()
    }

    /// Softmax of each segment's rows, or its logarithm, as
    /// [`tensor::softmax`](crate::tensor::softmax).
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    ///
    /// # Safety
    /// As the type says.
    pub unsafe fn softmax(&self, which: Softmax, x: u64, y: u64, workspace: u64) -> Result<()> {
        let tensors = Tensors { one: x, other: x, to: y };
        // SAFETY: as the caller promised.
        unsafe { self.softmax_pass(which, Term::Exponentials, tensors, workspace) }
    }

    /// The backward pass of [`softmax`](Self::softmax), as
    /// [`tensor::softmax_backward`](crate::tensor::softmax_backward).
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    ///
    /// # Safety
    /// As the type says.
    pub unsafe fn softmax_backward(&self, which: Softmax, y: u64, d_y: u64, d_x: u64, workspace: u64) -> Result<()> {
        let term = if which == Softmax::Plain { Term::Products } else { Term::Gradients };
        let tensors = Tensors { one: y, other: d_y, to: d_x };
        // SAFETY: as the caller promised.
        unsafe { self.softmax_pass(which, term, tensors, workspace) }
    }

    /// # Safety
    /// As the type says.
    unsafe fn softmax_pass(&self, which: Softmax, term: Term, tensors: Tensors, workspace: u64) -> Result<()> {
        let Tensors { one, other, to } = tensors;
        let (is_logarithm, eps) = match which {
            Softmax::Plain => (0u32, 0.0),
            Softmax::Logarithm { eps } => (1, eps),
        };
        let [segments, rows, columns] = self.sizes();
        let (pieces, bytes) = (self.pieces_len(), self.wide_bytes() as u64);
        if pieces > 0 {
            let [partial, greatest, sums] = [0, 1, 2].map(|part| workspace + part * bytes);
            let reduce = |term: Term, greatest: u64, results: u64| {
                let term = term as u32;
                let arguments =
                    arguments![self.plan, one, other, greatest, partial, term, segments, rows, columns, pieces as u64];
                // SAFETY: as the caller promised; each thread has a number of `partial`.
                unsafe { self.submit(SOFTMAX, "softmax_pieces", pieces, &arguments) }?;
                let arguments = arguments![self.plan, partial, results, term, segments, rows, columns, pieces as u64];
                // SAFETY: as above, of `results`.
                unsafe { self.submit(SOFTMAX, "softmax_long", pieces, &arguments) }
            };
            let has_greatest = term == Term::Exponentials;
            if has_greatest {
                reduce(Term::Greatest, 0, greatest)?;
            }
            let greatest = if has_greatest { greatest } else { 0 };
            reduce(term, greatest, sums)?;
            let arguments = arguments![
                self.plan,
                one,
                other,
                greatest,
                sums,
                to,
                term as u32,
                is_logarithm,
                eps,
                segments,
                rows,
                columns,
                pieces as u64
            ];
            // SAFETY: as the caller promised; a row is in one piece.
            unsafe { self.submit(SOFTMAX, "softmax_rows", pieces, &arguments) }?;
        }
        let len = self.segments_len();
        let arguments =
            arguments![self.plan, one, other, to, term as u32, is_logarithm, eps, segments, rows, columns, len as u64];
        // SAFETY: as the caller promised; a row is in one segment.
        unsafe { self.submit(SOFTMAX, "softmax_segments", len, &arguments) }?;
        let arguments = arguments![self.plan, to, segments, self.shape.batches as u64, rows, columns];
        let threads = self.rows_len().min(OUTSIDE_THREADS);
        // SAFETY: as the caller promised; threads write numbers of `to` that no other writes.
        unsafe { self.submit(SOFTMAX, "softmax_outside", threads, &arguments) }
    }
}
