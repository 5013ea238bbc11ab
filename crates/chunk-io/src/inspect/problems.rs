use serde::Serialize;

use super::listing::DatasetEntry;
use super::previous_of_same_instrument;
use super::statistics::{ColumnStatistics, Occurrences};
use crate::error::LayoutFault;
use crate::numeric_dataset::NumericDataset;
use crate::spans::{LABEL_END, TimeUnit};

/// Severity of a [`Problem`].
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

/// Kinds of problems that a caller can give further advice on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A feature has one value in all samples.
    ConstantFeature,
    /// Any other problem.
    Other,
}

/// Something wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// Kind; not serialised.
    #[serde(skip)]
    pub kind: ProblemKind,
    /// Severity.
    pub severity: Severity,
    /// The object in the file.
    pub object: String,
    /// Index in the object, by axis from the first; empty if it is about the whole.
    pub index: Vec<usize>,
    /// Description of the problem.
    pub message: String,
    /// Fix.
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
    pub(super) fn from_fault(fault: LayoutFault) -> Self {
        Problem {
            kind: ProblemKind::Other,
            severity: Severity::Error,
            index: fault.index.into_iter().collect(),
            message: format!("expected {}, found {}", fault.expected, fault.found),
            object: fault.object,
            fix: fault.fix,
        }
    }
}

/// Kind of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// Features of the model.
    Features,
    /// Targets: NaN where unknown.
    Targets,
}

impl ColumnKind {
    fn if_constant(self) -> &'static str {
        match self {
            ColumnKind::Features => "it tells the model nothing; leave it out when the file is made",
            ColumnKind::Targets => "there is nothing to learn from it; look at how the file was made",
        }
    }
}

/// Values that no model can learn from.
pub(super) fn in_columns(object: &str, columns: &[ColumnStatistics], kind: ColumnKind) -> Vec<Problem> {
    let mut problems = Vec::new();
    for column in columns {
        let mut add = |severity, occurrences: &Occurrences, message: String, fix: &str| {
            let index = occurrences.first.clone().unwrap_or_default();
            problems.push(Problem {
                kind: ProblemKind::Other,
                severity,
                object: object.to_owned(),
                index,
                message,
                fix: fix.to_owned(),
            });
        };
        for (occurrences, what) in [(&column.nan, "NaN"), (&column.infinite, "infinity")] {
            if occurrences.count == 0 {
                continue;
            }
            let message = format!("column {} has {} values of {what}", column.name, occurrences.count);
            match (kind, what) {
                (ColumnKind::Targets, "NaN") => {
                    add(
                        Severity::Note,
                        occurrences,
                        message,
                        "nothing, where they are not known: they count in no loss and no error",
                    );
                }
                _ => add(Severity::Error, occurrences, message, "drop or repair these rows where the file is made"),
            }
        }
        if column.count > 1 && column.min == column.max {
            let message = format!("column {} is constant at {}", column.name, column.min.unwrap_or_default());
            add(Severity::Warning, &Occurrences::default(), message, kind.if_constant());
            if let (ColumnKind::Features, Some(problem)) = (kind, problems.last_mut()) {
                problem.kind = ProblemKind::ConstantFeature;
            }
        }
    }
    problems
}

/// Samples that are not in the order of time.
pub(super) fn in_times(object: &str, times: &[i64], instruments: Option<&[i32]>) -> Option<Problem> {
    let (n, earlier) = previous_of_same_instrument(times, instruments).find(|&(n, earlier)| times[n] <= earlier)?;
    let relation = if times[n] == earlier { "equals" } else { "is before" };
    Some(Problem {
        kind: ProblemKind::Other,
        severity: Severity::Warning,
        object: object.to_owned(),
        index: vec![n],
        message: format!("the time {} {relation} that of the sample before, {earlier}", times[n]),
        fix: "sort the samples by time, so that consecutive samples share bars".to_owned(),
    })
}

/// Times of a series that are plausible in another unit only.
pub(super) fn in_unit(object: &str, first: i64, last: i64) -> Option<Problem> {
    let TimeUnit { name, ns } = TimeUnit::mistaken_for_ns(first, last)?;
    Some(Problem {
        kind: ProblemKind::Other,
        severity: Severity::Warning,
        object: object.to_owned(),
        index: Vec::new(),
        message: format!("the times look like {name}: as nanoseconds they all lie in January 1970"),
        fix: format!("multiply them by {ns}, so that they are ns since 1970 UTC"),
    })
}

pub(super) fn without_times() -> Problem {
    Problem {
        kind: ProblemKind::Other,
        severity: Severity::Note,
        object: "/timestamps".to_owned(),
        index: Vec::new(),
        message: "the file has no times, so that it can be split by position only".to_owned(),
        fix: "add /timestamps [N], int64, ns since 1970 UTC".to_owned(),
    }
}

/// A windows file without times, which has `list` of them for the spans of its samples.
pub(super) fn without_times_beside(list: &str) -> Problem {
    Problem {
        severity: Severity::Warning,
        message: format!("the file has {list} and no times of its samples, so that the list is not read"),
        ..without_times()
    }
}

/// A file that does not tell when its labels end.
pub(super) fn without_label_ends() -> Problem {
    Problem {
        kind: ProblemKind::Other,
        severity: Severity::Warning,
        object: LABEL_END.to_owned(),
        index: Vec::new(),
        message: "the file does not tell when its labels end, so that a split cannot keep them out of later parts"
            .to_owned(),
        fix: "add this list [N], int64, ns since 1970 UTC, or the root attribute horizon_bars, an integer: \
              bars from a sample to the end of its farthest target"
            .to_owned(),
    }
}

/// Problems of the datasets' storage, in any layout.
pub(super) fn in_storage(datasets: &[DatasetEntry]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for dataset in datasets {
        let mut add = |severity, message: String, fix: &str| {
            let object = dataset.path.clone();
            problems.push(Problem {
                kind: ProblemKind::Other,
                severity,
                object,
                index: Vec::new(),
                message,
                fix: fix.to_owned(),
            });
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

/// Reading one sample is called expensive from this many times its size on, and at least these
/// bytes.
const EXPENSIVE_RATIO: usize = 16;
const EXPENSIVE_BYTES: usize = 1 << 20;

/// Chunks that are decoded whole for the sake of a single sample.
pub(super) fn in_chunks(table: &NumericDataset) -> Option<Problem> {
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
        kind: ProblemKind::Other,
        severity: Severity::Warning,
        object: table.object.clone(),
        index: Vec::new(),
        message: format!(
            "chunks of {chunk:?}: reading one sample decodes {ratio} times its size, {decoded_bytes} bytes"
        ),
        fix: "read samples in long runs, or write chunks of fewer samples".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_another_unit_are_told_by_what_they_would_be_in_it() {
        let july_2018_s = 1_530_403_200;
        for (per_second, expected) in [(1, "seconds"), (1_000, "milliseconds"), (1_000_000, "microseconds")] {
            let problem = in_unit("/timestamps", july_2018_s * per_second, (july_2018_s + 9) * per_second).unwrap();
            assert!(problem.message.contains(&format!("look like {expected}:")), "{}", problem.message);
        }
        assert_eq!(in_unit("/timestamps", july_2018_s * 1_000_000_000, i64::MAX), None);
        assert_eq!(in_unit("/timestamps", 0, 600), None);
    }
}
