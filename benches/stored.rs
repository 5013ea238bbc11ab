//! A stored chunk as the reader of chunk-io decodes it. The module is compiled from its source once
//! more, as chunk-io gives it to nobody.
#[path = "../crates/chunk-io/src/decode/mod.rs"]
#[allow(dead_code, unused_imports, reason = "not all that the reader calls is measured")]
mod decode;

use decode::{ByteOrder, ChunkDecoder, ChunkFilter, FloatType, FloatWidth, Pipeline};

/// A chunk of little-endian floats of one width, stored through some filters.
pub struct StoredChunk {
    pipeline: Pipeline,
    decoder: ChunkDecoder,
    stored: Vec<u8>,
}

impl StoredChunk {
    /// `filters` by their names in HDF5, in the order of writing; `stored` holds `elements` of
    /// `element_bytes` after them.
    ///
    /// # Panics
    /// For what the reader would leave to HDF5.
    pub fn new(filters: &[&str], elements: usize, element_bytes: usize, stored: Vec<u8>) -> Self {
        let filter = |name: &&str| match *name {
            "deflate" => ChunkFilter::Deflate,
            "lzf" => ChunkFilter::Lzf,
            "fletcher32" => ChunkFilter::Fletcher32,
            "shuffle" => ChunkFilter::Shuffle { element_bytes },
            other => panic!("{other} is no filter of the benchmarks"),
        };
        let width = match element_bytes {
            2 => FloatWidth::F16,
            4 => FloatWidth::F32,
            8 => FloatWidth::F64,
            other => panic!("no float has {other} bytes"),
        };
        let float = FloatType { width, order: ByteOrder::Little };
        let pipeline = Pipeline::new(filters.iter().map(filter).collect(), float, elements);
        StoredChunk { pipeline: pipeline.expect("these filters are decoded"), decoder: ChunkDecoder::new(), stored }
    }

    /// Decodes the chunk into `out`.
    ///
    /// # Panics
    /// If it is damaged, or `out` not as long as it is.
    pub fn decode(&mut self, out: &mut [f32]) {
        let decoded = self.decoder.decode(&self.pipeline, 0, &self.stored).expect("the chunk is sound");
        decoded.copy(0..out.len(), out);
    }
}
