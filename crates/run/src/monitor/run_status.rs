//! Status of a run from the lines of its log, for the screen, the JSON and the metrics of
//! Prometheus.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use super::warning;
use crate::gpu::GpuSample;
use crate::run_folder::SessionEnd;
use crate::text::number::{percent, seconds};

/// Steps over which speed and shares of time are averaged.
const RECENT_STEPS: usize = 50;
/// Age of the last line above which a run that has not ended may have been killed.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// Warnings that are kept.
const WARNINGS_MAX: usize = 20;

/// Status of a run.
#[derive(Clone, Debug, Default)]
pub struct RunStatus {
    /// Number of the fold that is shown, from 1, and the number of folds, of a run of several.
    pub fold: Option<(usize, usize)>,
    /// True if it was evaluated after its last step, and no fold follows.
    pub has_ended: bool,
    /// End of the last session; `None` while it goes on, and after a kill.
    pub(crate) end: Option<SessionEnd>,
    /// True if it ended without a word: no process has its folder, and its log is silent.
    pub was_killed: bool,
    /// Time since the last line of its log was written.
    pub silence: Option<Duration>,
    /// Free memory of the device before the run began.
    pub available_bytes: Option<f64>,
    /// Optimizer steps at which training ends.
    pub steps: Option<f64>,
    /// The last sample of the GPU; `None` on the CPU.
    pub gpu: Option<GpuSample>,
    /// The last step's line; null before the first.
    pub step: Value,
    /// The last line of an epoch's end, with the reserved bytes; null before the first.
    pub epoch: Value,
    /// Step and loss.
    pub losses: Vec<(f64, f64)>,
    /// Step and loss of each validation.
    pub validations: Vec<(f64, f64)>,
    /// The last warnings with their steps, oldest first.
    pub warnings: VecDeque<(u64, String)>,
    /// Number of warnings so far.
    pub warnings_total: u64,
    rollbacks: f64,
    recent: VecDeque<StepTime>,
    /// Time of validations and checkpoints since the first line.
    between_steps_s: f64,
}

/// Time of a step by phase, in seconds.
#[derive(Clone, Copy, Debug)]
struct StepTime {
    samples: f64,
    whole_s: f64,
    wait_s: f64,
    computing_s: f64,
}

/// A number that describes a run at any time.
pub struct Reading {
    /// Its name in JSON; in Prometheus `megabatch_` comes before it.
    pub key: &'static str,
    /// The measured quantity, in words.
    pub about: &'static str,
    /// Its value; `None` where it is not known.
    pub value: fn(&RunStatus) -> Option<f64>,
}

const fn reading(key: &'static str, about: &'static str, value: fn(&RunStatus) -> Option<f64>) -> Reading {
    Reading { key, about, value }
}

