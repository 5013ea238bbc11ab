//! Chunks of samples, or whole series, to the device that trains on them.

mod byte_swap;
mod gather;
#[cfg(test)]
mod harness;
#[cfg(feature = "cuda")]
mod staged;
#[cfg(not(feature = "cuda"))]
#[path = "upload/staged_absent.rs"]
mod staged;

#[cfg(feature = "cuda")]
use megabatch_gpu_core::cuda::Stream;
use megabatch_gpu_core::{Buffer, Device, Result, Scope};

pub use byte_swap::swap_bytes;
pub use gather::gather_windows;
use staged::{Arrival, Staged};

/// Tables in host memory that belong together: those of a chunk of samples, or of a series with its
/// targets.
#[derive(Clone, Debug)]
pub struct HostChunk<'h> {
    /// One table a timeframe, row-major: `[n, T, F]` of samples, `[bars, F]` of a series.
    pub features: Vec<&'h [f32]>,
    /// `[n, K]`, row-major.
    pub targets: &'h [f32],
}

/// A chunk where a device reaches it; from [`Uploader::upload`].
#[derive(Debug)]
pub struct DeviceChunk<'h> {
    features: Vec<DeviceTable<'h>>,
    targets: DeviceTable<'h>,
    arrival: Option<Arrival>,
}

/// A table of a [`DeviceChunk`], laid out as in the [`HostChunk`].
#[derive(Debug)]
pub enum DeviceTable<'h> {
    /// For the CPU: the host's own memory, of which no copy was made.
    Host(&'h [f32]),
    /// In the memory of a GPU.
    Device {
        /// At least as long as the table.
        buffer: Buffer<f32>,
        /// Numbers in the table.
        len: usize,
    },
}

/// Moves chunks to a device, one after the other.
///
/// For the CPU nothing is moved. To a GPU a chunk goes in pieces through two pieces of pinned
/// memory and a stream of the uploader's own: while the GPU copies one, the host fills the other.
/// It overlaps with kernels on streams of their own, and not with those on the default stream,
/// which is ordered with every other. In a build of this crate without the feature `cuda` the host
/// waits for each table.
#[derive(Debug)]
pub struct Uploader {
    scope: Scope,
    staged: Option<Staged>,
    /// Memory of chunks that are done with.
    spare: Vec<Buffer<f32>>,
}

impl Uploader {
    /// An uploader to the device of `scope`, on which the chunks' memory is booked.
    ///
    /// # Errors
    /// [`Error::Driver`](megabatch_gpu_core::Error::Driver) where a GPU gives no stream.
    pub fn new(scope: &Scope) -> Result<Self> {
        let staged = match scope.device() {
            Device::Cuda(cuda) => Some(Staged::new(cuda)?),
            _ => None,
        };
        Ok(Uploader { scope: scope.clone(), staged, spare: Vec::new() })
    }

    /// Moves `host` to the device, into memory of a chunk that was given back if there is some that
    /// is large enough. Host memory on the way to a GPU may be written again when this returns;
    /// when the chunk arrives, [`DeviceChunk::wait`] says.
    ///
    /// # Errors
    /// What the device says of an allocation or a copy.
    pub fn upload<'h>(&mut self, host: &HostChunk<'h>) -> Result<DeviceChunk<'h>> {
        let features = host.features.iter().map(|&table| self.table(table)).collect::<Result<_>>()?;
        let targets = self.table(host.targets)?;
        let arrival = self.staged.as_ref().map(Staged::arrival).transpose()?;
        Ok(DeviceChunk { features, targets, arrival })
    }

    /// Takes back the memory of a chunk for a later one. What was submitted to the default stream
    /// so far may still be reading it.
    pub fn recycle(&mut self, chunk: DeviceChunk<'_>) {
        self.spare.extend(chunk.features.into_iter().chain([chunk.targets]).filter_map(DeviceTable::into_buffer));
    }

    /// [`recycle`](Self::recycle), where what was submitted to `stream` so far may still be reading
    /// the chunk: later uploads wait for that, the caller does not.
    ///
    /// # Errors
    /// [`Error::Driver`](megabatch_gpu_core::Error::Driver); the memory then goes back to the
    /// device.
    ///
    /// # Panics
    /// If the stream is another GPU's.
    #[cfg(feature = "cuda")]
    pub fn recycle_after(&mut self, chunk: DeviceChunk<'_>, stream: &Stream) -> Result<()> {
        if let Some(staged) = &self.staged {
            staged.wait_for(stream)?;
        }
        self.recycle(chunk);
        Ok(())
    }

    fn table<'h>(&mut self, host: &'h [f32]) -> Result<DeviceTable<'h>> {
        let Some(staged) = &mut self.staged else { return Ok(DeviceTable::Host(host)) };
        let mut buffer = match best(&self.spare, host.len()) {
            Some(place) => self.spare.swap_remove(place),
            None => Buffer::zeros(&self.scope, host.len())?,
        };
        staged.copy(host, &mut buffer)?;
        Ok(DeviceTable::Device { buffer, len: host.len() })
    }
}

