use crate::cuda::PinnedWords;
use crate::device::Cuda;
use crate::error::Result;

/// Words of the host's memory that kernels of a GPU write, page-locked. The host reads them without
/// waiting for the GPU: a word is there at the latest when somebody has waited for its kernel.
#[derive(Debug)]
pub struct HostWords {
    words: PinnedWords,
}

impl HostWords {
    /// `len` words, which are 0.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also where the system can lock no more pages.
    pub fn new(cuda: &Cuda, len: usize) -> Result<Self> {
        Ok(HostWords { words: PinnedWords::new(&cuda.shared_gpu(), len)? })
    }

    /// Address of the first word on the GPU, and on the host.
    pub fn address(&self) -> u64 {
        self.words.address()
    }

    /// A word as it is now; it becomes 0.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn take(&self, index: usize) -> u64 {
        self.words.take(index)
    }
}
