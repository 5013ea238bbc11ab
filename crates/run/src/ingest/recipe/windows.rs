//! Arguments that name windows and samples.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use megabatch_bars::Timeframe;

/// Windows that make a series for the model of five timeframes.
const DEFAULT: &str = "M1:480,M5:288,M15:192,H1:96,H4:48";

/// `M1:480,H1:96`: window lengths in bars by timeframe, shortest timeframe first whatever the order
/// given.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows(
    /// Timeframes with their bars.
    pub Vec<(Timeframe, usize)>,
);

impl Default for Windows {
    /// Five timeframes, from a minute to four hours.
    fn default() -> Self {
        DEFAULT.parse().expect("windows as they are written")
    }
}

impl FromStr for Windows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut windows = text.split(',').map(parse_window).collect::<Result<Vec<_>, _>>()?;
        windows.sort_by_key(|(timeframe, _)| *timeframe);
        match windows.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(format!("{} is given twice", pair[0].0)),
            None => Ok(Windows(windows)),
        }
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windows: Vec<String> = self.0.iter().map(|(timeframe, steps)| format!("{timeframe}:{steps}")).collect();
        f.write_str(&windows.join(","))
    }
}

fn parse_window(text: &str) -> Result<(Timeframe, usize), String> {
    let fault = || format!("`{text}` is no window; expected a timeframe and a number of bars, such as M1:480");
    let (timeframe, steps) = text.trim().split_once(':').ok_or_else(fault)?;
    let timeframe = timeframe.parse::<Timeframe>().map_err(|error| error.to_string())?;
    let steps = steps.parse().ok().filter(|&steps| steps > 0).ok_or_else(fault)?;
    Ok((timeframe, steps))
}

/// `A..B`: samples from A to B, half-open, counted from 0.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRange(
    /// The samples.
    pub Range<usize>,
);

impl FromStr for SampleRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bounds = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
        match bounds {
            Some(range) if range.start < range.end => Ok(SampleRange(range)),
            _ => Err(format!("`{text}` is no range of samples; expected A..B with A < B, half-open, such as 0..10")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_sorted_and_checked() {
        let windows: Windows = "H1:96, M1:480".parse().unwrap();
        assert_eq!(windows.0, [(Timeframe::M1, 480), (Timeframe::H1, 96)]);
        assert_eq!(windows.to_string(), "M1:480,H1:96");
        for wrong in ["", "M1", "M1:", "M1:0", "M1:-1", "M7:3", "M1:1,M1:2", "M1:1,"] {
            assert!(wrong.parse::<Windows>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ranges_are_half_open_and_not_empty() {
        assert_eq!("3..7".parse::<SampleRange>().unwrap().0, 3..7);
        for wrong in ["", "3", "..", "3..", "7..3", "3..3", "-1..2", "0..=4"] {
            assert!(wrong.parse::<SampleRange>().is_err(), "{wrong:?}");
        }
    }
}
