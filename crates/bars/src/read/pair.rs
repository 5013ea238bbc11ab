//! Bid and ask recorded apart, joined minute by minute.

use std::path::Path;

use crate::bar_source::BarSource;
use crate::bars::Bar;
use crate::error::row_error::OnError;
use crate::error::{Error, Result};
use crate::parse::options::ReadOptions;
use crate::parse::symbol_rows::SymbolRows;
use crate::place::{BarCursor, BarSink, ObserveBytes};
use crate::read::summary::{PairSummary, ReadSummary};
use crate::read::{SpooledRecording, StoredRecording, place_beside, read_in};
use crate::time::timestamp::display_utc;

impl SymbolRows {
    /// Reads the bars of one symbol from files of its bid and files of its ask, joins them by time,
    /// and leaves them in a new file at `spool`: see [`SymbolRows::read_spooled`].
    ///
    /// Each price is the mean of both sides, the spread is ask less bid at the close, the volume
    /// the sum of both. (The mean of both highs is at or above the highest mean, and that of both
    /// lows at or below the lowest: when each side had its extreme is not recorded.) A bar of one
    /// side only is dropped and counted. Sides recorded apart cross now and then, when one was
    /// quoted before the other within the last second: such a bar is an error under
    /// [`OnError::Fail`], dropped under [`OnError::Skip`], and kept with a spread of zero under
    /// [`OnError::Repair`]. Sides that cross at more than half of the bars are in each other's
    /// place, and sides with the same prices throughout are one: both are always refused.
    ///
    /// # Errors
    /// As [`SymbolRows::read_spooled`]; [`Error::MixedSymbols`] and [`Error::UnlikeSides`] for
    /// sides that do not belong together; [`Error::Crossed`].
    pub fn read_pair_spooled<B: AsRef<Path>, A: AsRef<Path>>(
        &self,
        bid: &[B],
        ask: &[A],
        options: &ReadOptions,
        spool: &Path,
        observe: ObserveBytes<'_>,
    ) -> Result<SpooledRecording> {
        let place = &place_beside(spool, observe)?;
        let (bids, asks) = (read_in(bid, options, self, place)?, read_in(ask, options, self, place)?);
        refuse_strangers(&bids, &asks)?;
        refuse_wrong_sides(&bids, &asks)?;
        let mut sink = place.sink(bids.bars.timeframe(), 0)?;
        let pair = join(&bids, &asks, options.on_error, &mut sink)?;
        let bars = sink.finish()?;
        if bars.is_empty() {
            return Err(unlike(&bids, &asks, "not one bar of both opens at the same time and can be used"));
        }
        let (symbol, mut files) = (bids.symbol, bids.summary.files);
        files.extend(asks.summary.files);
        // Jumps of either side are found again in their mean.
        let is_no_jump = |warning: &String| {
            !bids.summary.jumps.iter().chain(&asks.summary.jumps).any(|jump| jump.is_told_by(warning))
        };
        let mut warnings: Vec<String> = bids.summary.warnings.into_iter().filter(is_no_jump).collect();
        // Both sides share a clock, and doubts about it.
        let ask_warnings: Vec<String> = asks.summary.warnings.into_iter().filter(is_no_jump).collect();
        warnings.extend(ask_warnings.into_iter().filter(|warning| !warnings.contains(warning)).collect::<Vec<_>>());
        let compared = [bids.summary.compared, asks.summary.compared].concat();
        let summary = ReadSummary::new(&bars, files, symbol.clone(), warnings)?;
        let early_ns = bids.summary.early_ns.max(asks.summary.early_ns);
        let summary = ReadSummary { compared, pair: Some(pair), early_ns, ..summary };
        StoredRecording { symbol, bars, own: Vec::new(), summary }.spooled(spool)
    }
}

fn refuse_strangers(bids: &StoredRecording, asks: &StoredRecording) -> Result<()> {
    if bids.symbol != asks.symbol {
        return Err(Error::MixedSymbols {
            first: bids.summary.files[0].path.clone(),
            first_symbol: bids.symbol.clone(),
            second: asks.summary.files[0].path.clone(),
            second_symbol: asks.symbol.clone(),
        });
    }
    match (bids.bars.timeframe(), asks.bars.timeframe()) {
        (bid, ask) if bid != ask => Err(unlike(bids, asks, &format!("one has {bid} bars and the other {ask}"))),
        _ => Ok(()),
    }
}

