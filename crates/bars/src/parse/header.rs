//! Column names as exports of several languages write them.

use crate::parse::columns::BarColumns;
use crate::parse::fields::RowFields;
use crate::time::zone::Zone;

/// Separators of fields that are tried.
pub(crate) const DELIMITERS: [u8; 3] = [b'\t', b';', b','];

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
/// Names of times by UTC.
const UTC_TIMES: &[&str] = &["gmttime", "utctime", "timeutc", "dateutc", "utc"];
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
const SYMBOLS: &[&str] = &[
    "symbol",
    "ticker",
    "instrument",
    "tic",
    "pair",
    "tickersymbol",
    "tradingsymbol",
    "symbolname",
    "stocksymbol",
    "currencypair",
];
/// Names of columns that have symbols, or what changes within the bars of one share, as the name of
/// its company does.
const LIKELY_SYMBOLS: &[&str] = &[
    "asset",
    "name",
    "stock",
    "stockcode",
    "stockname",
    "security",
    "securityid",
    "secid",
    "permno",
    "isin",
    "cusip",
    "sedol",
    "figi",
    "ric",
    "company",
    "companyname",
    "coin",
];
/// Both prices of a tick.
const TICKS: [&str; 2] = ["bid", "ask"];
/// In MetaTrader 5 the volume of a currency pair is in the ticks; `volume` is then zero. So ticks
/// come first.
const VOLUMES: &[&str] = &["tickvolume", "tickvol", "volume", "vol", "volumen", "basevolume", "totalvolume"];
/// Beginning of a volume's name with its unit, such as `Volume BTC` or `Volume_(BTC)`.
const VOLUME: &str = "volume";
/// Name of the close in files that name open, high and low, and no close.
const PRICE: &[&str] = &["price"];

/// Columns of numbers: a name by which a header names the role, and all of them.
const NUMBERS: [(&str, &[&str]); 9] = [
    ("open", OPENS),
    ("high", HIGHS),
    ("low", LOWS),
    ("close", CLOSES),
    ("adj_close", ADJUSTED_CLOSES),
    ("split_coefficient", SPLITS),
    ("dividend_amount", DIVIDENDS),
    ("volume", VOLUMES),
    ("spread", SPREADS),
];

/// Columns named by a header line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderLine {
    /// It names the columns.
    Named(BarColumns),
    /// It has words in place of every number, none of them known: the columns are told from their
    /// positions.
    Words,
    /// It names the bid and the ask of ticks, which are no bars.
    Ticks,
    /// It names some prices and not others, so that neither names nor positions can be trusted.
    Partial {
        /// The price that is missing.
        missing: &'static str,
    },
}

/// Columns of a table in memory by role: those that a header with its names would give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumns {
    /// Date and time.
    pub stamp: Option<usize>,
    /// The date.
    pub date: Option<usize>,
    /// The time of day.
    pub clock: Option<usize>,
    /// Columns of numbers.
    pub numbers: Vec<NumberColumn>,
    /// Columns that have symbols whatever their rows are, the first choice first.
    pub symbols: Vec<usize>,
    /// Columns that have symbols, or what changes within the bars of one share, the first choice
    /// first.
    pub likely_symbols: Vec<usize>,
    /// Columns whose names stand for nothing.
    pub others: Vec<usize>,
}

/// A column of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberColumn {
    /// Name by which a header names its role.
    pub name: &'static str,
    /// Its place in the table, counted from 0.
    pub place: usize,
}

impl TableColumns {
    /// The columns of a table with these names.
    pub fn find(names: &[String]) -> Self {
        let others = (0..names.len()).filter(|&place| !has_role(names[place].as_bytes())).collect();
        let names: Vec<String> = names.iter().map(|name| normalised(name.as_bytes())).collect();
        let numbers = NUMBERS.iter().filter_map(|&(name, known)| {
            let place = match name {
                "close" => close(&names),
                "volume" => volume(&names),
                _ => column(&names, known),
            }?;
            Some(NumberColumn { name, place })
        });
        TableColumns {
            stamp: column(&names, STAMPS),
            date: column(&names, DATES),
            clock: column(&names, CLOCKS),
            numbers: numbers.collect(),
            symbols: columns(&names, SYMBOLS),
            likely_symbols: columns(&names, LIKELY_SYMBOLS),
            others,
        }
    }
}

