//! A training session: from a series to checkpoints, metrics and a report.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use megabatch_atomic_file as atomic_file;
use megabatch_nn::loss::Loss;
use megabatch_trainer as trainer;
use megabatch_trainer::{
    Baselines, End, Event, Outcome, Peers, Resumed, SampleRanges, Selection, Trainer, uninformed_loss,
};

use super::memory::{explain_shortage, record, record_trace};
use super::summary::{Summary, Times};
use super::watch::{STEP_PATIENCE, Watch, Watched};
use super::{BestValidation, TrainRequest, Training};
use crate::adapters::data::Data;
use crate::command_report::CommandReport;
use crate::config::{self, Config};
use crate::distributed::{Ranks, finish, idle_gpus, interrupted_rank, settle};
use crate::error::{Context as _, Error, Kind, Result, with_keys};
use crate::evaluate::attention::Attention;
use crate::evaluate::forecasts::Forecasts;
use crate::evaluate::{Evaluation, Part};
use crate::host::{Host, Milestone, Work};
use crate::import::supported_shapes;
use crate::plan::{Plan, SplitPlan, advise_smaller_model};
use crate::report::{DataFacts, DayGraph, Machine, MemoryFacts, Peaks, Report, SplitFacts};
use crate::run_folder::{MetricsLog, ResumePoint, RunFolder, RunLock, SessionEnd};
use crate::setup::settings::loss_name;
use crate::setup::splits::require_known_targets;
use crate::setup::{Intent, Request, TrainingSetup, data_path, make_graph_absolute};
use crate::text::number::significant;
use crate::trained::{CheckpointChoice, changed_files, named, own_data_path, weights_file};
use crate::unit_names::UnitNames;

/// Result of a session.
pub(super) struct Trained {
    pub(super) outcome: Outcome,
    pub(super) split: SplitPlan,
    pub(super) evaluation: Option<Evaluation>,
    /// As in [`Training`].
    interrupted_rank: Option<usize>,
    report: CommandReport,
}

impl Trained {
    /// The result of training one model in `folder`.
    pub(super) fn into_training(self, folder: &Path) -> Training {
        let Outcome { steps, end, best, .. } = self.outcome;
        Training {
            run: folder.to_owned(),
            steps,
            is_finished: end != End::Stopped,
            interrupted_rank: self.interrupted_rank,
            best_validation: best.map(|best| BestValidation { step: best.step, loss: best.loss }),
            evaluations: self.evaluation.into_iter().collect(),
            report: self.report,
        }
    }
}

/// Trains one model, alone or as one of `ranks`.
pub(super) fn train(
    request: &TrainRequest,
    folder: RunFolder,
    config: Config,
    begin: Begin,
    host: &Host<'_>,
    mut ranks: Option<Ranks>,
    told: &[String],
) -> Result<Trained> {
    let prepared = prepare(request, folder, config, begin, host, ranks.as_ref(), told);
    let (session, mut trainer) = match &mut ranks {
        Some(ranks) => ranks.settle(prepared).and_then(|(session, trainer)| {
            ranks.require_same(&session.facts())?;
            let warning = ranks.compare_gpus(session.gpu_model())?;
            warning.iter().filter(|_| ranks.peers.rank() == 0).for_each(|warning| host.observer.note(warning));
            Ok((session, trainer))
        }),
        None => prepared,
    }
    .or_else(|error| end_with(error, ranks.take().map(|ranks| ranks.peers), host))?;
    if let Some(ranks) = ranks {
        trainer.join(ranks.peers, ranks.idle)?;
    }
    session.train(trainer, begin, host).map_err(|error| {
        let error = advise_smaller_model(&session.setup, error);
        let error = explain_shortage(&session.folder, &session.setup.device, error);
        session.folder.advise(error)
    })
}

/// Ends the exchange of `peers` unless one of them is lost; returns `error`.
fn end_with<T>(error: Error, peers: Option<Box<dyn Peers>>, host: &Host<'_>) -> Result<T> {
    let is_lost = error.find().is_some_and(|error| matches!(error, trainer::Error::Peer(_)));
    peers.into_iter().filter(|_| !is_lost).for_each(|peers| finish(peers, host));
    Err(error)
}

