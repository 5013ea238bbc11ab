//! Loaded kernels and their launch.

#![allow(unsafe_code, reason = "kernels and driver are loaded libraries")]

use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::argument::{Arg, ArgumentKind, Parameter};
use crate::compile::{self, CompileOptions};
use crate::error::{Error, Result};
use crate::source_lines;
use crate::staging::{LaunchMemory, StagedArguments};

/// Kernels compiled for the CPU, ready to launch.
#[derive(Debug)]
pub struct Kernels {
    library: Library,
    path: PathBuf,
    names: Vec<String>,
}

/// Blocks of the grid, threads of a block, the bytes of a block's dynamic shared memory, and which
/// blocks run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads along x, y, z.
    pub block: [u32; 3],
    /// Size of the `extern __shared__` array.
    pub dynamic_shared_bytes: usize,
    /// True if blocks may wait for each other.
    pub blocks: BlockSchedule,
}

/// Blocks of a launch that run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockSchedule {
    /// One after another, x fastest: all that a launch promises.
    #[default]
    OneAfterAnother,
    /// All of them, as in a cooperative launch.
    AllAtOnce,
}

impl Geometry {
    /// `blocks` blocks of `threads` threads in a row, without dynamic shared memory.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Geometry {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared_bytes: 0,
            blocks: BlockSchedule::OneAfterAnother,
        }
    }

    /// Runs a kernel as a cooperative launch.
    #[must_use]
    pub fn cooperative(self) -> Self {
        Geometry { blocks: BlockSchedule::AllAtOnce, ..self }
    }

    fn is_possible(&self) -> bool {
        let [x, y, z] = self.block;
        let threads = u64::from(x) * u64::from(y) * u64::from(z);
        let grid_max = [i32::MAX as u32, 65_535, 65_535];
        (1..=1024).contains(&threads)
            && z <= 64
            && self.grid.iter().zip(grid_max).all(|(&blocks, max)| (1..=max).contains(&blocks))
    }
}

/// A launch as the runtime has it: `simt::Launch` in `cxx/simt/export.h`.
#[repr(C)]
struct Launch {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared_bytes: u64,
    cooperative: u64,
    arguments: *const *mut c_void,
    ranges: *const LaunchMemory,
    range_count: u64,
    report: *mut c_char,
    report_bytes: u64,
}

type LaunchFn = unsafe extern "C" fn(*const Launch) -> i32;
type ParametersFn = unsafe extern "C" fn(*mut Parameter, u32) -> u32;

/// More than CUDA's 4 KB of arguments have use for.
const PARAMETERS_MAX: u32 = 512;

const REPORT_BYTES: usize = 16 << 10;

impl Kernels {
    /// Compiles the kernels of `sources` with every check. What was compiled before is taken from
    /// the cache.
    ///
    /// # Errors
    /// [`Error::NoCompiler`], [`Error::Compile`] with the compiler's messages, [`Error::Source`].
    pub fn compile<P: AsRef<Path>>(sources: &[P]) -> Result<Self> {
        Kernels::compile_with(sources, &CompileOptions::default())
    }

    /// As [`Kernels::compile`], with options.
    ///
    /// # Errors
    /// As there.
    pub fn compile_with<P: AsRef<Path>>(sources: &[P], options: &CompileOptions) -> Result<Self> {
        let compiled = compile::library(sources, options)?;
        // SAFETY: the library is the one that `compile` has just made or found under the hash of
        // its sources; its only initialisers are those of the C++ runtime.
        let library = unsafe { Library::new(&compiled.path) };
        let library = library.map_err(|source| Error::Load { path: compiled.path.clone(), source })?;
        Ok(Kernels { library, path: compiled.path, names: compiled.kernels })
    }

