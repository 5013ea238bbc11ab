#![allow(unsafe_code, reason = "blocks of a pool are addresses")]

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;

use crate::async_download::AsyncDownload;
use crate::cuda::{Gpu, PendingDownload, PendingUploads};
#[cfg(feature = "cuda")]
use crate::cuda::{Pinned, Stream, Transfer};
use crate::device::{Cuda, Device, Scope};
use crate::error::Result;
use crate::host::{ALIGN_BYTES, HostBlock};
use crate::pool::{AllocationError, AllocationRequest, BlockId};

/// `len` elements of `T` on a device, zero when allocated, contiguous, aligned to 64 bytes.
///
/// The bytes are booked on the buffer's [`Scope`] and on its device until the buffer is dropped.
/// [`Buffer::copy_from`] and [`Buffer::to_vec`] reach the elements on every device;
/// [`Buffer::as_slice`] lends them where they are in host memory.
#[derive(Debug)]
pub struct Buffer<T: Pod> {
    memory: Memory,
    len: usize,
    scope: Scope,
    element: PhantomData<T>,
}

/// The memory behind a buffer, by device.
#[derive(Debug)]
enum Memory {
    Host(HostBlock),
    Device(DeviceBlock),
    /// None: a plan books the bytes.
    Booked,
}

/// A live block of a GPU's memory.
#[derive(Debug)]
struct DeviceBlock {
    gpu: Gpu,
    address: u64,
    owner: BlockOwner,
}

/// Owner of a GPU's block.
#[derive(Clone, Copy, Debug)]
enum BlockOwner {
    Pool(BlockId),
    /// An allocation by itself ([`Device::allocate_apart`]).
    Driver,
    /// There are no bytes.
    Nobody,
}

