#![forbid(unsafe_code)]

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 86_400 * SECOND_NS;

/// An instant in ns since 1970 UTC as ISO 8601 has it: `2021-04-21T14:30:00Z`, with a fraction
/// where there is one.
///
/// The date is that of the proleptic Gregorian calendar, by the arithmetic of Hinnant,
/// *chrono-compatible low-level date algorithms* (2013), `civil_from_days`: eras of 400 years,
/// which have 146,097 days, of years that begin in March.
pub(crate) fn iso(time_ns: i64) -> String {
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
