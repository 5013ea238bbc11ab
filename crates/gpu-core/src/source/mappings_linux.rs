//! Address ranges of this process under Linux, for the sources that map memory into them.

#![allow(unsafe_code, reason = "memory is mapped")]

use std::ffi::c_void;
use std::{fs, ptr};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::Refusal;
use crate::free_memory;

/// Mappings that Linux allows a process unless told otherwise (`vm.max_map_count` of
/// proc_sys_vm(5)).
const MAPS_MAX_DEFAULT: usize = 65_530;

/// Granules that may be created before the system is asked again what it has left.
///
/// A page that the system does not have would end the process when it is touched, which is too late
/// for an error. Asking takes as long as touching some hundred pages, so that it is asked again
/// after half of what was left.
#[derive(Debug, Default)]
pub(super) struct FreeMemory {
    granules: usize,
}

impl FreeMemory {
    /// Counts one granule; returns whether the system was asked.
    pub(super) fn take_granule(&mut self, granule_bytes: usize) -> Result<bool, Refusal> {
        let asks = self.granules == 0;
        if asks {
            let left = free_memory::free_bytes().unwrap_or(usize::MAX) / granule_bytes;
            self.granules = left.div_ceil(2);
        }
        self.granules = self.granules.checked_sub(1).ok_or(Refusal::OutOfMemory)?;
        Ok(asks)
    }
}

/// Reserves inaccessible addresses; returns the first one, a multiple of `align_bytes`.
pub(super) fn reserve_aligned(bytes: usize, align_bytes: usize) -> Result<u64, Refusal> {
    // The system aligns to pages; `align_bytes` more hold an aligned range, and what is around it
    // goes back.
    let all = bytes.checked_add(align_bytes).ok_or(Refusal::OutOfMemory)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the system's choice replaces nothing.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), all, ProtFlags::empty(), flags) }.map_err(refusal("mmap"))?;
    let start = start.expose_provenance() as u64;
    let address = start.next_multiple_of(align_bytes as u64);
    let (end, end_of_all) = (address + bytes as u64, start + all as u64);
    for (address, bytes) in [(start, address - start), (end, end_of_all - end)] {
        if bytes > 0 {
            unreserve(address, bytes as usize);
        }
    }
    Ok(address)
}

/// Gives addresses back, with the memory mapped there.
pub(super) fn unreserve(address: u64, bytes: usize) {
    // SAFETY: the range was returned by `reserve_aligned` to a source, which gives it back once,
    // and nobody holds a reference into it: that is the contract of `Source::release`, and when the
    // source is dropped, of its owner.
    unsafe { munmap(pointer(address), bytes) }.expect("the system takes a reservation back");
}

pub(super) fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// Runs of granules that one source may map: a mapping each, and at worst one more for the gap
/// behind each. A quarter of the process's mappings is left to other sources, libraries and
/// threads, and to `unmap`, which must be able to split one.
pub(super) fn runs_max() -> usize {
    let allowed = fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse().ok());
    allowed.unwrap_or(MAPS_MAX_DEFAULT) / 8 * 3
}

pub(super) fn refusal(call: &'static str) -> impl Fn(Errno) -> Refusal {
    move |error| match error {
        Errno::NOMEM => Refusal::OutOfMemory,
        other => failed(call)(other),
    }
}

pub(super) fn failed(call: &'static str) -> impl Fn(Errno) -> Refusal {
    move |error| Refusal::Failed { call, reason: error.to_string() }
}