/// Reads a line as a header; `None` for a line that is not one. The first name begins with a
/// letter, or is empty: that of an index, as pandas writes it. The others have letters in them.
pub(crate) fn parse(fields: &RowFields<'_>) -> Option<HeaderLine> {
    let names = names(fields);
    let (first, others) = names.split_first()?;
    let is_word = |name: &String| name.chars().any(char::is_alphabetic);
    let begins = first.is_empty() || first.starts_with(char::is_alphabetic);
    if names.len() < 5 || !begins || !others.iter().all(is_word) {
        return None;
    }
    Some(by_names(&names))
}

/// The columns of a header that names a date and a time stamp, where the stamp is a time of day:
/// `Date,Timestamp`.
pub(crate) fn with_date_apart(fields: &RowFields<'_>) -> Option<BarColumns> {
    let Some(HeaderLine::Named(columns)) = parse(fields) else { return None };
    let names = names(fields);
    let date = DATES.iter().find_map(|wanted| names.iter().position(|name| name == wanted))?;
    let is_apart = columns.time != date && columns.clock.is_none();
    is_apart.then_some(BarColumns { time: date, clock: Some(columns.time), ..columns })
}

/// The zone that a header names beside the time: `Time (EET)`, `Gmt time`.
pub(crate) fn zone(fields: &RowFields<'_>) -> Option<Zone> {
    fields.iter().find_map(|field| match in_parentheses(field) {
        Some((name, zone)) => is_time(&normalised(name)).then(|| in_words(std::str::from_utf8(zone).ok()?))?,
        None => UTC_TIMES.contains(&normalised(field).as_str()).then(Zone::utc),
    })
}

/// A zone as headers write it: as elsewhere, or `UTC+8`, `GMT-5`, `UTC+05:30`.
fn in_words(zone: &str) -> Option<Zone> {
    let is_utc = |name: &str| ["utc", "gmt"].iter().any(|utc| name.eq_ignore_ascii_case(utc));
    let Some((_, offset)) =
        zone.find(['+', '-']).map(|sign| zone.split_at(sign)).filter(|(name, _)| is_utc(name.trim()))
    else {
        return zone.parse().ok();
    };
    let (sign, digits) = offset.split_at(1);
    let hours = digits.find(':').unwrap_or(digits.len());
    let padded = if hours == 1 { format!("{sign}0{digits}") } else { offset.to_owned() };
    padded.parse().ok()
}

/// The names of the fields. Those of times are without what stands behind them in parentheses.
fn names(fields: &RowFields<'_>) -> Vec<String> {
    let name = |field| match in_parentheses(field) {
        Some((name, _)) if is_time(&normalised(name)) => normalised(name),
        _ => normalised(field),
    };
    fields.iter().map(name).collect()
}

fn is_time(name: &str) -> bool {
    [DATES, CLOCKS, STAMPS].into_iter().any(|known| known.contains(&name))
}

/// The parts of `Time (EET)`.
fn in_parentheses(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let open = field.iter().position(|&byte| byte == b'(')?;
    let inner = field[open + 1..].strip_suffix(b")")?;
    Some((&field[..open], inner.trim_ascii()))
}

/// The column of times, or those of dates and of times of day.
pub(crate) fn time_columns(names: &[String]) -> Option<(usize, Option<usize>)> {
    let (date, clock, stamp) = (column(names, DATES), column(names, CLOCKS), column(names, STAMPS));
    let time = stamp.or(date).or(clock)?;
    Some((time, clock.filter(|_| stamp.is_none() && date.is_some())))
}

/// The columns of these names.
fn by_names(names: &[String]) -> HeaderLine {
    let column = |known: &[&str]| column(names, known);
    let prices = [("open", column(OPENS)), ("high", column(HIGHS)), ("low", column(LOWS)), ("close", close(names))];
    if prices.iter().all(|(_, found)| found.is_none()) {
        let are_ticks = TICKS.iter().all(|side| names.iter().any(|name| name == side));
        return if are_ticks { HeaderLine::Ticks } else { HeaderLine::Words };
    }
    let [Some(open), Some(high), Some(low), Some(close)] = prices.map(|(_, found)| found) else {
        let missing = prices.iter().find_map(|(name, found)| found.is_none().then_some(*name));
        return HeaderLine::Partial { missing: missing.expect("not all four were found") };
    };
    let index = names.first().filter(|name| name.is_empty()).map(|_| (0, None));
    let Some((time, clock)) = time_columns(names).or(index) else { return HeaderLine::Partial { missing: "date" } };
    HeaderLine::Named(BarColumns {
        time,
        clock,
        open,
        high,
        low,
        close,
        adjusted: column(ADJUSTED_CLOSES),
        split: column(SPLITS),
        dividend: column(DIVIDENDS),
        volume: volume(names),
        spread: column(SPREADS),
        symbol: column(SYMBOLS).or_else(|| column(LIKELY_SYMBOLS)),
    })
}

