//! Numbers as people read them: grouped digits, units, plurals.

/// A number with `digits` significant digits, and all of those before the point.
pub fn significant(value: f64, digits: i32) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    // Written out, because rounding may add a digit before the point.
    let scientific = format!("{value:.*e}", (digits - 1).max(0) as usize);
    let magnitude = scientific.rsplit('e').next().and_then(|exponent| exponent.parse().ok()).unwrap_or(0);
    if !(-5..15).contains(&magnitude) {
        return scientific;
    }
    fixed(value, (digits - 1 - magnitude).max(0) as usize)
}

/// A number with `decimals` digits after the point, and those before it in groups.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), grouped);
    let is_zero = text.bytes().all(|c| matches!(c, b'0' | b'.'));
    let sign = if value < 0.0 && !is_zero { "-" } else { "" };
    rest.map_or_else(|| format!("{sign}{whole}"), |rest| format!("{sign}{whole}.{rest}"))
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{} %", fixed(100.0 * share, 1))
}

/// A duration in the units that fit it.
pub fn seconds(duration_s: f64) -> String {
    let split = |unit_s: f64, smaller_s: f64| {
        let smaller = (duration_s / smaller_s).round();
        let per_unit = (unit_s / smaller_s).round();
        ((smaller / per_unit).floor(), smaller % per_unit)
    };
    match duration_s {
        s if !s.is_finite() => "-".to_owned(),
        s if s <= 0.0 => "0 s".to_owned(),
        s if s < 1e-3 => format!("{} µs", significant(s * 1e6, 3)),
        s if s < 0.9995 => format!("{} ms", significant(s * 1e3, 3)),
        s if s < 99.95 => format!("{} s", significant(s, 3)),
        s if s < 5_970.0 => {
            let (minutes, seconds) = split(60.0, 1.0);
            format!("{minutes} min {seconds} s")
        }
        s if s < 2.0 * 86_400.0 => {
            let (hours, minutes) = split(3_600.0, 60.0);
            format!("{hours} h {minutes} min")
        }
        _ => {
            let (days, hours) = split(86_400.0, 3_600.0);
            format!("{} d {hours} h", fixed(days, 0))
        }
    }
}

/// A count with its digits in groups of three.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (k, digit) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count and what is counted, of which `noun` is the singular of a regular plural.
pub fn plural(count: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_and_plurals_are_right() {
        for (count, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(count), text);
        }
        assert_eq!([0, 1, 1_000].map(|n| plural(n, "sample")), ["0 samples", "1 sample", "1,000 samples"]);
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (value, text) in [
            (0.0, "0.000"),
            (0.012_346, "0.01235"),
            (-1.5, "-1.500"),
            (12_345.67, "12,346"),
            (9.999_96, "10.00"),
            (1e-9, "1.000e-9"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(significant(value, 4), text, "{value}");
        }
        assert_eq!(fixed(-0.001, 1), "0.0");
        assert_eq!(fixed(-1_234.56, 1), "-1,234.6");
        assert_eq!(percent(0.1234), "12.3 %");
    }

    #[test]
    fn durations_are_told_in_units_that_fit() {
        for (duration_s, text) in [
            (0.0, "0 s"),
            (4.7e-7, "0.470 µs"),
            (0.0134, "13.4 ms"),
            (0.9996, "1.00 s"),
            (59.96, "60.0 s"),
            (119.6, "2 min 0 s"),
            (3_600.0, "60 min 0 s"),
            (7_259.0, "2 h 1 min"),
            (200_000.0, "2 d 8 h"),
        ] {
            assert_eq!(seconds(duration_s), text, "{duration_s}");
        }
    }
}
