use crate::error::row_error::OnError;
use crate::ticks::bar_rule::BarRule;
use crate::ticks::format::TickFormat;
use crate::time::bin_clock::BinClock;
use crate::time::zone::Zone;
use crate::unknown_name::named;

/// Options of bars made from ticks.
#[derive(Clone, Debug)]
pub struct TickOptions {
    /// Bars.
    pub bars: BarRule,
    /// Clock at whose multiples of a timeframe bars begin.
    pub bins: BinClock,
    /// The price; when `None`, the mean of bid and ask where a file has both, else the last.
    pub price: Option<TickPrice>,
    /// The volume; when `None`, the sum for trades and for Dukascopy, and the number of ticks for
    /// other quotes.
    pub volume: Option<TickVolume>,
    /// The format; recognised when `None`.
    pub format: Option<TickFormat>,
    /// The clock of times without offset, in files that do not name theirs. When `None`: UTC;
    /// UTC-5 for HistData; none for MetaTrader, whose times are on the broker's clock.
    pub zone: Option<Zone>,
    /// Price of one point of a bi5 file; when `None`, that of the currency pair in its path.
    pub point: Option<f64>,
    /// Treatment of defective ticks. There is nothing to repair in one: it is dropped then.
    pub on_error: OnError,
}

impl TickOptions {
    /// Bars of that rule from files that tell all else.
    pub fn new(bars: BarRule) -> Self {
        TickOptions {
            bars,
            bins: BinClock::default(),
            price: None,
            volume: None,
            format: None,
            zone: None,
            point: None,
            on_error: OnError::Fail,
        }
    }
}

/// Prices of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickPrice {
    /// The mean of bid and ask.
    Mid,
    /// The bid.
    Bid,
    /// The ask.
    Ask,
    /// The price of the last trade. A quote without a trade is no tick then.
    Last,
}

impl TickPrice {
    /// Every price.
    pub const ALL: [TickPrice; 4] = [TickPrice::Mid, TickPrice::Bid, TickPrice::Ask, TickPrice::Last];

    /// The name: `mid`, `bid`, `ask` or `last`.
    pub const fn name(self) -> &'static str {
        match self {
            TickPrice::Mid => "mid",
            TickPrice::Bid => "bid",
            TickPrice::Ask => "ask",
            TickPrice::Last => "last",
        }
    }
}

named!(TickPrice, "price of ticks", "mid, bid, ask or last", [Mid, Bid, Ask, Last]);

/// Volumes of a bar of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickVolume {
    /// The number of ticks.
    Ticks,
    /// The sum of the ticks' volumes, of both sides where each has one.
    Sum,
}

impl TickVolume {
    /// The name: `ticks` or `sum`.
    pub const fn name(self) -> &'static str {
        match self {
            TickVolume::Ticks => "ticks",
            TickVolume::Sum => "sum",
        }
    }
}

named!(TickVolume, "volume of ticks", "ticks or sum", [Ticks, Sum]);
