//! Which colour stands for whose memory, the same in every picture of a page.

use std::collections::BTreeMap;
use std::sync::Arc;

use megabatch_gpu_core::snapshot::{BlockState, Snapshot};

/// Colours of owners; the others share the one after them.
const OWNERS_MAX: usize = 6;
pub(super) const OTHERS: usize = OWNERS_MAX;
/// The style sheet's colours for memory that is nobody's.
pub(super) const FREE: usize = 7;
pub(super) const LENT: usize = 8;

/// The owners that have a colour of their own, the largest first.
pub(super) struct Palette {
    owners: Vec<Arc<str>>,
}

impl Palette {
    /// Colours for those who held most, in the snapshot or at any time before.
    pub(super) fn from_snapshot(snapshot: &Snapshot) -> Self {
        let mut most: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for block in snapshot.blocks().filter(|block| block.state == BlockState::Live) {
            *most.entry(block.owner.clone().unwrap_or_default()).or_default() += block.bytes;
        }
        let timeline = &snapshot.timeline;
        for level in timeline.spans.iter().map(|span| &span.peak) {
            for (owner, &bytes) in timeline.owners.iter().zip(&level.owners_bytes) {
                let most = most.entry(Arc::clone(owner)).or_default();
                *most = bytes.max(*most);
            }
        }
        let mut ranked: Vec<(Arc<str>, usize)> = most.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        ranked.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Palette { owners: ranked.into_iter().map(|(owner, _)| owner).collect() }
    }

    /// The colour of `owner`'s memory.
    pub(super) fn color(&self, owner: &str) -> usize {
        self.owners.iter().take(OWNERS_MAX).position(|known| **known == *owner).unwrap_or(OTHERS)
    }

    /// Colour and name of each owner, and of the others where there are any.
    pub(super) fn entries(&self) -> Vec<(usize, String)> {
        let own = self.owners.iter().take(OWNERS_MAX).enumerate().map(|(color, owner)| (color, owner.to_string()));
        let others = (self.owners.len() > OWNERS_MAX).then(|| (OTHERS, "others".to_owned()));
        own.chain(others).collect()
    }
}
