//! Windows become a series and a series windows, without losing a bit.

use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;

use megabatch_chunk_io::{
    Compression, Conversion, ConvertOptions, Error, Layout, SampleBlock, SeriesFile, Source, SourceOptions,
    StorageChoice, StorageForm, convert, inspect,
};
use megabatch_gpu_core::{Device, Scope};
use proptest::prelude::*;

use crate::recorded::{Recording, TimeframePlan, Windows, timeframe};

fn scope() -> Scope {
    Device::cpu().scope("data")
}

fn to(layout: Layout) -> ConvertOptions {
    ConvertOptions { to: Some(layout), threads: 1, ..ConvertOptions::default() }
}

fn run(input: &Path, out: &Path, options: &ConvertOptions) -> Result<Conversion, Error> {
    convert(input, out, options, &scope(), &mut |_| ControlFlow::Continue(()))
}

/// All samples of a file, as bits.
fn samples(path: &Path) -> (Vec<Vec<u32>>, Option<Vec<i64>>) {
    let source =
        Source::open_with(path, &scope(), SourceOptions { resident_bytes_max: 0, ..SourceOptions::default() }).unwrap();
    let mut block = SampleBlock::zeros(source.shape(), source.shape().samples);
    source.read(0..source.shape().samples, block.slices()).unwrap();
    let bits = |values: &Vec<f32>| values.iter().map(|value| value.to_bits()).collect();
    (block.features.iter().chain([&block.targets]).map(bits).collect(), source.sample_times().map(<[i64]>::to_vec))
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Windows → series → windows → series: the same samples, times where there are some, and the same
/// bars the second time.
fn round_trip(windows: &Windows, options: &ConvertOptions) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    windows.write(&at("windows.h5"));
    let to_series = ConvertOptions { to: Some(Layout::Series), ..options.clone() };
    let to_windows = ConvertOptions { to: Some(Layout::Windows), ..options.clone() };
    let first = run(&at("windows.h5"), &at("series.h5"), &to_series).unwrap();
    prop_assert_eq!((first.from, first.to, first.samples), (Layout::Windows, Layout::Series, windows.rows.len()));
    run(&at("series.h5"), &at("again.h5"), &to_windows).unwrap();
    let second = run(&at("again.h5"), &at("series2.h5"), &to_series).unwrap();
    prop_assert_eq!(&first.bars, &second.bars);

    let (values, times) = samples(&at("windows.h5"));
    prop_assert_eq!(&samples(&at("series.h5")).0, &values);
    let (again, again_times) = samples(&at("again.h5"));
    prop_assert_eq!(&again, &values);
    prop_assert_eq!(again_times, times);
    let files =
        [at("series.h5"), at("series2.h5")].map(|path| SeriesFile::open(path, &scope()).unwrap().read().unwrap());
    for (a, b) in files[0].timeframes.iter().zip(&files[1].timeframes) {
        prop_assert_eq!(
            (&a.close_time, &a.sample_end, &a.segment_start),
            (&b.close_time, &b.sample_end, &b.segment_start)
        );
    }
    prop_assert_eq!(&files[0].instruments, &files[1].instruments);
    prop_assert_eq!(names_in(folder.path()), ["again.h5", "series.h5", "series2.h5", "windows.h5"]);
    Ok(())
}

fn without_times(windows: Windows) -> Windows {
    Windows { timed: false, ..windows }
}

fn shuffle(windows: &mut Windows, seed: u64) {
    let mut state = seed;
    for n in (1..windows.rows.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        windows.rows.swap(n, (state >> 33) as usize % (n + 1));
    }
}

fn compressions() -> impl Strategy<Value = StorageChoice> {
    let compression = prop::option::weighted(
        0.5,
        prop_oneof![
            Just(Compression::None),
            (0_u8..10).prop_map(|level| Compression::Gzip { level }),
            Just(Compression::Lzf)
        ],
    );
    let chunked = (compression, prop::option::weighted(0.5, 1_usize..9)).prop_map(|(compression, rows)| {
        StorageChoice { form: None, chunk_rows: rows.and_then(NonZeroUsize::new), compression }
    });
    prop_oneof![
        3 => chunked,
        1 => Just(StorageChoice { form: Some(StorageForm::Contiguous), ..StorageChoice::default() })
    ]
}