/// Header of two or three lines, as pandas writes columns of two levels: prices in one line,
/// symbols in another, and perhaps the index's name alone in a third. yfinance makes such frames.
pub(crate) struct StackedHeader {
    /// Line numbers, from 1, of its first and last line, and of the symbols.
    pub(crate) first_line: u64,
    pub(crate) last_line: u64,
    pub(crate) symbols_line: u64,
    /// The symbols, in the order of their columns.
    pub(crate) symbols: Vec<String>,
    /// Name and symbol of each column after the first, which holds the times.
    columns: Vec<StackedColumn>,
}

struct StackedColumn {
    name: String,
    symbol: String,
}

/// A line of a file.
pub(crate) type NumberedLine = (u64, Vec<u8>);

impl StackedHeader {
    /// The header in the first lines of a file, with whichever delimiter.
    pub(crate) fn in_any(head: &[NumberedLine]) -> Option<Self> {
        DELIMITERS.into_iter().find_map(|delimiter| StackedHeader::find(head, delimiter))
    }

    /// The header in the first lines of a file, if there is one.
    pub(crate) fn find(head: &[NumberedLine], delimiter: u8) -> Option<Self> {
        head.windows(2).enumerate().find_map(|(place, lines)| {
            let [first, second] = lines else { return None };
            let mut header =
                Self::from_lines(first, second, delimiter).or_else(|| Self::from_lines(second, first, delimiter))?;
            if let Some((line, text)) = head.get(place + 2)
                && names_index_alone(&RowFields::split(text, delimiter), header.columns.len() + 1)
            {
                header.last_line = *line;
            }
            Some(header)
        })
    }

    /// The header of a line of names and a line of symbols beside each other.
    fn from_lines(line_of_names: &NumberedLine, symbols: &NumberedLine, delimiter: u8) -> Option<Self> {
        let (named, symbol_fields) =
            (RowFields::split(&line_of_names.1, delimiter), RowFields::split(&symbols.1, delimiter));
        let begins = |fields: &RowFields<'_>| fields.get(0).map(normalised).filter(|name| is_no_number(name));
        let is_whole = named.len() == symbol_fields.len()
            && begins(&named).is_some()
            && begins(&symbol_fields).is_some()
            // Times are the first column, and this line does not name it.
            && !names(&named).iter().any(|name| is_time(name))
            && symbol_fields.iter().skip(1).all(|symbol| !symbol.is_empty());
        if !is_whole {
            return None;
        }
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let together = named.iter().zip(symbol_fields.iter()).skip(1);
        let columns: Vec<StackedColumn> =
            together.map(|(name, symbol)| StackedColumn { name: normalised(name), symbol: text(symbol) }).collect();
        let mut distinct: Vec<String> = Vec::new();
        for column in &columns {
            if !distinct.contains(&column.symbol) {
                distinct.push(column.symbol.clone());
            }
        }
        let has = |symbol: &str, known: &[&str]| {
            columns.iter().any(|column| column.symbol == symbol && known.contains(&column.name.as_str()))
        };
        let has_prices = |symbol: &String| [OPENS, HIGHS, LOWS, CLOSES].into_iter().all(|known| has(symbol, known));
        // The first row of a long table has another value in each of its columns.
        if !distinct.iter().any(has_prices) {
            return None;
        }
        let (first_line, last_line) = (line_of_names.0.min(symbols.0), line_of_names.0.max(symbols.0));
        Some(StackedHeader { first_line, last_line, symbols_line: symbols.0, symbols: distinct, columns })
    }

    /// The columns of one symbol.
    pub(crate) fn columns_of(&self, symbol: &str) -> HeaderLine {
        let own = self.columns.iter().map(|column| match column.symbol == symbol {
            true => column.name.clone(),
            false => "-".to_owned(),
        });
        by_names(&[DATES[0].to_owned()].into_iter().chain(own).collect::<Vec<_>>())
    }
}

