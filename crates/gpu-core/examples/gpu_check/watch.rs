//! Checks of a device, run in a process of their own. Where that exits, hangs or loses its device,
//! another process continues with the next check.
//!
//! ```text
//! program        │ spawns itself with --from 0; passes on each row; waits for a row up to a limit
//! program --from │ writes a row as each check ends; exits when the device does not work any more
//! ```
//!
//! A GPU's context that has failed fails in every later call, and a kernel that waits for ever lets
//! nothing else run.
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limit of a check, its kernels' compilation included.
#[allow(dead_code, reason = "the test of this is not as patient")]
pub(crate) const LIMIT: Duration = Duration::from_secs(25);

/// Longest wait for the end of a process that was killed, and the time between two looks.
const KILL_LIMIT: Duration = Duration::from_secs(2);
const KILL_POLL: Duration = Duration::from_millis(20);

/// Exit code of the processes of both kinds.
pub(crate) const PASSED: u8 = 0;
pub(crate) const FAILED: u8 = 1;
const LOST: u8 = 7;

/// Message of a check that passed.
pub(crate) type Outcome = Result<String, Box<dyn Error>>;

pub(crate) struct Check<'c> {
    pub(crate) name: String,
    pub(crate) run: Box<dyn Fn() -> Outcome + 'c>,
}

impl<'c> Check<'c> {
    pub(crate) fn new(name: impl Into<String>, run: impl Fn() -> Outcome + 'c) -> Self {
        Check { name: name.into(), run: Box::new(run) }
    }
}

/// Runs the checks from number `first` on, and writes a row for each as it ends. `settle` waits for
/// the device after every one.
///
/// # Errors
/// Errors of writing.
pub(crate) fn work(
    checks: &[Check<'_>],
    first: usize,
    settle: &dyn Fn() -> Outcome,
    out: &mut dyn Write,
) -> io::Result<u8> {
    let mut code = PASSED;
    for Check { name, run } in checks.iter().skip(first) {
        let start = Instant::now();
        let outcome = caught(run);
        // What a check left behind is its own fault.
        let settled = caught(settle);
        let is_lost = settled.is_err();
        let outcome = outcome.and_then(|text| settled.map(|_| text));
        if outcome.is_err() {
            code = FAILED;
        }
        tell(out, name, &outcome, start.elapsed())?;
        if is_lost {
            return Ok(LOST);
        }
    }
    Ok(code)
}

/// A table of the checks of these names, which processes of `worker` do, each told where to begin:
/// their rows are passed on, and a check that gives none fails.
///
/// # Errors
/// Errors of starting a process and of writing.
pub(crate) fn watch(
    names: &[String],
    worker: &dyn Fn(usize) -> Command,
    limit: Duration,
    out: &mut dyn Write,
) -> io::Result<u8> {
    writeln!(out, "| check | result | s |\n| --- | --- | ---: |")?;
    let (mut told, mut code) = (0, PASSED);
    while told < names.len() {
        let process = Process::start(&mut worker(told))?;
        let start = Instant::now();
        let ending = loop {
            match process.rows.recv_timeout(limit) {
                Ok(row) => {
                    writeln!(out, "{row}")?;
                    out.flush()?;
                    told += 1;
                }
                Err(RecvTimeoutError::Timeout) => break process.kill(limit)?,
                Err(RecvTimeoutError::Disconnected) => break process.ending()?,
            }
        };
        if ending.code != Some(i32::from(PASSED)) {
            code = FAILED;
        }
        // One that lost its device has told of it.
        if told < names.len() && ending.code != Some(i32::from(LOST)) {
            code = FAILED;
            tell(out, &names[told], &Err(ending.text), start.elapsed())?;
            told += 1;
        }
    }
    Ok(code)
}

struct Process {
    child: Child,
    rows: Receiver<String>,
}

struct Ending {
    code: Option<i32>,
    text: String,
}

impl Process {
    fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().expect("it was asked for");
        let (sender, rows) = channel();
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|row| sender.send(row))
        });
        Ok(Process { child, rows })
    }

    fn ending(mut self) -> io::Result<Ending> {
        let status = self.child.wait()?;
        Ok(Ending { code: status.code(), text: format!("its process ended with {status} and told nothing") })
    }

    /// Kills the process and waits for its end, but not for long: one that waits for its GPU within
    /// the kernel may never end.
    fn kill(mut self, limit: Duration) -> io::Result<Ending> {
        self.child.kill()?;
        let deadline = Instant::now() + KILL_LIMIT;
        let mut is_gone = self.child.try_wait()?.is_some();
        while !is_gone && Instant::now() < deadline {
            std::thread::sleep(KILL_POLL);
            is_gone = self.child.try_wait()?.is_some();
        }
        let end = if is_gone { "was killed" } else { "cannot be killed" };
        Ok(Ending { code: None, text: format!("it did not end within {} s and {end}", limit.as_secs_f32()) })
    }
}

/// Result of a check; of a panic its message, which is on the standard error too.
fn caught(run: impl Fn() -> Outcome) -> Result<String, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.map_err(|error| with_causes(&*error)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default())
        }
    }
}

/// With the causes that its own words leave out.
fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source()).map(ToString::to_string);
    causes.fold(error.to_string(), |text, cause| if text.contains(&cause) { text } else { format!("{text}: {cause}") })
}

fn tell(out: &mut dyn Write, name: &str, outcome: &Result<String, String>, took: Duration) -> io::Result<()> {
    let result = match outcome {
        Ok(text) => in_a_cell(text),
        Err(fault) => format!("**failed**: {}", in_a_cell(fault)),
    };
    writeln!(out, "| {name} | {result} | {:.2} |", took.as_secs_f64())?;
    out.flush()
}

fn in_a_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
