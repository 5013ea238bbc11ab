//! Bars missing for one sample of an instrument.

use std::fmt;

use crate::time::timeframe::Timeframe;

/// Bars of one timeframe, and bars that one sample needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The timeframe.
    pub timeframe: Timeframe,
    /// Bars that have closed by the last base bar that has a full horizon.
    pub bars: usize,
    /// Bars needed: the warm-up of the features and one window.
    pub needed: usize,
}

/// Which of several segments is spoken of.
pub(crate) struct LongestOf {
    pub(crate) segments: usize,
    pub(crate) longest: usize,
}

impl fmt::Display for LongestOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LongestOf { segments: 0 | 1, .. } => Ok(()),
            LongestOf { segments, longest } => {
                write!(f, " in any of {segments} segments, the longest of which has {longest} bars")
            }
        }
    }
}

/// Missing bars by timeframe.
pub(crate) struct Shortages<'a>(pub(crate) &'a [Shortage]);

impl fmt::Display for Shortages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, Shortage { timeframe, bars, needed }) in self.0.iter().enumerate() {
            let comma = if k == 0 { "" } else { ", " };
            write!(f, "{comma}{timeframe} has {bars} bars and needs {needed}")?;
        }
        Ok(())
    }
}
