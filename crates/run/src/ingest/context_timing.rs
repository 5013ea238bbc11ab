//! The time from which bars of other instruments are known.
//!
//! ```text
//! beside shorter bars     a day or a week ends a day or a week after its own time, or later
//! a date                  begins at midnight in UTC or on the clock of the shorter bars: the later
//! days beside days        end with the day of their exchange
//! of a currency or coin   end a day after their own time
//! beside UTC days of one  end a day after their own time
//! ```

use megabatch_bars::{
    BarFunctions, BinClock, ContextTiming, ReadSummary, Recording, Timeframe, Zone, trades_around_the_clock,
};
use serde_json::{Value, json};

use super::provenance::{LISTS, listed};
use super::recipe::{Recipe, Windows};
use crate::error::Result;
use crate::text::DAY_NS;
use crate::text::number::seconds;

/// Clocks are compared up to a year after the last bar: bars that come later have a summer, too.
const YEAR_NS: i64 = 366 * DAY_NS;
/// Begins the name of another instrument, where functions are named.
pub(super) const CONTEXT: &str = "context ";
/// Name of the timing in the account of functions.
pub(super) const CONTEXT_TIMING: &str = "context_timing";

/// Facts on the bars of one instrument of a series that decide on the timing of others.
struct MainBars {
    symbol: String,
    base: Timeframe,
    first_open_time: i64,
    last_close_time: i64,
    weekends: u64,
    /// Days or weeks begin before their own time: they are dated by an exchange.
    are_early: bool,
    /// The clocks by which files were read, and offsets that they state.
    clocks: Vec<Zone>,
}

impl MainBars {
    fn read(summary: &ReadSummary) -> Self {
        let clocks = summary.files.iter().flat_map(|file| file.zone.iter().chain(&file.offset));
        MainBars {
            symbol: summary.symbol.clone(),
            base: summary.base,
            first_open_time: summary.first_open_time,
            last_close_time: summary.last_close_time,
            weekends: summary.gaps.weekends(),
            are_early: summary.early_ns > 0,
            clocks: clocks.cloned().collect(),
        }
    }

    /// The facts on an instrument that a provenance tells; it has neither offsets nor early days.
    fn recorded(instrument: &Value) -> Option<Self> {
        let clock = |file: &Value| -> Option<Zone> { file["zone"].as_str()?.parse().ok() };
        let base: Timeframe = instrument["base"].as_str()?.parse().ok()?;
        Some(MainBars {
            symbol: instrument["symbol"].as_str()?.to_owned(),
            base,
            first_open_time: instrument["first_open_time_ns"].as_i64()?,
            last_close_time: instrument["last_close_time_ns"].as_i64()?,
            weekends: instrument["gaps"]["weekends"].as_u64()?,
            are_early: false,
            clocks: listed(instrument, "files").filter_map(clock).collect(),
        })
    }

    /// True for days and weeks that end at midnights in UTC and may have trades until then: those
    /// of currencies and coins, and of markets without weekends.
    fn have_utc_days(&self) -> bool {
        let have_no_weekends = self.base == Timeframe::D1 && self.weekends == 0;
        let are_open = trades_around_the_clock(&self.symbol) || have_no_weekends;
        self.base >= Timeframe::D1 && are_open && !self.are_early
    }
}

/// The timing of other instruments beside the bars of `recordings`.
pub(super) fn context_timing(recordings: &[Recording]) -> ContextTiming {
    let instruments = recordings.iter().map(|recording| MainBars::read(&recording.summary));
    timing_beside(&instruments.collect::<Vec<_>>())
}

fn timing_beside(instruments: &[MainBars]) -> ContextTiming {
    let beside = match instruments.iter().any(MainBars::have_utc_days) {
        true => Timeframe::M1,
        false => instruments.iter().map(|own| own.base).min().unwrap_or(Timeframe::M1),
    };
    // Dates of days tell no clock.
    let shorter: Vec<&MainBars> = instruments.iter().filter(|own| own.base < Timeframe::D1).collect();
    let mut clocks: Vec<Zone> = Vec::new();
    for clock in shorter.iter().flat_map(|own| &own.clocks) {
        if !clocks.contains(clock) {
            clocks.push(clock.clone());
        }
    }
    let first_ns = shorter.iter().map(|own| own.first_open_time).min();
    let last_ns = shorter.iter().map(|own| own.last_close_time).max();
    let span = first_ns.zip(last_ns);
    let latest = |(first_ns, last_ns): (i64, i64)| Zone::latest_midnights(&clocks, first_ns, last_ns + YEAR_NS);
    ContextTiming { beside, day_zone: span.and_then(latest) }
}