/// The work of one process before the first step.
fn prepare(
    request: &TrainRequest,
    folder: RunFolder,
    config: Config,
    begin: Begin,
    host: &Host<'_>,
    ranks: Option<&Ranks>,
    told: &[String],
) -> Result<(Session, Trainer)> {
    let device = ranks.map_or_else(|| request.device.clone(), |ranks| ranks.share.device(&request.device));
    if begin == Begin::AtTheLastCheckpoint {
        own_data_path(&folder, &config, request.data.as_deref())?;
    }
    let takes_all_threads = config.get(&config::training::THREADS).is_none();
    let mut setup = TrainingSetup::open(Request {
        data: request.data.as_deref(),
        device: &device,
        max_steps: request.max_steps,
        processes: ranks.map_or(1, |ranks| ranks.share.processes),
        gpu_processes: ranks.map_or(1, |ranks| ranks.share.gpu_processes(&request.device)),
        ranks: ranks.map_or(1, |ranks| ranks.peers.world()),
        ..Request::new(config, Intent::Run, host)
    })?;
    if let Some(ranks) = ranks {
        setup.gpu_passed_over = idle_gpus(&request.device);
        if takes_all_threads {
            setup.training.threads = ranks.share.threads;
        }
    }
    let mut plan = Plan::new(&setup)?;
    plan.init = match (&request.init, begin) {
        (Some(weights), _) => Some(std::path::absolute(weights)?),
        (None, Begin::Anew) => None,
        (None, Begin::AtTheLastCheckpoint) => folder.saved_plan()["init"].as_str().map(PathBuf::from),
    };
    plan.require_fit(&setup)?;
    if begin == Begin::Anew {
        setup.require_settings_of_its_data()?;
    }
    require_known_targets(&setup, &setup.split)?;
    if begin == Begin::AtTheLastCheckpoint {
        require_same_data(&folder, &setup.data, &plan, host)?;
    }
    let batch_size = setup.training.batch_size;
    // Chunks of a GPU take the place of those that a loader reads for training; a validation reads
    // its own.
    let chunk_samples = match setup.training.chunk_windows {
        Some(_) => 2 * batch_size,
        None => plan.data.chunks.samples_per_chunk,
    };
    setup.data.load_in_chunks_of(chunk_samples, batch_size, setup.gpu.as_ref());
    record(&setup);
    let mut trainer =
        setup.trainer(plan.shape.clone()).map_err(|error| explain_shortage(&folder, &setup.device, error.into()))?;
    if let Some(weights) = &request.init {
        supported_shapes(weights)?;
        trainer.load_weights(weights)?;
    }
    Ok((Session { setup, plan, folder, told: told.to_vec() }, trainer))
}

/// Requires the data and split of the run. A checkpoint has a position in the order of samples, and
/// a validation loss: both need the same samples.
fn require_same_data(folder: &RunFolder, data: &Data, plan: &Plan, host: &Host<'_>) -> Result<()> {
    let saved = folder.saved_plan();
    let changed = changed_files(folder, data, host)?;
    if !changed.is_empty() {
        return Err(Error::data(format!(
            "{}: not the data that the run in {} was trained on; resume on those, or start a new run with --init",
            named(&changed),
            folder.root().display()
        )));
    }
    if !saved["split"].is_null() && saved["split"] != serde_json::to_value(&plan.split)? {
        return Err(Error::usage(format!(
            "data.split or data.purge: the run in {} began with other samples to train on and to validate; resume with its settings",
            folder.root().display()
        )));
    }
    Ok(())
}

/// The folder and the configuration of a new run, which leaves no trace until its data and its plan
/// are found good.
pub(super) fn start(request: &TrainRequest, host: &Host<'_>) -> Result<(RunFolder, Config)> {
    let mut config = request.settings.load(&host.environment)?;
    let out = request.out.clone().or_else(|| config.get(&config::output::DIR));
    let out = out.ok_or_else(|| Error::usage("no folder for the run: give --out FOLDER, or output.dir"))?;
    // Absolute, so that `eval --run` finds the data from any folder.
    let data = data_path(&config, request.data.as_deref())?;
    config.set_path(&config::data::PATH, &std::path::absolute(data)?)?;
    make_graph_absolute(&mut config)?;
    config.set_path(&config::output::DIR, &out)?;
    if request.init.is_some() {
        // The weights are for the targets as they are.
        config.set_word(&config::training::TARGET_SCALING, "none");
    }
    Ok((RunFolder::new(&out)?, config))
}

