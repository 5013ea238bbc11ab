//! Predictions of bars as they come. `run::predict::follow` reads lines until there are no more; it
//! runs in a thread of its own, which says when it wants the next line.

use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use megabatch_run::ingest::{BarFunctions, FormatName};
use megabatch_run::predict::{BarSource, FollowRequest, History, LineForm, LineOutput, follow};
use megabatch_run::{CheckpointChoice, CommandReport, Error, Host, Instruments, Observer, Progress, Silent, Work};
use pyo3::prelude::*;

use crate::convert::Named;
use crate::failure::{OrRaise as _, exception};
use crate::functions::{FunctionsCall, PythonFunctions};
use crate::host::log_note;
use crate::process;
use crate::training::{Told, told};

/// Message of the thread.
enum Said {
    /// All lines so far are done.
    Ready,
    /// A prediction, a JSON object.
    Forecast(String),
    /// A remark.
    Note(String),
    /// A row that cannot be used.
    Refused(Error),
    /// The end.
    Done(megabatch_run::Result<CommandReport>),
}

/// A model that follows bars.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct Follower {
    state: Mutex<State>,
}

struct State {
    /// `None` once there are no more lines.
    lines: Option<Sender<Vec<u8>>>,
    said: Receiver<Said>,
    report: Option<CommandReport>,
}

/// Run to follow with.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct FollowCall {
    run: PathBuf,
    data: Option<PathBuf>,
    last_checkpoint: bool,
    other_instruments: bool,
    cold: bool,
    history: Vec<PathBuf>,
    symbol: Option<String>,
    zone: Option<String>,
    functions: Option<Named<FunctionsCall>>,
}

impl FollowCall {
    fn request(self) -> megabatch_run::Result<FollowRequest> {
        Ok(FollowRequest {
            data: self.data,
            checkpoint: if self.last_checkpoint { CheckpointChoice::Last } else { CheckpointChoice::Best },
            instruments: if self.other_instruments { Instruments::Allowed } else { Instruments::Doubted },
            history: match (self.cold, self.history) {
                (true, _) => History::Cold,
                (false, files) if files.is_empty() => History::OfTheData,
                (false, files) => History::Files(files),
            },
            symbol: self.symbol,
            format: Some(FormatName::Iso),
            zone: self.zone.map(|zone| zone.parse()).transpose()?,
            ..FollowRequest::new(self.run)
        })
    }
}

/// Answer to some lines.
#[derive(Default)]
struct Answer {
    /// Predictions, JSON objects.
    forecasts: Vec<String>,
    notes: Vec<String>,
    /// The first row that cannot be used, or the end of the stream by an error, and the number of
    /// predictions before it.
    refused: Option<(usize, Error)>,
}

/// Predictions, remarks, and the first exception with the number of predictions before it.
type Answered<'py> = (Vec<String>, Vec<String>, Option<(usize, Bound<'py, PyAny>)>);

impl Answer {
    fn into_python(self, py: Python<'_>) -> Answered<'_> {
        let refused = self.refused.map(|(place, error)| (place, exception(py, &error).into_value(py).into_bound(py)));
        (self.forecasts, self.notes, refused.map(|(place, error)| (place, error.into_any())))
    }
}

#[pymethods]
impl Follower {
    /// Opens the model and replays the history.
    #[new]
    fn new(py: Python<'_>, call: Named<FollowCall>) -> PyResult<Self> {
        process::check(py)?;
        let Named(mut call) = call;
        let functions = call.functions.take().map(PythonFunctions::new);
        let request = call.request().or_raise(py)?;
        let ((lines, from), (to, said)) = (channel(), channel());
        let work = move || {
            let notes = Notes(Mutex::new(to.clone()));
            let functions = functions.as_ref().map(|functions| functions as &dyn BarFunctions);
            let host = Host { observer: &notes, functions, ..Host::silent() };
            let reader = Lines { from, said: to.clone(), buffer: Vec::new(), at: 0 };
            let refusals = to.clone();
            let source = BarSource::Lines {
                name: "bars",
                lines: Box::new(reader),
                // Nobody listens to a follower that was dropped.
                refused: Some(Box::new(move |error| drop(refusals.send(Said::Refused(error))))),
            };
            let output = LineOutput::Writer {
                writer: Box::new(Forecasts { said: to.clone(), line: Vec::new() }),
                form: LineForm::Json,
            };
            let outcome = follow(&request, source, output, &host);
            // Nobody listens to a follower that was dropped.
            let _ = to.send(Said::Done(outcome));
        };
        let spawned = thread::Builder::new().name("follow".to_owned()).spawn(work);
        spawned.map_err(|error| exception(py, &Error::from(error)))?;
        let follower = Follower { state: Mutex::new(State { lines: Some(lines), said, report: None }) };
        let opened = py.detach(|| follower.lock().answer()).or_raise(py)?;
        opened.notes.iter().try_for_each(|note| log_note(py, note))?;
        Ok(follower)
    }