/// The place of the smallest buffer that has room for `len` numbers, and not for twice as many.
fn best(spare: &[Buffer<f32>], len: usize) -> Option<usize> {
    let lengths = spare.iter().map(Buffer::len).enumerate();
    lengths.filter(|&(_, room)| room >= len && room / 2 <= len).min_by_key(|&(_, room)| room).map(|(place, _)| place)
}

impl<'h> DeviceChunk<'h> {
    /// One table a timeframe.
    pub fn features(&self) -> &[DeviceTable<'h>] {
        &self.features
    }

    /// The targets.
    pub fn targets(&self) -> &DeviceTable<'h> {
        &self.targets
    }

    /// Waits until the chunk has arrived.
    ///
    /// # Errors
    /// [`Error::Driver`](megabatch_gpu_core::Error::Driver), also for work that was submitted
    /// earlier and failed.
    pub fn wait(&self) -> Result<()> {
        self.arrival.as_ref().map_or(Ok(()), Arrival::wait)
    }

    /// Makes what is submitted to `stream` from now on wait until the chunk has arrived; the caller
    /// does not wait. The default stream waits as it is.
    ///
    /// # Errors
    /// [`Error::Driver`](megabatch_gpu_core::Error::Driver).
    #[cfg(feature = "cuda")]
    pub fn order_before(&self, stream: &Stream) -> Result<()> {
        self.arrival.as_ref().map_or(Ok(()), |arrival| arrival.order_before(stream))
    }
}

impl<'h> DeviceTable<'h> {
    /// Numbers in the table.
    pub fn len(&self) -> usize {
        match self {
            DeviceTable::Host(numbers) => numbers.len(),
            DeviceTable::Device { len, .. } => *len,
        }
    }

    /// True if there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers, where they are in host memory.
    pub fn as_slice(&self) -> Option<&'h [f32]> {
        match self {
            DeviceTable::Host(numbers) => Some(numbers),
            DeviceTable::Device { .. } => None,
        }
    }

    /// The memory of a GPU that begins with the table, where it is there.
    pub fn buffer(&self) -> Option<&Buffer<f32>> {
        match self {
            DeviceTable::Host(_) => None,
            DeviceTable::Device { buffer, .. } => Some(buffer),
        }
    }

    fn into_buffer(self) -> Option<Buffer<f32>> {
        match self {
            DeviceTable::Host(_) => None,
            DeviceTable::Device { buffer, .. } => Some(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_the_cpu_nothing_is_copied() {
        let device = Device::cpu();
        let scope = device.scope("test");
        let (features, targets) = (vec![1.0f32; 12], vec![2.0f32; 3]);
        let host = HostChunk { features: vec![&features, &[]], targets: &targets };
        let mut uploader = Uploader::new(&scope).unwrap();
        let chunk = uploader.upload(&host).unwrap();
        chunk.wait().unwrap();
        assert!(std::ptr::eq(chunk.features()[0].as_slice().unwrap(), &features[..]));
        assert!(std::ptr::eq(chunk.targets().as_slice().unwrap(), &targets[..]));
        assert!(chunk.features()[1].is_empty() && chunk.targets().buffer().is_none());
        uploader.recycle(chunk);
        assert_eq!(device.usage().allocated_bytes_peak, 0);
    }

    #[test]
    fn memory_is_used_again_where_it_fits() {
        let scope = Device::cpu().scope("test");
        let spare: Vec<Buffer<f32>> = [10, 4, 7, 100].map(|len| Buffer::zeros(&scope, len).unwrap()).into();
        for (len, expected) in
            [(4, Some(1)), (5, Some(2)), (8, Some(0)), (10, Some(0)), (11, None), (50, Some(3)), (1, None)]
        {
            assert_eq!(best(&spare, len), expected, "{len}");
        }
    }
}
