//! Compiles the fake driver and kernels with the system's C++ compiler, once for each text.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xxhash_rust::xxh3::xxh3_64;

use crate::cache;

/// Libraries of the driver's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    Whole,
    WithoutVirtualMemory,
    Echo,
}

const HEADER: (&str, &str) = ("fake.hpp", include_str!("fake.hpp"));
const DRIVER: &[(&str, &str)] = &[
    ("context.cpp", include_str!("context.cpp")),
    ("graphs.cpp", include_str!("graphs.cpp")),
    ("memory.cpp", include_str!("memory.cpp")),
    ("modules.cpp", include_str!("modules.cpp")),
    ("streams.cpp", include_str!("streams.cpp")),
];
const CUBLASLT: &[(&str, &str)] = &[("cublaslt.cpp", include_str!("cublaslt.cpp"))];
const ECHO: &[(&str, &str)] = &[("echo.cpp", include_str!("echo.cpp"))];

const OPTIONS: &[&str] = &["-std=c++17", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-shared"];

/// A library that is known to the loader as libcuda.so.1.
pub(super) fn driver(flavour: Flavour) -> PathBuf {
    let (sources, define) = match flavour {
        Flavour::Whole => (DRIVER, None),
        Flavour::WithoutVirtualMemory => (DRIVER, Some("-DFAKE_WITHOUT_VIRTUAL_MEMORY")),
        Flavour::Echo => (ECHO, None),
    };
    let mut options = vec!["-Wl,-soname,libcuda.so.1"];
    options.extend(define);
    object("libcuda.so.1", sources, &options)
}

/// The fake cuBLASLt, which is known to the loader by the name of CUDA 12's and finds the fake
/// driver by its own.
pub(super) fn cublaslt() -> PathBuf {
    object("libcublasLt.so.12", CUBLASLT, &["-Wl,-soname,libcublasLt.so.12"])
}

/// An object of one source.
pub(super) fn source(text: &str) -> PathBuf {
    object("kernels.so", &[("kernels.cpp", text)], &["-fvisibility=default"])
}

/// The shared object `name` that `sources` make, which is compiled only if these very texts and
/// options never were.
fn object(name: &str, sources: &[(&str, &str)], options: &[&str]) -> PathBuf {
    let compiler = cache::compiler();
    let version = cache::compiler_version().unwrap_or_else(|error| panic!("{error}"));
    let key = xxh3_64(format!("{version:?} {OPTIONS:?} {options:?} {HEADER:?} {sources:?}").as_bytes());
    let folder = cache::folder().expect("the cache can be written").join(format!("driver-{key:016x}"));
    fs::create_dir_all(&folder).expect("the cache can be written");
    let object = folder.join(name);
    let make = |unfinished: &Path| {
        write_sources(&folder, sources);
        let output = Command::new(&compiler)
            .args(OPTIONS)
            .args(options)
            .args(sources.iter().map(|(name, _)| folder.join(name)))
            .arg("-o")
            .arg(unfinished)
            .arg("-ldl")
            .output()
            .unwrap_or_else(|error| {
                panic!("{compiler}: {error}; tests of the CUDA device need a C++ compiler (or CXX)")
            });
        assert!(output.status.success(), "{compiler} failed:\n{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    cache::once(&object, make).unwrap_or_else(|error| panic!("{error}"));
    object
}

fn write_sources(folder: &Path, sources: &[(&str, &str)]) {
    for (name, text) in sources.iter().chain([&HEADER]) {
        fs::write(folder.join(name), text).expect("the cache can be written");
    }
}
