//! Written data are read back by either interface, bit for bit.

mod made;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use made::{Plan, timeframe};
use megabatch_chunk_io::{
    Compression, Error, Layout, SampleBlock, Series, SeriesFile, Shape, Source, SourceOptions, Storage, TimeframeShape,
    WindowsHeader, WriteOptions, timeframe_order, write_series, write_windows,
};
use megabatch_gpu_core::{Device, Scope};
use proptest::prelude::*;

fn scope() -> Scope {
    Device::cpu().scope("data")
}

fn storages() -> impl Strategy<Value = WriteOptions> {
    let compression = prop_oneof![
        Just(Compression::None),
        (0_u8..10).prop_map(|level| Compression::Gzip { level }),
        Just(Compression::Lzf)
    ];
    let chunked = (prop::option::weighted(0.5, 1_usize..50), compression)
        .prop_map(|(rows, compression)| Storage::Chunked { rows: rows.and_then(NonZeroUsize::new), compression });
    prop_oneof![Just(Storage::Contiguous), chunked].prop_map(|storage| WriteOptions { storage })
}

fn plans() -> impl Strategy<Value = Plan> {
    let base = (1_usize..6, 1_usize..4).prop_map(|(steps, features)| timeframe("M1", 1, steps, features));
    let higher = prop::option::weighted(
        0.5,
        (1_usize..4, 1_usize..4).prop_map(|(steps, features)| timeframe("M5", 5, steps, features)),
    );
    let timeframes = (base, higher).prop_map(|(base, higher)| [base].into_iter().chain(higher).collect::<Vec<_>>());
    (timeframes, prop::collection::vec(0_usize..20, 1..4), 1_usize..4).prop_map(|(timeframes, mut bars, horizons)| {
        // The first instrument has at least one sample.
        bars[0] += timeframes.iter().map(|timeframe| timeframe.base_bars * timeframe.steps).max().unwrap();
        Plan { timeframes, base_bars: bars, horizons }
    })
}

/// The samples of a series by the definition: the rows `end - T + 1 ..= end`.
fn by_definition(series: &Series, samples: &[usize]) -> SampleBlock {
    let mut timeframes: Vec<_> = series.timeframes.iter().collect();
    timeframes.sort_by(|a, b| timeframe_order(&a.name, &b.name));
    let horizons = series.targets.len() / series.sample_time.len();
    let mut block =
        SampleBlock { samples: samples.len(), features: vec![Vec::new(); timeframes.len()], targets: Vec::new() };
    for &n in samples {
        for (timeframe, out) in timeframes.iter().zip(&mut block.features) {
            let features = timeframe.feature_names.len();
            for step in 0..timeframe.steps {
                let bar = timeframe.sample_end[n] as usize + step + 1 - timeframe.steps;
                out.extend((0..features).map(|feature| timeframe.values[bar * features + feature]));
            }
        }
        block.targets.extend((0..horizons).map(|k| series.targets[n * horizons + k]));
    }
    block
}

fn header_of<'a>(shape: &'a Shape, series: &'a Series) -> WindowsHeader<'a> {
    WindowsHeader { shape, sample_times: Some(&series.sample_time), attributes: &series.attributes }
}

