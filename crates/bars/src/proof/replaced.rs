//! Bars of a source that are followed by others than its own.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::bar_source::BarSource;
use crate::bars::Bars;
use crate::error::Result;
use crate::time::timeframe::Timeframe;

/// The bars of a source up to a place, and others after them.
#[derive(Clone)]
pub(super) struct ReplacedEnd<S> {
    pub(super) source: S,
    /// Place of the first of the others.
    pub(super) first: usize,
    pub(super) end: Bars,
    /// Own bars of longer timeframes.
    pub(super) own: Vec<Arc<dyn BarSource + Send>>,
}

/// Own bars of a longer timeframe, followed by others.
pub(super) type ReplacedOwnBars = ReplacedEnd<Arc<dyn BarSource + Send>>;

impl<S> ReplacedEnd<S> {
    /// Places of a range in the source, and in the others.
    fn parts(&self, range: Range<usize>) -> (Range<usize>, Range<usize>) {
        let in_source = |place: usize| place.min(self.first);
        let in_end = |place: usize| place.saturating_sub(self.first);
        (in_source(range.start)..in_source(range.end), in_end(range.start)..in_end(range.end))
    }
}

impl<S> BarSource for ReplacedEnd<S>
where
    S: Deref + Sync,
    S::Target: BarSource,
{
    fn timeframe(&self) -> Timeframe {
        self.source.timeframe()
    }

    fn len(&self) -> usize {
        self.first + self.end.len()
    }

    fn columns(&self) -> usize {
        self.source.columns()
    }

    fn read(&self, range: Range<usize>, out: &mut Bars) -> Result<()> {
        let (before, after) = self.parts(range);
        self.source.read(before, out)?;
        after.for_each(|place| out.push(self.end.bar(place)));
        Ok(())
    }

    fn read_open_times(&self, range: Range<usize>, out: &mut Vec<i64>) -> Result<()> {
        let (before, after) = self.parts(range);
        self.source.read_open_times(before, out)?;
        out.extend_from_slice(&self.end.open_time[after]);
        Ok(())
    }

    fn own_bars(&self, timeframe: Timeframe) -> Option<Arc<dyn BarSource + Send>> {
        self.own.iter().find(|own| own.timeframe() == timeframe).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Bar;

    fn bars(open_times: Range<i64>, price: f64) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::M1, 0);
        open_times.for_each(|open_time| bars.push(Bar { open_time, close: price, spread: price, ..Bar::default() }));
        bars
    }

    #[test]
    fn every_range_has_the_bars_of_both() {
        let source = bars(0..10, 1.0);
        for first in [0, 1, 7, 10] {
            let end = bars(first..first + 3, 2.0);
            let mut whole = source.clone();
            whole.truncate(first as usize);
            whole.extend(&end);
            let replaced = ReplacedEnd { source: &source, first: first as usize, end, own: Vec::new() };
            assert_eq!(replaced.len(), whole.len());
            let (mut found, mut times) = (bars(0..0, 0.0), Vec::new());
            for start in 0..=whole.len() {
                for end in start..=whole.len() {
                    replaced.read(start..end, &mut found).unwrap();
                    assert_eq!(found, whole.part(start..end), "{first}: {start}..{end}");
                    replaced.read_open_times(start..end, &mut times).unwrap();
                    assert_eq!(times, found.open_time);
                }
            }
        }
    }
}
