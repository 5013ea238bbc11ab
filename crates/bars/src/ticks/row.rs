use crate::error::row_error::RowError;
use crate::parse::fields::{RowFields, says_nothing};
use crate::ticks::layout::TickLayout;
use crate::time::timestamp::RowTime;

/// A tick as a file gives it. A price or volume that it does not give is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TickRow {
    pub(crate) time: RowTime,
    pub(crate) bid: f64,
    pub(crate) ask: f64,
    pub(crate) last: f64,
    pub(crate) volume: f64,
    /// Most decimals of its prices.
    pub(crate) decimals: usize,
}

/// Reason for which a row is no tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TickFault {
    pub(crate) kind: RowError,
    pub(crate) expected: String,
}

impl TickFault {
    pub(crate) fn new(kind: RowError, expected: impl Into<String>) -> Self {
        TickFault { kind, expected: expected.into() }
    }

    /// The same fault in a last line without an end, which may be a part of a row.
    pub(crate) fn without_end_of_line(self) -> Self {
        if self.kind == RowError::WarmUp {
            return self;
        }
        let expected =
            format!("{} (this last line has no end, as in a file that is still being written)", self.expected);
        TickFault { expected, ..self }
    }
}

impl TickRow {
    /// Reads a line.
    pub(crate) fn parse(fields: &RowFields<'_>, layout: &TickLayout) -> Result<Self, TickFault> {
        let unreadable = |expected: String| TickFault::new(RowError::Unreadable, expected);
        let time = layout.time(fields).ok_or_else(|| unreadable("a time as in the first row".to_owned()))?;
        let columns = &layout.columns;
        let mut decimals = 0;
        let mut number = |column: Option<usize>, name: &str, is_price: bool| {
            let Some(column) = column else { return Ok(f64::NAN) };
            let field = fields.get(column).ok_or_else(|| unreadable(format!("a field {}, the {name}", column + 1)))?;
            if says_nothing(field) {
                return Ok(f64::NAN);
            }
            if is_price {
                decimals = decimals.max(decimals_of(field));
            }
            fields.number(column).ok_or_else(|| unreadable(format!("a number as the {name} in field {}", column + 1)))
        };
        let bid = number(columns.bid, "bid", true)?;
        let ask = number(columns.ask, "ask", true)?;
        let last = number(columns.last, "price", true)?;
        let volume = number(columns.volume, "volume", false)?;
        let other_volume = number(columns.other_volume, "volume", false)?;
        let volume = if other_volume.is_nan() { volume } else { volume + other_volume };
        Ok(TickRow { time, bid, ask, last, volume, decimals })
    }
}

/// Digits behind the point.
fn decimals_of(field: &[u8]) -> usize {
    field.iter().position(|&byte| byte == b'.').map_or(0, |point| field.len() - point - 1)
}
