use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use crate::time::numbers::SECOND_NS;
use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS, parse_offset};
use crate::unknown_name::UnknownName;

/// The clock that a file's timestamps were read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    name: String,
    rules: TimeZone,
    /// Lead of the file's clock over the clock of `rules`.
    ahead_ns: i64,
}

impl Zone {
    /// Coordinated universal time.
    pub fn utc() -> Self {
        Zone { name: "UTC".to_owned(), rules: TimeZone::UTC, ahead_ns: 0 }
    }

    /// The clock that its own is ahead of or behind: when it is moved, so is its own.
    pub fn rules(&self) -> &TimeZone {
        &self.rules
    }

    /// When the zone's clock shows `wall_ns`.
    pub(crate) fn occurrence(&self, wall_ns: i64) -> Occurrence {
        let rules_wall_ns = wall_ns - self.ahead_ns;
        let utc_ns = |offset: Offset| rules_wall_ns - i64::from(offset.seconds()) * SECOND_NS;
        match self.rules.to_ambiguous_timestamp(TimeZone::UTC.to_datetime(instant(rules_wall_ns))).offset() {
            AmbiguousOffset::Unambiguous { offset } => Occurrence::Once(utc_ns(offset)),
            AmbiguousOffset::Fold { before, after } => Occurrence::Twice(utc_ns(before), utc_ns(after)),
            AmbiguousOffset::Gap { before, .. } => Occurrence::Never { unmoved: utc_ns(before) },
        }
    }

    /// Nanoseconds since 1970 UTC at which the zone's clock shows `wall_ns`.
    ///
    /// A time that occurs twice in autumn is taken as its first occurrence; one that is skipped in
    /// spring, as if the clock had not been moved yet.
    pub(crate) fn utc_ns(&self, wall_ns: i64) -> i64 {
        match self.occurrence(wall_ns) {
            Occurrence::Once(utc_ns) | Occurrence::Twice(utc_ns, _) | Occurrence::Never { unmoved: utc_ns } => utc_ns,
        }
    }

    /// The clock with a fixed offset of `east_ns` from UTC, in whole minutes; `None` for one of 26
    /// hours or more.
    pub(crate) fn at_offset(east_ns: i64) -> Option<Self> {
        let offset = Offset::from_seconds(i32::try_from(east_ns / SECOND_NS).ok()?).ok()?;
        let (sign, minutes) = (if east_ns < 0 { '-' } else { '+' }, east_ns.abs() / MINUTE_NS);
        let name = format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        Some(Zone { name, rules: TimeZone::fixed(offset), ahead_ns: 0 })
    }

    /// The clock of which each day from `first_ns` to `last_ns` begins as late as on any of `zones`
    /// and in UTC, in UTC. It is one of `zones`, or a fixed offset where none is the latest on all
    /// days; `None` if it is UTC.
    pub fn latest_midnights(zones: &[Zone], first_ns: i64, last_ns: i64) -> Option<Self> {
        let days = first_ns.div_euclid(DAY_NS)..=last_ns.div_euclid(DAY_NS);
        let latest_ns = |day: i64| zones.iter().map(|zone| zone.midnight_ns(day)).fold(0, i64::max);
        let latest: Vec<i64> = days.clone().map(latest_ns).collect();
        let most_ns = latest.iter().copied().max().filter(|&behind_ns| behind_ns > 0)?;
        let is_latest = |zone: &&Zone| days.clone().zip(&latest).all(|(day, &latest)| zone.midnight_ns(day) == latest);
        zones.iter().find(is_latest).cloned().or_else(|| Zone::at_offset(-most_ns))
    }

    /// Time from the midnight of a day in UTC to that of the zone, by days since 1970-01-01.
    fn midnight_ns(&self, day: i64) -> i64 {
        self.utc_ns(day * DAY_NS) - day * DAY_NS
    }

    /// True if the zone's clock is moved between two instants.
    pub(crate) fn is_moved_between(&self, from_utc_ns: i64, to_utc_ns: i64) -> bool {
        let ahead = |utc_ns| self.wall_ns(utc_ns) - utc_ns;
        ahead(from_utc_ns) != ahead(to_utc_ns)
    }

