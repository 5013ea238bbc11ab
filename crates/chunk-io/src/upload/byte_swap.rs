//! The other byte order.

use bytemuck::Pod;
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, Result, arguments};

/// Bytes that a thread of the kernel takes.
const THREAD_BYTES: usize = 16;

/// Turns the bytes of every element around, in place: big-endian numbers become little-endian ones,
/// and the other way round.
///
/// On a GPU the order is that of its default stream.
///
/// # Errors
/// What the device says of the launch; the CPU nothing.
///
/// # Panics
/// At compile time, if an element has another size than 2, 4 or 8 bytes.
pub fn swap_bytes<T: Pod>(data: &mut Buffer<T>) -> Result<()> {
    const { assert!(matches!(size_of::<T>(), 2 | 4 | 8)) };
    match data.scope().device().clone() {
        Device::Cuda(device) => cuda(&device, data),
        _ => {
            cpu(data.as_mut_slice());
            Ok(())
        }
    }
}

fn cuda<T: Pod>(device: &Cuda, data: &mut Buffer<T>) -> Result<()> {
    let (name, launch) = kernel_for::<T>(data.len());
    let kernel = Kernel { module: "chunk-io/byte_swap", ptx: megabatch_gpu_core::ptx!("byte_swap"), name: &name };
    let arguments = arguments![data.address(), data.len() as u64];
    // SAFETY: a thread reads and writes sixteen bytes of the buffer's own, fewer at its end;
    // buffers are aligned to more than that. What is submitted to the default stream later runs
    // after it.
    unsafe { kernel.submit(device, launch, &arguments) }
}

fn kernel_for<T>(len: usize) -> (String, Option<Launch>) {
    (format!("swap_bytes_{}", size_of::<T>()), Launch::over(len.div_ceil(THREAD_BYTES / size_of::<T>())))
}

fn cpu<T: Pod>(data: &mut [T]) {
    data.iter_mut().for_each(|element| bytemuck::bytes_of_mut(element).reverse());
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;
    use proptest::prelude::*;

    use super::super::harness::HARNESS;
    use super::*;

    fn check<T: Pod + PartialEq + std::fmt::Debug>(values: &[T]) {
        let (mut expected, mut found) = (values.to_vec(), values.to_vec());
        cpu(&mut expected);
        let (name, launch) = kernel_for::<T>(values.len());
        HARNESS.run(&name, launch, &mut [Arg::from(&mut found[..]), Arg::from(values.len() as u64)]);
        assert_eq!(found, expected, "{} elements", values.len());
    }

    #[test]
    fn bytes_are_turned_around() {
        let scope = Device::cpu().scope("test");
        let mut data = Buffer::from_slice(&scope, &[1.0f32, -2.5]).unwrap();
        swap_bytes(&mut data).unwrap();
        let bits: Vec<u32> = data.as_slice().iter().map(|value| value.to_bits()).collect();
        assert_eq!(bits, [1.0f32.to_bits().swap_bytes(), (-2.5f32).to_bits().swap_bytes()]);
    }

    #[test]
    fn kernels_take_every_length_around_a_vector_and_a_block() {
        for len in (0..20).chain([2047, 2048, 2049]) {
            let words: Vec<u64> = (0..len).map(|k: u64| k.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            check(&words);
            check(&words.iter().map(|&word| word as u32).collect::<Vec<_>>());
            check(&words.iter().map(|&word| word as u16).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn kernels_turn_any_bits(words in prop::collection::vec(any::<u64>(), 0..300)) {
            check::<u64>(&words);
            check::<u32>(bytemuck::cast_slice(&words));
            check::<u16>(bytemuck::cast_slice(&words));
        }
    }
}
