use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

use crate::error::Error;
use crate::timestamp::{HOUR_NS, SECOND_NS, parse_offset};

/// The clock that a file's timestamps were read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    name: String,
    rules: TimeZone,
    /// How far the file's clock is ahead of the clock of `rules`.
    ahead_ns: i64,
}

impl Zone {
    /// Coordinated universal time.
    pub fn utc() -> Self {
        Zone { name: "UTC".to_owned(), rules: TimeZone::UTC, ahead_ns: 0 }
    }

    /// Nanoseconds since 1970 UTC at which the zone's clock shows `wall_ns`.
    ///
    /// A time that occurs twice in autumn is taken as its first occurrence; one that is skipped in spring, as if the
    /// clock had not been moved yet.
    pub(crate) fn utc_ns(&self, wall_ns: i64) -> i64 {
        let wall = TimeZone::UTC.to_datetime(instant(wall_ns - self.ahead_ns));
        let utc = self.rules.to_timestamp(wall).expect("dates from 1680 to 2260 are within jiff's range");
        i64::try_from(utc.as_nanosecond()).expect("dates from 1680 to 2260 fit nanoseconds in an i64")
    }

    /// What the zone's clock shows at `utc_ns`, as nanoseconds since 1970.
    pub(crate) fn wall_ns(&self, utc_ns: i64) -> i64 {
        let offset = self.rules.to_offset(instant(utc_ns));
        utc_ns + i64::from(offset.seconds()) * SECOND_NS + self.ahead_ns
    }
}

fn instant(ns: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(ns)).expect("an i64 of nanoseconds is within jiff's range")
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Zone {
    type Err = Error;

    /// Reads `UTC`, an offset such as `+02:00`, an IANA name such as `America/New_York`, or `new-york+7`: the clock of
    /// MetaTrader brokers, seven hours ahead of New York's, on which the trading day ends at midnight.
    fn from_str(name: &str) -> Result<Self, Error> {
        if name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("z") {
            return Ok(Zone::utc());
        }
        if name.eq_ignore_ascii_case("new-york+7") {
            let rules = TimeZone::get("America/New_York").expect("the time zone database is compiled in");
            return Ok(Zone { name: "new-york+7".to_owned(), rules, ahead_ns: 7 * HOUR_NS });
        }
        let fixed = parse_offset(name.as_bytes())
            .and_then(|offset_ns| i32::try_from(offset_ns / SECOND_NS).ok())
            .and_then(|offset_s| Offset::from_seconds(offset_s).ok())
            .map(TimeZone::fixed);
        let rules = fixed.or_else(|| TimeZone::get(name).ok()).ok_or_else(|| Error::UnknownName {
            what: "time zone",
            name: name.to_owned(),
            expected: "UTC, an offset such as +02:00, a name such as America/New_York, or new-york+7".to_owned(),
        })?;
        let name = rules.iana_name().unwrap_or(name).to_owned();
        Ok(Zone { name, rules, ahead_ns: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::{DateStyle, display_utc, parse_stamp};

    #[test]
    fn wall_clocks_become_utc() {
        let cases = [
            ("utc", "2018-07-06 17:00", "2018-07-06T17:00:00Z"),
            ("-05:00", "2018-07-06 17:00", "2018-07-06T22:00:00Z"),
            ("+0530", "2018-07-06 17:00", "2018-07-06T11:30:00Z"),
            ("America/New_York", "2018-07-06 17:00", "2018-07-06T21:00:00Z"),
            ("america/new_york", "2018-01-05 17:00", "2018-01-05T22:00:00Z"),
            ("new-york+7", "2018-07-07 00:00", "2018-07-06T21:00:00Z"),
            ("new-york+7", "2018-01-06 00:00", "2018-01-05T22:00:00Z"),
            // Twice in autumn: the first; skipped in spring: as if the clock had not been moved.
            ("America/New_York", "2018-11-04 01:30", "2018-11-04T05:30:00Z"),
            ("America/New_York", "2018-03-11 02:30", "2018-03-11T07:30:00Z"),
        ];
        for (zone, wall, utc) in cases {
            let zone: Zone = zone.parse().unwrap();
            let wall_ns = parse_stamp(wall.as_bytes(), DateStyle::Dashed).unwrap().ns();
            assert_eq!(display_utc(zone.utc_ns(wall_ns)), utc, "{wall} {zone}");
        }
        let broker: Zone = "new-york+7".parse().unwrap();
        assert_eq!(broker.wall_ns(0), 2 * HOUR_NS);
    }

    #[test]
    fn unknown_zones_are_refused() {
        for name in ["", "EURUSD", "+25:00", "02:00", "New York"] {
            assert!(matches!(name.parse::<Zone>(), Err(Error::UnknownName { .. })), "{name:?}");
        }
    }
}