/// Notes on days and weeks of other instruments that end in the hours after those of `recordings`,
/// at midnight in UTC, and may have trades until then: they are seen a bar later.
pub(super) fn late_days_notes(
    recordings: &[Recording],
    timing: &ContextTiming,
    functions: &dyn BarFunctions,
) -> Result<Vec<String>> {
    let ends_at_midnight = |Recording { summary, .. }: &Recording| {
        summary.base >= Timeframe::D1 && summary.first_open_time.rem_euclid(DAY_NS) == 0
    };
    if timing.beside >= Timeframe::D1 || !recordings.iter().any(ends_at_midnight) {
        return Ok(Vec::new());
    }
    // Shorter bars make days in UTC.
    let context = functions.context_reach(Timeframe::D1, &BinClock::default())?;
    let late = context.iter().filter_map(|own| {
        let late_ns = own.last_close_time()?.rem_euclid(DAY_NS);
        let is_late = (1..DAY_NS / 2).contains(&late_ns) && !trades_around_the_clock(own.symbol());
        is_late.then_some((own.symbol(), late_ns))
    });
    let note = |(symbol, late_ns): (&str, i64)| {
        format!(
            "note: {CONTEXT}{symbol}: its bars end {} after midnight in UTC, when the bars beside them end, and are seen a bar later; where it has no trades after that midnight, give its times as dates without a zone",
            seconds(late_ns as f64 / 1e9)
        )
    };
    Ok(late.map(note).collect())
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

/// The timing that the account of functions in `provenance` tells. Files of earlier versions have
/// none: it is that of their bars.
pub(super) fn recorded_timing(provenance: &Value) -> ContextTiming {
    let instruments = || listed(provenance, LISTS[0]).filter_map(MainBars::recorded).collect::<Vec<_>>();
    told_timing(provenance).unwrap_or_else(|| timing_beside(&instruments()))
}

fn told_timing(provenance: &Value) -> Option<ContextTiming> {
    let told = &provenance["functions"][CONTEXT_TIMING];
    let beside: Timeframe = told["beside"].as_str()?.parse().ok()?;
    let day_zone: Option<Zone> = told["day_zone"].as_str().and_then(|name| name.parse().ok());
    Some(ContextTiming { beside, day_zone })
}

/// The remedy where new bars of the series with the account `provenance` have a clock by which
/// bars of other instruments are known from other times on: `timing` is not that of before.
pub(super) fn remedy_of_other_timing(provenance: &Value, timing: &ContextTiming) -> Option<String> {
    let then = told_timing(provenance).filter(|then| then != timing)?;
    let said = |ContextTiming { beside, day_zone }: &ContextTiming| match day_zone {
        Some(zone) => format!("of the clock {zone} beside {beside} bars"),
        None => format!("of UTC beside {beside} bars"),
    };
    Some(format!(
        "by the clocks of the files of the series, dates of other instruments are {} now, and were {}: ingest all files anew",
        said(timing),
        said(&then)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timing_comes_back_from_the_account_of_functions() {
        let days = ContextTiming { beside: Timeframe::D1, day_zone: None };
        let hours = ContextTiming { beside: Timeframe::H1, day_zone: Some("-05:00".parse().unwrap()) };
        for timing in [ContextTiming::default(), days, hours] {
            let provenance = json!({ "functions": { CONTEXT_TIMING: timing_json(&timing) } });
            assert_eq!(recorded_timing(&provenance), timing);
        }
        assert_eq!(recorded_timing(&json!({ "functions": { "frames": "files" } })), ContextTiming::default());
    }

    /// Frames beside days were read as beside minutes, a bar later than the data have them.
    #[test]
    fn files_of_earlier_versions_have_the_timing_of_their_bars() {
        let (day, hour, new_york) = (Timeframe::D1, Timeframe::H1, Some("America/New_York"));
        for (symbol, base, weekends, beside, day_zone) in [
            ("KO", day, 3, day, None),
            ("KO", day, 0, Timeframe::M1, None),
            ("EURUSD", day, 3, Timeframe::M1, None),
            ("EURUSD", hour, 3, hour, new_york),
        ] {
            let instrument = json!({
                "symbol": symbol,
                "base": base.name(),
                "first_open_time_ns": 0,
                "last_close_time_ns": 30 * DAY_NS,
                "gaps": { "weekends": weekends },
                "files": [{ "zone": "America/New_York" }],
            });
            let found = recorded_timing(&json!({ "instruments": [instrument], "functions": { "frames": "files" } }));
            let clock = found.day_zone.map(|zone| zone.to_string());
            assert_eq!((found.beside, clock.as_deref()), (beside, day_zone), "{symbol} {base}");
        }
    }
}
