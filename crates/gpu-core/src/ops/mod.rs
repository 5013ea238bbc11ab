//! Operations on buffers, each in a file of its own: the function, its plain form on the CPU, and
//! the launch of its kernel, whose source lies beside it as `.cu`.

mod cast;
pub mod conformance;
mod copy_strided;
mod fill;
mod reduce;

pub use cast::{CastTo, cast};
pub use copy_strided::{Dimension, StridedCopy, copy_strided};
pub use fill::fill;
pub use reduce::{Reducible, Reduction, reduce};

/// The kernels of this folder on the CPU, for the tests of the operations.
#[cfg(test)]
static HARNESS: megabatch_simt::Harness = megabatch_simt::Harness::new(
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops"),
    &["cast", "copy_strided", "fill", "reduce"],
);
