//! Operations on tensors in the memory of a GPU that somebody else owns, PyTorch's for instance.
//! Each has its launches in a file beside its kernels, `.cu`.
//!
//! Tensors come as addresses, and are as in [`tensor`](crate::tensor): `x` is `[batches, rows,
//! columns]`, row-major, `out` `[batches, segments, columns]`. Work is submitted to a stream of the
//! owner, and nothing waits for it: a plan is made on the GPU, and whether its rows are sorted, or
//! a segment is long, is known there alone. So an index that is no segment's is told by a [later
//! call](TensorGpu::fault); its row belongs to no segment.
//!
//! Arithmetic is in the order of [`tensor`](crate::tensor): sums, means, products, extrema and
//! softmax in f32 have its bits. Logarithms and exponentials in f64 are those of CUDA's library.

mod extremum;
mod fold;
mod gather;
mod softmax;
mod sort;
#[cfg(test)]
mod tests;

use megabatch_gpu_core::kernel::{Arguments, Kernel, Launch};
use megabatch_gpu_core::{Cuda, Device, HostWords};

pub use sort::{plan_from_index, plan_from_offsets, plan_workspace_bytes};

use crate::error::{Error, Result};
use crate::tensor::{ElementType, PIECE, Shape};

/// A GPU whose tensors are reduced.
#[derive(Debug)]
pub struct TensorGpu {
    cuda: Cuda,
    /// Faults that kernels have found: in an index, in the order of one, in offsets.
    faults: HostWords,
}

impl TensorGpu {
    /// Prepares the GPU `ordinal`, counted from 0 as the driver counts them.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no such GPU to be had.
    pub fn open(ordinal: u32) -> Result<Self> {
        match Device::cuda(ordinal)? {
            Device::Cuda(cuda) => TensorGpu::new(&cuda),
            _ => unreachable!("a GPU was asked for"),
        }
    }

    /// Prepares a GPU.
    ///
    /// # Errors
    /// [`Error::Device`] where it has no page-locked memory.
    pub fn new(cuda: &Cuda) -> Result<Self> {
        Ok(TensorGpu { cuda: cuda.clone(), faults: HostWords::new(cuda, 3)? })
    }

    /// Reports what kernels have found wrong that have run since this was asked last. Does not wait
    /// for others.
    ///
    /// # Errors
    /// [`Error::IndexWithoutSegment`], [`Error::UnsortedOnGpu`], [`Error::OffsetOnGpu`].
    pub fn fault(&self) -> Result<()> {
        let fault = |word: usize| {
            let told = self.faults.take(word);
            // A place counted from 1 beside the lowest 32 bits of the number there.
            (told != 0).then(|| ((told >> 32) as usize - 1, i64::from(told as u32 as i32)))
        };
        match [fault(0), fault(1), fault(2)] {
            [Some((position, found)), ..] => Err(Error::IndexWithoutSegment { position, found }),
            [_, Some((position, found)), _] => Err(Error::UnsortedOnGpu { position, found }),
            [.., Some((position, found))] => Err(Error::OffsetOnGpu { position, found }),
            [None, None, None] => Ok(()),
        }
    }
}

/// A stream of a GPU that tensors are on, by the driver's handle; 0 is the default stream.
#[derive(Clone, Copy, Debug)]
pub struct TensorStream<'g> {
    /// The GPU.
    pub gpu: &'g TensorGpu,
    /// The driver's handle.
    pub handle: u64,
}

impl TensorStream<'_> {
    /// # Safety
    /// As [`Kernel::submit_to`].
    #[allow(unsafe_code, reason = "tensors come as addresses")]
    unsafe fn submit(self, kernel: Kernel<'_>, launch: Option<Launch>, arguments: &Arguments) -> Result<()> {
        // SAFETY: as the caller promised.
        Ok(unsafe { kernel.submit_to(&self.gpu.cuda, self.handle, launch, arguments) }?)
    }
}

/// Segments of the rows of tensors on a GPU.
///
/// The methods take addresses, so that they are unsafe: each tensor has the numbers that its shape
/// says, of the type `element`, and stays until the work of the stream is done. Nobody writes on
/// another stream what is read, or touches what is written, unless ordered by events. Results do
/// not overlap with anything else. A workspace has as many bytes as the method of its name says,
/// and is aligned to 8.
#[derive(Clone, Copy, Debug)]
pub struct GpuSegments<'g> {
    /// The stream that work is submitted to.
    pub stream: TensorStream<'g>,
    /// Address of a plan, `[segments + 2 + rows]`, that [`plan_from_index`] or
    /// [`plan_from_offsets`] has written.
    pub plan: u64,
    /// Number of segments.
    pub segments: usize,
    /// Sizes of the tensors.
    pub shape: Shape,
    /// Type of their numbers.
    pub element: ElementType,
}

/// The kernels of an operation.
#[derive(Clone, Copy)]
struct Operation {
    module: &'static str,
    ptx: &'static str,
}

impl GpuSegments<'_> {
    /// Numbers of the rows.
    fn rows_len(&self) -> usize {
        self.shape.batches * self.shape.rows * self.shape.columns
    }

    /// Numbers of the segments.
    fn segments_len(&self) -> usize {
        self.shape.batches * self.segments * self.shape.columns
    }

    /// Numbers of the results of pieces, `[batches, slots, columns]`; 0 where no segment can be
    /// long.
    fn pieces_len(&self) -> usize {
        let Shape { batches, rows, columns } = self.shape;
        let slots = if rows > PIECE as usize { 2 * rows.div_ceil(PIECE as usize) } else { 0 };
        batches * slots * columns
    }

    /// Bytes of the results of pieces in the type that sums are formed in, a multiple of 8.
    fn wide_bytes(&self) -> usize {
        (self.pieces_len() * self.element.wide_bytes()).next_multiple_of(8)
    }

    /// Segments, rows and columns, as kernels take them.
    fn sizes(&self) -> [u64; 3] {
        [self.segments as u64, self.shape.rows as u64, self.shape.columns as u64]
    }

    /// Submits the kernel of an operation for this type of numbers.
    ///
    /// # Safety
    /// As [`Kernel::submit_to`].
    #[allow(unsafe_code, reason = "tensors come as addresses")]
    unsafe fn submit(&self, operation: Operation, kernel: &str, threads: usize, arguments: &Arguments) -> Result<()> {
        let name = format!("{kernel}_{}", self.element.suffix());
        let Operation { module, ptx } = operation;
        // SAFETY: as the caller promised.
        unsafe { self.stream.submit(Kernel { module, ptx, name: &name }, Launch::for_threads(threads), arguments) }
    }
}
