use crate::series::column_feature::{ColumnFeature, PREFIX};
use crate::unknown_name::UnknownName;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Begins the name of a column of a function.
pub const FUNCTION: &str = "function:";

/// A number of each bar: computed from that bar and earlier ones, or a column of its file.
///
/// In the formulas `o`, `h`, `l`, `c`, `v` are open, high, low, close and volume of the bar, an
/// index `[-1]` is the bar before, and "last n" includes the bar itself. Bars are neighbours
/// whether or not there is a gap between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// `log_return`: ln(c / c\[-1\]).
    LogReturn,
    /// `log_return_12`: ln(c / c\[-12\]).
    LogReturn12,
    /// `open_gap`: o / c\[-1\] - 1.
    OpenGap,
    /// `body`: (c - o) / c.
    Body,
    /// `range`: (h - l) / c.
    Range,
    /// `upper_shadow`: (h - max(o, c)) / c.
    UpperShadow,
    /// `lower_shadow`: (min(o, c) - l) / c.
    LowerShadow,
    /// `pip_change`: (c - c\[-1\]) / size of a pip.
    PipChange,
    /// `volatility_20`: population standard deviation of the last 20 log returns.
    Volatility20,
    /// `atr_14`: Wilder's mean over 14 bars of the true range max(h, c\[-1\]) - min(l, c\[-1\]),
    /// over c (Wilder, New Concepts in Technical Trading Systems, 1978).
    Atr14,
    /// `rsi_14`: 100 g / (g + d), with g and d Wilder's means over 14 bars of the rises and falls
    /// of c; 50 where both are zero (Wilder 1978).
    Rsi14,
    /// `stochastic_14`: (c - lowest l) / (highest h - lowest l) of the last 14 bars; 0.5 where
    /// those are equal.
    Stochastic14,
    /// `macd`: (EMA12 - EMA26 of c) / c. An EMA of n has the weight 2 / (n + 1) and begins with the
    /// mean of n values.
    Macd,
    /// `macd_signal`: EMA9 of (EMA12 - EMA26 of c), over c.
    MacdSignal,
    /// `macd_histogram`: `macd` - `macd_signal`.
    MacdHistogram,
    /// `sma_20_distance`: c / mean of the last 20 c - 1.
    Sma20Distance,
    /// `sma_50_distance`: c / mean of the last 50 c - 1.
    Sma50Distance,
    /// `ema_20_distance`: c / EMA20 of c - 1.
    Ema20Distance,
    /// `ema_50_distance`: c / EMA50 of c - 1.
    Ema50Distance,
    /// `log_volume`: ln(1 + v).
    LogVolume,
    /// `relative_volume`: v / mean of the last 20 v; 0 where that is zero.
    RelativeVolume,
    /// `spread_pips`: ask less bid at the close / size of a pip; 0 where the source tells no
    /// spread.
    SpreadPips,
    /// `day_sin`: sin(2π × the part of the UTC day that has passed when the bar closes).
    DaySin,
    /// `day_cos`: cos of the same.
    DayCos,
    /// `week_sin`: sin(2π × the part of the week, from Monday 00:00 UTC, that has passed when the
    /// bar closes).
    WeekSin,
    /// `week_cos`: cos of the same.
    WeekCos,
    /// `column:NAME`: a column of the bars' files, known when its bar closes.
    Column(ColumnFeature),
    /// `function:NAME`: a column that a function of the user computes from the bars of each
    /// timeframe, see [`BarFunctions`](crate::BarFunctions).
    Function(Arc<str>),
}

/// Properties of a feature that need no computation.
struct Facts {
    name: &'static str,
    warm_up: usize,
}

impl Feature {
    /// Every feature that is computed.
    pub const ALL: [Feature; 26] = [
        Feature::LogReturn,
        Feature::LogReturn12,
        Feature::OpenGap,
        Feature::Body,
        Feature::Range,
        Feature::UpperShadow,
        Feature::LowerShadow,
        Feature::PipChange,
        Feature::Volatility20,
        Feature::Atr14,
        Feature::Rsi14,
        Feature::Stochastic14,
        Feature::Macd,
        Feature::MacdSignal,
        Feature::MacdHistogram,
        Feature::Sma20Distance,
        Feature::Sma50Distance,
        Feature::Ema20Distance,
        Feature::Ema50Distance,
        Feature::LogVolume,
        Feature::RelativeVolume,
        Feature::SpreadPips,
        Feature::DaySin,
        Feature::DayCos,
        Feature::WeekSin,
        Feature::WeekCos,
    ];

    /// The sixteen that are used when none are named.
    pub const DEFAULT: [Feature; 16] = [
        Feature::LogReturn,
        Feature::Body,
        Feature::Range,
        Feature::UpperShadow,
        Feature::LowerShadow,
        Feature::Volatility20,
        Feature::Atr14,
        Feature::Rsi14,
        Feature::Macd,
        Feature::MacdHistogram,
        Feature::Sma50Distance,
        Feature::RelativeVolume,
        Feature::DaySin,
        Feature::DayCos,
        Feature::WeekSin,
        Feature::WeekCos,
    ];

