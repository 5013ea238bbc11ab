//! How many threads run an operation's kernel, and running it.

use crate::cuda::{Arguments, Gpu};
use crate::error::Result;

/// Threads of a block, unless a kernel says otherwise.
pub(super) const BLOCK_THREADS: u32 = 256;

/// A grid of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) blocks: u32,
    pub(super) threads: u32,
}

impl Launch {
    /// At least `threads` threads, in as few blocks as that takes; `None` for none, as no grid is empty.
    ///
    /// # Panics
    /// If a grid cannot have so many: 2³¹ − 1 blocks, which is 8 TiB of work at 16 bytes a thread.
    pub(super) fn over(threads: usize) -> Option<Self> {
        Launch::of_blocks(threads.div_ceil(BLOCK_THREADS as usize))
    }

    /// `blocks` blocks of [`BLOCK_THREADS`]; `None` for none.
    ///
    /// # Panics
    /// As [`Launch::over`].
    pub(super) fn of_blocks(blocks: usize) -> Option<Self> {
        let blocks = i32::try_from(blocks).expect("a grid has at most 2^31 - 1 blocks") as u32;
        (blocks > 0).then_some(Launch { blocks, threads: BLOCK_THREADS })
    }
}

/// A kernel of an operation: its PTX, compiled into the program, and its name there.
pub(super) struct Kernel<'k> {
    /// The operation's file name.
    pub(super) module: &'static str,
    pub(super) ptx: &'static str,
    pub(super) name: &'k str,
}

impl Kernel<'_> {
    /// Submits the kernel to the default stream; nothing for an empty grid.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// As [`crate::cuda::Kernel::launch`].
    #[cfg(feature = "cuda")]
    pub(super) unsafe fn submit(&self, gpu: &Gpu, launch: Option<Launch>, arguments: &Arguments) -> Result<()> {
        let Some(Launch { blocks, threads }) = launch else { return Ok(()) };
        let module = gpu.module(self.module, self.ptx)?;
        let grid = crate::cuda::Grid::of(blocks, threads);
        // SAFETY: as the caller promised.
        unsafe { module.kernel(self.name)?.launch(&gpu.default_stream(), &grid, arguments) }
    }

    /// # Safety
    /// None is needed: without the feature there is no GPU to call it with.
    #[cfg(not(feature = "cuda"))]
    pub(super) unsafe fn submit(&self, gpu: &Gpu, _: Option<Launch>, _: &Arguments) -> Result<()> {
        let _parts = (self.module, self.ptx, self.name);
        gpu.never()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_covers_its_threads() {
        let cases = [(0, None), (1, Some(1)), (255, Some(1)), (256, Some(1)), (257, Some(2)), (1 << 39, None)];
        for (threads, blocks) in &cases[..5] {
            assert_eq!(Launch::over(*threads).map(|launch| launch.blocks), *blocks, "{threads}");
        }
        assert!(std::panic::catch_unwind(|| Launch::over(cases[5].0)).is_err());
    }
}
