#![forbid(unsafe_code)]

//! How products are cut: tiles of the output, and parts of the inner dimension.

use super::super::operand::Operand;
use super::{Layout, Output, Product};

/// Rows and columns of the smallest tile, by which products are split, and inner indices at a time: those of matmul.cuh.
const SIDE: usize = 64;
const DEPTH: usize = 32;

/// Inner indices that are worth a block of its own, and blocks that there should be before a product is split.
const SPLIT_DEPTH: usize = 512;
const BLOCKS: usize = 256;

/// Rows and columns of the output that a block takes. A number of the output has the same bits by all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tile {
    Square,
    Tall,
    Large,
}

impl Tile {
    /// Rows and columns, and the threads of a block.
    pub(super) fn sizes(self) -> ([usize; 2], u32) {
        match self {
            Tile::Square => ([SIDE, SIDE], 128),
            Tile::Tall => ([128, 64], 128),
            Tile::Large => ([128, 128], 512),
        }
    }
}

/// By which kernel a product is multiplied, and in how many parts of how many inner indices each but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) tile: Tile,
    pub(super) splits: usize,
    pub(super) inner_each: usize,
}

impl Way {
    /// By the smallest tile, in one part.
    pub(super) fn whole([_, _, inner]: [usize; 3]) -> Self {
        Way { tile: Tile::Square, splits: 1, inner_each: inner }
    }

    /// By the smallest tile, in the parts that the shape alone decides.
    pub(super) fn by_rule(shape: [usize; 3]) -> Self {
        let (splits, inner_each) = splits(shape);
        Way { tile: Tile::Square, splits, inner_each }
    }
}

/// How a product can be multiplied: by the rule, or by larger tiles with the same bits; where sums `may_differ`, in half as many parts, too.
pub(super) fn ways<T: Operand>(of: &Product<'_, T>, output: Output, may_differ: bool) -> Vec<(&'static str, Way)> {
    let [rows, columns, inner] = of.shape;
    let by_rule = if of.start.is_some() { Way::whole(of.shape) } else { Way::by_rule(of.shape) };
    let mut ways = vec![("64 x 64", by_rule)];
    // To measure what is added to would add to it; other types and layouts have one kernel.
    if output == Output::Add || !T::IS_NARROW || of.layout == Layout::FirstTurned || rows <= SIDE {
        return ways;
    }
    ways.push(("128 x 64", Way { tile: Tile::Tall, ..by_rule }));
    if columns > SIDE {
        ways.push(("128 x 128", Way { tile: Tile::Large, ..by_rule }));
    }
    if may_differ && by_rule.splits > 1 {
        let inner_each = 2 * by_rule.inner_each;
        let halves = Way { splits: inner.div_ceil(inner_each), inner_each, ..by_rule };
        ways.push(("64 x 64 in half the parts", halves));
        ways.push(("128 x 64 in half the parts", Way { tile: Tile::Tall, ..halves }));
    }
    ways
}

/// Into how many parts the inner dimension is cut, and the length of each but the last.
pub(super) fn splits(shape: [usize; 3]) -> (usize, usize) {
    let inner = shape[2];
    let each = inner.div_ceil(splits_max(shape)).next_multiple_of(DEPTH).max(DEPTH);
    (inner.div_ceil(each).max(1), each)
}

/// The most parts of a product of this shape, and of one that is the same but of fewer inner indices.
fn splits_max([rows, columns, inner]: [usize; 3]) -> usize {
    let tiles = rows.div_ceil(SIDE) * columns.div_ceil(SIDE);
    BLOCKS.div_ceil(tiles.max(1)).min(inner / SPLIT_DEPTH).max(1)
}

/// Numbers that a product over so many inner indices, or over fewer, asks a scratch for.
pub(crate) fn parts_of_sum(shape: [usize; 3]) -> usize {
    let splits = splits_max(shape);
    if splits == 1 { 0 } else { splits * shape[0] * shape[1] }
}

/// Numbers that a product of so many rows, or of fewer, asks a scratch for: one of fewer rows has fewer blocks, and may have more parts.
pub(crate) fn parts_of_rows([rows, columns, inner]: [usize; 3]) -> usize {
    let column_tiles = columns.div_ceil(SIDE).max(1);
    let of_row_tiles = |tiles: usize| parts_of_sum([rows.min(tiles * SIDE), columns, inner]);
    // A product of more tiles than blocks is never split.
    (1..=rows.div_ceil(SIDE).min(BLOCKS / column_tiles + 1)).map(of_row_tiles).max().unwrap_or(0)
}
