//! Files of a longer timeframe beside those of a shorter one, of the same symbol: the shorter bars
//! are the series, and the longer ones are compared with what the shorter ones make.

use std::fmt;
use std::path::PathBuf;

use crate::bars::Bars;
use crate::parse::digits::NOISE_MAX;
use crate::read::pair::EventCount;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{counted, display_utc};

/// Agreement of some files' bars with those made of shorter bars.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComparedFiles {
    /// The files; no bar of theirs is in the series.
    pub paths: Vec<PathBuf>,
    /// Timeframe of their bars.
    pub timeframe: Timeframe,
    /// Timeframe of the bars that the series is made of.
    pub base: Timeframe,
    /// Bars with the same open, high, low and close as the shorter bars make.
    pub same: u64,
    /// Bars with other prices.
    pub different: EventCount,
    /// Bars of times that the shorter bars do not cover.
    pub not_covered: u64,
}

impl ComparedFiles {
    pub(crate) fn new(paths: Vec<PathBuf>, longer: &Bars, shorter: &Bars) -> Self {
        let mut compared = ComparedFiles {
            paths,
            timeframe: longer.timeframe,
            base: shorter.timeframe,
            same: 0,
            different: EventCount::default(),
            not_covered: 0,
        };
        for index in 0..longer.len() {
            match made_of(shorter, longer.open_time[index], longer.close_time(index)) {
                None => compared.not_covered += 1,
                Some(made) if is_same(made, prices(longer, index)) => compared.same += 1,
                Some(_) => compared.different.add(longer.open_time[index]),
            }
        }
        compared
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
        Some(format!(
            "{files}: {} of {all} {timeframe} bars have other prices than the {base} bars make, the first at {}; the {base} bars count: are both of one source and one clock?",
            different.count,
            display_utc(first)
        ))
    }

    fn names(&self) -> String {
        self.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// Open, high, low and close of a bar made of those in a stretch of time; `None` where they do not
/// reach over all of it.
fn made_of(bars: &Bars, open_time: i64, close_time: i64) -> Option<[f64; 4]> {
    let begin = bars.open_time.partition_point(|&opens| opens < open_time);
    let end = bars.open_time.partition_point(|&opens| opens < close_time);
    let covers = bars.open_time.first()? <= &open_time && bars.close_time(bars.len() - 1) >= close_time;
    (covers && begin < end).then(|| {
        let high = bars.high[begin..end].iter().copied().fold(f64::MIN, f64::max);
        let low = bars.low[begin..end].iter().copied().fold(f64::MAX, f64::min);
        [bars.open[begin], high, low, bars.close[end - 1]]
    })
}

fn prices(bars: &Bars, index: usize) -> [f64; 4] {
    [bars.open[index], bars.high[index], bars.low[index], bars.close[index]]
}

fn is_same(one: [f64; 4], other: [f64; 4]) -> bool {
    one.iter().zip(other).all(|(one, other)| (one - other).abs() <= NOISE_MAX * other)
}

impl fmt::Display for ComparedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ComparedFiles { timeframe, base, same, different, not_covered, .. } = self;
        let bars = counted(same + different.count + not_covered, "bar", "bars");
        write!(
            f,
            "{}: {bars} of {timeframe} compared with the {base} bars and not read: {same} the same",
            self.names()
        )?;
        if different.count > 0 {
            write!(f, ", {} different", different.count)?;
        }
        if *not_covered > 0 {
            write!(f, ", {not_covered} at times without {base} bars")?;
        }
        Ok(())
    }
}
