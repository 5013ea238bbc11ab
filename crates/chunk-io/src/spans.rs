//! Times between which samples and their targets read bars. Both layouts keep them in the same
//! datasets.

use std::path::Path;

use megabatch_gpu_core::{Buffer, Scope};

use crate::error::{Error, LayoutFault, Result};
use crate::file::InputFile;
use crate::numeric_dataset::{ElementKind, Expect};
use crate::text::AttributeValue;

pub(crate) const REACH: &str = "/samples/reach_time";
pub(crate) const LABEL_END: &str = "/samples/label_end_time";
const HORIZON_BARS: &str = "horizon_bars";

pub(crate) const TIMES: Expect =
    Expect { what: "integers [N], ns since 1970 UTC", kinds: &[ElementKind::Integer], ranks: 1..=1 };

/// Times between which each sample of a file and its targets read bars.
#[derive(Debug, Default)]
pub struct SpanTimes {
    reach_time: Option<Buffer<i64>>,
    label_end_time: Option<Buffer<i64>>,
}

impl SpanTimes {
    /// Reads both lists into memory booked on `scope` and holds them against the samples' times.
    ///
    /// # Errors
    /// [`Error::Invalid`] for lists of another length than `times_object`, and for times that
    /// cannot be.
    pub(crate) fn open(file: &InputFile, times_object: &str, sample_time: &[i64], scope: &Scope) -> Result<Self> {
        let read = |object: &str| -> Result<Option<Buffer<i64>>> {
            if !file.has_dataset(object) {
                return Ok(None);
            }
            let table = file.table(object, &TIMES)?;
            table.require_rows(sample_time.len(), times_object)?;
            table.read_buffer(scope).map(Some)
        };
        Self::new(read(REACH)?, read(LABEL_END)?, sample_time, &file.path)
    }

    /// Both lists of the file at `path`, held against the samples' times.
    ///
    /// # Errors
    /// [`Error::Invalid`] for times that cannot be.
    pub(crate) fn new(
        reach_time: Option<Buffer<i64>>,
        label_end_time: Option<Buffer<i64>>,
        sample_time: &[i64],
        path: &Path,
    ) -> Result<Self> {
        let spans = SpanTimes { reach_time, label_end_time };
        let checked = check_reach(spans.reach_times().unwrap_or_default(), sample_time, 0)
            .and_then(|()| check_label_end(spans.label_end_times().unwrap_or_default(), sample_time, 0));
        checked.map_err(|fault| Error::invalid(path, fault))?;
        Ok(spans)
    }

    /// Open time of the earliest bar that each sample depends on, `[N]`, ns since 1970 UTC; `None`
    /// if the file does not have it.
    pub fn reach_times(&self) -> Option<&[i64]> {
        self.reach_time.as_ref().map(Buffer::as_slice)
    }

    /// Close time of the last bar that each sample's targets read, `[N]`, ns since 1970 UTC; `None`
    /// if the file does not have it.
    pub fn label_end_times(&self) -> Option<&[i64]> {
        self.label_end_time.as_ref().map(Buffer::as_slice)
    }
}

/// The root attribute `horizon_bars`: base bars from a sample to the end of its farthest target.
///
/// # Errors
/// [`Error::Invalid`] for an attribute that is no whole number from 0 on.
pub(crate) fn horizon_bars(file: &InputFile) -> Result<Option<usize>> {
    let found = match file.attribute("/", HORIZON_BARS)? {
        None => return Ok(None),
        Some(AttributeValue::Int(bars)) => match usize::try_from(bars) {
            Ok(bars) => return Ok(Some(bars)),
            Err(_) => bars.to_string(),
        },
        Some(AttributeValue::Float(value)) => format!("the float {value}"),
        Some(AttributeValue::Text(text)) => format!("the text {text:?}"),
        Some(AttributeValue::Other(kind)) => kind,
    };
    let fault = LayoutFault {
        object: format!("/@{HORIZON_BARS}"),
        index: None,
        expected: "an integer from 0 on, the base bars from a sample to the end of its farthest target".to_owned(),
        found,
        fix: format!("write one number, in h5py such as `f.attrs[\"{HORIZON_BARS}\"] = 120`"),
    };
    Err(Error::invalid(&file.path, fault))
}

