use std::path::PathBuf;

use thiserror::Error;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why kernels could not be compiled, or a launch did not end well.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no C++ compiler.
    #[error("the C++ compiler `{program}` cannot be started: {source}; install g++ or clang++, or name one in CXX")]
    NoCompiler {
        /// The program that was tried.
        program: String,
        /// Why it did not start.
        source: std::io::Error,
    },

    /// The compiler refused a source.
    #[error("{} does not compile:\n{messages}", source_file.display())]
    Compile {
        /// The kernel source, or the library that was to be linked.
        source_file: PathBuf,
        /// Output of the compiler.
        messages: String,
    },

    /// The source has something that the harness does not understand.
    #[error("{file}:{line}: {what}")]
    Source {
        /// File of the line, as the preprocessor names it.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Fault, and the text to write instead.
        what: String,
    },

    /// A file of the cache cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },

    /// The compiled library cannot be loaded.
    #[error("the compiled kernels in {} cannot be loaded: {source}", path.display())]
    Load {
        /// The library.
        path: PathBuf,
        /// Error of the loader.
        source: libloading::Error,
    },

    /// No source has a kernel of this name.
    #[error("there is no kernel `{kernel}`; the sources have {known}")]
    UnknownKernel {
        /// The name asked for.
        kernel: String,
        /// The names there are.
        known: String,
    },

    /// The arguments do not fit the kernel's parameters.
    #[error("kernel {kernel}: {what}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// The parameter, its type and the value given.
        what: String,
    },

    /// No GPU would run this grid.
    #[error(
        "kernel {kernel}: grid {grid:?} of blocks {block:?}: no size may be 0, a block has at most 1024 threads (64 along z), a grid at most 2147483647 x 65535 x 65535 blocks"
    )]
    Geometry {
        /// The kernel.
        kernel: String,
        /// Blocks along x, y, z.
        grid: [u32; 3],
        /// Threads along x, y, z.
        block: [u32; 3],
    },

    /// A fault of a thread: a deadlock, a divergent warp or barrier, an access out of range, a
    /// race.
    #[error("{report}")]
    Fault {
        /// Kernel, block, threads and lines.
        report: String,
    },
}
