use std::fmt;

use crate::time::timeframe::Timeframe;
use crate::time::timestamp::display_utc;

/// A value that depends on bars after its time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LookAhead {
    /// The instrument.
    pub instrument: String,
    /// The time after which bars were replaced, in nanoseconds since 1970 UTC.
    pub time: i64,
    /// Change of the bars that had not closed.
    pub perturbation: Perturbation,
    /// The first thing that came out differently.
    pub difference: LookAheadEffect,
}

/// Changes that a proof makes to bars that had not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Perturbation {
    /// Their prices, volumes and spreads.
    Values,
    /// Values, number and opening times of the bars.
    Times,
}

impl Perturbation {
    /// Every perturbation.
    pub const ALL: [Perturbation; 2] = [Perturbation::Values, Perturbation::Times];
}

/// Differing value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LookAheadEffect {
    /// There is no sample at that time any more.
    Gone,
    /// A feature has another value.
    Value {
        /// The timeframe.
        timeframe: Timeframe,
        /// The row of the window, the oldest being 0.
        row: usize,
        /// Name of the feature.
        feature: String,
        /// The value with the true future.
        before: f32,
        /// The value with another.
        after: f32,
    },
    /// A feature is scaled differently.
    Scaler {
        /// The timeframe.
        timeframe: Timeframe,
        /// Name of the feature.
        feature: String,
        /// Centre and scale with the true future.
        before: [f64; 2],
        /// Centre and scale with another.
        after: [f64; 2],
    },
}

impl fmt::Display for LookAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LookAhead { instrument, time, perturbation, difference } = self;
        let what = match perturbation {
            Perturbation::Values => "have other values",
            Perturbation::Times => "have other values and times",
        };
        write!(
            f,
            "{instrument} looks ahead: when the bars that close after {} {what}, {difference}",
            display_utc(*time)
        )
    }
}

impl fmt::Display for LookAheadEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookAheadEffect::Gone => write!(f, "the sample at that time is gone"),
            LookAheadEffect::Value { timeframe, row, feature, before, after } => {
                write!(f, "{feature} in row {row} of the window of {timeframe} is {after} instead of {before}")
            }
            LookAheadEffect::Scaler { timeframe, feature, before: [center, scale], after } => {
                let [other_center, other_scale] = after;
                write!(
                    f,
                    "{feature} of {timeframe} has centre {other_center} and scale {other_scale} instead of {center} and {scale}"
                )
            }
        }
    }
}
