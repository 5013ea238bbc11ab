//! Bandwidths: over the bus from pageable and pinned memory, and within the GPU.

#![allow(unsafe_code, reason = "the driver is called")]

use std::time::Instant;

use megabatch_gpu_core::cuda::{Gpu, Pinned};
use megabatch_gpu_core::{Buffer, Device, Result};

/// Bytes moved in a second.
pub(super) struct Rate {
    pub(super) name: &'static str,
    pub(super) gb_per_s: f64,
}

/// Measures so many copies each, of which the median counts.
pub(super) struct Bench<'d> {
    device: &'d Device,
    gpu: &'d Gpu,
    bytes: usize,
    copies: usize,
}

impl<'d> Bench<'d> {
    pub(super) fn new(device: &'d Device, bytes: usize, copies: usize) -> Self {
        Bench { device, gpu: device.gpu().expect("the device is a GPU"), bytes, copies }
    }

    pub(super) fn over_the_bus(&self) -> Result<Vec<Rate>> {
        let mut host = vec![1u8; self.bytes];
        let mut block = Buffer::<u8>::zeros(&self.device.scope("copy"), self.bytes)?;
        let mut rates = vec![
            self.rate("pageable host to device", self.bytes, || block.copy_from(&host))?,
            self.rate("device to pageable host", self.bytes, || block.copy_to(&mut host))?,
        ];
        let (stream, address) = (self.gpu.default_stream(), block.address());
        let mut pinned: Option<Pinned<u8>> = Some(self.gpu.pinned(self.bytes)?);
        rates.push(self.rate("pinned host to device", self.bytes, || {
            let memory = pinned.take().expect("the copy before gave it back");
            // SAFETY: the block has as many bytes, and nothing else uses it until the copy has been
            // waited for.
            pinned = Some(unsafe { stream.upload(memory, address) }?.wait()?);
            Ok(())
        })?);
        rates.push(self.rate("device to pinned host", self.bytes, || {
            let memory = pinned.take().expect("the copy before gave it back");
            // SAFETY: as above.
            pinned = Some(unsafe { stream.download(address, memory) }?.wait()?);
            Ok(())
        })?);
        Ok(rates)
    }

    /// Counted are the bytes read and the bytes written.
    pub(super) fn within_device(&self) -> Result<Vec<Rate>> {
        let scope = self.device.scope("copy");
        let (block, copy) = (Buffer::<u8>::zeros(&scope, self.bytes)?, Buffer::<u8>::zeros(&scope, self.bytes)?);
        let stream = self.gpu.default_stream();
        let copied = self.submitted("device to device", 2 * self.bytes, || {
            // SAFETY: both blocks have as many bytes and live until the stream is synchronised.
            unsafe { stream.copy(block.address(), copy.address(), self.bytes) }
        })?;
        Ok(vec![copied])
    }

    /// The memory pool's growth and its return of memory: pages created and mapped, and taken away,
    /// by calls to the driver.
    pub(super) fn pages(&self) -> Result<Vec<Rate>> {
        let (mut grown_s, mut returned_s) = (Vec::new(), Vec::new());
        for _ in 0..=self.copies {
            self.device.empty_cache();
            let start = Instant::now();
            let block = Buffer::<u8>::zeros(&self.device.scope("pages"), self.bytes)?;
            grown_s.push(start.elapsed().as_secs_f64());
            self.gpu.synchronize()?;
            drop(block);
            let start = Instant::now();
            self.device.empty_cache();
            returned_s.push(start.elapsed().as_secs_f64());
        }
        Ok(vec![self.middle("mapped", &mut grown_s), self.middle("given back", &mut returned_s)])
    }

    /// The rate of work that is done when `work` returns.
    fn rate(&self, name: &'static str, bytes: usize, mut work: impl FnMut() -> Result<()>) -> Result<Rate> {
        self.median(name, bytes, || {
            let start = Instant::now();
            work()?;
            Ok(start.elapsed().as_secs_f64())
        })
    }

    /// The rate of work that `submit` gives the default stream, by the GPU's clock.
    fn submitted(&self, name: &'static str, bytes: usize, mut submit: impl FnMut() -> Result<()>) -> Result<Rate> {
        let stream = self.gpu.default_stream();
        let (start, end) = (self.gpu.event()?, self.gpu.event()?);
        self.median(name, bytes, || {
            start.record(&stream)?;
            submit()?;
            end.record(&stream)?;
            end.wait()?;
            Ok(f64::from(end.elapsed_ms_since(&start)?) / 1e3)
        })
    }

    /// The first run, which loads what is loaded late, does not count.
    fn median(&self, name: &'static str, bytes: usize, mut seconds: impl FnMut() -> Result<f64>) -> Result<Rate> {
        seconds()?;
        let mut runs = (0..self.copies).map(|_| seconds()).collect::<Result<Vec<f64>>>()?;
        runs.sort_by(f64::total_cmp);
        Ok(Rate { name, gb_per_s: bytes as f64 / runs[runs.len() / 2] / 1e9 })
    }

    /// Rate of all bytes by the median of `seconds`.
    fn middle(&self, name: &'static str, seconds: &mut [f64]) -> Rate {
        seconds.sort_by(f64::total_cmp);
        Rate { name, gb_per_s: self.bytes as f64 / seconds[seconds.len() / 2] / 1e9 }
    }
}