    /// The last change of the clock up to `utc_ns`.
    pub(crate) fn last_change(&self, utc_ns: i64) -> Option<ClockChange> {
        let mut times = self.rules.preceding(instant(utc_ns.saturating_add(1)));
        times.find_map(|transition| self.change(transition.timestamp()))
    }

    /// The first change of the clock after `utc_ns`.
    pub(crate) fn next_change(&self, utc_ns: i64) -> Option<ClockChange> {
        let mut times = self.rules.following(instant(utc_ns));
        times.find_map(|transition| self.change(transition.timestamp()))
    }

    /// The change of the clock at `time`; `None` where it goes on, under another name.
    fn change(&self, time: Timestamp) -> Option<ClockChange> {
        let at = i64::try_from(time.as_nanosecond()).ok()?;
        let ahead_ns = |utc_ns: i64| self.wall_ns(utc_ns) - utc_ns;
        let change = ClockChange { at, before_ns: ahead_ns(at - 1), after_ns: ahead_ns(at) };
        (change.before_ns != change.after_ns).then_some(change)
    }

    /// Local time of the zone at `utc_ns`, as nanoseconds since 1970.
    pub(crate) fn wall_ns(&self, utc_ns: i64) -> i64 {
        let offset = self.rules.to_offset(instant(utc_ns));
        utc_ns + i64::from(offset.seconds()) * SECOND_NS + self.ahead_ns
    }
}

/// A change of a clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockChange {
    /// When it is, in nanoseconds since 1970 UTC.
    pub(crate) at: i64,
    /// Lead of the clock over UTC before it.
    pub(crate) before_ns: i64,
    /// Lead of the clock over UTC from then on.
    pub(crate) after_ns: i64,
}

impl ClockChange {
    /// Time by which the clock is moved back; negative if it is moved forward.
    pub(crate) fn back_ns(&self) -> i64 {
        self.before_ns - self.after_ns
    }
}

/// When a clock shows a time, in nanoseconds since 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occurrence {
    /// As most times are.
    Once(i64),
    /// Before and after the clock goes back.
    Twice(i64, i64),
    /// The clock goes forward over it.
    Never {
        /// When it would be if the clock had not been moved yet.
        unmoved: i64,
    },
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
    type Err = UnknownName;

    /// Reads `UTC`, an offset such as `+02:00`, an IANA name such as `America/New_York`, or a
    /// number of hours ahead of or behind the clock of a city or of an IANA name that is no
    /// abbreviation, changes of daylight saving included. `new-york+7` is the clock of MetaTrader
    /// brokers, on which the trading day ends at midnight; `london-5` is that of HistData's files
    /// since 2019; `America/Chicago+7` is `chicago+7`.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        if name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("z") {
            return Ok(Zone::utc());
        }
        if let Some(shifted) = shifted(name) {
            return Ok(shifted);
        }
        let fixed = parse_offset(name.as_bytes())
            .and_then(|offset_ns| i32::try_from(offset_ns / SECOND_NS).ok())
            .and_then(|offset_s| Offset::from_seconds(offset_s).ok())
            .map(TimeZone::fixed);
        let expected = "UTC, an offset such as +02:00, a name such as America/New_York, or hours from a city or zone such as \
                        new-york+7 or America/Chicago+7";
        let unknown = || {
            let meant = meant_offset(name).map(|offset| format!("{offset}, or "));
            let nearest = || nearest_name(name).map(|nearest| format!("{nearest}, the nearest name, or "));
            UnknownName::new("time zone", name, meant.or_else(nearest).unwrap_or_default() + expected)
        };
        let rules = fixed.or_else(|| TimeZone::get(name).ok()).ok_or_else(unknown)?;
        let name = rules.iana_name().unwrap_or(name).to_owned();
        Ok(Zone { name, rules, ahead_ns: 0 })
    }
}

