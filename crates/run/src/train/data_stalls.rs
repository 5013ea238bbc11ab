//! Warnings about time that training waits for data, with advice.

use megabatch_trainer::{Event, StepEvent, Waits};
use serde_json::{Value, json};

use super::time_breakdown::{LOSS_MIN_S, SHARE_MAX, STEPS, STEPS_MIN};
use crate::adapters::data::Data;
use crate::text::bytes;

/// Cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Disk,
    Decode,
    Copy,
    /// Samples that are in memory, to be put together as batches.
    Gather,
}

/// Storage of the samples, on which the advice depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleStorage {
    Windows,
    /// A series that is streamed.
    SeriesInFile,
    InMemory,
}

impl SampleStorage {
    pub(super) fn new(data: &Data) -> Self {
        match data.samples().streamed_series() {
            Some(_) => SampleStorage::SeriesInFile,
            None if data.is_windows() => SampleStorage::Windows,
            None => SampleStorage::InMemory,
        }
    }
}

/// Watches how long steps wait.
pub(super) struct WaitWatch {
    storage: SampleStorage,
    steps: u32,
    total_s: f64,
    wait_s: f64,
    causes: Option<Waits>,
    /// A cause is told once.
    told: Vec<Cause>,
}

/// A wait that is too long, and the step at which it was found.
pub(super) struct LongWait {
    step: u64,
    /// Shares of the steps' time: of all waiting, and of waiting for the main cause.
    share: f64,
    cause_share: f64,
    cause: Cause,
    storage: SampleStorage,
    bytes_read: u64,
    seconds: f64,
}

impl WaitWatch {
    pub(super) fn new(storage: SampleStorage) -> Self {
        WaitWatch { storage, steps: 0, total_s: 0.0, wait_s: 0.0, causes: None, told: Vec::new() }
    }

    /// Counts `event`. Returns the warning that is due after it.
    pub(super) fn see(&mut self, event: &Event<'_>) -> Option<LongWait> {
        match event {
            Event::Step(step) => {
                self.add(step);
                (self.steps >= STEPS).then(|| self.judge(step.step)).flatten()
            }
            Event::Epoch(epoch) if self.steps >= STEPS_MIN => self.judge(epoch.step),
            _ => None,
        }
    }

    fn add(&mut self, step: &StepEvent) {
        self.steps += 1;
        self.wait_s += step.data_wait_s;
        // The time of a step is told by its rate alone.
        self.total_s += step.samples as f64 / step.samples_per_s;
        step.data_waits.iter().for_each(|waits| *self.causes.get_or_insert_default() += *waits);
    }

    /// Judges the steps since the last call.
    fn judge(&mut self, step: u64) -> Option<LongWait> {
        let WaitWatch { total_s, wait_s, storage, .. } = *self;
        let waits = self.causes.take();
        (self.steps, self.total_s, self.wait_s) = (0, 0.0, 0.0);
        let (cause, cause_s) = main_cause(waits, wait_s);
        let share = wait_s / total_s;
        if share <= SHARE_MAX || share.is_nan() || wait_s < LOSS_MIN_S || self.told.contains(&cause) {
            return None;
        }
        self.told.push(cause);
        let bytes_read = waits.map_or(0, |waits| waits.bytes_read);
        Some(LongWait { step, share, cause_share: cause_s / total_s, cause, storage, bytes_read, seconds: total_s })
    }
}

/// Main cause of waiting, and its time.
fn main_cause(waits: Option<Waits>, wait_s: f64) -> (Cause, f64) {
    let Some(waits) = waits else { return (Cause::Gather, wait_s) };
    let causes = [(Cause::Disk, waits.disk), (Cause::Decode, waits.decode), (Cause::Copy, waits.copy)];
    let (cause, time) = causes.into_iter().max_by_key(|(_, time)| *time).expect("there are three");
    (cause, time.as_secs_f64())
}

impl Cause {
    fn name(self) -> &'static str {
        match self {
            Cause::Disk => "disk",
            Cause::Decode => "decode",
            Cause::Copy => "copy",
            Cause::Gather => "gather",
        }
    }
}

impl LongWait {
    /// Its line in metrics.jsonl.
    pub(super) fn metric(&self) -> Value {
        let LongWait { step, share, cause_share, cause, .. } = self;
        json!({ "event": "waiting", "step": step, "share": share, "cause": cause.name(), "cause_share": cause_share })
    }

