//! Files of another timeframe than that of the series, of the same symbol. They are not read; of
//! both, the longer bars are compared with what the shorter ones make.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use crate::bar_source::BarSource;
use crate::bars::Bars;
use crate::error::Result;
use crate::parse::row::NOISE_MAX;
use crate::place::for_each_bar;
use crate::read::event_count::EventCount;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{counted, display_utc};
use crate::time::zone::Zone;

/// Agreement of some files' bars with those of the series. Of both, the longer bars are counted.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ComparedFiles {
    /// The files; no bar of theirs is in the series.
    pub paths: Vec<PathBuf>,
    /// Timeframe of their bars.
    #[serde(with = "crate::exact::text")]
    pub timeframe: Timeframe,
    /// Timeframe of the bars that the series is made of.
    #[serde(with = "crate::exact::text")]
    pub base: Timeframe,
    /// Bars with the same open, high, low and close as the shorter bars make.
    pub same: u64,
    /// Bars with other prices.
    pub different: EventCount,
    /// Bars of times that the shorter bars do not cover, or that cannot be made from them.
    pub not_covered: u64,
}

impl ComparedFiles {
    /// Compares bars of days with those of the days by UTC, and of the days by the clock of the
    /// shorter bars; the better agreement counts, as times of daily bars are dates.
    pub(crate) fn new(
        paths: Vec<PathBuf>,
        others: &dyn BarSource,
        series: &dyn BarSource,
        clock: Option<&Zone>,
    ) -> Result<Self> {
        let by_utc = ComparedFiles::by_days(paths, others, series, None)?;
        let are_days = others.timeframe().max(series.timeframe()) >= Timeframe::D1;
        let Some(clock) = clock.filter(|_| are_days && by_utc.different.count > 0) else { return Ok(by_utc) };
        let by_clock = ComparedFiles::by_days(by_utc.paths.clone(), others, series, Some(clock))?;
        Ok(if by_clock.different.count < by_utc.different.count { by_clock } else { by_utc })
    }

    /// The comparison; longer bars open when `days` shows their times, or at these.
    fn by_days(
        paths: Vec<PathBuf>,
        others: &dyn BarSource,
        series: &dyn BarSource,
        days: Option<&Zone>,
    ) -> Result<Self> {
        let are_longer = others.timeframe() > series.timeframe();
        let (longer, shorter) = if are_longer { (others, series) } else { (series, others) };
        let mut compared = ComparedFiles {
            paths,
            timeframe: others.timeframe(),
            base: series.timeframe(),
            same: 0,
            different: EventCount::default(),
            not_covered: 0,
        };
        let duration_ns = longer.timeframe().duration_ns();
        if !longer.timeframe().is_multiple_of(shorter.timeframe()) {
            compared.not_covered = longer.len() as u64;
            return Ok(compared);
        }
        let mut stretch = Stretch::new(shorter)?;
        for_each_bar(longer, |bar| {
            let at = |time: i64| days.map_or(time, |zone| zone.utc_ns(time));
            match stretch.made_of(at(bar.open_time), at(bar.open_time + duration_ns))? {
                None => compared.not_covered += 1,
                Some(made) if is_same(made, bar.prices()) => compared.same += 1,
                Some(_) => compared.different.add(bar.open_time),
            }
            Ok(())
        })?;
        Ok(compared)
    }

    /// Reasons against both having one source and clock.
    pub(crate) fn warning(&self) -> Option<String> {
        let ComparedFiles { timeframe, base, same, different, .. } = self;
        let files = self.names();
        let Some(first) = different.first else {
            return (*same == 0).then(|| {
                format!(
                    "{files}: the {timeframe} bars are not read, as there are {base} bars of the same symbol, and these cover none of their times; ingest them apart"
                )
            });
        };
        let all = same + different.count;
        let (longer, shorter) = (timeframe.max(base), timeframe.min(base));
        Some(format!(
            "{files}: {} of {all} {longer} bars have other prices than the {shorter} bars make, the first at {}; the {base} bars count: are both of one source and one clock?",
            different.count,
            display_utc(first)
        ))
    }

    fn names(&self) -> String {
        self.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// The shorter bars in one stretch of time after another; the stretches come in order of time.
struct Stretch<'a> {
    bars: &'a dyn BarSource,
    /// When the first of all opens, and the last closes.
    covered: Range<i64>,
    /// Bars before the stretch.
    begin: usize,
    piece: Bars,
    times: Vec<i64>,
}

/// Shorter bars that are read at once.
const PIECE_BARS: usize = 256;

impl<'a> Stretch<'a> {
    fn new(bars: &'a dyn BarSource) -> Result<Self> {
        let (mut times, duration_ns) = (Vec::new(), bars.timeframe().duration_ns());
        let mut covered = 0..0;
        if let Some(last) = bars.len().checked_sub(1) {
            bars.read_open_times(0..1, &mut times)?;
            covered.start = times[0];
            bars.read_open_times(last..bars.len(), &mut times)?;
            covered.end = times[0] + duration_ns;
        }
        Ok(Stretch { bars, covered, begin: 0, piece: Bars::with_capacity(bars.timeframe(), 0), times })
    }

    /// Open, high, low and close of a bar made of those in a stretch; `None` where they do not
    /// reach over all of it.
    fn made_of(&mut self, open_time: i64, close_time: i64) -> Result<Option<[f64; 4]>> {
        self.advance(open_time)?;
        if self.covered.start > open_time || self.covered.end < close_time {
            return Ok(None);
        }
        let mut made: Option<[f64; 4]> = None;
        let mut first = self.begin;
        while first < self.bars.len() {
            let end = self.bars.len().min(first + PIECE_BARS);
            self.bars.read(first..end, &mut self.piece)?;
            for bar in (0..self.piece.len()).map(|index| self.piece.bar(index)) {
                if bar.open_time >= close_time {
                    return Ok(made);
                }
                let [open, high, low, _] = made.unwrap_or([bar.open, f64::MIN, f64::MAX, bar.close]);
                made = Some([open, high.max(bar.high), low.min(bar.low), bar.close]);
            }
            first = end;
        }
        Ok(made)
    }

    /// Passes the bars that open before `open_time`.
    fn advance(&mut self, open_time: i64) -> Result<()> {
        while self.begin < self.bars.len() {
            let end = self.bars.len().min(self.begin + PIECE_BARS);
            self.bars.read_open_times(self.begin..end, &mut self.times)?;
            let before = self.times.partition_point(|&opens| opens < open_time);
            self.begin += before;
            if before < self.times.len() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// True if prices differ by no more than the noise of numbers as text.
pub(crate) fn is_same(one: [f64; 4], other: [f64; 4]) -> bool {
    one.iter().zip(other).all(|(one, other)| (one - other).abs() <= NOISE_MAX * other)
}

impl fmt::Display for ComparedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ComparedFiles { timeframe, base, same, different, not_covered, .. } = self;
        let bars = counted(same + different.count + not_covered, "bar", "bars");
        let both = match timeframe > base {
            true => format!("{bars} of {timeframe} compared with the {base} bars"),
            false => format!("{timeframe} bars compared with {bars} of {base}"),
        };
        write!(f, "{}: {both} and not read: {same} the same", self.names())?;
        if different.count > 0 {
            write!(f, ", {} different", different.count)?;
        }
        if *not_covered > 0 {
            write!(f, ", {not_covered} in periods that the {} bars do not cover whole", timeframe.min(base))?;
        }
        Ok(())
    }
}
