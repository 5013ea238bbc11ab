#![forbid(unsafe_code)]

//! Plans of products: tiles of the output, and parts of the inner dimension.

use super::super::operand::Operand;
use super::super::product_kind::{DEPTH, Kind, Method, Output, SIDE, SplitRule, Tile, TileConfig};
use super::Product;
use super::call::{self, PTX, PTX_LARGE};
use crate::tuning::{TuningQuery, bucket};

/// Inner indices that are worth a block of its own, and blocks of the smallest tile that there
/// should be before a product is split: of the largest they are a quarter, two for each
/// multiprocessor of a large GPU.
const SPLIT_DEPTH: usize = 128;
const BLOCKS: usize = 1024;

/// Kernel of a product, and the number of its parts and of the inner indices of each
/// but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GemmPlan {
    pub(super) tile: Tile,
    pub(super) splits: usize,
    pub(super) inner_each: usize,
}

impl GemmPlan {
    /// The smallest tile, in one part.
    pub(super) fn whole(inner: usize) -> Self {
        GemmPlan { tile: Tile::Square, splits: 1, inner_each: inner }
    }

    /// A product of a shape, cut so. A product with a bias is never split.
    pub(super) fn new(cut: TileConfig, shape: [usize; 3], has_bias: bool) -> Self {
        let (splits, inner_each) = if has_bias { (1, shape[2]) } else { splits(shape) };
        let plan = GemmPlan { tile: cut.tile, splits, inner_each };
        match cut.parts {
            SplitRule::HalfAsMany if splits > 1 => {
                let inner_each = 2 * inner_each;
                GemmPlan { splits: shape[2].div_ceil(inner_each), inner_each, ..plan }
            }
            SplitRule::ByRule | SplitRule::HalfAsMany => plan,
        }
    }
}

/// Kind of a product.
pub(super) fn kind_of<T: Operand>(product: &Product<'_, T>, output: Output) -> Kind {
    Kind {
        operands: (T::SUFFIX, T::IS_NARROW),
        layout: product.layout,
        arithmetic: product.arithmetic,
        output,
        is_split: GemmPlan::new(TileConfig::BY_RULE, product.shape, product.bias.is_some()).splits > 1,
        has_bias: product.bias.is_some(),
        sizes: product.shape.map(bucket),
    }
}

/// Candidates for products of a kind; with a `library`, by its name, also that.
pub(super) fn question<T: Operand>(kind: Kind, may_differ: bool, library: Option<String>) -> TuningQuery<Method> {
    let mut what = call::name::<T>(kind.layout, kind.arithmetic, Tile::Square);
    let cuts = kind.cuts(may_differ).into_iter();
    let mut candidates: Vec<_> = cuts.map(|(name, cut)| (name, Method::Kernel(cut))).collect();
    if let Some(library) = library {
        let start = if kind.has_bias { " and a start" } else { "" };
        what = format!("{what}{start} beside {library}");
        candidates.push(("cuBLASLt", Method::Library));
    }
    TuningQuery { what, sizes: kind.sizes.to_vec(), candidates, ptx: &[PTX, PTX_LARGE] }
}

/// Into how many parts the inner dimension is cut, and the length of each but the last.
pub(super) fn splits(shape: [usize; 3]) -> (usize, usize) {
    let inner = shape[2];
    let each = inner.div_ceil(splits_max(shape[0], shape[1], shape[2])).next_multiple_of(DEPTH).max(DEPTH);
    (inner.div_ceil(each).max(1), each)
}

/// The most parts of a product of this shape, and of one that is the same but of fewer inner
/// indices.
fn splits_max(rows: usize, columns: usize, inner: usize) -> usize {
    let tiles = rows.div_ceil(SIDE) * columns.div_ceil(SIDE);
    BLOCKS.div_ceil(tiles.max(1)).min(inner / SPLIT_DEPTH).max(1)
}

/// Scratch length for a product over up to that many inner indices.
pub(crate) fn product_partials_len(shape: [usize; 3]) -> usize {
    let splits = splits_max(shape[0], shape[1], shape[2]);
    if splits == 1 { 0 } else { splits * shape[0] * shape[1] }
}

/// Numbers that a product of so many rows, or of fewer, asks a scratch for: one of fewer rows has
/// fewer blocks, and may have more parts.
pub(crate) fn rows_partials_len(rows: usize, columns: usize, inner: usize) -> usize {
    let column_tiles = columns.div_ceil(SIDE).max(1);
    let parts_with_tiles = |tiles: usize| product_partials_len([rows.min(tiles * SIDE), columns, inner]);
    // A product of more tiles than blocks is never split.
    (1..=rows.div_ceil(SIDE).min(BLOCKS / column_tiles + 1)).map(parts_with_tiles).max().unwrap_or(0)
}
