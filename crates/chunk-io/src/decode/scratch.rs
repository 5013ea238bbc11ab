#![forbid(unsafe_code)]

/// Memory that filters write to, kept from chunk to chunk. What is in it is left from an earlier
/// use.
#[derive(Default)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
}

impl Scratch {
    pub(super) fn provide(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() < bytes {
            // The old contents are of no use: fresh zeros cost less than growing, which copies.
            self.bytes = Vec::new();
            self.bytes = vec![0; bytes];
        }
        &mut self.bytes[..bytes]
    }

    /// The first `bytes` of what was provided last.
    pub(super) fn filled(&self, bytes: usize) -> &[u8] {
        &self.bytes[..bytes]
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
