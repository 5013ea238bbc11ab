//! The weeks of bars that come after others.

use crate::bar_source::{BarSource, pieces_of};
use crate::clean::weekly_close::WeekEnds;
use crate::error::Result;
use crate::time::timeframe::Timeframe;

/// A doubt about the clock of the bars that open after `known_until`, in nanoseconds since 1970
/// UTC: the weeks before close on Friday at 17:00 in New York, and several of theirs an hour or so
/// off.
///
/// # Errors
/// [`Error::Spool`](crate::Error::Spool) where the bars cannot be read.
pub fn later_weeks_doubt(bars: &dyn BarSource, known_until: i64) -> Result<Option<String>> {
    let base = bars.timeframe();
    if base >= Timeframe::D1 {
        return Ok(None);
    }
    let (mut before, mut after) = (WeekEnds::new(base), WeekEnds::new(base));
    let (mut times, mut last) = (Vec::new(), None);
    for range in pieces_of(0..bars.len()) {
        bars.read_open_times(range, &mut times)?;
        for &open_time in &times {
            if let Some(last) = last.replace(open_time) {
                let ends = if open_time > known_until { &mut after } else { &mut before };
                ends.add_pause(last, open_time, base.duration_ns());
            }
        }
    }
    Ok(after.doubt_after(&before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::{Bar, Bars};
    use crate::time::timestamp::{DAY_NS, HOUR_NS};

    // A broker's summer came by the clock that its winter had, an hour off.
    #[test]
    fn weeks_that_end_an_hour_off_are_doubted() {
        // Sundays 2018-01-07 and 2018-05-06.
        let (winter, summer) = (17_538 * DAY_NS, 17_657 * DAY_NS);
        for (summer_hour, summer_weeks, summer_days, expected) in [
            (21, 3, 5, false),
            (20, 3, 5, true),
            (20, 2, 5, false),
            // Fridays without trade, as before Christmas and New Year.
            (21, 3, 4, false),
        ] {
            let mut bars = Bars::with_capacity(Timeframe::H1, 0);
            let mut known_until = 0;
            let summer = summer + summer_hour * HOUR_NS;
            for (first, weeks, days) in [(winter + 22 * HOUR_NS, 3, 5), (summer, summer_weeks, summer_days)] {
                known_until = bars.open_time.last().copied().unwrap_or(known_until);
                for hour in (0..weeks * 7 * 24).filter(|hour| hour % (7 * 24) < days * 24) {
                    bars.push(Bar { open_time: first + hour * HOUR_NS, ..Bar::default() });
                }
            }
            let doubt = later_weeks_doubt(&bars, known_until).unwrap();
            assert_eq!(doubt.is_some(), expected, "{summer_hour} {summer_weeks} {summer_days}: {doubt:?}");
            let said = "2 of 2 weeks of the new bars do not close on Friday at 17:00 in New York, as those before do, but at \
                        one other hour (2018-05-11 at 16:00)";
            assert!(doubt.is_none_or(|doubt| doubt.starts_with(said)));
        }
    }
}
