//! From the stored bytes of a chunk to f32 in the caller's memory: HDF5's filters undone, bytes and
//! widths converted.
//!
//! Nothing here opens a file or knows HDF5's library, and any bytes may be given: what is wrong
//! with them is a [`Corrupt`].
//!
//! What it cannot be faster than, for a chunk of n bytes decoded: a decompressor reads what is
//! stored and writes n; the shuffle, the byte order and the width are undone in the one pass that
//! moves the values to their place, which reads n and writes n (f32), 2n (f16) or n/2 (f64). A core
//! that copies 10 GB/s thus needs 0.2 ns a byte for what is not decompression.

mod corrupt;
mod decoded;
mod decoder;
mod deflate;
mod fletcher32;
mod floats;
mod lzf;
mod pipeline;
mod planes;
mod scratch;
mod shuffle;

#[cfg(test)]
mod encode;
#[cfg(test)]
mod tests;

pub(crate) use corrupt::Corrupt;
pub(crate) use decoded::Decoded;
pub(crate) use decoder::Decoder;
pub(crate) use floats::{ByteOrder, Float, FloatWidth, to_f32};
pub(crate) use pipeline::{Filter, Pipeline};
