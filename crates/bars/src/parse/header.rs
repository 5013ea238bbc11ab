//! Column names as exports of several languages write them.

use crate::parse::fields::RowFields;
use crate::parse::format::BarColumns;

/// Names by role, in lower case, letters and digits only.
const DATES: &[&str] = &["date", "fecha", "datum", "data", "dtyyyymmdd"];
const CLOCKS: &[&str] = &["time", "hora", "zeit", "uhrzeit", "heure", "ora"];
const STAMPS: &[&str] = &[
    "timestamp",
    "unixtimestamp",
    "unix",
    "unixtime",
    "epoch",
    "datetime",
    "gmttime",
    "localtime",
    "utctime",
    "timeutc",
    "dateutc",
    "utc",
    "opentime",
];
const OPENS: &[&str] = &["open", "apertura", "abertura", "eröffnung", "ouverture", "openprice"];
const HIGHS: &[&str] = &["high", "alto", "máximo", "maximo", "massimo", "hoch", "haut", "máxima", "highprice"];
const LOWS: &[&str] = &["low", "bajo", "mínimo", "minimo", "tief", "bas", "mínima", "baixo", "lowprice"];
const CLOSES: &[&str] =
    &["close", "cerrar", "cierre", "fechamento", "schluss", "schlusskurs", "clôture", "chiusura", "closeprice"];
/// A close as it would have been without later splits and dividends.
const ADJUSTED_CLOSES: &[&str] = &["adjclose", "adjustedclose", "closeadj", "adjclosing"];
/// Columns of new shares for an old one.
const SPLITS: &[&str] = &["splitcoefficient", "stocksplits", "splitratio"];
/// Column names of dividends.
const DIVIDENDS: &[&str] = &["dividendamount", "dividends", "dividend"];
const SPREADS: &[&str] = &["spread"];
/// In MetaTrader 5 the volume of a currency pair is in the ticks; `volume` is then zero. So ticks
/// come first.
const VOLUMES: &[&str] = &["tickvolume", "tickvol", "volume", "vol", "volumen"];

/// Columns named by a header line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderLine {
    /// It names the columns.
    Named(BarColumns),
    /// It has words in place of every number, none of them known: the columns are told from their
    /// positions.
    Words,
    /// It names some prices and not others, so that neither names nor positions can be trusted.
    Partial {
        /// The price that is missing.
        missing: &'static str,
    },
}

/// Reads a line as a header; `None` for a line that is not one.
pub(crate) fn parse(fields: &RowFields<'_>) -> Option<HeaderLine> {
    let names: Vec<String> = fields.iter().map(normalised).collect();
    let is_word = |name: &String| name.chars().next().is_some_and(char::is_alphabetic);
    if names.len() < 5 || !names.iter().all(is_word) {
        return None;
    }
    let column = |known: &[&str]| known.iter().find_map(|wanted| names.iter().position(|name| name == wanted));
    let prices = [("open", column(OPENS)), ("high", column(HIGHS)), ("low", column(LOWS)), ("close", column(CLOSES))];
    if prices.iter().all(|(_, found)| found.is_none()) {
        return Some(HeaderLine::Words);
    }
    let [Some(open), Some(high), Some(low), Some(close)] = prices.map(|(_, found)| found) else {
        let missing = prices.iter().find_map(|(name, found)| found.is_none().then_some(*name));
        return Some(HeaderLine::Partial { missing: missing.expect("not all four were found") });
    };
    let (date, clock, stamp) = (column(DATES), column(CLOCKS), column(STAMPS));
    let Some(time) = stamp.or(date).or(clock) else { return Some(HeaderLine::Partial { missing: "date" }) };
    let clock = clock.filter(|_| stamp.is_none() && date.is_some());
    Some(HeaderLine::Named(BarColumns {
        time,
        clock,
        open,
        high,
        low,
        close,
        adjusted: column(ADJUSTED_CLOSES),
        split: column(SPLITS),
        dividend: column(DIVIDENDS),
        volume: column(VOLUMES),
        spread: column(SPREADS),
    }))
}

fn normalised(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_as_they_are_found() {
        let named = |time, clock, first, volume| BarColumns {
            time,
            clock,
            open: first,
            high: first + 1,
            low: first + 2,
            close: first + 3,
            adjusted: None,
            split: None,
            dividend: None,
            volume,
            spread: None,
        };
        let columns = |time, clock, first, volume| Some(HeaderLine::Named(named(time, clock, first, volume)));
        let with_spread = BarColumns { spread: Some(8), ..named(0, Some(1), 2, Some(6)) };
        let adjusted = BarColumns { adjusted: Some(5), ..named(0, None, 1, Some(6)) };
        let daily = BarColumns { split: Some(8), dividend: Some(7), ..adjusted };
        let cases = [
            ("date,time,open,high,low,close,tickvolume,volume,spread", Some(HeaderLine::Named(with_spread))),
            (
                "<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<TICKVOL>,<VOL>,<SPREAD>",
                Some(HeaderLine::Named(with_spread)),
            ),
            ("<TICKER>,<DTYYYYMMDD>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>", columns(1, Some(2), 3, Some(7))),
            ("FECHA,HORA,APERTURA,ALTO,BAJO,CERRAR,VOLUMEN", columns(0, Some(1), 2, Some(6))),
            ("timestamp,open,high,low,close", columns(0, None, 1, None)),
            ("Time (UTC);Open;High;Low;Close;Volume.", None),
            ("Date (UTC),Open,High,Low,Close,Vol.", columns(0, None, 1, Some(5))),
            ("Time,Open,High,Low,Close", columns(0, None, 1, None)),
            ("Date,Open,High,Low,Close,Adj Close,Volume", Some(HeaderLine::Named(adjusted))),
            (
                "timestamp,open,high,low,close,adjusted_close,volume,dividend_amount,split_coefficient",
                Some(HeaderLine::Named(daily)),
            ),
            ("kuupäev,avamine,kõrgeim,madalaim,sulgemine", Some(HeaderLine::Words)),
            ("Date,Price,Open,High,Low,Vol.", Some(HeaderLine::Partial { missing: "close" })),
            ("open,high,low,close,volume", Some(HeaderLine::Partial { missing: "date" })),
            ("2018-01-01,1,1,1,1", None),
            ("{", None),
            ("a,b", None),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(&RowFields::split(line.as_bytes(), b',')), expected, "{line}");
        }
    }
}
