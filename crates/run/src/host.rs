//! The program around a run: environment, cache folder, progress and cancellation.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use megabatch_bars::BarFunctions;
use megabatch_trainer::Event;

use crate::error::Result;

/// The program around a run. [`Host::silent`] suits a library's user.
pub struct Host<'a> {
    /// Environment variables. Those that begin with `MEGABATCH_` and a section are settings.
    pub environment: Vec<(OsString, OsString)>,
    /// Folder for results that can be computed again, such as the choice of GPU kernels. Nothing is
    /// kept if `None`. [`cache_folder`](crate::cache_folder) gives the usual place.
    pub cache_folder: Option<PathBuf>,
    /// Observer of the work under way.
    pub observer: &'a dyn Observer,
    /// Source of requests to end it.
    pub cancel: &'a dyn Cancel,
    /// Functions of the program that are features of bars, if it has any.
    pub functions: Option<&'a dyn BarFunctions>,
}

impl Host<'static> {
    /// No environment, no cache, no observer and no cancellation.
    pub fn silent() -> Self {
        Host { environment: Vec::new(), cache_folder: None, observer: &Silent, cancel: &Silent, functions: None }
    }
}

impl Host<'_> {
    /// The folder of PTX files that `MEGABATCH_KERNELS` names, in place of the kernels that are
    /// compiled in.
    pub(crate) fn kernel_folder(&self) -> Option<PathBuf> {
        self.variable("MEGABATCH_KERNELS").map(PathBuf::from)
    }

    /// True if `MEGABATCH_ALLOCATE_APART` is set: each buffer of a GPU is an allocation of its own,
    /// for compute-sanitizer.
    pub(crate) fn allocates_apart(&self) -> bool {
        self.variable("MEGABATCH_ALLOCATE_APART").is_some()
    }

    fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Shows `work`. The returned function takes the number of units done; work ends where it
    /// breaks.
    pub(crate) fn follow(&self, work: Work<'_>) -> impl FnMut(usize) -> ControlFlow<()> {
        let mut progress = self.observer.begin(work);
        move |done| {
            progress.at(done as u64, "");
            if self.cancel.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
}

/// Work of a known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work<'a> {
    /// Its name: `train`.
    pub label: &'a str,
    /// Length in units.
    pub total: u64,
    /// Units, in the plural: `steps`.
    pub unit: &'a str,
}

/// Observer of a run.
pub trait Observer: Sync {
    /// Work begins. It has ended when the returned display is dropped.
    fn begin(&self, work: Work<'_>) -> Box<dyn Progress>;

    /// A remark for the user: a sentence without its full stop.
    fn note(&self, text: &str);

    /// A milestone is reached.
    fn milestone(&self, _milestone: &Milestone<'_>) {}

    /// A step, a validation, a checkpoint or anything else of training.
    fn event(&self, _event: &Event<'_>) {}
}

/// Milestone of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Milestone<'a> {
    /// A run is about to train. Each remark is a sentence without its full stop.
    Remarks {
        /// Assumptions that the errors of the run rest on.
        warnings: &'a [String],
        /// Notes on settings and data.
        notes: &'a [String],
    },
    /// A new run is planned: a line for each export and each way of streaming that its model
    /// allows.
    Planned(&'a [String]),
    /// Training of a fold begins, counted from 1.
    Fold {
        /// Its number.
        number: usize,
        /// Number of folds.
        count: usize,
    },
}

/// Display of work under way.
pub trait Progress: Send {
    /// `first` units were done before this work began. They are left out of the speed.
    fn begin_at(&mut self, first: u64);

    /// `done` units are done. `message` is a short status such as the loss.
    fn at(&mut self, done: u64, message: &str);

    /// A line that stays.
    fn note(&self, text: &str);
}

/// Longest time between two checks for cancellation, unless a single step takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A request to end work early, in order.
pub trait Cancel: Sync {
    /// Work begins that checks for a request at least once in `patience`.
    ///
    /// # Errors
    /// An error of the system if requests cannot be received.
    fn watch(&self, _patience: Duration) -> Result<()> {
        Ok(())
    }

    /// True if the work is to end.
    fn is_requested(&self) -> bool;

    /// True if the program of this process is to end with the work, as by a signal.
    fn ends_program(&self) -> bool {
        self.is_requested()
    }
}

/// An observer that passes each remark on once: the models of several folds have the same doubts.
pub(crate) struct EachOnce<'a> {
    observer: &'a dyn Observer,
    told: Mutex<BTreeSet<String>>,
}

impl<'a> EachOnce<'a> {
    pub(crate) fn new(host: &Host<'a>) -> Self {
        EachOnce { observer: host.observer, told: Mutex::default() }
    }

    /// `host` with this observer in place of its own.
    pub(crate) fn host<'s>(&'s self, host: &Host<'s>) -> Host<'s> {
        Host {
            environment: host.environment.clone(),
            cache_folder: host.cache_folder.clone(),
            observer: self,
            cancel: host.cancel,
            functions: host.functions,
        }
    }
}

impl Observer for EachOnce<'_> {
    fn begin(&self, work: Work<'_>) -> Box<dyn Progress> {
        self.observer.begin(work)
    }

    fn note(&self, text: &str) {
        if self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned()) {
            self.observer.note(text);
        }
    }

    fn milestone(&self, milestone: &Milestone<'_>) {
        self.observer.milestone(milestone);
    }

    fn event(&self, event: &Event<'_>) {
        self.observer.event(event);
    }
}

/// No observer and no cancellation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn begin(&self, _work: Work<'_>) -> Box<dyn Progress> {
        Box::new(Silent)
    }

    fn note(&self, _text: &str) {}
}

impl Progress for Silent {
    fn begin_at(&mut self, _first: u64) {}

    fn at(&mut self, _done: u64, _message: &str) {}

    fn note(&self, _text: &str) {}
}

impl Cancel for Silent {
    fn is_requested(&self) -> bool {
        false
    }
}
