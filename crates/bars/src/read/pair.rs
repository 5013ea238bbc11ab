//! Bid and ask recorded apart, joined minute by minute.

use std::fmt;
use std::path::Path;

use crate::bars::{Bar, Bars};
use crate::error::row_error::OnError;
use crate::error::{Error, Result};
use crate::parse::options::ReadOptions;
use crate::read::summary::ReadSummary;
use crate::read::{Recording, read};
use crate::time::timestamp::{counted, display_utc};

/// Summary of joining bid and ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PairSummary {
    /// Bars of the bid without one of the ask. They are dropped.
    pub bid_only: EventCount,
    /// Bars of the ask without one of the bid. They are dropped.
    pub ask_only: EventCount,
    /// Bars at whose close the ask is below the bid.
    pub crossed: EventCount,
    /// Treatment of crossed rows: dropped or, under [`OnError::Repair`], kept with a spread of
    /// zero.
    pub on_error: OnError,
}

/// Count of an event in a series of bars, and its first occurrence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCount {
    /// Count.
    pub count: u64,
    /// Open time of the first such bar, in nanoseconds since 1970 UTC.
    pub first: Option<i64>,
}

impl EventCount {
    pub(crate) fn add(&mut self, open_time: i64) {
        self.count += 1;
        self.first.get_or_insert(open_time);
    }
}

/// Reads the bars of one symbol from files of its bid and files of its ask, and joins them by time.
///
/// Each price is the mean of both sides, the spread is ask less bid at the close, the volume the
/// sum of both. (The mean of both highs is at or above the highest mean, and that of both lows at
/// or below the lowest: when each side had its extreme is not recorded.) A bar of one side only is
/// dropped and counted. Sides recorded apart cross now and then, when one was quoted before the
/// other within the last second: such a bar is an error under [`OnError::Fail`], dropped under
/// [`OnError::Skip`], and kept with a spread of zero under [`OnError::Repair`]. Sides that cross at
/// more than half of the bars are in each other's place, and sides with the same prices throughout
/// are one: both are always refused.
///
/// # Errors
/// As [`read`]; [`Error::MixedSymbols`] and [`Error::UnlikeSides`] for sides that do not belong
/// together; [`Error::Crossed`].
pub fn read_pair<B: AsRef<Path>, A: AsRef<Path>>(bid: &[B], ask: &[A], options: &ReadOptions) -> Result<Recording> {
    let (bids, asks) = (read(bid, options)?, read(ask, options)?);
    refuse_strangers(&bids, &asks)?;
    refuse_wrong_sides(&bids, &asks)?;
    let (bars, pair) = joined(&bids, &asks, options.on_error)?;
    if bars.is_empty() {
        return Err(unlike(&bids, &asks, "not one bar of both opens at the same time and can be used"));
    }
    let (symbol, mut files) = (bids.symbol, bids.summary.files);
    files.extend(asks.summary.files);
    // Jumps of either side are found again in their mean.
    let is_of_a_side = |warning: &String| {
        !bids.summary.jumps.iter().chain(&asks.summary.jumps).any(|jump| jump.to_string() == *warning)
    };
    let mut warnings: Vec<String> = bids.summary.warnings.into_iter().filter(is_of_a_side).collect();
    warnings.extend(asks.summary.warnings.into_iter().filter(is_of_a_side));
    let compared = [bids.summary.compared, asks.summary.compared].concat();
    let of_bars = ReadSummary::of(&bars, files, symbol.clone(), warnings);
    let summary = ReadSummary { compared, pair: Some(pair), ..of_bars };
    Ok(Recording { symbol, bars, summary })
}

fn refuse_strangers(bids: &Recording, asks: &Recording) -> Result<()> {
    if bids.symbol != asks.symbol {
        return Err(Error::MixedSymbols {
            first: bids.summary.files[0].path.clone(),
            first_symbol: bids.symbol.clone(),
            second: asks.summary.files[0].path.clone(),
            second_symbol: asks.symbol.clone(),
        });
    }
    match (bids.bars.timeframe, asks.bars.timeframe) {
        (bid, ask) if bid != ask => Err(unlike(bids, asks, &format!("one has {bid} bars and the other {ask}"))),
        _ => Ok(()),
    }
}

fn unlike(bids: &Recording, asks: &Recording, found: &str) -> Error {
    let path = |side: &Recording| side.summary.files[0].path.clone();
    Error::UnlikeSides { bid: path(bids), ask: path(asks), found: found.to_owned() }
}

