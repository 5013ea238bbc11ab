use crate::time::date_order::DateOrder;
use crate::time::timestamp::DateStyle;
use crate::unknown_name::named;

pub(crate) const TRIED: &str = "HistData ASCII (`20180131 170000;open;high;low;close;volume`), \
    MetaTrader (`2018.01.31,17:00,open,high,low,close,volume`), \
    ISO (`2018-01-31 17:00:00+00:00,open,high,low,close,volume`), the year last (`31/01/2018 17:00,…`) and \
    epoch (`1517418000,…`, in seconds or thousandths, millionths or billionths of them), \
    each with `,`, `;` or tabs, with or without a header";

/// The family of layouts that a file belongs to. It is inferred from how dates are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum FormatName {
    /// `20180131 170000`: HistData's ASCII bars. The time is the bar's open.
    HistData,
    /// `2018.01.31` and `17:00` or `17:00:00`: exports of MetaTrader 4 and 5. The time is the bar's
    /// open.
    MetaTrader,
    /// `2018-01-31 17:00:00` with `T` or a space, with or without seconds, fraction and offset. The
    /// time is the bar's open.
    Iso,
    /// `31/01/2018 17:00`, `1/31/2018 5:00 PM` or `31.01.2018 17:00:00.000`, as spreadsheets and
    /// Dukascopy write it. The time is the bar's open.
    YearLast,
    /// `1517418000`: seconds since 1970 UTC, or thousandths, millionths or billionths of them,
    /// distinguished row by row by their size (1980 to 2099). The time is the bar's open.
    Epoch,
}

impl FormatName {
    /// Every family.
    pub const ALL: [FormatName; 5] =
        [FormatName::HistData, FormatName::MetaTrader, FormatName::Iso, FormatName::YearLast, FormatName::Epoch];

    /// The name by which the format can be chosen: `histdata`, `metatrader`, `iso`, `year-last` or
    /// `epoch`.
    pub const fn name(self) -> &'static str {
        match self {
            FormatName::HistData => "histdata",
            FormatName::MetaTrader => "metatrader",
            FormatName::Iso => "iso",
            FormatName::YearLast => "year-last",
            FormatName::Epoch => "epoch",
        }
    }

    /// Date styles that a file of the family may have; every file has one.
    pub(crate) fn date_styles(self) -> Vec<DateStyle> {
        match self {
            FormatName::HistData => vec![DateStyle::Compact],
            FormatName::MetaTrader => vec![DateStyle::Dotted],
            FormatName::Iso => vec![DateStyle::Dashed],
            FormatName::YearLast => [DateOrder::DayFirst, DateOrder::MonthFirst].map(DateStyle::YearLast).to_vec(),
            FormatName::Epoch => vec![DateStyle::Epoch],
        }
    }
}

named!(
    FormatName,
    "format",
    "histdata, metatrader, iso, year-last, epoch",
    [HistData, MetaTrader, Iso, YearLast, Epoch]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for format in FormatName::ALL {
            assert_eq!(format.to_string().parse::<FormatName>().unwrap(), format);
        }
        let error = "csv".parse::<FormatName>().unwrap_err().to_string();
        assert!(error.contains("expected histdata, metatrader, iso, year-last, epoch"), "{error}");
    }
}
