//! Symbols: the name from the file's, and the size of a pip.

use std::cmp::Reverse;
use std::path::Path;

use crate::error::{Error, Result};
use crate::parse::symbol_pattern::stem_of;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::MINUTE_NS;

/// Quote and base currencies whose pairs have the usual pip.
const CURRENCIES: [&str; 19] = [
    "USD", "EUR", "GBP", "JPY", "CHF", "AUD", "NZD", "CAD", "SEK", "NOK", "DKK", "PLN", "CZK", "TRY", "ZAR", "MXN",
    "SGD", "HKD", "CNH",
];
/// Traded like currencies, but brokers do not agree on their pip.
const METALS: [&str; 2] = ["XAU", "XAG"];

/// Coins, in the names of their pairs.
const COINS: [&str; 22] = [
    "BTC", "XBT", "ETH", "LTC", "XRP", "BCH", "BNB", "ADA", "DOT", "SOL", "DOGE", "LINK", "XLM", "TRX", "XMR", "EOS",
    "DASH", "ZEC", "ETC", "AVAX", "MATIC", "ATOM",
];
/// Currencies that coins are quoted in.
const COIN_QUOTES: [&str; 9] = ["USDT", "USDC", "BUSD", "USD", "EUR", "GBP", "JPY", "BTC", "ETH"];
/// Vendors' words in file names.
const VENDORS: [&str; 16] = [
    "ALPHAVANTAGE",
    "BINANCE",
    "BITFINEX",
    "BITSTAMP",
    "COINBASE",
    "DUKASCOPY",
    "FXCM",
    "GEMINI",
    "HISTDATA",
    "KRAKEN",
    "METATRADER",
    "MT4",
    "MT5",
    "OANDA",
    "STOOQ",
    "YAHOO",
];
/// Timeframes in file names.
const LENGTHS: [&str; 9] = ["D1", "W1", "MN1", "DAILY", "HOURLY", "WEEKLY", "MONTHLY", "MINUTE", "MINUTES"];

/// Names that collections of daily shares have: what stands before the symbol, and after it.
const SHARES: [(&str, &str); 3] = [("DA-", "-T-"), ("DAILY_ADJUSTED_", ""), ("DAILY_", "")];

/// The symbol in a file's name, in upper case, by the rules of
/// [`ReadOptions::symbol_pattern`](crate::ReadOptions::symbol_pattern).
pub(crate) fn symbol_of(path: &Path) -> String {
    let stem = stem_of(path);
    let known = named_pair(path).or_else(|| metatrader_of(&stem)).or_else(|| share_of(&stem));
    known.or_else(|| coin_pair_of(&stem)).unwrap_or_else(|| without_descriptions(&stem))
}

/// The symbol in a file's name, as [`symbol_of`] has it. If it is none of the `known` ones, and the
/// name begins with a longer form that is, then that: `EURUSD.r` of `EURUSD.r_M1.csv`.
pub(crate) fn symbol_among(path: &Path, known: &[String]) -> String {
    let (stem, found) = (stem_of(path), symbol_of(path));
    if known.contains(&found) {
        return found;
    }
    let is_longer = |symbol: &&String| {
        let symbol = symbol.to_uppercase();
        let rest = stem.strip_prefix(symbol.as_str());
        symbol.starts_with(&found) && rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let longest = known.iter().filter(is_longer).max_by_key(|symbol| symbol.len());
    longest.cloned().unwrap_or(found)
}

/// The symbol that a file is named after, in upper case: a pair of currencies or of a coin, or the
/// symbol in a name by MetaTrader or of a daily share. `None` for a name of other words, such as
/// `daily_january.csv`: symbols of shares are written in upper case.
pub fn named_symbol(path: &Path) -> Option<String> {
    let stem = stem_of(path);
    let written = path.file_name().unwrap_or_default().to_string_lossy();
    let is_share = |name: &String| {
        name.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '.' | '-')) && written.contains(name.as_str())
    };
    let known = named_pair(path).or_else(|| metatrader_of(&stem));
    known.or_else(|| share_of(&stem).filter(is_share)).or_else(|| coin_pair_of(&stem))
}

