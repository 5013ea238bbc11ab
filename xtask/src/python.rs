//! The Python module in `bindings/python`: `cargo xtask python build | test | stubs | measure |
//! leakbench`, and the gate `python`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, thread};

use anyhow::{Context, Result, bail};

use crate::components::{linked, terms};
use crate::limits::{beside, succeed, succeed_without_limit};
use crate::session::Session;
use crate::setting_types::setting_types;
use crate::sources::hash_of;
use crate::tools::{Venv, with_cmake};
use crate::workspace::{Workspace, build_as_tests, cargo};
use crate::zig;

const PACKAGE: &str = "megabatch-python";
/// Most files of tests that run at once.
const TESTS_AT_ONCE: usize = 4;
const FOLDER: &str = "bindings/python";

/// Builds wheels.
const BUILDER: &[&str] = &["maturin>=1.9,<2"];
/// Tag of a wheel that runs on all Linux systems since 2019.
pub(crate) const MANYLINUX: &str = "manylinux_2_28";
/// Terms of the libraries of C that are linked in.
pub(crate) const TERMS_OF_C: &str = "bindings/python/LICENSES-of-what-is-linked.txt";
/// Terms of the crates that are linked in, which builds write.
pub(crate) const TERMS_OF_CRATES: &str = "LICENSES-of-crates.txt";
/// Packages of the tests and of the check of types.
const TEST_PACKAGES: &[&str] = &["numpy", "pandas", "polars", "pyarrow", "h5py", "mypy", "pandas-stubs"];
/// Pages whose Python these tests run.
const PAGES: [&str; 7] = [
    "README.md",
    "docs/guide/bid-ask.md",
    "docs/guide/dukascopy-binance.md",
    "docs/guide/metatrader.md",
    "docs/guide/own-features.md",
    "docs/guide/python.md",
    "docs/guide/yahoo.md",
];
/// Packages of the tests with PyTorch and of the notebook: 6 GB.
const TORCH_PACKAGES: &[&str] =
    &["torch", "torch_geometric", "lightning", "optuna", "nbclient", "ipykernel", "matplotlib", "pytest", "torchdata"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let workspace = Workspace::load()?;
    let (command, rest) = args.split_first().map_or(("", args), |(first, rest)| (first.as_str(), rest));
    match (command, rest) {
        ("build", []) => build(&workspace),
        ("test", rest) => {
            let module = Module::build(&workspace)?;
            let with_torch = rest.first().is_some_and(|arg| arg == "--torch");
            let rest = if with_torch { &rest[1..] } else { rest };
            if with_torch {
                return module.test(&torch_environment(&workspace)?, rest);
            }
            module.test(&environment(&workspace)?, rest)
        }
        ("measure", rest) => {
            let module = Module::build_with(&workspace, Profile::Release)?;
            match rest.split_first() {
                Some((first, rest)) if first == "--torch" => {
                    module.measure(&torch_environment(&workspace)?, "measure_torch.py", rest)
                }
                Some((first, rest)) if first == "--scatter" => {
                    module.measure(&torch_environment(&workspace)?, "measure_scatter.py", rest)
                }
                _ => module.measure(&environment(&workspace)?, "measure_loader.py", rest),
            }
        }
        ("leakbench", rest) => {
            let module = Module::build_with(&workspace, Profile::Release)?;
            let folder = workspace.root.join("benches/leakbench");
            let mut leakbench = module.python(&environment(&workspace)?);
            succeed_without_limit(leakbench.args(["-B", "-W", "ignore"]).arg(folder).args(rest))
        }
        ("stubs", []) => {
            let module = Module::build(&workspace)?;
            module.write_stubs()?;
            module.check_types(&environment(&workspace)?)
        }
        _ => bail!(
            "expected `python build`, `python test [--torch] [NAME…]`, `python stubs`, `python measure [--torch | --scatter]` or `python leakbench`"
        ),
    }
}

