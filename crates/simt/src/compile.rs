//! From kernel sources to a shared object: preprocess, rewrite, compile with the system's C++ compiler, keep by content.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result};
use crate::rewrite::{self, Rewritten};

/// The headers and the runtime.
const CXX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cxx");

/// Not contracted: `a * b + c` rounds twice, as in Rust, unless the kernel says `fmaf`. Symbols of one library never stand in
/// for those of another, though all have the same names.
const FLAGS: &[&str] = &["-std=c++17", "-O2", "-g1", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-w"];
const LINK_FLAGS: &[&str] = &["-shared", "-Wl,-Bsymbolic"];

/// What of a kernel is checked while it runs. Barriers, shuffles, deadlocks and the alignment of accesses always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// Every load and store: global memory in range, shared memory in range, written before it is read, free of races.
    #[default]
    Memory,
    /// Of loads and stores their alignment alone: several times faster, for kernels that get addresses other than as slices.
    Barriers,
}

/// How kernels are compiled.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is checked.
    pub checks: Checks,
    /// Preprocessor definitions, `NAME` or `NAME=VALUE`. `SIMT_PORTABLE_CONTEXT` takes the portable fibers.
    pub defines: Vec<String>,
}

pub(crate) struct Compiled {
    pub(crate) path: PathBuf,
    pub(crate) kernels: Vec<String>,
}

pub(crate) fn library<P: AsRef<Path>>(sources: &[P], options: &Options) -> Result<Compiled> {
    let compiler = Compiler::of(options);
    let mut units = Vec::new();
    for source in sources {
        units.push((source.as_ref(), rewrite::rewrite(&compiler.preprocess(source.as_ref())?)?));
    }
    let runtime = compiler.preprocess(&Path::new(CXX).join("runtime.cpp"))?;
    let path = cache_folder()?.join(format!("kernels-{:032x}.so", compiler.hash(&units, &runtime)?));
    compiler.make(&path, &units, &runtime)?;
    let kernels = units.into_iter().flat_map(|(_, unit)| unit.kernels).collect();
    Ok(Compiled { path, kernels })
}

struct Compiler {
    program: String,
    flags: Vec<String>,
    instrumentation: &'static [&'static str],
}

impl Compiler {
    fn of(options: &Options) -> Self {
        let program = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        let mut flags: Vec<String> = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
        flags.extend(options.defines.iter().map(|define| format!("-D{define}")));
        // Without scalar replacement a vector is loaded whole, and its alignment is seen.
        let instrumentation: &[&str] = match options.checks {
            Checks::Memory => &["-fsanitize=thread", "-fno-tree-sra"],
            Checks::Barriers => &["-fsanitize=alignment", "-fno-sanitize-recover=alignment", "-fno-tree-sra"],
        };
        Compiler { program, flags, instrumentation }
    }

    /// The source after preprocessing, line markers in it, with the language of `simt.h` before it.
    fn preprocess(&self, source: &Path) -> Result<String> {
        let mut command = self.command();
        command.args(["-E", "-x", "c++", "-include"]).arg(format!("{CXX}/simt.h"));
        command.arg("-I").arg(format!("{CXX}/include")).arg(source);
        let output = self.run(&mut command, source)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// One process makes a library, and others wait for it. A library is moved to its place when it is whole.
    fn make(&self, library: &Path, units: &[(&Path, Rewritten)], runtime: &str) -> Result<()> {
        let lock_path = library.with_extension("lock");
        let lock = File::create(&lock_path).map_err(|source| Error::Io { path: lock_path.clone(), source })?;
        lock.lock().map_err(|source| Error::Io { path: lock_path, source })?;
        if library.exists() {
            return Ok(());
        }
        let mut objects = Vec::new();
        for (index, (source, unit)) in units.iter().enumerate() {
            let object = library.with_extension(format!("{index}.o"));
            self.compile((source, &unit.text), &object, self.instrumentation)?;
            objects.push(object);
        }
        let object = library.with_extension("runtime.o");
        self.compile((Path::new("runtime.cpp"), runtime), &object, &[])?;
        objects.push(object);
        let unfinished = library.with_extension("unfinished");
        let mut link = self.command();
        self.run(link.args(LINK_FLAGS).args(&objects).arg("-o").arg(&unfinished), library)?;
        fs::rename(&unfinished, library).map_err(|source| Error::Io { path: unfinished, source })?;
        objects.iter().for_each(|object| drop(fs::remove_file(object)));
        Ok(())
    }

    fn compile(&self, (source, text): (&Path, &str), object: &Path, flags: &[&str]) -> Result<()> {
        let preprocessed = object.with_extension("ii");
        fs::write(&preprocessed, text).map_err(|source| Error::Io { path: preprocessed.clone(), source })?;
        let mut command = self.command();
        command.args(flags).args(["-x", "c++-cpp-output", "-c"]).arg(&preprocessed).arg("-o").arg(object);
        self.run(&mut command, source)?;
        fs::remove_file(&preprocessed).map_err(|source| Error::Io { path: preprocessed, source })
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

    /// Of all that the library is made from: the texts with every header in them, the flags and the compiler.
    fn hash(&self, units: &[(&Path, Rewritten)], runtime: &str) -> Result<u128> {
        let version = self.run(Command::new(&self.program).arg("--version"), Path::new("--version"))?.stdout;
        let mut hash = Xxh3::new();
        hash.update(&version);
        hash.update(format!("{:?}", (&self.flags, self.instrumentation, LINK_FLAGS)).as_bytes());
        units.iter().for_each(|(_, unit)| hash.update(unit.text.as_bytes()));
        hash.update(runtime.as_bytes());
        Ok(hash.digest128())
    }
}

/// `simt` in the target folder of the test that runs, which `cargo clean` clears; else in the system's temporary folder.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let folder = target_folder().unwrap_or_else(std::env::temp_dir).join("simt");
    fs::create_dir_all(&folder).map_err(|source| Error::Io { path: folder.clone(), source })?;
    Ok(folder)
}

/// Cargo puts a test program in `<target>/<profile>/deps`.
fn target_folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent().filter(|folder| folder.ends_with("deps"))?;
    Some(folder.parent()?.parent()?.to_owned())
}
