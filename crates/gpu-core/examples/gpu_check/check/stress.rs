//! Allocations and frees at random on the real driver, each block filled with a number of its own
//! and read when it is freed.

use megabatch_gpu_core::{Buffer, Device, Result};

pub(super) struct Stress {
    pub(super) events: usize,
    pub(super) bytes_max: usize,
}

/// Largest block: 2^24 elements of four bytes.
const LEN_LOG2_MAX: u64 = 24;

impl Stress {
    /// Runs the events and gives all memory back. Returns the calls of the driver that memory took.
    ///
    /// # Errors
    /// The error of the first operation that fails.
    ///
    /// # Panics
    /// If a block does not hold what was written to it.
    pub(super) fn run(&self, device: &Device) -> Result<u64> {
        let driver_calls = || device.with_pool(|pool| pool.source().driver_calls());
        let before = driver_calls();
        let scope = device.scope("stress");
        let mut random = Random(7);
        let mut live: Vec<(u32, Buffer<u32>)> = Vec::new();
        for event in 0..self.events as u32 {
            let len = random.len();
            while !live.is_empty() && (random.below(3) == 0 || held(&live) + 4 * len > self.bytes_max) {
                let (number, block) = live.swap_remove(random.below(live.len() as u64) as usize);
                require(number, &block)?;
            }
            if 4 * len <= self.bytes_max {
                live.push((event, Buffer::from_slice(&scope, &vec![event; len])?));
            }
            match random.below(1000) {
                0 => drop(device.empty_cache()),
                1..=20 => device.step(),
                _ => {}
            }
        }
        live.iter().try_for_each(|(number, block)| require(*number, block))?;
        drop(live);
        device.empty_cache();
        assert_eq!(device.usage().allocated_bytes, 0, "all blocks were freed");
        Ok(driver_calls() - before)
    }
}

fn held(live: &[(u32, Buffer<u32>)]) -> usize {
    live.iter().map(|(_, block)| 4 * block.len()).sum()
}

fn require(number: u32, block: &Buffer<u32>) -> Result<()> {
    let wrong = block.to_vec()?.iter().position(|&element| element != number);
    assert_eq!(wrong, None, "block {number} of {} elements was written to by another", block.len());
    Ok(())
}

/// A linear congruential generator, the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Any size of block as often as any other, on a logarithmic scale.
    fn len(&mut self) -> usize {
        let magnitude = 1 << self.below(LEN_LOG2_MAX);
        1 + self.below(2 * magnitude) as usize
    }
}