    /// The kernels' names, in the order of the sources.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The shared object. It exports, for each kernel, `simt_launch_<name>` and
    /// `simt_parameters_<name>` (`cxx/simt/export.h`), and for a made-up driver `int
    /// simt_<name>(const unsigned grid[3], const unsigned block[3], size_t dynamic_shared, void**
    /// arguments)` and `simt_cooperative_<name>`, which is the same for a cooperative launch.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a kernel on every thread of the grid, and returns when all have ended.
    ///
    /// # Errors
    /// [`Error::UnknownKernel`], [`Error::Arguments`] and [`Error::Geometry`] before anything runs;
    /// [`Error::Fault`] when a thread did what it must not, in which case the slices hold what was
    /// written up to then.
    pub fn launch(&self, kernel: &str, geometry: Geometry, arguments: &mut [Arg<'_>]) -> Result<()> {
        if !self.names.iter().any(|name| name == kernel) {
            return Err(Error::UnknownKernel { kernel: kernel.to_owned(), known: self.names.join(", ") });
        }
        if !geometry.is_possible() {
            let Geometry { grid, block, .. } = geometry;
            return Err(Error::Geometry { kernel: kernel.to_owned(), grid, block });
        }
        self.check_arguments(kernel, arguments)?;
        let mut staging = StagedArguments::new(arguments);
        let (addresses, ranges) = (staging.arguments(), staging.ranges());
        let mut report = vec![0u8; REPORT_BYTES];
        let launch = Launch {
            grid: geometry.grid,
            block: geometry.block,
            dynamic_shared_bytes: geometry.dynamic_shared_bytes as u64,
            cooperative: u64::from(geometry.blocks == BlockSchedule::AllAtOnce),
            arguments: addresses.as_ptr(),
            ranges: ranges.as_ptr(),
            range_count: ranges.len() as u64,
            report: report.as_mut_ptr().cast(),
            report_bytes: REPORT_BYTES as u64,
        };
        let run: libloading::Symbol<'_, LaunchFn> = self.symbol("launch", kernel)?;
        // SAFETY: the arguments were checked against the kernel's own parameters; `launch` and what
        // it points to live until the call returns. The instrumented kernel touches only the copies
        // of the slices.
        let failed = unsafe { run(&raw const launch) } != 0;
        staging.write_back(arguments);
        if failed {
            let text = CStr::from_bytes_until_nul(&report).map_or_else(|_| "no report".into(), CStr::to_string_lossy);
            return Err(Error::Fault { report: source_lines::named(&self.path, &text) });
        }
        Ok(())
    }

    fn check_arguments(&self, kernel: &str, arguments: &[Arg<'_>]) -> Result<()> {
        let parameters = self.parameters(kernel)?;
        let refuse = |what| Err(Error::Arguments { kernel: kernel.to_owned(), what });
        if parameters.len() != arguments.len() {
            return refuse(format!("takes {} arguments, but was given {}", parameters.len(), arguments.len()));
        }
        for (index, (argument, parameter)) in arguments.iter().zip(&parameters).enumerate() {
            if let Some(mismatch) = argument.mismatch(*parameter) {
                return refuse(format!("parameter {index} {mismatch}"));
            }
        }
        Ok(())
    }

    fn parameters(&self, kernel: &str) -> Result<Vec<Parameter>> {
        let describe: libloading::Symbol<'_, ParametersFn> = self.symbol("parameters", kernel)?;
        let mut parameters = vec![Parameter { kind: ArgumentKind::Other, bytes: 0 }; PARAMETERS_MAX as usize];
        // SAFETY: the function of this name, which `rewrite` appends, writes at most as many as it
        // is told there is room for.
        let count = unsafe { describe(parameters.as_mut_ptr(), PARAMETERS_MAX) };
        assert!(count <= PARAMETERS_MAX, "{kernel} has {count} parameters, more than {PARAMETERS_MAX}");
        parameters.truncate(count as usize);
        Ok(parameters)
    }

    fn symbol<T>(&self, what: &str, kernel: &str) -> Result<libloading::Symbol<'_, T>> {
        // SAFETY: callers ask for the type that `rewrite` gives the symbol.
        let symbol = unsafe { self.library.get(format!("simt_{what}_{kernel}").as_bytes()) };
        symbol.map_err(|source| Error::Load { path: self.path.clone(), source })
    }
}
