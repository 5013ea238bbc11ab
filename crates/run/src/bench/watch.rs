//! Cost of following a run.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use megabatch_trainer::{Event, Run, SampleRanges, Trainer};
use serde_json::json;

use crate::command_report::CommandReport;
use crate::config::Config;
use crate::error::Result;
use crate::host::Host;
use crate::ingest::{Timeframe, Windows};
use crate::plan::Plan;
use crate::run_folder::{ResumePoint, RunFolder};
use crate::setup::{Intent, Request, TrainingSetup};
use crate::synth::{SampleOptions, SampleWindows, make_samples};
use crate::text::number::{percent, seconds};
use crate::train::{Watch, record};

/// Steps to follow.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// Samples in a batch.
    pub batch: usize,
    /// Hidden units.
    pub hidden: usize,
    /// Bars in a window.
    pub bars: usize,
    /// Threads that compute.
    pub threads: usize,
    /// Timed steps, after twenty untimed steps.
    pub steps: u64,
}

/// Steps that are followed, or not, one after the other.
const BLOCK: u64 = 10;
/// Steps that are not timed.
const WARM_UP: u64 = 20;
/// Samples that are drawn from.
const SAMPLES: usize = 4000;

/// Times of steps, in seconds.
#[derive(Default)]
struct Times {
    /// Times of whole steps, including the work after them.
    followed: Vec<f64>,
    alone: Vec<f64>,
    /// Times of the work after the steps.
    following: Vec<f64>,
}

/// Measures training steps with and without logging and warnings.
///
/// In one run every other ten steps are logged: metrics.jsonl, TensorBoard, trace, warnings,
/// progress.
///
/// # Errors
/// A capacity error for a model that does not fit into memory.
pub fn watch(options: &WatchOptions, host: &Host<'_>) -> Result<CommandReport> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("series.h5");
    let count = |count| NonZeroUsize::new(count).expect("above zero");
    let windows = Windows(vec![(Timeframe::M1, options.bars)]);
    let samples = SampleOptions {
        samples: count(SAMPLES),
        windows: SampleWindows::Named(windows),
        features: count(16),
        targets: count(4),
        ..SampleOptions::default()
    };
    make_samples(&data, &samples)?;
    let settings = [
        format!("data.path={}", data.display()),
        format!("model.hidden={}", options.hidden),
        format!("gpu_optimization.batch_size={}", options.batch),
        format!("training.threads={}", options.threads),
        format!("output.trace_steps={}", options.steps + WARM_UP),
        // No checkpoint is kept that a run could go back to.
        "training.on_nan=stop".to_owned(),
    ];
    let config = Config::load(None, &[], &settings)?;
    let alone = Host { environment: Vec::new(), cache_folder: None, ..*host };
    let max_steps = Some(options.steps + WARM_UP);
    let setup = TrainingSetup::open(Request { max_steps, ..Request::new(config, Intent::Run, &alone) })?;
    let times = times(&setup, &RunFolder::new(&folder.path().join("run"))?, host)?;
    Ok(report(&times))
}

fn times(setup: &TrainingSetup, folder: &RunFolder, host: &Host<'_>) -> Result<Times> {
    let _run_lock = folder.take()?;
    let plan = Plan::new(setup)?;
    folder.begin(&setup.config, &plan)?;
    record(setup);
    let mut trainer = Trainer::new(&setup.device, setup.training.clone(), plan.shape.clone())?;
    let mut watch = Watch::new(folder, setup, ResumePoint::default(), plan.steps, host)?;
    let (mut times, mut last_event) = (Times::default(), Instant::now());
    // Without validation: a step is a step.
    let run = Run {
        samples: setup.data.samples(),
        train: &setup.split.train,
        validation: SampleRanges::NONE,
        checkpoints: None,
    };
    trainer.train(&run, &mut |event| {
        if matches!(event, Event::Waiting) {
            // Of the time of the step before which it is told.
            return watch.see(&event);
        }
        let (begin, step) = (Instant::now(), if let Event::Step(step) = &event { step.step } else { 0 });
        let is_followed = step == 0 || step / BLOCK % 2 == 1;
        let flow = if is_followed { watch.see(&event) } else { ControlFlow::Continue(()) };
        if step > WARM_UP {
            times.push(is_followed, last_event.elapsed(), begin.elapsed());
        }
        last_event = Instant::now();
        flow
    })?;
    watch.finish()?;
    Ok(times)
}

impl Times {
    fn push(&mut self, is_followed: bool, whole: Duration, following: Duration) {
        if is_followed {
            self.followed.push(whole.as_secs_f64());
            self.following.push(following.as_secs_f64());
        } else {
            self.alone.push(whole.as_secs_f64());
        }
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn report(times: &Times) -> CommandReport {
    let [alone_s, followed_s, following_s] = [&times.alone, &times.followed, &times.following].map(|all| median(all));
    let text = format!(
        "a step takes {} alone and {} followed (medians of {} and {}); following it takes {}, {} of the step",
        seconds(alone_s),
        seconds(followed_s),
        times.alone.len(),
        times.followed.len(),
        seconds(following_s),
        percent(following_s / alone_s),
    );
    let json = json!({
        "step_alone_s": alone_s,
        "step_followed_s": followed_s,
        "following_s": following_s,
        "following_ratio": following_s / alone_s,
        "difference_ratio": followed_s / alone_s - 1.0,
        "steps_alone": times.alone.len(),
        "steps_followed": times.followed.len(),
    });
    CommandReport::new(text, &json)
}
