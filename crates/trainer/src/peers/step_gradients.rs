//! Gradients of a rank's blocks of a step. Threads give them group by group while the relay takes
//! those that are complete.
//!
//! ```text
//! rank 0      the sum so far, to which blocks are added in their order; one that comes before its
//!             turn is held until then
//! rank r      every block, until the sum of the ranks before arrives
//! ```

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard};

use megabatch_amp::first_non_finite;

use super::floats::{from_bytes, to_bytes_in};

/// A rank's blocks of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnBlocks {
    /// True for the rank whose blocks come first in the sum.
    pub(crate) is_first: bool,
    /// Blocks whose gradients are in their place already.
    pub(crate) done: usize,
    /// Blocks that are given in their order, including those that are done; the others come in any
    /// order.
    pub(crate) in_turn: usize,
    /// All blocks.
    pub(crate) count: usize,
}

impl OwnBlocks {
    /// Blocks that need memory besides the sum.
    pub(crate) fn held(&self) -> usize {
        if self.is_first { (self.count - self.in_turn).saturating_sub(1) } else { self.count }
    }
}

/// Part of a group that lies in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    group: usize,
    /// Place in the group.
    range: Range<usize>,
}

/// One message of the relay: consecutive numbers in the order of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    segments: Vec<Segment>,
    pub(crate) len: usize,
}

/// The pieces of `piece_len` numbers of groups of `lens`; the last may be shorter.
pub(crate) fn pieces(lens: impl Iterator<Item = usize>, piece_len: usize) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (group, len) in lens.enumerate() {
        let mut start = 0;
        while start < len {
            if pieces.last().is_none_or(|piece| piece.len == piece_len) {
                pieces.push(Piece::default());
            }
            let piece = pieces.last_mut().expect("one was pushed");
            let end = len.min(start + piece_len - piece.len);
            piece.segments.push(Segment { group, range: start..end });
            piece.len += end - start;
            start = end;
        }
    }
    pieces
}

/// One group of parameters.
#[derive(Debug)]
struct Group<'a> {
    sum: &'a mut [f32],
    held: Vec<&'a mut [f32]>,
    /// On rank 0: the number of blocks in the sum.
    added: usize,
    /// On rank 0: true for blocks that are held.
    is_held: Vec<bool>,
}

/// Outcome of a rank's part of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// The loss sum of each block and its terms.
    pub(crate) losses: Vec<(f64, u64)>,
    /// True if the rank failed.
    pub(crate) failed: bool,
}

#[derive(Debug)]
struct Progress {
    /// Blocks that have not been given, by group.
    left: Vec<usize>,
    /// The first block with a gradient that is not finite, and the gradient's place; on rank 0,
    /// which checks sums, always block 0.
    non_finite: Option<(usize, usize)>,
    outcome: Option<Outcome>,
}

/// Gradients of a rank's blocks, shared by the threads that compute and the relay.
#[derive(Debug)]
pub(crate) struct StepGradients<'a> {
    blocks: OwnBlocks,
    /// Places of the groups, in the order of the relay.
    places: &'a [Range<usize>],
    groups: Vec<Mutex<Group<'a>>>,
    pieces: Vec<Piece>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

const LOCK: &str = "nobody panics with the lock held";

