//! Descriptions of matrix products.

/// Types of the factors; sums are in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FactorType {
    /// Numbers in f16.
    F16,
    /// Numbers in bf16.
    Bf16,
    /// Numbers in f32, rounded to TF32.
    Tf32,
}

/// A product `[M, N]` in f32 of two matrices, all row by row without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixProduct {
    /// M, N and K.
    pub shape: [usize; 3],
    /// True if a is `[K, M]` in place of `[M, K]`, and b `[K, N]` in place of `[N, K]`.
    pub transposed: [bool; 2],
    /// Types of a and b.
    pub factors: FactorType,
}

/// Addresses of the matrices of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixAddresses {
    /// The first matrix.
    pub a: u64,
    /// The second matrix.
    pub b: u64,
    /// `[N]` in f32, added to every row; 0 for none.
    pub bias: u64,
    /// The product, which is overwritten.
    pub out: u64,
    /// Memory that the library may use meanwhile, and its bytes.
    pub workspace: (u64, usize),
}
