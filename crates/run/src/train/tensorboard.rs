//! tb/: event files for TensorBoard, one a session.

mod message;
mod record;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use megabatch_trainer::{Event, RollbackEvent, StepEvent};

use crate::error::{Context as _, Result};
use message::What;

/// Longest time of values in memory before they are written.
const FLUSH_S: f64 = 2.0;

/// An event file under way.
pub(super) struct EventFile {
    path: PathBuf,
    file: BufWriter<File>,
    /// When values were last handed to the system, in seconds since 1970 UTC.
    flushed_s: f64,
    record: Vec<u8>,
}

impl EventFile {
    /// A new file in `folder`, beside those of earlier sessions, for a run at `step`. It replaces
    /// their values of later steps.
    pub(super) fn create(folder: &Path, time_s: f64, step: u64) -> Result<Self> {
        let fault = || format!("{}: cannot be written to", folder.display());
        fs::create_dir_all(folder).with_context(fault)?;
        let before = fs::read_dir(folder).with_context(fault)?.count();
        // TensorBoard reads files in the order of their names, which is that of the sessions.
        let path = folder.join(format!("events.out.tfevents.{:010}.{before:04}", time_s as u64));
        let file = File::create_new(&path).with_context(|| format!("{}: cannot be written", path.display()))?;
        let mut events = EventFile { path, file: BufWriter::new(file), flushed_s: time_s, record: Vec::new() };
        events.push(What::Version, time_s, 0)?;
        events.push(What::Start, time_s, step + 1)?;
        Ok(events)
    }

    /// Records `event`, which came at `time_s`, seconds since 1970 UTC.
    pub(super) fn see(&mut self, event: &Event<'_>, time_s: f64) -> Result<()> {
        match event {
            Event::Step(step) => {
                let (values, count) = step_values(step);
                self.push(What::Scalars(&values[..count]), time_s, step.step)
            }
            Event::Validation(validation) => {
                self.push(What::Scalars(&[("loss/validation", validation.loss as f32)]), time_s, validation.step)
            }
            Event::Epoch(epoch) => {
                let values = [
                    ("memory/allocated_bytes_peak", epoch.allocated_bytes_peak as f32),
                    ("memory/reserved_bytes", epoch.reserved_bytes as f32),
                ];
                self.push(What::Scalars(&values), time_s, epoch.step)
            }
            Event::Rollback(RollbackEvent { step, .. }) => self.push(What::Start, time_s, step + 1),
            _ => Ok(()),
        }
    }

    /// Writes what is in memory still.
    pub(super) fn finish(mut self) -> Result<()> {
        let flushed = self.file.flush();
        self.told(flushed)
    }

    fn push(&mut self, what: What<'_>, time_s: f64, step: u64) -> Result<()> {
        self.record.clear();
        record::frame(&message::event(what, time_s, step), &mut self.record);
        let mut written = self.file.write_all(&self.record);
        if time_s - self.flushed_s >= FLUSH_S {
            self.flushed_s = time_s;
            written = written.and_then(|()| self.file.flush());
        }
        self.told(written)
    }

    fn told(&self, result: io::Result<()>) -> Result<()> {
        result.with_context(|| format!("{}: cannot write", self.path.display()))
    }
}

/// Tags and values of a step, and how many of them there are.
fn step_values(step: &StepEvent) -> ([(&'static str, f32); 7], usize) {
    let whole_s = step.samples as f64 / step.samples_per_s;
    let values = [
        ("loss/training", step.loss as f32),
        ("learning_rate", step.lr as f32),
        ("grad_norm", step.grad_norm as f32),
        ("speed/samples_per_s", step.samples_per_s as f32),
        ("speed/data_wait_share", (step.data_wait_s / whole_s) as f32),
        ("memory/allocated_bytes", step.allocated_bytes as f32),
        ("loss_scale", step.loss_scale.unwrap_or(f32::NAN)),
    ];
    (values, if step.loss_scale.is_some() { 7 } else { 6 })
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    /// The bodies of a file's records; fails where their lengths do not add up.
    fn records(path: &Path) -> Vec<Vec<u8>> {
        let (mut bytes, mut records) = (fs::read(path).unwrap(), Vec::new());
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            records.push(bytes[12..12 + length].to_vec());
            bytes.drain(..length + 16);
        }
        records
    }

    fn has(record: &[u8], text: &[u8]) -> bool {
        record.windows(text.len()).any(|window| window == text)
    }

    #[test]
    fn every_session_has_a_file_that_begins_where_the_run_stands() {
        let folder = tempfile::tempdir().unwrap();
        let tb = folder.path().join("tb");
        for (first, steps) in [(0, 1..=3), (2, 3..=4)] {
            let mut events = EventFile::create(&tb, 1_000.0, first).unwrap();
            for at in steps {
                events.see(&Event::Step(fixtures::step(at)), 1_000.5).unwrap();
            }
            events.see(&fixtures::epoch(0, 4), 1_001.0).unwrap();
            events.finish().unwrap();
        }
        let mut files: Vec<PathBuf> = fs::read_dir(&tb).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let names: Vec<_> = files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["events.out.tfevents.0000001000.0000", "events.out.tfevents.0000001000.0001"]);
        for (file, (steps, first)) in files.iter().zip([(3, 1), (2, 3)]) {
            let records = records(file);
            assert_eq!(records.len(), 2 + steps + 1);
            assert!(has(&records[0], b"brain.Event:2"));
            assert_eq!(records[1], message::event(What::Start, 1_000.0, first));
            assert!(
                records[2..2 + steps].iter().all(|record| has(record, b"loss/training") && !has(record, b"loss_scale"))
            );
            assert!(has(&records[2 + steps], b"memory/reserved_bytes"));
        }
    }

    #[test]
    fn values_are_written_every_other_second_and_a_rollback_voids_steps() {
        let folder = tempfile::tempdir().unwrap();
        let mut events = EventFile::create(folder.path(), 1_000.0, 0).unwrap();
        let size = |events: &EventFile| fs::metadata(&events.path).unwrap().len();
        let scaled = StepEvent { loss_scale: Some(8.0), ..fixtures::step(1) };
        events.see(&Event::Step(scaled), 1_001.9).unwrap();
        assert_eq!(size(&events), 0);
        events.see(&Event::Step(fixtures::step(2)), 1_002.0).unwrap();
        assert!(size(&events) > 0);
        let (step, cause) = (1, String::new());
        let rollback =
            RollbackEvent { step, failed_step: 3, loss: 1.0, cause, rollbacks: 1, max_rollbacks: 3, rate_factor: 0.5 };
        events.see(&Event::Rollback(rollback), 1_002.5).unwrap();
        let path = events.path.clone();
        events.finish().unwrap();
        let records = records(&path);
        assert!(has(&records[2], b"loss_scale") && !has(&records[3], b"loss_scale"));
        assert_eq!(records[4], message::event(What::Start, 1_002.5, 2));
    }
}
