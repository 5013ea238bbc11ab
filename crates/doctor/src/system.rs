//! The examined machine: files below a root, environment variables, and programs to run.
//!
//! The root of the machine at hand is `/`; that of a made-up one is a folder in which a test has
//! made `sys`, `proc` and `dev`.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;

/// Most bytes of a file or of a program's output that are read; the rest is ignored.
const READ_BYTES_MAX: u64 = 4 << 20;

/// A machine: the one at hand, or a made-up one.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
    variables: BTreeMap<String, String>,
    architecture: String,
}

/// Access to a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeAccess {
    /// It can be opened for reading and writing.
    Granted,
    /// It exists, and its permissions forbid access.
    Denied,
    /// It exists, and no driver answers.
    Dead,
}

/// Output of a program, and how it ended.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Exit status of a failure, such as `exit status: 1`.
    pub(crate) fault: Option<String>,
}

impl System {
    /// The machine whose files are below `root`, whose environment is `variables` and whose CPU has
    /// an `architecture`, such as `x86_64` or `aarch64`.
    pub fn new(
        root: impl Into<PathBuf>,
        variables: impl IntoIterator<Item = (String, String)>,
        architecture: impl Into<String>,
    ) -> Self {
        System { root: root.into(), variables: variables.into_iter().collect(), architecture: architecture.into() }
    }

    /// The CPU's architecture.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The environment variable `name`, where it is set.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Path of this machine's `path` for the process at hand.
    pub(crate) fn place(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("/") {
            Ok(relative) => self.root.join(relative),
            Err(_) => self.root.join(path),
        }
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.place(Path::new(path)).exists()
    }

    pub(crate) fn is_file(&self, path: &Path) -> bool {
        self.place(path).is_file()
    }

    /// The text of a file, as far as it can be read.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.place(path.as_ref())).ok()?.take(READ_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The names in a folder, in order; none where there is no such folder.
    pub(crate) fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.place(folder.as_ref())).into_iter().flatten();
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The name of the file that `path` stands for, links followed.
    pub(crate) fn resolved_name(&self, path: &Path) -> Option<String> {
        let resolved = fs::canonicalize(self.place(path)).ok()?;
        Some(resolved.file_name()?.to_string_lossy().into_owned())
    }

    /// Target of a link, as this machine would name it.
    pub(crate) fn resolved(&self, path: &Path) -> Option<PathBuf> {
        let resolved = fs::canonicalize(self.place(path)).ok()?;
        let root = fs::canonicalize(&self.root).ok()?;
        Some(Path::new("/").join(resolved.strip_prefix(root).ok()?))
    }

    /// Access to the device node at `path`; `None` if there is none.
    pub(crate) fn access(&self, path: &str) -> Option<NodeAccess> {
        let place = self.place(Path::new(path));
        place.exists().then(|| match OpenOptions::new().read(true).write(true).open(&place) {
            Ok(_) => NodeAccess::Granted,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => NodeAccess::Denied,
            Err(_) => NodeAccess::Dead,
        })
    }

    /// Runs `program` with `arguments` in the machine's environment and kills it after `limit`.
    ///
    /// # Errors
    /// If it cannot be started. A failure or a kill is part of the result, with the output until
    /// then.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str], limit: Duration) -> Result<Ran, Error> {
        let mut child = Command::new(self.place(program))
            .args(arguments)
            .env_clear()
            .envs(&self.variables)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Error::NotRun { program: program.to_owned(), source })?;
        let stdout = collect(child.stdout.take().expect("it is piped"));
        let stderr = collect(child.stderr.take().expect("it is piped"));
        let deadline = Instant::now() + limit;
        let (stdout, in_time) = drain(&stdout, deadline);
        let (stderr, _) = drain(&stderr, if in_time { deadline } else { Instant::now() });
        Ok(Ran { stdout, stderr, fault: end(&mut child, in_time, limit) })
    }
}

/// Reason for which the child failed, if it did. A child that still runs is killed.
fn end(child: &mut Child, in_time: bool, limit: Duration) -> Option<String> {
    if !in_time {
        // It may have ended since, and then there is nothing to kill.
        let _ = child.kill();
    }
    match child.wait() {
        _ if !in_time => Some(format!("it had not ended after {} s", limit.as_secs_f64())),
        Ok(status) if status.success() => None,
        Ok(status) => Some(status.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// Reads a pipe on its own thread, piece by piece, so that the output of a hanging program is not
/// lost.
fn collect(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut left = READ_BYTES_MAX as usize;
        let mut piece = vec![0; 16 << 10];
        while let Ok(count @ 1..) = pipe.read(&mut piece) {
            let kept = count.min(left);
            left -= kept;
            if sender.send(piece[..kept].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The output until the pipe is closed, and true if that was before `deadline`.
fn drain(pieces: &Receiver<Vec<u8>>, deadline: Instant) -> (String, bool) {
    let mut bytes = Vec::new();
    let in_time = loop {
        match pieces.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(piece) => bytes.extend(piece),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break true,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => break false,
        }
    };
    (String::from_utf8_lossy(&bytes).into_owned(), in_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Ran {
        let variables = [("GREETING".to_owned(), "hello".to_owned())];
        System::new("/", variables, "x86_64").run(Path::new("/bin/sh"), &["-c", script], limit).unwrap()
    }

    #[test]
    fn programs_see_the_machines_environment_alone() {
        let ran = shell("echo $GREETING$HOME; echo oh >&2; exit 3", Duration::from_secs(60));
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("hello\n", "oh\n"));
        assert_eq!(ran.fault.as_deref(), Some("exit status: 3"));
    }

    #[test]
    fn a_program_that_hangs_has_been_heard_up_to_there() {
        let ran = shell("echo one; exec tail -f /dev/null", Duration::from_millis(300));
        assert_eq!(ran.stdout, "one\n");
        assert_eq!(ran.fault.as_deref(), Some("it had not ended after 0.3 s"));
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let system = System::new("/", [], "x86_64");
        let error = system.run(Path::new("/no/such/python"), &[], Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().starts_with("/no/such/python: cannot be run: No such file"), "{error}");
    }

    #[test]
    fn files_are_below_the_root() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("etc/b")).unwrap();
        fs::write(folder.path().join("etc/a"), "text").unwrap();
        let system = System::new(folder.path(), [], "aarch64");
        assert_eq!(system.read("/etc/a").as_deref(), Some("text"));
        assert_eq!(system.names("/etc"), ["a", "b"]);
        assert_eq!(system.names("/nowhere"), [""; 0]);
        assert_eq!(system.access("/etc/a"), Some(NodeAccess::Granted));
        assert_eq!(system.access("/dev/nvidiactl"), None);
        assert_eq!(system.resolved(Path::new("/etc/a")).as_deref(), Some(Path::new("/etc/a")));
    }
}
