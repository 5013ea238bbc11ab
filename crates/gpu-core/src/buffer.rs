use std::marker::PhantomData;

use bytemuck::Pod;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::host::{ALIGN_BYTES, HostBlock};
use crate::pool::{Mobility, Shortage};
use crate::scope::Scope;

/// `len` elements of `T` on a device, zero when allocated, contiguous, aligned to 64 bytes.
///
/// The bytes are booked on the buffer's [`Scope`] and on its device until the buffer is dropped.
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
}

impl<T: Pod> Buffer<T> {
    /// Allocates `len` zeros.
    ///
    /// # Errors
    /// [`Error::NeverFits`], [`Error::OverBudget`] or [`Error::OutOfMemory`]; the device is then as before.
    pub fn zeros(scope: &Scope, len: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= ALIGN_BYTES) };
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or_else(|| Error::NeverFits { scope: scope.label().to_owned(), len, element_bytes: size_of::<T>() })?;
        scope.book(bytes)?;
        let memory = allocate(scope, bytes).map_err(|shortage| {
            scope.release(bytes);
            scope.shortage(bytes, &shortage)
        })?;
        Ok(Buffer { memory, len, scope: scope.clone(), element: PhantomData })
    }

    /// Allocates a copy of `values`.
    ///
    /// # Errors
    /// As [`Buffer::zeros`].
    pub fn from_slice(scope: &Scope, values: &[T]) -> Result<Self> {
        let mut buffer = Buffer::zeros(scope, values.len())?;
        buffer.as_mut_slice().copy_from_slice(values);
        Ok(buffer)
    }

    /// A copy in the same scope.
    ///
    /// # Errors
    /// As [`Buffer::zeros`].
    pub fn try_clone(&self) -> Result<Self> {
        Buffer::from_slice(&self.scope, self.as_slice())
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The scope on which the bytes are booked.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The elements, for a buffer in host memory.
    pub fn as_slice(&self) -> &[T] {
        let Memory::Host(block) = &self.memory;
        // SAFETY: the block holds `len * size_of::<T>()` bytes, initialised (zeroed at first), aligned to 64, which is
        // at least the alignment of any `Pod` that `zeros` accepts; any bytes are a valid `Pod`; `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(block.start.cast::<T>().as_ptr(), self.len) }
    }

    /// The elements for writing, for a buffer in host memory.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        let Memory::Host(block) = &mut self.memory;
        // SAFETY: as in `as_slice`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(block.start.cast::<T>().as_ptr(), self.len) }
    }
}

impl<T: Pod> Drop for Buffer<T> {
    fn drop(&mut self) {
        let Memory::Host(block) = &self.memory;
        // After a panic within the pool its blocks stay where they are: a second panic would hide the first.
        let memory = self.scope.device().memory();
        if let Some((id, mut pool)) = block.id.zip(memory.pool_unless_broken()) {
            memory.note_free(&pool);
            pool.free(id);
        }
        self.scope.release(self.len * size_of::<T>());
    }
}

fn allocate(scope: &Scope, bytes: usize) -> Result<Memory, Shortage> {
    let request = scope.request(bytes, Mobility::Fixed);
    match scope.device() {
        Device::Cpu(_) => HostBlock::zeroed(scope.device().memory().pool(), &request).map(Memory::Host),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

        let over = Buffer::<u8>::zeros(&device.scope("over"), 41).unwrap_err();
        assert_eq!(
            over.to_string(),
            "over: 41 bytes more than the 60 allocated would pass the budget of 100 bytes on cpu; raise the budget or use a smaller batch"
        );
        let never = Buffer::<f64>::zeros(&device.scope("never"), usize::MAX / 4).unwrap_err();
        assert!(matches!(never, Error::NeverFits { element_bytes: 8, .. }));
        device.set_budget_bytes(None);
        let now = Buffer::<u8>::zeros(&device.scope("now"), isize::MAX as usize - 128).unwrap_err();
        assert!(matches!(now, Error::OutOfMemory { allocated_bytes: 60, .. }), "{now}");

        // The refused allocation was booked for a moment, so that only the peak and the total may have seen it.
        assert_eq!((device.usage().allocated_bytes, device.usage().buffers), (before.allocated_bytes, before.buffers));
        assert_eq!(kept.len(), 60);
    }

    proptest! {
        /// Any sequence of allocations and frees keeps the counters equal to those of a model that only sums lengths.
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
