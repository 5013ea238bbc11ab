use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::time::timeframe::Timeframe;
use crate::unknown_name::UnknownName;

/// Rule by which ticks are grouped into bars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BarRule {
    /// Bins of a timeframe. A bin without ticks gives no bar.
    Timeframe(Timeframe),
    /// A number of ticks.
    Ticks(NonZeroU64),
    /// The fewest ticks whose volumes sum to at least this number, which is above 0.
    Volume(f64),
}

impl BarRule {
    /// True for bars of one length in time.
    pub fn has_fixed_length(self) -> bool {
        matches!(self, BarRule::Timeframe(_))
    }
}

impl fmt::Display for BarRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BarRule::Timeframe(timeframe) => timeframe.fmt(f),
            BarRule::Ticks(count) => write!(f, "ticks:{count}"),
            BarRule::Volume(volume) => write!(f, "volume:{volume}"),
        }
    }
}

impl FromStr for BarRule {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let rule = match text.split_once(':') {
            Some(("ticks", count)) => count.parse().ok().map(BarRule::Ticks),
            Some(("volume", volume)) => {
                let volume = volume.parse().ok().filter(|volume: &f64| *volume > 0.0 && volume.is_finite());
                volume.map(BarRule::Volume)
            }
            Some(_) => None,
            None => text.parse().ok().map(BarRule::Timeframe),
        };
        rule.ok_or_else(|| {
            let timeframes = Timeframe::ALL.map(Timeframe::name).join(", ");
            UnknownName::new("rule of bars", text, format!("{timeframes}, ticks:N or volume:V, with N and V above 0"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_back() {
        for text in ["M1", "W1", "ticks:1000", "volume:0.5", "volume:1000000"] {
            assert_eq!(text.parse::<BarRule>().unwrap().to_string(), text);
        }
        for wrong in
            ["", "M7", "ticks", "ticks:0", "ticks:-1", "ticks:1.5", "volume:0", "volume:inf", "volume:nan", "x:1"]
        {
            let error = wrong.parse::<BarRule>().unwrap_err().to_string();
            assert!(error.contains("D1, W1, MN1, ticks:N or volume:V"), "{wrong}: {error}");
        }
    }
}
