//! The suite of memory sources on the GPU's memory.

#![allow(unsafe_code, reason = "the driver is called")]

use megabatch_gpu_core::Result;
use megabatch_gpu_core::cuda::GpuSource;
use megabatch_gpu_core::cuda::{Gpu, Stream, Transfer};

use crate::source_suite::{Bytes, Probe};

/// Runs one case on a source of its own.
pub(super) fn run(gpu: &Gpu, case: fn(&mut Probe)) -> Result<()> {
    let bytes = PinnedBytes { gpu: gpu.clone(), _other: gpu.stream()? };
    case(&mut Probe { source: Box::new(GpuSource::new(gpu)?), bytes: Box::new(bytes) });
    Ok(())
}

/// A GPU's memory, reached over pinned memory and the default stream.
struct PinnedBytes {
    gpu: Gpu,
    /// The suite orders streams 0 and 1.
    _other: Stream,
}

impl Bytes for PinnedBytes {
    fn write(&mut self, address: u64, bytes: &[u8]) {
        let mut host = self.gpu.pinned(bytes.len()).expect("pinned memory");
        host.as_mut_slice().copy_from_slice(bytes);
        // SAFETY: the suite writes mapped addresses only, and the copy is waited for.
        let upload = unsafe { self.gpu.default_stream().upload(host, address) };
        upload.and_then(Transfer::wait).expect("a copy to the GPU");
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) {
        let host = self.gpu.pinned(bytes.len()).expect("pinned memory");
        // SAFETY: the suite reads mapped addresses only, and the copy is waited for.
        let download = unsafe { self.gpu.default_stream().download(address, host) };
        bytes.copy_from_slice(download.and_then(Transfer::wait).expect("a copy from the GPU").as_slice());
    }
}