/// All of them.
pub const READINGS: [Reading; 29] = [
    reading("fold", "Fold of the numbers, from 1, of a run of several.", |status| {
        status.fold.map(|fold| fold.0 as f64)
    }),
    reading("folds", "Folds of the run, of several.", |status| status.fold.map(|fold| fold.1 as f64)),
    reading("step", "Optimizer steps done.", |status| status.last_step("step")),
    reading("steps", "Optimizer steps at which training ends.", |status| status.steps),
    reading("epoch", "Epoch of the last step, from 0.", |status| status.last_step("epoch")),
    reading("time_left_seconds", "Time to the last step at the pace of the last ones.", RunStatus::time_left_s),
    reading("loss", "Loss of the last step.", |status| status.last_step("loss")),
    reading("validation_loss", "Last validation loss.", |status| status.validations.last().map(|point| point.1)),
    reading("best_validation_loss", "Lowest validation loss.", |status| status.best().map(|point| point.1)),
    reading("learning_rate", "Learning rate of the last step.", |status| status.last_step("lr")),
    reading("grad_norm", "Norm of the gradients of the last step, before clipping.", |status| {
        status.last_step("grad_norm")
    }),
    reading("loss_scale", "Loss scale of the last step, in fp16.", |status| status.last_step("loss_scale")),
    reading("samples_per_second", "Samples over the time of the last steps.", RunStatus::samples_per_s),
    reading("data_wait_ratio", "Share of the last steps that waited for data.", |status| {
        status.share(|time| time.wait_s)
    }),
    reading(
        "computing_ratio",
        "Share of the last steps in which the device computed, as far as it is known.",
        |status| status.share(|time| time.computing_s),
    ),
    reading("allocated_bytes", "Bytes allocated on the device.", |status| status.last_step("allocated_bytes")),
    reading("allocated_bytes_peak", "Most bytes allocated in the last epoch.", |status| {
        status.last_epoch("allocated_bytes_peak")
    }),
    reading("reserved_bytes", "Bytes that the memory pool held at the end of the last epoch.", |status| {
        status.last_epoch("reserved_bytes")
    }),
    reading("reserved_bytes_peak", "Most bytes that the memory pool held in the last epoch.", |status| {
        status.last_epoch("reserved_bytes_peak")
    }),
    reading(
        "free_bytes",
        "What the device had for the run when it began, less what is reserved.",
        RunStatus::free_bytes,
    ),
    reading("gpu_busy_ratio", "Share of the last moments in which the GPU ran a kernel.", |status| {
        status.gpu_number(|gpu| gpu.busy_percent).map(|percent| percent / 100.0)
    }),
    reading("gpu_memory_used_bytes", "Bytes of the GPU's memory that any program holds.", |status| {
        status.gpu_number(|gpu| gpu.memory_used_bytes)
    }),
    reading("gpu_power_watts", "Power that the GPU takes.", |status| status.gpu_number(|gpu| gpu.power_w)),
    reading("gpu_temperature_celsius", "The GPU's temperature.", |status| status.gpu_number(|gpu| gpu.celsius)),
    reading("gpu_clock_hertz", "Clock of the GPU's multiprocessors.", |status| {
        status.gpu_number(|gpu| gpu.sm_mhz).map(|mhz| mhz * 1e6)
    }),
    reading("rollbacks_total", "How often the run went back because it diverged.", |status| Some(status.rollbacks)),
    reading("warnings_total", "Warnings so far.", |status| Some(status.warnings_total as f64)),
    reading("finished", "1 for a run that has ended and is evaluated, else 0.", |status| {
        Some(f64::from(u8::from(status.has_ended)))
    }),
    reading("silence_seconds", "Time since the run last wrote to its log.", |status| {
        status.silence.map(|silence| silence.as_secs_f64())
    }),
];

impl RunStatus {
    /// Reads a line of the log.
    pub fn see(&mut self, line: &Value) {
        let number = |key: &str| line[key].as_f64();
        match line["event"].as_str() {
            Some("step") => {
                self.step.clone_from(line);
                self.steps = number("steps").or(self.steps);
                self.losses.extend(number("step").zip(number("loss")));
                self.recent.extend(StepTime::from_line(line));
                if self.recent.len() > RECENT_STEPS {
                    self.recent.pop_front();
                }
            }
            Some("validation") => {
                self.validations.extend(number("step").zip(number("loss")));
                self.between_steps_s += number("validation_s").unwrap_or(0.0);
            }
            Some("checkpoint") => self.between_steps_s += number("save_s").unwrap_or(0.0),
            Some("epoch") => self.epoch.clone_from(line),
            _ => self.end = SessionEnd::from_metric(line).or(self.end),
        }
        self.rollbacks = number("rollbacks").unwrap_or(self.rollbacks);
        if let Some(sentence) = warning::sentence(line) {
            self.warnings.push_back((line["step"].as_u64().unwrap_or(0), sentence));
            self.warnings_total += 1;
            if self.warnings.len() > WARNINGS_MAX {
                self.warnings.pop_front();
            }
        }
    }

    fn last_step(&self, key: &str) -> Option<f64> {
        self.step[key].as_f64()
    }

    fn last_epoch(&self, key: &str) -> Option<f64> {
        self.epoch[key].as_f64()
    }

