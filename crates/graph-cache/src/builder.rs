//! Builders of collections of graphs, and the identity of a collection.

#![forbid(unsafe_code)]

use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

use crate::error::Result;
use crate::graph::Graph;
use crate::schema::Schema;

/// Builds the graphs of one collection, each from its index. What it makes is a function of its
/// [`Identity`] alone: the same on every machine, for any number of threads, and however often it
/// is asked.
pub trait Builder: Sync {
    /// Inputs, builder and parameters of the graphs.
    fn identity(&self) -> Identity;

    /// Schema of the graphs.
    fn schema(&self) -> &Schema;

    /// Key of each graph, such as a date; no two are equal.
    fn keys(&self) -> &[String];

    /// The graph with key `index`.
    ///
    /// # Errors
    /// Whatever keeps it from being built.
    fn build(&self, index: usize) -> Result<Graph>;

    /// R: how many graphs in a row are best made one from another. A collection is cut into runs of
    /// R at multiples of R, whatever builds it, so that a graph that is made from those before it
    /// in its run is always made in the same way.
    fn run_length(&self) -> usize {
        1
    }

    /// Builds the graphs of a run up to some point, in order: `run` begins at a multiple of
    /// [`run_length`](Self::run_length) and is no longer than it. `sink` takes each index with its
    /// graph.
    ///
    /// # Errors
    /// As [`build`](Self::build), and what `sink` fails with, at once.
    fn build_run(&self, run: Range<usize>, sink: &mut dyn FnMut(usize, Graph) -> Result<()>) -> Result<()> {
        for index in run {
            sink(index, self.build(index)?)?;
        }
        Ok(())
    }
}

/// Identity of a collection: two collections of one identity are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// XXH3-128 of the data, as [`Identity::hash`] gives it.
    pub data: u128,
    /// The builder's name and the version of its arithmetic, such as `correlation/1`.
    pub builder: String,
    /// Parameters of the builder, as JSON in one canonical form.
    pub parameters: String,
}

impl Identity {
    /// XXH3-128 of data that come in parts, such as arrays or files. Each part's length is hashed
    /// before it, as u64 in little-endian order, so that bytes that move from one part to the next
    /// make a difference.
    pub fn hash<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> u128 {
        let mut hasher = Xxh3::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_data_knows_where_parts_end() {
        let cases: [&[&[u8]]; 5] = [&[], &[b""], &[b"ab"], &[b"a", b"b"], &[b"ab", b""]];
        let hashes = cases.map(|parts| Identity::hash(parts.iter().copied()));
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..at].contains(hash), "{:?}", cases[at]);
        }
        assert_eq!(hashes[2], xxhash_rust::xxh3::xxh3_128(b"\x02\0\0\0\0\0\0\0ab"));
    }
}
