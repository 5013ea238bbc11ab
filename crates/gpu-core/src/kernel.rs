//! Kernels of operations, for every crate that has some: how many threads run one, what it is
//! given, and running it.
//!
//! An operation is a `.rs` with its kernel beside it as `.cu`. `cargo xtask kernels` compiles that
//! to PTX in the crate's folder `ptx`, which [`ptx!`](crate::ptx) embeds. The code is the same in a
//! build without the feature `cuda`, where there is no [`Cuda`] to call it with.
//!
//! ```
//! use megabatch_gpu_core::kernel::{Kernel, Launch};
//! use megabatch_gpu_core::{Buffer, Device, Result, arguments};
//!
//! /// Multiplies every element by `factor`.
//! fn scale(buffer: &mut Buffer<f32>, factor: f32) -> Result<()> {
//!     match buffer.scope().device().clone() {
//!         Device::Cuda(cuda) => {
//!             // In an operation: `megabatch_gpu_core::ptx!("scale")`.
//!             let kernel = Kernel { module: "scale", ptx: ".version 7.0 …", name: "scale" };
//!             let arguments = arguments![buffer.address(), factor, buffer.len() as u64];
//!             // SAFETY: the kernel changes elements of the buffer only; whatever uses its memory
//!             // next runs later on the default stream.
//!             unsafe { kernel.submit(&cuda, Launch::for_threads(buffer.len()), &arguments) }
//!         }
//!         _ => Ok(buffer.as_mut_slice().iter_mut().for_each(|element| *element *= factor)),
//!     }
//! }
//!
//! let mut buffer = Buffer::from_slice(&Device::cpu().scope("example"), &[1.0f32, 2.0])?;
//! scale(&mut buffer, 3.0)?;
//! assert_eq!(buffer.to_vec()?, [3.0, 6.0]);
//! # Ok::<(), megabatch_gpu_core::Error>(())
//! ```

#![allow(unsafe_code, reason = "kernels are launched")]

pub use crate::cuda::Arguments;

use crate::device::Cuda;
use crate::error::Result;

/// Threads of a block in every [`Launch`] that does not ask for others.
pub const BLOCK_THREADS: u32 = 256;

/// A grid of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    blocks: u32,
    threads: u32,
    shared_bytes: u32,
    cooperative: bool,
}

impl Launch {
    /// At least `threads` threads, in as few blocks as that takes; `None` for none, as no grid is
    /// empty.
    ///
    /// # Panics
    /// If a grid cannot have so many: 2³¹ − 1 blocks, which is 8 TiB of work at 16 bytes a thread.
    pub fn for_threads(threads: usize) -> Option<Self> {
        Launch::for_blocks(threads.div_ceil(BLOCK_THREADS as usize))
    }

    /// `blocks` blocks of [`BLOCK_THREADS`]; `None` for none.
    ///
    /// # Panics
    /// As [`Launch::for_threads`].
    pub fn for_blocks(blocks: usize) -> Option<Self> {
        let blocks = i32::try_from(blocks).expect("a grid has at most 2^31 - 1 blocks") as u32;
        (blocks > 0).then_some(Launch { blocks, threads: BLOCK_THREADS, shared_bytes: 0, cooperative: false })
    }

    /// This launch with `threads` threads a block.
    #[must_use]
    pub fn with_threads(self, threads: u32) -> Self {
        Launch { threads, ..self }
    }

    /// This launch with `shared_bytes` of dynamic shared memory a block.
    #[must_use]
    pub fn with_shared_bytes(self, shared_bytes: u32) -> Self {
        Launch { shared_bytes, ..self }
    }

    /// Dynamic shared memory of a block in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// This launch with all blocks resident at once, so that one may wait for another; see
    /// [`Kernel::resident_blocks`].
    #[must_use]
    pub fn cooperative(self) -> Self {
        Launch { cooperative: true, ..self }
    }

    #[cfg(feature = "cuda")]
    fn grid(&self) -> crate::cuda::Grid {
        let Launch { blocks, threads, shared_bytes, cooperative } = *self;
        crate::cuda::Grid { shared_bytes, cooperative, ..crate::cuda::Grid::new(blocks, threads) }
    }
}

/// Blocks, and threads of each.
impl From<Launch> for (u32, u32) {
    fn from(launch: Launch) -> Self {
        (launch.blocks, launch.threads)
    }
}

/// The arguments of a kernel: numbers, addresses, `#[repr(C)]` structs. Their types decide how many
/// bytes are passed, so that a literal needs its suffix: `arguments![address, len as u32, 0.5f32]`.
#[macro_export]
macro_rules! arguments {
    ($($value:expr),* $(,)?) => {
        $crate::kernel::Arguments::new()$(.with_value(stringify!($value), $value))*
    };
}

/// The compiled kernels of `NAME.cu`, embedded from the file `ptx/NAME.ptx` of the crate that calls
/// this.
#[macro_export]
macro_rules! ptx {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/ptx/", $name, ".ptx"))
    };
}

