//! Builders of collections of graphs, and the identity of a collection.

use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

use crate::error::Result;
use crate::graph::Graph;
use crate::schema::Schema;

/// Builds the graphs of one collection, each from its index. The graphs are a function of the
/// [`Identity`] alone: the same on every machine, with any number of threads, at every call.
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
    /// The error that keeps it from being built.
    fn build(&self, index: usize) -> Result<Graph>;

    /// R: number of consecutive graphs that are best built one from another. A collection is always
    /// cut into runs of R at multiples of R, so that a graph is built from the same predecessors
    /// whoever builds it.
    fn run_length(&self) -> usize {
        1
    }

    /// Builds the graphs of a run up to some point, in order: `run` begins at a multiple of
    /// [`run_length`](Self::run_length) and is no longer than it. `sink` takes each index with its
    /// graph.
    ///
    /// # Errors
    /// As [`build`](Self::build), and the error of `sink`, at once.
    fn build_run(&self, run: Range<usize>, sink: &mut dyn FnMut(usize, Graph) -> Result<()>) -> Result<()> {
        for index in run {
            sink(index, self.build(index)?)?;
        }
        Ok(())
    }
}

/// Identity of a collection: collections with equal identities are equal.
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
    /// before it, as u64 in little-endian order, so that a byte moved from one part to the next
    /// changes the hash.
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
