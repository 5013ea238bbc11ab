//! What is traded: its name from the file's, and the size of a pip.

use std::path::Path;

use crate::error::{Error, Result};
use crate::symbol_pattern::stem_of;

/// Quote and base currencies whose pairs have the usual pip.
const CURRENCIES: [&str; 19] = [
    "USD", "EUR", "GBP", "JPY", "CHF", "AUD", "NZD", "CAD", "SEK", "NOK", "DKK", "PLN", "CZK", "TRY", "ZAR", "MXN",
    "SGD", "HKD", "CNH",
];
/// Traded like currencies, but brokers do not agree on their pip.
const METALS: [&str; 2] = ["XAU", "XAG"];

/// Names that collections of daily shares have: what stands before the symbol, and after it.
const SHARES: [(&str, &str); 3] = [("DA-", "-T-"), ("DAILY_ADJUSTED_", ""), ("DAILY_", "")];

/// The symbol that a file's name stands for, in upper case: the first part of it that starts with a currency pair; or else what stands between
/// `DA-` and `-T-` and after `daily_adjusted_` or `daily_`, as files of daily shares from Alpha Vantage are called; or else the whole name
/// without its endings and without the words `bid` and `ask`.
///
/// `DAT_ASCII_EURUSD_M1_2018.csv.gz` and `EURUSD5.csv` are EURUSD, `usdjpy-m1-bid-2013.csv` is USDJPY, `DA-BRK.B-T-2021-04-21.csv` is BRK.B,
/// `AAPL.csv` is AAPL. [`SymbolPattern`](crate::SymbolPattern) is for other names.
pub fn symbol_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    let pair = name.split(|c: char| !c.is_ascii_alphanumeric()).find_map(pair_at_start);
    let stem = stem_of(path);
    pair.or_else(|| share_of(&stem)).unwrap_or_else(|| without_side(&stem))
}

/// The symbol in a name that collections of daily shares have.
fn share_of(stem: &str) -> Option<String> {
    let between = |&(before, after): &(&str, &str)| {
        let rest = stem.strip_prefix(before)?;
        if after.is_empty() { Some(rest) } else { rest.split_once(after).map(|(symbol, _)| symbol) }
    };
    SHARES.iter().find_map(between).filter(|symbol| !symbol.is_empty()).map(str::to_owned)
}

/// A name without the word that says whether bid or ask is recorded: both are of one symbol.
fn without_side(stem: &str) -> String {
    let is_side = |part: &str| matches!(part, "BID" | "ASK");
    let separator = |c: char| matches!(c, '_' | '-' | ' ');
    let parts: Vec<&str> = stem.split(separator).filter(|part| !is_side(part)).collect();
    if parts.is_empty() || !stem.split(separator).any(is_side) { stem.to_owned() } else { parts.join("-") }
}

/// The size of one pip in units of the price: 0.01 for pairs quoted in yen, 0.0001 for other currency pairs.
///
/// # Errors
/// [`Error::UnknownPipSize`] for anything else: shares, metals and coins have no pip that everybody agrees on.
pub fn pip_size_of(symbol: &str) -> Result<f64> {
    let unknown = || Error::UnknownPipSize { symbol: symbol.to_owned() };
    let pair = pair_at_start(&symbol.to_uppercase()).ok_or_else(unknown)?;
    match pair.split_at(3) {
        (first, _) if METALS.contains(&first) => Err(unknown()),
        (_, "JPY") => Ok(0.01),
        _ => Ok(0.0001),
    }
}

/// `EURUSD` of `EURUSD`, `EURUSD5` or `EURUSDM`, in upper case: a pair, at most one letter, and digits.
fn pair_at_start(word: &str) -> Option<String> {
    let (first, second, rest) = (word.get(..3)?, word.get(3..6)?, word.get(6..)?);
    let suffix = rest.strip_prefix(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest);
    let known = (CURRENCIES.contains(&first) || METALS.contains(&first)) && CURRENCIES.contains(&second);
    (known && first != second && suffix.bytes().all(|byte| byte.is_ascii_digit())).then(|| format!("{first}{second}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_from_file_names() {
        let cases = [
            ("/data/DAT_ASCII_EURUSD_M1_2018.csv.gz", "EURUSD"),
            ("usdjpy-m1-bid-2013.csv", "USDJPY"),
            ("jeremidaneau_EURUSD1_2022.csv.gz", "EURUSD"),
            ("09_asier_EURUSD5_old_L1-30_spanish_header.csv", "EURUSD"),
            ("GBPUSDm.csv", "GBPUSD"),
            ("XAUUSD.csv", "XAUUSD"),
            ("AAPL.csv.gz", "AAPL"),
            ("BF.B.csv", "BF.B"),
            ("DA-BF.B-T-2021-04-21.csv", "BF.B"),
            ("DA-T-T-2021-04-21.csv.gz", "T"),
            ("DA--T-2021.csv", "DA--T-2021"),
            ("DA-AAPL.csv", "DA-AAPL"),
            ("daily_adjusted_IBM.csv", "IBM"),
            ("daily_BRK-B.csv", "BRK-B"),
            ("daily_.csv", "DAILY_"),
            ("EUREUR.csv", "EUREUR"),
            ("bars", "BARS"),
            ("AAPL_bid.csv", "AAPL"),
            ("ask AAPL-2020.csv", "AAPL-2020"),
            ("ask.csv", "ASK"),
            ("A_B.csv", "A_B"),
            ("", ""),
        ];
        for (path, symbol) in cases {
            assert_eq!(symbol_of(Path::new(path)), symbol, "{path}");
        }
    }

    #[test]
    fn pip_sizes() {
        for (symbol, pip_size) in [("EURUSD", 0.0001), ("usdjpy", 0.01), ("EURJPY", 0.01), ("GBPUSDm", 0.0001)] {
            assert_eq!(pip_size_of(symbol).unwrap(), pip_size, "{symbol}");
        }
        for symbol in ["", "AAPL", "XAUUSD", "JPY", "EURUSDXY", "ÄÖÜ€"] {
            assert!(pip_size_of(symbol).unwrap_err().to_string().contains("--pip-size"), "{symbol}");
        }
    }
}
