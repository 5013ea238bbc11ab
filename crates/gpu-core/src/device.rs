#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::free_memory;
use crate::usage::{Counter, Usage};

/// Where memory lives and operations run.
///
/// A handle: clones share one ledger of memory, and two calls of [`Device::cpu`] make two ledgers, so that tests and
/// independent runs in one process count separately.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Device {
    /// The processor and its memory.
    Cpu(Cpu),
}

/// The CPU device's ledger. Made by [`Device::cpu`].
#[derive(Clone, Debug)]
pub struct Cpu {
    ledger: Arc<Ledger>,
}

impl Device {
    /// A CPU device with a ledger of its own and no budget.
    pub fn cpu() -> Self {
        Device::Cpu(Cpu { ledger: Arc::new(Ledger::new()) })
    }

    /// The device that a user named: `cpu`, `cuda:N`, or `auto` for the best one present.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] for any other name; [`Error::CudaNotBuilt`] for `cuda:N`, which this build cannot drive.
    pub fn select(name: &str) -> Result<Self> {
        match name {
            "cpu" | "auto" => Ok(Device::cpu()),
            _ => match name.strip_prefix("cuda:").map(str::parse::<u32>) {
                Some(Ok(_)) => Err(Error::CudaNotBuilt { name: name.to_owned() }),
                _ => Err(Error::UnknownDevice { name: name.to_owned() }),
            },
        }
    }

    /// Bytes that the device could hand out now, by what the system says and what the budget leaves; `None` where neither tells.
    pub fn free_bytes(&self) -> Option<usize> {
        let ledger = self.ledger();
        let budget_bytes = ledger.budget_bytes.load(Relaxed);
        let left = budget_bytes.saturating_sub(ledger.total.usage().allocated_bytes);
        let system = match self {
            Device::Cpu(_) => free_memory::free_bytes(),
        };
        match (system, budget_bytes) {
            (Some(free), _) => Some(free.min(left)),
            (None, usize::MAX) => None,
            (None, _) => Some(left),
        }
    }

    /// The scope called `label`: every buffer belongs to one, and [`Device::usage_by_scope`] tells them apart.
    /// Asking twice for a label gives the same scope.
    pub fn scope(&self, label: &str) -> Scope {
        Scope { device: self.clone(), label: label.into(), counter: self.ledger().counter(label) }
    }

    /// Memory use of the whole device.
    pub fn usage(&self) -> Usage {
        self.ledger().total.usage()
    }

    /// Memory use of each scope that was ever asked for, in the order of their labels.
    pub fn usage_by_scope(&self) -> Vec<(String, Usage)> {
        let scopes = self.ledger().scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.iter().map(|(label, counter)| (label.to_string(), counter.usage())).collect()
    }

    /// Starts the peaks of the device and of all its scopes anew from what is allocated now.
    pub fn reset_peak(&self) {
        self.ledger().total.reset_peak();
        let scopes = self.ledger().scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.values().for_each(|counter| counter.reset_peak());
    }

    /// Limits what the device hands out in total; `None` takes the limit away. What is allocated already stays.
    pub fn set_budget_bytes(&self, budget_bytes: Option<usize>) {
        self.ledger().budget_bytes.store(budget_bytes.unwrap_or(usize::MAX), Relaxed);
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        match self {
            Device::Cpu(cpu) => &cpu.ledger,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu(_) => f.write_str("cpu"),
        }
    }
}

/// A name under which memory is allocated, such as `model/gradients`. Levels are separated by `/`.
#[derive(Clone, Debug)]
pub struct Scope {
    device: Device,
    label: Arc<str>,
    counter: Arc<Counter>,
}

impl Scope {
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
        let ledger = self.device.ledger();
        let budget_bytes = ledger.budget_bytes.load(Relaxed);
        ledger.total.try_add(bytes, budget_bytes).map_err(|allocated_bytes| Error::OverBudget {
            scope: self.label.to_string(),
            device: self.device.to_string(),
            requested_bytes: bytes,
            allocated_bytes,
            budget_bytes,
        })?;
        self.counter.try_add(bytes, usize::MAX).expect("a scope holds no more than its device");
        Ok(())
    }

    /// Takes back what [`Scope::book`] booked.
    pub(crate) fn release(&self, bytes: usize) {
        self.counter.sub(bytes);
        self.device.ledger().total.sub(bytes);
    }
}

#[derive(Debug)]
pub(crate) struct Ledger {
    total: Counter,
    budget_bytes: AtomicUsize,
    scopes: Mutex<BTreeMap<Arc<str>, Arc<Counter>>>,
}

impl Ledger {
    fn new() -> Self {
        Ledger { total: Counter::default(), budget_bytes: AtomicUsize::new(usize::MAX), scopes: Mutex::default() }
    }

    fn counter(&self, label: &str) -> Arc<Counter> {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(scopes.entry(label.into()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_knows_its_names() {
        for name in ["cpu", "auto"] {
            assert_eq!(Device::select(name).unwrap().to_string(), "cpu");
        }
        assert!(matches!(Device::select("cuda:0"), Err(Error::CudaNotBuilt { .. })));
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
