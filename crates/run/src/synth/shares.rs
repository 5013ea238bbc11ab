//! Made-up daily bars of shares in sectors: what graphs between instruments can be tried on.
//!
//! A share's log return is the sum of the market's, its sector's, its own, and a part of what its
//! sector did the day before: a model that knows a share's neighbours sees more of the sector than
//! one that knows the share alone.

use std::fmt::Write as _;

use super::random::Random;

const DAY_S: i64 = 86_400;
/// Monday 2018-01-01 00:00 UTC.
const START_S: i64 = 1_514_764_800;
const START_PRICE: f64 = 50.0;
/// Standard deviations of daily log returns.
const MARKET: f64 = 0.008;
const SECTOR: f64 = 0.010;
const OWN: f64 = 0.012;
/// Share of its sector's return that comes to a share a day later.
const LATE: f64 = 0.3;
const SECTORS: usize = 4;

/// A share's name and its bars as CSV in Yahoo's form, on the weekdays of `days` calendar days.
pub(crate) fn csv_files(shares: usize, days: u32, seed: u64) -> Vec<(String, String)> {
    let mut random = Random::new(seed);
    let mut files: Vec<(String, String)> = (0..shares).map(|share| (name(share), HEADER.to_owned())).collect();
    let mut log_prices = vec![START_PRICE.ln(); shares];
    let mut yesterday = [0.0; SECTORS];
    for day in (0..i64::from(days)).filter(|day| day % 7 < 5) {
        let market = MARKET * random.normal();
        let sectors: [f64; SECTORS] = std::array::from_fn(|_| SECTOR * random.normal());
        for (share, (log_price, (_, csv))) in log_prices.iter_mut().zip(&mut files).enumerate() {
            let sector = share % SECTORS;
            let open = log_price.exp();
            *log_price += market + sectors[sector] + LATE * yesterday[sector] + OWN * random.normal();
            let close = log_price.exp();
            let reach = |random: &mut Random| 1.0 + 0.3 * OWN * random.uniform();
            let (high, low) = (open.max(close) * reach(&mut random), open.min(close) / reach(&mut random));
            let volume = (1e6 * (0.5 + random.uniform())) as u64;
            let row = format!("{},{open:.4},{high:.4},{low:.4},{close:.4},{close:.4},{volume}", date(day));
            writeln!(csv, "{row}").expect("text grows in memory");
        }
        yesterday = sectors;
    }
    files
}

const HEADER: &str = "Date,Open,High,Low,Close,Adj Close,Volume\n";

/// `A01`, `B01`, `C01`, `D01`, `A02` …: the letter is the sector.
fn name(share: usize) -> String {
    let letter = char::from(b'A' + (share % SECTORS) as u8);
    format!("{letter}{:02}", share / SECTORS + 1)
}

fn date(day: i64) -> String {
    let time = jiff::Timestamp::from_second(START_S + day * DAY_S).expect("made-up bars lie within the calendar");
    time.strftime("%Y-%m-%d").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Log returns of a file's closes.
    fn returns(csv: &str) -> Vec<f64> {
        let closes: Vec<f64> =
            csv.lines().skip(1).map(|line| line.split(',').nth(4).unwrap().parse().unwrap()).collect();
        closes.windows(2).map(|pair| (pair[1] / pair[0]).ln()).collect()
    }

    fn correlation(a: &[f64], b: &[f64]) -> f64 {
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let (mean_a, mean_b) = (mean(a), mean(b));
        let product =
            |x: &[f64], y: &[f64], (m, n): (f64, f64)| -> f64 { x.iter().zip(y).map(|(x, y)| (x - m) * (y - n)).sum() };
        let scale = product(a, a, (mean_a, mean_a)) * product(b, b, (mean_b, mean_b));
        product(a, b, (mean_a, mean_b)) / scale.sqrt()
    }

    #[test]
    fn shares_of_a_sector_move_together_on_weekdays_and_the_same_seed_gives_the_same_files() {
        let files = csv_files(9, 700, 3);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["A01", "B01", "C01", "D01", "A02", "B02", "C02", "D02", "A03"]);
        assert_eq!(files[0].1.lines().count(), 1 + 500);
        assert!(!files[0].1.contains("2018-01-06"), "Saturday");
        let [a1, b1, a2] = [0, 1, 4].map(|share| returns(&files[share].1));
        assert!(
            correlation(&a1, &a2) > correlation(&a1, &b1) + 0.15,
            "{} {}",
            correlation(&a1, &a2),
            correlation(&a1, &b1)
        );
        assert_eq!(csv_files(9, 700, 3), files);
        assert_ne!(csv_files(9, 700, 4), files);
    }
}
