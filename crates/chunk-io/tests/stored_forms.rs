//! Every form in which HDF5 stores a dataset is read bit for bit as h5py reads it, and by whom it
//! should be.
//!
//! Runs where `MEGABATCH_PYTHON` names a Python with numpy and h5py.

#[allow(dead_code, reason = "shared with tests that need other parts of it")]
mod h5py_side;

use std::path::Path;
use std::time::Instant;

use h5py_side::{bits, check_every_way, hdf5_files, open, python, run};
use megabatch_chunk_io::{ReadBy, SampleBlock, SourceOptions};

const SCRIPT: &str = "stored_forms.py";

#[test]
fn every_form_is_read_bit_for_bit_and_by_whom_it_should_be() {
    let Some((python, _turn)) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    run(&python, SCRIPT, &[folder.path()]);
    let files = hdf5_files(folder.path());
    assert_eq!(files.len(), 19);
    for path in files {
        check_ways(&path);
        if path.file_stem().is_some_and(|name| name == "many") {
            check_many_chunks(&path);
        } else {
            check_every_way(&path);
        }
    }
}

/// The name of a dataset says who must read it.
fn check_ways(path: &Path) {
    let source = open(path, SourceOptions { resident_bytes_max: 0, ..SourceOptions::default() });
    for dataset in source.storage().unwrap() {
        let way = match &dataset.read_by {
            ReadBy::Position => "position",
            ReadBy::Chunk => "chunk",
            ReadBy::Library { .. } => "library",
            other => panic!("{other:?}"),
        };
        let expected = dataset.object.rsplit_once('-').map_or(way, |(_, expected)| expected);
        assert_eq!(way, expected, "{} {dataset:?}", path.display());
        assert!(dataset.stored_bytes > 0 || dataset.object.contains(['z', 'n', 'v']), "{dataset:?}");
    }
}

/// A file of a quarter of a million chunks opens in seconds, and its samples are read one by one.
fn check_many_chunks(path: &Path) {
    let started = Instant::now();
    let source = open(path, SourceOptions { resident_bytes_max: 0, ..SourceOptions::default() });
    source.storage().unwrap();
    let opened = started.elapsed();
    let samples = source.shape().samples;
    let mut all = SampleBlock::zeros(source.shape(), samples);
    let cost = source.read(0..samples, all.slices()).unwrap();
    println!("{samples} chunks: index {opened:?}, all {:?}, {cost:?}", started.elapsed());
    assert!(opened.as_secs() < 5, "{opened:?}");
    let expected = std::fs::read(path.with_extension("f32")).unwrap();
    let read = all.features.iter().chain([&all.targets]).flat_map(|values| bits(values));
    assert!(read.eq(expected.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap()))));
    let list = [249_999, 0, 125_000, 125_000, 125_001];
    let mut gathered = SampleBlock::zeros(source.shape(), list.len());
    let cost = source.gather(&list, gathered.slices()).unwrap();
    assert_eq!(gathered.features[0], list.map(|sample| all.features[0][sample]));
    assert!(cost.bytes_read < 16 << 10, "{cost:?}");
}