fn recordings() -> impl Strategy<Value = Vec<Recording>> {
    let recording = (8_usize..40, 1_usize..4, prop::collection::vec((0_usize..30, 0_usize..5), 0..3));
    let recording =
        recording.prop_map(|(samples, stride, odd)| Recording { samples, stride, odd, ..Recording::default() });
    prop::collection::vec(recording, 1..4)
}

proptest! {
    #[test]
    fn windows_of_any_stride_come_back_from_their_series(
        recordings in recordings(), higher in any::<bool>(), timed in any::<bool>(), storage in compressions(),
        memory_bytes in prop_oneof![Just(1 << 12), Just(1 << 20)]
    ) {
        let windows = Windows::new(&recordings, if higher { TWO } else { ONE });
        let windows = if timed { windows } else { without_times(windows) };
        round_trip(&windows, &ConvertOptions { storage, memory_bytes, threads: 1, ..ConvertOptions::default() })?;
    }

    #[test]
    fn a_series_has_the_same_bytes_whatever_the_memory(
        recordings in recordings(), order in 0..3, timed in any::<bool>(), storage in compressions(), seed in any::<u64>(),
        memory_bytes in THREE_CHAINS_BYTES..2 * THREE_CHAINS_BYTES
    ) {
        let mut windows = Windows::new(&recordings, TWO);
        match order {
            0 => windows.rows.sort_by_key(|row| row.time),
            1 => {
                windows = Windows::new(&recordings[..1], TWO);
                shuffle(&mut windows, seed);
            }
            _ => {}
        }
        let windows = if timed || order == 1 { windows } else { without_times(windows) };
        prop_assert!(little_memory_gives_the_file_of_ample(&windows, storage, memory_bytes));
    }

    #[test]
    fn shuffled_samples_are_found_by_their_times(seed in any::<u64>(), recordings in recordings()) {
        let mut windows = Windows::new(&recordings[..1], &[timeframe("M1", 1, 12, 3)]);
        shuffle(&mut windows, seed);
        round_trip(&windows, &to(Layout::Series))?;
    }
}

const ONE: &[TimeframePlan] = &[timeframe("M1", 1, 12, 3)];
const TWO: &[TimeframePlan] = &[timeframe("M1", 1, 12, 3), timeframe("M5", 5, 6, 2)];

/// Memory that remembers a chain of each of three instruments in [`TWO`], and has room for a few
/// entries of a list.
const THREE_CHAINS_BYTES: usize = 3 * 4 * (12 * 3 + 6 * 2) * size_of::<f32>();

/// True if `windows` become a series of the same bytes in `memory_bytes` and where all fits.
fn little_memory_gives_the_file_of_ample(windows: &Windows, storage: StorageChoice, memory_bytes: usize) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    windows.write(&at("windows.h5"));
    let series_of = |name: &str, memory_bytes: usize| {
        run(&at("windows.h5"), &at(name), &ConvertOptions { storage, memory_bytes, ..to(Layout::Series) }).unwrap();
        fs::read(at(name)).unwrap()
    };
    series_of("little.h5", memory_bytes) == series_of("ample.h5", 1 << 30)
}

/// The look at a few places saw as many samples as fit into memory, one of each instrument, and
/// refused the file.
#[test]
fn instruments_that_take_turns_are_found_in_little_memory() {
    let mut windows = Windows::new(&[recording(20, 3), recording(20, 3), recording(20, 3)], TWO);
    windows.rows.sort_by_key(|row| row.time);
    assert!(little_memory_gives_the_file_of_ample(
        &without_times(windows),
        StorageChoice::default(),
        THREE_CHAINS_BYTES
    ));
}

/// Lists have chunks of 131,072 entries, so that this one has three.
#[test]
fn lists_of_several_chunks_are_written_in_pieces() {
    let windows = Windows::new(&[recording(300_000, 1)], &[timeframe("M1", 1, 8, 2)]);
    assert!(little_memory_gives_the_file_of_ample(&windows, StorageChoice::default(), 1 << 16));
}

