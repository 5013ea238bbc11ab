//! Sets every element of a buffer to one value.

#![allow(unsafe_code, reason = "kernels are launched")]

use bytemuck::Pod;

use crate::buffer::Buffer;
use crate::device::{Cuda, Device};
use crate::error::Result;
use crate::kernel::{Arguments, Kernel, Launch};

/// Bytes that a thread writes.
const BYTES_PER_THREAD: usize = 16;

/// Sets every element of `buffer` to `value`.
///
/// # Errors
/// Errors of the launch; none on the CPU.
///
/// # Panics
/// At compile time, if an element has another size than 1, 2, 4, 8 or 16 bytes.
pub fn fill<T: Pod>(buffer: &mut Buffer<T>, value: T) -> Result<()> {
    const { assert!(size_of::<T>().is_power_of_two() && size_of::<T>() <= 16) };
    match buffer.scope().device().clone() {
        Device::Cpu(_) => cpu(buffer.as_mut_slice(), value),
        Device::Cuda(device) => cuda(&device, buffer, value)?,
    }
    Ok(())
}

fn cpu<T: Pod>(dst: &mut [T], value: T) {
    dst.fill(value);
}

fn cuda<T: Pod>(device: &Cuda, dst: &mut Buffer<T>, value: T) -> Result<()> {
    let bytes = dst.len() * size_of::<T>();
    let kernel = Kernel { module: "fill", ptx: crate::ptx!("fill"), name: "fill" };
    let arguments = Arguments::new()
        .with_value("to", dst.address())
        .with_value("pattern", pattern(value))
        .with_value("bytes", bytes as u64);
    // SAFETY: the kernel writes `bytes` bytes from `dst` on, which the buffer has; what is
    // submitted to the default stream later, the memory's next use included, runs after it.
    unsafe { kernel.submit(device, Launch::for_threads(bytes.div_ceil(BYTES_PER_THREAD)), &arguments) }
}

/// The bytes of `value`, repeated over the 16 that the kernel writes at a time.
fn pattern<T: Pod>(value: T) -> [u32; 4] {
    let mut bytes = [0u8; BYTES_PER_THREAD];
    bytes.chunks_exact_mut(size_of::<T>()).for_each(|place| place.copy_from_slice(bytemuck::bytes_of(&value)));
    bytemuck::cast(bytes)
}

#[cfg(test)]
mod tests {
    use half::f16;
    use megabatch_simt::Arg;

    use super::super::HARNESS;
    use super::*;

    /// Both sides of a length near the vector, the block and the grid.
    fn check<T: Pod + PartialEq + std::fmt::Debug>(value: T) {
        for len in [0, 1, 2, 15, 16, 17, 4095, 4096, 4097, 70_001] {
            let mut buffer = Buffer::<T>::zeros(&Device::cpu().scope("test"), len).unwrap();
            fill(&mut buffer, value).unwrap();
            assert!(buffer.as_slice().iter().all(|element| *element == value));

            let mut found = vec![T::zeroed(); len];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut found);
            let launch = Launch::for_threads(bytes.len().div_ceil(BYTES_PER_THREAD));
            let count = bytes.len() as u64;
            let mut arguments = [Arg::from(bytes), Arg::from_struct(&pattern(value)), Arg::from(count)];
            HARNESS.run("fill", launch, &mut arguments);
            assert_eq!(found, buffer.as_slice(), "{len} times {value:?}");
        }
    }

    #[test]
    fn every_element_has_the_value() {
        check(0x5au8);
        check(f16::from_f32(1.5));
        check(0x1234_5678u32);
        check(-2.5f64);
        check([1u64, u64::MAX]);
    }
}
