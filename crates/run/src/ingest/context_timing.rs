//! The time from which bars of other instruments are known.
//!
//! ```text
//! beside shorter bars     a day or a week ends a day or a week after its own time, or later
//! a date                  begins at midnight in UTC or on the clock of the shorter bars: the later
//! days beside days        end with the day of their exchange
//! of a currency or coin   end a day after their own time
//! beside UTC days of one  end a day after their own time
//! ```

use megabatch_bars::{ContextTiming, ReadSummary, Recording, Timeframe, Zone, trades_around_the_clock};
use serde_json::{Value, json};

use super::recipe::{Recipe, Windows};
use crate::text::DAY_NS;

/// Clocks are compared up to a year after the last bar: bars that come later have a summer, too.
const YEAR_NS: i64 = 366 * DAY_NS;
/// Name of the timing in the account of functions.
pub(super) const CONTEXT_TIMING: &str = "context_timing";

/// The timing of other instruments beside the bars of `recordings`.
pub(super) fn context_timing(recordings: &[Recording]) -> ContextTiming {
    let summaries = || recordings.iter().map(|recording| &recording.summary);
    let beside = match summaries().any(has_utc_days) {
        true => Timeframe::M1,
        false => summaries().map(|summary| summary.base).min().unwrap_or(Timeframe::M1),
    };
    // Dates of days tell no clock.
    let shorter = || summaries().filter(|summary| summary.base < Timeframe::D1);
    let mut clocks: Vec<Zone> = Vec::new();
    for file in shorter().flat_map(|summary| &summary.files) {
        for clock in file.zone.iter().chain(&file.offset) {
            if !clocks.contains(clock) {
                clocks.push(clock.clone());
            }
        }
    }
    let first_ns = shorter().map(|summary| summary.first_open_time).min();
    let last_ns = shorter().map(|summary| summary.last_close_time).max();
    let span = first_ns.zip(last_ns);
    let latest = |(first_ns, last_ns): (i64, i64)| Zone::latest_midnights(&clocks, first_ns, last_ns + YEAR_NS);
    ContextTiming { beside, day_zone: span.and_then(latest) }
}

/// True for days and weeks that end at midnights in UTC and may have trades until then: those of
/// currencies and coins, and of markets without weekends. Days that begin before their own time are
/// dated by an exchange.
fn has_utc_days(summary: &ReadSummary) -> bool {
    let has_no_weekends = summary.base == Timeframe::D1 && summary.gaps.weekends() == 0;
    let is_open = trades_around_the_clock(&summary.symbol) || has_no_weekends;
    summary.base >= Timeframe::D1 && is_open && summary.early_ns == 0
}

/// The recipe by which bars of another instrument, `symbol`, are read: by the rules for rows of
/// `recipe`, and by `timing`. Days of currencies and coins may have trades until they end by their
/// own time.
pub(super) fn timed_recipe(recipe: &Recipe, symbol: &str, timing: &ContextTiming) -> Recipe {
    let beside = if trades_around_the_clock(symbol) { Timeframe::M1 } else { timing.beside };
    Recipe { timeframes: Windows(vec![(beside, 1)]), day_zone: timing.day_zone.clone(), ..recipe.clone() }
}

/// A timing as the account of functions keeps it.
pub(super) fn timing_json(timing: &ContextTiming) -> Value {
    json!({ "beside": timing.beside.name(), "day_zone": timing.day_zone.as_ref().map(ToString::to_string) })
}

/// The timing in the account of functions of a series. One without a timing has no context.
pub(super) fn recorded_timing(functions: &Value) -> ContextTiming {
    let recorded = &functions[CONTEXT_TIMING];
    let beside: Option<Timeframe> = recorded["beside"].as_str().and_then(|name| name.parse().ok());
    let day_zone: Option<Zone> = recorded["day_zone"].as_str().and_then(|name| name.parse().ok());
    beside.map_or_else(ContextTiming::default, |beside| ContextTiming { beside, day_zone })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timing_comes_back_from_the_account_of_functions() {
        let days = ContextTiming { beside: Timeframe::D1, day_zone: None };
        let hours = ContextTiming { beside: Timeframe::H1, day_zone: Some("-05:00".parse().unwrap()) };
        for timing in [ContextTiming::default(), days, hours] {
            let functions = json!({ CONTEXT_TIMING: timing_json(&timing) });
            assert_eq!(recorded_timing(&functions), timing);
        }
        assert_eq!(recorded_timing(&json!({ "frames": "files" })), ContextTiming::default());
    }
}
