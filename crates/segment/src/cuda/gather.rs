//! A row for each row of the segment that it belongs to.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::{arguments, ptx};

use super::{GpuSegments, Operation};
use crate::error::Result;
use crate::tensor::Share;

const GATHER: Operation = Operation { module: "segment/gather", ptx: ptx!("gather") };

impl GpuSegments<'_> {
    /// The row of each row's segment, as [`tensor::gather`](crate::tensor::gather). Rows are those
    /// of an index of 64-bit integers, or with address 0 in the order of segments.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device).
    ///
    /// # Safety
    /// As the type says.
    pub unsafe fn gather(&self, share: Share, index: u64, values: u64, out: u64) -> Result<()> {
        let [segments, rows, columns] = self.sizes();
        let (is_share, len) = (u32::from(share == Share::Equal), self.rows_len());
        let arguments = arguments![self.plan, index, values, out, is_share, segments, rows, columns, len as u64];
        // SAFETY: as the caller promised; there is a number of `out` for each thread.
        unsafe { self.submit(GATHER, "gather", len, &arguments) }
    }
}