    /// The name in configurations and files.
    pub fn name(&self) -> &str {
        match self {
            Feature::Column(column) => column.written(),
            Feature::Function(written) => written,
            computed => computed.facts().name,
        }
    }

    /// The column that it is, if it is one.
    pub fn as_column(&self) -> Option<&ColumnFeature> {
        if let Feature::Column(column) = self { Some(column) } else { None }
    }

    /// The feature that is the column `name` of a function.
    pub fn from_function(name: &str) -> Self {
        Feature::Function(format!("{FUNCTION}{name}").into())
    }

    /// Name of the function's column that it is, if it is one.
    pub fn as_function(&self) -> Option<&str> {
        if let Feature::Function(written) = self { written.strip_prefix(FUNCTION) } else { None }
    }

    /// Number of bars from the start of a series at which the feature is not defined yet.
    pub fn warm_up(&self) -> usize {
        self.facts().warm_up
    }

    /// True if it is a sine or cosine of the time. Those keep their scale: they lie in -1..1, and a
    /// stretched circle would no longer be one.
    pub fn is_cyclic(&self) -> bool {
        matches!(self, Feature::DaySin | Feature::DayCos | Feature::WeekSin | Feature::WeekCos)
    }

    /// True if it is computed from the volume.
    pub fn reads_volume(&self) -> bool {
        matches!(self, Feature::LogVolume | Feature::RelativeVolume)
    }

    fn facts(&self) -> Facts {
        let (name, warm_up) = match self {
            Feature::LogReturn => ("log_return", 1),
            Feature::LogReturn12 => ("log_return_12", 12),
            Feature::OpenGap => ("open_gap", 1),
            Feature::Body => ("body", 0),
            Feature::Range => ("range", 0),
            Feature::UpperShadow => ("upper_shadow", 0),
            Feature::LowerShadow => ("lower_shadow", 0),
            Feature::PipChange => ("pip_change", 1),
            Feature::Volatility20 => ("volatility_20", 20),
            Feature::Atr14 => ("atr_14", 14),
            Feature::Rsi14 => ("rsi_14", 14),
            Feature::Stochastic14 => ("stochastic_14", 13),
            Feature::Macd => ("macd", 25),
            Feature::MacdSignal => ("macd_signal", 33),
            Feature::MacdHistogram => ("macd_histogram", 33),
            Feature::Sma20Distance => ("sma_20_distance", 19),
            Feature::Sma50Distance => ("sma_50_distance", 49),
            Feature::Ema20Distance => ("ema_20_distance", 19),
            Feature::Ema50Distance => ("ema_50_distance", 49),
            Feature::LogVolume => ("log_volume", 0),
            Feature::RelativeVolume => ("relative_volume", 19),
            Feature::SpreadPips => ("spread_pips", 0),
            Feature::DaySin => ("day_sin", 0),
            Feature::DayCos => ("day_cos", 0),
            Feature::WeekSin => ("week_sin", 0),
            Feature::WeekCos => ("week_cos", 0),
            Feature::Column(_) => (PREFIX, 0),
            Feature::Function(_) => (FUNCTION, 0),
        };
        Facts { name, warm_up }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Feature {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        if let Some(column) = ColumnFeature::parse(name) {
            return match column.column() {
                "" => Err(UnknownName::new("feature", name, "column:NAME, with the name in the header".to_owned())),
                _ => Ok(Feature::Column(column)),
            };
        }
        if let Some(column) = name.strip_prefix(FUNCTION).filter(|column| !column.is_empty()) {
            return Ok(Feature::from_function(column));
        }
        Feature::ALL.into_iter().find(|feature| feature.name() == name).ok_or_else(|| {
            let all = Feature::ALL.each_ref().map(Feature::name).join(", ");
            let alike = Feature::alike(name).join(" or ");
            let computed = if alike.is_empty() { all } else { format!("{alike}, or another of {all}") };
            let expected = format!("{computed}, or column:{name} for the column of the bars that has this name");
            UnknownName::new("feature", name, expected)
        })
    }
}

impl Feature {
    /// Names of features that begin as `name` does without its number.
    fn alike(name: &str) -> Vec<&'static str> {
        let name = name.to_lowercase();
        let wanted = name.trim_end_matches(|c: char| c == '_' || c.is_ascii_digit());
        let names = Feature::ALL.each_ref().map(|feature| feature.facts().name);
        names.into_iter().filter(|name| !wanted.is_empty() && name.starts_with(wanted)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        for feature in Feature::ALL {
            assert_eq!(feature.to_string().parse::<Feature>().unwrap(), feature);
        }
        assert_eq!(Feature::ALL.iter().collect::<HashSet<_>>().len(), Feature::ALL.len());
        assert_eq!(Feature::DEFAULT.iter().collect::<HashSet<_>>().len(), 16);
        // `--features rsi` listed 27 names.
        for (name, alike) in [
            ("rsi", "rsi_14, or another of log_return, "),
            ("RSI_7", "rsi_14, or another of "),
            ("sma", "sma_20_distance or sma_50_distance, or another of "),
            ("alpha", "log_return, log_return_12, "),
            ("", "log_return, log_return_12, "),
        ] {
            let error = name.parse::<Feature>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("unknown feature `{name}`: expected {alike}")), "{error}");
        }
    }
}