/// The offset that is meant by hours after `GMT` or `UTC`, such as +02:00 by `GMT+2`. The IANA name
/// `Etc/GMT+2`, which is near, is behind UTC.
fn meant_offset(name: &str) -> Option<String> {
    let (place, offset) = name.split_at(name.find(['+', '-'])?);
    if !["gmt", "utc"].iter().any(|known| place.trim_end().eq_ignore_ascii_case(known)) {
        return None;
    }
    match offset.parse::<i64>() {
        Ok(hours) if (-HOURS_MAX..=HOURS_MAX).contains(&hours) => Some(format!("{hours:+03}:00")),
        _ => parse_offset(offset.as_bytes()).map(|_| offset.to_owned()),
    }
}

/// The IANA name that differs from `name` by one letter more, less, changed or exchanged with its
/// neighbour, or whose city it is.
fn nearest_name(name: &str) -> Option<String> {
    let name = name.replace(' ', "_");
    let is_near = |known: &str| {
        let city = known.rsplit('/').next().unwrap_or(known);
        is_one_slip_from(&name, known) || city.len() < known.len() && city.eq_ignore_ascii_case(&name)
    };
    let names = jiff::tz::db().available().map(|known| known.as_str().to_owned());
    names.filter(|known| is_near(known)).min_by_key(|known| (!known.contains('/'), known.clone()))
}

/// True if two names are equal but for two neighbouring letters of the longer one.
fn is_one_slip_from(name: &str, known: &str) -> bool {
    let is_same = |(one, other): &(u8, u8)| one.eq_ignore_ascii_case(other);
    let start = name.bytes().zip(known.bytes()).take_while(is_same).count();
    let end = name.bytes().rev().zip(known.bytes().rev()).take_while(is_same).count();
    // Short names, such as EST, have too many neighbours.
    name.len().min(known.len()) > 4 && start + end + 2 >= name.len().max(known.len())
}

/// Areas of the zones that are named after cities.
const AREAS: [&str; 10] =
    ["Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"];

/// IANA names by the short names of their cities.
static CITIES: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(|| {
    let mut cities: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in jiff::tz::db().available() {
        let name = name.as_str();
        if name.split_once('/').is_some_and(|(area, _)| AREAS.contains(&area)) {
            cities.entry(short_name(name)).or_default().push(name.to_owned());
        }
    }
    cities
});

/// The short name of an IANA name: `new-york` for `America/New_York`.
fn short_name(iana: &str) -> String {
    let city = iana.rsplit('/').next().unwrap_or(iana);
    city.to_ascii_lowercase().replace('_', "-")
}

/// The zone of a city by its short name. `None` where zones of several clocks have that name.
fn city_zone(short: &str) -> Option<TimeZone> {
    let mut zones = CITIES.get(short)?.iter().filter_map(|name| TimeZone::get(name).ok());
    let first = zones.next()?;
    zones.all(|other| is_same_clock(&first, &other)).then_some(first)
}

/// True if two zones are names of one clock: compared in each month from 1970 to 2037.
fn is_same_clock(one: &TimeZone, other: &TimeZone) -> bool {
    let mut months = (0..68 * 12).map(|month| instant(month * 30 * DAY_NS));
    months.all(|time| one.to_offset(time) == other.to_offset(time))
}

/// No clock is further from another.
const HOURS_MAX: i64 = 14;

/// Length of names such as `EST` and `CET`. No city has a shorter name than four letters.
const ABBREVIATION_LEN_MAX: usize = 3;

