//! Optional inputs of tests, and a record of the tests that were skipped for want of one.
//!
//! libtest counts a test that returns early as passed and hides its output. A test that cannot run
//! on this machine therefore calls [`skip`], or asks for its input with [`published_data`] or
//! [`python`]. `cargo xtask test` names a file in [`RECORD`], to which each skipped test appends a
//! line, and ends with the list.
use std::fmt::{self, Display, Formatter};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, thread};

/// Environment variable with the file to which skipped tests are appended.
pub const RECORD: &str = "MEGABATCH_SKIPPED_TESTS";

/// Environment variable with the folder of published market data, molecules and graphs.
pub const DATA: &str = "MEGABATCH_DATA";

/// Environment variable with a Python that has numpy and h5py.
pub const PYTHON: &str = "MEGABATCH_PYTHON";

/// A property of the machine that a test asks for and that was not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requirement {
    /// Published data, found through [`DATA`].
    Data,
    /// A Python, found through [`PYTHON`].
    Python,
    /// The rights of root.
    Root,
    /// A user without the rights of root.
    OrdinaryUser,
    /// A machine without a CUDA driver.
    NoCudaDriver,
    /// Instructions that the CPU lacks.
    Instructions,
}

impl Requirement {
    /// Every requirement, in the order of the gate's list.
    pub const ALL: [Requirement; 6] = [
        Requirement::Data,
        Requirement::Python,
        Requirement::Root,
        Requirement::OrdinaryUser,
        Requirement::NoCudaDriver,
        Requirement::Instructions,
    ];

    /// The name in the record and on the gate's command line.
    pub fn name(self) -> &'static str {
        match self {
            Requirement::Data => "data",
            Requirement::Python => "python",
            Requirement::Root => "root",
            Requirement::OrdinaryUser => "ordinary-user",
            Requirement::NoCudaDriver => "no-cuda-driver",
            Requirement::Instructions => "instructions",
        }
    }

    /// The requirement called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Requirement::ALL.into_iter().find(|requirement| requirement.name() == name)
    }
}

impl Display for Requirement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Requirement::Data => "published data (MEGABATCH_DATA)",
            Requirement::Python => "Python with numpy and h5py (MEGABATCH_PYTHON)",
            Requirement::Root => "root",
            Requirement::OrdinaryUser => "a user other than root",
            Requirement::NoCudaDriver => "a machine without a CUDA driver",
            Requirement::Instructions => "instructions that this CPU lacks",
        })
    }
}

/// A test that was skipped, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skipped {
    /// The requirement that this machine does not meet.
    pub requirement: Requirement,
    /// Package of the test.
    pub package: String,
    /// File name of the test program.
    pub program: String,
    /// Path of the test in its program, as libtest prints it.
    pub test: String,
    /// The part of the test that did not run.
    pub reason: String,
}

impl Skipped {
    /// The line of the record, without a line break.
    pub fn line(&self) -> String {
        let fields = [self.requirement.name(), &self.package, &self.program, &self.test, &self.reason];
        fields.map(|field| field.replace(['\t', '\n', '\r'], " ")).join("\t")
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(5, '\t');
        let requirement = Requirement::from_name(fields.next()?)?;
        let mut text = || fields.next().map(str::to_owned);
        Some(Skipped { requirement, package: text()?, program: text()?, test: text()?, reason: text()? })
    }
}

/// Reports that the running test, or a part of it, is skipped because `requirement` is not met.
///
/// # Panics
///
/// If [`RECORD`] names a file that cannot be appended to: a skipped test must not go unnoticed.
pub fn skip(requirement: Requirement, reason: &str) {
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    let skipped =
        Skipped { requirement, package, program: running_program(), test: running_test(), reason: reason.to_owned() };
    println!("skipped: {reason}: needs {requirement}");
    if let Some(path) = env::var_os(RECORD).map(PathBuf::from) {
        append(&path, &skipped).unwrap_or_else(|error| panic!("{RECORD}={}: {error}", path.display()));
    }
}

/// The folder of published data; without it, `None` and the running test counts as skipped for
/// `reason`.
pub fn published_data(reason: &str) -> Option<PathBuf> {
    let folder = env::var_os(DATA).map(PathBuf::from);
    if folder.is_none() {
        skip(Requirement::Data, reason);
    }
    folder
}

/// The Python of the tests; without it, `None` and the running test counts as skipped for `reason`.
pub fn python(reason: &str) -> Option<PathBuf> {
    let python = env::var_os(PYTHON).map(PathBuf::from);
    if python.is_none() {
        skip(Requirement::Python, reason);
    }
    python
}

/// The skipped tests in the record at `path`, sorted, each once; none if no test made the file.
///
/// # Errors
///
/// If the file cannot be read, or has a line that no test wrote.
pub fn recorded(path: &Path) -> io::Result<Vec<Skipped>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let parse = |line: &str| {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("not a skipped test: `{line}`"));
        Skipped::parse(line).ok_or_else(damaged)
    };
    let mut skipped = text.lines().map(parse).collect::<io::Result<Vec<_>>>()?;
    skipped.sort();
    skipped.dedup();
    Ok(skipped)
}

/// Appends one line in a single write, so that lines of several processes do not mix.
fn append(path: &Path, skipped: &Skipped) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{}\n", skipped.line()).as_bytes())
}

/// The path of the running test: the name that libtest gives its thread, or, on the main thread,
/// the filter of a process that runs a single test.
fn running_test() -> String {
    let thread = thread::current();
    match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_else(|| "?".to_owned()),
    }
}

fn running_program() -> String {
    let program = env::current_exe().unwrap_or_default();
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(requirement: Requirement, test: &str) -> Skipped {
        let [package, program, test, reason] =
            ["megabatch-bars", "real-0123", test, "Cora is not read"].map(str::to_owned);
        Skipped { requirement, package, program, test, reason }
    }

    #[test]
    fn each_skipped_test_is_recorded_once_and_sorted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skipped");
        assert_eq!(recorded(&path).unwrap(), []);
        let (late, early) = (skipped(Requirement::Python, "a::b"), skipped(Requirement::Data, "real::year"));
        for one in [&late, &early, &late] {
            append(&path, one).unwrap();
        }
        assert_eq!(recorded(&path).unwrap(), [early, late]);
    }

    #[test]
    fn a_reason_of_several_lines_stays_one_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skipped");
        let odd = Skipped { reason: "first\nsecond\tthird".to_owned(), ..skipped(Requirement::Root, "t") };
        append(&path, &odd).unwrap();
        assert_eq!(recorded(&path).unwrap()[0].reason, "first second third");
        fs::write(&path, "data\tmegabatch-bars\n").unwrap();
        assert!(recorded(&path).unwrap_err().to_string().contains("not a skipped test"));
    }

    #[test]
    fn every_requirement_is_found_by_its_name() {
        for requirement in Requirement::ALL {
            assert_eq!(Requirement::from_name(requirement.name()), Some(requirement));
        }
        assert_eq!(Requirement::from_name("gpu"), None);
    }

    #[test]
    fn the_running_test_has_a_name() {
        assert_eq!(running_test(), "tests::the_running_test_has_a_name");
    }
}
