//! Views: second addresses of granules, at which pieces from anywhere in the main segment lie side
//! by side.
//!
//! A view does not say who uses which byte; only the tiles of the main segment do. It serves a
//! block when the pieces that the block would have are free in the main segment. A view without a
//! live block is *dormant*: it stays mapped, and costs no driver call when it is used again.

use std::collections::{BTreeMap, BTreeSet};

use super::ByteRange;
use super::granule_set::GranuleSet;

/// Marks a granule of a view that was given back.
pub(super) const GONE: u32 = u32::MAX;

/// Granules mapped side by side.
#[derive(Debug)]
pub(super) struct View {
    pub(super) address: u64,
    /// The main-segment slot of each granule, or [`GONE`].
    pub(super) slots: Vec<u32>,
    /// Live blocks in it.
    pub(super) live: usize,
    /// Time at which a block last entered or left it.
    used: u64,
}

impl View {
    /// The pieces of the main segment that `bytes` of the view are, joined where they follow each
    /// other; `None` if a granule is gone.
    pub(super) fn pieces(&self, bytes: &ByteRange, granule_shift: u32) -> Option<Vec<ByteRange>> {
        let mut pieces: Vec<ByteRange> = Vec::new();
        let mut cursor = bytes.start;
        while cursor < bytes.end {
            let index = cursor >> granule_shift;
            let slot = self.slots[index];
            if slot == GONE {
                return None;
            }
            let end = bytes.end.min((index + 1) << granule_shift);
            let start = ((slot as usize) << granule_shift) + cursor - (index << granule_shift);
            push_joined(&mut pieces, start..start + end - cursor);
            cursor = end;
        }
        Some(pieces)
    }
}

/// Adds a range, as a part of the last one if it follows that.
pub(super) fn push_joined(ranges: &mut Vec<ByteRange>, range: ByteRange) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// All views of a pool.
#[derive(Debug, Default)]
pub(super) struct AliasViews {
    views: Vec<Option<View>>,
    vacant: Vec<u32>,
    /// Dormant views, least recently used first.
    dormant: BTreeMap<u64, u32>,
    /// Dormant views by granules, oldest name first among equals.
    by_size: BTreeSet<(usize, u32)>,
    clock: u64,
    /// Granules mapped in all views.
    mapped: usize,
}

impl AliasViews {
    pub(super) fn get(&self, view: u32) -> &View {
        self.views[view as usize].as_ref().expect("blocks name views that exist")
    }

    pub(super) fn try_get(&self, view: u32) -> Option<&View> {
        self.views.get(view as usize)?.as_ref()
    }

    /// Granules mapped in all views.
    pub(super) fn mapped(&self) -> usize {
        self.mapped
    }

    /// Adds a view that is mapped and still dormant.
    pub(super) fn add(&mut self, address: u64, slots: Vec<u32>) -> u32 {
        self.mapped += slots.len();
        let view = Some(View { address, slots, live: 0, used: 0 });
        let index = if let Some(index) = self.vacant.pop() {
            self.views[index as usize] = view;
            index
        } else {
            self.views.push(view);
            self.views.len() as u32 - 1
        };
        self.sleep(index);
        index
    }

    /// Takes a dormant view away; the caller unmaps it.
    pub(super) fn remove(&mut self, index: u32) -> View {
        self.wake(index);
        let view = self.views[index as usize].take().expect("the view exists");
        self.vacant.push(index);
        self.mapped -= view.slots.iter().filter(|&&slot| slot != GONE).count();
        view
    }

    /// Counts a new block in a view.
    pub(super) fn add_block(&mut self, index: u32) {
        if self.get(index).live == 0 {
            self.wake(index);
        }
        self.views[index as usize].as_mut().expect("the view exists").live += 1;
    }

    /// Counts a block of a view as freed.
    pub(super) fn remove_block(&mut self, index: u32) {
        let view = self.views[index as usize].as_mut().expect("the view exists");
        view.live -= 1;
        if view.live == 0 {
            self.sleep(index);
        }
    }

    /// Forgets the granules that are `gone` in a view that is in use otherwise; returns which they
    /// were in it, for the caller to unmap.
    pub(super) fn forget_granules(&mut self, index: u32, gone: &GranuleSet) -> Vec<usize> {
        let view = self.views[index as usize].as_mut().expect("the view exists");
        let is_gone = |slot: u32| slot != GONE && gone.contains(slot as usize);
        let lost: Vec<usize> = (0..view.slots.len()).filter(|&k| is_gone(view.slots[k])).collect();
        lost.iter().for_each(|&k| view.slots[k] = GONE);
        self.mapped -= lost.len();
        lost
    }

    /// The dormant view that was used least recently.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.dormant.first_key_value().map(|(_, &view)| view)
    }

    /// Dormant views of at least `granules`, from small to large.
    pub(super) fn dormant_from(&self, granules: usize) -> impl Iterator<Item = u32> {
        self.by_size.range((granules, 0)..).map(|&(_, view)| view)
    }

    /// All views by index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &View)> {
        (0..).zip(&self.views).filter_map(|(index, view)| Some((index, view.as_ref()?)))
    }

    pub(super) fn is_dormant(&self, index: u32) -> bool {
        self.dormant.get(&self.get(index).used) == Some(&index)
    }

    fn sleep(&mut self, index: u32) {
        self.clock += 1;
        let view = self.views[index as usize].as_mut().expect("the view exists");
        view.used = self.clock;
        self.dormant.insert(view.used, index);
        self.by_size.insert((view.slots.len(), index));
    }

    fn wake(&mut self, index: u32) {
        let view = self.views[index as usize].as_ref().expect("the view exists");
        self.dormant.remove(&view.used);
        self.by_size.remove(&(view.slots.len(), index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_where_granules_follow_each_other() {
        let view = View { address: 0, slots: vec![7, 8, 2, GONE], live: 0, used: 0 };
        for (bytes, pieces) in [
            (0..4096, Some(&[(28672, 32768)][..])),
            (512..1024, Some(&[(29184, 29696)])),
            (0..12288, Some(&[(28672, 36864), (8192, 12288)])),
            (512..8704, Some(&[(29184, 36864), (8192, 8704)])),
            (8192..12800, None),
        ] {
            let expected = pieces.map(|pieces| pieces.iter().map(|&(start, end)| start..end).collect());
            assert_eq!(view.pieces(&bytes, 12), expected, "{bytes:?}");
        }
    }

    #[test]
    fn the_view_that_rested_longest_is_the_oldest() {
        let mut views = AliasViews::default();
        let [a, b, c] = [3, 2, 3].map(|granules| views.add(0, vec![0; granules]));
        views.add_block(a);
        assert_eq!(views.oldest(), Some(b));
        views.add_block(b);
        views.remove_block(a);
        assert_eq!(views.oldest(), Some(c));
        assert_eq!(views.dormant_from(2).collect::<Vec<_>>(), [a, c]);
        assert_eq!(views.remove(c).slots.len(), 3);
        assert_eq!((views.oldest(), views.mapped()), (Some(a), 5));
        let mut gone = GranuleSet::default();
        gone.insert(0);
        assert_eq!(views.forget_granules(b, &gone), [0, 1]);
        assert_eq!(views.mapped(), 3);
    }
}
