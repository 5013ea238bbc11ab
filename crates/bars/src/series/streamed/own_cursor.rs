//! Bars of a longer timeframe that take the place of those which base bars make.

use std::fmt;
use std::sync::Arc;

use crate::bar_source::BarSource;
use crate::bars::Bars;
use crate::error::Result;

/// Bars that are read at once.
const PIECE_BARS: usize = 1_024;

/// Own bars of one timeframe, in order of time.
#[derive(Clone)]
pub(crate) struct OwnCursor {
    bars: Arc<dyn BarSource + Send>,
    piece: Bars,
    /// Place of the next bar in the piece, and of the piece's end among all.
    next: usize,
    read: usize,
}

impl OwnCursor {
    pub(crate) fn new(bars: Arc<dyn BarSource + Send>) -> Self {
        let piece = Bars::with_capacity(bars.timeframe(), 0);
        OwnCursor { bars, piece, next: 0, read: 0 }
    }

    /// Gives those of `bins` the own prices, volumes and spreads that open with an own bar. Bins
    /// come in order of time.
    pub(crate) fn replace_in(&mut self, bins: &mut Bars) -> Result<()> {
        for place in 0..bins.len() {
            let open_time = bins.open_time[place];
            while self.peek_open_time()?.is_some_and(|own| own < open_time) {
                self.next += 1;
            }
            if self.peek_open_time()? != Some(open_time) {
                continue;
            }
            let own = self.piece.without_columns(self.next);
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

    /// When the next bar opens.
    fn peek_open_time(&mut self) -> Result<Option<i64>> {
        if self.next == self.piece.len() {
            let range = self.read..self.bars.len().min(self.read + PIECE_BARS);
            if range.is_empty() {
                return Ok(None);
            }
            self.read = range.end;
            self.bars.read(range, &mut self.piece)?;
            self.next = 0;
        }
        Ok(Some(self.piece.open_time[self.next]))
    }
}

impl fmt::Debug for OwnCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnCursor").field("read", &self.read).field("next", &self.next).finish()
    }
}
