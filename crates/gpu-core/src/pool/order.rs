//! Streams: memory freed on one may serve another only once the other is ordered after it.

#![forbid(unsafe_code)]

use super::Pool;
use super::live_blocks::{BlockLocation, PendingRequest};
use crate::source::{Refusal, StreamId};

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

impl Pool {
    /// Fallback: makes free memory of other streams usable. First that of idle streams; then, by an
    /// event wait on the device, that of the first stream with enough; then that of all.
    ///
    /// All of a stream's memory is taken over at once, since one wait covers it.
    pub(super) fn share(&mut self, pending: &PendingRequest) -> Result<Option<BlockLocation>, Refusal> {
        let others = |pool: &Pool| -> Vec<Tag> {
            let filled = |tag: &Tag| !pool.main.bins()[tag.index()].is_empty();
            pool.streams.all().filter(|&tag| tag != pending.tag).filter(filled).collect()
        };
        for tag in others(self) {
            if self.source.is_idle(self.streams.stream(tag)) {
                self.main.retag(tag, Tag::IDLE);
            }
        }
        if let Some(place) = self.fit(pending) {
            return Ok(Some(place));
        }
        let enough =
            |pool: &Pool, tag: &Tag| pool.main.fit(pending.contiguous_bytes(pool.main.granule_bytes()), *tag).is_some();
        let (first, rest): (Vec<_>, Vec<_>) = others(self).into_iter().partition(|tag| enough(self, tag));
        for tag in first.into_iter().chain(rest) {
            self.adopt(tag, pending.tag)?;
            if let Some(place) = self.fit(pending) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Gives all free memory of `owner` to `taker`, ordered after the work that `owner` still has
    /// to do.
    pub(super) fn adopt(&mut self, owner: Tag, taker: Tag) -> Result<(), Refusal> {
        let (awaited, waiting) = (self.streams.stream(owner), self.streams.stream(taker));
        if self.source.is_idle(awaited) {
            self.main.retag(owner, Tag::IDLE);
            return Ok(());
        }
        self.source.order(waiting, awaited)?;
        self.main.retag(owner, taker);
        Ok(())
    }

    /// Waits for all work; all free memory is idle then.
    pub(super) fn synchronize(&mut self) -> Result<(), Refusal> {
        self.source.synchronize()?;
        for tag in self.streams.all() {
            self.main.retag(tag, Tag::IDLE);
        }
        Ok(())
    }
}
