//! Kinds of matrix products, and the methods that compute them.

/// Layout of a product's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transpose {
    /// a `[M, K]`, b `[N, K]`: rows by weights that have a row for each output.
    Nt,
    /// a `[M, K]`, b `[K, N]`: gradients by the same weights.
    Nn,
    /// a `[K, M]`, b `[N, K]`: columns by weights that have a row for each output.
    Tt,
    /// a `[K, M]`, b `[K, N]`: gradients by what was multiplied, summed over rows.
    Tn,
}

impl Transpose {
    /// True where the inner dimension is not the contiguous one: of a, and of b.
    pub(super) fn transposed(self) -> [bool; 2] {
        match self {
            Transpose::Nt => [false, false],
            Transpose::Nn => [false, true],
            Transpose::Tt => [true, false],
            Transpose::Tn => [true, true],
        }
    }
}

/// Arithmetic of f32 operands; others are multiplied as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Operands as they are, without tensor cores.
    #[default]
    Exact,
    /// Rounded to TF32, 11 significant bits with the range of f32, on a GPU; as they are on the
    /// CPU.
    Tf32,
}

/// Use of the values that the output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// The output is overwritten.
    Overwrite,
    /// The product is added to it.
    Add,
}

/// Rows and columns of the smallest tile, by which products are split, and a divisor of the inner
/// indices that a block takes at a time: those of matmul.cuh.
pub(super) const SIDE: usize = 64;
pub(super) const DEPTH: usize = 32;

/// Rows and columns of the output that a block takes. A number of the output has the same bits by
/// all of them.
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

/// Number of parts of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitRule {
    /// The tile that the shape alone decides.
    ByRule,
    /// Half as many, if the shape alone decides for several.
    HalfAsMany,
}

/// Tiles of a product, whatever its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TileConfig {
    pub(super) tile: Tile,
    pub(super) parts: SplitRule,
}

impl TileConfig {
    pub(super) const BY_RULE: TileConfig = TileConfig { tile: Tile::Square, parts: SplitRule::ByRule };
}

/// Method of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// A kernel of ours.
    Kernel(TileConfig),
    /// cuBLASLt.
    Library,
}

/// The properties of a product that decide how it can be tiled, and how long that takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    /// `Operand::SUFFIX`, and whether tensor cores take that.
    pub(super) operands: (&'static str, bool),
    pub(super) layout: Transpose,
    pub(super) arithmetic: Arithmetic,
    pub(super) output: Output,
    pub(super) is_split: bool,
    pub(super) has_bias: bool,
    /// M, N and K, each of a bucket of the tuning.
    pub(super) sizes: [usize; 3],
}

impl Kind {
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
