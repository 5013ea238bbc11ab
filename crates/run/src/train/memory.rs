//! Memory of a run: recordings, release, leaks, and a map after a shortage.

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use megabatch_gpu_core::Device;
use megabatch_gpu_core::leak::{Leak, LeakDetector, LeakRule};
use megabatch_gpu_core::recording::RecordingSettings;
use megabatch_trainer::{Event, ShortageEvent};
use serde_json::{Value, json};

use crate::config;
use crate::config::choices::MemoryRecord;
use crate::error::{Context as _, Error, Kind, Result};
use crate::report::Peaks;
use crate::run_folder::RunFolder;
use crate::setup::TrainingSetup;
use crate::text::bytes;

/// Allocations and frees that a recording keeps.
const EVENTS_MAX: usize = 10_000;

/// Begins the recording that the configuration asks for.
pub(crate) fn record(setup: &TrainingSetup) {
    if setup.config.get(&config::gpu_optimization::RECORD_MEMORY) != MemoryRecord::Off {
        let since_1970 = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = Arc::new(move || since_1970().as_micros() as u64);
        setup.device.record(RecordingSettings { events_max: EVENTS_MAX, clock });
    }
}

/// Begins the trace, where the configuration asks for one.
pub(super) fn record_trace(setup: &TrainingSetup, folder: &RunFolder) -> Result<()> {
    if setup.config.get(&config::gpu_optimization::RECORD_MEMORY) == MemoryRecord::Trace {
        let path = folder.trace_file();
        let file = File::create(&path).with_context(|| format!("{}: cannot be written", path.display()))?;
        setup.device.record_trace(Box::new(BufWriter::new(file)));
    }
    Ok(())
}

/// Adds the path of a memory map to an `error` of memory shortage, and writes the map to `folder`.
pub(super) fn explain_shortage(folder: &RunFolder, device: &Device, error: Error) -> Error {
    let recorded = device.take_failure_snapshot().filter(|_| error.kind() == Kind::Capacity);
    let Some(snapshot) = recorded else { return error };
    let told = error.exact_message();
    match folder.keep_shortage(&snapshot) {
        Ok(path) => {
            let path = path.display();
            error.context(format!(
                "{told}; {path} holds a map of the memory at that moment, which `megabatch memory snapshot {path}` shows"
            ))
        }
        Err(unwritten) => error.context(format!("{told}; a map of the memory could not be written: {unwritten}")),
    }
}

/// Watches memory while a run trains.
pub(super) struct MemoryWatch<'a> {
    device: &'a Device,
    is_on_gpu: bool,
    detector: Option<LeakDetector>,
    peaks: Peaks,
    empty_every_epochs: u64,
    empty_every_batches: u64,
    batches_per_step: u64,
    /// Steps done.
    step: u64,
}

impl<'a> MemoryWatch<'a> {
    /// Watches `setup` after `first_step`.
    pub(super) fn new(setup: &'a TrainingSetup, first_step: u64) -> Self {
        let rule = |megabytes: f64| LeakRule { threshold_bytes: (megabytes * 1e6) as usize, ..LeakRule::default() };
        MemoryWatch {
            device: &setup.device,
            is_on_gpu: setup.gpu.is_some(),
            detector: setup.config.get(&config::gpu_optimization::LEAK_WARNING_MB).map(rule).map(LeakDetector::new),
            peaks: Peaks::default(),
            empty_every_epochs: setup.config.get(&config::gpu_optimization::EMPTY_CACHE_EVERY_N_EPOCHS),
            empty_every_batches: setup.config.get(&config::gpu_optimization::EMPTY_CACHE_EVERY_N_BATCHES),
            batches_per_step: setup.training.gradient_accumulation_steps as u64,
            step: first_step,
        }
    }