    /// Message for the user.
    pub(super) fn sentence(&self) -> String {
        let rate = (self.bytes_read as f64 / self.seconds) as usize;
        let first = match (self.storage, self.cause) {
            (SampleStorage::Windows, _) => "`megabatch convert` the windows to series, which stay in memory; or ",
            (SampleStorage::SeriesInFile, Cause::Disk) => {
                "raise training.run_length, so that windows share the bars that are read, or data.cache_gb; or "
            }
            (SampleStorage::SeriesInFile | SampleStorage::InMemory, _) => "",
        };
        let (what, advice) = match self.cause {
            Cause::Disk => {
                (format!("reading the file, {} a second", bytes(rate)), format!("{first}put the file on a faster disk"))
            }
            Cause::Decode => (
                "decode".to_owned(),
                format!(
                    "{first}`megabatch convert` to chunks that the order reads whole (`megabatch plan` says which) or without compression"
                ),
            ),
            Cause::Copy => ("moving values to their place".to_owned(), format!("{first}raise training.run_length")),
            Cause::Gather => ("putting batches together".to_owned(), format!("{first}raise training.run_length")),
        };
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let all = percent(self.share);
        format!("data: {} of the step is {what} ({all} is waiting for data); {advice}", percent(self.cause_share))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::train::fixtures;

    fn step(step: u64, data_wait_s: f64, data_waits: Option<Waits>) -> StepEvent {
        StepEvent { data_wait_s, data_waits, ..fixtures::step(step) }
    }

    fn decoding(decode_s: f64) -> Option<Waits> {
        let second = Duration::from_secs_f64;
        Some(Waits { disk: second(0.05), decode: second(decode_s), copy: second(0.01), bytes_read: 3_000_000 })
    }

    fn epoch(step: u64) -> Event<'static> {
        fixtures::epoch(0, step)
    }

    /// Messages by step, of `steps` that wait so long.
    fn told(storage: SampleStorage, steps: u64, wait_s: f64, waits: Option<Waits>) -> Vec<(u64, String)> {
        let mut watch = WaitWatch::new(storage);
        let events = (1..=steps).map(|at| Event::Step(step(at, wait_s, waits))).chain([epoch(steps)]);
        events.filter_map(|event| watch.see(&event)).map(|long| (long.step, long.sentence())).collect()
    }

    #[test]
    fn a_long_wait_is_told_once_with_its_cause() {
        let long = told(SampleStorage::Windows, 450, 0.67, decoding(0.61));
        let [(100, sentence)] = &long[..] else { panic!("{long:?}") };
        assert!(
            sentence.starts_with(
                "data: 61 % of the step is decode (67 % is waiting for data); `megabatch convert` the windows to series"
            ),
            "{sentence}"
        );
        let long = told(
            SampleStorage::Windows,
            100,
            0.4,
            Some(Waits { disk: Duration::from_millis(400), ..decoding(0.1).unwrap() }),
        );
        assert!(long[0].1.contains("40 % of the step is reading the file, 3.00 MB a second"), "{long:?}");
    }

    #[test]
    fn a_streamed_series_on_a_slow_disk_gets_advice_of_its_own() {
        let slow = Some(Waits { disk: Duration::from_millis(400), ..Waits::default() });
        let long = told(SampleStorage::SeriesInFile, 100, 0.4, slow);
        assert!(long[0].1.contains("; raise training.run_length, so that windows share the bars"), "{long:?}");
        assert!(long[0].1.ends_with("or data.cache_gb; or put the file on a faster disk"), "{long:?}");
        let decoded = told(SampleStorage::SeriesInFile, 100, 0.67, decoding(0.61));
        assert!(decoded[0].1.contains("; `megabatch convert` to chunks"), "{decoded:?}");
    }

    #[test]
    fn short_waits_and_short_runs_are_not_told() {
        assert_eq!(told(SampleStorage::Windows, 450, 0.29, decoding(0.23)), []);
        assert_eq!(told(SampleStorage::Windows, 9, 0.9, decoding(0.8)), []);
        let mut watch = WaitWatch::new(SampleStorage::Windows);
        let fast = |at| StepEvent { samples_per_s: 500.0, ..step(at, 0.09, decoding(0.08)) };
        assert!((1..=10).map(|at| Event::Step(fast(at))).chain([epoch(10)]).all(|event| watch.see(&event).is_none()));
        // An epoch's end is enough of a run.
        let long = told(SampleStorage::InMemory, 10, 0.5, None);
        let expected =
            "data: 50 % of the step is putting batches together (50 % is waiting for data); raise training.run_length";
        assert_eq!(long, [(10, expected.to_owned())]);
    }

    #[test]
    fn a_line_of_the_log_has_the_shares() {
        let mut watch = WaitWatch::new(SampleStorage::Windows);
        (1..=20).for_each(|at| assert!(watch.see(&Event::Step(step(at, 0.5, decoding(0.44)))).is_none()));
        let line = watch.see(&epoch(20)).unwrap().metric();
        assert_eq!((&line["event"], &line["step"], &line["cause"]), (&"waiting".into(), &20.into(), &"decode".into()));
        assert!((line["share"].as_f64().unwrap() - 0.5).abs() < 1e-9, "{line}");
        assert!((line["cause_share"].as_f64().unwrap() - 0.44).abs() < 1e-9, "{line}");
    }
}