fn recording(samples: usize, stride: usize) -> Recording {
    Recording { samples, stride, ..Recording::default() }
}

fn series(path: &Path) -> megabatch_chunk_io::Series {
    SeriesFile::open(path, &scope()).unwrap().read().unwrap()
}

#[test]
fn bars_are_stored_once_and_closed_when_the_samples_say() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let windows = Windows::new(&[recording(30, 1)], TWO);
    windows.write(&at("windows.h5"));
    let done = run(&at("windows.h5"), &at("series.h5"), &to(Layout::Series)).unwrap();
    assert_eq!(done.bars, [("M1".to_owned(), 41), ("M5".to_owned(), 11)]);
    assert!(done.verified && !done.continued && done.notes.is_empty(), "{:?}", done.notes);
    let series = series(&at("series.h5"));
    let minutes = |times: &[i64]| times.iter().map(|time| time / 60_000_000_000).collect::<Vec<_>>();
    assert_eq!(minutes(&series.timeframes[0].close_time), (24_999_989..=25_000_029).collect::<Vec<_>>());
    let fives: Vec<i64> = (24_999_975..=25_000_025).step_by(5).collect();
    assert_eq!(minutes(&series.timeframes[1].close_time), fives);
    assert_eq!(series.sample_time, windows.rows.iter().map(|row| row.time).collect::<Vec<_>>());
    assert_eq!(series.attributes["time_kind"].to_string(), "reconstructed");
    assert_eq!(series.timeframes[0].feature_names, ["feature_0", "feature_1", "feature_2"]);
    assert!(series.timeframes[0].segment_start.is_empty() && series.instruments.is_none());
}

#[test]
fn a_hole_parts_segments_and_a_step_back_in_time_instruments() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let holed = Recording { samples: 20, odd: vec![(10, 4)], ..Recording::default() };
    Windows::new(&[holed, recording(15, 2)], ONE).write(&at("windows.h5"));
    let done = run(&at("windows.h5"), &at("series.h5"), &to(Layout::Series)).unwrap();
    assert!(done.notes[0].starts_with("2 instruments were told apart and are numbered"), "{:?}", done.notes);
    let series = series(&at("series.h5"));
    let instruments = series.instruments.unwrap();
    assert_eq!(instruments.names, ["instrument_0", "instrument_1"]);
    assert_eq!(instruments.sample_instrument, [vec![0; 20], vec![1; 15]].concat());
    assert_eq!(series.timeframes[0].segment_start, [0, 21, 42]);
    assert_eq!(series.timeframes[0].instrument_start, [0, 42, 42 + 12 + 28]);
}

#[test]
fn samples_may_take_turns_between_instruments() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut windows = Windows::new(&[recording(30, 1), recording(30, 1)], TWO);
    windows.rows.sort_by_key(|row| row.time);
    windows.write(&at("windows.h5"));
    run(&at("windows.h5"), &at("series.h5"), &to(Layout::Series)).unwrap();
    let series = series(&at("series.h5"));
    assert_eq!(series.instruments.unwrap().sample_instrument, [0, 1].repeat(30));
    assert_eq!(series.timeframes[0].close_time.len(), 2 * 41);
}

#[test]
fn times_that_do_not_fit_are_kept_beside_ordinal_ones() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut windows = Windows::new(&[recording(30, 3)], ONE);
    for (n, row) in windows.rows.iter_mut().enumerate() {
        row.time = 1_000 + 20 * n as i64;
    }
    windows.write(&at("timed.h5"));
    without_times(windows).write(&at("untimed.h5"));
    for (name, note) in [("timed.h5", "/timestamps do not fit bars of one length"), ("untimed.h5", "no /timestamps")] {
        let done = run(&at(name), &at("series.h5"), &to(Layout::Series)).unwrap();
        assert!(done.notes[0].contains(note), "{:?}", done.notes);
        let series = series(&at("series.h5"));
        assert_eq!(series.attributes["time_kind"].to_string(), "ordinal");
        assert_eq!(series.sample_time[..3], [13, 26, 39]);
        run(&at("series.h5"), &at("again.h5"), &to(Layout::Windows)).unwrap();
        assert_eq!(samples(&at("again.h5")), samples(&at(name)));
    }
}

