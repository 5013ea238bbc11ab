//! Stitching: free granules from anywhere are mapped side by side, without copying and without
//! moving a live block.
//!
//! A block that is stitched takes whole granules and, for what is less than a granule at its end,
//! the free part of a granule that has live bytes already: that granule is then mapped at both
//! addresses, and each of its bytes is used through one of them. So a stitched block wastes no more
//! than one cut from free memory. The piece is either the last of the block (the free part begins
//! where the granule begins) or the first (it ends where the granule ends), and never both: every
//! view begins or ends on a granule's boundary.

use super::live_blocks::{BlockLocation, PendingRequest, Stitched};
use super::main_segment::MainSegment;
use super::stream_tag::Tag;
use super::tiling::{Tile, TileKind};
use super::view::{GONE, push_joined};
use super::{ByteRange, Pool, PoolEvent, UNIT_BYTES};
use crate::source::{Granule, Refusal};

/// Views, dormant ones included, may map this many times the pool's capacity. The least recently
/// used dormant ones go first. More would do no harm on a GPU, but on a host every piece of a
/// mapping is counted against a limit of the system.
const MAPPED_MAX: usize = 8;
/// Dormant views that are looked at before a new one is made.
const LOOKS: usize = 16;
/// Free tiles that are searched for a place for less than a granule.
const EDGES: usize = 256;

/// Free ranges that a block would be stitched from.
#[derive(Debug)]
pub(super) struct StitchPlan {
    /// In the order of the block. All but the first begin at a granule, all but the last end at
    /// one.
    pieces: Vec<ByteRange>,
}

impl Pool {
    /// Fallback: a dormant view whose memory is free, or a new one.
    pub(super) fn stitch(&mut self, pending: &PendingRequest) -> Result<Option<BlockLocation>, Refusal> {
        if pending.class.is_some() || !self.can_stitch() {
            return Ok(None);
        }
        if let Some(place) = self.stitch_again(pending) {
            return Ok(Some(place));
        }
        let Ok(plan) = self.main.plan(pending.bytes, pending.tag) else { return Ok(None) };
        let offset = plan.pieces[0].start % self.main.granule_bytes();
        let view = self.map_view(&plan)?;
        self.stats.stitches_total += 1;
        Ok(Some(self.assign_view(pending, view, offset, &plan.pieces)))
    }

    /// A dormant view that is little larger than the block and whose memory is free.
    fn stitch_again(&mut self, pending: &PendingRequest) -> Option<BlockLocation> {
        let granules = pending.bytes.div_ceil(self.main.granule_bytes());
        let shift = self.main.granule_shift();
        let candidates = self.views.dormant_from(granules).take(LOOKS);
        let found = candidates
            .map(|view| (view, self.views.get(view).slots.len()))
            .take_while(|&(_, slots)| slots <= granules + granules / 8 + 1)
            .flat_map(|(view, slots)| [(view, 0), (view, (slots << shift) - pending.bytes)])
            .find_map(|placement| Some((placement, self.free_pieces(placement.0, placement.1, pending)?)));
        found.map(|(placement, pieces)| self.assign_view(pending, placement.0, placement.1, &pieces))
    }

    /// Pieces of a block at an offset of a view, if that is free.
    pub(super) fn free_pieces(&self, view: u32, offset: usize, pending: &PendingRequest) -> Option<Vec<ByteRange>> {
        let (view, shift) = (self.views.try_get(view)?, self.main.granule_shift());
        let is_free = |piece: &ByteRange| self.main.free_at(piece, |tag| tag.serves(pending.tag)).is_some();
        // One byte of a view that is in use elsewhere is found without a walk over all granules.
        let first = view.pieces(&(offset..offset + UNIT_BYTES), shift)?;
        let pieces = is_free(&first[0]).then(|| view.pieces(&(offset..offset + pending.bytes), shift))??;
        pieces.iter().all(is_free).then_some(pieces)
    }

    /// Assigns free pieces to the requested block.
    pub(super) fn assign_view(
        &mut self,
        pending: &PendingRequest,
        view: u32,
        offset: usize,
        pieces: &[ByteRange],
    ) -> BlockLocation {
        let mut take = |piece: &ByteRange| {
            let tile = self.main.free_at(piece, |_| true).expect("the pieces are free");
            self.main.take(tile, piece.clone(), TileKind::Piece(pending.block))
        };
        let pieces = pieces.iter().map(&mut take).collect();
        self.views.add_block(view);
        BlockLocation::Stitched(Box::new(Stitched { view, offset, pieces }))
    }