/// The folder and the configuration of a run that goes on.
pub(super) fn reopen(request: &TrainRequest) -> Result<(RunFolder, Config)> {
    let out =
        request.out.as_deref().ok_or_else(|| Error::usage("--resume needs the folder of the run: --out FOLDER"))?;
    let folder = RunFolder::open(out)?;
    let mut config = folder.config(&request.settings.set)?;
    // By how many processes a run was trained before is no matter of it.
    if !request.settings.set.iter().any(|set| set.trim_start().starts_with("distributed.backend")) {
        config.set_word(&config::distributed::BACKEND, "auto");
    }
    if let Some(data) = &request.data {
        config.set_path(&config::data::PATH, &std::path::absolute(data)?)?;
    }
    make_graph_absolute(&mut config)?;
    Ok((folder, config))
}

/// Start of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    Anew,
    AtTheLastCheckpoint,
}

/// Smallest relative decrease of a loss that counts. Rounding of its sums is far smaller.
const UNMOVED: f64 = 1e-5;

/// A session that has trained to its end.
struct SessionResult {
    outcome: Outcome,
    /// Measurements of the process that keeps the run's files.
    watched: Option<Watched>,
    /// As in [`Training`].
    interrupted_rank: Option<usize>,
    _run_lock: Option<RunLock>,
}

/// A run under way.
pub(super) struct Session {
    pub(super) setup: TrainingSetup,
    pub(super) plan: Plan,
    pub(super) folder: RunFolder,
    /// Notes that the user has read.
    pub(super) told: Vec<String>,
}

