#![forbid(unsafe_code)]

//! Plans of products: tiles of the output, and parts of the inner dimension.

use super::super::operand::Operand;
use super::call::{self, PTX, PTX_LARGE};
use super::{Arithmetic, Output, Product, Transpose};
use crate::tuning::{TuningQuery, bucket};

/// Rows and columns of the smallest tile, by which products are split, and a divisor of the inner
/// indices that a block takes at a time: those of matmul.cuh.
const SIDE: usize = 64;
const DEPTH: usize = 32;

/// Inner indices that are worth a block of its own, and blocks of the smallest tile that there
/// should be before a product is split: of the largest they are a quarter, two for each
/// multiprocessor of a large GPU.
const SPLIT_DEPTH: usize = 128;
const BLOCKS: usize = 1024;

/// Rows and columns of the output that a block takes. A number of the output has the same bits by
/// all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Tile {
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

/// Into how many parts a sum is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum SplitRule {
    /// The tile that the shape alone decides.
    ByRule,
    /// Half as many, if the shape alone decides for several.
    HalfAsMany,
}

/// Tiles of a product, whatever its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct TileConfig {
    pub(super) tile: Tile,
    pub(super) parts: SplitRule,
}

impl TileConfig {
    pub(super) const BY_RULE: TileConfig = TileConfig { tile: Tile::Square, parts: SplitRule::ByRule };
}

/// Method of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Method {
    /// A kernel of ours.
    Kernel(TileConfig),
    /// cuBLASLt.
    Library,
}

/// The properties of a product that decide how it can be tiled, and how long that takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Kind {
    /// [`Operand::SUFFIX`], and whether tensor cores take that.
    operands: (&'static str, bool),
    layout: Transpose,
    arithmetic: Arithmetic,
    output: Output,
    is_split: bool,
    has_bias: bool,
    /// M, N and K, each of a [`bucket`].
    sizes: [usize; 3],
}

impl Kind {
    pub(super) fn for_product<T: Operand>(product: &Product<'_, T>, output: Output) -> Self {
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

    /// Among what it is chosen; with a `library`, by its name, also that.
    pub(super) fn question<T: Operand>(self, may_differ: bool, library: Option<String>) -> TuningQuery<Method> {
        let mut what = call::name::<T>(self.layout, self.arithmetic, Tile::Square);
        let cuts = self.cuts(may_differ).into_iter();
        let mut candidates: Vec<_> = cuts.map(|(name, cut)| (name, Method::Kernel(cut))).collect();
        if let Some(library) = library {
            let start = if self.has_bias { " and a start" } else { "" };
            what = format!("{what}{start} beside {library}");
            candidates.push(("cuBLASLt", Method::Library));
        }
        TuningQuery { what, sizes: self.sizes.to_vec(), candidates, ptx: &[PTX, PTX_LARGE] }
    }

    /// True if tensor cores multiply what is there, and it can be measured.
    pub(super) fn is_for_library(self) -> bool {
        let is_rounded = self.operands.1 || self.arithmetic == Arithmetic::Tf32;
        is_rounded && self.output == Output::Overwrite && self.sizes.iter().all(|&size| size > 0)
    }

    /// By the rule, or by larger tiles with the same bits; where sums `may_differ`, in half as many
    /// parts, too.
    pub(super) fn cuts(self, may_differ: bool) -> Vec<(&'static str, TileConfig)> {
        let ([rows, columns, _], is_narrow) = (self.sizes, self.operands.1);
        let mut cuts = vec![("64 x 64", TileConfig::BY_RULE)];
        // To measure what is added to would add to it; other types and layouts have one kernel.
        if self.output == Output::Add || !is_narrow || self.layout == Transpose::Tt || rows <= SIDE {
            return cuts;
        }
        cuts.push(("128 x 64", TileConfig { tile: Tile::Tall, ..TileConfig::BY_RULE }));
        if columns > SIDE {
            cuts.push(("128 x 128", TileConfig { tile: Tile::Large, ..TileConfig::BY_RULE }));
        }
        if may_differ && self.is_split {
            let halves = |tile| TileConfig { tile, parts: SplitRule::HalfAsMany };
            cuts.push(("64 x 64 in half the parts", halves(Tile::Square)));
            cuts.push(("128 x 64 in half the parts", halves(Tile::Tall)));
        }
        cuts
    }
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