proptest! {
    #[test]
    fn a_series_comes_back_and_its_windows_are_as_defined(plan in plans(), options in storages(), seed in any::<u64>()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("series.h5");
        let series = made::series(&plan);
        write_series(&path, &series, &options).unwrap();
        prop_assert_eq!(&SeriesFile::open(&path, &scope()).unwrap().read().unwrap(), &series);

        let source = Source::open(&path, &scope()).unwrap();
        let samples = source.shape().samples;
        let list: Vec<usize> = (0..5).map(|i| (seed as usize).wrapping_mul(i + 1) % samples).collect();
        let mut gathered = SampleBlock::zeros(source.shape(), list.len());
        source.gather(&list, gathered.slices()).unwrap();
        prop_assert_eq!(gathered, by_definition(&series, &list));
        let range = list[0].min(list[1])..list[0].max(list[1]) + 1;
        let mut read = SampleBlock::zeros(source.shape(), range.len());
        source.read(range.clone(), read.slices()).unwrap();
        prop_assert_eq!(read, by_definition(&series, &range.collect::<Vec<_>>()));
    }

    #[test]
    fn windows_pushed_in_batches_come_back_held_or_from_the_file(
        plan in plans(), options in storages(), seed in any::<u64>(), batch in 1_usize..8
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("windows.h5");
        let mut series = made::series(&plan);
        // In 2017: in January 1970 they would be taken for times of another unit.
        series.sample_time.iter_mut().for_each(|time| *time += 1_500_000_000_000_000_000);
        let samples = series.sample_time.len();
        let all = by_definition(&series, &(0..samples).collect::<Vec<_>>());
        let timeframes = series.timeframes.iter().map(|timeframe| TimeframeShape {
            name: Some(timeframe.name.clone()), steps: timeframe.steps, features: timeframe.feature_names.len(),
        });
        let shape = Shape { samples, timeframes: timeframes.collect(), horizons: plan.horizons };
        write_windows(&path, &header_of(&shape, &series), &options, |writer| -> Result<(), Error> {
            let starts: Vec<usize> = (0..samples).collect();
            starts.chunks(batch).try_for_each(|samples| writer.push(&by_definition(&series, samples)))
        }).unwrap();

        for resident_bytes_max in [0, usize::MAX] {
            let source = Source::open_with(&path, &scope(), SourceOptions { resident_bytes_max, ..SourceOptions::default() }).unwrap();
            prop_assert_eq!(source.layout(), Layout::Windows);
            prop_assert_eq!(source.shape(), &shape);
            prop_assert_eq!(source.sample_times(), Some(&series.sample_time[..]));
            let mut read = SampleBlock::zeros(source.shape(), samples);
            source.read(0..samples, read.slices()).unwrap();
            prop_assert_eq!(&read, &all);
            let list: Vec<usize> = (0..9).map(|i| (seed as usize).wrapping_mul(i + 1) % samples).collect();
            let mut gathered = SampleBlock::zeros(source.shape(), list.len());
            source.gather(&list, gathered.slices()).unwrap();
            prop_assert_eq!(gathered, by_definition(&series, &list));
        }
    }
}

#[test]
fn the_same_series_makes_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let series = made::series(&Plan::two_instruments());
    let write = |name: &str| {
        let path = folder.path().join(name);
        write_series(&path, &series, &WriteOptions::default()).unwrap();
        std::fs::read(path).unwrap()
    };
    assert!(write("a.h5") == write("b.h5"));

    // The two were probably written within one second, so that a time in them would not show.
    let file = hdf5::File::open(folder.path().join("a.h5")).unwrap();
    for object in ["/", "/series", "/series/M1/values", "/samples", "/instruments", "/scaler/M1"] {
        let info = file.loc_info_by_name(object).unwrap();
        assert_eq!([info.atime, info.mtime, info.ctime, info.btime], [0; 4], "{object}");
    }
}

#[test]
fn memory_is_booked_on_the_scope_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    let series = made::series(&Plan::small());
    write_series(&path, &series, &WriteOptions::default()).unwrap();
    let device = Device::cpu();
    let source = Source::open(&path, &device.scope("data/series")).unwrap();
    let samples = series.sample_time.len();
    let timeframe_bytes = |timeframe: &megabatch_chunk_io::SeriesTimeframe| {
        4 * timeframe.values.len() + 8 * timeframe.close_time.len() + 8 * samples
    };
    let expected =
        8 * samples + 4 * series.targets.len() + series.timeframes.iter().map(timeframe_bytes).sum::<usize>();
    assert_eq!(device.scope("data/series").usage().allocated_bytes, expected);
    drop(source);
    assert_eq!(device.usage().allocated_bytes, 0);
}