/// The symbol in a name of MetaTrader's exports, `GOLD_M1_201801010000_201801092359`: times of the
/// first and the last bar end it.
fn metatrader_of(stem: &str) -> Option<String> {
    let mut parts = stem.rsplitn(4, '_');
    let (last, first, length, symbol) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    (is_time(last) && is_time(first) && is_length(length) && !symbol.is_empty()).then(|| symbol.to_owned())
}

/// True for the time of a bar in a name of MetaTrader's exports.
fn is_time(part: &str) -> bool {
    matches!(part.len(), 8 | 12 | 14) && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// The symbol in a name that collections of daily shares have.
fn share_of(stem: &str) -> Option<String> {
    let between = |&(before, after): &(&str, &str)| {
        let rest = stem.strip_prefix(before)?;
        if after.is_empty() { Some(rest) } else { rest.split_once(after).map(|(symbol, _)| symbol) }
    };
    SHARES.iter().find_map(between).filter(|symbol| !symbol.is_empty()).map(str::to_owned)
}

/// `BTCUSD` of `SNOWGURU_BTCUSD_D1`.
fn coin_pair_of(stem: &str) -> Option<String> {
    stem.split(is_separator).find(|part| is_coin_pair(part)).map(str::to_owned)
}

fn is_coin_pair(word: &str) -> bool {
    let mut quotes = COINS.iter().filter_map(|coin| word.strip_prefix(coin));
    quotes.any(|quote| COIN_QUOTES.contains(&quote))
}

/// A name without the words for side, timeframe and vendor. One word always stays.
fn without_descriptions(stem: &str) -> String {
    let mut parts: Vec<&str> = stem.split(is_separator).collect();
    let before = parts.len();
    for is_description in [is_side, is_length, is_vendor] {
        for place in (0..parts.len()).rev() {
            if parts.iter().filter(|part| !part.is_empty()).count() > 1 && is_description(parts[place]) {
                parts.remove(place);
            }
        }
    }
    if parts.len() == before { stem.to_owned() } else { parts.join("-") }
}

fn is_separator(c: char) -> bool {
    matches!(c, '_' | '-' | ' ')
}

fn is_side(part: &str) -> bool {
    matches!(part, "BID" | "ASK")
}

/// True if a part of a name is a timeframe: `M15`, `H4`, `5MIN`, `1H`, `DAILY`.
fn is_length(part: &str) -> bool {
    let is_number = |text: &str| (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let after = |unit: &str| part.strip_prefix(unit).is_some_and(is_number);
    let before = |unit: &str| part.strip_suffix(unit).is_some_and(is_number);
    let units = ["M", "MIN", "MINS", "H", "HOUR", "D", "DAY", "W", "WEEK"];
    LENGTHS.contains(&part) || after("M") || after("H") || units.into_iter().any(before)
}

/// The timeframe that a part of a file's name is: `M15`, `H4`, `5MIN`, `1H`, the minutes behind a
/// pair or `symbol` in a name by MetaTrader 4, `EURUSD240`, or the word in one by MetaTrader 5,
/// `EURUSD_Daily`. `DAILY` among other words may say how often a file comes, and is none.
pub(crate) fn timeframe_of(path: &Path, symbol: &str) -> Option<Timeframe> {
    let stem = stem_of(path);
    // `1M` is a minute in a file's name.
    let named: Option<Timeframe> = stem.to_lowercase().split(is_separator).find_map(|part| part.parse().ok());
    let minutes = || stem.split(is_separator).find_map(|part| minutes_behind(part, symbol));
    named.or_else(minutes).or_else(|| word_of_metatrader(&stem))
}

/// The timeframe by the minutes behind a pair or `symbol`: H4 of `EURUSD240`.
fn minutes_behind(part: &str, symbol: &str) -> Option<Timeframe> {
    let name = part.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_symbol = pair_at_start(name).is_some() || is_coin_pair(name) || name.eq_ignore_ascii_case(symbol);
    let minutes: i64 = part[name.len()..].parse().ok().filter(|_| is_symbol)?;
    match minutes {
        1 | 5 | 15 | 30 | 60 | 240 | 1_440 | 10_080 => Timeframe::from_duration_ns(minutes * MINUTE_NS),
        43_200 => Some(Timeframe::MN1),
        _ => None,
    }
}

/// The timeframe by the word in a name of MetaTrader 5: D1 of `EURUSD_DAILY` and of
/// `EURUSD_DAILY_201811060000_201811080000`.
fn word_of_metatrader(stem: &str) -> Option<Timeframe> {
    let parts: Vec<&str> = stem.split('_').collect();
    let word = match parts[..] {
        [_, word] => word,
        [.., word, first, last] if is_time(first) && is_time(last) => word,
        _ => return None,
    };
    match word {
        "DAILY" => Some(Timeframe::D1),
        "WEEKLY" => Some(Timeframe::W1),
        "MONTHLY" => Some(Timeframe::MN1),
        _ => None,
    }
}

fn is_vendor(part: &str) -> bool {
    VENDORS.contains(&part)
}

/// The currency pair that a file is named after, in upper case.
pub fn named_pair(path: &Path) -> Option<String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    name.split(|c: char| !c.is_ascii_alphanumeric()).find_map(pair_at_start)
}

/// True if `name` may be another name of `symbol`: of the same letters and digits, or of the same
/// currency pair.
pub(crate) fn is_name_of(symbol: &str, name: &str) -> bool {
    let [own, other] = [symbol, name].map(letters);
    own == other || pair_at_start(&own).is_some_and(|pair| pair_at_start(&other) == Some(pair))
}

/// Letters and digits of a name, in upper case.
fn letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_uppercase()
}

