//! A folder of files with a limit.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use megabatch_graph_cache::{BuildOptions, Collected, Error, Fetched, FloatWidth, GraphCache, Widths, unwatched};

use crate::MadeUp;

/// Builds the file of a seed and says that it was used so many minutes after 1970.
fn used(cache: &GraphCache, seed: u64, minutes: u64) -> PathBuf {
    let file = cache.get(&MadeUp::new(seed, 10, 1), &BuildOptions::default(), &mut unwatched).unwrap().file;
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minutes);
    File::open(file.path()).unwrap().set_modified(time).unwrap();
    file.path().to_owned()
}

#[test]
fn the_files_whose_use_is_longest_ago_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let cache = GraphCache::open(folder.path().join("cache"), u64::MAX).unwrap();
    let files = [(1, 30), (2, 10), (3, 20), (4, 40)].map(|(seed, minutes)| used(&cache, seed, minutes));
    let bytes: Vec<u64> = files.iter().map(|file| fs::metadata(file).unwrap().len()).collect();
    let limited = GraphCache::open(folder.path().join("cache"), bytes[0] + bytes[3]).unwrap();
    let collected = limited.collect().unwrap();
    assert_eq!(collected.removed, [files[1].clone(), files[2].clone()]);
    assert_eq!(collected.left_bytes, bytes[0] + bytes[3]);
    assert_eq!(files.map(|file| file.exists()), [true, false, false, true]);
}

#[test]
fn a_use_makes_a_file_young_and_what_is_open_stays() {
    let folder = tempfile::tempdir().unwrap();
    let cache = GraphCache::open(folder.path(), u64::MAX).unwrap();
    let (first, second) = (used(&cache, 1, 10), used(&cache, 2, 20));
    let bytes = fs::metadata(&second).unwrap().len();
    let limited = GraphCache::open(folder.path(), bytes).unwrap();
    let builder = MadeUp::new(1, 10, 1);
    let Fetched { file, collected } = limited.get(&builder, &BuildOptions::default(), &mut unwatched).unwrap();
    assert_eq!((builder.built(), first.exists(), second.exists()), (0, true, false));
    let left_bytes = fs::metadata(&first).unwrap().len();
    assert_eq!(collected, Collected { removed: vec![second], left_bytes });
    let nothing = GraphCache::open(folder.path(), 0).unwrap();
    assert!(nothing.collect().unwrap().removed.is_empty());
    drop(file);
    assert_eq!(nothing.collect().unwrap().removed, [first]);
}

#[test]
fn unfinished_files_go_too_unless_they_are_being_built() {
    let folder = tempfile::tempdir().unwrap();
    let hash = "0123456789abcdef".repeat(2);
    let abandoned = folder.path().join(format!(".{hash}.mbg.partial"));
    fs::write(&abandoned, [0; 5000]).unwrap();
    let other = folder.path().join("notes.txt");
    fs::write(&other, [0; 5000]).unwrap();
    let cache = GraphCache::open(folder.path(), 100).unwrap();
    let lock = File::create(folder.path().join(format!(".{hash}.mbg.lock"))).unwrap();
    lock.lock().unwrap();
    assert!(cache.collect().unwrap().removed.is_empty());
    drop(lock);
    assert_eq!(cache.collect().unwrap().removed, [abandoned]);
    assert!(other.exists());
}

// `megabatch graph build shares/ --cache graphs/ --limit 1MB` removed `graphs/mine.mbg`, which no
// cache had made.
#[test]
fn files_that_the_cache_did_not_make_stay() {
    let folder = tempfile::tempdir().unwrap();
    let hash = "0123456789abcdef".repeat(2);
    let own = ["mine.mbg", ".mine.mbg.partial", "0123456789abcdef.mbg"].map(str::to_owned);
    let own = own.into_iter().chain([format!("{}.mbg", hash.to_uppercase()), format!("{hash}.mbg.partial")]);
    let own: Vec<PathBuf> = own.map(|name| folder.path().join(name)).collect();
    own.iter().for_each(|path| fs::write(path, [0; 5000]).unwrap());
    let made = folder.path().join(format!("{hash}.mbg"));
    fs::write(&made, [0; 5000]).unwrap();
    let collected = GraphCache::open(folder.path(), 0).unwrap().collect().unwrap();
    assert_eq!(collected, Collected { removed: vec![made], left_bytes: 0 });
    assert!(own.iter().all(|path| path.exists()));
}

#[test]
fn everything_that_the_bytes_depend_on_is_in_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let cache = GraphCache::open(folder.path(), u64::MAX).unwrap();
    let plain = BuildOptions::default();
    let narrow = BuildOptions {
        widths: Widths { edges: FloatWidth::F16, ..Widths::default() },
        threads: std::num::NonZero::new(3),
        ..plain.clone()
    };
    let path = |seed, count, options| cache.path(&MadeUp::new(seed, count, 1), options).unwrap();
    let paths = [path(1, 5, &plain), path(2, 5, &plain), path(1, 6, &plain), path(1, 5, &narrow)];
    for (at, one) in paths.iter().enumerate() {
        assert!(!paths[..at].contains(one));
    }
    assert_eq!(cache.path(&MadeUp::new(1, 5, 7), &plain).unwrap(), paths[0]);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(GraphCache::open(file, 0), Err(Error::Io { .. })));
}
