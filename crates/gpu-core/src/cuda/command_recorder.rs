//! Work for the default stream that is held back until something else is asked of the GPU, so that
//! what comes again is captured once and replayed.
//!
//! Deferral is not observable. [`Context::enter`], without which nothing is asked of the driver,
//! submits it first, on whichever thread: what looks at the stream or waits for it, what is
//! submitted to any other stream, what takes mappings away. Memory that was freed meanwhile is used
//! by its next owner after that, too.

#![allow(unsafe_code, reason = "the driver is called")]

use std::sync::{Arc, MutexGuard};

use super::captures::Captures;
use super::context::Context;
use super::fault::DriverFault;
use super::gpu_command::GpuCommand;

/// Commands held back from one GPU's default stream, whichever thread they come from.
#[derive(Debug, Default)]
pub(super) struct CommandRecorder {
    /// `Some` while work is deferred.
    captures: Option<Captures>,
    /// True while deferral is paused.
    is_paused: bool,
    waiting: Vec<GpuCommand>,
    /// The first failed submission.
    failed: Option<DriverFault>,
}

impl CommandRecorder {
    pub(super) fn take(&mut self, work: GpuCommand) -> Option<GpuCommand> {
        if self.captures.is_none() || self.is_paused {
            return Some(work);
        }
        self.waiting.push(work);
        None
    }

    /// Submits the deferred work. The context is current.
    pub(super) fn submit(&mut self) -> Result<(), DriverFault> {
        let Some(captures) = self.captures.as_mut().filter(|_| !self.waiting.is_empty()) else { return Ok(()) };
        // SAFETY: whoever gave the work promised that it may be submitted, and nothing was asked of
        // the driver since.
        let submitted = unsafe { captures.submit(std::mem::take(&mut self.waiting)) };
        if let Err(fault) = &submitted {
            self.failed.get_or_insert_with(|| fault.clone());
        }
        submitted
    }
}

/// A guard: work for the default stream is deferred while it lives.
pub(super) struct Deferral<'a> {
    context: &'a Arc<Context>,
    captures: &'a mut Captures,
}

impl<'a> Deferral<'a> {
    /// `None` where work is deferred already.
    ///
    /// # Panics
    /// If the captures are another GPU's.
    pub(super) fn begin(context: &'a Arc<Context>, captures: &'a mut Captures) -> Option<Self> {
        let mut deferred = context.deferred();
        if deferred.captures.is_some() {
            return None;
        }
        captures.be_of(context);
        deferred.captures = Some(std::mem::take(captures));
        drop(deferred);
        Some(Deferral { context, captures })
    }

    /// Submits the rest of the deferred work; an error if some of it was not submitted, now or
    /// before.
    pub(super) fn end(mut self) -> Result<(), DriverFault> {
        let current = self.context.enter_aside();
        // Other threads defer work as long as the captures are there: nothing comes between.
        let mut deferred = self.context.deferred();
        let last = current.and_then(|()| deferred.submit());
        let outcome = deferred.failed.take().map_or(last, Err);
        self.take_back(deferred);
        std::mem::forget(self);
        outcome
    }

    /// Takes the captures back. Work that still waits is given up.
    fn take_back(&mut self, mut deferred: MutexGuard<'_, CommandRecorder>) {
        (deferred.waiting, deferred.failed) = (Vec::new(), None);
        *self.captures = deferred.captures.take().expect("they are there while work is held back");
    }
}

impl Drop for Deferral<'_> {
    /// Gives up the work of a panic.
    fn drop(&mut self) {
        self.take_back(self.context.deferred());
    }
}

/// While it lives, work is not deferred, so that it can be measured. Earlier deferred work was
/// submitted.
pub(super) struct Pause<'a> {
    context: &'a Context,
}

impl<'a> Pause<'a> {
    /// To be called after a call to the driver, when no work is deferred.
    pub(super) fn begin(context: &'a Context) -> Self {
        context.deferred().is_paused = true;
        Pause { context }
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.context.deferred().is_paused = false;
    }
}
