//! The shuffle filter undone where values cannot be converted meanwhile: before it other filters
//! were applied, or its elements are not the dataset's. No usual file has it so.
#![forbid(unsafe_code)]

use super::scratch::Scratch;

/// Puts the bytes of elements together; returns how many bytes there are, which is as many as
/// before. Those left over where the length is no multiple of `element_bytes` were not shuffled.
pub(super) fn undo(element_bytes: usize, from: &[u8], to: &mut Scratch) -> usize {
    let to = to.provide(from.len());
    let elements = from.len() / element_bytes;
    let (planes, rest) = from.split_at(elements * element_bytes);
    for (byte, plane) in planes.chunks_exact(elements.max(1)).enumerate() {
        to[byte..].iter_mut().step_by(element_bytes).zip(plane).for_each(|(to, &from)| *to = from);
    }
    to[planes.len()..].copy_from_slice(rest);
    from.len()
}