impl<T: Pod> Buffer<T> {
    /// Allocates `len` zeros.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`](crate::Error::SizeOverflow),
    /// [`Error::NeverFits`](crate::Error::NeverFits),
    /// [`Error::OverBudget`](crate::Error::OverBudget),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) or
    /// [`Error::Refused`](crate::Error::Refused); the device is then as before.
    pub fn zeros(scope: &Scope, len: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= ALIGN_BYTES) };
        let bytes = scope.bytes_of::<T>(len)?;
        scope.book(bytes)?;
        let memory = allocate(scope, bytes).map_err(|shortage| {
            scope.release(bytes);
            scope.shortage(bytes, shortage)
        })?;
        let mut buffer = Buffer { memory, len, scope: scope.clone(), element: PhantomData };
        // The host's memory is zero already.
        if let Memory::Device(_) = buffer.memory {
            buffer.set_zero()?;
        }
        Ok(buffer)
    }

    /// Allocates a copy of `values`.
    ///
    /// # Errors
    /// As [`Buffer::zeros`].
    pub fn from_slice(scope: &Scope, values: &[T]) -> Result<Self> {
        let mut buffer = Buffer::zeros(scope, values.len())?;
        buffer.copy_from(values)?;
        Ok(buffer)
    }

    /// A copy in the same scope.
    ///
    /// # Errors
    /// As [`Buffer::zeros`].
    pub fn try_clone(&self) -> Result<Self> {
        let mut copy = Buffer::zeros(&self.scope, self.len)?;
        copy.copy_from_buffer(self)?;
        Ok(copy)
    }

    /// Copies the elements of `src` here, in the order of the device's default stream.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for buffers on a GPU that fails.
    ///
    /// # Panics
    /// If there are more elements there or fewer, and if the buffers are on several devices.
    pub fn copy_from_buffer(&mut self, src: &Buffer<T>) -> Result<()> {
        assert_eq!(src.len, self.len, "a copy is of as many elements on both sides");
        self.scope.device().assert_beside(src.scope.device());
        match (&src.memory, &self.memory) {
            (Memory::Device(from_block), Memory::Device(dst)) => {
                from_block.gpu.copy_block(from_block.address, dst.address, src.bytes())?;
            }
            _ => self.as_mut_slice().copy_from_slice(src.as_slice()),
        }
        Ok(())
    }

    /// Copies `values` here, and waits until it is done.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for a buffer on a GPU that fails.
    ///
    /// # Panics
    /// If there are more values or fewer than elements.
    pub fn copy_from(&mut self, values: &[T]) -> Result<()> {
        assert_eq!(values.len(), self.len, "a copy is of as many elements on both sides");
        self.copy_from_at(0, values)
    }

    /// Copies `values` to the elements from `start` on, and waits until it is done.
    ///
    /// # Errors
    /// As [`Buffer::copy_from`].
    ///
    /// # Panics
    /// If there are more values than elements from there on.
    pub fn copy_from_at(&mut self, start: usize, values: &[T]) -> Result<()> {
        let range = self.range(start, values.len());
        match &self.memory {
            Memory::Host(_) => self.as_mut_slice()[range].copy_from_slice(values),
            Memory::Device(block) => {
                let offset = (start * size_of::<T>()) as u64;
                block.gpu.write_block(block.address + offset, bytemuck::cast_slice(values))?;
            }
            Memory::Booked => {}
        }
        Ok(())
    }

    /// Copies `values` to the first elements, without waiting.
    pub(crate) fn receive(&mut self, values: &[T], under_way: &mut PendingUploads) -> Result<()> {
        let range = self.range(0, values.len());
        match &self.memory {
            Memory::Device(block) if !values.is_empty() => {
                under_way.send(&block.gpu, bytemuck::cast_slice(values), block.address)?;
            }
            Memory::Device(_) | Memory::Booked => {}
            Memory::Host(_) => self.as_mut_slice()[range].copy_from_slice(values),
        }
        Ok(())
    }

    /// Copies the elements to `values`, after all work that was submitted to the device.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for a buffer on a GPU that fails, or where work that
    /// was submitted earlier has failed.
    ///
    /// # Panics
    /// If there is room for more elements or fewer.
    pub fn copy_to(&self, values: &mut [T]) -> Result<()> {
        assert_eq!(values.len(), self.len, "a copy is of as many elements on both sides");
        match &self.memory {
            Memory::Host(_) | Memory::Booked => values.copy_from_slice(self.as_slice()),
            Memory::Device(block) => block.gpu.read_block(block.address, bytemuck::cast_slice_mut(values))?,
        }
        Ok(())
    }

    /// The elements, after all work that was submitted to the device.
    ///
    /// # Errors
    /// As [`Buffer::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.len];
        self.copy_to(&mut values)?;
        Ok(values)
    }

    /// The elements as they are after all work that was submitted to the device so far. The caller
    /// does not wait, and what is submitted later does not change them.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for a buffer on a GPU that fails, or that could lock
    /// no more pages.
    pub fn fetch(&self) -> Result<AsyncDownload<T>> {
        match &self.memory {
            Memory::Host(_) | Memory::Booked => Ok(AsyncDownload::here(self.as_slice().to_vec())),
            Memory::Device(block) => {
                Ok(AsyncDownload::coming(PendingDownload::new(&block.gpu, block.address, self.bytes())?, self.len))
            }
        }
    }

    /// Sets every element to zero, in the order of the device's default stream.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for a buffer on a GPU that fails.
    pub fn set_zero(&mut self) -> Result<()> {
        match &self.memory {
            Memory::Host(_) => self.as_mut_slice().fill(T::zeroed()),
            Memory::Device(block) => block.gpu.zero_block(block.address, self.bytes())?,
            Memory::Booked => {}
        }
        Ok(())
    }

    /// Sets `len` elements from `start` on to zero, in the order of the device's default stream.
    ///
    /// # Errors
    /// As [`Buffer::set_zero`].
    ///
    /// # Panics
    /// If there are fewer elements from there on.
    pub fn set_zero_at(&mut self, start: usize, len: usize) -> Result<()> {
        let range = self.range(start, len);
        match &self.memory {
            Memory::Host(_) => self.as_mut_slice()[range].fill(T::zeroed()),
            Memory::Device(block) => {
                let size = size_of::<T>();
                block.gpu.zero_block(block.address + (start * size) as u64, len * size)?;
            }
            Memory::Booked => {}
        }
        Ok(())
    }

    /// Device address of the first element, for kernels; 0 in a plan.
    pub fn address(&self) -> u64 {
        match &self.memory {
            Memory::Host(block) => block.start.as_ptr().expose_provenance() as u64,
            Memory::Device(block) => block.address,
            Memory::Booked => 0,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The scope on which the bytes are booked.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The elements of a buffer in host memory.
    ///
    /// # Panics
    /// If the buffer is on a GPU, or booked by a plan.
    pub fn as_slice(&self) -> &[T] {
        let block = self.host();
        // SAFETY: the block holds `len * size_of::<T>()` bytes, initialised (zeroed at first),
        // aligned to 64, which is at least the alignment of any `Pod` that `zeros` accepts; any
        // bytes are a valid `Pod`; `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(block.start.cast::<T>().as_ptr(), self.len) }
    }

    /// The elements of a buffer in host memory, for writing.
    ///
    /// # Panics
    /// If the buffer is on a GPU, or booked by a plan.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        let block = self.host();
        // SAFETY: as in `as_slice`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(block.start.cast::<T>().as_ptr(), self.len) }
    }

    /// The GPU whose memory the buffer is in.
    pub(crate) fn gpu(&self) -> Option<&Gpu> {
        match &self.memory {
            Memory::Host(_) | Memory::Booked => None,
            Memory::Device(block) => Some(&block.gpu),
        }
    }

    fn host(&self) -> &HostBlock {
        match &self.memory {
            Memory::Host(block) => block,
            Memory::Device(block) => {
                panic!("{}: slices are of host memory; copy_to reads a buffer on {}", self.scope.label(), block.gpu)
            }
            Memory::Booked => panic!("{}: a plan has no elements", self.scope.label()),
        }
    }

    fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// `len` elements from `start` on.
    fn range(&self, start: usize, len: usize) -> Range<usize> {
        let end = start.checked_add(len).filter(|&end| end <= self.len);
        let Some(end) = end else {
            panic!("{len} values from {start} on are more than the {} elements", self.len);
        };
        start..end
    }
}

