//! A stored chunk of 4 MiB to f32, beside what it cannot be faster than and beside what HDF5 does:
//! zlib's format (by miniz_oxide), liblzf, a shuffle undone byte by byte, and a conversion in a
//! pass of its own.
//!
//! The values are those of training data: windows that overlap, of features that are noise, rounded
//! to two decimals, or 0 and 1.

#![allow(unsafe_code, reason = "the compressor is a library of C")]

use std::hint::black_box;
use std::io::{Read, Write};
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use half::f16;
use megabatch_benches::{StoredChunk, noise};

const CHUNK_BYTES: usize = 4 << 20;

/// Steps and features of a window.
const WINDOW: [usize; 2] = [360, 167];

fn decoding(criterion: &mut Criterion) {
    for (width, name) in [(4, "f32"), (2, "f16"), (8, "f64")] {
        let chunk = chunk(width);
        let shuffled = shuffled(width, &chunk);
        let (gzip, lzf) = (deflated(&shuffled), lzf_compressed(&shuffled));
        println!("{name}: {CHUNK_BYTES} bytes, {} by gzip, {} by lzf", gzip.len(), lzf.len());

        let mut group = criterion.benchmark_group(format!("decode {name}"));
        group.throughput(Throughput::Bytes(CHUNK_BYTES as u64));
        floor(&mut group, width);
        ours(&mut group, width, &[], &chunk);
        ours(&mut group, width, &["shuffle"], &shuffled);
        ours(&mut group, width, &["shuffle", "deflate"], &gzip);
        ours(&mut group, width, &["shuffle", "lzf"], &lzf);
        ours(&mut group, width, &["fletcher32"], &checksummed(&chunk));
        plain(&mut group, "shuffle", width, |planes| planes.copy_from_slice(&shuffled));
        plain(&mut group, "shuffle deflate", width, |planes| {
            ZlibDecoder::new(&gzip[..]).read_exact(planes).expect("the stream is sound");
        });
        plain(&mut group, "shuffle lzf", width, |planes| lzf_decompress(&lzf, planes));
        group.finish();
    }
}

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn ours(group: &mut Group<'_>, width: usize, filters: &[&str], stored: &[u8]) {
    let elements = CHUNK_BYTES / width;
    let (mut chunk, mut out) = (StoredChunk::new(filters, elements, width, stored.to_vec()), vec![0.0; elements]);
    let name = if filters.is_empty() { "no filter".to_owned() } else { filters.join(" ") };
    group.bench_function(name, |b| b.iter(|| chunk.decode(&mut out)));
}

/// Decompression by `decompress`, then the shuffle undone, then the conversion.
fn plain(group: &mut Group<'_>, name: &str, width: usize, decompress: impl Fn(&mut [u8])) {
    let (mut planes, mut bytes, mut out) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES], vec![0.0; CHUNK_BYTES / width]);
    group.bench_function(format!("{name}, plain"), |b| {
        b.iter(|| {
            decompress(&mut planes);
            unshuffle(width, &planes, &mut bytes);
            convert(width, &bytes, &mut out);
        });
    });
}

/// A pass that moves as many bytes as the chunk and its f32 are, whichever are more.
fn floor(group: &mut Group<'_>, width: usize) {
    let moved = CHUNK_BYTES.max(CHUNK_BYTES / width * 4);
    let (from, mut to) = (vec![1u8; moved], vec![0u8; moved]);
    group.bench_function("floor: bytes copied", |b| b.iter(|| black_box(&mut to).copy_from_slice(&from)));
}

/// Windows one bar apart, until they fill the chunk.
fn chunk(width: usize) -> Vec<u8> {
    let [steps, features] = WINDOW;
    let elements = CHUNK_BYTES / width;
    let series = series(steps + elements / (steps * features) + 1, features);
    let windows = series.windows(steps * features).step_by(features).flatten().take(elements);
    windows.flat_map(|&value| stored_value(width, value)).collect()
}

/// The first half of the features wander, a third are rounded, twenty are 0 or 1.
fn series(bars: usize, features: usize) -> Vec<f32> {
    let mut series = noise(bars * features);
    for k in features..series.len() {
        series[k] = 0.97 * series[k - features] + 0.42 * series[k];
    }
    for bar in series.chunks_mut(features) {
        let (rounded, flags) = (features / 2..features / 2 + features / 3, features - 20..features);
        bar[rounded].iter_mut().for_each(|value| *value = (*value * 100.0).round() / 100.0);
        bar[flags].iter_mut().for_each(|value| *value = f32::from(*value > 0.0));
    }
    series
}

fn stored_value(width: usize, value: f32) -> Vec<u8> {
    match width {
        2 => f16::from_f32(value).to_le_bytes().to_vec(),
        4 => value.to_le_bytes().to_vec(),
        _ => f64::from(value).to_le_bytes().to_vec(),
    }
}

fn shuffled(element_bytes: usize, bytes: &[u8]) -> Vec<u8> {
    (0..element_bytes).flat_map(|byte| bytes.iter().skip(byte).step_by(element_bytes).copied()).collect()
}

fn unshuffle(width: usize, planes: &[u8], bytes: &mut [u8]) {
    for (byte, plane) in planes.chunks_exact(planes.len() / width).enumerate() {
        bytes.iter_mut().skip(byte).step_by(width).zip(plane).for_each(|(to, &from)| *to = from);
    }
}

fn convert(width: usize, bytes: &[u8], out: &mut [f32]) {
    let elements = bytes.chunks_exact(width).zip(out);
    match width {
        2 => elements.for_each(|(from, to)| *to = f16::from_le_bytes([from[0], from[1]]).to_f32()),
        4 => elements.for_each(|(from, to)| *to = f32::from_le_bytes(from.try_into().expect("four bytes"))),
        _ => elements.for_each(|(from, to)| *to = f64::from_le_bytes(from.try_into().expect("eight bytes")) as f32),
    }
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(4));
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

/// Zeros, whose checksum is zero: summing takes the same time for any.
fn checksummed(bytes: &[u8]) -> Vec<u8> {
    vec![0; bytes.len() + 4]
}

fn lzf_compressed(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0u8; bytes.len() * 2];
    // SAFETY: both ranges are those of the vectors.
    let written = unsafe {
        lzf_sys::lzf_compress(bytes.as_ptr().cast(), bytes.len() as u32, out.as_mut_ptr().cast(), out.len() as u32)
    };
    assert_ne!(written, 0, "it fits into twice the bytes");
    out.truncate(written as usize);
    out
}

fn lzf_decompress(stored: &[u8], out: &mut [u8]) {
    // SAFETY: both ranges are those of the slices.
    let written = unsafe {
        lzf_sys::lzf_decompress(stored.as_ptr().cast(), stored.len() as u32, out.as_mut_ptr().cast(), out.len() as u32)
    };
    assert_eq!(written as usize, out.len(), "the stream is sound");
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = decoding
}
criterion_main!(benches);
