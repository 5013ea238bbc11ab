//! Training: from a series to checkpoints, metrics and a report, all in the folder of the run.

use crate::distributed::Ranks;
use crate::error::{Error, Result};

mod data_stalls;
mod folds;
mod gpu;
#[cfg(test)]
mod made_up;
mod memory;
mod recordings;
mod scaling;
mod session;
mod tensorboard;
mod time_breakdown;
mod timeline;
mod watch;

use std::path::PathBuf;

use crate::config::SettingSources;
use crate::evaluate::Evaluation;
use crate::evaluate::folds::FoldPlan;
use crate::findings::Findings;
use crate::host::Host;
use session::Begin;

pub use megabatch_trainer::{EpochEvent, Event, RollbackEvent, ShortageEvent, StepEvent, ValidationEvent, Waits};
pub(crate) use memory::record;
pub(crate) use watch::Watch;

/// A run to train.
#[derive(Clone, Debug)]
pub struct TrainRequest {
    /// Where settings come from; of a run that is resumed, those of the run stand below them, and
    /// there is no file.
    pub settings: SettingSources,
    /// Data file; goes over `data.path`.
    pub data: Option<PathBuf>,
    /// Folder of the run; goes over `output.dir`.
    pub out: Option<PathBuf>,
    /// Weights to start from, with PyTorch's names.
    pub init: Option<PathBuf>,
    /// Where the run begins.
    pub start: Start,
    /// Optimizer steps after which it ends, whatever `training.epochs` says.
    pub max_steps: Option<u64>,
    /// `cpu`, `auto`, `cuda` or `cuda:N`.
    pub device: String,
}

/// Where a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At its first step.
    #[default]
    Anew,
    /// At the last checkpoint in its folder, bit for bit as if it had not been interrupted.
    Resume,
}

impl Default for TrainRequest {
    fn default() -> Self {
        TrainRequest {
            settings: SettingSources::default(),
            data: None,
            out: None,
            init: None,
            start: Start::Anew,
            max_steps: None,
            device: "auto".to_owned(),
        }
    }
}

/// Result of training.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Training {
    /// Folder of the run.
    pub run: PathBuf,
    /// Optimizer steps done, of all folds together.
    pub steps: u64,
    /// False for a run that was cancelled, which can be resumed.
    pub is_finished: bool,
    /// The best validation; `None` where nothing was validated, and for a run of several folds.
    pub best_validation: Option<BestValidation>,
    /// Errors of the best weights on samples that the run did not train on; one a fold.
    pub evaluations: Vec<Evaluation>,
    /// All of it, for people and programs.
    pub findings: Findings,
}

/// The validation with the lowest loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestValidation {
    /// Optimizer steps before it.
    pub step: u64,
    /// Its loss.
    pub loss: f64,
}

/// Trains a model, or one a fold; everything that the run leaves is in one folder.
///
/// # Errors
/// [`Kind::Capacity`](crate::Kind::Capacity) where the run does not fit into memory,
/// [`Kind::Numeric`](crate::Kind::Numeric) where it diverged, and those of its settings and data.
pub fn train(request: &TrainRequest, host: &Host<'_>) -> Result<Training> {
    let (folder, config) = match request.start {
        Start::Resume => session::reopen(request)?,
        Start::Anew => session::start(request, host)?,
    };
    let ranks = Ranks::connect(&config, host)?;
    if let Some(folds) = FoldPlan::of(&config)? {
        if ranks.is_some() {
            return Err(Error::usage(
                "a run of several folds is not supported by several processes yet; use --distributed off, or train one fold at a time",
            ));
        }
        return folds::train_folds(request, &folder, config, folds, host);
    }
    let begin = match request.start {
        Start::Resume => Begin::AtTheLastCheckpoint,
        Start::Anew => Begin::Anew,
    };
    let root = folder.root().to_owned();
    Ok(session::train(request, folder, config, begin, host, ranks)?.into_training(&root))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::error::Kind;
    use crate::host::{Cancel, Milestone, Observer, Progress, Silent, Work};
    use crate::synth::{SampleOptions, SampleWindows, make_samples};

    /// Counts what it hears, and wants to end after two steps.
    #[derive(Default)]
    struct Listener {
        steps: AtomicU64,
        planned: AtomicU64,
    }

    impl Observer for Listener {
        fn begin(&self, work: Work<'_>) -> Box<dyn Progress> {
            assert_eq!(work, Work { label: "train", total: 5, unit: "steps" });
            Box::new(Silent)
        }

        fn note(&self, _text: &str) {}

        fn milestone(&self, milestone: &Milestone<'_>) {
            assert!(matches!(milestone, Milestone::Planned(_)));
            self.planned.fetch_add(1, Ordering::Relaxed);
        }

        fn event(&self, event: &Event<'_>) {
            self.steps.fetch_add(u64::from(matches!(event, Event::Step(_))), Ordering::Relaxed);
        }
    }

    impl Cancel for Listener {
        fn watch(&self, patience: Duration) -> Result<()> {
            assert!(patience > Duration::ZERO);
            Ok(())
        }

        fn is_requested(&self) -> bool {
            self.steps.load(Ordering::Relaxed) == 2
        }
    }

    /// A run of five steps in `folder`.
    fn request(folder: &Path, start: Start) -> TrainRequest {
        let data = folder.join("series.h5");
        let count = |count| NonZeroUsize::new(count).unwrap();
        let options = SampleOptions {
            samples: count(200),
            windows: SampleWindows::Named("M1:4".parse().unwrap()),
            features: count(3),
            targets: count(2),
            ..SampleOptions::default()
        };
        if start == Start::Anew {
            make_samples(&data, &options).unwrap();
        }
        TrainRequest {
            settings: SettingSources { file: None, set: vec!["model.hidden=4".to_owned()] },
            data: Some(data),
            out: Some(folder.join("run")),
            start,
            max_steps: Some(5),
            device: "cpu".to_owned(),
            ..TrainRequest::default()
        }
    }

    #[test]
    fn a_host_hears_of_a_run_and_may_end_it() {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::default();
        let host = Host {
            environment: vec![("MEGABATCH_GPU_OPTIMIZATION_BATCH_SIZE".into(), "8".into())],
            cache_folder: None,
            observer: &listener,
            cancel: &listener,
        };
        let stopped = train(&request(folder.path(), Start::Anew), &host).unwrap();
        assert_eq!((stopped.steps, stopped.is_finished), (2, false));
        assert_eq!(stopped.findings.verdict, Some(Kind::Cancelled));
        assert!(stopped.evaluations.is_empty() && stopped.findings.text.contains("--resume goes on"));
        assert_eq!(listener.planned.load(Ordering::Relaxed), 1);
        let config = std::fs::read_to_string(folder.path().join("run/config.yaml")).unwrap();
        assert!(config.contains("batch_size: 8"), "{config}");
        let finished = train(&request(folder.path(), Start::Resume), &Host::silent()).unwrap();
        assert_eq!((finished.steps, finished.is_finished, finished.evaluations.len()), (5, true, 1));
    }
}
