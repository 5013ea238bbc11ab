//! The Python program around a run: its progress display, its callback, its signals.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use megabatch_run::ingest::BarFunctions;
use megabatch_run::train::Event;
use megabatch_run::{Cancel, Host, Milestone, Observer, Progress, Work, cache_folder};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::convert::serialized;
use crate::failure::exception;
use crate::functions::PythonFunctions;

/// Interval of checks for a signal, and of display updates. Both take Python's lock.
const INTERVAL: Duration = Duration::from_millis(50);

/// Callbacks of Python, and their answers.
pub(crate) struct PythonHost {
    /// Called with each event of training. The run ends if it returns true.
    on_event: Option<Py<PyAny>>,
    /// Display with the methods `begin`, `begin_at`, `at`, `note` and `end`.
    display: Option<Py<PyAny>>,
    end: Arc<EndRequest>,
    /// Time of the last check for a signal.
    looked: Mutex<Instant>,
    functions: Option<PythonFunctions>,
}

impl PythonHost {
    /// A host whose callbacks are `on_event` and `display`.
    pub(crate) fn new(on_event: Option<Py<PyAny>>, display: Option<Py<PyAny>>) -> Self {
        PythonHost { on_event, display, end: Arc::default(), looked: Mutex::new(Instant::now()), functions: None }
    }

    /// The host with functions of bars.
    pub(crate) fn with_functions(self, functions: Option<PythonFunctions>) -> Self {
        PythonHost { functions, ..self }
    }

    /// Runs `work` on bars without Python's lock, in a thread of its own, so that this one sees
    /// signals meanwhile. Where a function of bars failed, its exception is raised.
    pub(crate) fn run_on_bars<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Host<'_>) -> megabatch_run::Result<T> + Send,
    ) -> PyResult<T> {
        let aside = |host: &Host<'_>| {
            let (ends, ended) = mpsc::channel::<()>();
            thread::scope(|scope| {
                let working = scope.spawn(move || {
                    // Dropped when the work ends, also by a panic.
                    let _ends = ends;
                    work(host)
                });
                while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    self.hear_signals();
                }
                working.join().unwrap_or_else(|panic| resume_unwind(panic))
            })
        };
        self.run(py, aside)?.map_err(|error| {
            let is_failure = error.fields().iter().any(|(name, _)| *name == "failed");
            let raised = self.functions.as_ref().and_then(PythonFunctions::take_raised);
            raised.filter(|_| is_failure).unwrap_or_else(|| exception(py, &error))
        })
    }

    /// Handles signals that came, in Python's main thread. What a handler raises ends the work.
    fn hear_signals(&self) {
        self.end.call(|py| {
            py.check_signals()?;
            Ok(())
        });
    }

    /// Runs `work` without Python's lock. An exception of a callback or a signal goes over its
    /// outcome.
    pub(crate) fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Host<'_>) -> T + Send) -> PyResult<T> {
        let py_prefix = prefix(py);
        let outcome = py.detach(|| {
            let host = Host {
                environment: environment(py_prefix.as_deref()),
                cache_folder: cache_folder(|name| std::env::var_os(name)),
                observer: self,
                cancel: self,
                functions: self.functions.as_ref().map(|functions| functions as &dyn BarFunctions),
            };
            work(&host)
        });
        match locked(&self.end.raised).take() {
            Some(raised) => Err(raised.error),
            None => Ok(outcome),
        }
    }
}

/// The folder of the interpreter's environment, in which wheels bring libraries.
fn prefix(py: Python<'_>) -> Option<String> {
    py.import("sys").and_then(|sys| sys.getattr("prefix")).and_then(|prefix| prefix.extract()).ok()
}

/// Variables of this process, of which the active environment is the interpreter's own.
fn environment(prefix: Option<&str>) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<_> =
        std::env::vars_os().filter(|(name, _)| name != "VIRTUAL_ENV" || prefix.is_none()).collect();
    variables.extend(prefix.map(|prefix| ("VIRTUAL_ENV".into(), prefix.into())));
    variables
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request of Python to end the work, and its exception.
#[derive(Default)]
struct EndRequest {
    is_made: AtomicBool,
    raised: Mutex<Option<Raised>>,
}

struct Raised {
    error: PyErr,
    is_interrupt: bool,
}

/// True for `KeyboardInterrupt`, `SystemExit` and others that are no `Exception`. They end the
/// whole program.
fn is_interrupt(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
}

impl EndRequest {
    /// Ends the work with `error`. The first of several is raised, and an interrupt before any
    /// other.
    fn raise(&self, py: Python<'_>, error: PyErr) {
        self.is_made.store(true, Relaxed);
        let raised = Raised { is_interrupt: is_interrupt(py, &error), error };
        let mut kept = locked(&self.raised);
        let dropped = match &*kept {
            Some(first) if first.is_interrupt || !raised.is_interrupt => Some(raised),
            _ => kept.replace(raised),
        };
        // Destructors of an exception are Python's, and may wait for its lock.
        drop(kept);
        drop(dropped);
    }