#[test]
fn a_timeframe_without_a_name_gets_one_and_loses_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    Windows::new(&[recording(30, 1)], &[timeframe("", 1, 12, 3)]).write(&at("windows.h5"));
    for (given, name) in [(None, "features"), (Some("M1"), "M1")] {
        let options = ConvertOptions { timeframe: given.map(str::to_owned), ..to(Layout::Series) };
        let done = run(&at("windows.h5"), &at("series.h5"), &options).unwrap();
        assert_eq!(done.bars, [(name.to_owned(), 41)]);
        // The length of the bars is that of the shortest step between samples where the name does
        // not tell.
        assert_eq!(series(&at("series.h5")).attributes["time_kind"].to_string(), "reconstructed");
        run(&at("series.h5"), &at("again.h5"), &to(Layout::Windows)).unwrap();
        assert!(hdf5::File::open(at("again.h5")).unwrap().dataset("features").is_ok());
        assert_eq!(samples(&at("again.h5")), samples(&at("windows.h5")));
    }
}

#[test]
fn targets_of_one_axis_are_one_a_sample() {
    const SAMPLES: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let windows: Vec<f32> = (0..SAMPLES).flat_map(|n| n..n + 8).map(|bar| bar as f32).collect();
    let targets: Vec<f64> = (0..SAMPLES).map(|n| n as f64 / 4.0).collect();
    for (name, chunk_rows) in [("contiguous.h5", None), ("chunked.h5", Some(7_usize))] {
        let file = hdf5::File::create(at(name)).unwrap();
        file.new_dataset::<f32>().shape([SAMPLES, 8, 1]).create("features").unwrap().write_raw(&windows).unwrap();
        let dataset = file.new_dataset::<f64>();
        let dataset = match chunk_rows {
            None => dataset,
            Some(rows) => dataset.chunk(rows).shuffle().deflate(4),
        };
        dataset.shape([SAMPLES]).create("targets").unwrap().write_raw(&targets).unwrap();
        file.close().unwrap();
        run(&at(name), &at("rewritten.h5"), &to(Layout::Windows)).unwrap();
        run(&at(name), &at("series.h5"), &to(Layout::Series)).unwrap();
        run(&at("series.h5"), &at("again.h5"), &to(Layout::Windows)).unwrap();
        for name in [name, "rewritten.h5", "series.h5", "again.h5"] {
            let expected: Vec<u32> = targets.iter().map(|&target| (target as f32).to_bits()).collect();
            assert_eq!(samples(&at(name)).0[1], expected, "{name}");
            let source = Source::open(at(name), &scope()).unwrap();
            let mut block = SampleBlock::zeros(source.shape(), 2);
            source.gather(&[39, 1], block.slices()).unwrap();
            assert_eq!((source.shape().horizons, block.targets), (1, vec![9.75, 0.25]), "{name}");
            let found = inspect(at(name)).unwrap();
            assert_eq!((found.targets.len(), found.targets[0].max), (1, Some(9.75)), "{name}");
        }
    }
}

