//! Streams: memory freed on one may serve another only once the other is ordered after it.

use super::Pool;
use super::live_blocks::{BlockLocation, PendingRequest};
use super::stream_tag::Tag;
use crate::source::Refusal;

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
