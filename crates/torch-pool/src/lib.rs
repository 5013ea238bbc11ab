#![doc = include_str!("../README.md")]
#![allow(unsafe_code, reason = "the interface is one of C")]

mod device_pool;
mod exception;
mod interface;
mod shortage;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use megabatch_gpu_core::cuda::{Gpu, beside_others};
use megabatch_gpu_core::leak::Leak;
use megabatch_gpu_core::pool::{MemoryCounts, Stats};
use megabatch_gpu_core::recording::RecordingSettings;
use megabatch_gpu_core::{Device, Usage};
use thiserror::Error;

use device_pool::DevicePool;
pub use interface::{Callbacks, install};
pub use shortage::{Shortage, ShortageKind};

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of PyTorch's memory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Memory is short.
    #[error("{0}")]
    Shortage(Box<Shortage>),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] megabatch_gpu_core::Error),
    /// PyTorch named a device by a negative number.
    #[error("PyTorch asked for memory of device {ordinal}; devices are counted from 0")]
    NoSuchOrdinal {
        /// Its number.
        ordinal: i32,
    },
    /// A share of a GPU's memory that is none.
    #[error("a memory fraction of {fraction}; give one above 0, and at most 1")]
    Fraction {
        /// The share.
        fraction: f64,
    },
    /// The process has such a pool already.
    #[error("the pool is in use already, and a process has one: call use_pool() once")]
    Installed,
    /// C++ has no library in this process by which errors reach PyTorch.
    #[error("{library} cannot be used, by which shortages reach PyTorch: {source}; install PyTorch as its site says")]
    NoCppLibrary {
        /// The library.
        library: &'static str,
        /// Failure.
        source: libloading::Error,
    },
    /// A trace cannot be written.
    #[error("{path}: the trace cannot be written: {source}")]
    Trace {
        /// Its file.
        path: String,
        /// Failure.
        source: io::Error,
    },
}

/// Settings of PyTorch's pools, one for each GPU that it uses.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// Scattered free memory is mapped side by side for large requests.
    pub stitching: bool,
    /// Bytes that may be allocated on a GPU at once; `None` for all that fit.
    pub budget_bytes: Option<usize>,
    /// Bytes of a GPU's free memory that are left to others, such as kernels and NCCL.
    pub leave_bytes: usize,
}

/// Events that a recording keeps.
const EVENTS_MAX: usize = 200_000;

/// Owner of blocks that are allocated outside of all scopes.
const UNSCOPED: &str = "torch";

/// PyTorch's memory on all GPUs of a process.
///
/// Threads may call it at once. The thread's current context is afterwards what it was before.
#[derive(Debug)]
pub struct TorchPool {
    settings: PoolSettings,
    devices: Mutex<BTreeMap<u32, Arc<Mutex<DevicePool>>>>,
    /// Labels of the scopes that were entered and not left, the innermost last.
    scopes: Mutex<Vec<Arc<str>>>,
}

impl TorchPool {
    /// Pools that have taken nothing yet. A GPU is opened when memory of it is asked for.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no driver that can be used.
    pub fn new(settings: PoolSettings) -> Result<Self> {
        Gpu::count()?;
        Ok(TorchPool { settings, devices: Mutex::default(), scopes: Mutex::new(vec![UNSCOPED.into()]) })
    }

