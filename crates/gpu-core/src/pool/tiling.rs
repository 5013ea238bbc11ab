//! The tiles of the main segment, in order of address.

use super::granule_set::GranuleSet;
use super::stream_tag::Tag;

/// A tile, by its place in the table of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TileId(u32);

/// The end of a chain of tiles, and no tile in links.
pub(super) const NONE: u32 = u32::MAX;

impl TileId {
    pub(super) fn link(self) -> u32 {
        self.0
    }

    pub(super) fn from_link(link: u32) -> Option<TileId> {
        (link != NONE).then_some(TileId(link))
    }
}

/// Kinds of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TileKind {
    /// Slots without a granule.
    Unmapped,
    /// Bytes that can be given, once ordered after the work of the stream that the tag stands for.
    Free(Tag),
    /// A live block, used at this address.
    Live(u32),
    /// A part of a live block that is used through a view.
    Piece(u32),
    /// A slab of small blocks.
    Slab(u32),
}

/// Consecutive bytes of one kind, by their offset in the main segment.
#[derive(Debug)]
pub(super) struct Tile {
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) kind: TileKind,
    before: u32,
    after: u32,
    /// Neighbours in the tile's bin, if it is in one.
    pub(super) bin_before: u32,
    pub(super) bin_after: u32,
}

impl Tile {
    pub(super) fn end(&self) -> usize {
        self.start + self.bytes
    }
}

/// Tiles that cover the segment without gap or overlap, linked in order of address.
///
/// For each granule it is known which tile is the first to start in it, so that the tile at an
/// offset is found without a search tree: splitting and joining then cost a few stores.
#[derive(Debug)]
pub(super) struct Tiling {
    tiles: Vec<Tile>,
    vacant: Vec<u32>,
    first: u32,
    granule_shift: u32,
    /// By granule: 1 + the first tile that starts in it; 0 for none (and not [`NONE`]: pages of
    /// zeros cost nothing until they are used).
    starts: Vec<u32>,
    started: GranuleSet,
}

impl Tiling {
    /// `granules` granules of `1 << granule_shift` bytes, all of them one tile of `kind`.
    pub(super) fn new(granules: usize, granule_shift: u32, kind: TileKind) -> Self {
        let mut tiling = Tiling {
            tiles: Vec::new(),
            vacant: Vec::new(),
            first: NONE,
            granule_shift,
            starts: vec![0; granules],
            started: GranuleSet::default(),
        };
        if granules > 0 {
            tiling.first = tiling.add(Tile {
                start: 0,
                bytes: granules << granule_shift,
                kind,
                before: NONE,
                after: NONE,
                bin_before: NONE,
                bin_after: NONE,
            });
        }
        tiling
    }

    pub(super) fn get(&self, tile: TileId) -> &Tile {
        &self.tiles[tile.0 as usize]
    }

    pub(super) fn get_mut(&mut self, tile: TileId) -> &mut Tile {
        &mut self.tiles[tile.0 as usize]
    }

    pub(super) fn first(&self) -> Option<TileId> {
        TileId::from_link(self.first)
    }

    pub(super) fn before(&self, tile: TileId) -> Option<TileId> {
        TileId::from_link(self.get(tile).before)
    }

    pub(super) fn after(&self, tile: TileId) -> Option<TileId> {
        TileId::from_link(self.get(tile).after)
    }

    /// All tiles in order of address.
    pub(super) fn iter(&self) -> impl Iterator<Item = TileId> {
        std::iter::successors(self.first(), |&tile| self.after(tile))
    }

    /// The tile that holds the byte at `offset`.
    pub(super) fn tile_at(&self, offset: usize) -> TileId {
        let granule = offset >> self.granule_shift;
        let mut tile = match self.starts[granule].checked_sub(1) {
            Some(first) if self.tiles[first as usize].start <= offset => first,
            _ => {
                let granule = granule.checked_sub(1).and_then(|granule| self.started.last_up_to(granule));
                self.starts[granule.expect("the first tile starts at 0")] - 1
            }
        };
        loop {
            let after = self.tiles[tile as usize].after;
            if after == NONE || self.tiles[after as usize].start > offset {
                return TileId(tile);
            }
            tile = after;
        }
    }

