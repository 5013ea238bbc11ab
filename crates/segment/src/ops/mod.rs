//! Operations on rows in segments, each in a file of its own: the function, its plain form on the
//! CPU, and the launch of its kernel, whose source lies beside it as `.cu`.
//!
//! All arrays are row-major f32: `[rows, D]` with a row for each of the plan's rows, `[segments,
//! D]` with one for each of its segments, D being what their lengths make it. Each column is an
//! operation of its own. Every array is on the plan's device.
//!
//! Arithmetic is in a fixed order: a segment's rows as they lie, up to 512 of them one after the
//! other; of a longer segment, each 512 rows give a row of intermediate results, and those are
//! reduced in the same way. The results are the same bits on every device, with any number of
//! threads, and whether the rows are sorted or not. On the CPU, operations run on the rayon pool
//! that they are called from.
//!
//! | forward | backward |
//! | --- | --- |
//! | [`sum`] | [`gather`] of the gradient |
//! | [`mean`] | [`mean_backward`] |
//! | [`max`], [`min`] | [`extremum_backward`], or [`extremum_backward_shared`] as PyTorch has it |
//! | [`gather`] | [`sum`] of the gradient |
//! | [`softmax`] | [`softmax_backward`] |

pub mod conformance;
mod extremum;
mod extremum_backward;
mod fold;
mod gather;
#[cfg(test)]
mod harness;
mod softmax;

pub use extremum::{max, min};
pub use extremum_backward::{extremum_backward, extremum_backward_shared};
pub use fold::{mean, sum};
pub use gather::{gather, mean_backward};
pub use softmax::{softmax, softmax_backward};