/// Refuses sides in each other's place, and one side named as both. Real sides cross at the close
/// of a few bars in a hundred.
fn refuse_wrong_sides(bids: &Recording, asks: &Recording) -> Result<()> {
    let (bid, ask) = (&bids.bars, &asks.bars);
    let (mut common, mut crossed, mut same) = (0_usize, 0_usize, 0_usize);
    for (b, a) in side_by_side(bid, ask).filter_map(|(b, a)| b.zip(a)) {
        let (bid, ask) = (bid.bar(b), ask.bar(a));
        common += 1;
        crossed += usize::from(ask.close < bid.close);
        same += usize::from([bid.open, bid.high, bid.low, bid.close] == [ask.open, ask.high, ask.low, ask.close]);
    }
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

/// The places of the bars of both sides in order of time; both in one step where they open at the
/// same time.
fn side_by_side(bid: &Bars, ask: &Bars) -> impl Iterator<Item = (Option<usize>, Option<usize>)> {
    let (mut b, mut a) = (0, 0);
    std::iter::from_fn(move || {
        let (bid_opens, ask_opens) = (bid.open_time.get(b), ask.open_time.get(a));
        let takes_bid = bid_opens.is_some_and(|bid| ask_opens.is_none_or(|ask| bid <= ask));
        let takes_ask = ask_opens.is_some_and(|ask| bid_opens.is_none_or(|bid| ask <= bid));
        let step = (takes_bid.then_some(b), takes_ask.then_some(a));
        b += usize::from(takes_bid);
        a += usize::from(takes_ask);
        (takes_bid || takes_ask).then_some(step)
    })
}

/// Goes through both sides in order of time.
fn joined(bids: &Recording, asks: &Recording, on_error: OnError) -> Result<(Bars, PairSummary)> {
    let (bid, ask) = (&bids.bars, &asks.bars);
    let mut bars = Bars::with_capacity(bid.timeframe, bid.len().min(ask.len()));
    let (bid_only, ask_only, crossed) = Default::default();
    let mut pair = PairSummary { bid_only, ask_only, crossed, on_error };
    for step in side_by_side(bid, ask) {
        match step {
            (Some(b), Some(a)) => {
                add(&mut bars, &mut pair, &bid.bar(b), &ask.bar(a)).ok_or_else(|| Error::Crossed {
                    bid_path: bids.summary.files[0].path.clone(),
                    ask_path: asks.summary.files[0].path.clone(),
                    open_time: display_utc(bid.open_time[b]),
                    bid: bid.close[b],
                    ask: ask.close[a],
                })?;
            }
            (Some(b), None) => pair.bid_only.add(bid.open_time[b]),
            (None, Some(a)) => pair.ask_only.add(ask.open_time[a]),
            (None, None) => {}
        }
    }
    Ok((bars, pair))
}

/// Adds the mean of both sides; `None` where they cross and may not.
fn add(bars: &mut Bars, pair: &mut PairSummary, bid: &Bar, ask: &Bar) -> Option<()> {
    let mut spread = ask.close - bid.close;
    if spread < 0.0 {
        pair.crossed.add(bid.open_time);
        spread = 0.0;
        match pair.on_error {
            OnError::Fail => return None,
            OnError::Skip => return Some(()),
            OnError::Repair => {}
        }
    }
    let mean = |bid: f64, ask: f64| bid + (ask - bid) / 2.0;
    let (open, close) = (mean(bid.open, ask.open), mean(bid.close, ask.close));
    // Rounding may leave the mean of the highs below that of the closes by the last place.
    let high = mean(bid.high, ask.high).max(open).max(close);
    let low = mean(bid.low, ask.low).min(open).min(close);
    let volume = (bid.volume + ask.volume).min(f64::MAX);
    bars.push(Bar { open_time: bid.open_time, open, high, low, close, volume, spread });
    Some(())
}

impl fmt::Display for EventCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        self.first.map_or(Ok(()), |first| write!(f, " (first at {})", display_utc(first)))
    }
}

impl fmt::Display for PairSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let treated = match self.on_error {
            OnError::Repair => "kept with a spread of 0",
            OnError::Fail | OnError::Skip => "dropped",
        };
        let sides = counted(self.bid_only.count + self.ask_only.count, "bar", "bars");
        write!(
            f,
            "{sides} of one side only dropped: bid {}, ask {}; ask below bid, {treated}: {}",
            self.bid_only, self.ask_only, self.crossed
        )
    }
}
