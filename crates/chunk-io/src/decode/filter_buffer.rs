//! Memory between two filters.
/// Memory that filters write to, reused from chunk to chunk; its contents are unspecified.
#[derive(Default)]
pub(super) struct FilterBuffer {
    bytes: Vec<u8>,
}

impl FilterBuffer {
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