    /// Address of a block of `bytes` of GPU `ordinal` for work on `stream`, the driver's handle,
    /// where 0 is the default stream. It is a multiple of 512; for 0 bytes it is 0, which is not to
    /// be freed.
    ///
    /// # Errors
    /// [`Error::Shortage`], [`Error::Device`], [`Error::NoSuchOrdinal`].
    ///
    /// # Safety
    /// As `megabatch_gpu_core::cuda::Gpu::external_stream`.
    pub unsafe fn allocate(&self, bytes: usize, ordinal: i32, stream: u64) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let label = Arc::clone(locked(&self.scopes).last().expect("the outermost is never left"));
        let ordinal = u32::try_from(ordinal).map_err(|_| Error::NoSuchOrdinal { ordinal })?;
        self.on_device(ordinal, |pool| {
            // SAFETY: as the caller promised.
            let stream = unsafe { pool.gpu().external_stream(stream) };
            pool.allocate(bytes, stream, &label)
        })
    }

    /// Frees the block at `address` of GPU `ordinal`, for later work of its stream at once, and for
    /// that of others once they are ordered after it. An address that no block has is ignored.
    ///
    /// # Errors
    /// [`Error::Device`]: the block is then never used again.
    pub fn free(&self, address: u64, ordinal: i32) -> Result<()> {
        let Some(pool) = u32::try_from(ordinal).ok().and_then(|ordinal| self.opened(ordinal)) else { return Ok(()) };
        beside_others(|| locked(&pool).free(address))
    }

    /// Notes that `stream` uses the block at `address` too: once freed, its memory is given to
    /// nobody before the work is done that was submitted to `stream` by then.
    ///
    /// # Safety
    /// As [`TorchPool::allocate`].
    pub unsafe fn record_stream(&self, address: u64, stream: u64) {
        for pool in self.all() {
            let mut pool = locked(&pool);
            // SAFETY: as the caller promised.
            let stream = unsafe { pool.gpu().external_stream(stream) };
            if pool.record_stream(address, stream) {
                return;
            }
        }
    }

    /// Gives unused memory of all GPUs back to the driver.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn empty_cache(&self) -> Result<()> {
        beside_others(|| self.all().iter().try_for_each(|pool| locked(pool).empty_cache()))
    }

    /// Bounds the memory that the pool of GPU `ordinal` holds to a share of the GPU's.
    ///
    /// # Errors
    /// [`Error::Fraction`]; as [`TorchPool::allocate`].
    pub fn set_memory_fraction(&self, fraction: f64, ordinal: i32) -> Result<()> {
        let ordinal = u32::try_from(ordinal).map_err(|_| Error::NoSuchOrdinal { ordinal })?;
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(Error::Fraction { fraction });
        }
        self.on_device(ordinal, |pool| {
            let device = pool.device();
            device.limit_reserved((device.capacity_bytes() as f64 * fraction) as usize);
            Ok(())
        })
    }

    /// From now on, `label` owns the blocks that are allocated, on every thread: PyTorch computes
    /// gradients on threads of its own.
    pub fn enter_scope(&self, label: &str) {
        locked(&self.scopes).push(label.into());
    }

    /// Ends the scope that was entered last.
    pub fn leave_scope(&self) {
        let mut scopes = locked(&self.scopes);
        if scopes.len() > 1 {
            scopes.pop();
        }
    }

    /// Marks the end of an optimizer step: the next one is likely to repeat its requests.
    pub fn step(&self) {
        self.all().iter().for_each(|pool| locked(pool).device().step());
    }

    /// Ends an epoch, for a look at what grows from one to the next: a leak of GPU `ordinal` when
    /// its growth is worth a warning.
    ///
    /// # Errors
    /// As [`TorchPool::allocate`].
    pub fn epoch(&self, ordinal: u32) -> Result<Option<Leak>> {
        self.on_device(ordinal, |pool| Ok(pool.epoch()))
    }

    /// Memory of GPU `ordinal`.
    ///
    /// # Errors
    /// As [`TorchPool::allocate`].
    pub fn memory(&self, ordinal: u32) -> Result<TorchMemory> {
        self.with_device(ordinal, |device| TorchMemory {
            stats: device.stats(),
            counts: device.counts(),
            owners: device.usage_by_scope(),
        })
    }

    /// Resets the peaks of GPU `ordinal` to the current values.
    ///
    /// # Errors
    /// As [`TorchPool::allocate`].
    pub fn reset_peak(&self, ordinal: u32) -> Result<()> {
        self.with_device(ordinal, Device::reset_peak)
    }

    /// The pool of GPU `ordinal` now, as the pickle that PyTorch's memory viewer opens.
    ///
    /// # Errors
    /// As [`TorchPool::allocate`].
    pub fn snapshot(&self, ordinal: u32) -> Result<Vec<u8>> {
        self.with_device(ordinal, |device| device.snapshot(now_us()).to_pickle())
    }

    /// Records the allocations of GPU `ordinal` from now on, for snapshots; with `trace`, also
    /// writes them there, for `megabatch memory replay`.
    ///
    /// # Errors
    /// As [`TorchPool::allocate`]; [`Error::Trace`].
    pub fn record(&self, ordinal: u32, trace: Option<&Path>) -> Result<()> {
        let create = |path: &Path| File::create(path).map_err(|source| trace_error(path, source));
        let file = trace.map(create).transpose()?;
        self.with_device(ordinal, |device| {
            device.record(RecordingSettings { events_max: EVENTS_MAX, clock: Arc::new(now_us) });
            if let Some(file) = file {
                device.record_trace(Box::new(BufWriter::new(file)));
            }
        })
    }

    /// Brings the trace of GPU `ordinal`, which was begun at `path`, to its end.
    ///
    /// # Errors
    /// As [`TorchPool::allocate`]; [`Error::Trace`].
    pub fn finish_trace(&self, ordinal: u32, path: &Path) -> Result<()> {
        self.with_device(ordinal, Device::finish_trace)?.map_err(|source| trace_error(path, source))
    }

    fn with_device<R>(&self, ordinal: u32, look: impl FnOnce(&Device) -> R) -> Result<R> {
        self.on_device(ordinal, |pool| Ok(look(pool.device())))
    }

    /// Works on the pool of a GPU, which is opened if it is not yet.
    fn on_device<R>(&self, ordinal: u32, work: impl FnOnce(&mut DevicePool) -> Result<R>) -> Result<R> {
        beside_others(|| {
            let pool = match self.opened(ordinal) {
                Some(pool) => pool,
                None => self.open(ordinal)?,
            };
            work(&mut locked(&pool))
        })
    }

    fn opened(&self, ordinal: u32) -> Option<Arc<Mutex<DevicePool>>> {
        locked(&self.devices).get(&ordinal).map(Arc::clone)
    }

    fn open(&self, ordinal: u32) -> Result<Arc<Mutex<DevicePool>>> {
        let mut devices = locked(&self.devices);
        if let Some(pool) = devices.get(&ordinal) {
            return Ok(Arc::clone(pool));
        }
        let pool = Arc::new(Mutex::new(DevicePool::open(ordinal, &self.settings, UNSCOPED)?));
        devices.insert(ordinal, Arc::clone(&pool));
        Ok(pool)
    }

    fn all(&self) -> Vec<Arc<Mutex<DevicePool>>> {
        locked(&self.devices).values().map(Arc::clone).collect()
    }
}

/// Memory of one GPU that PyTorch has.
#[derive(Clone, Debug)]
pub struct TorchMemory {
    /// Counters of the pool, with their peaks.
    pub stats: Stats,
    /// Its current counters.
    pub counts: MemoryCounts,
    /// Memory of each owner, by label.
    pub owners: Vec<(String, Usage)>,
}

fn trace_error(path: &Path, source: io::Error) -> Error {
    Error::Trace { path: path.display().to_string(), source }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_micros() as u64)
}

/// The state behind a lock. A thread that panicked left it whole: each call changes its maps in one
/// step.
fn locked<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
