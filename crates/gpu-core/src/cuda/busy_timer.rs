//! Time in which a GPU works on what is submitted to its default stream, by pairs of events.

use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;

use super::context::Context;
use super::event::Event;
use super::fault::DriverFault;
use crate::source::StreamId;

/// Pairs at most whose times were not read: several steps of training. Beyond them, the host waits
/// for the oldest.
const PAIRS: usize = 256;

/// Sum of the times between the begin and the end of each submission. Copies from the host come
/// between two submissions and do not count.
#[derive(Debug)]
pub(super) struct BusyTimer {
    /// Pairs in use, the oldest first.
    recorded: VecDeque<EventPair>,
    free: Vec<EventPair>,
    ms: f64,
}

#[derive(Debug)]
struct EventPair {
    begin: Event,
    end: Event,
}

impl BusyTimer {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, DriverFault> {
        let pair = |_| Ok(EventPair { begin: Event::new(context)?, end: Event::new(context)? });
        Ok(BusyTimer { recorded: VecDeque::new(), free: (0..PAIRS).map(pair).collect::<Result<_, _>>()?, ms: 0.0 })
    }

    /// Times the work that `submit` submits. The context is current.
    pub(super) fn time(&mut self, submit: impl FnOnce() -> Result<(), DriverFault>) -> Result<(), DriverFault> {
        if self.free.is_empty() {
            self.read_oldest()?;
        }
        let pair = self.free.pop().expect("a pair was read");
        pair.begin.record_in_current(ptr::null_mut(), StreamId(0))?;
        submit()?;
        pair.end.record_in_current(ptr::null_mut(), StreamId(0))?;
        self.recorded.push_back(pair);
        Ok(())
    }

    /// Seconds of the submissions that the GPU has done since the last call. Does not wait. The
    /// context is current.
    pub(super) fn take_s(&mut self) -> Result<f64, DriverFault> {
        while let Some(oldest) = self.recorded.front()
            && oldest.end.is_done_in_current()?
        {
            self.read_oldest()?;
        }
        Ok(std::mem::take(&mut self.ms) / 1e3)
    }

    fn read_oldest(&mut self) -> Result<(), DriverFault> {
        let pair = self.recorded.pop_front().expect("pairs are in use");
        pair.end.wait_in_current()?;
        self.ms += f64::from(pair.end.elapsed_ms_in_current(&pair.begin)?);
        self.free.push(pair);
        Ok(())
    }
}
