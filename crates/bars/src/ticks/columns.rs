//! Columns of ticks by their names in a header.

use crate::parse::fields::RowFields;
use crate::parse::header::{normalised, time_columns};

const BIDS: &[&str] = &["bid", "bidprice"];
const ASKS: &[&str] = &["ask", "askprice", "offer"];
const LASTS: &[&str] = &["last", "price", "lastprice", "tradeprice"];
const BID_VOLUMES: &[&str] = &["bidvolume", "bidvol"];
const ASK_VOLUMES: &[&str] = &["askvolume", "askvol"];
const VOLUMES: &[&str] = &["volume", "qty", "quantity", "size", "amount", "vol"];
const SYMBOLS: &[&str] = &["symbol", "ticker", "instrument", "pair"];
/// Names of times in tables of trades, beside those in tables of bars.
const TIMES: &[&str] = &["transacttime", "tradetime", "time", "ts"];

/// Places of the columns of a row of ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TickColumns {
    /// The time, or the date where `clock` has the time of day.
    pub(crate) time: usize,
    pub(crate) clock: Option<usize>,
    pub(crate) bid: Option<usize>,
    pub(crate) ask: Option<usize>,
    /// Price of a trade.
    pub(crate) last: Option<usize>,
    pub(crate) volume: Option<usize>,
    /// The volume's second part, where bid and ask each have one.
    pub(crate) other_volume: Option<usize>,
    pub(crate) symbol: Option<usize>,
}

impl TickColumns {
    /// The columns that a header names; `None` for a line that names no time, or neither a bid and
    /// an ask nor a price.
    pub(crate) fn named(fields: &RowFields<'_>) -> Option<Self> {
        let names: Vec<String> = fields.iter().map(without_zone).collect();
        let column = |known: &[&str]| known.iter().find_map(|wanted| names.iter().position(|name| name == wanted));
        let (bid, ask, last) = (column(BIDS), column(ASKS), column(LASTS));
        let (time, clock) = time_columns(&names).or_else(|| Some((column(TIMES)?, None)))?;
        let (bid_volume, ask_volume) = (column(BID_VOLUMES), column(ASK_VOLUMES));
        let (volume, other_volume) = match column(VOLUMES) {
            Some(volume) => (Some(volume), None),
            None => (ask_volume.or(bid_volume), bid_volume.filter(|_| ask_volume.is_some())),
        };
        let has_prices = last.is_some() || (bid.is_some() && ask.is_some());
        let columns = TickColumns { time, clock, bid, ask, last, volume, other_volume, symbol: column(SYMBOLS) };
        has_prices.then_some(columns)
    }

    /// True if bid and ask each have a volume.
    pub(crate) fn has_volumes_of_sides(&self) -> bool {
        self.other_volume.is_some()
    }
}

/// A name without a zone in parentheses behind it, as in `Time (EET)`.
fn without_zone(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == b'(').unwrap_or(field.len());
    normalised(&field[..end])
}
