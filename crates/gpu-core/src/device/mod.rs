mod ledger;
mod scope;
mod usage;

use std::fmt;
use std::io::{self, Write};
#[cfg(any(test, feature = "conformance"))]
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cuda::Gpu;
use crate::error::{Error, Result};
use crate::pool::{BlockId, MemoryCounts, Pool, PoolSettings, Stats};
use crate::recording::{Recording, RecordingSettings};
use crate::snapshot::{FailedRequest, Reason, Snapshot};
use crate::source::{Simulated, Source};
use crate::{free_memory, host};
use ledger::MemoryLedger;

pub use scope::Scope;
pub use usage::Usage;

/// Device of memory and operations.
///
/// A handle: clones share one pool of memory and one ledger, and two calls of [`Device::cpu`] make
/// two of each, so that tests and independent runs in one process count separately.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Device {
    /// The CPU and its memory.
    Cpu(Cpu),
    /// An NVIDIA GPU. There are none in a build without the feature `cuda`.
    Cuda(Cuda),
    /// A GPU of which a plan books the memory, and takes none.
    Planning(Planning),
}

/// The CPU device's memory. Made by [`Device::cpu`].
#[derive(Clone, Debug)]
pub struct Cpu {
    memory: Arc<DeviceMemory>,
}

/// A GPU and its memory. Made by [`Device::cuda`].
#[derive(Clone, Debug)]
pub struct Cuda {
    memory: Arc<DeviceMemory>,
    gpu: Gpu,
}

/// The books of a plan. Made by [`Device::planning`].
#[derive(Clone, Debug)]
pub struct Planning {
    memory: Arc<DeviceMemory>,
}

impl Cuda {
    /// The GPU, to submit work to.
    #[cfg(feature = "cuda")]
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(crate) fn shared_gpu(&self) -> Gpu {
        self.gpu.clone()
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }
}

/// The memory of one device: accounting, pool and recording.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    pub(crate) ledger: MemoryLedger,
    pool: Mutex<Pool>,
    /// Locked after the pool, where both are.
    recording: Mutex<Option<Recording>>,
    allocates_apart: AtomicBool,
}

impl Device {
    /// A CPU device with a pool and a ledger of its own and no budget.
    pub fn cpu() -> Self {
        Device::Cpu(Cpu { memory: DeviceMemory::over(host::source()) })
    }

