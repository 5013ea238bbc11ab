//! Encoders of each filter in plain loops, for tests.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::fletcher32::tests::plain_checksum;
use super::pipeline::ChunkFilter;

pub(super) fn apply(filter: ChunkFilter, bytes: &[u8]) -> Vec<u8> {
    match filter {
        ChunkFilter::Deflate => deflate(bytes),
        ChunkFilter::Shuffle { element_bytes } => shuffle(element_bytes, bytes),
        ChunkFilter::Lzf => lzf(bytes),
        ChunkFilter::Fletcher32 => [bytes, &plain_checksum(bytes).to_le_bytes()].concat(),
    }
}

pub(super) fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(4));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn shuffle(element_bytes: usize, bytes: &[u8]) -> Vec<u8> {
    let elements = bytes.len() / element_bytes;
    let planes =
        (0..element_bytes).flat_map(|byte| (0..elements).map(move |element| bytes[element * element_bytes + byte]));
    planes.chain(bytes[elements * element_bytes..].iter().copied()).collect()
}

/// A run of an LZF stream.
#[derive(Clone, Debug)]
pub(super) enum LzfRun {
    Literals(Vec<u8>),
    Reference { distance: usize, length: usize },
}

impl LzfRun {
    pub(super) fn write(&self, stream: &mut Vec<u8>) {
        match self {
            LzfRun::Literals(bytes) => {
                assert!((1..=32).contains(&bytes.len()));
                stream.push(bytes.len() as u8 - 1);
                stream.extend(bytes);
            }
            &LzfRun::Reference { distance, length } => {
                assert!((1..=8192).contains(&distance) && (3..=264).contains(&length));
                let (upper, lower) = ((distance - 1) >> 8, (distance - 1) as u8);
                stream.push(((length - 2).min(7) << 5 | upper) as u8);
                if length >= 9 {
                    stream.push((length - 9) as u8);
                }
                stream.push(lower);
            }
        }
    }
}

/// Greedy: the longest reference among the last distances, else a literal.
pub(super) fn lzf(bytes: &[u8]) -> Vec<u8> {
    let (mut stream, mut literals, mut at) = (Vec::new(), Vec::new(), 0);
    let flush = |literals: &mut Vec<u8>, stream: &mut Vec<u8>| {
        literals.chunks(32).for_each(|run| LzfRun::Literals(run.to_vec()).write(stream));
        literals.clear();
    };
    while at < bytes.len() {
        let agreeing = |distance: usize| {
            bytes[at..].iter().zip(&bytes[at - distance..]).take(264).take_while(|(here, there)| here == there).count()
        };
        let distances = (1..=at.min(40)).chain((41..=at.min(8192)).step_by(97));
        let (length, distance) = distances.map(|distance| (agreeing(distance), distance)).max().unwrap_or((0, 0));
        if length < 3 {
            literals.push(bytes[at]);
            at += 1;
            continue;
        }
        flush(&mut literals, &mut stream);
        LzfRun::Reference { distance, length }.write(&mut stream);
        at += length;
    }
    flush(&mut literals, &mut stream);
    stream
}
