//! Files that are cut short, lie, or are damaged at random: each ends in an error or in the data
//! that the HDF5 library reads too, soon and in bounded memory.

mod hostile_side;

use std::path::{Path, PathBuf};

use hdf5::Dataset;
use hdf5::file::LibraryVersion;
use hostile_side::{Ending, Outcome, Reader, serve, written};

#[test]
fn reads_in_another_process() {
    serve();
}

/// Limits for any file: CPU time, and memory beyond the process's own.
const CPU_S_MAX: f64 = 1.0;
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// Small files of every form that this crate reads itself.
fn good_files(folder: &Path) -> Vec<PathBuf> {
    // The earliest form of a file has no checksums, so that nothing in it is safe from the changes.
    let (earliest, latest) = (LibraryVersion::Earliest, LibraryVersion::latest());
    /// Name, version of the format, and what creates the dataset.
    type Form = (&'static str, LibraryVersion, fn(&hdf5::File) -> Dataset);
    let forms: [Form; 7] = [
        ("contiguous", earliest, |file| file.new_dataset::<f32>().shape([9, 8, 5]).create("features").unwrap()),
        ("plain", earliest, |file| chunked(file, [2, 8, 5]).shape([9, 8, 5]).create("features").unwrap()),
        ("gzip", earliest, |file| {
            chunked(file, [2, 3, 5]).shuffle().deflate(4).shape([9, 8, 5]).create("features").unwrap()
        }),
        ("lzf", earliest, |file| chunked(file, [2, 8, 5]).shuffle().lzf().shape([9, 8, 5]).create("features").unwrap()),
        ("checked", earliest, |file| {
            chunked(file, [2, 8, 2]).deflate(1).fletcher32().shape([9, 8, 5]).create("features").unwrap()
        }),
        ("fixed", latest, |file| chunked(file, [2, 8, 5]).deflate(1).shape([9, 8, 5]).create("features").unwrap()),
        ("growing", latest, |file| {
            let builder = chunked(file, [2, 8, 5]).lzf();
            builder
                .shape([hdf5::Extent::resizable(9), hdf5::Extent::from(8), hdf5::Extent::from(5)])
                .create("features")
                .unwrap()
        }),
    ];
    let values: Vec<f32> = (0..9 * 8 * 5).map(|k| written("/features", k)).collect();
    let write = |(name, version, create): Form| {
        let path = folder.join(name).with_extension("h5");
        let mut builder = hdf5::FileBuilder::new();
        // A lock would live on in a reader that another test starts meanwhile.
        builder.with_fapl(|access| access.libver_bounds(version, latest).file_locking(false));
        let file = builder.create(&path).unwrap();
        create(&file).write_raw(&values).unwrap();
        let targets = file.new_dataset::<f64>().shape([9, 2]).create("targets").unwrap();
        targets.write_raw(&[0.25_f64; 18]).unwrap();
        path
    };
    forms.into_iter().map(write).collect()
}

fn chunked(file: &hdf5::File, chunk: [usize; 3]) -> hdf5::DatasetBuilderEmpty {
    file.new_dataset::<f32>().chunk(chunk)
}

/// Reads `bytes` as a file, and holds the outcome to what every file is held to.
fn outcome(reader: &mut Reader, path: &Path, bytes: &[u8], name: &str) -> Outcome {
    std::fs::write(path, bytes).unwrap();
    let outcome = reader.read(path);
    assert!(outcome.cpu_s <= CPU_S_MAX && outcome.peak_bytes <= MEMORY_BYTES_MAX, "{name}: {outcome:?}");
    outcome
}

#[test]
fn files_cut_short_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut reader = Reader::new("reads_in_another_process");
    for good in good_files(folder.path()) {
        let bytes = std::fs::read(&good).unwrap();
        let name = good.file_stem().unwrap().to_string_lossy().into_owned();
        let cut = folder.path().join("cut.h5");
        assert_eq!(outcome(&mut reader, &cut, &bytes, &name).ending, Ending::Read, "{name}");
        for len in (0..40).map(|k| bytes.len() * k / 40).chain(bytes.len() - 9..bytes.len()) {
            let ending = outcome(&mut reader, &cut, &bytes[..len], &format!("{name} cut to {len}")).ending;
            assert!(matches!(ending, Ending::Refused(_)), "{name} cut to {len} of {}: {ending:?}", bytes.len());
        }
    }
}