#[cfg(feature = "cuda")]
impl<T: Pod> Buffer<T> {
    /// Copies all of `src` here in the order of `stream`. The caller does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Panics
    /// If the lengths differ, or if the buffer is not in the memory of the stream's GPU.
    pub fn upload(&mut self, stream: &Stream, src: Pinned<T>) -> Result<Transfer<T>> {
        self.assert_fits(stream, src.len());
        // SAFETY: the buffer is live and of this length. Its memory stays mapped until the copy is
        // done, also if the buffer is dropped before: unmapping waits, and its next owner begins on
        // the default stream, after this.
        unsafe { stream.upload(src, self.address()) }
    }

    /// Copies all of this to `dst` in the order of `stream`. The caller does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Panics
    /// If the lengths differ, or if the buffer is not in the memory of the stream's GPU.
    pub fn download(&self, stream: &Stream, dst: Pinned<T>) -> Result<Transfer<T>> {
        self.assert_fits(stream, dst.len());
        // SAFETY: as in `upload`.
        unsafe { stream.download(self.address(), dst) }
    }

    fn assert_fits(&self, stream: &Stream, len: usize) {
        assert_eq!(self.len(), len, "a copy is of as many elements on both sides");
        let gpu = self.gpu().expect("a copy on a stream is to or from a GPU's memory");
        assert!(std::ptr::eq(&**gpu.context(), &**stream.context()), "a buffer is copied on a stream of its own GPU");
    }
}

impl<T: Pod> Drop for Buffer<T> {
    fn drop(&mut self) {
        let id = match &self.memory {
            Memory::Host(block) => block.id(),
            Memory::Device(block) => match block.owner {
                BlockOwner::Pool(id) => Some(id),
                BlockOwner::Driver => {
                    block.gpu.free_apart(block.address);
                    None
                }
                BlockOwner::Nobody => None,
            },
            Memory::Booked => None,
        };
        if let Some(id) = id {
            self.scope.device().memory().free(id);
        }
        self.scope.release(self.bytes());
    }
}

fn allocate(scope: &Scope, bytes: usize) -> Result<Memory, AllocationError> {
    if let Some(block) = scope.locked_block(bytes) {
        return Ok(Memory::Host(HostBlock::locked(block)));
    }
    let request = scope.request(bytes);
    match scope.device() {
        Device::Cpu(_) => HostBlock::zeroed(scope.device().memory().pool(), &request).map(Memory::Host),
        Device::Cuda(cuda) => DeviceBlock::new(cuda, &request).map(Memory::Device),
        Device::Planning(_) => Ok(Memory::Booked),
    }
}