/// True if a line of `len` fields names the first and no other.
fn names_index_alone(fields: &RowFields<'_>, len: usize) -> bool {
    let is_word = |field: &[u8]| !field.is_empty() && is_no_number(&normalised(field));
    fields.len() == len && fields.get(0).is_some_and(is_word) && fields.iter().skip(1).all(<[u8]>::is_empty)
}

/// True for a name in lower case that is empty or begins with a letter.
fn is_no_number(name: &str) -> bool {
    name.chars().next().is_none_or(char::is_alphabetic)
}

fn close(names: &[String]) -> Option<usize> {
    let has_others = [OPENS, HIGHS, LOWS].into_iter().all(|known| column(names, known).is_some());
    column(names, CLOSES).or_else(|| column(names, PRICE).filter(|_| has_others))
}

fn volume(names: &[String]) -> Option<usize> {
    column(names, VOLUMES).or_else(|| names.iter().position(|name| name.starts_with(VOLUME)))
}

/// True for a name that stands for a role, whether or not its column is read.
pub(crate) fn has_role(name: &[u8]) -> bool {
    let name = normalised(name);
    let numbers = NUMBERS.into_iter().map(|(_, known)| known);
    let mut all = numbers.chain([DATES, CLOCKS, STAMPS, SYMBOLS, LIKELY_SYMBOLS, PRICE]);
    all.any(|known| known.contains(&name.as_str())) || name.starts_with(VOLUME)
}

/// True for a name of a column that has symbols, whatever its rows are.
pub(crate) fn surely_has_symbols(name: &[u8]) -> bool {
    SYMBOLS.contains(&normalised(name).as_str())
}

/// The column with the first of the names in `known` that one has.
fn column(names: &[String], known: &[&str]) -> Option<usize> {
    known.iter().find_map(|wanted| names.iter().position(|name| name == wanted))
}

/// The columns with names in `known`, in the order of these names.
fn columns(names: &[String], known: &[&str]) -> Vec<usize> {
    let places = |wanted: &str| -> Vec<usize> { (0..names.len()).filter(|&place| names[place] == wanted).collect() };
    known.iter().copied().flat_map(places).collect()
}