    /// Calls Python; its exception ends the work.
    fn call(&self, call: impl FnOnce(Python<'_>) -> PyResult<()>) {
        Python::attach(|py| call(py).unwrap_or_else(|error| self.raise(py, error)));
    }

    /// Calls `display`; false if it failed. The work goes on without a display that failed. An
    /// interrupt in it ends the work.
    fn show(&self, display: &Py<PyAny>, show: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<()>) -> bool {
        Python::attach(|py| match show(display.bind(py)) {
            Ok(()) => true,
            Err(error) if is_interrupt(py, &error) => {
                self.raise(py, error);
                true
            }
            Err(error) => {
                report(py, error, display);
                // A signal that came meanwhile waits for the next Python code. That may be a
                // finalizer, in which its exception is lost.
                py.check_signals().unwrap_or_else(|interrupt| self.raise(py, interrupt));
                false
            }
        })
    }
}

/// Sends a note to the log `megabatch`.
pub(crate) fn log_note(py: Python<'_>, text: &str) -> PyResult<()> {
    py.import("megabatch._display")?.call_method1("log_note", (text,)).map(drop)
}

/// Hands an exception of `display` to `sys.unraisablehook`. What is raised in that hook is lost,
/// so it has a thread of its own: Python handles signals in the main thread alone.
fn report(py: Python<'_>, error: PyErr, display: &Py<PyAny>) {
    let write = || Python::attach(|py| error.write_unraisable(py, Some(display.bind(py))));
    py.detach(|| thread::scope(|scope| drop(scope.spawn(write))));
}

impl Observer for PythonHost {
    fn begin(&self, work: Work<'_>) -> Box<dyn Progress> {
        let mut begun = None;
        if let Some(display) = &self.display {
            self.end.show(display, |display| {
                begun = Some(display.call_method1("begin", (work.label, work.total, work.unit))?.unbind());
                Ok(())
            });
        }
        let end = Arc::clone(&self.end);
        Box::new(PythonProgress { display: Cell::new(begun), end, shown: None, behind: RefCell::default() })
    }

    fn note(&self, text: &str) {
        match &self.display {
            Some(display) => drop(self.end.show(display, |display| display.call_method1("note", (text,)).map(drop))),
            None => self.end.call(|py| log_note(py, text)),
        }
    }

    fn milestone(&self, milestone: &Milestone<'_>) {
        if let Milestone::Remarks { warnings, notes } = milestone {
            warnings.iter().for_each(|warning| self.note(&format!("warning: {warning}")));
            notes.iter().for_each(|note| self.note(&format!("note: {note}")));
        }
    }

    fn event(&self, event: &Event<'_>) {
        let Some(on_event) = &self.on_event else { return };
        self.end.call(|py| {
            let wants_end = on_event.call1(py, (serialized(py, event)?,))?.is_truthy(py)?;
            self.end.is_made.fetch_or(wants_end, Relaxed);
            Ok(())
        });
    }
}

impl Cancel for PythonHost {
    fn is_requested(&self) -> bool {
        let mut looked = locked(&self.looked);
        if looked.elapsed() >= INTERVAL {
            *looked = Instant::now();
            drop(looked);
            self.hear_signals();
        }
        self.end.is_made.load(Relaxed)
    }

    fn ends_program(&self) -> bool {
        locked(&self.end.raised).as_ref().is_some_and(|raised| raised.is_interrupt)
    }
}

/// Progress on a display of Python's.
struct PythonProgress {
    /// `None` once it has failed.
    display: Cell<Option<Py<PyAny>>>,
    end: Arc<EndRequest>,
    shown: Option<Instant>,
    /// The last state, if the display has an older one.
    behind: RefCell<Option<(u64, String)>>,
}

impl PythonProgress {
    fn show(&self, show: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<()>) {
        let display = self.display.take();
        self.display.set(display.filter(|display| self.end.show(display, show)));
    }
}

impl Progress for PythonProgress {
    fn begin_at(&mut self, first: u64) {
        self.show(|display| display.call_method1("begin_at", (first,)).map(drop));
    }

    fn at(&mut self, done: u64, message: &str) {
        if self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL) {
            self.shown = Some(Instant::now());
            self.behind.take();
            self.show(|display| display.call_method1("at", (done, message)).map(drop));
        } else {
            *self.behind.get_mut() = Some((done, message.to_owned()));
        }
    }

    fn note(&self, text: &str) {
        // A line tells the state beside the note.
        if let Some(state) = self.behind.take() {
            self.show(|display| display.call_method1("at", state).map(drop));
        }
        self.show(|display| display.call_method1("note", (text,)).map(drop));
    }
}

impl Drop for PythonProgress {
    fn drop(&mut self) {
        self.show(|display| display.call_method0("end").map(drop));
    }
}
