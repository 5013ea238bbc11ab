//! Parts of error messages.

use std::fmt;

use crate::time::timeframe::Timeframe;

/// Bars of one timeframe, and bars that one sample needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarShortage {
    /// The timeframe.
    pub timeframe: Timeframe,
    /// Bars that have closed by the last base bar that has a full horizon.
    pub bars: usize,
    /// Bars needed: the warm-up of the features and one window.
    pub needed: usize,
}

/// The longest of several segments; displays as nothing for one segment.
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
pub(crate) struct Shortages<'a>(pub(crate) &'a [BarShortage]);

impl fmt::Display for Shortages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (k, BarShortage { timeframe, bars, needed }) in self.0.iter().enumerate() {
            let comma = if k == 0 { "" } else { ", " };
            write!(f, "{comma}{timeframe} has {bars} bars and needs {needed}")?;
        }
        Ok(())
    }
}

/// A share in percent, with two significant digits at least.
pub(crate) struct Percent(pub(crate) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zeros = if self.0 > 0.0 { (-self.0.log10()).floor().clamp(0.0, 12.0) } else { 0.0 };
        write!(f, "{:.*} %", zeros as usize + 2, self.0)
    }
}

/// `text` cut to a length that fits a message, with marks in place of what would disturb a
/// terminal.
pub(crate) fn shortened(text: &[u8]) -> String {
    const CHARS_MAX: usize = 80;
    let text = String::from_utf8_lossy(text);
    let visible = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    let mut chars = text.trim_end().chars();
    let shown: String = chars.by_ref().take(CHARS_MAX).map(visible).collect();
    if chars.next().is_some() { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_keep_their_digits() {
        for (percent, text) in [(0.0, "0.00 %"), (12.345, "12.35 %"), (0.14, "0.14 %"), (0.009_33, "0.0093 %")] {
            assert_eq!(Percent(percent).to_string(), text);
        }
    }

    #[test]
    fn long_and_invisible_text_is_made_fit_for_a_message() {
        let cases = [
            ("a\tb \n", "a\tb".to_owned()),
            ("\0\x1b[1m", "\u{fffd}\u{fffd}[1m".to_owned()),
            (&"ö".repeat(80), "ö".repeat(80)),
            (&"ö".repeat(81), format!("{}…", "ö".repeat(80))),
        ];
        for (text, expected) in cases {
            assert_eq!(shortened(text.as_bytes()), expected);
        }
    }
}