#[test]
fn a_series_knows_when_its_windows_start_and_its_labels_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    let series = made::series(&Plan::two_instruments());
    write_series(&path, &series, &WriteOptions::default()).unwrap();
    let source = Source::open(&path, &scope()).unwrap();
    let series_source = source.series().unwrap();
    let minutes = |times: Vec<i64>| times.into_iter().map(|time| time / 60_000_000_000).collect::<Vec<_>>();
    // Samples are at minutes 10 to 40 and 10 to 30; windows are 4 bars of one minute and 2 of five.
    let base = minutes(series_source.window_start_times(0).collect());
    assert_eq!((base[0], base[30], base[31], base[51]), (7, 37, 7, 27));
    let higher = minutes(series_source.window_start_times(1).collect());
    assert_eq!((higher[0], higher[4], higher[5], higher[30]), (5, 5, 10, 35));
    let ahead: Vec<_> = series_source.close_times_ahead(3).map(|time| time.map(|time| time / 60_000_000_000)).collect();
    assert_eq!([ahead[0], ahead[27], ahead[28], ahead[31], ahead[51]], [Some(13), Some(40), None, Some(13), None]);
    assert_eq!(source.instruments(), ["PAIR0 €", "PAIR1 €"]);
    assert_eq!(source.sample_instruments().unwrap().iter().filter(|&&instrument| instrument == 1).count(), 21);
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    write_series(&path, &made::series(&Plan::small()), &WriteOptions::default()).unwrap();
    let source = Source::open(&path, &scope()).unwrap();
    let mut block = SampleBlock::zeros(source.shape(), 2);
    let cases = [
        (source.read(30..32, block.slices()), "samples 30..32 asked for, but the file has 31"),
        (source.gather(&[0, 31], block.slices()), "sample 31 asked for, but the file has 31"),
        (
            source.read(0..3, block.slices()),
            "3 samples into memory for [24, 8] features and 4 targets asked for, but they are [36, 12] features and 6 targets",
        ),
    ];
    for (result, expected) in cases {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "the case is a range given backward")]
    let backward = source.read(3..1, SampleBlock::zeros(source.shape(), 0).slices());
    assert!(backward.unwrap_err().to_string().contains("samples 3..1 asked for"));
    source.read(31..31, SampleBlock::zeros(source.shape(), 0).slices()).unwrap();
    source.gather(&[], SampleBlock::zeros(source.shape(), 0).slices()).unwrap();
}

#[test]
fn a_windows_file_that_is_not_completed_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("windows.h5");
    std::fs::write(&path, "earlier").unwrap();
    let timeframe = TimeframeShape { name: None, steps: 2, features: 1 };
    let shape = Shape { samples: 3, timeframes: vec![timeframe], horizons: 1 };
    let attributes = BTreeMap::new();
    let header = WindowsHeader { shape: &shape, sample_times: None, attributes: &attributes };
    let write = |blocks: &[usize]| {
        write_windows(&path, &header, &WriteOptions::default(), |writer| -> Result<(), Error> {
            blocks.iter().try_for_each(|&samples| writer.push(&SampleBlock::zeros(&shape, samples)))
        })
    };
    let cases = [
        (&[2][..], "a file of 3 samples asked for, but 2 were pushed"),
        (&[2, 2], "a block of 2 samples, features [4], targets 2 asked for, but 1 samples are left"),
    ];
    for (blocks, expected) in cases {
        let message = write(blocks).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert_eq!(std::fs::read(&path).unwrap(), b"earlier");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    write(&[2, 1]).unwrap();
    let source = Source::open(&path, &scope()).unwrap();
    assert_eq!((source.shape(), source.sample_times()), (&shape, None));
}

#[test]
fn doubles_are_rounded_in_batches_that_cover_every_row_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("doubles.h5");
    // 4.8 MB, several batches; chunks of 7 rows divide neither the batches nor the file.
    let (samples, steps, features) = (300, 100, 20);
    let values: Vec<f64> = (0..samples * steps * features).map(|i| 1.0 + i as f64 * 1e-9).collect();
    let file = hdf5::File::create(&path).unwrap();
    let dataset = file.new_dataset::<f64>().chunk([7, 30, 20]).deflate(1).shape([samples, steps, features]);
    dataset.create("features").unwrap().write_raw(&values).unwrap();
    file.new_dataset::<f32>()
        .shape([samples, 1])
        .create("targets")
        .unwrap()
        .write_raw(&vec![0.0_f32; samples])
        .unwrap();
    file.close().unwrap();
    let source =
        Source::open_with(&path, &scope(), SourceOptions { resident_bytes_max: 0, ..SourceOptions::default() })
            .unwrap();
    for range in [0..samples, 5..samples, 69..71, 299..300] {
        let mut block = SampleBlock::zeros(source.shape(), range.len());
        source.read(range.clone(), block.slices()).unwrap();
        let row = steps * features;
        let expected = values[range.start * row..range.end * row].iter().map(|&value| value as f32);
        assert!(expected.eq(block.features[0].iter().copied()), "{range:?}");
    }
}