#[test]
fn a_byte_changed_at_random_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let mut reader = Reader::new("reads_in_another_process");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as usize % below
    };
    for good in good_files(folder.path()) {
        let bytes = std::fs::read(&good).unwrap();
        let name = good.file_stem().unwrap().to_string_lossy().into_owned();
        let mut endings = [0; 2];
        for round in 0..250 {
            let mut changed = bytes.clone();
            let place = next(changed.len());
            changed[place] = [0, 0xff, changed[place] ^ (1 << next(8)), next(256) as u8][next(4)];
            let changed_path = folder.path().join("changed.h5");
            let ending = outcome(&mut reader, &changed_path, &changed, &format!("{name}, round {round}")).ending;
            match ending {
                Ending::Read => endings[0] += 1,
                Ending::Refused(_) => endings[1] += 1,
                other => panic!("{name}, round {round}: {other:?}"),
            }
        }
        println!("{name}: {} bytes, {} read, {} refused", bytes.len(), endings[0], endings[1]);
    }
}

/// A file of windows whose root has attributes of variable length, and where its heap begins and
/// ends.
fn file_with_a_heap(folder: &Path) -> (Vec<u8>, std::ops::Range<usize>) {
    let path = folder.join("heap.h5");
    let mut builder = hdf5::FileBuilder::new();
    builder.with_fapl(|access| {
        access.libver_bounds(LibraryVersion::Earliest, LibraryVersion::latest()).file_locking(false)
    });
    let file = builder.create(&path).unwrap();
    let values: Vec<f32> = (0..9 * 8 * 5).map(|k| written("/features", k)).collect();
    file.new_dataset::<f32>().shape([9, 8, 5]).create("features").unwrap().write_raw(&values).unwrap();
    file.new_dataset::<f64>().shape([9, 2]).create("targets").unwrap().write_raw(&[0.25_f64; 18]).unwrap();
    let text: hdf5::types::VarLenUnicode = "windows".parse().unwrap();
    file.new_attr::<hdf5::types::VarLenUnicode>().create("layout").unwrap().write_scalar(&text).unwrap();
    file.close().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let start = bytes.windows(4).position(|word| word == b"GCOL").unwrap();
    // Header, the text with its header, and the header of the free space after it.
    (bytes, start..start + 16 + 24 + 16)
}