    /// Does the work that is due after `event`. Leaks are reported at the end of an epoch.
    pub(super) fn see(&mut self, event: &Event<'_>) -> Option<FoundLeak> {
        match event {
            Event::Step(step) => {
                let batches = [self.step, step.step].map(|steps| steps * self.batches_per_step);
                if is_due(batches[0], batches[1], self.empty_every_batches) {
                    self.device.empty_cache();
                }
                self.step = step.step;
                None
            }
            Event::Epoch(epoch) => {
                self.peaks.raise(&Peaks::read(self.device));
                if is_due(epoch.epoch, epoch.epoch + 1, self.empty_every_epochs) {
                    self.device.empty_cache();
                }
                // Each epoch has peaks of its own; the largest are those of the run.
                self.device.reset_peak();
                let live = self.device.usage_by_scope();
                let live = live.into_iter().map(|(label, usage)| (label, usage.allocated_bytes));
                let leak = self.detector.as_mut()?.epoch(live)?;
                Some(FoundLeak { step: epoch.step, epoch: epoch.epoch, leak })
            }
            _ => None,
        }
    }

    /// Message about a memory shortage after which the run continues with smaller batches. Writes a
    /// map of the memory to `folder`.
    pub(super) fn went_on(&self, folder: &RunFolder, cut: &ShortageEvent) -> String {
        let ShortageEvent {
            cause,
            batch_size,
            planned_batch_size,
            releases_series,
            releases_windows,
            releases_graphs,
            gradient_checkpointing,
            chunk_percent,
            ..
        } = cut;
        let kept = self.device.take_failure_snapshot().map(|snapshot| folder.keep_shortage(&snapshot));
        let map = match kept {
            Some(Ok(path)) => format!("; {} is a map of the memory", path.display()),
            Some(Err(error)) => format!("; a map of the memory could not be written: {error}"),
            None => String::new(),
        };
        let mut measures = Vec::new();
        if *releases_series {
            measures.push("bars that come to the GPU batch by batch".to_owned());
        }
        if *releases_windows {
            measures.push("windows that come to the GPU batch by batch".to_owned());
        }
        if *releases_graphs {
            measures.push("edges of graphs that come to the GPU batch by batch".to_owned());
        }
        if batch_size < planned_batch_size {
            measures.push(format!("{batch_size} at once of each batch of {planned_batch_size}"));
        }
        if *gradient_checkpointing {
            measures.push("some of the activations computed twice".to_owned());
        }
        if *chunk_percent < 100 {
            measures.push(format!("chunks of {chunk_percent} % of their planned size, where there are any"));
        }
        if measures.is_empty() {
            measures.push("what another process gives back of its GPU".to_owned());
        }
        // A GPU adds up whole batches.
        let is_rounded = self.is_on_gpu && batch_size < planned_batch_size;
        let result = if is_rounded { "to the same result but for the last bits of sums" } else { "to the same result" };
        format!("memory ran short ({cause}); on with {}, {result}{map}", measures.join(" and "))
    }

    /// The peaks of all epochs so far.
    pub(super) fn into_peaks(self) -> Peaks {
        self.peaks
    }
}

/// True if a multiple of `every` lies in `before + 1..=now`; 0 is never due.
fn is_due(before: u64, now: u64, every: u64) -> bool {
    every > 0 && before / every < now / every
}

/// A leak, and when it was found.
pub(super) struct FoundLeak {
    step: u64,
    epoch: u64,
    leak: Leak,
}

impl FoundLeak {
    /// Its line in metrics.jsonl.
    pub(super) fn metric(&self) -> Value {
        let FoundLeak { step, epoch, leak } = self;
        json!({
            "event": "leak",
            "step": step,
            "epoch": epoch,
            "growth_bytes": leak.growth_bytes,
            "owners": leak.owners.iter().map(|grown| json!({
                "owner": grown.owner,
                "bytes": grown.bytes,
                "epochs": grown.epochs,
                "bytes_per_epoch": grown.bytes_per_epoch(),
            })).collect::<Vec<_>>(),
        })
    }

    /// Message for the user.
    pub(super) fn sentence(&self) -> String {
        let owner = |grown: &megabatch_gpu_core::leak::Growth| {
            format!("{} by {} in each of {} epochs", grown.owner, bytes(grown.bytes_per_epoch()), grown.epochs)
        };
        format!(
            "memory grows from epoch to epoch, {} so far: {}",
            bytes(self.leak.growth_bytes),
            self.leak.owners.iter().map(owner).collect::<Vec<_>>().join(", ")
        )
    }
}

#[cfg(test)]
mod tests;
