use std::ops::Range;

use crate::time::timestamp::MINUTE_NS;
use crate::time::zone::{Occurrence, Zone};

/// Time within which a clock is changed at most once.
const BLOCK_NS: i64 = 15 * MINUTE_NS;

/// The clock of a file's ticks.
pub(crate) struct TickClock {
    zone: Zone,
    /// Times on the clock at which its lead over UTC is `lead_ns`.
    steady: Range<i64>,
    lead_ns: i64,
}

impl TickClock {
    pub(crate) fn new(zone: Zone) -> Self {
        TickClock { zone, steady: 0..0, lead_ns: 0 }
    }

    /// Nanoseconds since 1970 UTC at which the clock shows `wall_ns`, for a tick after `after_ns`.
    /// A time that occurs twice is the second where the first is before `after_ns`. `None` for a
    /// time that the clock skips.
    pub(crate) fn utc_ns(&mut self, wall_ns: i64, after_ns: i64) -> Option<i64> {
        if self.steady.contains(&wall_ns) {
            return Some(wall_ns - self.lead_ns);
        }
        let start = wall_ns.div_euclid(BLOCK_NS) * BLOCK_NS;
        let end = start + BLOCK_NS;
        if let (Occurrence::Once(first), Occurrence::Once(last)) =
            (self.zone.occurrence(start), self.zone.occurrence(end - 1))
            && start - first == end - 1 - last
        {
            (self.steady, self.lead_ns) = (start..end, start - first);
            return Some(wall_ns - self.lead_ns);
        }
        match self.zone.occurrence(wall_ns) {
            Occurrence::Once(utc_ns) => Some(utc_ns),
            Occurrence::Twice(first, second) => Some(if first >= after_ns { first } else { second }),
            Occurrence::Never { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::timestamp::{DateStyle, parse_stamp};

    #[test]
    fn the_second_pass_of_an_hour_follows_the_first() {
        let at = |text: &str| parse_stamp(text.as_bytes(), DateStyle::Dashed).unwrap().ns();
        let mut clock = TickClock::new("America/New_York".parse().unwrap());
        let mut after_ns = i64::MIN;
        for (wall, utc) in [
            ("2018-11-04 00:59:59", "2018-11-04T04:59:59Z"),
            ("2018-11-04 01:10:00", "2018-11-04T05:10:00Z"),
            ("2018-11-04 01:59:59", "2018-11-04T05:59:59Z"),
            ("2018-11-04 01:00:01", "2018-11-04T06:00:01Z"),
            ("2018-11-04 01:59:00", "2018-11-04T06:59:00Z"),
            ("2018-11-04 02:00:00", "2018-11-04T07:00:00Z"),
            ("2019-03-10 01:59:59", "2019-03-10T06:59:59Z"),
            ("2019-03-10 03:00:00", "2019-03-10T07:00:00Z"),
        ] {
            let found = clock.utc_ns(at(wall), after_ns);
            assert_eq!(found, Some(at(utc)), "{wall}");
            after_ns = at(utc);
        }
        assert_eq!(clock.utc_ns(at("2019-03-10 02:30:00"), after_ns), None);
    }
}
