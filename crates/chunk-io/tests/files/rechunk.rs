//! A file with other chunks or another compression holds what it held: every value, type, attribute
//! and link.

use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;

use hdf5::filters::Filter;
use hdf5::types::VarLenUnicode;
use hdf5::{Dataset, File};
use megabatch_chunk_io::{Compression, Conversion, ConvertOptions, Layout, StorageChoice, StorageForm, convert};
use megabatch_gpu_core::Device;

use crate::recorded::{Recording, Windows, timeframe};

fn run(input: &Path, out: &Path, storage: StorageChoice) -> Conversion {
    let options = ConvertOptions { storage, ..ConvertOptions::default() };
    convert(input, out, &options, &Device::cpu().scope("data"), &mut |_| ControlFlow::Continue(())).unwrap()
}

fn chunked(rows: usize, compression: Option<Compression>) -> StorageChoice {
    StorageChoice { form: None, chunk_rows: NonZeroUsize::new(rows), compression }
}

/// A file of everything that HDF5 files have.
fn varied(path: &Path) {
    let file = File::create(path).unwrap();
    let text: VarLenUnicode = "μ and €".parse().unwrap();
    file.new_attr::<VarLenUnicode>().create("text").unwrap().write_scalar(&text).unwrap();
    file.new_attr::<i32>().shape([2, 3]).create("grid").unwrap().write_raw(&[1, 2, 3, 4, 5, 6]).unwrap();
    let features =
        file.new_dataset::<f64>().chunk([2, 4, 3]).fletcher32().deflate(1).shape((7.., 4, 3)).create("features");
    let features = features.unwrap();
    features.write_raw(&(0..84).map(|i| f64::from(i) / 7.0).collect::<Vec<_>>()).unwrap();
    let units: Vec<VarLenUnicode> = ["a", "", "bcd"].map(|unit| unit.parse().unwrap()).into();
    features.new_attr::<VarLenUnicode>().shape([3]).create("units").unwrap().write_raw(&units).unwrap();
    file.new_dataset::<i16>()
        .shape([7, 2])
        .create("targets")
        .unwrap()
        .write_raw(&(0..14_i16).collect::<Vec<_>>())
        .unwrap();
    file.new_dataset::<i64>()
        .shape([7])
        .create("timestamps")
        .unwrap()
        .write_raw(&(0..7_i64).collect::<Vec<_>>())
        .unwrap();
    let notes = file.create_group("notes").unwrap();
    notes.new_attr::<f64>().create("version").unwrap().write_scalar(&1.5).unwrap();
    notes.new_dataset::<VarLenUnicode>().shape([3]).create("texts").unwrap().write_raw(&units).unwrap();
    notes.new_dataset::<f32>().create("scalar").unwrap().write_scalar(&f32::NAN).unwrap();
    notes.new_dataset::<u8>().shape([0, 5]).create("empty").unwrap();
    notes.new_dataset::<bool>().shape([3]).create("flags").unwrap().write_raw(&[true, false, true]).unwrap();
    file.link_hard("/features", "/notes/same").unwrap();
    file.link_soft("/nowhere", "/dangling").unwrap();
    file.link_soft("/targets", "/notes/alias").unwrap();
    file.link_external("absent.h5", "/x", "/outside").unwrap();
}

fn filters(dataset: &Dataset) -> Vec<Filter> {
    dataset.filters()
}

#[test]
fn everything_in_a_file_comes_along() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    varied(&at("in.h5"));
    let done = run(&at("in.h5"), &at("out.h5"), chunked(4, Some(Compression::Lzf)));
    assert_eq!((done.from, done.to, done.samples), (Layout::Windows, Layout::Windows, 7));
    assert!(done.notes.is_empty(), "{:?}", done.notes);
    let (old, new) = (File::open(at("in.h5")).unwrap(), File::open(at("out.h5")).unwrap());
    for file in [&old, &new] {
        assert_eq!(file.attr("grid").unwrap().read_raw::<i32>().unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(file.attr("text").unwrap().read_scalar::<VarLenUnicode>().unwrap().as_str(), "μ and €");
        assert_eq!(file.group("notes").unwrap().attr("version").unwrap().read_scalar::<f64>().unwrap(), 1.5);
        let units = file.dataset("features").unwrap().attr("units").unwrap().read_raw::<VarLenUnicode>().unwrap();
        assert_eq!(units.iter().map(VarLenUnicode::as_str).collect::<Vec<_>>(), ["a", "", "bcd"]);
        assert_eq!(file.dataset("notes/texts").unwrap().read_raw::<VarLenUnicode>().unwrap()[2].as_str(), "bcd");
        assert!(file.dataset("notes/scalar").unwrap().read_scalar::<f32>().unwrap().is_nan());
        assert_eq!(file.dataset("notes/empty").unwrap().shape(), [0, 5]);
        assert_eq!(file.dataset("notes/flags").unwrap().read_raw::<bool>().unwrap(), [true, false, true]);
        assert_eq!(file.dataset("notes/alias").unwrap().read_raw::<i16>().unwrap(), (0..14).collect::<Vec<_>>());
        assert_eq!(file.loc_info_by_name("features").unwrap().num_links, 2);
        assert_eq!(
            file.loc_info_by_name("features").unwrap().token,
            file.loc_info_by_name("notes/same").unwrap().token
        );
        assert!(file.link_exists("dangling") && file.link_exists("outside"));
        assert!(file.dataset("features").unwrap().is_resizable());
    }
    for name in ["features", "targets", "timestamps"] {
        let (old, new) = (old.dataset(name).unwrap(), new.dataset(name).unwrap());
        assert_eq!(old.dtype().unwrap().to_descriptor().unwrap(), new.dtype().unwrap().to_descriptor().unwrap());
        assert_eq!(old.read_raw::<f64>().unwrap(), new.read_raw::<f64>().unwrap(), "{name}");
        assert_eq!(filters(&new), [Filter::Shuffle, Filter::LZF], "{name}");
    }
    assert_eq!(new.dataset("features").unwrap().chunk().unwrap(), [4, 4, 3]);
    assert_eq!(new.dataset("targets").unwrap().chunk().unwrap(), [4, 2]);
    // A number of samples is no measure for a list of times.
    assert_eq!(new.dataset("timestamps").unwrap().chunk().unwrap(), [7]);
}

