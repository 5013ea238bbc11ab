//! From kernel sources to a shared object: preprocess, rewrite, compile with the system's C++
//! compiler, link.
//!
//! Every source has an object of its own in the cache, under a hash of its text, of the files that
//! it includes, of all headers of `cxx` and of the flags. A process that finds everything there
//! starts no compiler but for its version. Objects that are missing are compiled side by side.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use xxhash_rust::xxh3::Xxh3;

use crate::cache;
use crate::error::{Error, Result};
use crate::rewrite;

/// The headers and the runtime.
const CXX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cxx");

/// Not contracted: `a * b + c` rounds twice, as in Rust, unless the kernel says `fmaf`. Symbols of
/// one library never stand in for those of another, though all have the same names.
const FLAGS: &[&str] = &["-std=c++17", "-O2", "-g1", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-w"];
const LINK_FLAGS: &[&str] = &["-shared", "-Wl,-Bsymbolic"];

/// Checks of a kernel while it runs. Barriers, shuffles, deadlocks and the alignment of accesses
/// always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// Every load and store: global memory in range, shared memory in range, written before it is
    /// read, free of races.
    #[default]
    Memory,
    /// Alignment of loads and stores alone: several times faster, for kernels that get addresses
    /// other than as slices.
    Barriers,
}

/// Options of compiling kernels.
#[derive(Clone, Debug, Default)]
pub struct CompileOptions {
    /// Checks to make.
    pub checks: Checks,
    /// Preprocessor definitions, `NAME` or `NAME=VALUE`. `SIMT_PORTABLE_CONTEXT` takes the portable
    /// fibers.
    pub defines: Vec<String>,
}

pub(crate) struct CompiledKernels {
    pub(crate) path: PathBuf,
    pub(crate) kernels: Vec<String>,
}

/// An object of the cache and the kernels in it.
struct Object {
    path: PathBuf,
    source: PathBuf,
    kind: ObjectKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ObjectKind {
    Kernels,
    /// Not instrumented: it answers the calls of the instrumentation.
    Runtime,
}

pub(crate) fn library<P: AsRef<Path>>(sources: &[P], options: &CompileOptions) -> Result<CompiledKernels> {
    let compiler = Compiler::new(options);
    let folder = cache::folder()?;
    let mut objects = Vec::new();
    for source in sources {
        objects.push(compiler.object(&folder, source.as_ref(), ObjectKind::Kernels)?);
    }
    objects.push(compiler.object(&folder, &Path::new(CXX).join("runtime.cpp"), ObjectKind::Runtime)?);
    let mut hash = Xxh3::new();
    for object in &objects {
        hash.update(object.path.file_name().unwrap_or_default().as_encoded_bytes());
    }
    hash.update(format!("{LINK_FLAGS:?}").as_bytes());
    let path = folder.join(format!("kernels-{:032x}.so", hash.digest128()));
    cache::once(&path, |unfinished| {
        compiler.compile_all(&objects)?;
        let mut link = compiler.command();
        link.args(LINK_FLAGS).args(objects.iter().map(|object| &object.path)).arg("-o").arg(unfinished);
        compiler.run(&mut link, &path).map(drop)
    })?;
    let mut kernels = Vec::new();
    for object in objects.iter().filter(|object| object.kind == ObjectKind::Kernels) {
        // The list is written before the object, and the library after both.
        let text = read(&names_beside(&object.path))?;
        kernels.extend(text.lines().map(str::to_owned));
    }
    Ok(CompiledKernels { path, kernels })
}

fn names_beside(object: &Path) -> PathBuf {
    object.with_extension("names")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })
}

struct Compiler {
    program: String,
    flags: Vec<String>,
    instrumentation: &'static [&'static str],
}

impl Compiler {
    fn new(options: &CompileOptions) -> Self {
        let mut flags: Vec<String> = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
        flags.extend(options.defines.iter().map(|define| format!("-D{define}")));
        // Without scalar replacement a vector is loaded whole, and its alignment is seen.
        let instrumentation: &[&str] = match options.checks {
            Checks::Memory => &["-fsanitize=thread", "-fno-tree-sra"],
            Checks::Barriers => &["-fsanitize=alignment", "-fno-sanitize-recover=alignment", "-fno-tree-sra"],
        };
        Compiler { program: cache::compiler(), flags, instrumentation }
    }