/// The clock of a name such as `new-york+7`, `America/Chicago-1` or `UTC+2`. It is named by the
/// city where that is enough.
fn shifted(name: &str) -> Option<Zone> {
    let (place, hours) = name.split_at(name.rfind(['+', '-'])?);
    let ahead: i64 = hours.parse().ok().filter(|ahead: &i64| (-HOURS_MAX..=HOURS_MAX).contains(ahead))?;
    let place = place.to_ascii_lowercase();
    if place == "utc" {
        return format!("{ahead:+03}:00").parse().ok();
    }
    // Etc/GMT+5 is a name, and its clock is behind. EST+5 is so, too, by POSIX, while traders say
    // EST+7 and mean New York's clock, which is moved in summer.
    if place.starts_with("etc/") || place.starts_with("gmt") || place.len() <= ABBREVIATION_LEN_MAX {
        return None;
    }
    let rules = city_zone(&place).or_else(|| TimeZone::get(&place).ok())?;
    let iana = rules.iana_name()?.to_owned();
    let short = short_name(&iana);
    let (place, rules) = match city_zone(&short) {
        Some(zone) if is_same_clock(&zone, &rules) => (short, zone),
        _ => (iana, rules),
    };
    let name = format!("{place}{ahead:+}");
    Some(Zone { name, rules, ahead_ns: ahead * HOUR_NS })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::timestamp::{DateStyle, display_utc, parse_stamp};

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
            // Between the changes of New York and of London.
            ("london-5", "2019-03-15 16:00", "2019-03-15T21:00:00Z"),
            ("London-5", "2019-06-14 17:00", "2019-06-14T21:00:00Z"),
            ("new-york-0", "2018-07-06 17:00", "2018-07-06T21:00:00Z"),
            ("chicago+7", "2018-07-06 23:00", "2018-07-06T21:00:00Z"),
            ("America/Chicago+7", "2018-01-05 23:00", "2018-01-05T22:00:00Z"),
            ("tokyo+0", "2018-07-06 17:00", "2018-07-06T08:00:00Z"),
            ("Europe/Berlin+1", "2018-07-06 17:00", "2018-07-06T14:00:00Z"),
            ("Japan-1", "2018-07-06 17:00", "2018-07-06T09:00:00Z"),
            ("UTC+2", "2018-07-06 17:00", "2018-07-06T15:00:00Z"),
            // An IANA name, whose sign is reversed.
            ("Etc/GMT+5", "2018-07-06 17:00", "2018-07-06T22:00:00Z"),
            // Twice in autumn: the first; skipped in spring: as if the clock had not been moved.
            ("America/New_York", "2018-11-04 01:30", "2018-11-04T05:30:00Z"),
            ("America/New_York", "2018-03-11 02:30", "2018-03-11T07:30:00Z"),
        ];
        for (zone, wall, utc) in cases {
            let zone: Zone = zone.parse().unwrap();
            let wall_ns = parse_stamp(wall.as_bytes(), DateStyle::Dashed).unwrap().ns();
            assert_eq!(display_utc(zone.utc_ns(wall_ns)), utc, "{wall} {zone}");
        }
        let new_york: Zone = "America/New_York".parse().unwrap();
        let at = |text: &str| parse_stamp(text.as_bytes(), DateStyle::Dashed).unwrap().ns();
        let (first, second) = (at("2018-11-04T05:30Z"), at("2018-11-04T06:30Z"));
        assert_eq!(new_york.occurrence(at("2018-11-04 01:30")), Occurrence::Twice(first, second));
        let unmoved = at("2018-03-11T07:30Z");
        assert_eq!(new_york.occurrence(at("2018-03-11 02:30")), Occurrence::Never { unmoved });
        assert!(new_york.is_moved_between(first, second) && !new_york.is_moved_between(unmoved, first));
        let broker: Zone = "new-york+7".parse().unwrap();
        assert_eq!(broker.wall_ns(0), 2 * HOUR_NS);
    }

    /// A tie of winter chose the clock whose midnights are an hour earlier in summer.
    #[test]
    fn the_latest_midnights_are_so_on_all_days() {
        let zones = |names: &[&str]| -> Vec<Zone> { names.iter().map(|name| name.parse().unwrap()).collect() };
        let at = |text: &str| parse_stamp(text.as_bytes(), DateStyle::Dashed).unwrap().ns();
        let (first_ns, last_ns) = (at("2018-01-02 00:00"), at("2018-12-28 00:00"));
        for (names, latest) in [
            (&[][..], None),
            (&["UTC"][..], None),
            (&["+02:00", "Europe/London"][..], None),
            (&["America/New_York"][..], Some("America/New_York")),
            (&["America/New_York", "-05:00"][..], Some("-05:00")),
            (&["-05:00", "America/New_York"][..], Some("-05:00")),
            (&["UTC", "America/New_York", "Europe/London"][..], Some("America/New_York")),
            // New York's clock is the earlier one in winter alone.
            (&["America/New_York", "-04:30"][..], Some("-05:00")),
        ] {
            let found = Zone::latest_midnights(&zones(names), first_ns, last_ns);
            assert_eq!(found.map(|zone| zone.to_string()).as_deref(), latest, "{names:?}");
        }
        // As a recipe keeps it.
        for offset in ["-05:00", "-04:30", "+05:45"] {
            let zone: Zone = offset.parse().unwrap();
            assert_eq!(Zone::at_offset(-zone.utc_ns(0)), Some(zone), "{offset}");
        }
        assert_eq!(Zone::at_offset(30 * HOUR_NS), None);
    }

    /// Hours from any zone but New York's and London's were unknown.
    #[test]
    fn a_clock_ahead_of_a_zone_has_the_name_of_its_city() {
        for (written, name) in [
            ("new-york+7", "new-york+7"),
            ("America/New_York+7", "new-york+7"),
            ("Chicago+07", "chicago+7"),
            ("america/chicago+7", "chicago+7"),
            ("port-au-prince-1", "port-au-prince-1"),
            ("Asia/Tokyo+0", "tokyo+0"),
            // Two names of one clock.
            ("Asia/Istanbul+1", "istanbul+1"),
            ("Europe/Istanbul+1", "istanbul+1"),
            // No city.
            ("US/Central+7", "US/Central+7"),
            ("UTC-3", "-03:00"),
        ] {
            let zone: Zone = written.parse().unwrap();
            assert_eq!(zone.to_string(), name, "{written}");
            // As a recipe keeps it.
            assert_eq!(name.parse::<Zone>().unwrap(), zone, "{written}");
        }
    }

    /// `Europe/Athen` was told forms of names, and not the name.
    #[test]
    fn the_nearest_name_of_an_unknown_zone_is_told() {
        for (name, nearest) in [
            ("Europe/Athen", Some("Europe/Athens")),
            ("europe/lodnon", Some("Europe/London")),
            ("Amercia/New_York", Some("America/New_York")),
            ("New York", Some("America/New_York")),
            ("athens", Some("Europe/Athens")),
            ("EURUSD", None),
            ("exchange", None),
            ("", None),
        ] {
            assert_eq!(nearest_name(name).as_deref(), nearest, "{name:?}");
        }
        let error = "Europe/Athen".parse::<Zone>().unwrap_err().to_string();
        let expected = "unknown time zone `Europe/Athen`: expected Europe/Athens, the nearest name, or UTC, an offset";
        assert!(error.starts_with(expected), "{error}");
    }

    /// `GMT+2` was told `Etc/GMT+2`, which is two hours behind UTC.
    #[test]
    fn hours_after_gmt_are_told_as_an_offset() {
        for (name, offset) in [
            ("GMT+2", "+02:00"),
            ("gmt-5", "-05:00"),
            ("GMT +3", "+03:00"),
            ("UTC+02:00", "+02:00"),
            ("UTC+0530", "+0530"),
        ] {
            let error = name.parse::<Zone>().unwrap_err().to_string();
            assert!(error.contains(&format!(": expected {offset}, or UTC, an offset such as")), "{error}");
            assert!(offset.parse::<Zone>().is_ok() && !error.contains("Etc/GMT"), "{error}");
        }
        // The least number of 64 bits has no absolute value.
        for name in ["GMT+99", "EST+7", "GMT+x", "GMT-9223372036854775808"] {
            assert_eq!(meant_offset(name), None, "{name}");
        }
        assert!("london-9223372036854775808".parse::<Zone>().is_err());
    }

    #[test]
    fn unknown_zones_are_refused() {
        let unknown = ["", "EURUSD", "+25:00", "02:00", "New York", "london", "london5", "new-york+15", "london+x"];
        // Whose cities are none, and whose signs may mean the reverse.
        for name in unknown.into_iter().chain(["central+7", "nowhere+1", "GMT+2", "Etc/GMT+13", "EST+7", "cet-1"]) {
            assert!(name.parse::<Zone>().is_err(), "{name:?}");
        }
    }
}
