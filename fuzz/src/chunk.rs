//! Stored chunks: any bytes, decoded as the reader of chunk-io does, end in its values or in an
//! error. The module is compiled from its source here, as chunk-io as a whole would bring the HDF5
//! library along, which is not what is put to the test.

#[path = "../../crates/chunk-io/src/decode/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the reader calls more than the targets do")]
mod decode;

use std::io::Read;

use decode::{ByteOrder, ChunkDecoder, ChunkFilter, FloatType, FloatWidth, Pipeline};
use flate2::read::ZlibDecoder;

/// Filters of which a pipeline is made up.
const FILTERS: [ChunkFilter; 8] = [
    ChunkFilter::Deflate,
    ChunkFilter::Lzf,
    ChunkFilter::Fletcher32,
    ChunkFilter::Shuffle { element_bytes: 1 },
    ChunkFilter::Shuffle { element_bytes: 2 },
    ChunkFilter::Shuffle { element_bytes: 3 },
    ChunkFilter::Shuffle { element_bytes: 4 },
    ChunkFilter::Shuffle { element_bytes: 8 },
];

/// Decodes a chunk behind three bytes that say what it is: its type, and the number of its
/// elements, little-endian.
pub fn one_filter(bytes: &[u8], filter: &str) {
    let Some((&[float, elements @ ..], stored)) = bytes.split_first_chunk::<3>() else { return };
    let (float, elements) = (float_of(float), usize::from(u16::from_le_bytes(elements)));
    let (filter, plain): (_, fn(&[u8], usize) -> Option<Vec<u8>>) = match filter {
        "deflate" => (ChunkFilter::Deflate, inflated),
        "lzf" => (ChunkFilter::Lzf, lzf_decompressed),
        other => panic!("{other} is no compressor"),
    };
    let values = decoded(&[filter], 0, float, elements, stored);
    // Bytes behind a deflate stream are passed over, and errors come in another order; what both
    // take is to be the same.
    if let (Some(values), Some(plain)) = (values, plain(stored, elements * float.bytes())) {
        let expected = decoded(&[], 0, float, elements, &plain).expect("a chunk without filters of the right length");
        assert!(values.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

/// Decodes a chunk behind its type, the number of its elements, and a pipeline: its filter mask,
/// how many filters, and each.
pub fn pipeline(bytes: &[u8]) {
    let Some((&[float, low, high, mask, filters], rest)) = bytes.split_first_chunk::<5>() else { return };
    let Some((filters, stored)) = rest.split_at_checked(usize::from(filters % 6)) else { return };
    let filters: Vec<ChunkFilter> =
        filters.iter().map(|&filter| FILTERS[usize::from(filter) % FILTERS.len()]).collect();
    let elements = usize::from(u16::from_le_bytes([low, high]));
    decoded(&filters, u32::from(mask), float_of(float), elements, stored);
}

fn float_of(byte: u8) -> FloatType {
    let width = [FloatWidth::F16, FloatWidth::F32, FloatWidth::F64][usize::from(byte) % 3];
    FloatType { width, order: if byte < 128 { ByteOrder::Little } else { ByteOrder::Big } }
}

/// All values of the chunk, of which a part is to be the same when it is asked for alone.
fn decoded(filters: &[ChunkFilter], mask: u32, float: FloatType, elements: usize, stored: &[u8]) -> Option<Vec<f32>> {
    let pipeline = Pipeline::new(filters.to_vec(), float, elements)?;
    let mut decoder = ChunkDecoder::new();
    let decoded = match decoder.decode(&pipeline, mask, stored) {
        Ok(decoded) => decoded,
        Err(corrupt) => {
            assert!(!corrupt.to_string().is_empty(), "an error says what is wrong");
            return None;
        }
    };
    let mut values = vec![0.0; elements];
    decoded.copy(0..elements, &mut values);
    let part = elements / 3..elements - elements / 4;
    let mut alone = vec![0.0; part.len()];
    decoded.copy(part.clone(), &mut alone);
    assert!(alone.iter().zip(&values[part]).all(|(a, b)| a.to_bits() == b.to_bits()));
    Some(values)
}

fn inflated(stored: &[u8], expected: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    ZlibDecoder::new(stored).take(expected as u64 + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() == expected).then_some(bytes)
}

/// Byte by byte. `None` for a stream that is not right, or of another length.
fn lzf_decompressed(stored: &[u8], expected: usize) -> Option<Vec<u8>> {
    let (mut bytes, mut stored) = (Vec::new(), stored.iter().copied().map(usize::from));
    while let Some(control) = stored.next() {
        if control < 32 {
            for _ in 0..=control {
                bytes.push(stored.next()? as u8);
            }
            continue;
        }
        let longer = if control >> 5 == 7 { stored.next()? } else { 0 };
        let distance = ((control & 31) << 8 | stored.next()?) + 1;
        for _ in 0..(control >> 5) + 2 + longer {
            bytes.push(*bytes.get(bytes.len().checked_sub(distance)?)?);
        }
        if bytes.len() > expected {
            return None;
        }
    }
    (bytes.len() == expected).then_some(bytes)
}