    fn instrumentation(&self, kind: ObjectKind) -> &'static [&'static str] {
        match kind {
            ObjectKind::Kernels => self.instrumentation,
            ObjectKind::Runtime => &[],
        }
    }

    /// The place of a source's object. Reports name lines by the path in the clone that compiled
    /// the object.
    fn object(&self, folder: &Path, source: &Path, kind: ObjectKind) -> Result<Object> {
        let mut hash = Xxh3::new();
        hash.update(cache::compiler_version()?);
        hash.update(format!("{:?}", (&self.flags, self.instrumentation(kind))).as_bytes());
        hash.update(include_bytes!("rewrite.rs"));
        hash.update(headers()?.as_bytes());
        hash.update(source.file_name().unwrap_or_default().as_encoded_bytes());
        for text in with_includes(source)? {
            hash.update(text.as_bytes());
        }
        let path = folder.join(format!("object-{:032x}.o", hash.digest128()));
        Ok(Object { path, source: source.to_owned(), kind })
    }

    /// Compiles the objects that the cache lacks, on all CPUs.
    fn compile_all(&self, objects: &[Object]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        let work = || {
            while let Some(object) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = cache::once(&object.path, |unfinished| self.compile(object, unfinished)) {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    next.store(objects.len(), Ordering::Relaxed);
                }
            }
        };
        let workers = thread::available_parallelism().map_or(1, usize::from).min(objects.len());
        thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn compile(&self, object: &Object, unfinished: &Path) -> Result<()> {
        let preprocessed = self.preprocess(&object.source)?;
        let text = match object.kind {
            ObjectKind::Kernels => {
                let rewritten = rewrite::rewrite(&preprocessed)?;
                write(&names_beside(&object.path), &rewritten.kernels.join("\n"))?;
                rewritten.text
            }
            ObjectKind::Runtime => preprocessed,
        };
        let rewritten = object.path.with_extension("ii");
        write(&rewritten, &text)?;
        let mut command = self.command();
        command.args(self.instrumentation(object.kind)).args(["-x", "c++-cpp-output", "-c"]).arg(&rewritten);
        self.run(command.arg("-o").arg(unfinished), &object.source)?;
        fs::remove_file(&rewritten).map_err(|source| Error::Io { path: rewritten, source })
    }

    /// The source after preprocessing, line markers in it, with the language of `simt.h` before it.
    fn preprocess(&self, source: &Path) -> Result<String> {
        let mut command = self.command();
        command.args(["-E", "-x", "c++", "-include"]).arg(format!("{CXX}/simt.h"));
        command.arg("-I").arg(format!("{CXX}/include")).arg(source);
        let output = self.run(&mut command, source)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.flags);
        command
    }

    fn run(&self, command: &mut Command, source_file: &Path) -> Result<Output> {
        let output = command.output().map_err(|source| Error::NoCompiler { program: self.program.clone(), source })?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Compile { source_file: source_file.to_owned(), messages });
        }
        Ok(output)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|source| Error::Io { path: path.to_owned(), source })
}

/// Every file below `cxx`, in the order of the paths.
fn headers() -> Result<String> {
    let mut folders = vec![PathBuf::from(CXX)];
    let mut files = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|source| Error::Io { path: folder.clone(), source })?;
        for entry in entries {
            let path = entry.map_err(|source| Error::Io { path: folder.clone(), source })?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path);
            }
        }
    }
    files.iter().map(|path| read(path)).collect()
}

/// The text of `source` and of every file that it includes by a quoted name, each once.
///
/// A name that is not found beside its includer is left to the compiler, which looks in `cxx` and
/// in its own folders: [`headers`] and the compiler's version stand for those.
fn with_includes(source: &Path) -> Result<Vec<String>> {
    let mut waiting = vec![source.to_owned()];
    let mut seen = BTreeSet::new();
    let mut texts = Vec::new();
    while let Some(path) = waiting.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let text = read(&path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        waiting.extend(text.lines().filter_map(included).map(|name| folder.join(name)).filter(|path| path.exists()));
        texts.push(text);
    }
    Ok(texts)
}

/// The name in `#include "name"`.
fn included(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_all_that_it_is_compiled_from_and_by_no_path() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&one, &other] {
            fs::write(folder.path().join("k.cu"), "#include \"a.cuh\"\n__global__ void k() {}\n").unwrap();
            fs::write(folder.path().join("a.cuh"), "  # include \"b.cuh\"\n").unwrap();
            fs::write(folder.path().join("b.cuh"), "// one\n").unwrap();
        }
        let name = |folder: &Path, checks, kind| {
            let compiler = Compiler::new(&CompileOptions { checks, ..CompileOptions::default() });
            compiler.object(Path::new(""), &folder.join("k.cu"), kind).unwrap().path
        };
        let plain = |folder: &Path| name(folder, Checks::Memory, ObjectKind::Kernels);
        let before = plain(one.path());
        assert_eq!(before, plain(other.path()));
        assert_ne!(before, name(one.path(), Checks::Barriers, ObjectKind::Kernels));
        assert_ne!(before, name(one.path(), Checks::Memory, ObjectKind::Runtime));
        // A header of a header counts.
        fs::write(one.path().join("b.cuh"), "// two\n").unwrap();
        assert_ne!(before, plain(one.path()));
    }

    #[test]
    fn quoted_includes_are_found() {
        let cases = [
            ("#include \"a.cuh\"", Some("a.cuh")),
            ("  #  include \"../b.h\" // why", Some("../b.h")),
            ("#include <cuda_fp16.h>", None),
            ("// #include \"a.cuh\"", None),
            ("", None),
        ];
        for (line, expected) in cases {
            assert_eq!(included(line), expected, "{line}");
        }
    }
}
