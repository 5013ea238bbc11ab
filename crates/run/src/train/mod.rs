//! Training: from a series to checkpoints, metrics and a report, all in the folder of the run.

use crate::distributed::{Ranks, folds_not_distributed};
use crate::error::Result;

mod data_stalls;
#[cfg(test)]
#[path = "tests/fixtures.rs"]
mod fixtures;
mod folds;
mod gpu;
mod memory;
mod recordings;
mod scaling;
mod session;
mod summary;
mod tensorboard;
mod time_breakdown;
mod timeline;
mod watch;

use std::path::PathBuf;

use megabatch_gpu_core::cuda::Gpu;

use crate::adapters::fold_plan::FoldPlan;
use crate::command_report::CommandReport;
use crate::config::SettingSources;
use crate::evaluate::Evaluation;
use crate::host::Host;
use session::Begin;

pub use megabatch_trainer::{
    EpochEvent, Event, RollbackEvent, ShortageEvent, StepEvent, ValidatingEvent, ValidationEvent, Waits,
};

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
    /// `cpu`, `auto`, `cuda` or `cuda:N`; `auto` of a run that is resumed is the device that it was
    /// trained on, where that is here.
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
    /// The first of several processes whose program was told to end, which ended the run of all.
    pub interrupted_rank: Option<usize>,
    /// The best validation; `None` where nothing was validated, and for a run of several folds.
    pub best_validation: Option<BestValidation>,
    /// Errors of the best weights on samples that the run did not train on; one a fold.
    pub evaluations: Vec<Evaluation>,
    /// All of it, for people and programs.
    pub report: CommandReport,
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
    let trained_on = match request.start {
        Start::Resume => folder.trained_on(u64::MAX),
        Start::Anew => None,
    };
    let gpus = || Gpu::count().unwrap_or(0);
    let device = resolve_device(&request.device, trained_on.as_deref(), ranks.is_some(), gpus).to_owned();
    let request = &TrainRequest { device, ..request.clone() };
    if let Some(folds) = FoldPlan::from_config(&config)? {
        if ranks.is_some() {
            return Err(folds_not_distributed());
        }
        return folds::train_folds(request, &folder, config, folds, host);
    }
    let begin = match request.start {
        Start::Resume => Begin::AtTheLastCheckpoint,
        Start::Anew => Begin::Anew,
    };
    let root = folder.root().to_owned();
    Ok(session::train(request, folder, config, begin, host, ranks, &[])?.into_training(&root))
}

/// The name of the device of a session: `device`, or where that is `auto`, the one that the run was
/// `trained_on` before, if it is among the `gpus` of the machine. Of several processes, each has a
/// GPU.
fn resolve_device<'a>(
    device: &'a str,
    trained_on: Option<&'a str>,
    is_distributed: bool,
    gpus: impl Fn() -> u32,
) -> &'a str {
    match (device, trained_on) {
        ("auto", Some("cpu")) => "cpu",
        // `auto` of one process takes a GPU, and of several the CPU.
        ("auto", Some(_)) if is_distributed && gpus() > 0 => "cuda",
        // `auto` takes the first GPU, and leaves it aside where the run does not fit.
        ("auto", Some(gpu)) if !is_distributed && gpu != "cuda:0" && is_here(gpu, gpus()) => gpu,
        _ => device,
    }
}

