/// A device that counts: bytes in use, calls, addresses given.
#[derive(Debug)]
pub(super) struct ModelDevice {
    capacity_bytes: usize,
    used_bytes: usize,
    calls: u64,
    next_address: u64,
}

impl ModelDevice {
    pub(super) fn new(capacity_bytes: usize) -> Self {
        ModelDevice { capacity_bytes, used_bytes: 0, calls: 0, next_address: 0 }
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// A range of addresses, its first a multiple of `alignment`. The range after it is not
    /// adjacent.
    pub(super) fn addresses(&mut self, bytes: usize, alignment: usize) -> u64 {
        let address = self.next_address.next_multiple_of(alignment as u64);
        self.next_address = address + (bytes + alignment) as u64;
        address
    }

    /// Takes `bytes` of memory; false if there are fewer.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.capacity_bytes - self.used_bytes;
        if fits {
            self.used_bytes += bytes;
        }
        fits
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.used_bytes -= bytes;
    }

    pub(super) fn called(&mut self, times: usize) {
        self.calls += times as u64;
    }
}
