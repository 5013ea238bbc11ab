//! Sums, means and products of segments.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::{arguments, ptx};

use super::{GpuSegments, Operation};
use crate::error::Result;
use crate::tensor::Fold;

const FOLD: Operation = Operation { module: "segment/fold", ptx: ptx!("fold") };

impl GpuSegments<'_> {
    /// Bytes that [`fold`](Self::fold) works with.
    pub fn fold_bytes(&self) -> usize {
        self.wide_bytes()
    }

    /// The fold of each segment's rows and of `base`, as [`tensor::fold`](crate::tensor::fold); no
    /// base is at address 0.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    ///
    /// # Safety
    /// As the type says.
    pub unsafe fn fold(&self, fold: Fold, x: u64, base: u64, out: u64, workspace: u64) -> Result<()> {
        let which = u32::from(fold == Fold::Product) * 2;
        let partial = if self.pieces_len() > 0 { workspace } else { 0 };
        let [segments, rows, columns] = self.sizes();
        let len = self.pieces_len();
        let arguments = arguments![self.plan, x, partial, which, segments, rows, columns, len as u64];
        // SAFETY: as the caller promised; there is a number of `partial` for each thread.
        unsafe { self.submit(FOLD, "fold_pieces", len, &arguments) }?;
        let (is_mean, len) = (u32::from(fold == Fold::Mean), self.segments_len());
        let arguments =
            arguments![self.plan, x, partial, base, out, which, is_mean, segments, rows, columns, len as u64];
        // SAFETY: as the caller promised; there is a number of `out` for each thread.
        unsafe { self.submit(FOLD, "fold_segments", len, &arguments) }
    }
}