/// A kernel of an operation: its PTX, compiled into the program, and its name there.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<'k> {
    /// Name of the compiled PTX on the GPU: its crate and the operation's file, such as
    /// `segment/sum`.
    pub module: &'static str,
    /// The text of the PTX, as [`ptx!`](crate::ptx) has it.
    pub ptx: &'static str,
    /// The `extern "C"` name of the kernel.
    pub name: &'k str,
}

impl Kernel<'_> {
    /// Submits the kernel to the default stream, and does not wait for it; nothing for an empty
    /// grid.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`](crate::Error::NoSuchKernel),
    /// [`Error::KernelArguments`](crate::Error::KernelArguments),
    /// [`Error::KernelArgument`](crate::Error::KernelArgument) or
    /// [`Error::LaunchLimit`](crate::Error::LaunchLimit) for what does not fit the PTX or the GPU;
    /// [`Error::Driver`](crate::Error::Driver) where a call fails. Nothing is submitted then.
    ///
    /// # Safety
    /// The kernel reads and writes through the addresses among its arguments. It stays within the
    /// memory behind them for this grid and these arguments, and nothing touches on another stream
    /// what it writes, or writes what it reads, unless ordered by events. Buffers that are dropped
    /// early are no danger: their memory's next use comes later on the default stream.
    #[cfg(feature = "cuda")]
    pub unsafe fn submit(&self, cuda: &Cuda, launch: Option<Launch>, arguments: &Arguments) -> Result<()> {
        let Some(launch) = launch else { return Ok(()) };
        let module = cuda.gpu().module(self.module, self.ptx)?;
        // SAFETY: as the caller promised.
        unsafe { module.kernel(self.name)?.launch(&cuda.gpu().default_stream(), &launch.grid(), arguments) }
    }

    /// Submits the kernel to a stream that another library of this process made, by the driver's
    /// `handle`, where 0 is the default stream; as [`Kernel::submit`]. The context that is current
    /// on this thread stays so.
    ///
    /// # Errors
    /// As [`Kernel::submit`].
    ///
    /// # Safety
    /// As [`Kernel::submit`], and `handle` is 0 or a stream of this GPU's primary context.
    #[cfg(feature = "cuda")]
    pub unsafe fn submit_to(
        &self,
        cuda: &Cuda,
        handle: u64,
        launch: Option<Launch>,
        arguments: &Arguments,
    ) -> Result<()> {
        let Some(launch) = launch else { return Ok(()) };
        crate::cuda::beside_others(|| {
            let gpu = cuda.gpu();
            let module = gpu.module(self.module, self.ptx)?;
            // SAFETY: as the caller promised.
            let stream = unsafe { gpu.external_stream(handle) };
            // SAFETY: as the caller promised.
            unsafe { module.kernel(self.name)?.launch_in(gpu.queue(stream), &launch.grid(), arguments) }
        })
    }

    /// Blocks of `threads` threads that run at once on an idle GPU, at most as many as a
    /// [cooperative](Launch::cooperative) launch can have: 0 where the GPU cannot promise that.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`](crate::Error::NoSuchKernel); [`Error::Driver`](crate::Error::Driver)
    /// where a call fails.
    #[cfg(feature = "cuda")]
    pub fn resident_blocks(&self, cuda: &Cuda, threads: u32) -> Result<u64> {
        let module = cuda.gpu().module(self.module, self.ptx)?;
        module.kernel(self.name)?.resident_blocks(&crate::cuda::Grid::new(1, threads))
    }

    /// Never runs: a build without the feature `cuda` has no [`Cuda`].
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "cuda"))]
    pub fn resident_blocks(&self, cuda: &Cuda, _threads: u32) -> Result<u64> {
        cuda.shared_gpu().never()
    }

    /// Never runs: a build without the feature `cuda` has no [`Cuda`].
    ///
    /// # Errors
    /// None.
    ///
    /// # Safety
    /// Nothing is asked for.
    #[cfg(not(feature = "cuda"))]
    pub unsafe fn submit_to(
        &self,
        cuda: &Cuda,
        _handle: u64,
        _launch: Option<Launch>,
        _arguments: &Arguments,
    ) -> Result<()> {
        cuda.shared_gpu().never()
    }

    /// Never runs: a build without the feature `cuda` has no [`Cuda`].
    ///
    /// # Errors
    /// None.
    ///
    /// # Safety
    /// Nothing is asked for.
    #[cfg(not(feature = "cuda"))]
    pub unsafe fn submit(&self, cuda: &Cuda, _launch: Option<Launch>, _arguments: &Arguments) -> Result<()> {
        cuda.shared_gpu().never()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_covers_its_threads() {
        let cases = [(0, None), (1, Some(1)), (255, Some(1)), (256, Some(1)), (257, Some(2)), (1 << 39, None)];
        for (threads, blocks) in &cases[..5] {
            assert_eq!(Launch::for_threads(*threads).map(|launch| launch.blocks), *blocks, "{threads}");
        }
        assert!(std::panic::catch_unwind(|| Launch::for_threads(cases[5].0)).is_err());
    }
}