#[test]
fn what_is_not_asked_for_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    varied(&at("in.h5"));
    type Expected<'a> = (Option<Vec<usize>>, &'a [Filter]);
    let gzip = |level| vec![Filter::Shuffle, Filter::Deflate(level)];
    let contiguous = StorageChoice { form: Some(StorageForm::Contiguous), ..StorageChoice::default() };
    let cases: [(StorageChoice, Expected<'_>, Expected<'_>); 4] = [
        (chunked(0, None), (Some(vec![2, 4, 3]), &gzip(1)), (None, &[])),
        (chunked(3, None), (Some(vec![3, 4, 3]), &gzip(1)), (Some(vec![3, 2]), &[])),
        (
            chunked(0, Some(Compression::Gzip { level: 6 })),
            (Some(vec![2, 4, 3]), &gzip(6)),
            (Some(vec![7, 2]), &gzip(6)),
        ),
        (contiguous, (None, &[]), (None, &[])),
    ];
    for (storage, features, targets) in cases {
        run(&at("in.h5"), &at("out.h5"), storage);
        let file = File::open(at("out.h5")).unwrap();
        for (name, (chunk, filters)) in [("features", &features), ("targets", &targets)] {
            let dataset = file.dataset(name).unwrap();
            assert_eq!((&dataset.chunk(), &dataset.filters()[..]), (chunk, *filters), "{name} {storage:?}");
            let old = File::open(at("in.h5")).unwrap().dataset(name).unwrap();
            assert_eq!(dataset.read_raw::<f64>().unwrap(), old.read_raw::<f64>().unwrap());
        }
    }
}

#[test]
fn types_stay_what_they_are_in_a_series_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    Windows::new(&[Recording::default()], &[timeframe("M1", 1, 12, 3)]).write(&at("in.h5"));
    // Values that no f32 holds, and what a windows file has besides windows.
    let file = File::open_rw(at("in.h5")).unwrap();
    file.unlink("features").unwrap();
    let values: Vec<f64> = (0..20 * 36).map(|i| 0.1 * f64::from(i % 36 + i / 36 * 3)).collect();
    let dataset = file.new_dataset::<f64>().shape([20, 12, 3]).create("features/M1").unwrap();
    dataset.write_raw(&values).unwrap();
    dataset.new_attr::<i64>().create("mark").unwrap().write_scalar(&7_i64).unwrap();
    let names: Vec<VarLenUnicode> = ["x", "y", "z"].map(|name| name.parse().unwrap()).into();
    file.new_dataset::<VarLenUnicode>().shape([3]).create("feature_names/M1").unwrap().write_raw(&names).unwrap();
    file.new_dataset::<u8>().shape([2]).create("extra").unwrap().write_raw(&[1_u8, 2]).unwrap();
    drop((dataset, file));
    let options = |to| ConvertOptions { to: Some(to), ..ConvertOptions::default() };
    let convert = |from: &str, out: &str, to| {
        let observe = &mut |_| ControlFlow::Continue(());
        convert(at(from), &at(out), &options(to), &Device::cpu().scope("data"), observe).unwrap()
    };
    convert("in.h5", "series.h5", Layout::Series);
    let series = File::open(at("series.h5")).unwrap();
    let bars = series.dataset("series/M1/values").unwrap();
    assert_eq!(bars.dtype().unwrap().size(), 8);
    assert_eq!(bars.read_raw::<f64>().unwrap(), (0..31 * 3).map(|i| 0.1 * f64::from(i)).collect::<Vec<_>>());
    assert_eq!(bars.attr("mark").unwrap().read_scalar::<i64>().unwrap(), 7);
    drop((series, bars));
    convert("series.h5", "again.h5", Layout::Windows);
    for name in ["series.h5", "again.h5"] {
        let file = File::open(at(name)).unwrap();
        assert_eq!(file.dataset("feature_names/M1").unwrap().read_raw::<VarLenUnicode>().unwrap()[1].as_str(), "y");
        assert_eq!(file.dataset("extra").unwrap().read_raw::<u8>().unwrap(), [1, 2]);
    }
    let again = File::open(at("again.h5")).unwrap();
    assert_eq!(again.dataset("features/M1").unwrap().read_raw::<f64>().unwrap(), values);
    assert_eq!(again.dataset("features/M1").unwrap().attr("mark").unwrap().read_scalar::<i64>().unwrap(), 7);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}