fn unlike(bids: &StoredRecording, asks: &StoredRecording, found: &str) -> Error {
    let path = |side: &StoredRecording| side.summary.files[0].path.clone();
    Error::UnlikeSides { bid: path(bids), ask: path(asks), found: found.to_owned() }
}

/// Refuses sides in each other's place, and one side named as both. Real sides cross at the close
/// of a few bars in a hundred.
fn refuse_wrong_sides(bids: &StoredRecording, asks: &StoredRecording) -> Result<()> {
    let (mut common, mut crossed, mut same) = (0_usize, 0_usize, 0_usize);
    side_by_side(&bids.bars, &asks.bars, |step| {
        let SideStep { bid: Some(bid), ask: Some(ask) } = step else { return Ok(()) };
        common += 1;
        crossed += usize::from(ask.close < bid.close);
        same += usize::from(bid.prices() == ask.prices());
        Ok(())
    })?;
    if 2 * crossed > common {
        let found = format!("the ask closes below the bid at {crossed} of {common} bars: are bid and ask exchanged?");
        return Err(unlike(bids, asks, &found));
    }
    if common > 0 && same == common {
        let found =
            format!("all {common} bars that open at the same time have the same prices: was one side named twice?");
        return Err(unlike(bids, asks, &found));
    }
    Ok(())
}

/// The bars that open next; both where they open at the same time.
struct SideStep {
    bid: Option<Bar>,
    ask: Option<Bar>,
}

/// Visits the bars of both sides in order of time.
fn side_by_side(bid: &dyn BarSource, ask: &dyn BarSource, mut visit: impl FnMut(SideStep) -> Result<()>) -> Result<()> {
    let (mut bids, mut asks) = (BarCursor::new(bid), BarCursor::new(ask));
    loop {
        let (bid_opens, ask_opens) = (bids.peek_open_time()?, asks.peek_open_time()?);
        let takes_bid = bid_opens.is_some_and(|bid| ask_opens.is_none_or(|ask| bid <= ask));
        let takes_ask = ask_opens.is_some_and(|ask| bid_opens.is_none_or(|bid| ask <= bid));
        if !takes_bid && !takes_ask {
            return Ok(());
        }
        let bid = if takes_bid { bids.next()? } else { None };
        let ask = if takes_ask { asks.next()? } else { None };
        visit(SideStep { bid, ask })?;
    }
}

/// Goes through both sides in order of time.
fn join(bids: &StoredRecording, asks: &StoredRecording, on_error: OnError, bars: &mut BarSink) -> Result<PairSummary> {
    let (bid_only, ask_only, crossed) = Default::default();
    let mut pair = PairSummary { bid_only, ask_only, crossed, on_error };
    side_by_side(&bids.bars, &asks.bars, |step| {
        match step {
            SideStep { bid: Some(bid), ask: Some(ask) } => match mean_of(&mut pair, &bid, &ask) {
                Some(bar) => bars.push(bar)?,
                None if on_error == OnError::Skip => {}
                None => {
                    return Err(Error::Crossed {
                        bid_path: bids.summary.files[0].path.clone(),
                        ask_path: asks.summary.files[0].path.clone(),
                        open_time: display_utc(bid.open_time),
                        bid: bid.close,
                        ask: ask.close,
                    });
                }
            },
            SideStep { bid: Some(bid), ask: None } => pair.bid_only.add(bid.open_time),
            SideStep { bid: None, ask: Some(ask) } => pair.ask_only.add(ask.open_time),
            SideStep { bid: None, ask: None } => {}
        }
        Ok(())
    })?;
    Ok(pair)
}

/// The mean of both sides; `None` where they cross and may not.
fn mean_of(pair: &mut PairSummary, bid: &Bar, ask: &Bar) -> Option<Bar> {
    let mut spread = ask.close - bid.close;
    if spread < 0.0 {
        pair.crossed.add(bid.open_time);
        spread = 0.0;
        if pair.on_error != OnError::Repair {
            return None;
        }
    }
    let mean = |bid: f64, ask: f64| bid + (ask - bid) / 2.0;
    let (open, close) = (mean(bid.open, ask.open), mean(bid.close, ask.close));
    // Rounding may leave the mean of the highs below that of the closes by the last place.
    let high = mean(bid.high, ask.high).max(open).max(close);
    let low = mean(bid.low, ask.low).min(open).min(close);
    let volume = (bid.volume + ask.volume).min(f64::MAX);
    Some(Bar { open_time: bid.open_time, open, high, low, close, volume, spread, ..Bar::default() })
}
