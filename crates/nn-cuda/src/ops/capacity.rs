//! Buffers that are used again and again for as much as a batch takes.

use bytemuck::Pod;
use megabatch_gpu_core::Buffer;
use megabatch_nn::Result;

/// Ensures that `buffer` has room for `len` elements. Where it has to grow, what it held is
/// lost. It gets no more than is asked for: a run takes what its largest batch takes, as was
/// planned.
pub(crate) fn ensure_capacity<T: Pod>(buffer: &mut Buffer<T>, len: usize) -> Result<()> {
    if buffer.len() < len {
        let scope = buffer.scope().clone();
        // Given back before the new memory is taken.
        *buffer = Buffer::zeros(&scope, 0)?;
        *buffer = Buffer::zeros(&scope, len)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;

    use super::*;

    #[test]
    fn a_buffer_grows_where_it_has_to() {
        let mut buffer = Buffer::<u8>::zeros(&Device::cpu().scope("test"), 0).unwrap();
        let lens = [3, 2, 80, 90, 89].map(|len| {
            ensure_capacity(&mut buffer, len).unwrap();
            buffer.len()
        });
        assert_eq!(lens, [3, 3, 80, 90, 90]);
    }
}
