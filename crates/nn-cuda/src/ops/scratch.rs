//! Scratch buffers of operations between two of their launches.

use bytemuck::Pod;
use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_nn::Result;

use super::capacity::ensure_capacity;
use super::product_kind::{Kind, Method};
use crate::tuning::{Choices, Tuner};

/// Memory of a device for the parts of a sum, which one launch writes and the next one adds. It is
/// kept from one operation to the next, so that a step takes none of the pool once it was as large
/// as the largest part. On the CPU it stays empty.
#[derive(Debug)]
pub struct Scratch {
    words: Buffer<f64>,
    /// Methods of the products whose parts it holds.
    products: Choices<Kind, Method>,
}

impl Scratch {
    /// None so far; what operations ask for is booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory).
    pub fn empty(scope: &Scope) -> Result<Self> {
        Scratch::tuned(scope, &Tuner::off())
    }

    /// The same for operations whose kernels are chosen by `tuner`.
    ///
    /// # Errors
    /// As [`Scratch::empty`].
    pub fn tuned(scope: &Scope, tuner: &Tuner) -> Result<Self> {
        Ok(Scratch { words: Buffer::zeros(scope, 0)?, products: Choices::new(tuner) })
    }

    pub(super) fn products_mut(&mut self) -> &mut Choices<Kind, Method> {
        &mut self.products
    }

    /// Takes memory for operations that ask for so many numbers of `T` at most.
    pub(crate) fn reserve<T: Pod>(&mut self, len: usize) -> Result<()> {
        ensure_capacity(&mut self.words, words::<T>(len))
    }

    /// Panics if the memory is of another device.
    pub(super) fn assert_beside(&self, device: &Device) {
        device.assert_beside(self.words.scope().device());
    }

    /// Room for `len` numbers, with whatever an operation left in them. They are the caller's for
    /// the launches that it submits before anybody asks again: the memory's next use comes later on
    /// the default stream.
    pub(super) fn address_of<T: Pod>(&mut self, len: usize) -> Result<u64> {
        self.reserve::<T>(len)?;
        Ok(self.words.address())
    }

    /// The same with `len` zeros there, in the order of the default stream.
    pub(super) fn address_of_zeros<T: Pod>(&mut self, len: usize) -> Result<u64> {
        let address = self.address_of::<T>(len)?;
        self.words.set_zero_at(0, words::<T>(len))?;
        Ok(address)
    }
}

fn words<T>(len: usize) -> usize {
    (len * size_of::<T>()).div_ceil(size_of::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_for_the_largest_part_only() {
        let device = Device::cpu();
        let mut scratch = Scratch::empty(&device.scope("test")).unwrap();
        let bytes = [3, 8, 5].map(|len| {
            scratch.address_of::<f32>(len).unwrap();
            device.usage().allocated_bytes
        });
        assert_eq!(bytes, [16, 32, 32]);
        scratch.address_of::<f64>(5).unwrap();
        assert_eq!(device.usage().allocated_bytes, 40);
    }
}
