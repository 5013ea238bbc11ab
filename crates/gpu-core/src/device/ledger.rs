use std::collections::BTreeMap;
#[cfg(any(test, feature = "conformance"))]
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::usage::{Counter, Usage};

/// Bytes allocated on a device, in total and by scope, and their limit.
#[derive(Debug)]
pub(crate) struct MemoryLedger {
    total: Counter,
    budget_bytes: AtomicUsize,
    faults: Faults,
    scopes: Mutex<BTreeMap<Arc<str>, Arc<Counter>>>,
}

/// Requests that are refused on purpose, by their number.
#[derive(Debug, Default)]
struct Faults {
    /// The number of the next request; counted only while a refusal is set.
    next: AtomicU64,
    first: AtomicU64,
    end: AtomicU64,
}

impl Faults {
    /// Counts a request; true if it is to be refused.
    fn hit(&self) -> bool {
        let end = self.end.load(Relaxed);
        end > 0 && (self.first.load(Relaxed)..end).contains(&self.next.fetch_add(1, Relaxed))
    }
}

/// Failure of a booking.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OverBudget {
    pub(crate) allocated_bytes: usize,
    pub(crate) budget_bytes: usize,
}

impl Default for MemoryLedger {
    fn default() -> Self {
        MemoryLedger {
            total: Counter::default(),
            budget_bytes: AtomicUsize::new(usize::MAX),
            faults: Faults::default(),
            scopes: Mutex::default(),
        }
    }
}

impl MemoryLedger {
    /// The counter of a scope; the same one for the same label.
    pub(crate) fn counter(&self, label: &str) -> Arc<Counter> {
        Arc::clone(self.scopes().entry(label.into()).or_default())
    }

    /// Books bytes on the device and on a scope of it.
    pub(crate) fn book(&self, scope: &Counter, bytes: usize) -> Result<(), OverBudget> {
        if self.faults.hit() {
            let allocated_bytes = self.total.usage().allocated_bytes;
            return Err(OverBudget { allocated_bytes, budget_bytes: allocated_bytes });
        }
        let budget_bytes = self.budget_bytes.load(Relaxed);
        let over_budget = |allocated_bytes| OverBudget { allocated_bytes, budget_bytes };
        self.total.try_add(bytes, budget_bytes).map_err(over_budget)?;
        scope.try_add(bytes, usize::MAX).expect("a scope holds no more than its device");
        Ok(())
    }

    /// Reverts one [`MemoryLedger::book`].
    pub(crate) fn release(&self, scope: &Counter, bytes: usize) {
        scope.sub(bytes);
        self.total.sub(bytes);
    }

    pub(crate) fn usage(&self) -> Usage {
        self.total.usage()
    }

    pub(crate) fn usage_by_scope(&self) -> Vec<(String, Usage)> {
        self.scopes().iter().map(|(label, counter)| (label.to_string(), counter.usage())).collect()
    }

    pub(crate) fn reset_peak(&self) {
        self.total.reset_peak();
        self.scopes().values().for_each(|counter| counter.reset_peak());
    }

    pub(crate) fn set_budget_bytes(&self, budget_bytes: Option<usize>) {
        self.budget_bytes.store(budget_bytes.unwrap_or(usize::MAX), Relaxed);
    }

    /// Refuses the requests of these numbers, counted from now.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn refuse(&self, numbers: Range<u64>) {
        let Faults { next, first, end } = &self.faults;
        next.store(0, Relaxed);
        first.store(numbers.start, Relaxed);
        end.store(numbers.end, Relaxed);
    }

    /// The budget, `usize::MAX` without one, and what is left of it.
    pub(crate) fn budget(&self) -> (usize, usize) {
        let budget_bytes = self.budget_bytes.load(Relaxed);
        (budget_bytes, budget_bytes.saturating_sub(self.total.usage().allocated_bytes))
    }

    fn scopes(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Counter>>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
