#![allow(unsafe_code, reason = "the driver is called")]

use megabatch_gpu_core::source::StreamId;

use crate::simulated::SimulatedDevice;

/// Bytes between the places of a block that are written and looked at: several a granule, so that a
/// granule in a wrong place is seen.
const STRIDE: usize = 8 << 10;
/// Bytes looked at in each place.
const PLACE: usize = 8;

/// Memory behind the addresses of a pool.
#[derive(Clone, Debug)]
pub(crate) enum Memory {
    /// A simulated device that keeps bytes.
    Simulated(SimulatedDevice),
    /// The memory of this process.
    Host,
}

impl Memory {
    /// Writes into a block what only the block of this number holds.
    pub(crate) fn stamp(&self, address: u64, bytes: usize, number: u64) {
        for (offset, len) in places(bytes) {
            let there: [u8; PLACE] = std::array::from_fn(|i| byte(number, offset + i));
            self.write(address + offset as u64, &there[..len]);
        }
    }

    /// Asserts that a block holds what was written for its number.
    pub(crate) fn assert_stamped(&self, address: u64, bytes: usize, number: u64) {
        for (offset, len) in places(bytes) {
            let mut there = [0; PLACE];
            self.read(address + offset as u64, &mut there[..len]);
            let expected: [u8; PLACE] = std::array::from_fn(|i| byte(number, offset + i));
            assert_eq!(
                there[..len],
                expected[..len],
                "block {number}, {bytes} bytes at {address:#x}, changed at {offset}"
            );
        }
    }

    /// Submits work on a block; the simulated device asserts that the stream may.
    pub(crate) fn submit(&self, stream: StreamId, address: u64, bytes: usize) {
        match self {
            Memory::Simulated(device) => device.submit(stream, address, bytes),
            Memory::Host => (),
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        match self {
            Memory::Simulated(device) => device.write(address, bytes),
            Memory::Host => {
                let dst = std::ptr::with_exposed_provenance_mut(address as usize);
                // SAFETY: the simulation writes into live blocks only, which are mapped memory that
                // nothing else refers to.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) }
            }
        }
    }

    fn read(&self, address: u64, bytes: &mut [u8]) {
        match self {
            Memory::Simulated(device) => device.read(address, bytes),
            Memory::Host => {
                let src = std::ptr::with_exposed_provenance(address as usize);
                // SAFETY: as for writing.
                unsafe { std::ptr::copy_nonoverlapping(src, bytes.as_mut_ptr(), bytes.len()) }
            }
        }
    }
}

/// Offset and length of each place of a block that is looked at: one a stride, and the end.
fn places(bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let last = bytes.saturating_sub(PLACE);
    let starts = (0..bytes).step_by(STRIDE).chain([last]);
    starts.map(move |offset| (offset, PLACE.min(bytes - offset)))
}

/// Content of block `number` at an offset.
fn byte(number: u64, offset: usize) -> u8 {
    let mixed =
        (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (offset as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 56) as u8
}
