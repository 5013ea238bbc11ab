//! Slices of 16-bit floats to and from f32, beside the floor (copying as many bytes) and beside the
//! `half` crate.

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use megabatch_benches::noise;
use megabatch_gpu_core::convert;

/// Within the second-level cache, and far beyond the last.
const LENGTHS: [(usize, &str); 2] = [(64 << 10, "64 Ki elements"), (32 << 20, "32 Mi elements")];

fn converting(criterion: &mut Criterion) {
    for (len, name) in LENGTHS {
        let floats = noise(len);
        let mut halves = vec![f16::ZERO; len];
        let mut bfloats = vec![bf16::ZERO; len];
        let mut widened = vec![0.0f32; len];

        let mut group = criterion.benchmark_group(format!("convert {name}"));
        floor(&mut group, len);
        group.bench_function("f32 to f16", |b| b.iter(|| convert::f32_to_f16(&floats, &mut halves)));
        group.bench_function("f32 to f16, half", |b| b.iter(|| halves.convert_from_f32_slice(&floats)));
        group.bench_function("f16 to f32", |b| b.iter(|| convert::f16_to_f32(&halves, &mut widened)));
        group.bench_function("f16 to f32, half", |b| b.iter(|| halves.convert_to_f32_slice(&mut widened)));
        group.bench_function("f32 to bf16", |b| b.iter(|| convert::f32_to_bf16(&floats, &mut bfloats)));
        group.bench_function("f32 to bf16, half", |b| b.iter(|| bfloats.convert_from_f32_slice(&floats)));
        group.bench_function("bf16 to f32", |b| b.iter(|| convert::bf16_to_f32(&bfloats, &mut widened)));
        group.bench_function("bf16 to f32, half", |b| b.iter(|| bfloats.convert_to_f32_slice(&mut widened)));
        group.finish();
    }
}

/// Reading four bytes and writing two an element, or the other way round, cannot be faster than
/// copying three.
fn floor(group: &mut BenchmarkGroup<'_, WallTime>, len: usize) {
    group.throughput(Throughput::Elements(len as u64));
    let from = vec![1u8; 3 * len];
    let mut to = vec![0u8; 3 * len];
    group.bench_function("floor: 3 bytes an element copied", |b| b.iter(|| to.copy_from_slice(&from)));
}

criterion_group!(benches, converting);
criterion_main!(benches);