    /// The GPU `ordinal`, counted from 0, with a pool and a ledger of its own and no budget.
    ///
    /// # Errors
    /// [`Error::CudaNotBuilt`] in a build without the feature `cuda`; [`Error::DriverAbsent`],
    /// [`Error::DriverTooOld`], [`Error::NoSuchDevice`], [`Error::DeviceUnfit`] or
    /// [`Error::Driver`] where there is no such device to be had.
    pub fn cuda(ordinal: u32) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        Ok(Device::Cuda(Cuda { memory: DeviceMemory::over(gpu.source()?), gpu }))
    }

    /// A device for plans: buffers are booked as on a GPU, and nothing is behind them. What is
    /// written to them is ignored; reading them is a panic.
    pub fn planning() -> Self {
        Device::Planning(Planning { memory: DeviceMemory::over(Box::new(Simulated::new(0, host::GRANULE_BYTES))) })
    }

    /// The device that a user named: `cpu`, `cuda:N`, or `auto` for the first GPU where there is
    /// one that can be used, and the CPU otherwise.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] for any other name; for `cuda:N`, as [`Device::cuda`]; for `auto`,
    /// [`Error::Driver`] where there is a GPU and it fails.
    pub fn select(name: &str) -> Result<Self> {
        match name {
            "cpu" => Ok(Device::cpu()),
            "auto" => match Device::cuda(0) {
                Err(error @ Error::Driver { .. }) => Err(error),
                Err(_) => Ok(Device::cpu()),
                gpu => gpu,
            },
            _ => match name.strip_prefix("cuda:").map(str::parse::<u32>) {
                Some(Ok(ordinal)) => Device::cuda(ordinal),
                _ => Err(Error::UnknownDevice { name: name.to_owned() }),
            },
        }
    }

    /// The GPU behind a CUDA device, to submit work to; `None` for the CPU and for a plan.
    #[cfg(feature = "cuda")]
    pub fn gpu(&self) -> Option<&Gpu> {
        match self {
            Device::Cpu(_) | Device::Planning(_) => None,
            Device::Cuda(cuda) => Some(&cuda.gpu),
        }
    }

    /// Asserts that buffers of the two devices can be used in one operation: both on the CPU, or on
    /// the same GPU, or both in plans.
    ///
    /// # Panics
    /// If they cannot.
    pub fn assert_beside(&self, other: &Device) {
        let together = match (self, other) {
            (Device::Cpu(_), Device::Cpu(_)) | (Device::Planning(_), Device::Planning(_)) => true,
            (Device::Cuda(one), Device::Cuda(other)) => one.gpu.to_string() == other.gpu.to_string(),
            _ => false,
        };
        assert!(together, "one operation works on buffers of one device, not of {self} and {other}");
    }

    /// Bytes that the device could hand out now: the smaller of the free bytes of the system and
    /// the rest of the budget; `None` if both are unknown. Memory that the pool keeps for reuse is
    /// not counted.
    pub fn free_bytes(&self) -> Option<usize> {
        let (budget_bytes, left) = self.memory().ledger.budget();
        let system = match self {
            Device::Cpu(_) => free_memory::free_bytes(),
            Device::Planning(_) => None,
            Device::Cuda(cuda) => cuda.gpu.free_bytes().map(|free| {
                let MemoryCounts { capacity_bytes, reserved_bytes, .. } = self.counts();
                free.min(capacity_bytes - reserved_bytes)
            }),
        };
        match (system, budget_bytes) {
            (Some(free), _) => Some(free.min(left)),
            (None, usize::MAX) => None,
            (None, _) => Some(left),
        }
    }

    /// The scope called `label`: every buffer belongs to one, and [`Device::usage_by_scope`] tells
    /// them apart. Asking twice for a label gives the same scope.
    pub fn scope(&self, label: &str) -> Scope {
        Scope::new(self, label)
    }

    /// Memory use of the whole device.
    pub fn usage(&self) -> Usage {
        self.memory().ledger.usage()
    }

    /// Memory use of each scope that was ever asked for, in the order of their labels.
    pub fn usage_by_scope(&self) -> Vec<(String, Usage)> {
        self.memory().ledger.usage_by_scope()
    }

    /// Resets the peaks of the device, of its pool and of all its scopes to the current values.
    /// The peaks of a recording go on.
    pub fn reset_peak(&self) {
        self.memory().ledger.reset_peak();
        let mut pool = self.memory().pool();
        if let Some(recording) = self.memory().recording().as_mut() {
            recording.before_reset(&pool);
        }
        pool.reset_peak();
    }

    /// Limits the total memory that the device allocates; `None` removes the limit. Live
    /// allocations stay.
    pub fn set_budget_bytes(&self, budget_bytes: Option<usize>) {
        self.memory().ledger.set_budget_bytes(budget_bytes);
    }

    /// Leaves `bytes` of the memory of a GPU that is free now to the driver, which loads kernels
    /// and cuBLASLt there later: the pool never takes them. Nothing is left of the CPU's memory.
    pub fn leave_to_driver(&self, bytes: usize) {
        if let Device::Cuda(cuda) = self {
            cuda.memory.pool().leave(bytes);
        }
    }

    /// Bounds the physical memory that the device's pool may hold. What it holds already stays.
    pub fn limit_reserved(&self, bytes: usize) {
        self.memory().pool().limit(bytes);
    }

    /// From now on, the device's pool maps no granule twice.
    pub fn forbid_stitching(&self) {
        self.memory().pool().forbid_stitching();
    }

    /// Memory of the device in bytes, whoever holds it.
    pub fn capacity_bytes(&self) -> usize {
        self.memory().pool().source().capacity_bytes()
    }

    /// Kernels of a GPU from files: `folder/NAME.ptx` takes the place of the PTX that was compiled
    /// into the program from `NAME.cu`. Modules that are loaded already stay. The CPU has no
    /// kernels.
    pub fn set_kernel_folder(&self, folder: Option<PathBuf>) {
        match self {
            Device::Cpu(_) | Device::Planning(_) => {}
            Device::Cuda(cuda) => cuda.gpu.set_kernel_folder(folder),
        }
    }

    /// From now on, each buffer of a GPU is an allocation of the driver, outside the pool, so that
    /// a memory checker sees an overrun from one into the next. Slow: every drop of a buffer waits
    /// for the GPU.
    pub fn allocate_apart(&self) {
        if let Device::Cuda(cuda) = self {
            cuda.memory.allocates_apart.store(true, Ordering::Relaxed);
        }
    }

    /// Fault injection, for tests of what becomes of work that runs short of memory: the requests
    /// of these numbers, counted from 0 and from now, fail as if the budget were used up, and those
    /// before and after them do not. An empty range ends it.
    #[cfg(any(test, feature = "conformance"))]
    pub fn refuse_requests(&self, numbers: Range<u64>) {
        self.memory().ledger.refuse(numbers);
    }

    /// Counters of the device's pool, with their peaks.
    pub fn stats(&self) -> Stats {
        self.memory().pool().stats()
    }

    /// Current counters of the device's pool.
    pub fn counts(&self) -> MemoryCounts {
        self.memory().pool().counts()
    }

    /// Marks a step boundary for the device's pool: [`Pool::step`].
    pub fn step(&self) {
        self.memory().pool().step();
    }

    /// Returns the pool's unused memory to the system, like `torch.cuda.empty_cache`; returns its
    /// bytes.
    pub fn empty_cache(&self) -> usize {
        self.memory().pool().empty_cache()
    }

    /// Looks into the device's pool, or asks it for blocks beside those of buffers. Every other use
    /// of the device's memory waits meanwhile, and `look` must not make any itself.
    #[cfg(any(test, feature = "conformance"))]
    pub fn with_pool<R>(&self, look: impl FnOnce(&mut Pool) -> R) -> R {
        look(&mut self.memory().pool())
    }

    /// Records the device's pool from now on: the last events, memory over time, and snapshots of
    /// the peak and of failed requests. An earlier recording ends.
    pub fn record(&self, settings: RecordingSettings) {
        let mut pool = self.memory().pool();
        let recording = Recording::begin(&mut pool, settings);
        *self.memory().recording() = Some(recording);
    }

    /// The pool now, at `time_us` microseconds since 1970 UTC, with the events of the recording, if
    /// there is one.
    pub fn snapshot(&self, time_us: u64) -> Snapshot {
        let pool = self.memory().pool();
        let recording = self.memory().recording();
        let recorded = recording.as_ref().map(|recording| recording.now(&pool));
        recorded.unwrap_or_else(|| Snapshot::take(&pool, Reason::Asked, time_us, None))
    }

    /// The pool when most was allocated, to a hundredth, since the recording began; `None` without
    /// one.
    pub fn peak_snapshot(&self) -> Option<Snapshot> {
        let pool = self.memory().pool();
        self.memory().recording().as_mut().map(|recording| recording.peak(&pool))
    }

    /// The pool when a request last failed, for want of memory or over the budget; once, and `None`
    /// where none failed or nothing is recorded.
    pub fn take_failure_snapshot(&self) -> Option<Snapshot> {
        self.memory().recording().as_mut().and_then(Recording::take_failure)
    }

    /// Also writes every allocation, free and step from now on to `out`, for `megabatch memory
    /// replay`. Nothing happens where nothing is recorded.
    pub fn record_trace(&self, out: Box<dyn Write + Send>) {
        let pool = self.memory().pool();
        if let Some(recording) = self.memory().recording().as_mut() {
            recording.write_trace(&pool, out);
        }
    }

    /// Brings the recording's trace to its end, where one is written.
    ///
    /// # Errors
    /// The first failure to write it.
    pub fn finish_trace(&self) -> io::Result<()> {
        self.memory().recording().as_mut().map_or(Ok(()), Recording::finish_trace)
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        match self {
            Device::Cpu(cpu) => &cpu.memory,
            Device::Cuda(cuda) => &cuda.memory,
            Device::Planning(planning) => &planning.memory,
        }
    }
}

