//! NVIDIA GPUs, through the driver that the machine has: streams, events, pinned memory, copies,
//! kernels. Feature `cuda`.
//!
//! Work is submitted to a [`Stream`] and runs in the order of submission. The default stream is
//! ordered with every other: what is submitted to it runs after all that was submitted before to
//! any stream, and before all that is submitted later. Two other streams are ordered by events
//! only.
//!
//! Every handle keeps its GPU's context alive, and may be used and dropped on any thread.
//!
//! ```no_run
//! use megabatch_gpu_core::cuda::Grid;
//! use megabatch_gpu_core::{Buffer, Device, arguments};
//!
//! let device = Device::select("cuda:0")?;
//! let gpu = device.gpu().expect("a CUDA device has a GPU");
//! let mut buffer = Buffer::<f32>::zeros(&device.scope("example"), 1000)?;
//!
//! // Returns at once: the pinned memory is lent to the copy until it is waited for.
//! let (stream, host) = (gpu.stream()?, gpu.pinned::<f32>(1000)?);
//! let sent = buffer.upload(&stream, host)?;
//!
//! // Normally include_str! of a file that was compiled ahead of time.
//! let module = gpu.module("scale", ".version 7.0 …")?;
//! let arguments = arguments![buffer.address(), 2.0f32, 1000u32];
//! // SAFETY: the kernel stays within the buffer, and runs after the copy on the same stream.
//! unsafe { module.kernel("scale")?.launch(&stream, &Grid::new(4, 256), &arguments) }?;
//! let host = sent.wait()?;
//! # Ok::<(), megabatch_gpu_core::Error>(())
//! ```

#![allow(unsafe_code, reason = "the driver is called")]

mod arguments;
mod blocks;
mod busy_timer;
mod capture;
mod captures;
mod command_recorder;
mod compiled;
mod context;
mod copy;
mod copy_stream;
mod cublaslt;
mod event;
mod fault;
mod gpu_command;
mod gpu_source;
mod launch;
mod locked_block;
mod module;
mod non_blocking_stream;
mod pending;
mod pinned;
mod pinned_words;
mod properties;
mod signature;
mod stream;
mod transfer;
mod virtual_memory;

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

pub use arguments::{Argument, Arguments};
pub use event::Event;
pub use gpu_source::GpuSource;
pub use launch::Grid;
pub use module::{LoadedKernel, Module};
pub use pinned::{Pinned, PinnedStats};
pub use properties::{MemoryInfo, Properties};
pub use stream::Stream;
pub use transfer::Transfer;

pub(crate) use captures::Captures;
pub(crate) use context::Context;
pub(crate) use copy_stream::CopyStream;
pub(crate) use cublaslt::CublasLt;
pub(crate) use fault::DriverFault;
pub(crate) use locked_block::LockedBlock;
pub(crate) use pending::{PendingDownload, PendingUploads};
pub(crate) use pinned_words::PinnedWords;
pub(crate) use stream::GpuStreams;

use cust::sys::{self, CUstream};

use crate::error::Result;
use crate::source::StreamId;
use command_recorder::{Deferral, Pause};
use copy::StreamQueue;
use locked_block::LockedBlocks;
use pinned::PinnedPool;

/// One GPU. Clones are handles to the same one and share its streams, pinned memory and kernels.
#[derive(Clone)]
pub struct Gpu {
    shared: Arc<GpuState>,
}

struct GpuState {
    /// Folder of PTX files that take the place of compiled-in PTX.
    kernel_folder: Mutex<Option<PathBuf>>,
    modules: Mutex<BTreeMap<&'static str, Arc<Module>>>,
    pinned: Arc<PinnedPool>,
    locked: Arc<LockedBlocks>,
    streams: Arc<GpuStreams>,
    context: Arc<Context>,
}

impl Gpu {
    /// Number of GPUs that the driver lists.
    ///
    /// # Errors
    /// [`Error::DriverAbsent`](crate::Error::DriverAbsent),
    /// [`Error::DriverTooOld`](crate::Error::DriverTooOld), or
    /// [`Error::Driver`](crate::Error::Driver) where a call fails.
    pub fn count() -> Result<u32> {
        context::count("cuda")
    }

