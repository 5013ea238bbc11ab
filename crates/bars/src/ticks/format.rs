use crate::unknown_name::named;

/// Formats of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TickFormat {
    /// MetaTrader 5's export: date, time, bid, ask, last, volume and flags, with a header that
    /// names them or without, an empty field where a price has not changed.
    MetaTrader,
    /// Dukascopy's CSV: `Gmt time,Ask,Bid,AskVolume,BidVolume`.
    Dukascopy,
    /// Dukascopy's binary files, one an hour.
    Bi5,
    /// HistData's ASCII ticks: `20180101 170000123,1.20037,1.20100,0`.
    HistData,
    /// TrueFX: `EUR/USD,20090501 00:00:00.123,1.32,1.33`.
    TrueFx,
    /// Trades of Binance without a header, single or aggregated.
    Binance,
    /// CSV with a header that names a time, and bid and ask or a price.
    Csv,
}

impl TickFormat {
    /// Every format, in the order in which they are tried.
    pub const ALL: [TickFormat; 7] = [
        TickFormat::MetaTrader,
        TickFormat::Dukascopy,
        TickFormat::Csv,
        TickFormat::HistData,
        TickFormat::TrueFx,
        TickFormat::Binance,
        TickFormat::Bi5,
    ];

    /// The name: `metatrader`, `dukascopy`, `csv`, `histdata`, `truefx`, `binance` or `bi5`.
    pub const fn name(self) -> &'static str {
        match self {
            TickFormat::MetaTrader => "metatrader",
            TickFormat::Dukascopy => "dukascopy",
            TickFormat::Bi5 => "bi5",
            TickFormat::HistData => "histdata",
            TickFormat::TrueFx => "truefx",
            TickFormat::Binance => "binance",
            TickFormat::Csv => "csv",
        }
    }
}

named!(
    TickFormat,
    "format of ticks",
    "metatrader, dukascopy, csv, histdata, truefx, binance, bi5",
    [MetaTrader, Dukascopy, Csv, HistData, TrueFx, Binance, Bi5]
);
