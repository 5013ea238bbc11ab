//! Counts of one file's dropped and fixed rows.

use std::path::{Path, PathBuf};

use crate::error::message::shortened;
use crate::error::row_error::{OnError, RowError, RowFix};
use crate::error::{Error, Result};
use crate::parse::row::RowFault;

/// Rows of one file that have one thing in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RowCount<K> {
    /// Common reason.
    pub kind: K,
    /// Number of rows.
    pub rows: u64,
    /// Line number, from 1, of the first.
    pub first_line: u64,
}

/// Dropped and fixed rows of one file, counted by kind.
#[derive(Clone, Debug)]
pub(crate) struct RowLedger {
    path: PathBuf,
    on_error: OnError,
    dropped: Vec<RowCount<RowError>>,
    fixed: Vec<RowCount<RowFix>>,
    /// The first row that was dropped, and why.
    first_fault: Option<String>,
}

impl RowLedger {
    pub(crate) fn new(path: PathBuf, on_error: OnError) -> Self {
        RowLedger { path, on_error, dropped: Vec::new(), fixed: Vec::new(), first_fault: None }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True if rows are repaired rather than dropped.
    pub(crate) fn repairs(&self) -> bool {
        self.on_error == OnError::Repair
    }

    /// Drops a row and counts it, or stops at it.
    pub(crate) fn refuse(&mut self, line: u64, fault: RowFault, text: impl FnOnce(&PathBuf) -> Vec<u8>) -> Result<()> {
        let RowFault { kind, expected } = fault;
        if self.on_error == OnError::Fail {
            let text = shortened(&text(&self.path));
            return Err(Error::BadRow { path: self.path.clone(), line, kind, expected, text });
        }
        self.first_fault.get_or_insert_with(|| format!("line {line}, {kind}, expected {expected}"));
        self.drop_row(line, kind);
        Ok(())
    }

    /// Counts a row that is dropped under every [`OnError`].
    pub(crate) fn drop_row(&mut self, line: u64, kind: RowError) {
        count(&mut self.dropped, kind, line);
    }

    /// Counts a row that was fixed.
    pub(crate) fn fix(&mut self, line: u64, fix: RowFix) {
        count(&mut self.fixed, fix, line);
    }

    pub(crate) fn first_fault(&self) -> Option<&str> {
        self.first_fault.as_deref()
    }

    /// Dropped and fixed rows: one entry a kind that occurred, in the order of the kinds.
    pub(crate) fn close(self) -> (Vec<RowCount<RowError>>, Vec<RowCount<RowFix>>) {
        let RowLedger { mut dropped, mut fixed, .. } = self;
        dropped.sort_by_key(|tally| tally.kind);
        fixed.sort_by_key(|tally| tally.kind);
        (dropped, fixed)
    }
}

fn count<K: PartialEq>(tallies: &mut Vec<RowCount<K>>, kind: K, line: u64) {
    match tallies.iter_mut().find(|tally| tally.kind == kind) {
        Some(tally) => {
            tally.rows += 1;
            tally.first_line = tally.first_line.min(line);
        }
        None => tallies.push(RowCount { kind, rows: 1, first_line: line }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_kind_with_the_first_line() {
        let mut ledger = RowLedger::new(PathBuf::new(), OnError::Skip);
        for (line, kind) in [(9, RowError::Backward), (5, RowError::Unreadable), (3, RowError::Unreadable)] {
            ledger.refuse(line, RowFault { kind, expected: "x".to_owned() }, |_| Vec::new()).unwrap();
        }
        ledger.fix(4, RowFix::Sorted);
        ledger.fix(2, RowFix::Exchanged);
        assert_eq!(ledger.first_fault(), Some("line 9, backward timestamp, expected x"));
        let (dropped, fixed) = ledger.close();
        assert_eq!(
            dropped,
            [
                RowCount { kind: RowError::Unreadable, rows: 2, first_line: 3 },
                RowCount { kind: RowError::Backward, rows: 1, first_line: 9 },
            ]
        );
        assert_eq!(fixed.iter().map(|tally| tally.kind).collect::<Vec<_>>(), [RowFix::Exchanged, RowFix::Sorted]);
    }

    #[test]
    fn the_first_fault_stops_where_errors_do() {
        let mut ledger = RowLedger::new(PathBuf::from("bars.csv"), OnError::Fail);
        let fault = RowFault { kind: RowError::Copy, expected: "a row of its own".to_owned() };
        let error = ledger.refuse(7, fault, |_| b"text".to_vec()).unwrap_err().to_string();
        assert!(error.starts_with("bars.csv: line 7: copy of an earlier row: expected a row of its own, found `text`"));
    }
}
