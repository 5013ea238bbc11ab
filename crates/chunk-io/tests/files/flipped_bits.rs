//! One flipped bit anywhere in the arrays of a series with a mark of verification: whatever the
//! chunks, filters and types, reads give what was written or an error.

use std::fs;
use std::path::Path;

use half::f16;
use hdf5::{Dataset, File, Group, H5Type};
use megabatch_chunk_io::{
    Error, SampleBlock, Series, SeriesColumn, Source, SourceOptions, Storage, WriteOptions, write_series,
};
use megabatch_gpu_core::Device;
use proptest::prelude::*;

use crate::made::{self, Plan, timeframe};

/// Several blocks of checksums in each array, of numbers that each type holds.
fn series() -> Series {
    let timeframes = vec![timeframe("M1", 1, 6, 7), timeframe("M5", 5, 3, 16)];
    let plan = Plan { timeframes, horizons: 3, ..Plan::two_instruments() };
    let mut series = made::series(&Plan { base_bars: vec![1_500, 1_200], ..plan });
    let tables = series.timeframes.iter_mut().flat_map(|timeframe| &mut timeframe.values);
    tables
        .chain(&mut series.targets)
        .chain(&mut series.sample_weight)
        .for_each(|value| *value = f16::from_f32(*value).to_f32());
    series
}

/// Form in which an array is stored.
#[derive(Clone, Debug)]
struct Form {
    chunk_rows: usize,
    chunk_columns: usize,
    filters: Filters,
    element: ElementType,
}

#[derive(Clone, Copy, Debug)]
enum Filters {
    None,
    Lzf,
    ShuffledLzf,
    Gzip,
    Fletcher,
    All,
}

#[derive(Clone, Copy, Debug)]
enum ElementType {
    Half,
    Single,
    Double,
}

fn forms() -> impl Strategy<Value = Form> {
    use Filters::{All, Fletcher, Gzip, Lzf, None, ShuffledLzf};
    let filters = prop::sample::select(vec![None, Lzf, ShuffledLzf, Gzip, Fletcher, All]);
    let elements = prop::sample::select(vec![ElementType::Half, ElementType::Single, ElementType::Double]);
    let chunk_rows = prop_oneof![3 => 5_usize..900, 1 => prop::sample::select(vec![16_usize, 64, 128, 146, 256, 512])];
    let form = |(chunk_rows, chunk_columns, filters, element)| Form { chunk_rows, chunk_columns, filters, element };
    (chunk_rows, prop_oneof![3 => Just(99_usize), 1 => 1_usize..8], filters, elements).prop_map(form)
}

/// Stores the dataset `name` of `group` anew, `T` being its type.
fn store_as<T: H5Type>(group: &Group, name: &str, form: &Form) {
    let old = group.dataset(name).unwrap();
    let (values, shape) = (old.read_raw::<T>().unwrap(), old.shape());
    let steps = old.attr("seq_len").and_then(|steps| steps.read_scalar::<i64>()).ok();
    drop(old);
    group.unlink(name).unwrap();
    let mut chunk = shape.clone();
    chunk[0] = form.chunk_rows.min(shape[0]);
    chunk.iter_mut().skip(1).for_each(|columns| *columns = form.chunk_columns.min(*columns));
    let builder = group.new_dataset::<T>().chunk(chunk);
    let builder = match form.filters {
        Filters::None => builder,
        Filters::Lzf => builder.lzf(),
        Filters::ShuffledLzf => builder.shuffle().lzf(),
        Filters::Gzip => builder.deflate(1),
        Filters::Fletcher => builder.fletcher32(),
        Filters::All => builder.shuffle().deflate(1).fletcher32(),
    };
    let new = builder.shape(shape).create(name).unwrap();
    new.write_raw(&values).unwrap();
    if let Some(steps) = steps {
        new.new_attr::<i64>().create("seq_len").unwrap().write_scalar(&steps).unwrap();
    }
}

/// Stores an array of the series at `path` in another form.
fn store(path: &Path, array: &str, form: &Form) {
    let file = File::open_rw(path).unwrap();
    let (parent, name) = array.rsplit_once('/').unwrap();
    let group = file.group(if parent.is_empty() { "/" } else { parent }).unwrap();
    match form.element {
        _ if array.ends_with("time") => store_as::<i64>(&group, name, form),
        _ if array.starts_with("/samples") && !array.ends_with("weight") => store_as::<i32>(&group, name, form),
        ElementType::Half => store_as::<f16>(&group, name, form),
        ElementType::Single => store_as::<f32>(&group, name, form),
        ElementType::Double => store_as::<f64>(&group, name, form),
    }
}

