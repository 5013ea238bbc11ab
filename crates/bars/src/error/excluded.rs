use std::fmt;

use crate::error::Error;
use crate::time::timestamp::{counted, listed};

/// An instrument that cannot be used, and why.
#[derive(Debug)]
pub struct Excluded {
    /// Its symbol.
    pub symbol: String,
    /// Error of the file.
    pub reason: Error,
}

impl fmt::Display for Excluded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Excluded { symbol, reason } = self;
        let text = reason.to_string();
        // Some reasons begin with the symbol themselves.
        match text.starts_with(&format!("{symbol}:")) {
            true => f.write_str(&text),
            false => write!(f, "{symbol}: {text}"),
        }
    }
}

/// Names all instruments that cannot be used, which is at least one, beside the number of those
/// that can.
pub(crate) fn refused(usable: usize, mut failed: Vec<Excluded>) -> Error {
    match failed.len() {
        1 => failed.swap_remove(0).reason,
        count => Error::Several { instruments: usable + count, failed },
    }
}

/// Instruments that cannot be used, a line each; those with the same fault in one line, and no more
/// than ten lines. Of those with other bars where files overlap three are named: one adjustment
/// changes the prices of all.
pub(crate) struct ExcludedLines<'a>(pub(crate) &'a [Excluded]);

/// Instruments with one fault.
struct OneFault<'a> {
    reason: String,
    excluded: Vec<&'a Excluded>,
}

/// Most lines of one message.
const LINES_MAX: usize = 10;
/// Most instruments with other bars where files overlap that one message names.
const UNLIKE_MAX: usize = 3;

impl<'a> OneFault<'a> {
    fn all(instruments: &[&'a Excluded]) -> Vec<Self> {
        let mut faults: Vec<OneFault<'a>> = Vec::new();
        for &excluded in instruments {
            let reason = excluded.reason.without_path();
            match faults.iter_mut().find(|fault| fault.reason == reason) {
                Some(fault) => fault.excluded.push(excluded),
                None => faults.push(OneFault { reason, excluded: vec![excluded] }),
            }
        }
        faults
    }
}

impl fmt::Display for OneFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.excluded[..] {
            [one] => one.fmt(f),
            [first, ..] => {
                let symbols: Vec<String> = self.excluded.iter().map(|excluded| excluded.symbol.clone()).collect();
                let files = first.reason.path().map(|path| format!("; the first is {}", path.display()));
                write!(
                    f,
                    "{} instruments ({}): {}{}",
                    symbols.len(),
                    listed(&symbols),
                    self.reason,
                    files.unwrap_or_default()
                )
            }
            [] => Ok(()),
        }
    }
}

impl fmt::Display for ExcludedLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_unlike = |excluded: &&Excluded| matches!(excluded.reason, Error::UnlikeBars { .. });
        let (unlike, others): (Vec<&Excluded>, Vec<&Excluded>) = self.0.iter().partition(is_unlike);
        let faults = OneFault::all(&others);
        let mut lines: Vec<String> = faults.iter().take(LINES_MAX).map(ToString::to_string).collect();
        if faults.len() > LINES_MAX {
            lines.push(format!("and {} more", faults.len() - LINES_MAX));
        }
        lines.extend(unlike.iter().take(UNLIKE_MAX).map(ToString::to_string));
        if unlike.len() > UNLIKE_MAX {
            let more = counted((unlike.len() - UNLIKE_MAX) as u64, "more instrument", "more instruments");
            lines.push(format!("and {more} with other bars where the files overlap"));
        }
        f.write_str(&lines.join("\n  "))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::error::bar_difference::BarDifference;

    /// `megabatch ingest shares/` with a header that names no close in all of 88 files wrote 88
    /// lines of one fault.
    #[test]
    fn the_same_fault_of_many_files_is_told_once() {
        let excluded = |count: usize, reason: &dyn Fn(usize) -> String| -> Vec<Excluded> {
            let reason = |k: usize| Error::UnknownFormat {
                path: PathBuf::from(format!("shares/S{k}.csv")),
                reason: reason(k),
                tried: "formats",
                first_line: "Date,Price".to_owned(),
            };
            (0..count).map(|k| Excluded { symbol: format!("S{k}"), reason: reason(k) }).collect()
        };
        let text = ExcludedLines(&excluded(88, &|_| "no `close`".to_owned())).to_string();
        assert_eq!(
            text,
            "88 instruments (S0, S1, S2, S3, S4, S5, S6, S7, S8, S9 and 78 more): no bars recognised (no `close`); tried formats; the \
             first line is `Date,Price`; the first is shares/S0.csv"
        );
        let text = ExcludedLines(&excluded(13, &|k| k.to_string())).to_string();
        assert!(text.starts_with("S0: shares/S0.csv: no bars") && text.ends_with("\n  and 3 more"), "{text}");
        assert_eq!(text.lines().count(), 11);
    }

    /// After a dividend a later download of 29 shares was refused in as many entries.
    #[test]
    fn three_instruments_with_other_bars_are_named() {
        let reason = |k: usize| Error::UnlikeBars {
            path: PathBuf::from("later.csv"),
            line: k as u64,
            time: format!("2018-01-{k:02}"),
            other: PathBuf::from("prices.csv"),
            difference: Box::new(BarDifference::Column),
        };
        let mut excluded: Vec<Excluded> =
            (1..30).map(|k| Excluded { symbol: format!("S{k}"), reason: reason(k) }).collect();
        excluded.push(Excluded { symbol: "S0".to_owned(), reason: Error::NoFiles });
        let text = ExcludedLines(&excluded).to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[0].starts_with("S0: ") && lines[3].starts_with("S3: later.csv: line 3: "), "{text}");
        assert_eq!(lines[4], "and 26 more instruments with other bars where the files overlap");
    }
}