/// Checks the times to which samples reach back, where they are known. The first sample has the
/// number `first`.
pub(crate) fn check_reach(reach_time: &[i64], sample_time: &[i64], first: usize) -> Result<(), LayoutFault> {
    let Some(n) = reach_time.iter().zip(sample_time).position(|(reach, time)| reach >= time) else { return Ok(()) };
    Err(LayoutFault {
        object: REACH.to_owned(),
        index: Some(first + n),
        expected: format!("a time before the sample's, {}", sample_time[n]),
        found: reach_time[n].to_string(),
        fix: "give the time at which the earliest bar opened that had a part in the sample".to_owned(),
    })
}

/// Checks the times at which labels of samples end, where they are known. The first sample has the
/// number `first`.
pub(crate) fn check_label_end(label_end_time: &[i64], sample_time: &[i64], first: usize) -> Result<(), LayoutFault> {
    let Some(n) = label_end_time.iter().zip(sample_time).position(|(end, time)| end < time) else { return Ok(()) };
    Err(LayoutFault {
        object: LABEL_END.to_owned(),
        index: Some(first + n),
        expected: format!("the sample's time, {}, or a later one", sample_time[n]),
        found: label_end_time[n].to_string(),
        fix: "give the time at which the last bar closed that the sample's targets read".to_owned(),
    })
}

/// A unit of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeUnit {
    pub(crate) name: &'static str,
    pub(crate) ns: i64,
}

/// The end of January 1970 in seconds since 1970. Seconds, milliseconds and microseconds of today
/// are nanoseconds before it.
const JANUARY_END_S: i64 = 31 * 86_400;
/// 2040 in seconds since 1970.
const LATEST_S: i64 = 2_208_988_800;

impl TimeUnit {
    /// The unit that fits times from `first` to `last` which as nanoseconds all lie in January
    /// 1970; `None` where they do not, or where no unit fits.
    pub(crate) fn mistaken_for_ns(first: i64, last: i64) -> Option<Self> {
        const SECOND_NS: i64 = 1_000_000_000;
        if first < 0 || last >= JANUARY_END_S * SECOND_NS {
            return None;
        }
        let units = [("seconds", SECOND_NS), ("milliseconds", 1_000_000), ("microseconds", 1_000)];
        let seconds = |time: i64, ns: i64| i128::from(time) * i128::from(ns) / i128::from(SECOND_NS);
        let fits =
            |ns: i64| seconds(first, ns) >= i128::from(JANUARY_END_S) && seconds(last, ns) < i128::from(LATEST_S);
        units.into_iter().find(|&(_, ns)| fits(ns)).map(|(name, ns)| TimeUnit { name, ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_another_unit_are_told_from_nanoseconds() {
        // 1975-01-01 and 2024-01-02 in seconds.
        let (early, late) = (157_766_400, 1_704_153_600);
        let unit = |first: i64, last: i64| TimeUnit::mistaken_for_ns(first, last).map(|unit| (unit.name, unit.ns));
        assert_eq!(unit(early, late), Some(("seconds", 1_000_000_000)));
        assert_eq!(unit(early * 1_000, late * 1_000), Some(("milliseconds", 1_000_000)));
        assert_eq!(unit(early * 1_000_000, late * 1_000_000), Some(("microseconds", 1_000)));
        for (first, last) in [
            (early * 1_000_000_000, late * 1_000_000_000),
            // Daily bars of 1970, and of the years before.
            (86_400_000_000_000, 300 * 86_400_000_000_000),
            (-86_400_000_000_000, 0),
            (0, 1_000),
            (i64::MIN, i64::MAX),
        ] {
            assert_eq!(unit(first, last), None, "{first} to {last}");
        }
    }

    #[test]
    fn a_sample_reaches_back() {
        assert!(check_reach(&[], &[1, 2], 0).is_ok());
        assert!(check_reach(&[0, -9], &[1, 2], 0).is_ok());
        let fault = check_reach(&[0, 2], &[1, 2], 0).unwrap_err().to_string();
        assert!(fault.contains("/samples/reach_time[1]: expected a time before the sample's, 2, found 2"), "{fault}");
    }

    #[test]
    fn a_label_ends_no_earlier_than_its_sample() {
        assert!(check_label_end(&[], &[1, 2], 0).is_ok());
        assert!(check_label_end(&[1, 9], &[1, 2], 0).is_ok());
        let fault = check_label_end(&[1, 1], &[1, 2], 0).unwrap_err().to_string();
        assert!(
            fault.contains("/samples/label_end_time[1]: expected the sample's time, 2, or a later one, found 1"),
            "{fault}"
        );
    }
}
