//! Policy of captures: work that is submitted a second time is captured, and the last few captures
//! are kept.

#![allow(unsafe_code, reason = "the driver is called")]

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr;
use std::sync::Arc;

use super::busy_timer::BusyTimer;
use super::capture::{Capture, CaptureStream};
use super::context::Context;
use super::fault::DriverFault;
use super::gpu_command::GpuCommand;
use crate::error::Error;
use crate::source::StreamId;

/// Captures at most, each of which takes some memory of the GPU for the driver's own use.
const CAPTURES_MAX: usize = 16;

/// Number of works remembered that were submitted once.
const SEEN_MAX: usize = 64;

/// Shorter work is submitted thing by thing: to launch a graph takes the driver as long as a few
/// kernels.
const WORK_MIN: usize = 4;

/// Captures of work that came again. The key of a capture is all that it does, addresses included,
/// so a capture never does other work than asked.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// The GPU, from the first use on.
    context: Option<Arc<Context>>,
    recorder: Option<CaptureStream>,
    /// Captures, least recently used first.
    kept: Vec<KeptCapture>,
    /// Digests of work that was submitted without a capture, the oldest first.
    seen: VecDeque<u64>,
    /// Why the driver did not capture something. It is not asked again.
    refusal: Option<Error>,
    /// Captures made so far.
    made: u64,
    timer: Option<BusyTimer>,
}

#[derive(Debug)]
struct KeptCapture {
    digest: u64,
    work: Vec<GpuCommand>,
    capture: Capture,
}

impl Captures {
    /// Binds these captures to a GPU.
    ///
    /// # Panics
    /// If they are another's.
    pub(super) fn be_of(&mut self, context: &Arc<Context>) {
        let own = self.context.get_or_insert_with(|| Arc::clone(context));
        assert!(Arc::ptr_eq(own, context), "captures are of one GPU");
    }

    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    pub(super) fn time_work(&mut self, context: &Arc<Context>) -> Result<(), DriverFault> {
        self.timer = Some(BusyTimer::new(context)?);
        Ok(())
    }

    /// 0 where nothing is timed. The context is current.
    pub(super) fn take_busy_s(&mut self) -> Result<f64, DriverFault> {
        self.timer.as_mut().map_or(Ok(0.0), BusyTimer::take_s)
    }

    pub(crate) fn refusal(&self) -> Option<&Error> {
        self.refusal.as_ref()
    }

    /// Submits `work` to the default stream of the GPU whose context is current: captured where it
    /// came before, and thing by thing where it did not, or where the driver does not capture it.
    ///
    /// # Safety
    /// As [`GpuCommand::submit`].
    pub(super) unsafe fn submit(&mut self, work: Vec<GpuCommand>) -> Result<(), DriverFault> {
        let Some(mut timer) = self.timer.take() else {
            // SAFETY: as the caller promised.
            return unsafe { self.submit_untimed(work) };
        };
        // SAFETY: as the caller promised.
        let submitted = timer.time(|| unsafe { self.submit_untimed(work) });
        self.timer = Some(timer);
        submitted
    }

    /// # Safety
    /// As [`GpuCommand::submit`].
    unsafe fn submit_untimed(&mut self, work: Vec<GpuCommand>) -> Result<(), DriverFault> {
        let digest = digest(&work);
        // SAFETY: of all that follow, as the caller promised.
        unsafe {
            match self.kept.iter().position(|kept| kept.digest == digest && kept.work == work) {
                Some(position) => {
                    let kept = self.kept.remove(position);
                    return self.launch(kept);
                }
                None if self.is_to_be_captured(digest, work.len()) => match self.capture(&work) {
                    Ok(capture) => {
                        self.made += 1;
                        return self.launch(KeptCapture { digest, work, capture });
                    }
                    Err(fault) => self.refusal = self.context.as_ref().map(|context| context.error(fault)),
                },
                None => {}
            }
            work.iter().try_for_each(|work| work.submit(StreamId(0), ptr::null_mut()))
        }
    }

    /// # Safety
    /// As [`Capture::launch`].
    unsafe fn launch(&mut self, mut kept: KeptCapture) -> Result<(), DriverFault> {
        // SAFETY: as the caller promised.
        let launched = unsafe { kept.capture.launch() };
        self.kept.push(kept);
        launched
    }

    /// True if the work was seen before; it is noted as seen.
    fn is_to_be_captured(&mut self, digest: u64, len: usize) -> bool {
        if len < WORK_MIN || self.refusal.is_some() {
            return false;
        }
        if let Some(position) = self.seen.iter().position(|&seen| seen == digest) {
            self.seen.remove(position);
            return true;
        }
        if self.seen.len() == SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(digest);
        false
    }

    /// A capture of `work`: that of other work where there are enough, changed if the driver can do
    /// so.
    ///
    /// # Safety
    /// As [`Capture::new`].
    unsafe fn capture(&mut self, work: &[GpuCommand]) -> Result<Capture, DriverFault> {
        let recorder = match &mut self.recorder {
            Some(recorder) => recorder,
            none => none.insert(CaptureStream::new(self.context.as_ref().expect("work is of a GPU"))?),
        };
        let oldest = (self.kept.len() == CAPTURES_MAX).then(|| self.kept.remove(0));
        if let Some(mut oldest) = oldest.filter(|oldest| are_alike(&oldest.work, work)) {
            // SAFETY: as the caller promised.
            if unsafe { oldest.capture.update(recorder, work) }.is_ok() {
                return Ok(oldest.capture);
            }
        }
        // SAFETY: as the caller promised.
        unsafe { Capture::new(recorder, work) }
    }
}

fn are_alike(one: &[GpuCommand], other: &[GpuCommand]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_like(other))
}

fn digest(work: &[GpuCommand]) -> u64 {
    let mut hasher = DefaultHasher::new();
    work.hash(&mut hasher);
    hasher.finish()
}
