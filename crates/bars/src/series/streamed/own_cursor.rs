//! Bars of a longer timeframe that take the place of those which base bars make.

use std::sync::Arc;

use crate::bar_source::BarSource;
use crate::bars::{Bar, Bars};
use crate::error::Result;
use crate::place::BarCursor;

/// Bars that are read at once.
const PIECE_BARS: usize = 1_024;

/// Own bars of one timeframe, in order of time.
#[derive(Clone, Debug)]
pub(crate) struct OwnCursor(BarCursor<Arc<dyn BarSource + Send>>);

impl OwnCursor {
    pub(crate) fn new(bars: Arc<dyn BarSource + Send>) -> Self {
        OwnCursor(BarCursor::in_pieces(bars, PIECE_BARS))
    }

    /// Gives those of `bins` the own prices, volumes and spreads that open with an own bar. Bins
    /// come in order of time.
    pub(crate) fn replace_in(&mut self, bins: &mut Bars) -> Result<()> {
        for place in 0..bins.len() {
            let Some(own) = self.next_at(bins.open_time[place])? else { continue };
            bins.open[place] = own.open;
            bins.high[place] = own.high;
            bins.low[place] = own.low;
            bins.close[place] = own.close;
            bins.volume[place] = own.volume;
            if own.spread != 0.0 || !bins.spread.is_empty() {
                let count = bins.len();
                bins.spread.resize(count, 0.0);
                bins.spread[place] = own.spread;
            }
        }
        Ok(())
    }

    /// The own bar that opens at `open_time`, if there is one; those before it are passed over.
    fn next_at(&mut self, open_time: i64) -> Result<Option<Bar>> {
        while let Some(opens) = self.0.peek_open_time()?
            && opens <= open_time
        {
            let own = self.0.next()?;
            if opens == open_time {
                return Ok(own);
            }
        }
        Ok(None)
    }
}
