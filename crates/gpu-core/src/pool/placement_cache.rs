//! Cache of placements: why a repeated step makes no driver call.
//!
//! Between two step boundaries the pool notes, of every allocation, a *key* and the *placement*
//! that was given. The key digests what lives at that moment (address, size and stream of every
//! live block) and the request. When a later step comes to the same key as a noted one at the same
//! index, and the placement is free, the block gets that very placement; otherwise the usual search
//! runs.
//!
//! **Claim.** Let a step begin with the same live blocks at the same addresses as an earlier step
//! among the last few noted, and make the same requests and frees in the same order; and let
//! nothing have been unmapped since, and no slab of those live blocks have lost slots. Then every
//! block gets the address that it had, no granule is created, and nothing is mapped or unmapped.
//!
//! *Proof* by induction over the allocations. Before allocation k both steps have the same live
//! blocks at the same addresses: at the start by assumption, then because the earlier allocations
//! got the same placements and the frees are the same. So the key is the same and the note is
//! found. In the earlier step the placement was free at this point, which means that no live block
//! overlapped it and its granules existed; the same blocks live now, and granules vanish only when
//! the cache is emptied. A placement in a view is also still mapped: views are unmapped only when
//! the cache is emptied or, least recently used first, when a new one would pass the limit, and the
//! repeated step makes no new one. So the placement is given, and nothing is asked of the driver.
//! Afterwards the same blocks live at the same addresses, and the
//! next step begins as this one did. ∎
//!
//! A first step of training makes what stays (the optimizer's state); the second begins with all
//! that and ends with the same blocks; the third begins as the second did. So from the third
//! repetition on nothing is called. What is left is an order of streams where one takes over memory
//! that another used within the step: that is the price of sharing, and it is paid each time.
//!
//! Several steps are kept, so that steps of training and of evaluation may alternate, and blocks
//! may be kept over a boundary in turns. What is kept is bounded: steps of more than [`NOTES_MAX`]
//! allocations are searched as usual from there on.

/// Most notes of a step: 8 MiB.
pub(super) const NOTES_MAX: usize = 1 << 18;
/// Number of steps that are kept.
const STEPS: usize = 4;

/// Former place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPlacement {
    pub(super) address: u64,
    pub(super) kind: PlacementKind,
}

/// Kind of a block's placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacementKind {
    Whole,
    Slot,
    View(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    key: u64,
    placement: BlockPlacement,
}

/// Placements of the last steps; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct PlacementCache {
    /// Digest of the live blocks.
    live: u64,
    /// The last steps, each with the time of its last use on `clock`.
    steps: Vec<(u64, Vec<Note>)>,
    clock: u64,
    /// The step that the current one was last found to repeat.
    following: usize,
    /// True if all notes of the current step so far equal those of that step.
    repeats: bool,
    now: Vec<Note>,
}

impl PlacementCache {
    /// The key of a request, given the blocks that are live now.
    pub(super) fn key(&self, bytes: usize, tag: usize) -> u64 {
        self.live ^ (bytes as u64).wrapping_mul(ODD) ^ (tag as u64).rotate_left(56)
    }

    /// Placement of the block of this key in an earlier step.
    pub(super) fn reuse(&mut self, key: u64) -> Option<BlockPlacement> {
        let index = self.now.len();
        let noted =
            |(_, notes): &(u64, Vec<Note>)| notes.get(index).filter(|note| note.key == key).map(|note| note.placement);
        if let Some(placement) = self.steps.get(self.following).and_then(noted) {
            return Some(placement);
        }
        // Equal keys mean equal blocks so far, so that a step which agrees here may as well be
        // followed from its beginning.
        let step = self.steps.iter().position(|step| noted(step).is_some())?;
        self.following = step;
        self.repeats = self.steps[step].1[..index] == self.now[..];
        noted(&self.steps[step])
    }

    /// Notes the placement of the block that was just allocated.
    pub(super) fn note(&mut self, key: u64, placement: BlockPlacement) {
        let index = self.now.len();
        if index < NOTES_MAX {
            let note = Note { key, placement };
            self.repeats &= self.steps.get(self.following).and_then(|(_, notes)| notes.get(index)) == Some(&note);
            self.now.push(note);
        }
    }

    /// Ends the current step and begins the next.
    pub(super) fn end_step(&mut self) {
        self.clock += 1;
        let notes = self.steps.get(self.following).map(|(_, notes)| notes.len());
        if !self.repeats || notes != Some(self.now.len()) {
            self.following = self.slot_for_new_step();
            std::mem::swap(&mut self.steps[self.following].1, &mut self.now);
        }
        self.steps[self.following].0 = self.clock;
        self.now.clear();
        self.repeats = true;
    }

    fn slot_for_new_step(&mut self) -> usize {
        if self.steps.len() < STEPS {
            self.steps.push((0, Vec::new()));
            return self.steps.len() - 1;
        }
        (0..STEPS).min_by_key(|&step| self.steps[step].0).expect("steps are kept")
    }

    /// Adds a block to the digest of live blocks.
    pub(super) fn add_block(&mut self, address: u64, bytes: usize, tag: usize) {
        self.live = self.live.wrapping_add(digest(address, bytes, tag));
    }

    /// Removes a block from the digest of live blocks.
    pub(super) fn remove_block(&mut self, address: u64, bytes: usize, tag: usize) {
        self.live = self.live.wrapping_sub(digest(address, bytes, tag));
    }

    /// The digest of the live blocks.
    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn live(&self) -> u64 {
        self.live
    }
}

/// 2^64 divided by the golden ratio: odd, and its bits look random.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The digest of one block; a set's digest is the sum of its blocks' digests. Two multiplications
/// let every bit of address, size and stream reach every bit of the sum. Should two sets share a
/// digest all the same, a placement is tried in vain.
pub(super) fn digest(address: u64, bytes: usize, tag: usize) -> u64 {
    let x = (address ^ (bytes as u64).rotate_left(24) ^ (tag as u64).rotate_left(56)).wrapping_mul(ODD);
    (x ^ (x >> 32)).wrapping_mul(ODD)
}