    /// Takes lines of bars, and gives the predictions that they make.
    fn push<'py>(&self, py: Python<'py>, lines: Vec<u8>) -> PyResult<Answered<'py>> {
        process::check(py)?;
        let pushed = py.detach(|| {
            let mut state = self.lock();
            let Some(to) = &state.lines else { return Err(closed()) };
            to.send(lines).map_err(|_| closed())?;
            state.answer()
        });
        Ok(pushed.or_raise(py)?.into_python(py))
    }

    /// Ends the bars: the totals.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Told<'py>> {
        process::check(py)?;
        let closed = py.detach(|| {
            let mut state = self.lock();
            state.lines = None;
            if state.report.is_none() {
                state.answer()?;
            }
            Ok(state.report.clone().expect("a stream that has ended has totals"))
        });
        told(py, &closed.or_raise(py)?)
    }
}

impl Follower {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Error {
    Error::usage("this stream has ended; open another one with `follow`")
}

impl State {
    /// Answers of the thread until it wants more lines.
    fn answer(&mut self) -> megabatch_run::Result<Answer> {
        let mut answer = Answer::default();
        loop {
            match self.said.recv() {
                Ok(Said::Ready) => return Ok(answer),
                Ok(Said::Forecast(line)) => answer.forecasts.push(line),
                Ok(Said::Note(text)) => answer.notes.push(text),
                Ok(Said::Refused(error)) => {
                    answer.refused.get_or_insert((answer.forecasts.len(), error));
                }
                Ok(Said::Done(outcome)) => {
                    self.lines = None;
                    match outcome {
                        Ok(report) => self.report = Some(report),
                        Err(error) if answer.forecasts.is_empty() => return Err(error),
                        // Predictions before it come first.
                        Err(error) => {
                            answer.refused.get_or_insert((answer.forecasts.len(), error));
                        }
                    }
                    return Ok(answer);
                }
                Err(_) => return Err(closed()),
            }
        }
    }
}

/// Lines that Python pushes.
struct Lines {
    from: Receiver<Vec<u8>>,
    said: Sender<Said>,
    buffer: Vec<u8>,
    at: usize,
}

impl BufRead for Lines {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.buffer.len() {
            // Nobody listens to a follower that was dropped: it gets no more lines either.
            let _ = self.said.send(Said::Ready);
            self.buffer = self.from.recv().unwrap_or_default();
            self.at = 0;
        }
        Ok(&self.buffer[self.at..])
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

impl Read for Lines {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

/// Predictions as lines.
struct Forecasts {
    said: Sender<Said>,
    line: Vec<u8>,
}

impl Write for Forecasts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        self.said.send(Said::Forecast(line)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Remarks of the work.
struct Notes(Mutex<Sender<Said>>);

impl Observer for Notes {
    fn begin(&self, _work: Work<'_>) -> Box<dyn Progress> {
        Box::new(Silent)
    }

    fn note(&self, text: &str) {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = said.send(Said::Note(text.to_owned()));
    }
}