/// Places and lengths of what a dataset has in its file.
fn extents(dataset: &Dataset) -> Vec<(u64, u64)> {
    match dataset.offset() {
        Some(offset) if !dataset.is_chunked() => vec![(offset, dataset.storage_size())],
        _ => {
            let mut extents = Vec::new();
            let visited = dataset.chunks_visit(|chunk| {
                extents.push((chunk.addr, chunk.size));
                0
            });
            visited.map(|()| extents).unwrap()
        }
    }
}

const ARRAYS: [&str; 11] = [
    "/series/M1/values",
    "/series/M5/values",
    "/targets",
    "/series/M1/close_time",
    "/samples/end/M1",
    "/samples/end/M5",
    "/samples/time",
    "/samples/reach_time",
    "/samples/label_end_time",
    "/samples/instrument",
    "/samples/weight",
];

fn open(path: &Path, cache_bytes: Option<usize>) -> Result<Source, Error> {
    let options = SourceOptions { series_cache_bytes: cache_bytes, threads: 1, ..SourceOptions::default() };
    Source::open_with(path, &Device::cpu().scope("data"), options)
}

/// Bits of samples and of their times, which training reads.
fn read(source: &Source, samples: &[usize]) -> Result<(SampleBlock, Vec<i64>), Error> {
    let mut block = SampleBlock::zeros(source.shape(), samples.len());
    source.gather(samples, block.slices())?;
    let file = source.series().unwrap().file();
    let mut times = vec![0; 3 * samples.len()];
    let columns = [SeriesColumn::SampleTime, SeriesColumn::ReachTime, SeriesColumn::LabelEndTime];
    for (time, (column, &sample)) in
        times.iter_mut().zip(columns.iter().flat_map(|column| samples.iter().map(move |sample| (column, sample))))
    {
        file.read_column(*column, sample..sample + 1, std::slice::from_mut(time))?;
    }
    Ok((block, times))
}

/// A case takes milliseconds, and few of them meet the edge of a block.
fn cases() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    ProptestConfig { cases: 8 * config.cases, ..config }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_flipped_bit_is_an_error_or_changes_nothing(
        array in prop_oneof![3 => 0..3_usize, 1 => 3..ARRAYS.len()],
        form in forms(),
        bit in any::<prop::sample::Index>(),
        cache_bytes in prop_oneof![Just(0_usize), 4_000_usize..200_000, Just(10_000_000)],
        step in prop::sample::select(vec![1_usize, 37, 401]),
        batch in 1_usize..200,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("series.h5");
        write_series(&path, &series(), &WriteOptions { storage: Storage::Contiguous }).unwrap();
        store(&path, ARRAYS[array], &form);
        let resident = open(&path, None).unwrap();
        let extents = extents(&File::open(&path).unwrap().dataset(ARRAYS[array]).unwrap());
        let stored_bits: u64 = extents.iter().map(|(_, bytes)| 8 * bytes).sum();
        let mut place = bit.index(stored_bits as usize) as u64;
        let extent = extents.iter().find(|(_, bytes)| {
            let is_here = place < 8 * bytes;
            place -= if is_here { 0 } else { 8 * bytes };
            is_here
        });
        let mut bytes = fs::read(&path).unwrap();
        bytes[(extent.unwrap().0 + place / 8) as usize] ^= 1 << (place % 8);
        let flipped = path.with_extension("flipped.h5");
        fs::write(&flipped, bytes).unwrap();

        // Every sample, in steps through the file as shuffled batches go.
        let samples = resident.shape().samples;
        let order: Vec<usize> = (0..step).flat_map(|first| (first..samples).step_by(step)).collect();
        let Ok(source) = open(&flipped, Some(cache_bytes)) else { return Ok(()) };
        prop_assert_eq!(source.sample_weights(), resident.sample_weights());
        for batch in order.chunks(batch) {
            let (expected, times) = read(&resident, batch).unwrap();
            let Ok((found, found_times)) = read(&source, batch) else { return Ok(()) };
            prop_assert_eq!(times, found_times, "{:?}", batch);
            let tables = expected.features.iter().chain([&expected.targets]);
            for (expected, found) in tables.zip(found.features.iter().chain([&found.targets])) {
                prop_assert!(expected.iter().map(|x| x.to_bits()).eq(found.iter().map(|x| x.to_bits())));
            }
        }
    }
}
