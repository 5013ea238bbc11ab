//! Bars of a longer timeframe, made from shorter ones as they come: what
//! [`resample`](crate::resample) makes of all of them.

use crate::bars::Bar;
use crate::error::{Error, Result};
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::display_utc;

/// The bin of one timeframe that has not closed yet.
#[derive(Clone, Debug)]
pub(crate) struct Binning {
    timeframe: Timeframe,
    base: Timeframe,
    open: Option<Bar>,
}

impl Binning {
    /// Nothing so far.
    ///
    /// # Errors
    /// [`Error::NotAMultiple`].
    pub(crate) fn new(timeframe: Timeframe, base: Timeframe) -> Result<Self> {
        match timeframe.duration_ns() % base.duration_ns() {
            0 => Ok(Binning { timeframe, base, open: None }),
            _ => Err(Error::NotAMultiple { timeframe, base }),
        }
    }

    /// Forgets the open bin: its segment ended.
    pub(crate) fn restart(&mut self) {
        self.open = None;
    }

    /// Takes the next base bar. Returns the bins that have closed by its close, in order of time:
    /// the bin of the bars before it, if the last bars of that bin were missing, and its own, if it
    /// is the last bar in it.
    ///
    /// # Errors
    /// [`Error::Straddles`].
    pub(crate) fn push(&mut self, bar: &Bar) -> Result<[Option<Bar>; 2]> {
        if self.timeframe == self.base {
            return Ok([None, Some(*bar)]);
        }
        let (bin_ns, close_time) = (self.timeframe.duration_ns(), bar.open_time + self.base.duration_ns());
        let open_time = self.timeframe.bin_open_time(bar.open_time);
        if close_time > open_time + bin_ns {
            let (timeframe, base, open_time) = (self.timeframe, self.base, display_utc(bar.open_time));
            return Err(Error::Straddles { timeframe, base, open_time });
        }
        let before = self.open.take_if(|bin| bin.open_time != open_time);
        match &mut self.open {
            Some(bin) => bin.extend(bar),
            bin => *bin = Some(Bar { open_time, ..*bar }),
        }
        let own = self.open.take_if(|_| close_time == open_time + bin_ns);
        Ok([before, own])
    }
}

impl Bar {
    /// Takes in one more bar, the next of the same bin.
    fn extend(&mut self, bar: &Bar) {
        self.high = self.high.max(bar.high);
        self.low = self.low.min(bar.low);
        self.close = bar.close;
        self.volume += bar.volume;
        self.spread = bar.spread;
    }
}