/// True if a GPU called such as `cuda:1` is one of the `gpus` of the machine.
fn is_here(gpu: &str, gpus: u32) -> bool {
    let ordinal = gpu.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse::<u32>().ok());
    ordinal.is_some_and(|ordinal| ordinal < gpus)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::num::NonZeroUsize;
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use megabatch_chunk_io::remove_mark;

    use super::*;
    use crate::error::Kind;
    use crate::evaluate::{EvaluateRequest, evaluate};
    use crate::host::{Cancel, Milestone, Observer, Progress, Silent, Work};
    use crate::synth::{SampleOptions, SampleWindows, make_samples};

    /// Counts what it hears, and wants to end at some work.
    #[derive(Default)]
    struct Listener {
        /// Steps after which the run is to end, or work that it is to end in as soon as it begins.
        ends_after: u64,
        ends_in: &'static str,
        /// Milestones other than of the plan are heard of.
        any_milestone: bool,
        steps: AtomicU64,
        planned: AtomicU64,
        works: Mutex<Vec<String>>,
        /// Notes, and after how many steps each came.
        notes: Mutex<Vec<(u64, String)>>,
        /// Remarks that are no milestones.
        remarks: Mutex<Vec<String>>,
    }

    impl Listener {
        fn host(&self) -> Host<'_> {
            Host { environment: environment(), cache_folder: None, observer: self, cancel: self, functions: None }
        }
    }

    fn environment() -> Vec<(OsString, OsString)> {
        vec![("MEGABATCH_GPU_OPTIMIZATION_BATCH_SIZE".into(), "8".into())]
    }

    impl Observer for Listener {
        fn begin(&self, work: Work<'_>) -> Box<dyn Progress> {
            self.works.lock().unwrap().push(format!("{} {} {}", work.label, work.total, work.unit));
            Box::new(Silent)
        }

        fn note(&self, text: &str) {
            self.remarks.lock().unwrap().push(text.to_owned());
        }

        fn milestone(&self, milestone: &Milestone<'_>) {
            if let Milestone::Remarks { notes, .. } = milestone {
                let step = self.steps.load(Ordering::Relaxed);
                self.notes.lock().unwrap().extend(notes.iter().map(|note| (step, note.clone())));
                return;
            }
            assert!(self.any_milestone || matches!(milestone, Milestone::Planned(_)));
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
            let works = self.works.lock().unwrap();
            let is_in_work = |work: &String| !self.ends_in.is_empty() && work.starts_with(self.ends_in);
            self.steps.load(Ordering::Relaxed) == self.ends_after || works.iter().any(is_in_work)
        }
    }

    fn write_samples(path: &Path, seed: u64) {
        let count = |count| NonZeroUsize::new(count).unwrap();
        let options = SampleOptions {
            samples: count(200),
            windows: SampleWindows::Named("M1:4".parse().unwrap()),
            features: count(3),
            targets: count(2),
            seed,
            ..SampleOptions::default()
        };
        make_samples(path, &options).unwrap();
    }

    /// A run of five steps in `folder`.
    fn request(folder: &Path, start: Start) -> TrainRequest {
        let data = folder.join("series.h5");
        if start == Start::Anew {
            write_samples(&data, 0);
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

    /// A run of the CPU went on on the GPU, one of the second GPU on the first, and ranks on GPUs
    /// went on on CPUs.
    #[test]
    fn a_resumed_run_stays_on_its_device() {
        for (device, trained_on, is_distributed, gpus, expected) in [
            ("auto", None, false, 2, "auto"),
            ("auto", None, true, 2, "auto"),
            ("auto", Some("cpu"), false, 2, "cpu"),
            ("auto", Some("cpu"), true, 2, "cpu"),
            ("auto", Some("cuda:0"), false, 2, "auto"),
            ("auto", Some("cuda:1"), false, 2, "cuda:1"),
            ("auto", Some("cuda:1"), false, 1, "auto"),
            ("auto", Some("cuda:0"), true, 2, "cuda"),
            ("auto", Some("cuda:1"), true, 2, "cuda"),
            ("auto", Some("cuda:0"), true, 0, "auto"),
            ("cuda:0", Some("cuda:1"), false, 2, "cuda:0"),
            ("cuda:0", Some("cpu"), false, 2, "cuda:0"),
            ("cpu", Some("cuda:0"), true, 2, "cpu"),
        ] {
            let found = resolve_device(device, trained_on, is_distributed, || gpus);
            assert_eq!(found, expected, "{device} {trained_on:?} {is_distributed} {gpus}");
        }
    }

    #[test]
    fn a_host_hears_of_a_run_and_may_end_it() {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener { ends_after: 2, ..Listener::default() };
        let stopped = train(&request(folder.path(), Start::Anew), &listener.host()).unwrap();
        assert_eq!((stopped.steps, stopped.is_finished), (2, false));
        assert_eq!(stopped.report.verdict, Some(Kind::Cancelled));
        assert!(stopped.evaluations.is_empty() && stopped.report.text.contains("--resume goes on"));
        assert_eq!(listener.planned.load(Ordering::Relaxed), 1);
        let config = std::fs::read_to_string(folder.path().join("run/config.yaml")).unwrap();
        assert!(config.contains("batch_size: 8"), "{config}");
        let metrics = std::fs::read_to_string(folder.path().join("run/metrics.jsonl")).unwrap();
        let checkpoint = metrics.lines().find(|line| line.contains("\"event\":\"checkpoint\"")).unwrap();
        assert!(checkpoint.contains("\"device\":\"cpu\""), "{checkpoint}");
        let resumed = Listener { ends_after: u64::MAX, any_milestone: true, ..Listener::default() };
        let finished = train(&request(folder.path(), Start::Resume), &resumed.host()).unwrap();
        assert_eq!((finished.steps, finished.is_finished, finished.evaluations.len()), (5, true, 1));
        let remarks = resumed.remarks.lock().unwrap();
        assert!(remarks.iter().any(|remark| remark == "the run goes on from step 2"), "{remarks:?}");
        assert_eq!(*listener.works.lock().unwrap(), ["train 5 steps"]);
    }

    /// `training.quantile` without its loss was told at the end of a run that had learnt means.
    #[test]
    fn notes_come_before_the_first_step_and_once() {
        for (setting, folds) in [("data.split=[0.7, 0.15, 0.15]", 1), ("data.walk_forward=2", 2)] {
            let folder = tempfile::tempdir().unwrap();
            let mut request = request(folder.path(), Start::Anew);
            request.settings.set.extend([setting.to_owned(), "training.quantile=0.9".to_owned()]);
            let listener = Listener { ends_after: u64::MAX, any_milestone: true, ..Listener::default() };
            assert_eq!(train(&request, &listener.host()).unwrap().evaluations.len(), folds);
            let notes = listener.notes.lock().unwrap();
            let own: Vec<&(u64, String)> = notes.iter().filter(|note| note.1.contains("training.quantile")).collect();
            let [(0, text)] = own.as_slice() else { panic!("{setting}: {notes:?}") };
            assert!(text.starts_with("training.quantile has no effect"), "{text}");
            assert!(!notes.iter().any(|note| note.1.contains("this is the plan")), "{notes:?}");
        }
    }

    /// A run keeps the fingerprint of its file, with a mark of verification or without; the other
    /// kind is of the same numbers.
    #[test]
    fn a_run_goes_on_with_a_file_of_the_same_numbers_that_has_a_mark_or_lost_it() {
        for begins_marked in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let data = folder.path().join("series.h5");
            let begin = request(folder.path(), Start::Anew);
            let (marked, unmarked) = (folder.path().join("marked.h5"), folder.path().join("unmarked.h5"));
            std::fs::copy(&data, &marked).unwrap();
            remove_mark(&data).unwrap();
            std::fs::rename(&data, &unmarked).unwrap();
            let (first, second) = if begins_marked { (&marked, &unmarked) } else { (&unmarked, &marked) };
            std::fs::copy(first, &data).unwrap();
            let listener = Listener { ends_after: 2, ..Listener::default() };
            assert_eq!(train(&begin, &listener.host()).unwrap().steps, 2);
            let resume = || train(&request(folder.path(), Start::Resume), &Host::silent());

            write_samples(&data, 7);
            if !begins_marked {
                remove_mark(&data).unwrap();
            }
            let error = resume().unwrap_err().to_string();
            assert!(error.contains("not the data that the run"), "{error}");

            std::fs::copy(second, &data).unwrap();
            assert_eq!(resume().unwrap().steps, 5);
        }
    }

    /// Every work that a run does after a step shows how far it is, and may be ended. The run that
    /// goes on leaves the files of one that was never interrupted.
    #[test]
    fn a_run_may_be_ended_in_any_work_and_goes_on_to_the_same_files() {
        let whole = tempfile::tempdir().unwrap();
        let listener = Listener { ends_after: u64::MAX, ..Listener::default() };
        train(&request(whole.path(), Start::Anew), &listener.host()).unwrap();
        let works = ["train 5 steps", "validate 25 samples"];
        assert_eq!(listener.works.lock().unwrap()[..2], works);
        let works = ["baselines 140 samples", "evaluate 25 samples", "report 25 samples"];
        assert_eq!(listener.works.lock().unwrap()[2..], works);
        let file = |folder: &Path, name: &str| std::fs::read(folder.join("run").join(name)).unwrap();
        // Before the first step nothing is begun.
        for ends_in in ["check", "fingerprint"] {
            let folder = tempfile::tempdir().unwrap();
            let listener = Listener { ends_after: u64::MAX, ends_in, ..Listener::default() };
            let request = request(folder.path(), Start::Anew);
            remove_mark(folder.path().join("series.h5")).unwrap();
            let error = train(&request, &listener.host()).unwrap_err();
            assert_eq!(error.kind(), Kind::Cancelled, "{error}");
            assert!(!folder.path().join("run/plan.json").exists(), "{ends_in}");
        }
        for ends_in in ["validate", "baselines", "evaluate", "report"] {
            let folder = tempfile::tempdir().unwrap();
            let listener = Listener { ends_after: u64::MAX, ends_in, ..Listener::default() };
            let stopped = train(&request(folder.path(), Start::Anew), &listener.host()).unwrap();
            assert_eq!((stopped.steps, stopped.is_finished), (5, false), "{ends_in}");
            assert_eq!(stopped.report.verdict, Some(Kind::Cancelled));
            assert!(stopped.report.text.contains("--resume goes on"), "{}", stopped.report.text);
            let finished = train(&request(folder.path(), Start::Resume), &Host::silent()).unwrap();
            assert_eq!((finished.steps, finished.is_finished), (5, true), "{ends_in}");
            for name in ["evaluation.json", "checkpoints/step-00000005/model.safetensors"] {
                assert!(file(folder.path(), name) == file(whole.path(), name), "{ends_in}: {name}");
            }
            assert!(folder.path().join("run/report.html").is_file());
        }
    }

    /// Errors at the end are those of the whole test unless it is large or told otherwise: those of
    /// a part are called estimates wherever they are shown. Baselines are fitted on all samples.
    #[test]
    fn errors_at_the_end_are_called_estimates_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let mut request = request(folder.path(), Start::Anew);
        request.settings.set.push("training.validation_samples=10".to_owned());
        let all = TrainRequest { out: Some(folder.path().join("all")), ..request.clone() };
        let all = train(&all, &Host::silent()).unwrap();
        assert_eq!((all.evaluations[0].samples, all.evaluations[0].drawn_from), (25, None));
        assert!(!all.report.text.contains("estimate") && !all.report.text.contains('±'), "{}", all.report.text);
        request.settings.set.push("training.test_samples=10".to_owned());
        let listener = Listener { ends_after: u64::MAX, ..Listener::default() };
        let trained = train(&request, &listener.host()).unwrap();
        let works = ["validate 10 samples", "baselines 140 samples", "evaluate 10 samples", "report 10 samples"];
        assert_eq!(listener.works.lock().unwrap()[1..], works);
        let [evaluation] = trained.evaluations.as_slice() else { panic!("{trained:?}") };
        assert_eq!((evaluation.samples, evaluation.drawn_from), (10, Some(25)));
        let head = "10 samples (test, an estimate from 10 of 25 samples, evenly spaced), checkpoint of step 5";
        assert!(evaluation.to_text().starts_with(head), "{}", evaluation.to_text());
        let errors = evaluation.standard_errors.as_ref().unwrap();
        assert!(errors.rmse > 0.0 && errors.rmse_ratio.keys().eq(["linear", "mean", "no_change"].iter()), "{errors:?}");
        let verdict = evaluation.verdict();
        let end = "An estimate from 10 of 25 samples; ± is one standard error.";
        assert!(verdict.starts_with("RMSE ") && verdict.contains(" ± ") && verdict.ends_with(end), "{verdict}");
        assert!(trained.report.text.contains(&verdict));
        let page = std::fs::read_to_string(folder.path().join("run/report.html")).unwrap();
        assert!(page.contains(&verdict) && page.contains("<small>estimate from 10 of 25 ± "));
        let plan = std::fs::read_to_string(folder.path().join("run/plan.json")).unwrap();
        assert!(plan.contains("\"validation_samples\": 10") && plan.contains("\"test_samples\": 10"), "{plan}");
        let run = folder.path().join("run");
        let eval = |samples| {
            let samples_max = NonZeroUsize::new(samples);
            let request = EvaluateRequest { samples_max, device: "cpu".to_owned(), ..EvaluateRequest::new(&run) };
            evaluate(&request, &Host::silent()).unwrap().evaluations.remove(0)
        };
        let json = |evaluation: &Evaluation| serde_json::to_value(evaluation).unwrap();
        assert_eq!(json(&eval(10)), json(evaluation));
        let all = eval(0);
        assert_eq!((all.samples, all.drawn_from), (25, None));
        assert_ne!(json(&all)["rmse"], json(evaluation)["rmse"]);
    }
}
