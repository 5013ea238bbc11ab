//! Axes: where ticks stand, and how they read.

use jiff::civil::Date;

use crate::text::number::fixed;

/// One axis of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Label, with the unit.
    pub(crate) label: String,
    pub(crate) scale: Scale,
    /// A value that lies within the picture even where no point reaches it.
    pub(crate) includes: Option<f64>,
}

/// Scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Number,
    /// Whole numbers, between which nothing lies.
    Count,
    /// Nanoseconds since 1970 UTC.
    Time,
}

/// A mark on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) text: String,
}

const SECOND_NS: f64 = 1e9;
const DAY_S: f64 = 86_400.0;
/// Distances of ticks in time that are shorter than a month, in seconds.
const TIME_STEPS_S: [f64; 14] = [
    60.0,
    300.0,
    900.0,
    1_800.0,
    3_600.0,
    3.0 * 3_600.0,
    6.0 * 3_600.0,
    12.0 * 3_600.0,
    DAY_S,
    2.0 * DAY_S,
    4.0 * DAY_S,
    7.0 * DAY_S,
    14.0 * DAY_S,
    21.0 * DAY_S,
];
/// Distances that are longer, in months.
const MONTH_STEPS: [i32; 8] = [1, 2, 3, 6, 12, 24, 60, 120];
const MONTH_S: f64 = 30.44 * DAY_S;

impl Axis {
    pub(crate) fn number(label: impl Into<String>) -> Self {
        Axis { label: label.into(), scale: Scale::Number, includes: None }
    }

    pub(crate) fn count(label: impl Into<String>) -> Self {
        Axis { label: label.into(), scale: Scale::Count, includes: None }
    }

    pub(crate) fn time(label: impl Into<String>) -> Self {
        Axis { label: label.into(), scale: Scale::Time, includes: None }
    }

    /// The axis with zero in the picture, for sizes that mean little without it.
    pub(crate) fn with_zero(self) -> Self {
        Axis { includes: Some(0.0), ..self }
    }

    /// About `count` ticks between `low` and `high`.
    pub(crate) fn ticks(&self, low: f64, high: f64, count: usize) -> Vec<Tick> {
        match self.scale {
            Scale::Number => number_ticks(low, high, count, 0.0),
            Scale::Count => number_ticks(low, high, count, 1.0),
            Scale::Time => time_ticks(low, high, count),
        }
    }
}

/// At most `count` + 1 multiples of 1, 2 or 5 times a power of ten, `step_min` apart or more.
fn number_ticks(low: f64, high: f64, count: usize, step_min: f64) -> Vec<Tick> {
    let rough = ((high - low) / count as f64).max(step_min);
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * magnitude).find(|&step| step >= rough).unwrap_or(rough);
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (first..=last).map(|k| Tick { at: k as f64 * step, text: tick_text(k as f64 * step, step) }).collect()
}

/// A tick's number with the decimals that tell it from its neighbours, `step` away.
fn tick_text(value: f64, step: f64) -> String {
    let largest = value.abs().max(step);
    if largest >= 1e7 || step < 1e-5 {
        return format!("{value:.1e}");
    }
    fixed(value, (-(step * 1.0001).log10().floor()).max(0.0) as usize)
}

/// Ticks at full minutes, hours, days or months.
fn time_ticks(low: f64, high: f64, count: usize) -> Vec<Tick> {
    let rough_s = (high - low) / SECOND_NS / count as f64;
    let Some(step_s) = TIME_STEPS_S.into_iter().find(|&step_s| step_s >= rough_s) else {
        return month_ticks(low, high, rough_s);
    };
    let step = step_s * SECOND_NS;
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    let format = if step_s < DAY_S { "%m-%d %H:%M" } else { "%Y-%m-%d" };
    (first..=last)
        .filter_map(|k| Some(Tick { at: k as f64 * step, text: time_text(k as f64 * step, format)? }))
        .collect()
}

fn time_text(at_ns: f64, format: &str) -> Option<String> {
    jiff::Timestamp::from_nanosecond(at_ns as i128).ok().map(|time| time.strftime(format).to_string())
}

fn month_ticks(low: f64, high: f64, rough_s: f64) -> Vec<Tick> {
    let months = MONTH_STEPS.into_iter().find(|&months| f64::from(months) * MONTH_S >= rough_s).unwrap_or(240);
    let year_of = |ns: f64| {
        jiff::Timestamp::from_nanosecond(ns as i128).ok().map(|time| time.to_zoned(jiff::tz::TimeZone::UTC).year())
    };
    let (Some(first), Some(last)) = (year_of(low), year_of(high)) else { return Vec::new() };
    let all = (i32::from(first) * 12..(i32::from(last) + 1) * 12).filter(|month| month % months == 0);
    let tick = |month: i32| {
        let date = Date::new((month / 12) as i16, (month % 12 + 1) as i8, 1).ok()?;
        let at = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_nanosecond() as f64;
        let text = if months >= 12 { date.strftime("%Y") } else { date.strftime("%Y-%m") }.to_string();
        (low..=high).contains(&at).then_some(Tick { at, text })
    };
    all.filter_map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis, range: (f64, f64), count: usize) -> Vec<String> {
        axis.ticks(range.0, range.1, count).into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn ticks_of_numbers_are_round_and_inside() {
        let axis = Axis::number("");
        assert_eq!(texts(&axis, (0.0, 10.0), 5), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(texts(&axis, (0.13, 0.29), 4), ["0.15", "0.20", "0.25"]);
        assert_eq!(texts(&axis, (-0.1, 0.1), 2), ["-0.1", "0.0", "0.1"]);
        assert_eq!(texts(&axis, (0.0, 25_000.0), 3), ["0", "10,000", "20,000"]);
        assert!(axis.ticks(-3.0, 1e6, 8).len() <= 9);
        // No epoch, fold or target lies between two.
        let axis = Axis::count("");
        assert_eq!(texts(&axis, (0.9, 3.1), 8), ["1", "2", "3"]);
        assert_eq!(texts(&axis, (0.0, 25_000.0), 3), ["0", "10,000", "20,000"]);
    }

    #[test]
    fn ticks_of_time_stand_at_full_hours_days_months_and_years() {
        let axis = Axis::time("");
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_nanosecond() as f64;
        let span = |from: &str, to: &str| (at(from), at(to));
        for (range, expected) in [
            (span("2018-03-01T10:10:00Z", "2018-03-01T13:00:00Z"), vec!["03-01 11:00", "03-01 12:00", "03-01 13:00"]),
            (span("2018-03-01T10:00:00Z", "2018-03-04T10:00:00Z"), vec!["2018-03-02", "2018-03-03", "2018-03-04"]),
            (span("2018-01-15T00:00:00Z", "2018-04-15T00:00:00Z"), vec!["2018-02", "2018-03", "2018-04"]),
            (span("2010-06-01T00:00:00Z", "2013-05-01T00:00:00Z"), vec!["2011", "2012", "2013"]),
        ] {
            assert_eq!(texts(&axis, range, 3), expected);
        }
    }
}