/// The gate `python`: tests and types, unless nothing has changed since they passed.
pub(crate) fn gate(session: &Session) -> Result<()> {
    let workspace = &session.workspace;
    let package = workspace.packages.iter().find(|package| package.name == PACKAGE);
    let package = package.context("the Python module is a member of the workspace")?;
    let pages = PAGES.map(|page| session.sources.page_key(page));
    let key = hash_of(&(session.sources.package_key(workspace, package), pages));
    session.passed.unless_unchanged("python", key, || {
        // Packages are fetched while the module is compiled, and types are one thread's work.
        let (module, venv) = beside(|| Module::build(workspace), || environment(workspace));
        let (module, venv) = (module?, venv?);
        module.require_stubs()?;
        module.compile(&venv)?;
        let (tests, types) = beside(|| module.test(&venv, &[]), || module.check_types(&venv));
        types.and(tests)
    })
}

/// Names of the files of tests in `folder`, the longest last.
fn test_files(folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("test_") && name.ends_with(".py") {
            files.push((entry.metadata()?.len(), name));
        }
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, name)| name).collect())
}

/// The environment of the ordinary tests.
fn environment(workspace: &Workspace) -> Result<Venv> {
    let venv = Venv::open(workspace.target_dir.join("python"))?;
    venv.ensure("test-packages", TEST_PACKAGES)?;
    Ok(venv)
}

/// The folder of the module for Python's path, and a Python that has what it needs.
pub(crate) fn module_and_interpreter(workspace: &Workspace) -> Result<(PathBuf, PathBuf)> {
    let module = Module::build(workspace)?;
    Ok((module.path, environment(workspace)?.python()))
}

/// The environment of the peers, which has PyTorch.
fn torch_environment(workspace: &Workspace) -> Result<Venv> {
    let venv = Venv::open(workspace.target_dir.join("peers"))?;
    venv.ensure("python-tests", &[TEST_PACKAGES, TORCH_PACKAGES].concat())?;
    Ok(venv)
}

/// Builds the wheel for this machine into `target/wheels`.
fn build(workspace: &Workspace) -> Result<()> {
    build_wheel(workspace, None, &workspace.target_dir.join("wheels")).map(|_| ())
}

/// Builds the wheel with the release profile into `wheels`, and returns its path: on Linux for
/// [`MANYLINUX`], or for this machine's C library where PyPI has no zig for it.
///
/// # Errors
/// If it cannot be built; if there is no zig for `target`.
pub(crate) fn build_wheel(workspace: &Workspace, target: Option<&zig::Target>, wheels: &Path) -> Result<PathBuf> {
    let venv = Venv::open(workspace.target_dir.join("python"))?;
    venv.ensure("maturin", BUILDER)?;
    let folder = workspace.root.join(FOLDER);
    let mut maturin = Command::new(venv.program("maturin"));
    maturin.args(["build", "--release", "--locked", "--compression-level", "9", "--out"]).arg(wheels);
    maturin.current_dir(&folder);
    if cfg!(target_os = "linux") {
        match zig::configure(&mut maturin, &venv, target) {
            Ok(()) => {
                maturin.args(["--zig", "--compatibility", MANYLINUX]);
            }
            Err(error) if target.is_some() => return Err(error),
            Err(error) => println!("xtask: the wheel will not be one of {MANYLINUX}: {error:#}"),
        }
    }
    if let Some(target) = target {
        maturin.args(["--target", &target.triple]);
    }
    let terms = Terms::write(workspace, target.map(|target| target.triple.as_str()), &folder)?;
    with_cmake(&mut maturin, workspace).and_then(succeed)?;
    drop(terms);
    let wheel = newest_in(wheels)?;
    let bytes = fs::metadata(&wheel)?.len();
    println!("{}: {:.1} MB", wheel.display(), bytes as f64 / 1e6);
    Ok(wheel)
}

/// Files of terms that a wheel has and the folder of its sources has not; they go with this value.
struct Terms {
    files: Vec<PathBuf>,
}

