//! The kernels of a crate's operations, for the tests of those operations.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::argument::Arg;
use crate::compile::{Checks, CompileOptions};
use crate::driver::{FakeDriver, Setting};
use crate::kernels::{Geometry, Kernels};

/// The kernels of one folder on the CPU. They are compiled, with every check, when the first is
/// launched, and failures are panics.
///
/// ```
/// use megabatch_simt::{Arg, Harness};
///
/// const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels");
/// static HARNESS: Harness = Harness::new(FOLDER, &["saxpy"]);
///
/// let (x, mut y) = ([1.0f32, 2.0, 3.0], [10.0f32; 3]);
/// let mut arguments =
///     [Arg::from(2.0f32), Arg::from(&x[..]), Arg::from(&mut y[..]), Arg::from(3u32)];
/// HARNESS.run("saxpy", Some((1, 32)), &mut arguments);
/// assert_eq!(y, [12.0, 14.0, 16.0]);
/// ```
#[derive(Debug)]
pub struct Harness {
    folder: &'static str,
    names: &'static [&'static str],
    kernels: OnceLock<Kernels>,
}

impl Harness {
    /// Harness of the sources `names`, without their ending `.cu`, in `folder`.
    pub const fn new(folder: &'static str, names: &'static [&'static str]) -> Self {
        Harness { folder, names, kernels: OnceLock::new() }
    }

    /// Launches `kernel` in a grid of blocks and threads, as on a GPU; does nothing for an empty
    /// grid.
    ///
    /// # Panics
    /// If the sources do not compile, and if [`Kernels::launch`] fails.
    pub fn run(&self, kernel: &str, grid: Option<impl Into<(u32, u32)>>, arguments: &mut [Arg<'_>]) {
        if let Some((blocks, threads)) = grid.map(Into::into) {
            self.launch(kernel, Geometry::linear(blocks, threads), arguments);
        }
    }

    /// Runs a kernel as a cooperative launch, whose blocks may wait for each other.
    ///
    /// # Panics
    /// As [`Harness::run`].
    pub fn run_cooperative(&self, kernel: &str, grid: impl Into<(u32, u32)>, arguments: &mut [Arg<'_>]) {
        let (blocks, threads) = grid.into();
        self.launch(kernel, Geometry::linear(blocks, threads).cooperative(), arguments);
    }

    /// Launches `kernel` with a geometry of any kind.
    ///
    /// # Panics
    /// As [`Harness::run`].
    pub fn launch(&self, kernel: &str, geometry: Geometry, arguments: &mut [Arg<'_>]) {
        let kernels = self.kernels.get_or_init(|| self.compiled(Checks::Memory));
        let done = kernels.launch(kernel, geometry, arguments);
        done.unwrap_or_else(|error| panic!("{error}"));
    }

    /// A fresh fake driver that has these kernels, and does work only when somebody waits for it.
    ///
    /// # Panics
    /// If the sources do not compile, and as [`FakeDriver::whole`].
    pub fn driver(&self) -> FakeDriver {
        let driver = FakeDriver::whole();
        driver.add_kernels(self.compiled(Checks::Barriers).path());
        driver.set(Setting::Deferred, 1);
        driver
    }

    /// The shared object with these kernels, for a fake driver in another process: see
    /// [`FakeDriver::KERNELS`].
    ///
    /// # Panics
    /// If the sources do not compile.
    pub fn object(&self) -> PathBuf {
        self.compiled(Checks::Barriers).path().to_owned()
    }

    fn compiled(&self, checks: Checks) -> Kernels {
        let sources: Vec<String> = self.names.iter().map(|name| format!("{}/{name}.cu", self.folder)).collect();
        let options = CompileOptions { checks, ..CompileOptions::default() };
        Kernels::compile_with(&sources, &options).unwrap_or_else(|error| panic!("{error}"))
    }
}
