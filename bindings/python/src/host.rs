//! The Python program around a run: its progress display, its callback, its signals.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use megabatch_run::train::Event;
use megabatch_run::{Cancel, Host, Observer, Progress, Work, cache_folder};
use pyo3::prelude::*;

use crate::convert::serialized;

/// Interval of looks for a signal, and of updates of a display: Python's lock is taken for both.
const INTERVAL: Duration = Duration::from_millis(50);

/// Callbacks of Python, and their answers.
pub(crate) struct PythonHost {
    /// Called with each event of training; it wants the run to end if it returns true.
    on_event: Option<Py<PyAny>>,
    /// Display with the methods `begin`, `at`, `note` and `end`.
    display: Option<Py<PyAny>>,
    wants_end: AtomicBool,
    raised: Mutex<Raised>,
}

struct Raised {
    /// The first exception of a callback or a signal.
    error: Option<PyErr>,
    looked: Instant,
}

impl PythonHost {
    /// A host whose callbacks are `on_event` and `display`.
    pub(crate) fn new(on_event: Option<Py<PyAny>>, display: Option<Py<PyAny>>) -> Self {
        let raised = Mutex::new(Raised { error: None, looked: Instant::now() });
        PythonHost { on_event, display, wants_end: AtomicBool::new(false), raised }
    }

    /// Runs `work` without Python's lock. An exception of a callback or a signal goes over its
    /// outcome.
    pub(crate) fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Host<'_>) -> T + Send) -> PyResult<T> {
        let outcome = py.detach(|| {
            let host = Host {
                environment: std::env::vars_os().collect(),
                cache_folder: cache_folder(|name| std::env::var_os(name)),
                observer: self,
                cancel: self,
            };
            work(&host)
        });
        match self.lock().error.take() {
            Some(error) => Err(error),
            None => Ok(outcome),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Raised> {
        self.raised.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Calls Python and keeps its first exception, which ends the work.
    fn call(&self, call: impl FnOnce(Python<'_>) -> PyResult<()>) {
        if let Err(error) = Python::attach(call) {
            self.wants_end.store(true, Relaxed);
            self.lock().error.get_or_insert(error);
        }
    }
}

impl Observer for PythonHost {
    fn begin(&self, work: Work<'_>) -> Box<dyn Progress> {
        let display = self.display.as_ref().and_then(|display| {
            let mut begun = None;
            self.call(|py| {
                begun = Some(display.call_method1(py, "begin", (work.label, work.total, work.unit))?);
                Ok(())
            });
            begun
        });
        Box::new(PythonProgress { display, shown: None })
    }

    fn note(&self, text: &str) {
        if let Some(display) = &self.display {
            self.call(|py| display.call_method1(py, "note", (text,)).map(drop));
        }
    }

    fn event(&self, event: &Event<'_>) {
        let Some(on_event) = &self.on_event else { return };
        self.call(|py| {
            let wants_end = on_event.call1(py, (serialized(py, event)?,))?.is_truthy(py)?;
            self.wants_end.fetch_or(wants_end, Relaxed);
            Ok(())
        });
    }
}

impl Cancel for PythonHost {
    fn is_requested(&self) -> bool {
        let mut raised = self.lock();
        if raised.looked.elapsed() >= INTERVAL {
            raised.looked = Instant::now();
            drop(raised);
            self.call(|py| {
                py.check_signals()?;
                Ok(())
            });
        }
        self.wants_end.load(Relaxed)
    }
}

/// Progress on a display of Python's.
struct PythonProgress {
    display: Option<Py<PyAny>>,
    shown: Option<Instant>,
}

impl PythonProgress {
    /// A display that fails is none: the work goes on.
    fn show(&self, show: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<()>) {
        if let Some(display) = &self.display {
            Python::attach(|py| {
                if let Err(error) = show(display.bind(py)) {
                    error.write_unraisable(py, Some(display.bind(py)));
                }
            });
        }
    }
}

impl Progress for PythonProgress {
    fn begin_at(&mut self, first: u64) {
        self.show(|display| display.call_method1("begin_at", (first,)).map(drop));
    }

    fn at(&mut self, done: u64, message: &str) {
        if self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL) {
            self.shown = Some(Instant::now());
            self.show(|display| display.call_method1("at", (done, message)).map(drop));
        }
    }

    fn note(&self, text: &str) {
        self.show(|display| display.call_method1("note", (text,)).map(drop));
    }
}

impl Drop for PythonProgress {
    fn drop(&mut self) {
        self.show(|display| display.call_method0("end").map(drop));
    }
}