impl DeviceBlock {
    /// A block of undefined contents.
    fn new(cuda: &Cuda, request: &AllocationRequest) -> Result<Self, AllocationError> {
        let gpu = cuda.shared_gpu();
        if request.bytes == 0 {
            return Ok(DeviceBlock { gpu, address: 0, owner: BlockOwner::Nobody });
        }
        if cuda.memory().allocates_apart() {
            let address = gpu.allocate_apart(request.bytes).map_err(AllocationError::Source)?;
            return Ok(DeviceBlock { gpu, address, owner: BlockOwner::Driver });
        }
        let mut pool = cuda.memory().pool();
        let id = pool.allocate(request)?;
        Ok(DeviceBlock { gpu, address: pool.address(id), owner: BlockOwner::Pool(id) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Error;

    #[test]
    fn buffers_start_as_aligned_zeros() {
        let scope = Device::cpu().scope("test");
        for len in [0, 1, 15, 16, 17, 1_000_003] {
            let buffer = Buffer::<f32>::zeros(&scope, len).unwrap();
            assert_eq!(buffer.as_slice().len(), len);
            assert!(buffer.as_slice().iter().all(|&x| x.to_bits() == 0));
            assert_eq!(buffer.as_slice().as_ptr() as usize % ALIGN_BYTES, 0);
        }
        assert_eq!(scope.usage().allocated_bytes, 0);
    }

    #[test]
    fn a_failed_request_leaves_the_device_as_it_was() {
        let device = Device::cpu();
        device.set_budget_bytes(Some(100));
        let kept = Buffer::<u8>::zeros(&device.scope("kept"), 60).unwrap();
        let before = device.usage();

        let over_budget = Buffer::<u8>::zeros(&device.scope("over"), 41).unwrap_err();
        assert_eq!(
            over_budget.to_string(),
            "over: 41 bytes more than the 60 allocated would pass the budget of 100 bytes on cpu; raise the budget or use a smaller batch"
        );
        let overflow = Buffer::<f64>::zeros(&device.scope("overflow"), usize::MAX / 4).unwrap_err();
        assert!(matches!(overflow, Error::SizeOverflow { element_bytes: 8, .. }));
        device.set_budget_bytes(None);
        let never = Buffer::<u8>::zeros(&device.scope("never"), isize::MAX as usize - 128).unwrap_err();
        assert!(matches!(never, Error::NeverFits { largest_bytes, .. } if largest_bytes > 60), "{never}");
        let Error::NeverFits { largest_bytes, .. } = never else { unreachable!("just seen") };
        let now = Buffer::<u8>::zeros(&device.scope("now"), largest_bytes).unwrap_err();
        assert!(matches!(&now, Error::OutOfMemory { counts, .. } if counts.allocated_bytes >= 60), "{now}");

        // The refused allocation was booked for a moment, so that only the peak and the total may
        // have seen it.
        assert_eq!((device.usage().allocated_bytes, device.usage().buffers), (before.allocated_bytes, before.buffers));
        assert_eq!(kept.len(), 60);
    }

    #[test]
    fn a_plan_books_what_no_device_has() {
        let device = Device::planning();
        let scope = device.scope("plan");
        let mut large = Buffer::<f32>::zeros(&scope, 1 << 58).unwrap();
        large.set_zero_at(3, 1 << 40).unwrap();
        let table = Buffer::from_slice(&scope, &[1u16, 2, 3]).unwrap();
        assert_eq!((scope.usage().allocated_bytes, device.usage().buffers), ((1 << 60) + 6, 2));
        assert_eq!(device.counts().reserved_bytes, 0);
        drop((large, table));
        assert_eq!(device.usage().allocated_bytes, 0);
        let overflow = Buffer::<u8>::zeros(&scope, usize::MAX).unwrap_err();
        assert!(matches!(overflow, Error::SizeOverflow { .. }), "{overflow}");
    }

    #[test]
    fn parts_of_a_buffer_are_copied_and_cleared() {
        let mut buffer = Buffer::from_slice(&Device::cpu().scope("test"), &[1u16, 2, 3, 4, 5]).unwrap();
        buffer.copy_from_at(3, &[6, 5]).unwrap();
        buffer.set_zero_at(1, 3).unwrap();
        buffer.set_zero_at(5, 0).unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [1, 0, 0, 0, 5]);
        let mut other = Buffer::zeros(buffer.scope(), 5).unwrap();
        other.copy_from_buffer(&buffer).unwrap();
        assert_eq!(other.to_vec().unwrap(), [1, 0, 0, 0, 5]);
    }

    proptest! {
        /// Any sequence of allocations and frees keeps the counters equal to those of a model that
        /// only sums lengths.
        #[test]
        fn counters_agree_with_a_model(events in prop::collection::vec((0usize..3, 0usize..2_000, any::<bool>()), 1..200)) {
            let device = Device::cpu();
            let scopes = ["a", "b", "c"].map(|label| device.scope(label));
            let mut live: Vec<(usize, Buffer<u32>)> = Vec::new();
            let mut peak = 0;
            for (scope, len, free) in events {
                if free && !live.is_empty() {
                    live.swap_remove(len % live.len());
                } else {
                    live.push((scope, Buffer::zeros(&scopes[scope], len).unwrap()));
                }
                let bytes_of = |k: usize| live.iter().filter(|(s, _)| *s == k).map(|(_, b)| 4 * b.len()).sum::<usize>();
                let total: usize = (0..3).map(bytes_of).sum();
                peak = peak.max(total);
                prop_assert_eq!(device.usage().allocated_bytes, total);
                prop_assert_eq!(device.usage().allocated_bytes_peak, peak);
                prop_assert_eq!(device.usage().buffers, live.len());
                for (k, scope) in scopes.iter().enumerate() {
                    prop_assert_eq!(scope.usage().allocated_bytes, bytes_of(k));
                }
            }
        }
    }
}