#[test]
fn weeks_close_before_monday() {
    const DAY: usize = 24 * 60;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Daily samples from a Saturday, and weekly ones from a Monday.
    for (start, stride) in [(17_712 * DAY, DAY), (17_714 * DAY, 7 * DAY)] {
        let recording = Recording { samples: 40, stride, start, ..Recording::default() };
        let windows = Windows::new(&[recording], &[timeframe("D1", DAY, 30, 2), timeframe("W1", 7 * DAY, 8, 2)]);
        windows.write(&at("windows.h5"));
        run(&at("windows.h5"), &at("series.h5"), &to(Layout::Series)).unwrap();
        let series = SeriesFile::open(at("series.h5"), &scope()).unwrap();
        for (timeframe, first_day) in series.timeframes().iter().zip([0, 4]) {
            let length_ns = timeframe.close_times()[1] - timeframe.close_times()[0];
            let is_on_grid = |close: &i64| (close - first_day * DAY as i64 * 60_000_000_000) % length_ns == 0;
            assert!(timeframe.close_times().iter().all(is_on_grid), "{}, every {stride} min", timeframe.name());
        }
        run(&at("series.h5"), &at("again.h5"), &to(Layout::Windows)).unwrap();
        assert_eq!(samples(&at("again.h5")), samples(&at("windows.h5")));
        for name in ["windows.h5", "series.h5", "again.h5"] {
            fs::remove_file(at(name)).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_converted_is_refused_and_leaves_nothing() {
    type Change = fn(&mut Windows);
    let cases: [(&str, Change, &str); 5] = [
        (
            "one row differs",
            |windows| windows.rows[7].windows[0][4 * 3 + 1] = 0.5,
            "/features/M1[7]: expected at step 4 the row that sample 6 has at step 5, as most rows of the two windows agree so, found another row",
        ),
        (
            "a bar that had not closed",
            |windows| {
                for (n, row) in windows.rows.iter_mut().enumerate() {
                    row.windows[1][5 * 2] = n as f32;
                }
            },
            "/features/M5[1]: expected at step 5 the row that sample 0 has at step 5",
        ),
        (
            "windows scaled one by one",
            |windows| {
                for (n, row) in windows.rows.iter_mut().enumerate() {
                    row.windows.iter_mut().flatten().for_each(|value| *value = n as f32 + (*value).abs().min(0.5));
                }
            },
            "a series would save nothing: the windows take 5760 bytes and their bars with indices",
        ),
        ("one sample", |windows| windows.rows.truncate(1), "a series would save nothing: the windows take 192 bytes"),
        (
            "long strides",
            |windows| *windows = Windows::new(&[recording(20, 11)], ONE),
            "and continue one another too little; convert to windows",
        ),
    ];
    for (name, change, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut windows = Windows::new(&[recording(30, 1)], TWO);
        change(&mut windows);
        windows.write(&at("windows.h5"));
        let message = run(&at("windows.h5"), &at("out.h5"), &to(Layout::Series)).unwrap_err().to_string();
        assert!(message.contains(expected), "{name}: {message}");
        assert_eq!(names_in(folder.path()), ["windows.h5"], "{name}");
    }
}

#[test]
fn contradicting_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    Windows::new(&[recording(30, 1)], ONE).write(&at("windows.h5"));
    let storage = |form, rows, compression| StorageChoice { form, chunk_rows: NonZeroUsize::new(rows), compression };
    let contiguous = Some(StorageForm::Contiguous);
    let cases = [
        ("out.h5", storage(contiguous, 4, None), 1 << 20, "contiguous tables have no chunks"),
        ("out.h5", storage(contiguous, 0, Some(Compression::Lzf)), 1 << 20, "contiguous tables have no chunks"),
        ("windows.h5", StorageChoice::default(), 1 << 20, "the two must be different files"),
        ("missing/out.h5", StorageChoice::default(), 1 << 20, "cannot write here"),
        ("..", StorageChoice::default(), 1 << 20, "cannot write here"),
    ];
    for (out, storage, memory_bytes, expected) in cases {
        let options = ConvertOptions { storage, memory_bytes, ..ConvertOptions::default() };
        let message = run(&at("windows.h5"), &at(out), &options).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert_eq!(names_in(folder.path()), ["windows.h5"]);
    }
}

/// Converts with `options` into `name`, breaking off after so many reports; whether it was broken
/// off.
fn broken_off(folder: &Path, options: &ConvertOptions, reports: usize) -> bool {
    let mut seen = 0;
    let result = convert(folder.join("in.h5"), &folder.join("out.h5"), options, &scope(), &mut |_| {
        seen += 1;
        if seen > reports { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match result {
        Ok(_) => false,
        Err(Error::Interrupted { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_conversion_that_is_broken_off_anywhere_goes_on_to_the_same_file() {
    let small = StorageChoice { chunk_rows: NonZeroUsize::new(3), ..StorageChoice::default() };
    for (layout, storage) in [(Layout::Series, small), (Layout::Windows, small)] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // Little memory makes many records.
        let options = ConvertOptions { storage, memory_bytes: 2_000, ..to(layout) };
        let windows = Windows::new(&[recording(24, 1), recording(13, 2)], TWO);
        windows.write(&at("in.h5"));
        let whole = tempfile::tempdir().unwrap();
        let whole = whole.path().join("out.h5");
        run(&at("in.h5"), &whole, &options).unwrap();
        let whole = fs::read(whole).unwrap();

        let mut reports = 0;
        while broken_off(folder.path(), &options, reports) {
            assert_eq!(names_in(folder.path()), [".out.h5.convert", "in.h5"], "{layout} {reports}");
            let spool = fs::read(at(".out.h5.convert")).unwrap();
            let cuts = [spool.len(), spool.len() - 1, spool.len() * 2 / 3, spool.len() / 2 + 1, 40, 31, 0];
            for cut in cuts.into_iter().filter(|cut| *cut <= spool.len()) {
                fs::write(at(".out.h5.convert"), &spool[..cut]).unwrap();
                let done = run(&at("in.h5"), &at("out.h5"), &options).unwrap();
                assert!(fs::read(at("out.h5")).unwrap() == whole, "{layout}: after {reports} reports, cut to {cut}");
                assert_eq!(names_in(folder.path()), ["in.h5", "out.h5"]);
                assert!(done.verified && (done.continued || cut < spool.len() || reports == 0));
                fs::remove_file(at("out.h5")).unwrap();
            }
            reports += 5;
        }
        assert!(reports > 20, "{layout}: only {reports} reports");
    }
}

#[test]
fn a_spool_of_another_input_or_of_other_options_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    Windows::new(&[recording(24, 1)], ONE).write(&at("in.h5"));
    let options = ConvertOptions { memory_bytes: 2_000, ..to(Layout::Series) };
    assert!(broken_off(folder.path(), &options, 4));
    Windows::new(&[recording(25, 1)], ONE).write(&at("in.h5"));
    let done = run(&at("in.h5"), &at("out.h5"), &options).unwrap();
    assert!(!done.continued && done.notes[0].contains("discarded"), "{:?}", done.notes);
    assert_eq!(samples(&at("out.h5")).0, samples(&at("in.h5")).0);
}

#[test]
fn memory_is_bounded_whatever_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let windows = Windows::new(&[recording(2_000, 1)], &[timeframe("M1", 1, 60, 16)]);
    windows.write(&at("in.h5"));
    drop(windows);
    for (from, out, layout) in
        [("in.h5", "s.h5", Layout::Series), ("s.h5", "w.h5", Layout::Windows), ("w.h5", "x.h5", Layout::Windows)]
    {
        let device = Device::cpu();
        let scope = device.scope("data");
        let storage = StorageChoice { chunk_rows: NonZeroUsize::new(8), ..StorageChoice::default() };
        let options = ConvertOptions { to: Some(layout), storage, memory_bytes: 1 << 19, ..ConvertOptions::default() };
        convert(at(from), &at(out), &options, &scope, &mut |_| ControlFlow::Continue(())).unwrap();
        let peak = device.usage().allocated_bytes_peak;
        assert!(peak <= (1 << 19) + 3 * 8 * 2_000 * 2, "{out}: {peak} bytes");
    }
    assert_eq!(samples(&at("x.h5")), samples(&at("in.h5")));

    let storage = StorageChoice { chunk_rows: NonZeroUsize::new(2_000), ..StorageChoice::default() };
    let options = ConvertOptions { storage, memory_bytes: 1 << 19, ..ConvertOptions::default() };
    let message = run(&at("in.h5"), &at("y.h5"), &options).unwrap_err().to_string();
    assert!(
        message.contains("chunks of 2000 rows of 3840 bytes") && message.contains("allow more memory"),
        "{message}"
    );
}