impl DeviceMemory {
    fn over(source: Box<dyn Source>) -> Arc<Self> {
        let pool = Pool::new(source, PoolSettings { capacity_bytes: None });
        Arc::new(DeviceMemory {
            ledger: MemoryLedger::default(),
            pool: Mutex::new(pool),
            recording: Mutex::new(None),
            allocates_apart: AtomicBool::new(false),
        })
    }

    /// True if each buffer is an allocation of the driver's.
    pub(crate) fn allocates_apart(&self) -> bool {
        self.allocates_apart.load(Ordering::Relaxed)
    }

    /// The pool, for one thread at a time.
    ///
    /// # Panics
    /// If a thread panicked while it held the pool, because then its invariants may be broken.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().expect("a thread panicked within the pool")
    }

    /// Frees a block of the pool. After a panic within the pool its blocks stay where they are: a
    /// second panic would hide the first.
    pub(crate) fn free(&self, block: BlockId) {
        if let Some(mut pool) = self.pool_unless_broken() {
            self.note_free(&pool);
            pool.free(block);
        }
    }

    /// The pool, unless a thread panicked while it held it.
    fn pool_unless_broken(&self) -> Option<MutexGuard<'_, Pool>> {
        self.pool.lock().map_err(PoisonError::into_inner).ok()
    }

    /// To be called before a block of `pool`, this memory's, is freed.
    fn note_free(&self, pool: &Pool) {
        if let Some(recording) = self.recording().as_mut() {
            recording.before_free(pool);
        }
    }

    /// To be called when a request failed, by a thread that does not hold the pool.
    pub(crate) fn note_failure(&self, shortage: FailedRequest) {
        let Some(pool) = self.pool_unless_broken() else { return };
        if let Some(recording) = self.recording().as_mut() {
            recording.failed(&pool, shortage);
        }
    }

    fn recording(&self) -> MutexGuard<'_, Option<Recording>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu(_) => f.write_str("cpu"),
            Device::Cuda(cuda) => cuda.gpu.fmt(f),
            Device::Planning(_) => f.write_str("plan"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    #[test]
    fn select_knows_its_names() {
        assert_eq!(Device::select("cpu").unwrap().to_string(), "cpu");
        #[cfg(not(feature = "cuda"))]
        {
            assert_eq!(Device::select("auto").unwrap().to_string(), "cpu");
            assert!(matches!(Device::select("cuda:0"), Err(Error::CudaNotBuilt { .. })));
        }
        for name in ["", "cuda", "cuda:", "cuda:x", "cuda:-1", "gpu", "CPU"] {
            assert!(matches!(Device::select(name), Err(Error::UnknownDevice { .. })), "{name:?}");
        }
    }

    #[test]
    fn a_budget_bounds_what_is_free() {
        let device = Device::cpu();
        device.set_budget_bytes(Some(1000));
        device.scope("a").book(400).unwrap();
        assert_eq!(device.free_bytes(), Some(600));
    }

    #[test]
    fn requests_are_refused_by_their_number() {
        let device = Device::cpu();
        let scope = device.scope("a");
        let granted = |requests: usize| (0..requests).map(|_| scope.book(1).is_ok()).collect::<Vec<_>>();
        assert_eq!(granted(1), [true]);
        device.refuse_requests(1..3);
        assert_eq!(granted(4), [true, false, false, true]);
        assert_eq!(device.usage().allocated_bytes, 3);
        device.refuse_requests(0..1);
        assert!(matches!(
            scope.book(7),
            Err(Error::OverBudget { requested_bytes: 7, allocated_bytes: 3, budget_bytes: 3, .. })
        ));
        device.refuse_requests(0..9);
        device.refuse_requests(0..0);
        assert_eq!(granted(2), [true, true]);
    }

    #[test]
    fn a_request_over_the_budget_leaves_a_snapshot_with_its_owner() {
        let device = Device::cpu();
        let settings = RecordingSettings { events_max: 10, clock: Arc::new(|| 7) };
        let _early = Buffer::<u8>::zeros(&device.scope("early"), 1000).unwrap();
        device.record(settings);
        let kept = Buffer::<u8>::zeros(&device.scope("kept"), 5000).unwrap();
        device.set_budget_bytes(Some(10_000));
        assert!(device.take_failure_snapshot().is_none());
        let error = Buffer::<u8>::zeros(&device.scope("greedy"), 9_000).unwrap_err();
        let failure = device.take_failure_snapshot().unwrap();
        let shortage = FailedRequest { requested_bytes: 9_000, owner: "greedy".into(), message: error.to_string() };
        assert_eq!((failure.shortage, failure.time_us), (Some(shortage), 7));
        drop(kept);
        device.reset_peak();
        let peak = device.peak_snapshot().unwrap();
        // The peak of memory in a report is that of the ledger.
        assert_eq!((peak.totals.requested_bytes_peak, device.usage().allocated_bytes_peak), (6_000, 1_000));
        let mut owners: Vec<_> = peak.blocks().filter_map(|block| block.owner.as_deref()).collect();
        owners.sort_unstable();
        assert_eq!(owners, ["early", "kept"]);
        assert!(device.finish_trace().is_ok());
    }

    #[test]
    fn clones_share_a_ledger_and_devices_do_not() {
        let device = Device::cpu();
        device.scope("a").book(10).unwrap();
        assert_eq!(device.clone().usage().allocated_bytes, 10);
        assert_eq!(device.scope("a").usage().allocated_bytes, 10);
        assert_eq!(Device::cpu().usage().allocated_bytes, 0);
    }

    #[test]
    fn scopes_are_listed_in_order_of_their_labels() {
        let device = Device::cpu();
        device.scope("b").child("c").book(2).unwrap();
        device.scope("a").book(1).unwrap();
        let labels: Vec<_> =
            device.usage_by_scope().into_iter().map(|(label, usage)| (label, usage.allocated_bytes)).collect();
        assert_eq!(labels, [("a".to_owned(), 1), ("b".to_owned(), 0), ("b/c".to_owned(), 2)]);
    }
}
