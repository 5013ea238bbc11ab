//! Made-up one-minute bars of a currency pair, with the shape of real ones: weeks from Sunday 22:00
//! to Friday 22:00 UTC, a daily rhythm of volatility, missing minutes when trading is thin.
//!
//! The log price is a random walk plus a mean-reverting part, `x[t] = 0.97 x[t-1] + noise` (an
//! autoregressive process of order one). The second part makes the next half hour partly
//! predictable from the recent past, so that a model that learns shows it.

use std::io::{self, Write};

use super::random::Random;

const MINUTE_S: i64 = 60;
const DAY_S: i64 = 86_400;
/// Monday 2018-01-01 00:00 UTC.
const START_S: i64 = 1_514_764_800;
const START_PRICE: f64 = 1.2;
const REVERSION: f64 = 0.97;
/// Standard deviation of the walk's and the reverting part's steps in a minute of average
/// volatility.
const WALK_STEP: f64 = 0.3e-4;
const REVERTING_STEP: f64 = 2.0e-4;

/// Writes `days` calendar days of bars as CSV with a header, times in UTC; returns how many bars.
pub(crate) fn write_csv(out: &mut dyn Write, days: u32, seed: u64) -> io::Result<u64> {
    writeln!(out, "time,open,high,low,close,volume")?;
    let mut market = Market { random: Random::new(seed), walk: START_PRICE.ln(), reverting: 0.0 };
    let mut count = 0;
    for minute in 0..i64::from(days) * DAY_S / MINUTE_S {
        let time_s = START_S + minute * MINUTE_S;
        if !is_open(time_s) {
            continue;
        }
        let bar = market.next_bar(volatility(time_s));
        if market.random.uniform() < 0.003 {
            continue;
        }
        writeln!(
            out,
            "{},{:.5},{:.5},{:.5},{:.5},{}",
            iso(time_s),
            bar.open,
            bar.high,
            bar.low,
            bar.close,
            bar.volume
        )?;
        count += 1;
    }
    Ok(count)
}

struct Bar {
    open: f64,
    high: f64,
    low: f64,
    close: f64,
    volume: u32,
}

struct Market {
    random: Random,
    walk: f64,
    reverting: f64,
}

impl Market {
    /// Four steps of a quarter of a minute make one bar.
    fn next_bar(&mut self, volatility: f64) -> Bar {
        let round = |price: f64| (price * 1e5).round() / 1e5;
        let open = round(self.price());
        let mut bar = Bar { open, high: open, low: open, close: open, volume: 0 };
        let quarter = volatility / 2.0;
        for _ in 0..4 {
            self.walk += WALK_STEP * quarter * self.random.normal();
            self.reverting = REVERSION.powf(0.25) * self.reverting + REVERTING_STEP * quarter * self.random.normal();
            bar.close = round(self.price());
            bar.high = bar.high.max(bar.close);
            bar.low = bar.low.min(bar.close);
        }
        bar.volume = (20.0 + 200.0 * volatility * self.random.uniform()) as u32;
        bar
    }

    fn price(&self) -> f64 {
        (self.walk + self.reverting).exp()
    }
}

/// True if the market trades in the minute that starts at `time_s`.
fn is_open(time_s: i64) -> bool {
    // Day 0 of the epoch was a Thursday; 0 is Monday here.
    let weekday = (time_s.div_euclid(DAY_S) + 3).rem_euclid(7);
    let hour = time_s.rem_euclid(DAY_S) / 3_600;
    match weekday {
        4 => hour < 22,
        5 => false,
        6 => hour >= 22,
        _ => true,
    }
}

/// Quiet at night, busiest around 14:00 UTC; 1 on average.
fn volatility(time_s: i64) -> f64 {
    let day_share = time_s.rem_euclid(DAY_S) as f64 / DAY_S as f64;
    1.0 + 0.6 * (std::f64::consts::TAU * (day_share - 14.0 / 24.0)).cos()
}

fn iso(time_s: i64) -> String {
    let time = jiff::Timestamp::from_second(time_s).expect("made-up bars lie within the calendar");
    time.strftime("%Y-%m-%d %H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_has_its_weekend_and_bars_are_consistent() {
        let mut text = Vec::new();
        let count = write_csv(&mut text, 7, 1).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count() as u64, count + 1);
        // Monday 00:00 to Friday 22:00 and Sunday from 22:00, less three minutes in a thousand.
        assert!((7_000..=7_200).contains(&count), "{count}");
        assert!(!text.contains("2018-01-06"), "Saturday");
        for line in text.lines().skip(1) {
            let price: Vec<f64> = line.split(',').skip(1).map(|field| field.parse().unwrap()).collect();
            let [open, high, low, close, volume] = price[..] else { panic!("{line}") };
            assert!(low <= open.min(close) && open.max(close) <= high && low > 0.0 && volume > 0.0, "{line}");
        }
        let mut again = Vec::new();
        write_csv(&mut again, 7, 1).unwrap();
        assert_eq!(String::from_utf8(again).unwrap(), text);
    }
}
