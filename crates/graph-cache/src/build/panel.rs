//! Observations of many nodes over time.

#![forbid(unsafe_code)]

use std::collections::HashSet;

use super::date::iso;
use crate::error::{Error, Result};

/// Observations of N nodes on D days, or at any other instants: what correlation graphs are built
/// from. A view.
///
/// What is no number, or above 10¹⁰⁰ in magnitude, so that its square is none that is of use,
/// counts as not observed.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    names: &'a [String],
    times: &'a [i64],
    known: &'a [i64],
    values: &'a [f64],
}

impl<'a> Panel<'a> {
    /// The panel of nodes called `names` `[N]`, no two alike, with `values` `[N, D]` row-major, a
    /// node a row, at `times`.
    ///
    /// `times` are two arrays `[D]` in ns since 1970 UTC: what each day is called by, such as when
    /// it begins, increasing; and when its observations were known, which never decreases.
    ///
    /// # Errors
    /// [`Error::Data`] where lengths do not fit together, names are equal or times are out of
    /// order.
    pub fn new(names: &'a [String], times: &'a [i64], known: &'a [i64], values: &'a [f64]) -> Result<Self> {
        let data = |object: String, expected: String| Err(Error::Data { object, expected });
        if known.len() != times.len() {
            return data(format!("{} times of knowing", known.len()), format!("one for each of {} days", times.len()));
        }
        if names.len().checked_mul(times.len()) != Some(values.len()) {
            let expected = format!("one for each of {} names on each of {} days", names.len(), times.len());
            return data(format!("{} observations", values.len()), expected);
        }
        if let Some(at) = times.windows(2).position(|pair| pair[0] >= pair[1]) {
            return data(
                format!("the time of day {}, {}", at + 1, iso(times[at + 1])),
                "later than that before".into(),
            );
        }
        if let Some(at) = known.windows(2).position(|pair| pair[0] > pair[1]) {
            let object = format!("day {}, known at {}", at + 1, iso(known[at + 1]));
            return data(object, format!("known no earlier than day {at}, at {}", iso(known[at])));
        }
        let mut seen = HashSet::new();
        if let Some(name) = names.iter().find(|name| !seen.insert(name.as_str())) {
            return data(format!("the name {name:?} of two nodes"), "a name of one".into());
        }
        Ok(Panel { names, times, known, values })
    }

    /// Names of the nodes, `[N]`.
    pub fn names(&self) -> &'a [String] {
        self.names
    }

    /// D.
    pub fn days(&self) -> usize {
        self.times.len()
    }

    /// Time of each day, `[D]`.
    pub fn times(&self) -> &'a [i64] {
        self.times
    }

    /// When the observations of each day were known, `[D]`.
    pub fn known(&self) -> &'a [i64] {
        self.known
    }

    /// `[N, D]` row-major.
    pub fn values(&self) -> &'a [f64] {
        self.values
    }

    /// The observations of a node, `[D]`.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn series(&self, node: usize) -> &'a [f64] {
        &self.values[node * self.days()..][..self.days()]
    }

    /// The key of a day's graph: its date, such as `2021-04-21`, or date and time where days of
    /// this panel are less than a date apart, such as `2021-04-21T14:30:00Z`.
    pub fn keys(&self) -> Vec<String> {
        let whole: Vec<String> = self.times.iter().map(|&time| iso(time)).collect();
        let date = |key: &String| key[..key.find('T').expect("an instant has a date and a time")].to_owned();
        let dates: Vec<String> = whole.iter().map(date).collect();
        if dates.windows(2).all(|pair| pair[0] != pair[1]) { dates } else { whole }
    }

    /// The first day on which anything was observed; D where there is none.
    pub(crate) fn first_observed(&self) -> usize {
        let days = self.days();
        (0..days).find(|&day| (0..self.names.len()).any(|node| is_observed(self.series(node)[day]))).unwrap_or(days)
    }
}

/// True if a value of a panel is an observation.
#[inline(always)]
pub(crate) fn is_observed(value: f64) -> bool {
    value.abs() <= 1e100
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: i64 = 86_400_000_000_000;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|k| format!("N{k}")).collect()
    }

    #[test]
    fn a_day_is_called_by_its_date_where_dates_tell_days_apart() {
        let names = names(1);
        let keys = |times: &[i64]| Panel::new(&names, times, times, &vec![0.0; times.len()]).unwrap().keys();
        assert_eq!(keys(&[0, DAY_NS, 3 * DAY_NS + 1]), ["1970-01-01", "1970-01-02", "1970-01-04"]);
        assert_eq!(keys(&[0, DAY_NS - 1]), ["1970-01-01T00:00:00Z", "1970-01-01T23:59:59.999999999Z"]);
    }

    #[test]
    fn what_makes_no_panel_is_said() {
        let cases: &[(&[i64], &[i64], usize, &str)] = &[
            (&[0, 1], &[0], 4, "1 times of knowing"),
            (&[0, 1], &[0, 1], 3, "3 observations"),
            (&[1, 1], &[1, 1], 4, "the time of day 1, 1970-01-01T00:00:00.000000001Z: expected later"),
            (&[1, 2], &[1, 0], 4, "day 1, known at 1970-01-01T00:00:00Z: expected known no earlier than day 0"),
        ];
        for &(times, known, values, expected) in cases {
            let error = Panel::new(&names(2), times, known, &vec![0.0; values]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let twice = ["A".to_owned(), "A".to_owned()];
        let error = Panel::new(&twice, &[0], &[0], &[0.0; 2]).unwrap_err().to_string();
        assert!(error.contains("\"A\""), "{error}");
    }

    #[test]
    fn days_before_the_first_observation_are_known() {
        let (names, nan) = (names(2), f64::NAN);
        let first = |values: &[f64]| Panel::new(&names, &[0, 1, 2], &[0, 1, 2], values).unwrap().first_observed();
        assert_eq!(first(&[nan, 0.0, 1.0, nan, nan, 1.0]), 1);
        assert_eq!(first(&[f64::INFINITY, nan, nan, nan, nan, nan]), 3);
    }
}
