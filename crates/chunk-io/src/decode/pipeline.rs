use super::floats::FloatType;

/// Filters that a pipeline may have: as many as a filter mask has bits.
const FILTERS_MAX: usize = u32::BITS as usize;

/// One filter of a dataset's pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkFilter {
    /// zlib's format (RFC 1950).
    Deflate,
    /// Byte k of every element together, for each k. Bytes that are left over where the length is
    /// no multiple follow as they are.
    Shuffle { element_bytes: usize },
    /// liblzf's format, as h5py writes it.
    Lzf,
    /// A checksum of four bytes at the end.
    Fletcher32,
}

/// Storage of a dataset's chunks.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    filters: Vec<ChunkFilter>,
    pub(super) float: FloatType,
    pub(super) chunk_bytes: usize,
}

/// Bytes that Fletcher-32 adds.
pub(super) const CHECKSUM_BYTES: usize = 4;

impl Pipeline {
    /// `filters` in the order of writing over chunks of `chunk_elements`. `None` for pipelines that
    /// only the HDF5 library can decode: two compressors, between which the length is not known, or
    /// parameters that no library writes.
    pub(crate) fn new(filters: Vec<ChunkFilter>, float: FloatType, chunk_elements: usize) -> Option<Self> {
        let compressors =
            filters.iter().filter(|filter| matches!(filter, ChunkFilter::Deflate | ChunkFilter::Lzf)).count();
        let shapeless = filters.iter().any(|filter| matches!(filter, ChunkFilter::Shuffle { element_bytes: 0 }));
        let chunk_bytes = chunk_elements.checked_mul(float.bytes()).filter(|&bytes| bytes <= u32::MAX as usize)?;
        let decodes = compressors <= 1 && !shapeless && filters.len() <= FILTERS_MAX;
        decodes.then_some(Pipeline { filters, float, chunk_bytes })
    }

    /// Filters that were applied to a chunk, with their places: all that `mask` does not skip.
    pub(super) fn active(&self, mask: u32) -> impl DoubleEndedIterator<Item = (usize, ChunkFilter)> {
        let filters = self.filters.iter().copied().enumerate();
        filters.filter(move |(place, _)| mask >> place & 1 == 0)
    }

    /// Bytes of a chunk before the filter at `place` was applied, if none of those before it
    /// compresses.
    pub(super) fn bytes_before(&self, place: usize, mask: u32) -> usize {
        let checksums = self.active(mask).take_while(|(before, _)| *before < place);
        self.chunk_bytes + CHECKSUM_BYTES * checksums.filter(|(_, filter)| *filter == ChunkFilter::Fletcher32).count()
    }

    /// True if the filter at `place` is a shuffle that can be undone while values are converted:
    /// the first, of whole elements.
    pub(super) fn is_first_shuffle(&self, place: usize, mask: u32) -> bool {
        let whole = ChunkFilter::Shuffle { element_bytes: self.float.bytes() };
        self.active(mask).next() == Some((place, whole))
    }
}
