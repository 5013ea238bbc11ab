//! A thread that looks at a GPU now and then and writes down what it sees, so that training never
//! waits for an answer.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{GpuRow, HEADER, Sampler};
use crate::error::{Context as _, Result};

/// When the GPU is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// After so much time, again and again.
    Every(Duration),
    /// When it is asked for.
    Asked,
}

/// The thread, and what it has seen.
pub(crate) struct Recorder {
    ask: Sender<()>,
    step: Arc<AtomicU64>,
    seen: Arc<Mutex<Utilisation>>,
    thread: JoinHandle<Result<()>>,
}

/// Looks since somebody last asked for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Utilisation {
    looks: u32,
    busy_percent_sum: f64,
    /// Why there will be no more.
    pub(crate) fault: Option<String>,
}

impl Utilisation {
    /// Mean share of time in which the GPU was busy; none where it was not looked at, or does not
    /// tell.
    pub(crate) fn busy_share(&self) -> Option<f64> {
        (self.looks > 0).then(|| self.busy_percent_sum / f64::from(self.looks) / 100.0)
    }
}

impl Recorder {
    /// Begins to look and to write, behind the rows that the file at `path` has already.
    ///
    /// # Errors
    /// Errors of the file.
    pub(crate) fn begin(path: &Path, sampler: Box<dyn Sampler>, when: When) -> Result<Self> {
        let fault = || format!("{}: cannot be written", path.display());
        let mut file = OpenOptions::new().append(true).create(true).open(path).with_context(fault)?;
        if file.metadata().with_context(fault)?.len() == 0 {
            writeln!(file, "{HEADER}").with_context(fault)?;
        }
        let (ask, asked) = channel();
        let (step, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Utilisation::default())));
        let work = Work { path: path.to_owned(), file, sampler, step: Arc::clone(&step), seen: Arc::clone(&seen) };
        let thread = std::thread::Builder::new().name("gpu statistics".to_owned());
        let thread = thread.spawn(move || work.go(&asked, when))?;
        Ok(Recorder { ask, step, seen, thread })
    }

    /// Says how many optimizer steps are done, for the rows to come.
    pub(crate) fn at(&self, step: u64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// Asks for a look. A thread that has ended looks no more.
    pub(crate) fn ask(&self) {
        self.ask.send(()).unwrap_or_default();
    }

    /// Utilisation since the last call.
    pub(crate) fn take(&self) -> Utilisation {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True if it goes on.
    #[cfg(test)]
    pub(crate) fn is_looking(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Waits for the looks that were asked for.
    pub(crate) fn finish(self) -> Result<()> {
        drop(self.ask);
        self.thread.join().expect("the thread does not panic")
    }
}

/// State of the thread.
struct Work {
    path: PathBuf,
    file: File,
    sampler: Box<dyn Sampler>,
    step: Arc<AtomicU64>,
    seen: Arc<Mutex<Utilisation>>,
}

impl Work {
    /// Looks until nobody can ask any more, or the GPU does not answer.
    fn go(mut self, asked: &Receiver<()>, when: When) -> Result<()> {
        loop {
            let come = match when {
                When::Asked => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                When::Every(interval) => asked.recv_timeout(interval),
            };
            if come == Err(RecvTimeoutError::Disconnected) {
                return Ok(());
            }
            match self.sampler.sample() {
                Ok(sample) => self.keep(sample)?,
                Err(fault) => {
                    self.seen.lock().unwrap_or_else(PoisonError::into_inner).fault = Some(fault);
                    return Ok(());
                }
            }
        }
    }

    fn keep(&mut self, sample: super::GpuSample) -> Result<()> {
        if let Some(busy_percent) = sample.busy_percent {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.looks += 1;
            seen.busy_percent_sum += busy_percent;
        }
        let time_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let row = GpuRow { time_s, step: self.step.load(Ordering::Relaxed), sample };
        // In one call, so that a row is cut short only where the system itself cuts it.
        let written = self.file.write_all((row.to_line() + "\n").as_bytes());
        written.with_context(|| format!("{}: cannot write", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fixtures::FakeSampler, rows};
    use super::*;

    #[test]
    fn each_look_that_is_asked_for_is_a_row_and_a_later_session_goes_on_below() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu.csv");
        for (session, percents) in [[10.0, 30.0], [50.0, 70.0]].iter().enumerate() {
            let recorder = Recorder::begin(&path, FakeSampler::busy(percents), When::Asked).unwrap();
            recorder.at(7 + session as u64);
            recorder.ask();
            recorder.ask();
            let seen = Arc::clone(&recorder.seen);
            recorder.finish().unwrap();
            assert_eq!(seen.lock().unwrap().busy_share(), Some((percents[0] + percents[1]) / 200.0));
        }
        let told: Vec<_> = rows(&path).unwrap().iter().map(|row| (row.step, row.sample.busy_percent)).collect();
        assert_eq!(told, [(7, Some(10.0)), (7, Some(30.0)), (8, Some(50.0)), (8, Some(70.0))]);
        assert_eq!(std::fs::read_to_string(&path).unwrap().matches("time_s").count(), 1, "one header");
    }

    #[test]
    fn a_gpu_that_goes_ends_the_looks_and_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu.csv");
        let every = When::Every(Duration::from_micros(1));
        let recorder = Recorder::begin(&path, FakeSampler::busy(&[90.0]), every).unwrap();
        let Recorder { ask, thread, seen, .. } = recorder;
        thread.join().unwrap().unwrap();
        drop(ask);
        assert_eq!(seen.lock().unwrap().fault.as_deref(), Some("GPU is lost"));
        assert_eq!(rows(&path).unwrap().len(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let message = Recorder::begin(folder.path(), FakeSampler::busy(&[]), When::Asked).err().unwrap().to_string();
        assert!(message.contains(": cannot be written: "), "{message}");
    }
}