impl Terms {
    fn write(workspace: &Workspace, target: Option<&str>, folder: &Path) -> Result<Self> {
        let mut terms = Terms { files: Vec::new() };
        let texts = [
            ("LICENSE-MIT", fs::read_to_string(workspace.root.join("LICENSE-MIT"))?),
            ("LICENSE-APACHE", fs::read_to_string(workspace.root.join("LICENSE-APACHE"))?),
            (TERMS_OF_CRATES, terms_of_module(workspace, target)?),
        ];
        for (name, text) in texts {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            terms.files.push(path);
        }
        Ok(terms)
    }
}

/// The terms of the crates in the native part for `target`, or for this machine.
fn terms_of_module(workspace: &Workspace, target: Option<&str>) -> Result<String> {
    let native = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    terms(&linked(workspace, PACKAGE, target.unwrap_or(&native))?)
}

impl Drop for Terms {
    fn drop(&mut self) {
        // A file that stays is in the way of nobody.
        self.files.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// The wheel in `folder` that was written last. The name of a wheel ends with its tag.
pub(crate) fn newest_in(folder: &Path) -> Result<PathBuf> {
    let mut newest = None;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            let written = fs::metadata(&path)?.modified()?;
            newest = newest.max(Some((written, path)));
        }
    }
    newest.map(|(_, path)| path).with_context(|| format!("{} has no wheel", folder.display()))
}

/// The module after a build with the dev profile, as a folder for Python's path.
struct Module<'a> {
    workspace: &'a Workspace,
    path: PathBuf,
    /// The native part, as the compiler made it.
    library: PathBuf,
}

/// Profile of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Profile {
    Dev,
    Release,
}

impl<'a> Module<'a> {
    fn build(workspace: &'a Workspace) -> Result<Self> {
        Module::build_with(workspace, Profile::Dev)
    }

