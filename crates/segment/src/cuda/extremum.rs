//! Maxima and minima of segments with the rows that they are in, and their gradient.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::{arguments, ptx};

use super::{GpuSegments, Operation};
use crate::error::Result;
use crate::tensor::Extremum;

const EXTREMUM: Operation = Operation { module: "segment/extremum", ptx: ptx!("extremum") };

impl GpuSegments<'_> {
    /// Bytes that [`extremum`](Self::extremum) works with.
    pub fn extremum_bytes(&self) -> usize {
        self.extremum_values_bytes() + 4 * self.pieces_len()
    }

    fn extremum_values_bytes(&self) -> usize {
        (self.pieces_len() * self.element.bytes()).next_multiple_of(8)
    }

    /// The extremum of each segment's rows and of `base`, and its row as a 64-bit integer, as
    /// [`tensor::extremum`](crate::tensor::extremum); no base is at address 0.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    ///
    /// # Safety
    /// As the type says.
    pub unsafe fn extremum(
        &self,
        which: Extremum,
        x: u64,
        base: u64,
        values: u64,
        arguments: u64,
        workspace: u64,
    ) -> Result<()> {
        let which = u32::from(which == Extremum::Min);
        let found = workspace + self.extremum_values_bytes() as u64;
        let (partial, found) = if self.pieces_len() > 0 { (workspace, found) } else { (0, 0) };
        let [segments, rows, columns] = self.sizes();
        let len = self.pieces_len();
        let given = arguments![self.plan, x, partial, found, which, segments, rows, columns, len as u64];
        // SAFETY: as the caller promised; there are numbers of `partial` and `found` for each
        // thread.
        unsafe { self.submit(EXTREMUM, "extremum_pieces", len, &given) }?;
        let len = self.segments_len();
        let given = arguments![
            self.plan, x, partial, found, base, values, arguments, which, segments, rows, columns, len as u64
        ];
        // SAFETY: as the caller promised; there are numbers of both results for each thread.
        unsafe { self.submit(EXTREMUM, "extremum_segments", len, &given) }
    }

    /// The backward pass of [`extremum`](Self::extremum): writes the gradients of the rows that are
    /// arguments to `d_x`, whose numbers are 0 before.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    ///
    /// # Safety
    /// As the type says.
    pub unsafe fn extremum_backward(&self, arguments: u64, d_out: u64, d_x: u64) -> Result<()> {
        let [segments, rows, columns] = self.sizes();
        let len = self.segments_len();
        let given = arguments![arguments, d_out, d_x, segments, rows, columns, len as u64];
        // SAFETY: as the caller promised; a thread writes one number of a row of `d_x`, or none.
        unsafe { self.submit(EXTREMUM, "extremum_backward", len, &given) }
    }
}