/// A name in lower case, letters and digits only.
pub(crate) fn normalised(name: &[u8]) -> String {
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
            symbol: None,
        };
        let columns = |time, clock, first, volume| Some(HeaderLine::Named(named(time, clock, first, volume)));
        let with_spread = BarColumns { spread: Some(8), ..named(0, Some(1), 2, Some(6)) };
        let with_ticker = BarColumns { symbol: Some(0), ..named(1, Some(2), 3, Some(7)) };
        let adjusted = BarColumns { adjusted: Some(5), ..named(0, None, 1, Some(6)) };
        let daily = BarColumns { split: Some(8), dividend: Some(7), ..adjusted };
        let cases = [
            ("date,time,open,high,low,close,tickvolume,volume,spread", Some(HeaderLine::Named(with_spread))),
            (
                "<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<TICKVOL>,<VOL>,<SPREAD>",
                Some(HeaderLine::Named(with_spread)),
            ),
            ("<TICKER>,<DTYYYYMMDD>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>", Some(HeaderLine::Named(with_ticker))),
            ("FECHA,HORA,APERTURA,ALTO,BAJO,CERRAR,VOLUMEN", columns(0, Some(1), 2, Some(6))),
            ("timestamp,open,high,low,close", columns(0, None, 1, None)),
            ("Time (UTC);Open;High;Low;Close;Volume.", None),
            ("Time (EET),Open,High,Low,Close,Volume ", columns(0, None, 1, Some(5))),
            ("Date (UTC),Open,High,Low,Close,Vol.", columns(0, None, 1, Some(5))),
            ("Time,Open,High,Low,Close", columns(0, None, 1, None)),
            ("Date,Open,High,Low,Close,Adj Close,Volume", Some(HeaderLine::Named(adjusted))),
            (
                "timestamp,open,high,low,close,adjusted_close,volume,dividend_amount,split_coefficient",
                Some(HeaderLine::Named(daily)),
            ),
            ("kuupäev,avamine,kõrgeim,madalaim,sulgemine", Some(HeaderLine::Words)),
            ("Date,Price,Open,High,Vol.", Some(HeaderLine::Partial { missing: "low" })),
            ("Date,Price,High,Low,Vol.", Some(HeaderLine::Partial { missing: "open" })),
            ("open,high,low,close,volume", Some(HeaderLine::Partial { missing: "date" })),
            ("<DATE>,<TIME>,<BID>,<ASK>,<LAST>,<VOLUME>,<FLAGS>", Some(HeaderLine::Ticks)),
            ("Gmt time,Ask,Bid,AskVolume,BidVolume", Some(HeaderLine::Ticks)),
            ("BidOpen,BidHigh,BidLow,BidClose,Date", Some(HeaderLine::Words)),
            ("2018-01-01,1,1,1,1", None),
            ("{", None),
            ("a,b", None),
            (",Open,High,Low,Close,Volume", columns(0, None, 1, Some(5))),
            ("Date,Open,High,Low,Close,52w high,%K", columns(0, None, 1, None)),
            ("2018-01-01T00:00Z,NaN,NaN,NaN,NaN", None),
            (",Date,Open,High,Low,Close", columns(1, None, 2, None)),
            (",,Open,High,Low,Close", None),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(&RowFields::split(line.as_bytes(), b',')), expected, "{line}");
        }
    }

    #[test]
    fn zones_that_headers_name() {
        for (line, expected) in [
            ("Time (EET),Open", Some("EET")),
            ("Time(UTC+8),Open", Some("+08")),
            ("Time (GMT-05:30),Open", Some("-05:30")),
            ("Time (utc +02:00),Open", Some("+02:00")),
            ("Time (ms),Open", None),
            ("Date (UTC),Open", Some("UTC")),
            ("Gmt time,Open", Some("UTC")),
            ("Time (America/New_York),Open", Some("America/New_York")),
            ("Time (nowhere),Open", None),
            ("Time,Volume (BTC)", None),
        ] {
            let found = zone(&RowFields::split(line.as_bytes(), b','));
            assert_eq!(found.map(|zone| zone.to_string()).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn a_table_has_the_columns_of_a_file_with_its_names() {
        let line = "Volume,Datetime,Time,Open,High,Low,Close,Adj Close,Tick Volume,Dividends,Stock Splits,Spread,Own";
        let names: Vec<String> = line.split(',').map(str::to_owned).collect();
        let table = TableColumns::find(&names);
        let Some(HeaderLine::Named(file)) = parse(&RowFields::split(line.as_bytes(), b',')) else {
            panic!("no header")
        };
        assert_eq!((table.stamp, table.date, table.clock), (Some(file.time), None, Some(2)));
        // The canonical names are those of the same roles, in any order.
        let header: Vec<&str> = std::iter::once("datetime").chain(table.numbers.iter().map(|one| one.name)).collect();
        let header = header.join(",");
        let Some(HeaderLine::Named(again)) = parse(&RowFields::split(header.as_bytes(), b',')) else {
            panic!("{header}")
        };
        let place = |column: usize| table.numbers[column - 1].place;
        let places = |columns: BarColumns| {
            [columns.adjusted, columns.split, columns.dividend, columns.volume, columns.spread]
                .map(|one| one.map(place))
        };
        assert_eq!(again.prices().map(place), file.prices());
        assert_eq!(places(again), [file.adjusted, file.split, file.dividend, file.volume, file.spread]);
        let others: Vec<&str> = table.others.iter().map(|&place| names[place].as_str()).collect();
        assert_eq!((others, TableColumns::find(&[]).numbers), (vec!["Own"], vec![]));
    }

    #[test]
    fn a_table_has_the_symbols_of_a_file_with_its_names() {
        let names = ["Stock Code", "Close", "TICKER", "ISIN", "Symbol", "ticker"].map(str::to_owned);
        let table = TableColumns::find(&names);
        assert_eq!((table.symbols, table.likely_symbols, table.others), (vec![4, 2, 5], vec![0, 3], vec![]));
        for name in SYMBOLS.iter().chain(LIKELY_SYMBOLS) {
            let line = format!("{name},Date,Open,High,Low,Close");
            let Some(HeaderLine::Named(file)) = parse(&RowFields::split(line.as_bytes(), b',')) else {
                panic!("no header: {line}")
            };
            let names: Vec<String> = line.split(',').map(str::to_owned).collect();
            let TableColumns { symbols, likely_symbols, .. } = TableColumns::find(&names);
            assert_eq!([symbols, likely_symbols].concat().first().copied(), file.symbol, "{name}");
        }
    }
}