    /// Maps a view for a plan.
    fn map_view(&mut self, plan: &StitchPlan) -> Result<u32, Refusal> {
        let slots: Vec<u32> = plan
            .pieces
            .iter()
            .flat_map(|piece| self.main.granules_overlapping(piece))
            .map(|slot| slot as u32)
            .collect();
        let granules: Vec<Granule> = slots.iter().map(|&slot| self.main.granule(slot as usize)).collect();
        while self.views.mapped() + slots.len() > MAPPED_MAX * self.main.slots() && self.drop_oldest_view() {}
        let address = self.map_new(&granules).or_else(|refusal| {
            // Dormant views may be what exhausts the address space.
            let dropped = std::iter::from_fn(|| self.drop_oldest_view().then_some(())).count();
            if dropped > 0 { self.map_new(&granules) } else { Err(refusal) }
        })?;
        let bytes = slots.len() << self.main.granule_shift();
        self.watch.tell(|| PoolEvent::Stitched { address, bytes, granules: granules.len() });
        self.stats.stitched_granules_total += granules.len() as u64;
        Ok(self.views.add(address, slots))
    }

    fn map_new(&mut self, granules: &[Granule]) -> Result<u64, Refusal> {
        let bytes = granules.len() << self.main.granule_shift();
        let address = self.source.reserve(bytes)?;
        self.source.map(address, granules).inspect_err(|_| self.source.release(address, bytes))?;
        Ok(address)
    }

    /// Unmaps the dormant view that was used least recently, if there is one.
    fn drop_oldest_view(&mut self) -> bool {
        let oldest = self.views.oldest();
        oldest.into_iter().for_each(|view| self.drop_view(view));
        oldest.is_some()
    }

    /// Unmaps a dormant view.
    pub(super) fn drop_view(&mut self, view: u32) {
        let (view, shift) = (self.views.remove(view), self.main.granule_shift());
        let mut mapped: Vec<ByteRange> = Vec::new();
        for start in (0..view.slots.len()).filter(|&k| view.slots[k] != GONE).map(|k| k << shift) {
            push_joined(&mut mapped, start..start + (1 << shift));
        }
        for range in mapped {
            self.source.unmap(view.address + range.start as u64, range.len());
        }
        self.source.release(view.address, view.slots.len() << shift);
    }
}

impl MainSegment {
    /// Pieces that a block of `bytes` can be stitched from, or the number of missing granules.
    ///
    /// The smallest runs of free granules are used up first, so that the large ones stay whole.
    pub(super) fn plan(&self, bytes: usize, tag: Tag) -> Result<StitchPlan, usize> {
        let rest = bytes % self.granule_bytes();
        let edge = if rest == 0 { None } else { self.edge(rest, tag) };
        let mut missing = bytes >> self.granule_shift();
        missing += usize::from(rest > 0 && edge.is_none());

        let (first, last) = match edge {
            Some(edge) if edge.start % self.granule_bytes() == 0 => (None, Some(edge)),
            edge => (edge, None),
        };
        let is_cut = rest > 0 && first.is_none() && last.is_none();
        let mut pieces: Vec<ByteRange> = first.into_iter().collect();
        let mut runs =
            self.free_tiles(self.granule_bytes(), tag).map(|tile| self.granules_inside(tile.start..tile.end()));
        while missing > 0 {
            let run = runs.next().ok_or(missing)?;
            let taken = run.start..run.end.min(run.start + missing);
            missing -= taken.len();
            if !taken.is_empty() {
                push_joined(&mut pieces, self.range(&taken));
            }
        }
        drop(runs);
        if is_cut {
            pieces.last_mut().expect("a whole granule").end -= self.granule_bytes() - rest;
        }
        last.into_iter().for_each(|edge| push_joined(&mut pieces, edge));
        Ok(StitchPlan { pieces })
    }

    /// Place for `bytes`, less than a granule, at the beginning or the end of a granule that is in
    /// use already; the tightest of the places in the smallest free tiles.
    fn edge(&self, bytes: usize, tag: Tag) -> Option<ByteRange> {
        let mask = self.granule_bytes() - 1;
        let edges = self.free_tiles(bytes, tag).take(EDGES).flat_map(|tile| {
            let begins = (tile.end() & !mask).max(tile.start)..tile.end();
            let ends = tile.start..tile.end().min((tile.start + mask) & !mask);
            let begins = (begins.start & mask == 0).then(|| (begins.len(), begins.start..begins.start + bytes));
            let ends = (ends.end & mask == 0).then(|| (ends.len(), ends.end.wrapping_sub(bytes)..ends.end));
            begins.into_iter().chain(ends).filter(|&(len, _)| len >= bytes)
        });
        edges.min_by_key(|(len, edge)| (*len, edge.start)).map(|(_, edge)| edge)
    }

    /// Idle free tiles, then those of `tag`, from about `bytes` on, each from small to large.
    fn free_tiles(&self, bytes: usize, tag: Tag) -> impl Iterator<Item = &Tile> {
        let mut bins = vec![&self.bins()[Tag::IDLE.index()]];
        if tag != Tag::IDLE {
            bins.push(&self.bins()[tag.index()]);
        }
        bins.into_iter().flat_map(move |bins| bins.iter_from(self.tiling(), bytes)).map(|tile| self.get(tile))
    }
}