// With 0 for bytes 48 to 55 of the heap, the length of its free space, the library walked it
// without end: `megabatch convert` of such a file never returned, nor did SIGTERM end it.
#[test]
fn a_damaged_heap_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let mut reader = Reader::new("reads_in_another_process");
    let (bytes, heap) = file_with_a_heap(folder.path());
    let path = folder.path().join("changed.h5");
    assert_eq!(outcome(&mut reader, &path, &bytes, "whole").ending, Ending::Read);
    let mut without_free_space = bytes.clone();
    without_free_space[heap.start + 48..heap.end].fill(0);
    let ending = outcome(&mut reader, &path, &without_free_space, "free space of no bytes").ending;
    assert!(matches!(&ending, Ending::Refused(why) if why.contains("global heap")), "{ending:?}");
    let mut refused = 0;
    for place in heap {
        for byte in [0, 1, 0xff] {
            let mut changed = bytes.clone();
            changed[place] = byte;
            match outcome(&mut reader, &path, &changed, &format!("byte {place} = {byte}")).ending {
                Ending::Read => {}
                Ending::Refused(_) => refused += 1,
                other => panic!("byte {place} = {byte}: {other:?}"),
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

/// A good file's bytes with `change` made to them.
type Change = fn(&mut Vec<u8>, &Layout);

/// Places of objects in a good file.
struct Layout {
    /// First chunk, or the values of a contiguous dataset.
    first: usize,
    /// Root of the B-tree of chunks (version 1), where there is one.
    tree: usize,
}

impl Layout {
    fn parse(path: &Path, bytes: &[u8]) -> Self {
        let file = hdf5::File::open(path).unwrap();
        let dataset = file.dataset("features").unwrap();
        let first = dataset.chunk_info(0).map_or(dataset.offset(), |chunk| Some(chunk.addr)).unwrap() as usize;
        // "TREE", then 1: a tree of chunks (HDF5 File Format Specification, III.A.1).
        let tree = bytes.windows(5).position(|window| window == b"TREE\x01").unwrap_or(0);
        Layout { first, tree }
    }
}

/// Replaces every occurrence of `from`.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let places: Vec<usize> = (0..bytes.len() - from.len()).filter(|&k| bytes[k..].starts_with(from)).collect();
    assert!(!places.is_empty(), "{from:?}");
    places.into_iter().for_each(|place| put(bytes, place, to));
}

fn put(bytes: &mut [u8], place: usize, values: &[u8]) {
    bytes[place..place + values.len()].copy_from_slice(values);
}

/// Offsets in a node of the tree of chunks of a dataset of three axes: its level, then the first
/// key (bytes of the chunk, filter mask, origin) and the first child.
const LEVEL: usize = 5;
const CHUNK_BYTES: usize = 24;
const CHUNK_MASK: usize = 28;
const CHUNK_ORIGIN: usize = 32;
const CHILD: usize = 64;

#[test]
fn lies_are_found_out() {
    let cases: [(&str, &str, Change, &str); 15] = [
        (
            "contiguous",
            "address",
            |bytes, at| {
                let (from, to) = (at.first as u64, bytes.len() as u64 - 4);
                replace(
                    bytes,
                    &[from, 1440].map(u64::to_le_bytes).concat(),
                    &[to, 1440].map(u64::to_le_bytes).concat(),
                );
            },
            "/features: HDF5 cannot open the dataset: invalid dataset size",
        ),
        ("contiguous", "shape", |bytes, _| replace(bytes, &shape_of(9), &shape_of(1 << 40)), ""),
        (
            "gzip",
            "shape",
            |bytes, _| replace(bytes, &shape_of(9), &shape_of(1 << 40)),
            "/targets: expected 1099511627776 rows",
        ),
        (
            "gzip",
            "chunk shape",
            |bytes, _| replace(bytes, &chunk_of(2), &chunk_of(0x00ff_ffff)),
            "/features: a chunk of [16777215, 3, 5] elements takes",
        ),
        ("gzip", "level", |bytes, at| bytes[at.tree + LEVEL] = 255, ""),
        ("gzip", "no bytes", |bytes, at| put(bytes, at.tree + CHUNK_BYTES, &[0; 4]), ", chunk at [0, 0, 0] (byte"),
        (
            "gzip",
            "many bytes",
            |bytes, at| put(bytes, at.tree + CHUNK_BYTES, &[0xff; 4]),
            "/features: the index of its chunks is damaged: its chunks take 42949",
        ),
        (
            "gzip",
            "more bytes",
            |bytes, at| put(bytes, at.tree + CHUNK_BYTES, &1900_u32.to_le_bytes()),
            "it takes 1900 bytes, more than filters could make of 120",
        ),
        ("gzip", "mask", |bytes, at| put(bytes, at.tree + CHUNK_MASK, &[2]), ", chunk at [0, 0, 0] (byte"),
        (
            "gzip",
            "order",
            |bytes, at| put(bytes, at.tree + CHUNK_ORIGIN, &8_u64.to_le_bytes()),
            "the index of its chunks is damaged: the chunk at",
        ),
        (
            "gzip",
            "beyond the end",
            |bytes, at| {
                let end = (bytes.len() as u64 - 9).to_le_bytes();
                put(bytes, at.tree + CHILD, &end);
            },
            ", chunk at [0, 0, 0]: its",
        ),
        ("gzip", "stream", |bytes, at| put(bytes, at.first, &[0xff; 12]), " of the file): its deflate stream of"),
        ("lzf", "stream", |bytes, at| put(bytes, at.first, &[0xff; 12]), ", chunk at [0, 0, 0] (byte"),
        ("checked", "checksum", |bytes, at| bytes[at.first + 9] ^= 4, ", chunk at [0, 0, 0] (byte"),
        (
            "lzf",
            "filter",
            |bytes, _| replace(bytes, &[0, 0x7d, 8, 0], &[1, 0x7d, 8, 0]),
            "/features: the filter lzf (number 32001) is not built in; write the dataset again with gzip or lzf",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let good = good_files(folder.path());
    let mut reader = Reader::new("reads_in_another_process");
    for (form, what, change, expected) in cases {
        let path = good.iter().find(|path| path.file_stem().is_some_and(|name| name == form)).unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        let layout = Layout::parse(path, &bytes);
        change(&mut bytes, &layout);
        let name = format!("{form}: {what}");
        match outcome(&mut reader, &folder.path().join("lie.h5"), &bytes, &name).ending {
            Ending::Refused(message) => assert!(message.contains(expected), "{name}: {message}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// A shape in a dataspace message.
fn shape_of(rows: u64) -> Vec<u8> {
    [rows, 8, 5].map(u64::to_le_bytes).concat()
}

/// The shape of a chunk in a layout message.
fn chunk_of(rows: u32) -> Vec<u8> {
    [rows, 3, 5, 4].map(u32::to_le_bytes).concat()
}

/// Under HDF5 2.2.0 a node of a B-tree (version 1) that leads back to itself exhausts the stack
/// (`H5B__iterate_helper`). No call of the library tells beforehand; a release that notices makes
/// this test fail, which is then to be a case of `lies_are_found_out`.
#[test]
fn a_tree_that_leads_back_to_itself_ends_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let good = good_files(folder.path());
    let path = good.iter().find(|path| path.ends_with("gzip.h5")).unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let tree = Layout::parse(path, &bytes).tree;
    bytes[tree + LEVEL] = 1;
    put(&mut bytes, tree + CHILD, &(tree as u64).to_le_bytes());
    let ending =
        outcome(&mut Reader::new("reads_in_another_process"), &folder.path().join("loop.h5"), &bytes, "loop").ending;
    assert!(matches!(ending, Ending::Crashed(_)), "HDF5 {:?}: {ending:?}", hdf5::library_version());
}