/// The currency pair that `symbol` begins with, in upper case, before the ending of a broker:
/// `EURUSD` for `EURUSD.r`. Rows of `symbol` are taken for those of the pair.
pub fn pair_without_ending(symbol: &str) -> Option<String> {
    pair_at_start(&letters(symbol)).filter(|pair| symbol.to_uppercase().starts_with(pair.as_str()))
}

/// The first of `symbols` that `name` may be another name of.
pub fn likely_symbol<'s>(name: &str, symbols: &'s [String]) -> Option<&'s str> {
    symbols.iter().map(String::as_str).find(|symbol| is_name_of(symbol, name))
}

/// Symbols, those first that are most like `name`.
pub(crate) fn nearest_first(name: &str, mut symbols: Vec<String>) -> Vec<String> {
    let same_start = |symbol: &str| {
        let both = symbol.chars().zip(name.chars());
        both.take_while(|(own, other)| own.eq_ignore_ascii_case(other)).count()
    };
    symbols.sort_by_key(|symbol| (!is_name_of(symbol, name), Reverse(same_start(symbol))));
    symbols
}

/// The size of one pip in units of the price: 0.01 for pairs quoted in yen, 0.0001 for other
/// currency pairs. A broker's ending counts for nothing: `EURUSD.r`, `EURUSD_ecn`.
///
/// # Errors
/// [`Error::UnknownPipSize`] for anything else: shares, metals and coins have no pip that everybody
/// agrees on.
pub fn pip_size_of(symbol: &str) -> Result<f64> {
    let unknown = || Error::UnknownPipSize { symbol: symbol.to_owned() };
    let name = symbol.to_uppercase().replacen('/', "", 1);
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let pair = words.next().and_then(pair_at_start).ok_or_else(unknown)?;
    match pair.split_at(3) {
        (first, _) if METALS.contains(&first) => Err(unknown()),
        (_, "JPY") => Ok(0.01),
        _ => Ok(0.0001),
    }
}

/// True if `symbol` is a pair of currencies: these alone have a usual pip.
pub(crate) fn is_currency_pair(symbol: &str) -> bool {
    pip_size_of(symbol).is_ok()
}

/// True for a pair of a coin: it trades on every day of the week.
pub(crate) fn is_of_a_coin(symbol: &str) -> bool {
    is_coin_pair(&letters(symbol))
}

/// True for a pair of currencies, metals or coins: a day of it may have trades until its end.
pub fn trades_around_the_clock(symbol: &str) -> bool {
    let name = letters(symbol);
    is_currency_pair(symbol) || is_of_a_coin(symbol) || pair_at_start(&name).is_some()
}

