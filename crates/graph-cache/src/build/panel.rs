//! Observations of many nodes over time.

use std::collections::HashSet;

use crate::error::{Error, Result};

/// Observations of N nodes on D days, or at any other instants, for correlation graphs. A view.
///
/// NaN, infinity and values above 10¹⁰⁰ in magnitude, whose square would overflow, count as not
/// observed.
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
    /// `times` are two arrays `[D]` in ns since 1970 UTC: the name of each day, such as its start,
    /// increasing; and the time at which its observations became known, never decreasing.
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

    /// Time at which the observations of each day became known, `[D]`.
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

    /// The key of a day's graph: its date, such as `2021-04-21`, or date and time if the panel has
    /// several days of one date, such as `2021-04-21T14:30:00Z`.
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

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 86_400 * SECOND_NS;

/// An instant in ns since 1970 UTC as ISO 8601 has it: `2021-04-21T14:30:00Z`, with a fraction
/// where there is one.
///
/// The date is that of the proleptic Gregorian calendar, by the arithmetic of Hinnant,
/// *chrono-compatible low-level date algorithms* (2013), `civil_from_days`: eras of 400 years,
/// which have 146,097 days, of years that begin in March.
fn iso(time_ns: i64) -> String {
    let (days, in_day) = (time_ns.div_euclid(DAY_NS), time_ns.rem_euclid(DAY_NS));
    let day = days + 719_468;
    let (era, day_of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (seconds, fraction) = (in_day / SECOND_NS, in_day % SECOND_NS);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:09}") };
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
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

    #[test]
    fn instants_have_the_calendar_s_dates() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (1_618_963_200 * SECOND_NS, "2021-04-21T00:00:00Z"),
            (951_782_400 * SECOND_NS, "2000-02-29T00:00:00Z"),
            (4_107_542_399 * SECOND_NS, "2100-02-28T23:59:59Z"),
            (4_107_542_400 * SECOND_NS, "2100-03-01T00:00:00Z"),
            (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
        ];
        for (time_ns, expected) in cases {
            assert_eq!(iso(time_ns), expected);
        }
    }
}
