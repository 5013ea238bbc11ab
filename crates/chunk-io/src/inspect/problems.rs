#![forbid(unsafe_code)]

use serde::Serialize;

use super::listing::DatasetEntry;
use super::previous_of_same_instrument;
use super::statistics::{ColumnStatistics, Occurrences};
use crate::error::Fault;
use crate::table::Table;

/// How grave a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// Training on the file fails or is worthless.
    Error,
    /// Training works and something is probably not as intended.
    Warning,
    /// Worth knowing.
    Note,
}

/// Something wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// How grave it is.
    pub severity: Severity,
    /// The object in the file.
    pub object: String,
    /// Where in the object, by axis from the first; empty if it is about the whole.
    pub index: Vec<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub fix: String,
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        })
    }
}

impl Problem {
    /// A broken rule of the layout.
    pub(super) fn from_fault(fault: Fault) -> Self {
        Problem {
            severity: Severity::Error,
            index: fault.index.into_iter().collect(),
            message: format!("expected {}, found {}", fault.expected, fault.found),
            object: fault.object,
            fix: fault.fix,
        }
    }
}

/// Values that no model can learn from.
pub(super) fn in_columns(object: &str, columns: &[ColumnStatistics]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for column in columns {
        let mut add = |severity, occurrences: &Occurrences, message: String, fix: &str| {
            let index = occurrences.first.clone().unwrap_or_default();
            problems.push(Problem { severity, object: object.to_owned(), index, message, fix: fix.to_owned() });
        };
        for (occurrences, what) in [(&column.nan, "NaN"), (&column.infinite, "infinity")] {
            if occurrences.count > 0 {
                let message = format!("column {} has {} values of {what}", column.name, occurrences.count);
                add(Severity::Error, occurrences, message, "drop or repair these rows where the file is made");
            }
        }
        if column.count > 1 && column.min == column.max {
            let message = format!("column {} is constant at {}", column.name, column.min.unwrap_or_default());
            add(Severity::Warning, &Occurrences::default(), message, "drop it: it tells the model nothing");
        }
    }
    problems
}

/// Samples that are not in the order of time.
pub(super) fn in_times(object: &str, times: &[i64], instruments: Option<&[i32]>) -> Option<Problem> {
    let (n, earlier) = previous_of_same_instrument(times, instruments).find(|&(n, earlier)| times[n] <= earlier)?;
    let relation = if times[n] == earlier { "equals" } else { "is before" };
    Some(Problem {
        severity: Severity::Warning,
        object: object.to_owned(),
        index: vec![n],
        message: format!("the time {} {relation} that of the sample before, {earlier}", times[n]),
        fix: "sort the samples by time, so that consecutive samples share bars".to_owned(),
    })
}

pub(super) fn without_times() -> Problem {
    Problem {
        severity: Severity::Note,
        object: "/timestamps".to_owned(),
        index: Vec::new(),
        message: "the file has no times, so that it can be split by position only".to_owned(),
        fix: "add /timestamps [N], int64, ns since 1970 UTC".to_owned(),
    }
}

/// What the datasets' storage tells, whatever the layout.
pub(super) fn in_storage(datasets: &[DatasetEntry]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for dataset in datasets {
        let mut add = |severity, message: String, fix: &str| {
            let object = dataset.path.clone();
            problems.push(Problem { severity, object, index: Vec::new(), message, fix: fix.to_owned() });
        };
        for filter in &dataset.filters_unknown {
            let message = format!("the filter {filter} is not built in");
            add(Severity::Error, message, "rewrite the dataset with gzip, lzf or no filter");
        }
        if dataset.bytes_on_disk == 0 && dataset.bytes_uncompressed > 0 {
            let message = format!("shape {:?} is declared, but no value was ever written", dataset.shape);
            add(Severity::Warning, message, "write the file again; whoever wrote it probably stopped early");
        }
    }
    problems
}

/// Reading one sample costs this many times its size, and at least these bytes, before it is called expensive.
const EXPENSIVE_RATIO: usize = 16;
const EXPENSIVE_BYTES: usize = 1 << 20;

/// Chunks that are decoded whole for the sake of a single sample.
pub(super) fn in_chunks(table: &Table) -> Option<Problem> {
    let chunk = table.dataset.chunk()?;
    if table.dataset.filters().is_empty() {
        return None;
    }
    let across = table.shape.iter().zip(&chunk).skip(1).map(|(axis, chunk)| axis.div_ceil(*chunk)).product::<usize>();
    let decoded = chunk.iter().fold(across, |elements, &axis| elements.saturating_mul(axis));
    let decoded_bytes = decoded.saturating_mul(table.dataset.dtype().ok()?.size());
    let ratio = decoded / table.row_len();
    if ratio < EXPENSIVE_RATIO || decoded_bytes <= EXPENSIVE_BYTES {
        return None;
    }
    Some(Problem {
        severity: Severity::Warning,
        object: table.object.clone(),
        index: Vec::new(),
        message: format!(
            "chunks of {chunk:?}: reading one sample decodes {ratio} times its size, {decoded_bytes} bytes"
        ),
        fix: "read samples in long runs, or write chunks of fewer samples".to_owned(),
    })
}
