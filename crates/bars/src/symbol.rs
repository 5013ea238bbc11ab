//! What is traded: its name from the file's, and the size of a pip.

use std::path::Path;

use crate::error::{Error, Result};

/// Quote and base currencies whose pairs have the usual pip.
const CURRENCIES: [&str; 19] = [
    "USD", "EUR", "GBP", "JPY", "CHF", "AUD", "NZD", "CAD", "SEK", "NOK", "DKK", "PLN", "CZK", "TRY", "ZAR", "MXN",
    "SGD", "HKD", "CNH",
];
/// Traded like currencies, but brokers do not agree on their pip.
const METALS: [&str; 2] = ["XAU", "XAG"];

/// The symbol that a file's name stands for: the first part of it that starts with a currency pair, or else the whole
/// name without its endings and without the words `bid` and `ask`.
///
/// `DAT_ASCII_EURUSD_M1_2018.csv.gz` and `EURUSD5.csv` are EURUSD, `usdjpy-m1-bid-2013.csv` is USDJPY, `AAPL.csv` is AAPL.
pub fn symbol_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    let pair = name.split(|c: char| !c.is_ascii_alphanumeric()).find_map(pair_at_start);
    pair.unwrap_or_else(|| {
        let stem = name.strip_suffix(".GZ").unwrap_or(&name);
        without_side(stem.rsplit_once('.').map_or(stem, |(stem, _)| stem))
    })
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