impl Session {
    /// Facts that all processes of a run must share, beside those that the trainer compares.
    fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("data", self.plan.data.fingerprint.clone()),
            ("folder", self.folder.root().display().to_string()),
        ]
    }

    /// Model of the GPU that computes; `None` on the CPU.
    fn gpu_model(&self) -> Option<String> {
        let properties = self.setup.computes_on().gpu()?.properties();
        let (major, minor) = properties.compute_capability;
        Some(format!("{}, compute capability {major}.{minor}", properties.name))
    }

    /// Writes configuration and plan, reports remarks, and begins to watch the run.
    fn watch<'a>(&'a self, resume_point: ResumePoint, begin: Begin, host: &'a Host<'a>) -> Result<Watch<'a>> {
        // Only now, so that a resume that is refused leaves the run as it was. So does one that
        // asks for fewer steps than are done.
        if resume_point.step <= self.plan.steps {
            self.folder.begin(&self.setup.config, &self.plan)?;
        }
        record_trace(&self.setup, &self.folder)?;
        // The run that a fold belongs to has told its warnings.
        let warnings = if self.folder.is_fold() { &[][..] } else { &self.plan.warnings };
        let notes: Vec<String> = self.plan.notes.iter().filter(|note| !self.told.contains(note)).cloned().collect();
        host.observer.milestone(&Milestone::Remarks { warnings, notes: &notes });
        if begin == Begin::Anew {
            host.observer.milestone(&Milestone::Planned(&self.plan.uses));
        }
        Watch::new(&self.folder, &self.setup, resume_point, self.plan.steps, host)
    }

    pub(super) fn train(&self, mut trainer: Trainer, begin: Begin, host: &Host<'_>) -> Result<Trained> {
        let start = Instant::now();
        let result = self.run_training(&mut trainer, begin, host);
        let is_first = trainer.is_first();
        // All processes have come here, and what follows is the work of one.
        let peers = trainer.leave();
        let SessionResult { outcome, watched, interrupted_rank, _run_lock } = match result {
            Ok(result) => result,
            Err(error) => return end_with(error, peers, host),
        };
        peers.into_iter().for_each(|peers| finish(peers, host));
        let Some(watched) = watched.filter(|_| is_first) else {
            return Ok(Trained { interrupted_rank, ..self.peer_result(outcome) });
        };
        let concluded = self.conclude(trainer, outcome, watched, start, host);
        let end = match &concluded {
            Ok(trained) if trained.outcome.end == End::Stopped => SessionEnd::Stopped,
            Ok(_) => SessionEnd::Finished,
            Err(_) => SessionEnd::Failed,
        };
        let end = end.metric(outcome.steps, concluded.as_ref().err());
        let written = MetricsLog::open_at_end(&self.folder).and_then(|mut log| log.push(&end));
        let trained = Trained { interrupted_rank, ..concluded? };
        written.map(|()| trained)
    }

    /// Errors, report and summary of a session that began at `start` and has trained.
    fn conclude(
        &self,
        mut trainer: Trainer,
        outcome: Outcome,
        watched: Watched,
        start: Instant,
        host: &Host<'_>,
    ) -> Result<Trained> {
        let Watched { mut peaks, waited, validation_s } = watched;
        let training_s = start.elapsed().as_secs_f64() - validation_s;
        // What the plan is about; baselines, which come after training, have batches of their own.
        peaks.raise(&Peaks::read(&self.setup.device));
        let gpu_peak_bytes = trainer.gpu_peak_bytes();
        let peak_bytes = peaks.total_bytes() + self.setup.data.beside_bytes();
        let evaluating = Instant::now();
        let evaluated = unless_cancelled(self.evaluate(&mut trainer, outcome, host))?;
        let evaluation_s = (outcome.end != End::Stopped).then(|| evaluating.elapsed().as_secs_f64());
        let warning = self.uninformed(outcome)?;
        let memory = self.memory(peaks)?;
        // Predictions for the report take the trainer's place in memory.
        drop(trainer);
        let reporting = Instant::now();
        let reported = match &evaluated {
            Some(evaluation) => unless_cancelled(self.write_report(evaluation.as_ref(), &memory, host))?,
            None => None,
        };
        let report_s = reported.map(|()| reporting.elapsed().as_secs_f64());
        // What is not done of it, the run does when it is resumed.
        let outcome = if reported.is_none() { Outcome { end: End::Stopped, ..outcome } } else { outcome };
        let evaluation = evaluated.flatten();
        let times = Times { training_s, validation_s, evaluation_s, report_s, all_s: start.elapsed().as_secs_f64() };
        let summary = Summary {
            setup: &self.setup,
            plan: &self.plan,
            folder: &self.folder,
            outcome,
            times,
            waited,
            evaluation: evaluation.as_ref(),
            peak_bytes,
            gpu_peak_bytes,
            warning: warning.as_deref(),
        };
        let report = summary.report();
        Ok(Trained { outcome, split: self.plan.split.clone(), evaluation, interrupted_rank: None, report })
    }

    /// Tells the step that a run resumes from, and warns about its checkpoint and its device.
    fn tell_of_resumed(&self, resumed: &Resumed, host: &Host<'_>) {
        host.observer.note(&format!("the run goes on from step {}", resumed.state.step));
        for (skipped, path) in resumed.skipped.iter().zip(&resumed.skipped_paths) {
            let name = path.file_name().unwrap_or_default().display();
            let fault = with_keys(&skipped.to_string());
            host.observer.note(&format!("a checkpoint was passed over, and is kept as unreadable-{name}: {fault}"));
        }
        for changed in &resumed.changed {
            host.observer.note(&format!("the run goes on with another setting: {}", with_keys(&changed.to_string())));
        }
        if let Some(now) = &resumed.other_arithmetic {
            let before = with_keys(&resumed.state.arithmetic.to_string());
            host.observer.note(&format!(
                "the run began with {before} and goes on with {now}: it is the same to rounding, not to the bit"
            ));
        }
        let now = self.setup.computes_on().to_string();
        if let Some(before) = self.folder.trained_on(resumed.state.step)
            && before != now
        {
            let is_kind_changed = (before == "cpu") != (now == "cpu");
            let rounds = if is_kind_changed { ": it is the same to rounding, not to the bit" } else { "" };
            host.observer.note(&format!("the run was trained on {before} and goes on on {now}{rounds}"));
        }
    }

    /// Trains to the end of the session.
    fn run_training(&self, trainer: &mut Trainer, begin: Begin, host: &Host<'_>) -> Result<SessionResult> {
        let run_lock = if trainer.is_first() { self.folder.take().map(Some) } else { Ok(None) };
        let mut run_lock = settle(run_lock, |message| Ok(trainer.first_failure(message)?))?;
        let checkpoints = self.folder.keep_checkpoints(&self.setup.config);
        let run = self.setup.run(&checkpoints);
        let resumed = match begin {
            Begin::Anew => None,
            Begin::AtTheLastCheckpoint => trainer.resume(&run)?,
        };
        // Without a checkpoint the run starts again, as it began.
        if begin == Begin::AtTheLastCheckpoint
            && resumed.is_none()
            && let Some(weights) = &self.plan.init
        {
            trainer.load_weights(weights)?;
        }
        let resume_point = resumed.as_ref().map_or(ResumePoint::default(), |Resumed { state, .. }| ResumePoint {
            step: state.step,
            rollbacks: state.divergence.rollbacks,
        });
        resumed.iter().filter(|_| trainer.is_first()).for_each(|resumed| self.tell_of_resumed(resumed, host));
        let watch = match trainer.is_first() {
            true => self.watch(resume_point, begin, host).map(Some),
            false => host.cancel.watch(STEP_PATIENCE).map(|()| None),
        };
        let mut watch = settle(watch, |message| Ok(trainer.first_failure(message)?))?;
        let (mut rollbacks, mut failure) = (resume_point.rollbacks, None);
        let outcome = trainer.train(&run, &mut |event| {
            if let Event::Rollback(rollback) = &event {
                rollbacks = rollback.rollbacks;
            }
            if let (Event::Reformed { step, rank: 0, .. }, None) = (&event, &watch) {
                // The process that kept the run is lost: this one goes on with its files.
                let resume_point = ResumePoint { step: *step, rollbacks };
                let goes_on = self.folder.take().and_then(|lock| {
                    run_lock = Some(lock);
                    self.watch(resume_point, Begin::AtTheLastCheckpoint, host)
                });
                match goes_on {
                    Ok(own) => watch = Some(own),
                    Err(error) => failure = Some(error),
                }
            }
            match &mut watch {
                Some(watch) => watch.see(&event),
                None if failure.is_some() || host.cancel.is_requested() => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        let is_stopped = matches!(&outcome, Ok(outcome) if outcome.end == End::Stopped);
        let interrupted_rank = match is_stopped {
            true => interrupted_rank(host.cancel.ends_program(), |message| Ok(trainer.first_failure(message)?)),
            false => None,
        };
        let outcome = outcome.map_err(|error| self.locate(error));
        let outcome = outcome.and_then(|outcome| failure.map_or(Ok(outcome), Err));
        if let (Ok(Outcome { end: End::StoppedEarly, best, .. }), Some(watch), Some(rule)) =
            (&outcome, &watch, self.setup.training.early_stopping)
        {
            watch.stopped_early(rule, *best);
        }
        // A resume that asks for fewer steps than are done ends no session.
        if let (Err(error), Some(watch)) = (&outcome, &mut watch)
            && resume_point.step <= self.plan.steps
        {
            watch.fail(error);
        }
        let outcome = outcome?;
        let watched = watch.map(Watch::finish).transpose()?;
        Ok(SessionResult { outcome, watched, interrupted_rank, _run_lock: run_lock })
    }

    /// The result of a process that is not the run's first. The first process reports the run.
    fn peer_result(&self, outcome: Outcome) -> Trained {
        let report = CommandReport::empty();
        let report = if outcome.end == End::Stopped { report.with_verdict(Kind::Cancelled) } else { report };
        Trained { outcome, split: self.plan.split.clone(), evaluation: None, interrupted_rank: None, report }
    }

    /// Memory of the session, kept in the run's folder where it is recorded.
    fn memory(&self, mut peaks: Peaks) -> Result<MemoryFacts> {
        let device = &self.setup.device;
        peaks.raise(&Peaks::read(device));
        let snapshot = device.peak_snapshot();
        if let Some(snapshot) = &snapshot {
            atomic_file::write(&self.folder.memory_file(), snapshot.to_json().as_bytes())?;
        }
        let trace = device.finish_trace();
        trace.with_context(|| format!("{}: cannot be written", self.folder.trace_file().display()))?;
        Ok(MemoryFacts { peaks: peaks.with_data(self.setup.data.beside_bytes()), snapshot })
    }

    /// Adds where to look to an error whose cause lies in the data.
    fn locate(&self, error: trainer::Error) -> crate::error::Error {
        let first = match &error {
            trainer::Error::Diverged { source, .. } => source,
            other => other,
        };
        let in_data = matches!(first, trainer::Error::NotFinite { tensor, .. } if is_of_data(tensor));
        if matches!(error, trainer::Error::Peer(_)) {
            let saved =
                if self.folder.checkpoints().exists() { "goes on from the last checkpoint" } else { "begins again" };
            let out = self.folder.root().display();
            let error = crate::error::Error::from(error);
            return error.context(format!(
                "a process of the run is lost; `megabatch train --out {out} --resume`, with any number, {saved}"
            ));
        }
        let error = crate::error::Error::from(error);
        let path = self.plan.data.path.display();
        if in_data {
            error.context(format!("{path}: not all numbers are finite; `megabatch inspect {path}` names them"))
        } else {
            error
        }
    }

    /// The errors of the best weights on samples that the run did not train on, as `eval` gives
    /// them by default; `None` for a run that was stopped.
    fn evaluate(&self, trainer: &mut Trainer, outcome: Outcome, host: &Host<'_>) -> Result<Option<Evaluation>> {
        if outcome.end == End::Stopped {
            return Ok(None);
        }
        let (step, weights) = weights_file(&self.folder, CheckpointChoice::Best)?;
        trainer.load_weights(&weights)?;
        let TrainingSetup { device, data, split, training, .. } = &self.setup;
        let (samples, part) = (data.samples(), Part::unseen(split));
        let unit = format!("{}s", UnitNames::for_data(data).unit);
        let follow = |label, units: &SampleRanges| host.follow(Work { label, total: units.len() as u64, unit: &unit });
        let baselines = Baselines::fit(
            device,
            Selection { samples, indices: &split.train },
            trainer.model().config().readout,
            training.loss,
            &mut follow("baselines", &split.train),
        )?;
        let indices = part.indices(split, data.units());
        let drawn = self.setup.draw_for_errors(&indices, outcome.steps)?;
        let mut progress = follow("evaluate", &drawn.samples);
        let errors = trainer.evaluate_drawn(samples, &drawn, Some(&baselines), &mut progress)?;
        let evaluation = Evaluation::new(part, step, training.loss, errors, data).with_draw(&drawn);
        atomic_file::write(&self.folder.evaluation_file(), serde_json::to_string_pretty(&evaluation)?.as_bytes())?;
        Ok(Some(evaluation))
    }

    /// A warning if the best validation loss of ranks is no better than that of equal predictions.
    fn uninformed(&self, outcome: Outcome) -> Result<Option<String>> {
        let TrainingSetup { device, data, split, training, .. } = &self.setup;
        let Some(best) = outcome.best.filter(|_| training.loss.ranks()) else { return Ok(None) };
        let validated = Selection { samples: data.samples(), indices: &training.evaluated(&split.validation) };
        let none = uninformed_loss(device, validated, training.loss)?;
        let none = none.filter(|none| best.loss >= none * (1.0 - UNMOVED));
        Ok(none.map(|none| {
            let advice = match training.loss {
                Loss::RankListwise { temperature } => format!(
                    "training.rank_temperature is {temperature}: far above the spread of targets, which auto is, nothing is learnt"
                ),
                _ => "raise training.lr, or train for longer".to_owned(),
            };
            let (loss, none) = (significant(best.loss, 4), significant(none, 4));
            format!(
                "the best validation loss, {loss}, is no better than {none}, that of a model without any information; {advice}"
            )
        }))
    }

    fn write_report(&self, evaluation: Option<&Evaluation>, memory: &MemoryFacts, host: &Host<'_>) -> Result<()> {
        let TrainingSetup { data, split, config, training, .. } = &self.setup;
        let (mut forecasts, mut attention, mut day) = (None, None, None);
        if let (Some(evaluation), Data::Samples(samples)) = (evaluation, data) {
            let (_, weights) = weights_file(&self.folder, CheckpointChoice::Best)?;
            forecasts = Some(Forecasts::predict(&self.setup, samples, evaluation.split, &weights, host)?)
                .filter(|forecasts| !forecasts.pairs.is_empty());
            attention = Attention::compute(&self.setup, samples, evaluation.split, &weights)?;
        }
        if let (Some(evaluation), Data::CrossSections(sections)) = (evaluation, data) {
            day = evaluation
                .split
                .indices(split, data.units())
                .last()
                .map(|last| DayGraph::new(sections, last))
                .transpose()?;
        }
        let report = Report {
            run_name: &self.folder.root().display().to_string(),
            plan: &self.plan,
            metrics: &self.folder.metrics()?,
            loss_name: loss_name(training),
            evaluation,
            forecasts: forecasts.as_ref(),
            attention: attention.as_ref(),
            day: day.as_ref(),
            data: &DataFacts::new(data)?,
            split: &SplitFacts::new(split, data)?,
            memory,
            gpu: &crate::gpu::rows(&self.folder.gpu_file())?,
            machine: &Machine::describe(self.setup.computes_on(), training),
            config,
        };
        Ok(atomic_file::write(&self.folder.report_file(), report.to_html().as_bytes())?)
    }
}

/// The result of work; `None` if the host ended it.
fn unless_cancelled<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.kind() == Kind::Cancelled => Ok(None),
        result => result.map(Some),
    }
}

/// True if a tensor is an input of the model.
fn is_of_data(tensor: &str) -> bool {
    tensor == "targets" || tensor == "features" || tensor.starts_with("features.")
}
