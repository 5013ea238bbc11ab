//! The suite of memory sources, on every source that needs no device.

#![allow(unsafe_code, reason = "kernels are launched")]

#[cfg(target_os = "linux")]
mod memfd;
#[allow(dead_code, reason = "made for the simulation too, and not all of it is needed here")]
mod simulated;
mod source_suite;

#[cfg(target_os = "linux")]
use megabatch_gpu_core::source::Anonymous;
use megabatch_gpu_core::source::Plain;

use simulated::{Completion, SimulatedDevice};
use source_suite::{Bytes, CASES, Probe};

const GRANULE_BYTES: usize = 64 << 10;
const CAPACITY_BYTES: usize = 16 * GRANULE_BYTES;

/// Memory of this process, whose addresses are pointers.
struct Host;

impl Bytes for Host {
    fn write(&mut self, address: u64, bytes: &[u8]) {
        let dst = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the suite writes mapped addresses only, and refers to them in no other way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) }
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) {
        let src = std::ptr::with_exposed_provenance(address as usize);
        // SAFETY: as for writing.
        unsafe { std::ptr::copy_nonoverlapping(src, bytes.as_mut_ptr(), bytes.len()) }
    }
}

struct SimulatedBytes(SimulatedDevice);

impl Bytes for SimulatedBytes {
    fn write(&mut self, address: u64, bytes: &[u8]) {
        self.0.write(address, bytes);
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) {
        self.0.read(address, bytes);
    }
}

fn run(make: impl Fn() -> Probe) {
    for (name, case) in CASES {
        println!("{name}");
        case(&mut make());
    }
}

#[test]
fn simulated() {
    for completion in [Completion::Immediate, Completion::Manual] {
        run(|| {
            let source = SimulatedDevice::new(CAPACITY_BYTES, GRANULE_BYTES, completion);
            Probe { source: Box::new(source.clone()), bytes: Box::new(SimulatedBytes(source)) }
        });
    }
}

#[test]
fn plain() {
    run(|| Probe { source: Box::new(Plain::new(CAPACITY_BYTES, GRANULE_BYTES)), bytes: Box::new(Host) });
}

#[cfg(target_os = "linux")]
#[test]
fn memfd() {
    run(|| {
        let source = memfd::Memfd::new(CAPACITY_BYTES, GRANULE_BYTES);
        Probe { source: Box::new(source), bytes: Box::new(Host) }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn anonymous() {
    run(|| Probe { source: Box::new(Anonymous::new(CAPACITY_BYTES, GRANULE_BYTES)), bytes: Box::new(Host) });
}
