//! Shared by the tests beside h5py: running Python, and reading a file by every path.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use megabatch_chunk_io::{SampleBlock, Source, SourceOptions};
use megabatch_gpu_core::Device;

/// HDF5 opens files without close-on-exec: a Python that one test starts while another writes would
/// inherit the file and its lock.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The Python of `MEGABATCH_PYTHON`, and the turn to use it; without it the running test counts as
/// skipped.
pub(crate) fn python() -> Option<(PathBuf, MutexGuard<'static, ()>)> {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    megabatch_test_support::python("the comparison with h5py").map(|python| (python, turn))
}

/// Runs a script of the tests' folder.
pub(crate) fn run(python: &Path, script: &str, arguments: &[&Path]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let output = Command::new(python).arg(script).args(arguments).output().expect("MEGABATCH_PYTHON can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The HDF5 files in a folder, by name.
pub(crate) fn hdf5_files(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "h5")).collect();
    paths.sort();
    paths
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Reads the file with these options.
pub(crate) fn open(path: &Path, options: SourceOptions) -> Source {
    Source::open_with(path, &Device::cpu().scope("data"), options)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Samples by every way of reading, against the bytes that h5py saw beside the file as `.f32`:
/// features by timeframe, then targets.
pub(crate) fn check_every_way(path: &Path) {
    let expected = std::fs::read(path.with_extension("f32")).unwrap();
    let expected: Vec<u32> =
        expected.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect();
    let default = SourceOptions { resident_bytes_max: 0, ..SourceOptions::default() };
    let mut ways = vec![SourceOptions { resident_bytes_max: usize::MAX, threads: 2, ..default }];
    for threads in [1, 3] {
        ways.push(SourceOptions { threads, ..default });
    }
    for options in ways {
        check(&open(path, options), &expected, &format!("{} {options:?}", path.display()));
    }
}

fn check(source: &Source, expected: &[u32], name: &str) {
    let samples = source.shape().samples;
    let mut all = SampleBlock::zeros(source.shape(), samples);
    source.read(0..samples, all.slices()).unwrap();
    let flat: Vec<u32> = all.features.iter().chain([&all.targets]).flat_map(|values| bits(values)).collect();
    if flat != expected {
        let place = flat.iter().zip(expected).position(|(found, expected)| found != expected);
        panic!("{name}: differs at value {place:?} of {} (expected {})", flat.len(), expected.len());
    }
    let list = [6, 0, 3, 3, 2, 6, 4, 5].map(|sample| sample % samples);
    let mut gathered = SampleBlock::zeros(source.shape(), list.len());
    source.gather(&list, gathered.slices()).unwrap();
    assert_rows(&gathered, &all, &list, name);
    let range = samples / 3..samples - samples / 4;
    let mut part = SampleBlock::zeros(source.shape(), range.len());
    source.read(range.clone(), part.slices()).unwrap();
    assert_rows(&part, &all, &range.collect::<Vec<_>>(), name);
}

/// `found` holds the samples `list` of `all`.
fn assert_rows(found: &SampleBlock, all: &SampleBlock, list: &[usize], name: &str) {
    for (found, all_values) in found.features.iter().zip(&all.features).chain([(&found.targets, &all.targets)]) {
        let row_len = all_values.len() / all.samples;
        let rows: Vec<f32> = list.iter().flat_map(|&n| &all_values[n * row_len..(n + 1) * row_len]).copied().collect();
        assert!(bits(found) == bits(&rows), "{name}: {list:?}");
    }
}
