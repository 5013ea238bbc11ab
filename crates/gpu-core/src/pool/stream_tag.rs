//! Tags of streams.

use crate::source::StreamId;

/// The stream whose outstanding work free memory must be ordered after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Tag(u32);

impl Tag {
    /// No work is outstanding on the memory.
    pub(super) const IDLE: Tag = Tag(0);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    /// The tag of two neighbouring free ranges joined, if one order suffices for both.
    pub(super) fn joined(self, other: Tag) -> Option<Tag> {
        (self == other || self == Tag::IDLE || other == Tag::IDLE).then_some(self.max(other))
    }

    /// True if the stream `user` may use memory of this tag without an order.
    pub(super) fn serves(self, user: Tag) -> bool {
        self == user || self == Tag::IDLE
    }
}

/// The streams that the pool has seen, each with a tag; a linear search suffices.
#[derive(Debug, Default)]
pub(super) struct StreamTags(Vec<StreamId>);

impl StreamTags {
    pub(super) fn tag(&mut self, stream: StreamId) -> Tag {
        let known = self.0.iter().position(|&known| known == stream);
        let index = known.unwrap_or_else(|| {
            self.0.push(stream);
            self.0.len() - 1
        });
        Tag(index as u32 + 1)
    }

    /// The stream of a tag; the default stream for idle memory.
    pub(super) fn stream(&self, tag: Tag) -> StreamId {
        tag.index().checked_sub(1).map_or(StreamId::default(), |index| self.0[index])
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Tag> + use<> {
        (1..=self.0.len() as u32).map(Tag)
    }
}
