//! Windows out of a resident series.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use megabatch_benches::series;
use megabatch_chunk_io::{SampleBlock, Source, Storage, WriteOptions, write_series};
use megabatch_gpu_core::Device;

const SAMPLES: usize = 64;

fn gathering(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("series.h5");
    let options = WriteOptions { storage: Storage::Contiguous };
    write_series(&file, &series(50_000, 480, 16), &options).expect("the series is sound");
    let source = Source::open(&file, &Device::cpu().scope("data")).expect("the file is sound");
    let mut block = SampleBlock::zeros(source.shape(), SAMPLES);
    let shuffled: Vec<usize> = (0..SAMPLES).map(|k| k * 7919 % source.shape().samples).collect();

    let mut group = criterion.benchmark_group("gather");
    group.throughput(Throughput::Bytes((SAMPLES * 480 * 16 * size_of::<f32>()) as u64));
    group.bench_function("64 consecutive windows of 480 x 16", |bencher| {
        bencher.iter(|| source.read(1000..1000 + SAMPLES, block.slices()).expect("the samples exist"));
    });
    group.bench_function("64 scattered windows of 480 x 16", |bencher| {
        bencher.iter(|| source.gather(&shuffled, block.slices()).expect("the samples exist"));
    });
    group.finish();
}

criterion_group!(benches, gathering);
criterion_main!(benches);