    fn build_with(workspace: &'a Workspace, profile: Profile) -> Result<Self> {
        let (mut build, built) = match profile {
            // With the program, whose results the tests compare.
            Profile::Dev => (build_as_tests(&workspace.root, &["--lib", "--bin", "megabatch"]), "debug"),
            Profile::Release => {
                (cargo(&workspace.root, &["build", "--locked", "--package", PACKAGE, "--release"]), "release")
            }
        };
        succeed(with_cmake(&mut build, workspace)?)?;
        let path = workspace.target_dir.join("python-module");
        let package = path.join("megabatch");
        if package.exists() {
            fs::remove_dir_all(&package).with_context(|| format!("cannot empty {}", package.display()))?;
        }
        copy_folder(&workspace.root.join(FOLDER).join("python/megabatch"), &package)?;
        let library = format!("{}_megabatch{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
        let built = workspace.target_dir.join(built).join(library);
        let ending = if cfg!(windows) { "pyd" } else { "abi3.so" };
        fs::copy(&built, package.join(format!("_megabatch.{ending}")))
            .with_context(|| format!("cannot copy {}", built.display()))?;
        Ok(Module { workspace, path, library: built })
    }

    fn python(&self, venv: &Venv) -> Command {
        let mut python = Command::new(venv.python());
        python.env("PYTHONPATH", &self.path).env("MEGABATCH_PROGRAM", self.workspace.binary());
        python.current_dir(self.workspace.root.join(FOLDER));
        python
    }

    /// Compiles the module's Python once: where Python is told to write no bytecode, each process
    /// of the tests would.
    fn compile(&self, venv: &Venv) -> Result<()> {
        succeed(Command::new(venv.python()).args(["-m", "compileall", "-q"]).arg(&self.path))
    }

    /// Runs the tests whose names have one of `names` in them, or all: then several files at once,
    /// as most of their time is one thread's.
    fn test(&self, venv: &Venv, names: &[String]) -> Result<()> {
        if !names.is_empty() {
            let mut test = self.tests_in(venv, "test_*.py");
            names.iter().for_each(|name| {
                test.args(["-k", name]);
            });
            return succeed(&mut test);
        }
        let files = Mutex::new(test_files(&self.workspace.root.join(FOLDER).join("tests"))?);
        let failed = Mutex::new(Vec::new());
        let next = || files.lock().expect("no thread panics with it").pop();
        let count = thread::available_parallelism().map_or(1, usize::from).min(TESTS_AT_ONCE);
        thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    while let Some(file) = next() {
                        if let Err(error) = self.test_file(venv, &file) {
                            failed.lock().expect("no thread panics with it").push(format!("{file}: {error:#}"));
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().expect("no thread panicked");
        if !failed.is_empty() {
            bail!("{}", failed.join("\n"));
        }
        Ok(())
    }

    /// Runs the tests of a file, and shows what they wrote once they have ended.
    fn test_file(&self, venv: &Venv, file: &str) -> Result<()> {
        let folder = self.workspace.target_dir.join("python-tests");
        fs::create_dir_all(&folder)?;
        let path = folder.join(file).with_extension("txt");
        let written = fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut test = self.tests_in(venv, file);
        test.stdout(written.try_clone()?).stderr(written);
        let outcome = succeed(&mut test);
        println!("{file}\n{}", String::from_utf8_lossy(&fs::read(&path)?));
        outcome
    }

    /// The tests in files with names like `pattern`.
    fn tests_in(&self, venv: &Venv, pattern: &str) -> Command {
        let mut test = self.python(venv);
        test.args(["-m", "unittest", "discover", "--start-directory", "tests", "--top-level-directory", "tests"]);
        test.args(["--pattern", pattern]);
        test
    }

    /// Measures the loader or operations on tensors by a script.
    fn measure(&self, venv: &Venv, script: &str, arguments: &[String]) -> Result<()> {
        succeed_without_limit(self.python(venv).arg(script).args(arguments))
    }

    /// Types of the native part, as PyO3 left them in it.
    fn native_types(&self) -> Result<String> {
        let module = pyo3_introspection::introspect_cdylib(&self.library, "_megabatch")
            .with_context(|| format!("{} tells no types", self.library.display()))?;
        let files = pyo3_introspection::module_stub_files(&module);
        let text = files.into_values().next().context("the native part has no types")?;
        Ok(format!("# Written by `cargo xtask python stubs`.\n{text}"))
    }

    /// Files of types that are written for the module: their names and texts.
    fn generated_types(&self) -> Result<[(&'static str, String); 2]> {
        let settings = setting_types(&self.workspace.binary())?;
        Ok([("_megabatch.pyi", self.native_types()?), ("_settings_types.py", settings)])
    }

    /// Folder of the module's sources in the checkout.
    fn sources(&self) -> PathBuf {
        self.workspace.root.join(FOLDER).join("python/megabatch")
    }

    /// Writes the types of the native part and of settings into the checkout and beside the module.
    fn write_stubs(&self) -> Result<()> {
        for (name, text) in self.generated_types()? {
            for path in [self.sources().join(name), self.path.join("megabatch").join(name)] {
                if !fs::read_to_string(&path).is_ok_and(|old| old == text) {
                    fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
                    println!("xtask: {} is another one now", path.display());
                }
            }
        }
        Ok(())
    }

    /// Refuses types in the checkout that are not those of the native part and of the program.
    fn require_stubs(&self) -> Result<()> {
        for (name, text) in self.generated_types()? {
            let path = self.sources().join(name);
            if !fs::read_to_string(&path).is_ok_and(|old| old == text) {
                bail!(
                    "{} is not what the native part and the program say: run `cargo xtask python stubs`",
                    path.display()
                );
            }
        }
        Ok(())
    }

    /// Checks the types of the module, of the tests and of the examples, and the stubs of the
    /// native part against it.
    fn check_types(&self, venv: &Venv) -> Result<()> {
        let cache: OsString = self.workspace.target_dir.join("mypy").into();
        let mut mypy = self.python(venv);
        mypy.args(["-m", "mypy", "--strict", "--config-file", "pyproject.toml", "--cache-dir"]).arg(&cache);
        succeed(mypy.args(["python/megabatch", "examples", "tests/typed_settings.py"]))?;
        let mut stubtest = self.python(venv);
        stubtest.args(["-m", "mypy.stubtest", "--mypy-config-file", "pyproject.toml"]);
        succeed(stubtest.args(["megabatch._megabatch", "--concise"]))
    }
}

/// Copies the files of a folder, without what Python has compiled.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_file() {
            fs::copy(&path, to.join(name)).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}