    fn gpu_number(&self, value: fn(&GpuSample) -> Option<f64>) -> Option<f64> {
        self.gpu.as_ref().and_then(value)
    }

    /// Step and loss of the lowest validation loss.
    pub fn best(&self) -> Option<(f64, f64)> {
        self.validations.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Share of the steps that are done.
    pub fn progress(&self) -> Option<f64> {
        Some(self.last_step("step")? / self.steps.filter(|&steps| steps > 0.0)?)
    }

    fn whole_s(&self) -> Option<f64> {
        Some(self.recent.iter().map(|time| time.whole_s).sum()).filter(|&whole_s: &f64| whole_s > 0.0)
    }

    fn share(&self, part: fn(&StepTime) -> f64) -> Option<f64> {
        Some((self.recent.iter().map(part).sum::<f64>() / self.whole_s()?).min(1.0))
    }

    fn samples_per_s(&self) -> Option<f64> {
        Some(self.recent.iter().map(|time| time.samples).sum::<f64>() / self.whole_s()?)
    }

    /// True if nothing more is written: the run has ended, was stopped or failed.
    pub fn is_over(&self) -> bool {
        self.has_ended || matches!(self.end, Some(SessionEnd::Stopped | SessionEnd::Failed))
    }

    /// True if a run is not over and its log is five minutes old: it was killed, or hangs.
    fn is_stalled(&self) -> bool {
        !self.is_over() && self.silence.is_some_and(|silence| silence > SILENCE_MAX)
    }

    /// Time of the remaining steps at the pace of the last ones, with pauses as often as before.
    /// `None` for a run that is stalled, was stopped or killed, or failed.
    fn time_left_s(&self) -> Option<f64> {
        if self.has_ended {
            return Some(0.0);
        }
        if self.is_over() || self.was_killed || self.is_stalled() {
            return None;
        }
        let done = self.last_step("step")?;
        let step_s =
            self.whole_s()? / self.recent.len() as f64 + self.between_steps_s / self.losses.len().max(1) as f64;
        Some((self.steps? - done).max(0.0) * step_s)
    }

    /// The time left, or the end of the run.
    pub fn remaining(&self) -> String {
        match (self.get("time_left_seconds"), self.end) {
            _ if self.has_ended => "ended".to_owned(),
            (_, Some(SessionEnd::Stopped)) => "stopped; --resume goes on".to_owned(),
            (_, Some(SessionEnd::Failed)) => "failed".to_owned(),
            _ if self.was_killed => "killed; --resume goes on".to_owned(),
            // Of a run on another machine, no lock is seen.
            _ if self.is_stalled() => "no longer running, or stalled".to_owned(),
            (Some(left_s), _) if self.fold.is_some() => format!("{} left of the fold", seconds(left_s)),
            (Some(left_s), _) => format!("{} left", seconds(left_s)),
            (None, _) => "time left unknown".to_owned(),
        }
    }

    fn free_bytes(&self) -> Option<f64> {
        let held = self.last_epoch("reserved_bytes").or_else(|| self.last_step("allocated_bytes"))?;
        Some((self.available_bytes? - held).max(0.0))
    }

    /// The reading called `key`, as a share in percent.
    pub fn percent_of(&self, key: &str) -> Option<String> {
        self.get(key).map(percent)
    }

    /// The reading called `key`.
    pub fn get(&self, key: &str) -> Option<f64> {
        let reading = READINGS.iter().find(|reading| reading.key == key).expect("the table has the reading");
        (reading.value)(self).filter(|value| value.is_finite())
    }
}

impl StepTime {
    fn from_line(line: &Value) -> Option<Self> {
        let number = |key: &str| line[key].as_f64();
        let samples = number("samples")?;
        let whole_s = samples / number("samples_per_s").filter(|&rate| rate > 0.0)?;
        let computing_s = ["forward_s", "backward_s", "optimizer_s"].into_iter().filter_map(number).sum();
        Some(StepTime { samples, whole_s, wait_s: number("data_wait_s").unwrap_or(0.0), computing_s })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{epoch, seen, step, validation};
    use super::*;

    #[test]
    fn readings_are_those_of_the_last_lines() {
        let status = RunStatus {
            available_bytes: Some(1e9),
            ..seen(&[step(1, 4.0), step(2, 2.0), validation(2, 3.0), epoch(2), step(3, 1.0), validation(3, 5.0)])
        };
        for (key, expected) in [
            ("step", 3.0),
            ("steps", 10.0),
            ("loss", 1.0),
            ("validation_loss", 5.0),
            ("best_validation_loss", 3.0),
            ("samples_per_second", 20.0),
            ("data_wait_ratio", 0.25),
            ("computing_ratio", 0.5),
            ("reserved_bytes", 4e8),
            ("free_bytes", 6e8),
            // Seven steps of half a second, and the two seconds of two validations over three
            // steps.
            ("time_left_seconds", 7.0 * (0.5 + 2.0 / 3.0)),
            ("finished", 0.0),
        ] {
            let value = status.get(key).unwrap_or_else(|| panic!("no {key}"));
            assert!((value - expected).abs() < 1e-9 * expected.max(1.0), "{key} is {value}");
        }
        assert_eq!((status.get("loss_scale"), status.get("silence_seconds")), (None, None));
        assert_eq!(RunStatus { has_ended: true, ..status }.time_left_s(), Some(0.0));
    }

    /// JSON and Prometheus had a time left of runs that had been killed.
    #[test]
    fn a_killed_run_has_no_time_left() {
        let silent = |seconds| RunStatus { silence: Some(Duration::from_secs(seconds)), ..seen(&[step(1, 4.0)]) };
        assert!(silent(300).get("time_left_seconds").is_some() && !silent(300).is_stalled());
        assert!(silent(301).get("time_left_seconds").is_none() && silent(301).is_stalled());
        assert!(!RunStatus { has_ended: true, ..silent(301) }.is_stalled());
    }

    /// A run that was stopped was silent, with a time left.
    #[test]
    fn a_session_that_was_stopped_or_failed_is_told() {
        for (how, expected, warnings) in [("stopped", "stopped; --resume goes on", 0), ("failed", "failed", 1)] {
            let end = serde_json::json!({ "event": "end", "step": 1, "how": how, "error": "the loss is NaN" });
            let status = RunStatus { silence: Some(Duration::from_secs(9)), ..seen(&[step(1, 4.0), end]) };
            assert!(status.is_over() && !status.has_ended);
            assert_eq!((status.remaining().as_str(), status.get("time_left_seconds")), (expected, None));
            assert_eq!(status.warnings.len(), warnings);
        }
        let end = serde_json::json!({ "event": "end", "step": 1, "how": "finished" });
        assert!(!seen(&[step(1, 4.0), end]).is_over(), "another fold may follow");
    }

    #[test]
    fn a_run_that_has_not_begun_and_numbers_that_are_none_are_absent() {
        let nothing = RunStatus::default();
        for Reading { key, .. } in &READINGS {
            let is_count = key.ends_with("_total") || *key == "finished";
            assert_eq!(nothing.get(key), is_count.then_some(0.0), "{key}");
        }
        let mut line = step(1, 1.0);
        (line["loss"], line["samples_per_s"]) = (Value::Null, Value::Null);
        let status = seen(&[line]);
        assert_eq!((status.get("loss"), status.get("time_left_seconds"), status.losses.len()), (None, None, 0));
    }

    #[test]
    fn the_pace_is_that_of_the_last_steps() {
        let slow = |at| {
            let mut line = step(at, 1.0);
            line["samples_per_s"] = 1.0.into();
            line
        };
        let lines: Vec<Value> =
            (1..=30).map(slow).chain((31..=30 + RECENT_STEPS as u64).map(|at| step(at, 1.0))).collect();
        assert_eq!(seen(&lines).get("samples_per_second"), Some(20.0));
    }
}