    /// The GPU `ordinal`, counted from 0 as the driver counts them (which `CUDA_VISIBLE_DEVICES`
    /// and `CUDA_DEVICE_ORDER` change).
    ///
    /// # Errors
    /// As [`Gpu::count`]; [`Error::NoSuchDevice`](crate::Error::NoSuchDevice) where there are
    /// fewer; [`Error::DeviceUnfit`](crate::Error::DeviceUnfit) for a GPU that lacks what megabatch
    /// needs.
    pub fn open(ordinal: u32) -> Result<Self> {
        let context = Arc::new(context::open(ordinal)?);
        Ok(Gpu {
            shared: Arc::new(GpuState {
                kernel_folder: Mutex::default(),
                modules: Mutex::default(),
                pinned: Arc::new(PinnedPool::new(Arc::clone(&context))),
                locked: Arc::new(LockedBlocks::new(Arc::clone(&context))),
                streams: Arc::new(GpuStreams::new(Arc::clone(&context))),
                context,
            }),
        })
    }

    /// Properties of the GPU.
    pub fn properties(&self) -> &Properties {
        self.context().properties()
    }

    /// Memory of the GPU, and its free part, over all processes.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn memory(&self) -> Result<MemoryInfo> {
        self.context().memory().map_err(|fault| self.context().error(fault))
    }

    /// The default stream, which is ordered with every other.
    pub fn default_stream(&self) -> Stream {
        GpuStreams::default_stream(&self.shared.streams)
    }

    /// A stream that nobody else has. Streams that were dropped are handed out again.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn stream(&self) -> Result<Stream> {
        GpuStreams::take(&self.shared.streams)
    }

    /// The number under which the memory pool knows a stream that another library of this process
    /// made, by the driver's `handle`; 0 is the default stream. Its work is ordered with that of
    /// other streams by events alone, as if it were a stream that does not block.
    ///
    /// # Safety
    /// `handle` is 0 or a stream of this GPU's primary context, and stays one for as long as memory
    /// that it used is in the pool.
    pub unsafe fn external_stream(&self, handle: u64) -> StreamId {
        self.shared.streams.external(handle as CUstream)
    }

    /// An event that passes after the work submitted so far to the stream with this number.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn event_after(&self, stream: StreamId) -> Result<Event> {
        let event = self.event()?;
        let recorded = event.record_on(self.shared.streams.raw(stream), stream);
        recorded.map_err(|fault| self.context().error(fault))?;
        Ok(event)
    }

    /// An event that nothing has been recorded in.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn event(&self) -> Result<Event> {
        Event::new(self.context()).map_err(|fault| self.context().error(fault))
    }

    /// `len` elements of page-locked host memory, from and to which the GPU copies without a
    /// detour. What is in them is left from an earlier use, or zero.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also where the system can lock no more pages.
    pub fn pinned<T: bytemuck::Pod>(&self, len: usize) -> Result<Pinned<T>> {
        Pinned::take(&self.shared.pinned, len)
    }

    /// Counters of the pinned memory.
    #[cfg(any(test, feature = "conformance"))]
    pub fn pinned_stats(&self) -> PinnedStats {
        self.shared.pinned.stats()
    }

    /// Gives the pinned memory back to the system that nobody has now; returns its bytes.
    #[cfg(any(test, feature = "conformance"))]
    pub fn empty_pinned_cache(&self) -> usize {
        self.shared.pinned.empty()
    }

    /// The kernels of `ptx`, which the driver compiles for this GPU when `name` is first asked for.
    /// A file of the [kernel folder](crate::Device::set_kernel_folder) takes the text's place.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where the driver refuses the text;
    /// [`Error::KernelFile`](crate::Error::KernelFile) for a file that cannot be read.
    pub fn module(&self, name: &'static str, ptx: &str) -> Result<Arc<Module>> {
        let mut modules = self.shared.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(name) {
            return Ok(Arc::clone(module));
        }
        let replacement = self.replacement(name)?;
        let module = Arc::new(Module::load(&self.shared.context, name, replacement.as_deref().unwrap_or(ptx))?);
        modules.insert(name, Arc::clone(&module));
        Ok(module)
    }

    pub(crate) fn set_kernel_folder(&self, folder: Option<PathBuf>) {
        *self.shared.kernel_folder.lock().unwrap_or_else(PoisonError::into_inner) = folder;
    }

    /// The PTX in the kernel folder for the module `name`, of which the crate's part is left out.
    fn replacement(&self, name: &str) -> Result<Option<String>> {
        let folder = self.shared.kernel_folder.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(folder) = folder.as_deref() else { return Ok(None) };
        let path = folder.join(name.rsplit('/').next().unwrap_or(name)).with_extension("ptx");
        match std::fs::read_to_string(&path) {
            Ok(ptx) => Ok(Some(ptx)),
            Err(error) if error.kind() == ErrorKind::NotFound && folder.is_dir() => Ok(None),
            Err(source) => Err(crate::Error::KernelFile { path, source }),
        }
    }

    /// Waits until all work submitted to every stream is done.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also for work that was submitted earlier and
    /// failed.
    pub fn synchronize(&self) -> Result<()> {
        self.context().synchronize().map_err(|fault| self.context().error(fault))
    }

    /// Runs `work` and defers its submissions to the default stream, which are captured if they
    /// come again. Returns the results of the work and of the submissions.
    pub(crate) fn hold_back<R>(&self, captures: &mut Captures, work: impl FnOnce() -> R) -> (R, Result<()>) {
        let Some(deferral) = Deferral::begin(self.context(), captures) else { return (work(), Ok(())) };
        let done = work();
        (done, deferral.end().map_err(|fault| self.context().error(fault)))
    }

    /// Submits what is deferred so far.
    pub(crate) fn submit_held_back(&self) -> Result<()> {
        self.context().enter().map_err(|fault| self.context().error(fault))
    }

    /// From now on, times the work that `captures` submit.
    pub(crate) fn time_work(&self, captures: &mut Captures) -> Result<()> {
        captures.time_work(self.context()).map_err(|fault| self.context().error(fault))
    }

    /// Seconds of the work of `captures` that the GPU has done since the last call.
    pub(crate) fn take_busy_s(&self, captures: &mut Captures) -> Result<f64> {
        let seconds = self.context().enter().and_then(|()| captures.take_busy_s());
        seconds.map_err(|fault| self.context().error(fault))
    }

    /// Result of `work`, and the milliseconds of the commands that it submits to the default
    /// stream. They are not deferred meanwhile.
    pub(crate) fn elapsed_ms<R>(&self, work: impl FnOnce() -> R) -> Result<(R, f32)> {
        let (stream, start, end) = (self.default_stream(), self.event()?, self.event()?);
        start.record(&stream)?;
        let pause = Pause::begin(self.context());
        let done = work();
        drop(pause);
        end.record(&stream)?;
        end.wait()?;
        Ok((done, end.elapsed_ms_since(&start)?))
    }

    pub(crate) fn identity(&self) -> String {
        let Properties { name, compute_capability: (major, minor), driver_version, .. } = self.properties();
        format!("{name}, compute capability {major}.{minor}, CUDA {driver_version}")
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.shared.context
    }

    pub(crate) fn streams(&self) -> &Arc<GpuStreams> {
        &self.shared.streams
    }

    /// The stream with a number, ready for submissions.
    pub(crate) fn queue(&self, id: StreamId) -> StreamQueue<'_> {
        StreamQueue { streams: &self.shared.streams, id }
    }
}

/// Does `work`, and then makes the context current again on this thread that was before: another
/// library of the process may choose its device by it.
pub fn beside_others<R>(work: impl FnOnce() -> R) -> R {
    let mut before = ptr::null_mut();
    // SAFETY: `before` is a variable of this function.
    let known = unsafe { sys::cuCtxGetCurrent(&raw mut before) };
    let done = work();
    if known == sys::CUresult::CUDA_SUCCESS {
        // SAFETY: it was current on this thread, or null, which makes none current.
        let _ = unsafe { sys::cuCtxSetCurrent(before) };
    }
    done
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({}, {})", self.context().name(), self.properties().name)
    }
}
