//! A training run that ended at its fifth epoch with memory enough and none to be had.

use super::random::Random;
use super::tape::Tape;
use super::{KIB, MIB, Pattern};

/// Its figures in bytes. The report gave them in GiB with two decimals; here they are whole pages
/// of 2 MiB but for the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FieldCase {
    /// 44.18 GiB: a card of 44.53 GiB without the memory of the context and of other processes.
    pub(super) capacity_bytes: usize,
    /// 36.78 GiB.
    pub(super) allocated_bytes: usize,
    /// 3.56 GiB in segments that each hold a live block.
    pub(super) unusable_bytes: usize,
    /// 4.15 GiB.
    pub(super) requested_bytes: usize,
}

const PAGE_BYTES: usize = 2 * MIB;

/// The figures.
pub(super) const FIELD_CASE: FieldCase = FieldCase {
    // 44.18 GiB.
    capacity_bytes: 4418 * (1 << 30) / 100,
    allocated_bytes: 18_831 * PAGE_BYTES,
    unusable_bytes: 1_823 * PAGE_BYTES,
    requested_bytes: 2_125 * PAGE_BYTES,
};

pub(super) const PATTERN: Pattern = Pattern {
    capacity_bytes: FIELD_CASE.capacity_bytes,
    ..Pattern::roomy(
        "field-case",
        "44.18 GiB, 36.78 allocated, 3.56 in holes, 3.84 free: a request of 4.15 GiB",
        field_case,
    )
};

/// Layers whose activations are saved.
const LAYERS: usize = 12;

/// Weights and optimizer, then an epoch with long windows whose activations, a little smaller from
/// layer to layer, are freed. In the next epoch, with shorter windows, each layer's activations are
/// cut from the segment that its long ones left, and its workspace is what remains of that. The
/// workspaces go, and the buffer for attention over all layers is asked for.
fn field_case(tape: &mut Tape, _: &mut Random) {
    let FieldCase { allocated_bytes, unusable_bytes, requested_bytes, .. } = FIELD_CASE;
    let small = vec![4 * KIB; PAGE_BYTES / (4 * KIB)];
    let mut held = tape.alloc_all(small);

    let (long, short) = activations(unusable_bytes);
    let weights_bytes = allocated_bytes - PAGE_BYTES - short.iter().sum::<usize>();
    // Weights and the two moments of Adam: three blocks of each of eight sizes, and one of what
    // remains.
    let weight_bytes = weights_bytes / 25 / PAGE_BYTES * PAGE_BYTES;
    let mut weights = vec![weight_bytes; 24];
    weights.push(weights_bytes - 24 * weight_bytes);
    held.extend(tape.alloc_all(weights));

    let epoch = tape.alloc_all(long.iter().copied());
    tape.step();
    tape.free_all(epoch);
    let mut workspaces = Vec::new();
    for (long, short) in long.into_iter().zip(short) {
        held.push(tape.alloc(short));
        workspaces.push(tape.alloc(long - short));
    }
    tape.free_all(workspaces);
    tape.step();
    let request = tape.alloc(requested_bytes);
    tape.free(request);
    tape.free_all(held);
}

/// Bytes of the activations with long windows and with short ones, by layer. Each is smaller than
/// the one before, and a short one larger than the long one of the next layer, and than what short
/// ones leave of a segment: the best fit for each is the segment of its own layer. What the short
/// ones leave is `holes_bytes` in all.
fn activations(holes_bytes: usize) -> (Vec<usize>, Vec<usize>) {
    let hole_bytes = holes_bytes / LAYERS / PAGE_BYTES * PAGE_BYTES;
    let long: Vec<usize> = (0..LAYERS).rev().map(|layer| 640 * MIB + layer * (hole_bytes + 4 * MIB)).collect();
    let mut short: Vec<usize> = long.iter().map(|bytes| bytes - hole_bytes).collect();
    // What division leaves is a hole of its own in the last layer, which has no next one.
    short[LAYERS - 1] -= holes_bytes - LAYERS * hole_bytes;
    (long, short)
}
