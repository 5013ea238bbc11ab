use std::sync::Arc;

use super::Device;
use super::ledger::OverBudget;
use super::usage::{Counter, Usage};
use crate::cuda::{Gpu, LockedBlock};
use crate::error::{Error, Result};
use crate::pool::{AllocationError, AllocationRequest};
use crate::snapshot;
use crate::source::StreamId;

/// A name under which memory is allocated, such as `model/gradients`. Levels are separated by `/`.
#[derive(Clone, Debug)]
pub struct Scope {
    device: Device,
    label: Arc<str>,
    counter: Arc<Counter>,
    /// The GPU for whose copies buffers are page-locked, if they are.
    locked_for: Option<Gpu>,
}

impl Scope {
    pub(crate) fn new(device: &Device, label: &str) -> Self {
        let counter = device.memory().ledger.counter(label);
        Scope { device: device.clone(), label: label.into(), counter, locked_for: None }
    }

    /// The same scope of the CPU, whose buffers are page-locked where the system allows it: `gpu`
    /// copies from them without a detour ([`DoubleBufferedUpload`](crate::DoubleBufferedUpload)).
    /// The memory is the driver's, and not of the CPU's pool. Without effect for `gpu` that is the
    /// CPU or a plan's.
    ///
    /// # Panics
    /// If this is a scope of a GPU or of a plan.
    #[must_use]
    pub fn page_locked(&self, gpu: &Device) -> Scope {
        assert!(matches!(self.device, Device::Cpu(_)), "{}: pages of the host's memory are locked", self.label);
        let locked_for = match gpu {
            Device::Cpu(_) | Device::Planning(_) => None,
            Device::Cuda(cuda) => Some(cuda.shared_gpu()),
        };
        Scope { locked_for, ..self.clone() }
    }

    /// A locked block of `bytes`, where this scope's buffers are page-locked and the system locks
    /// as much.
    pub(crate) fn locked_block(&self, bytes: usize) -> Option<LockedBlock> {
        let gpu = self.locked_for.as_ref().filter(|_| bytes > 0)?;
        LockedBlock::zeroed(gpu, bytes).ok()
    }

    /// The scope `label` below this one.
    pub fn child(&self, label: &str) -> Scope {
        self.device.scope(&format!("{}/{label}", self.label))
    }

    /// The device that the scope's memory comes from.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The full label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Memory use of this scope, without those below it.
    pub fn usage(&self) -> Usage {
        self.counter.usage()
    }

    /// Books `bytes` on the device and on the scope.
    pub(crate) fn book(&self, bytes: usize) -> Result<()> {
        let booked = self.device.memory().ledger.book(&self.counter, bytes);
        booked.map_err(|OverBudget { allocated_bytes, budget_bytes }| {
            self.refused(Error::OverBudget {
                scope: self.label.to_string(),
                device: self.device.to_string(),
                requested_bytes: bytes,
                allocated_bytes,
                budget_bytes,
            })
        })
    }

    /// Reverts one [`Scope::book`].
    pub(crate) fn release(&self, bytes: usize) {
        self.device.memory().ledger.release(&self.counter, bytes);
    }

    /// The size of `len` elements.
    pub(crate) fn bytes_of<T>(&self, len: usize) -> Result<usize> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
        bytes.ok_or_else(|| Error::SizeOverflow { scope: self.label.to_string(), len, element_bytes: size_of::<T>() })
    }

    /// A request for memory of this scope, for use on the default stream.
    pub(crate) fn request(&self, bytes: usize) -> AllocationRequest {
        AllocationRequest { bytes, stream: StreamId::default(), owner: Arc::clone(&self.label) }
    }

    /// Error of a request for memory of this scope.
    pub(crate) fn shortage(&self, requested_bytes: usize, shortage: AllocationError) -> Error {
        let (scope, device) = (self.label.to_string(), self.device.to_string());
        self.refused(match shortage {
            AllocationError::NeverFits { largest_bytes } => {
                Error::NeverFits { scope, device, requested_bytes, largest_bytes }
            }
            AllocationError::NotNow(counts) => {
                Error::OutOfMemory { scope, device, requested_bytes, counts: Box::new(counts) }
            }
            AllocationError::Source(source) => Error::Refused { scope, device, requested_bytes, source },
        })
    }

    /// Takes a snapshot of the memory that `error` is about, if a recording is active.
    fn refused(&self, error: Error) -> Error {
        let (Error::OverBudget { requested_bytes, .. } | Error::OutOfMemory { requested_bytes, .. }) = error else {
            return error;
        };
        let (owner, message) = (Arc::clone(&self.label), error.to_string());
        self.device.memory().note_failure(snapshot::FailedRequest { requested_bytes, owner, message });
        error
    }
}
