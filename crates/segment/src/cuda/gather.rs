//! A row for each row of the segment that it belongs to.

use megabatch_gpu_core::arguments;
use megabatch_gpu_core::kernel::{Kernel, Launch};

use super::GpuSegments;
use crate::error::Result;
use crate::tensor::Share;

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
        let (segments, rows, columns) = (self.segments as u64, self.shape.rows as u64, self.shape.columns as u64);
        let (is_share, len) = (u32::from(share == Share::Equal), self.rows_len());
        let arguments = arguments![self.plan, index, values, out, is_share, segments, rows, columns, len as u64];
        let name = self.kernel_name("gather");
        let kernel = Kernel { module: "segment/gather", ptx: megabatch_gpu_core::ptx!("gather"), name: &name };
        // SAFETY: as the caller promised; there is a number of `out` for each thread.
        unsafe { self.stream.submit(kernel, Launch::for_threads(len), &arguments) }
    }
}