impl<'a> StepGradients<'a> {
    /// Gradients with the blocks that are done: in `sum` on rank 0, in `held` on other ranks. Both
    /// have the length of the groups at `places` together, which are cut into pieces of `piece_len`
    /// numbers.
    pub(crate) fn new(
        blocks: OwnBlocks,
        places: &'a [Range<usize>],
        piece_len: usize,
        sum: &'a mut [f32],
        held: impl Iterator<Item = &'a mut [f32]>,
    ) -> Self {
        let mut groups: Vec<_> = split(sum, places).into_iter().map(|sum| (sum, Vec::new())).collect();
        for block in held.take(blocks.held()) {
            let parts = split(block, places).into_iter().zip(&mut groups);
            parts.for_each(|(part, (_, held))| held.push(part));
        }
        let left = blocks.count - blocks.done;
        let group = |(sum, held): (_, Vec<_>)| {
            assert_eq!(held.len(), blocks.held(), "memory for all blocks");
            Mutex::new(Group { sum, added: blocks.done, is_held: vec![false; held.len()], held })
        };
        StepGradients {
            places,
            groups: groups.into_iter().map(group).collect(),
            pieces: pieces(places.iter().map(ExactSizeIterator::len), piece_len),
            progress: Mutex::new(Progress { left: vec![left; places.len()], non_finite: None, outcome: None }),
            changed: Condvar::new(),
            blocks,
        }
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Takes all gradients of `block`.
    pub(crate) fn give_block(&self, block: usize, gradients: &[f32]) {
        self.places.iter().enumerate().for_each(|(group, place)| self.give(block, group, &gradients[place.clone()]));
    }

    /// Takes the gradients of `block` at `place`, one of the groups'.
    pub(crate) fn give_place(&self, block: usize, place: &Range<usize>, gradients: &[f32]) {
        let group = self.places.iter().position(|own| own == place).expect("a place of a group");
        self.give(block, group, gradients);
    }

    fn give(&self, block: usize, group: usize, gradients: &[f32]) {
        let mut state = self.groups[group].lock().expect(LOCK);
        let bad = if self.blocks.is_first {
            state.add_in_turn(block, self.blocks.in_turn, gradients);
            let is_whole = state.added == self.blocks.count;
            if is_whole { first_non_finite(state.sum).map(|index| (0, index)) } else { None }
        } else {
            state.held[block].copy_from_slice(gradients);
            first_non_finite(gradients).map(|index| (block, index))
        };
        drop(state);
        let bad = bad.map(|(block, index)| (block, self.places[group].start + index));
        let mut progress = self.progress.lock().expect(LOCK);
        progress.non_finite = progress.non_finite.into_iter().chain(bad).min();
        progress.left[group] -= 1;
        if progress.left[group] == 0 {
            self.changed.notify_all();
        }
    }

    /// Place of the first gradient that is not finite, in the order of blocks, after all are given;
    /// on rank 0, in their sum.
    pub(crate) fn first_non_finite(&self) -> Option<usize> {
        self.progress.lock().expect(LOCK).non_finite.map(|(_, index)| index)
    }

    /// Ends this rank's part: nothing more is given.
    pub(crate) fn finish(&self, outcome: Outcome) {
        self.progress.lock().expect(LOCK).outcome = Some(outcome);
        self.changed.notify_all();
    }

    /// Ends this rank's part as failed if it has not ended when the answer is dropped.
    pub(crate) fn failed_on_drop(&self) -> FailedOnDrop<'_, 'a> {
        FailedOnDrop(self)
    }

    /// The end of this rank's part.
    pub(super) fn outcome(&self) -> Outcome {
        self.wait(|progress| progress.outcome.clone())
    }

    /// Waits until this rank's gradients in `piece` are complete, or the part has ended.
    pub(super) fn wait_for(&self, piece: &Piece) {
        self.wait(|progress| {
            let are_there = piece.segments.iter().all(|segment| progress.left[segment.group] == 0);
            (are_there || progress.outcome.is_some()).then_some(())
        });
    }

    fn wait<T>(&self, mut ready: impl FnMut(&Progress) -> Option<T>) -> T {
        let mut progress: MutexGuard<'_, Progress> = self.progress.lock().expect(LOCK);
        loop {
            if let Some(answer) = ready(&progress) {
                return answer;
            }
            progress = self.changed.wait(progress).expect(LOCK);
        }
    }

    /// Adds this rank's blocks to `message`, which has the sum of the previous ranks in `piece`; on
    /// rank 0, the message becomes the sum of its own blocks.
    pub(super) fn add_to(&self, piece: &Piece, message: &mut [u8]) {
        self.each_part(piece, message, |group, range, message| {
            if !self.blocks.is_first {
                from_bytes(message, &mut group.sum[range.clone()]);
                for block in &group.held {
                    add(&mut group.sum[range.clone()], &block[range.clone()]);
                }
            }
            to_bytes_in(&group.sum[range], message);
        });
    }

    /// Puts the sum of all ranks in `piece` into its place.
    pub(super) fn put(&self, piece: &Piece, message: &mut [u8]) {
        self.each_part(piece, message, |group, range, message| from_bytes(message, &mut group.sum[range]));
    }

    fn each_part(&self, piece: &Piece, message: &mut [u8], work: impl Fn(&mut Group<'a>, Range<usize>, &mut [u8])) {
        let mut rest = message;
        for Segment { group, range } in &piece.segments {
            let (part, others) = rest.split_at_mut(4 * range.len());
            work(&mut self.groups[*group].lock().expect(LOCK), range.clone(), part);
            rest = others;
        }
    }
}

/// See [`StepGradients::failed_on_drop`].
pub(crate) struct FailedOnDrop<'s, 'a>(&'s StepGradients<'a>);

impl Drop for FailedOnDrop<'_, '_> {
    fn drop(&mut self) {
        if let Ok(mut progress) = self.0.progress.lock() {
            progress.outcome.get_or_insert(Outcome { losses: Vec::new(), failed: true });
        }
        self.0.changed.notify_all();
    }
}

impl Group<'_> {
    /// Adds `block` to the sum if all blocks before it are there, and then the held ones that
    /// follow; else holds it. Blocks before `in_turn` are never held.
    fn add_in_turn(&mut self, block: usize, in_turn: usize, gradients: &[f32]) {
        if block != self.added {
            let place = block - in_turn - 1;
            self.held[place].copy_from_slice(gradients);
            self.is_held[place] = true;
            return;
        }
        add(self.sum, gradients);
        self.added += 1;
        while let Some(place) = self.added.checked_sub(in_turn + 1)
            && self.is_held.get(place) == Some(&true)
        {
            add(self.sum, self.held[place]);
            self.added += 1;
        }
    }
}

fn add(sums: &mut [f32], terms: &[f32]) {
    sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += *term);
}

