use std::fmt;

use megabatch_gpu_core::pool::MemoryCounts;
use megabatch_gpu_core::{Device, Error};

/// Owners that a message names.
const OWNERS: usize = 4;

/// A request that failed for want of memory: what stood in its way, and what may help.
#[derive(Clone, Debug)]
pub struct Shortage {
    /// Bytes asked for.
    pub requested_bytes: usize,
    /// Device that was asked.
    pub device: String,
    /// Kind of the shortage.
    pub kind: ShortageKind,
    /// State of the pool.
    pub counts: MemoryCounts,
    /// Allocated bytes of each owner that has some, the largest first.
    pub owners: Vec<(String, usize)>,
    /// True if scattered free memory is mapped side by side.
    pub stitching: bool,
}

/// Kinds of shortages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortageKind {
    /// More than the pool may ever hold.
    NeverFits,
    /// There is no room now.
    NotNow,
    /// More than the user's budget.
    OverBudget {
        /// The budget.
        budget_bytes: usize,
    },
}

impl Shortage {
    /// The shortage that `error` is, of a request for `requested_bytes` on `device`; another error
    /// comes back.
    pub(crate) fn new(error: Error, requested_bytes: usize, device: &Device, stitching: bool) -> Result<Self, Error> {
        let (kind, counts) = match error {
            Error::NeverFits { .. } => (ShortageKind::NeverFits, device.counts()),
            Error::OutOfMemory { counts, .. } => (ShortageKind::NotNow, *counts),
            Error::OverBudget { budget_bytes, .. } => (ShortageKind::OverBudget { budget_bytes }, device.counts()),
            other => return Err(other),
        };
        let owners = device.usage_by_scope().into_iter().map(|(owner, usage)| (owner, usage.allocated_bytes));
        let mut owners: Vec<_> = owners.filter(|(_, bytes)| *bytes > 0).collect();
        owners.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Ok(Shortage { requested_bytes, device: device.to_string(), kind, counts, owners, stitching })
    }
}

impl std::error::Error for Shortage {}

impl fmt::Display for Shortage {
    /// Begins as PyTorch's own message does, by which programs know it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { device, counts, .. } = self;
        let MemoryCounts { capacity_bytes, allocated_bytes, reserved_bytes, free_bytes, .. } = *counts;
        write!(f, "CUDA out of memory. Tried to allocate {} on {device}, which ", Size(self.requested_bytes))?;
        match self.kind {
            ShortageKind::NeverFits => write!(f, "never fits")?,
            ShortageKind::NotNow => write!(f, "does not fit now")?,
            ShortageKind::OverBudget { budget_bytes } => {
                write!(f, "would pass the budget of {}", Size(budget_bytes))?;
            }
        }
        write!(
            f,
            ": {} are allocated, {} free in megabatch's pool, which holds {} of the {} that it may",
            Size(allocated_bytes),
            Size(free_bytes),
            Size(reserved_bytes),
            Size(capacity_bytes)
        )?;
        if let Some(others) = counts.held_by_others_bytes {
            write!(f, "; others hold {}", Size(others))?;
        }
        let may_be_free = capacity_bytes.saturating_sub(allocated_bytes);
        if self.kind == ShortageKind::NotNow && !self.stitching && may_be_free >= self.requested_bytes {
            write!(f, ". There is no room at consecutive addresses, and stitching is off")?;
        }
        if !self.owners.is_empty() {
            let largest = self.owners.iter().take(OWNERS).map(|(owner, bytes)| format!("{owner} {}", Size(*bytes)));
            write!(f, ". Owners: {}", largest.collect::<Vec<_>>().join(", "))?;
        }
        let help = match self.kind {
            ShortageKind::NeverFits => "Use a smaller batch or model",
            ShortageKind::NotNow => {
                "Use a smaller batch, drop tensors that are not needed, or end other processes on this GPU"
            }
            ShortageKind::OverBudget { .. } => "Raise the budget of use_pool(), or use a smaller batch",
        };
        write!(f, ". {help}")
    }
}

/// Bytes as PyTorch's messages have them.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match UNITS.into_iter().find(|(_, log)| self.0 >= 1 << log) {
            Some((unit, log)) => write!(f, "{:.2} {unit}", self.0 as f64 / (1u64 << log) as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}
