//! Launching kernels, with everything checked first that the driver would take on trust or refuse
//! without saying why.

#![allow(unsafe_code, reason = "the driver is called")]

use std::sync::Arc;

use cust::sys::{self, CUfunction_attribute};

use super::arguments::Arguments;
use super::copy::StreamQueue;
use super::fault::{DriverFault, checked};
use super::gpu_command::GpuCommand;
use super::module::LoadedKernel;
use super::properties::Properties;
use super::stream::Stream;
use crate::error::{Error, Result};

/// Threads of a kernel, the shared memory of each block, and whether blocks may wait for each
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Blocks in the grid, by dimension (x, y, z).
    pub blocks: [u32; 3],
    /// Threads in a block, by dimension (x, y, z).
    pub threads: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// True if all blocks run at once, so that one may wait for another.
    pub cooperative: bool,
}

impl Grid {
    /// `blocks` blocks of `threads` threads in one dimension, without dynamic shared memory.
    pub fn new(blocks: u32, threads: u32) -> Self {
        Grid { blocks: [blocks, 1, 1], threads: [threads, 1, 1], shared_bytes: 0, cooperative: false }
    }
}

impl LoadedKernel<'_> {
    /// Submits the kernel to `stream`. Does not wait for it.
    ///
    /// # Errors
    /// [`Error::KernelArguments`], [`Error::KernelArgument`] or [`Error::LaunchLimit`] for what the
    /// kernel or the GPU cannot take; [`Error::Driver`] where a call fails. Nothing is submitted
    /// then.
    ///
    /// # Panics
    /// If the stream is another GPU's.
    ///
    /// # Safety
    /// The kernel reads and writes through the addresses among its arguments. Until it is done, the
    /// memory behind them stays allocated, and nobody else writes what it reads or touches what it
    /// writes, unless ordered by the streams. It stays within that memory for this grid and these
    /// arguments.
    pub unsafe fn launch(&self, stream: &Stream, grid: &Grid, arguments: &Arguments) -> Result<()> {
        assert!(Arc::ptr_eq(stream.context(), self.context()), "a kernel runs on a stream of its own GPU");
        // SAFETY: as the caller promised.
        unsafe { self.launch_in(stream.queue(), grid, arguments) }
    }

    /// As [`LoadedKernel::launch`], on a stream of the kernel's GPU.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn launch_in(&self, queue: StreamQueue<'_>, grid: &Grid, arguments: &Arguments) -> Result<()> {
        self.check_arguments(arguments)?;
        self.check_grid(grid, self.context().properties())?;
        self.check_residence(grid)?;
        // SAFETY: the arguments are of the number and the sizes that the kernel's signature has;
        // for the rest the caller answers.
        unsafe { self.submit(queue, grid, arguments) }.map_err(|fault| self.context().error(fault))
    }

    fn check_arguments(&self, arguments: &Arguments) -> Result<()> {
        let kernel = || self.entry.name.clone();
        let (expected, given) = (self.entry.signature.len(), arguments.sizes().len());
        if given != expected {
            return Err(Error::KernelArguments { kernel: kernel(), expected, given });
        }
        for (index, (&expected_bytes, (argument, given_bytes))) in
            self.entry.signature.iter().zip(arguments.sizes()).enumerate()
        {
            if given_bytes != expected_bytes {
                return Err(Error::KernelArgument { kernel: kernel(), index, argument, expected_bytes, given_bytes });
            }
        }
        Ok(())
    }

    fn check_grid(&self, grid: &Grid, gpu: &Properties) -> Result<()> {
        let shared_bytes_most = gpu.shared_bytes_opt_in_max.saturating_sub(self.entry.shared_static_bytes);
        let threads = grid.threads.iter().map(|&threads| u64::from(threads)).product();
        let each = |names: [&'static str; 3], wanted: [u32; 3], limits: [u32; 3]| {
            (0..3).map(move |i| (names[i], 1, u64::from(wanted[i]), u64::from(limits[i])))
        };
        let wishes = each(["blocks in x", "blocks in y", "blocks in z"], grid.blocks, gpu.grid_blocks_max)
            .chain(each(["threads in x", "threads in y", "threads in z"], grid.threads, gpu.block_threads_max))
            .chain([
                ("threads in a block", 1, threads, u64::from(self.entry.threads_max.min(gpu.threads_per_block_max))),
                ("bytes of dynamic shared memory", 0, u64::from(grid.shared_bytes), u64::from(shared_bytes_most)),
            ]);
        for (what, least, wanted, most) in wishes {
            if wanted < least || wanted > most {
                return Err(Error::LaunchLimit { kernel: self.entry.name.clone(), what, wanted, least, most });
            }
        }
        Ok(())
    }

    /// Blocks with `grid`'s threads and shared memory that run at once on an idle GPU: 0 where it
    /// cannot promise that.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn resident_blocks(&self, grid: &Grid) -> Result<u64> {
        let gpu = self.context().properties();
        if !gpu.has_cooperative_launch {
            return Ok(0);
        }
        let blocks_per_multiprocessor =
            self.blocks_of_a_multiprocessor(grid).map_err(|fault| self.context().error(fault))?;
        Ok(u64::from(blocks_per_multiprocessor) * u64::from(gpu.multiprocessors))
    }

    fn blocks_of_a_multiprocessor(&self, grid: &Grid) -> Result<u32, DriverFault> {
        self.context().enter_aside()?;
        let (threads, mut blocks) = (grid.threads.iter().product::<u32>(), 0);
        // SAFETY: the function is of a module that `self` keeps loaded, and `blocks` is a variable
        // of this function.
        let code = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                self.entry.function,
                threads as i32,
                grid.shared_bytes as usize,
            )
        };
        let operands = format_args!("{}, {threads} threads, {} bytes shared", self.entry.name, grid.shared_bytes);
        checked("cuOccupancyMaxActiveBlocksPerMultiprocessor", operands, code)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    fn check_residence(&self, grid: &Grid) -> Result<()> {
        let wanted = grid.blocks.iter().map(|&blocks| u64::from(blocks)).product();
        let most = if grid.cooperative { self.resident_blocks(grid)? } else { u64::MAX };
        if wanted > most {
            let (kernel, what) = (self.entry.name.clone(), "blocks that run at once");
            return Err(Error::LaunchLimit { kernel, what, wanted, least: 1, most });
        }
        Ok(())
    }

    /// # Safety
    /// As [`LoadedKernel::launch`], and the arguments are those of the kernel's signature.
    unsafe fn submit(&self, queue: StreamQueue<'_>, grid: &Grid, arguments: &Arguments) -> Result<(), DriverFault> {
        self.allow_shared_memory(grid)?;
        let work = GpuCommand::Kernel { entry: Arc::clone(&self.entry), grid: *grid, arguments: arguments.clone() };
        // SAFETY: as the caller promised; the function is of a module that its GPU keeps loaded.
        unsafe { queue.submit(work) }
    }

    /// Raises the limit of dynamic shared memory where the grid needs more than the default.
    fn allow_shared_memory(&self, grid: &Grid) -> Result<(), DriverFault> {
        let bytes = grid.shared_bytes;
        if self.entry.shared_static_bytes + bytes <= self.context().properties().shared_bytes_max {
            return Ok(());
        }
        self.context().enter_aside()?;
        let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is of a module that `self` keeps loaded.
        let code = unsafe { sys::cuFuncSetAttribute(self.entry.function, most, bytes as i32) };
        checked("cuFuncSetAttribute", format_args!("{}, {bytes} bytes of shared memory", self.entry.name), code)
    }
}
