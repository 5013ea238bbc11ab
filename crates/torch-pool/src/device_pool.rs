use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use megabatch_gpu_core::cuda::{Event, Gpu};
use megabatch_gpu_core::leak::{Leak, LeakDetector, LeakRule};
use megabatch_gpu_core::source::StreamId;
use megabatch_gpu_core::{Device, Error as DeviceError, Scope, StreamBlock};

use crate::{Error, PoolSettings, Result, Shortage};

/// The blocks that PyTorch has of one GPU.
#[derive(Debug)]
pub(crate) struct DevicePool {
    device: Device,
    /// The owner of blocks that are allocated now, by the label that PyTorch's side gave last.
    owner: (Arc<str>, Scope),
    live: HashMap<u64, LiveBlock>,
    /// Freed blocks that other streams may still be working on, the oldest first.
    pending: VecDeque<PendingFree>,
    leaks: LeakDetector,
    stitching: bool,
}

#[derive(Debug)]
struct LiveBlock {
    block: StreamBlock,
    stream: StreamId,
    /// Other streams that use it, as `record_stream` said.
    used_on: Vec<StreamId>,
}

#[derive(Debug)]
struct PendingFree {
    /// Given back when this is dropped.
    _block: StreamBlock,
    /// Events of the other streams that used it.
    events: Vec<Event>,
}

impl DevicePool {
    /// The GPU `ordinal`, of whose free memory `settings` leaves a part to others.
    pub(crate) fn open(ordinal: u32, settings: &PoolSettings, label: &str) -> Result<Self> {
        let device = Device::cuda(ordinal)?;
        device.leave_to_driver(settings.leave_bytes);
        device.set_budget_bytes(settings.budget_bytes);
        let stitching = settings.stitching;
        if !stitching {
            device.forbid_stitching();
        }
        let owner = (label.into(), device.scope(label));
        let leaks = LeakDetector::new(LeakRule::default());
        Ok(DevicePool { device, owner, live: HashMap::new(), pending: VecDeque::new(), leaks, stitching })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        self.device.gpu().expect("it was opened as a GPU")
    }

    /// Address of a block of `bytes` for work on `stream`, owned by `label`.
    ///
    /// A request for which memory is short waits for freed blocks that other streams work on.
    pub(crate) fn allocate(&mut self, bytes: usize, stream: StreamId, label: &Arc<str>) -> Result<u64> {
        if !Arc::ptr_eq(&self.owner.0, label) {
            self.owner = (Arc::clone(label), self.device.scope(label));
        }
        self.free_what_is_done()?;
        let block = match StreamBlock::new(&self.owner.1, bytes, stream) {
            Err(DeviceError::OutOfMemory { .. } | DeviceError::OverBudget { .. }) if !self.pending.is_empty() => {
                self.wait_for_pending()?;
                StreamBlock::new(&self.owner.1, bytes, stream)
            }
            allocated => allocated,
        };
        let block = match block {
            Ok(block) => block,
            Err(error) => {
                let shortage = Shortage::new(error, bytes, &self.device, self.stitching)?;
                return Err(Error::Shortage(Box::new(shortage)));
            }
        };
        let address = block.address();
        self.live.insert(address, LiveBlock { block, stream, used_on: Vec::new() });
        Ok(address)
    }

    /// Frees the block at `address`, once the streams that used it are done with it. An address
    /// that no block has is ignored.
    pub(crate) fn free(&mut self, address: u64) -> Result<()> {
        let Some(LiveBlock { block, used_on, .. }) = self.live.remove(&address) else { return Ok(()) };
        if !used_on.is_empty() {
            let events = used_on.into_iter().map(|stream| self.gpu().event_after(stream)).collect();
            match events {
                Ok(events) => self.pending.push_back(PendingFree { _block: block, events }),
                // Nobody knows when the other streams are done: the block is never used again.
                Err(error) => {
                    std::mem::forget(block);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Notes that work of `stream` uses the block at `address`; false if there is none.
    pub(crate) fn record_stream(&mut self, address: u64, stream: StreamId) -> bool {
        let Some(live) = self.live.get_mut(&address) else { return false };
        if live.stream != stream && !live.used_on.contains(&stream) {
            live.used_on.push(stream);
        }
        true
    }

    /// Gives unused memory back to the driver.
    pub(crate) fn empty_cache(&mut self) -> Result<()> {
        self.wait_for_pending()?;
        self.device.empty_cache();
        Ok(())
    }

    /// Growth by owner, if there is some that looks like a leak, at the end of an epoch.
    pub(crate) fn epoch(&mut self) -> Option<Leak> {
        let live = self.device.usage_by_scope();
        self.leaks.epoch(live.into_iter().map(|(owner, usage)| (owner, usage.allocated_bytes)))
    }

    fn free_what_is_done(&mut self) -> Result<()> {
        while let Some(oldest) = self.pending.front() {
            for event in &oldest.events {
                if !event.is_done()? {
                    return Ok(());
                }
            }
            self.pending.pop_front();
        }
        Ok(())
    }

    fn wait_for_pending(&mut self) -> Result<()> {
        while let Some(oldest) = self.pending.front() {
            oldest.events.iter().try_for_each(Event::wait)?;
            self.pending.pop_front();
        }
        Ok(())
    }
}
