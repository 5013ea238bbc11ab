//! Reading metrics.jsonl while a run writes it.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::Value;

/// A reader of a growing log. A rollback or a resumed run rewrites the log without its last lines.
pub(crate) struct LogFollower {
    path: PathBuf,
    /// Bytes up to the end of the last whole line that was read.
    read_bytes: u64,
    /// The last line read, with its line end. While it is in its place, nothing before it has
    /// changed.
    last: Vec<u8>,
    /// When the log was last written to.
    pub(crate) written: Option<SystemTime>,
}

/// Changes of the log since the last look.
#[derive(Debug, PartialEq)]
pub(crate) enum LogUpdate {
    /// These lines.
    More(Vec<Value>),
    /// The log was rewritten: all of its lines.
    Anew(Vec<Value>),
}

impl LogFollower {
    /// A reader of the log at `path`, which need not exist yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        LogFollower { path, read_bytes: 0, last: Vec::new(), written: None }
    }

    /// New lines. A last line is read once it has its line end. A line that is no JSON is skipped.
    ///
    /// # Errors
    /// A log that exists and cannot be read.
    pub(crate) fn look(&mut self) -> io::Result<LogUpdate> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(self.begin_anew()),
            Err(error) => return Err(error),
        };
        self.written = file.metadata()?.modified().ok();
        if self.read_bytes > 0 && !self.stands(&mut file)? {
            self.begin_anew();
            return Ok(LogUpdate::Anew(self.read_on(&mut file)?));
        }
        Ok(LogUpdate::More(self.read_on(&mut file)?))
    }

    fn begin_anew(&mut self) -> LogUpdate {
        let had_any = std::mem::take(&mut self.read_bytes) > 0;
        self.last.clear();
        if had_any { LogUpdate::Anew(Vec::new()) } else { LogUpdate::More(Vec::new()) }
    }

    /// True if the last line that was read is where it was.
    fn stands(&self, file: &mut File) -> io::Result<bool> {
        file.seek(SeekFrom::Start(self.read_bytes - self.last.len() as u64))?;
        let mut found = vec![0; self.last.len()];
        match file.read_exact(&mut found) {
            Ok(()) => Ok(found == self.last),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn read_on(&mut self, file: &mut File) -> io::Result<Vec<Value>> {
        file.seek(SeekFrom::Start(self.read_bytes))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let lines = bytes[..whole].split_inclusive(|&byte| byte == b'\n');
        if let Some(last) = lines.clone().next_back() {
            self.last = last.to_vec();
        }
        self.read_bytes += whole as u64;
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use serde_json::json;

    use super::*;
    use crate::run_folder::{MetricsLog, ResumePoint, RunFolder};

    fn line(step: u64) -> Value {
        json!({ "event": "step", "step": step })
    }

    #[test]
    fn a_log_is_read_as_it_grows_and_a_line_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut follower = LogFollower::new(path.clone());
        assert_eq!(follower.look().unwrap(), LogUpdate::More(vec![]), "there is none yet");
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
        let text = format!("{}\n{}\n", line(1), line(2));
        // Whatever is written at once, each line is told once, and when it is whole.
        let mut told = Vec::new();
        for byte in text.bytes() {
            file.write_all(&[byte]).unwrap();
            let LogUpdate::More(lines) = follower.look().unwrap() else { panic!("the log only grew") };
            assert!(lines.is_empty() || byte == b'\n');
            told.extend(lines);
        }
        assert_eq!(told, [line(1), line(2)]);
        file.write_all(b"no JSON\n").unwrap();
        assert_eq!(follower.look().unwrap(), LogUpdate::More(vec![]));
        assert!(follower.written.is_some());
    }

    #[test]
    fn a_log_that_goes_back_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let mut follower = LogFollower::new(run.metrics_file());
        let mut log = MetricsLog::open_at(&run, ResumePoint::default()).unwrap();
        (1..=3).for_each(|step| log.push(&line(step)).unwrap());
        assert_eq!(follower.look().unwrap(), LogUpdate::More(vec![line(1), line(2), line(3)]));
        let mut log = MetricsLog::open_at(&run, ResumePoint { step: 1, rollbacks: 0 }).unwrap();
        assert_eq!(follower.look().unwrap(), LogUpdate::Anew(vec![line(1)]));
        log.push(&line(2)).unwrap();
        assert_eq!(follower.look().unwrap(), LogUpdate::More(vec![line(2)]));
        // It went back, and has become longer than it was, between two looks.
        let mut log = MetricsLog::open_at(&run, ResumePoint { step: 1, rollbacks: 0 }).unwrap();
        let rollback = json!({ "event": "rollback", "step": 1, "rollbacks": 1 });
        log.push(&rollback).unwrap();
        log.push(&line(2)).unwrap();
        assert_eq!(follower.look().unwrap(), LogUpdate::Anew(vec![line(1), rollback, line(2)]));
        fs::remove_file(run.metrics_file()).unwrap();
        assert_eq!(follower.look().unwrap(), LogUpdate::Anew(vec![]));
        assert_eq!(follower.look().unwrap(), LogUpdate::More(vec![]));
    }

    #[test]
    fn a_log_that_is_cut_anywhere_is_read_up_to_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let text: String = (1..=4).map(|step| format!("{}\n", line(step))).collect();
        for length in 0..=text.len() {
            fs::write(&path, &text).unwrap();
            let mut follower = LogFollower::new(path.clone());
            follower.look().unwrap();
            fs::write(&path, &text[..length]).unwrap();
            let whole: Vec<Value> = (1..=text[..length].matches('\n').count() as u64).map(line).collect();
            let expected = if length == text.len() { LogUpdate::More(vec![]) } else { LogUpdate::Anew(whole) };
            assert_eq!(follower.look().unwrap(), expected, "cut after {length} bytes");
        }
    }
}