    /// Cuts a tile in two at the offset `boundary` inside it; returns the upper part, of the same
    /// kind.
    pub(super) fn split(&mut self, lower: TileId, boundary: usize) -> TileId {
        let &Tile { start, bytes, kind, after, .. } = self.get(lower);
        debug_assert!(start < boundary && boundary < start + bytes, "the cut is inside the tile");
        let upper = self.add(Tile {
            start: boundary,
            bytes: start + bytes - boundary,
            kind,
            before: lower.0,
            after,
            bin_before: NONE,
            bin_after: NONE,
        });
        if after != NONE {
            self.tiles[after as usize].before = upper;
        }
        let lower = self.get_mut(lower);
        lower.bytes = boundary - start;
        lower.after = upper;
        TileId(upper)
    }

    /// Joins a tile with the next one; the whole has the kind of the lower.
    pub(super) fn join(&mut self, lower: TileId, upper: TileId) {
        debug_assert_eq!(self.get(lower).after, upper.0);
        self.forget_start(upper);
        let &Tile { bytes, after, .. } = self.get(upper);
        if after != NONE {
            self.tiles[after as usize].before = lower.0;
        }
        let lower = self.get_mut(lower);
        lower.bytes += bytes;
        lower.after = after;
        self.vacant.push(upper.0);
    }

    fn add(&mut self, tile: Tile) -> u32 {
        let start = tile.start;
        let index = if let Some(index) = self.vacant.pop() {
            self.tiles[index as usize] = tile;
            index
        } else {
            self.tiles.push(tile);
            u32::try_from(self.tiles.len() - 1).expect("fewer than four thousand million tiles")
        };
        let granule = start >> self.granule_shift;
        match self.starts[granule].checked_sub(1) {
            Some(first) if self.tiles[first as usize].start < start => {}
            _ => {
                self.starts[granule] = index + 1;
                self.started.insert(granule);
            }
        }
        index
    }

    fn forget_start(&mut self, tile: TileId) {
        let &Tile { start, after, .. } = self.get(tile);
        let granule = start >> self.granule_shift;
        if self.starts[granule] != tile.0 + 1 {
            return;
        }
        if after != NONE && self.tiles[after as usize].start >> self.granule_shift == granule {
            self.starts[granule] = after + 1;
        } else {
            self.starts[granule] = 0;
            self.started.remove(granule);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHIFT: u32 = 12;

    proptest! {
        /// Cutting and joining anywhere keeps the tiles in order, and every offset finds the tile
        /// that a walk finds.
        #[test]
        fn the_tile_at_an_offset_is_the_one_that_holds_it(cuts in prop::collection::vec((0usize..64 * 8, any::<bool>()), 1..200)) {
            let mut tiling = Tiling::new(64, SHIFT, TileKind::Unmapped);
            for (eighth, cut) in cuts {
                let boundary = eighth << (SHIFT - 3);
                let tile = tiling.tile_at(boundary);
                if cut && tiling.get(tile).start < boundary {
                    tiling.split(tile, boundary);
                } else if !cut && let Some(after) = tiling.after(tile) {
                    tiling.join(tile, after);
                }
                let mut end = 0;
                for tile in tiling.iter() {
                    prop_assert_eq!(tiling.get(tile).start, end);
                    end = tiling.get(tile).end();
                    prop_assert_eq!(tiling.tile_at(end - 1), tile);
                    prop_assert_eq!(tiling.tile_at(tiling.get(tile).start), tile);
                }
                prop_assert_eq!(end, 64 << SHIFT);
            }
        }
    }
}