/// The parts of `values` at `places`, which cover every number once.
fn split<'a>(values: &'a mut [f32], places: &[Range<usize>]) -> Vec<&'a mut [f32]> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&group| places[group].start);
    let (mut rest, mut end) = (values, 0);
    let mut parts: Vec<&mut [f32]> = places.iter().map(|_| Default::default()).collect();
    for group in order {
        assert_eq!(places[group].start, end, "groups have every number once");
        end = places[group].end;
        (parts[group], rest) = rest.split_at_mut(places[group].len());
    }
    assert!(rest.is_empty(), "groups have all numbers");
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_go_on_across_groups() {
        let piece_texts = |lens: &[usize], piece_len| {
            let texts = pieces(lens.iter().copied(), piece_len).into_iter().map(|piece| {
                let segment_text = |segment: &Segment| format!("{}:{:?}", segment.group, segment.range);
                format!("{} = {}", piece.len, piece.segments.iter().map(segment_text).collect::<Vec<_>>().join(" "))
            });
            texts.collect::<Vec<_>>()
        };
        assert_eq!(piece_texts(&[2, 5, 1, 3], 4), ["4 = 0:0..2 1:0..2", "4 = 1:2..5 2:0..1", "3 = 3:0..3"]);
        assert_eq!(piece_texts(&[8], 4), ["4 = 0:0..4", "4 = 0:4..8"]);
        assert_eq!(piece_texts(&[3], 4), ["3 = 0:0..3"]);
        assert!(piece_texts(&[], 4).is_empty());
    }

    #[test]
    fn blocks_of_the_first_rank_are_added_in_their_order() {
        let numbers = [1.0, 1e8, -1e8, 0.25, 3.0];
        let expected = numbers.iter().fold(0.5f32, |sum, number| sum + number);
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3], [0, 2, 1, 4, 3]] {
            let (mut sum, mut held) = ([0.5, 0.5], vec![[f32::NAN; 2]; 4]);
            let blocks = OwnBlocks { is_first: true, done: 1, in_turn: 2, count: 7 };
            let places = [1..2, 0..1];
            let own = StepGradients::new(blocks, &places, 1, &mut sum, held.iter_mut().map(<[f32; 2]>::as_mut_slice));
            own.give_block(1, &[0.0; 2]);
            for block in order {
                own.give_block(2 + block, &[numbers[block]; 2]);
            }
            assert_eq!(own.first_non_finite(), None);
            drop(own);
            assert_eq!(sum.map(f32::to_bits), [expected.to_bits(); 2], "{order:?}");
        }
    }

    #[test]
    fn the_first_gradient_that_is_not_finite_is_that_of_the_first_block() {
        let places = [2..4, 0..2];
        for (is_first, expected) in [(false, 3), (true, 1)] {
            let (mut sum, mut held) = ([0.0; 4], vec![[0.0; 4]; 2]);
            let blocks = OwnBlocks { is_first, done: 0, in_turn: 0, count: 2 };
            let held = held.iter_mut().map(<[f32; 4]>::as_mut_slice);
            let own = StepGradients::new(blocks, &places, 1, &mut sum, held);
            own.give_place(1, &(0..2), &[0.0, f32::NAN]);
            own.give_place(1, &(2..4), &[0.0, 0.0]);
            own.give_place(0, &(2..4), &[0.0, f32::INFINITY]);
            own.give_place(0, &(0..2), &[0.0, 0.0]);
            assert_eq!(own.first_non_finite(), Some(expected));
        }
    }
}