/// `EURUSD` of `EURUSD`, `EURUSD5` or `EURUSDM`, in upper case: a pair, at most one letter, and
/// digits.
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
    fn timeframes_from_file_names() {
        for (name, timeframe) in [
            ("DAT_ASCII_EURUSD_M1_2018.csv.gz", Some(Timeframe::M1)),
            ("eurusd-h4-2013.csv", Some(Timeframe::H4)),
            ("Bitstamp_BTCUSD_1h.csv", Some(Timeframe::H1)),
            ("EURUSD 15min.csv", Some(Timeframe::M15)),
            ("AAPL_1D.csv", Some(Timeframe::D1)),
            ("EURUSD_2h.csv", Some(Timeframe::H2)),
            ("EURUSD_7h.csv", None),
            ("EURUSD_99999999999999999d.csv", None),
            ("EURUSD-daily-2026-11-25.csv", None),
            // Bars of days and weeks were taken for M5 bars.
            ("XAUUSD_Daily_201811060000_201811080000.csv", Some(Timeframe::D1)),
            ("US_500.cash_Weekly_20180101_20180109.csv", Some(Timeframe::W1)),
            ("EURUSD_Monthly_201801010000_201809010000.csv", Some(Timeframe::MN1)),
            ("EURUSD_Daily.csv", Some(Timeframe::D1)),
            ("yahoo_AAPL_daily.csv", None),
            ("EURUSD_MN1.csv", Some(Timeframe::MN1)),
            ("EURUSD5.csv", Some(Timeframe::M5)),
            ("EURUSDm240.csv", Some(Timeframe::H4)),
            ("EURUSD10080_new.csv", Some(Timeframe::W1)),
            ("BTCUSD1440.csv", Some(Timeframe::D1)),
            ("GOLD43200.csv", Some(Timeframe::MN1)),
            ("SILVER1440.csv", None),
            ("EURUSD2018.csv", None),
        ] {
            assert_eq!(timeframe_of(Path::new(name), "GOLD"), timeframe, "{name}");
        }
    }

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
            // `megabatch ingest SNOWGURU_BTCUSD_*.csv` gave an instrument of each file.
            ("SNOWGURU_BTCUSD_D1.csv", "BTCUSD"),
            ("Bitstamp_BTCUSD_1h.csv", "BTCUSD"),
            ("binance-ETHUSDT-5m.csv", "ETHUSDT"),
            ("AAPL_M15.csv", "AAPL"),
            ("yahoo_AAPL_daily.csv", "AAPL"),
            ("BRK-B_1d.csv", "BRK-B"),
            ("3M_D1.csv", "3M"),
            // Two exports of gold were two instruments.
            ("GOLD_M1_201801010000_201801092359.csv", "GOLD"),
            ("US_500.cash_H1_20180101_20180109.csv", "US_500.CASH"),
            ("GOLD_M1_2018_2019.csv", "GOLD-2018-2019"),
            ("BTCUSDT-1m-2024-01.zip", "BTCUSDT"),
            ("HISTDATA_COM_ASCII_EURUSD_M12018.zip", "EURUSD"),
            ("AAPL.csv.zip", "AAPL"),
            ("MT5_D1.csv", "MT5"),
            ("H1.csv", "H1"),
            ("", ""),
        ];
        for (path, symbol) in cases {
            assert_eq!(symbol_of(Path::new(path)), symbol, "{path}");
        }
    }

    // A file of `EURUSD.r` was refused beside a series of that symbol and another one.
    #[test]
    fn a_known_symbol_counts_before_a_shorter_one_of_the_name() {
        for (name, known, symbol) in [
            ("EURUSD.r_M1_live.csv", &["EURUSD.r", "GBPUSD.r"][..], "EURUSD.r"),
            ("eurusd.pro.csv", &["EURUSD.p", "EURUSD.pro"][..], "EURUSD.pro"),
            ("EURUSD.r_M1_live.csv", &["EURUSD", "EURUSD.r"][..], "EURUSD"),
            ("EURUSD.raw_M1.csv", &["EURUSD.r"][..], "EURUSD"),
            ("EURUSD_M1.csv", &["EURUSD.r"][..], "EURUSD"),
            ("T-MOBILE.csv", &["T"][..], "T-MOBILE"),
            ("EURUSD.r.csv", &[][..], "EURUSD"),
        ] {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            assert_eq!(symbol_among(Path::new(name), &known), symbol, "{name} {known:?}");
        }
    }

    #[test]
    fn files_that_are_named_after_a_symbol() {
        for (name, symbol) in [
            ("DAT_ASCII_EURUSD_M1_2018.csv.gz", Some("EURUSD")),
            ("GOLD_M1_201801010000_201801092359.csv", Some("GOLD")),
            ("daily_BRK-B.csv", Some("BRK-B")),
            ("Bitstamp_BTCUSD_1h.csv", Some("BTCUSD")),
            ("DA-BF.B-T-2021-04-21.csv", Some("BF.B")),
            ("EURUSD60.csv", Some("EURUSD")),
            ("BTCUSDT-1m-2021-01.csv", Some("BTCUSDT")),
            // Months of one share were refused as several symbols.
            ("daily_january.csv", None),
            ("daily_2018.csv", None),
            ("bars-2018.csv", None),
            ("AAPL_2.csv", None),
            ("data_new.csv", None),
            ("part-0001.csv", None),
            ("feb.csv", None),
        ] {
            assert_eq!(named_symbol(Path::new(name)).as_deref(), symbol, "{name}");
        }
    }

    #[test]
    fn the_nearest_symbols_are_those_that_begin_alike() {
        let symbols = || ["A", "AAPL", "BRK.B", "brkb", "BRX"].map(str::to_owned).to_vec();
        for (name, first) in [("BRK-B", ["BRK.B", "brkb"]), ("aap", ["AAPL", "A"]), ("x", ["A", "AAPL"])] {
            assert_eq!(nearest_first(name, symbols())[..2], first, "{name}");
        }
    }

    #[test]
    fn a_symbol_in_another_form_is_known() {
        let symbols = ["AAPL", "BF/B", "EURUSD", "Ä1", "贵州茅台"].map(str::to_owned);
        for (name, symbol) in [
            ("aapl", Some("AAPL")),
            ("BF-B", Some("BF/B")),
            ("bf_b", Some("BF/B")),
            ("BF.A", None),
            ("EURUSDm", Some("EURUSD")),
            ("EUR/USD", Some("EURUSD")),
            ("GBPUSD", None),
            ("1", None),
            // Every name without a letter of ASCII was another name of every other one.
            ("平安银行", None),
        ] {
            assert_eq!(likely_symbol(name, &symbols), symbol, "{name}");
        }
    }

    #[test]
    fn the_ending_of_a_broker_is_left_out() {
        for (symbol, pair) in [
            ("EURUSD.r", Some("EURUSD")),
            ("usdjpym", Some("USDJPY")),
            ("EURUSD", Some("EURUSD")),
            ("eur/usd", None),
            // Rows of that name are those of another symbol.
            ("EURUSD.pro", None),
            ("AAPL.r", None),
        ] {
            assert_eq!(pair_without_ending(symbol).as_deref(), pair, "{symbol}");
        }
    }

    #[test]
    fn pairs_trade_around_the_clock() {
        for symbol in ["EURUSD", "eur/usd", "EURUSD=X", "USDJPY_ecn", "XAUUSD", "BTCUSDT", "BTC-USD"] {
            assert!(trades_around_the_clock(symbol), "{symbol}");
        }
        for symbol in ["", "SPY", "AAPL", "^GSPC", "BTC", "BF-B"] {
            assert!(!trades_around_the_clock(symbol), "{symbol}");
        }
    }

    #[test]
    fn pip_sizes() {
        for (symbol, pip_size) in [
            ("EURUSD", 0.0001),
            ("usdjpy", 0.01),
            ("EURJPY", 0.01),
            ("GBPUSDm", 0.0001),
            // `ingest --symbol EURUSD.r` asked for the size.
            ("EURUSD.r", 0.0001),
            ("USDJPY_ecn", 0.01),
            ("#EURUSD", 0.0001),
            ("eur/usd", 0.0001),
        ] {
            assert_eq!(pip_size_of(symbol).unwrap(), pip_size, "{symbol}");
        }
        for symbol in ["", ".", "EUR.USD", "BF/B", "AAPL", "XAUUSD", "JPY", "EURUSDXY", "ÄÖÜ€"] {
            assert!(pip_size_of(symbol).unwrap_err().to_string().contains("or give the size"), "{symbol}");
        }
    }
}
