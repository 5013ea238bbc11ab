//! Notes on bars that have no row, because a feature reads many bars before its own.

use megabatch_bars::{Feature, WarmUp, listed};

use crate::text::plural;

/// Share of an instrument's bars that may have no row without a note.
const SHARE_MAX: f64 = 0.1;

/// The note on the instrument that loses the largest share of its bars, and the number of others
/// that lose many; `None` where none does.
pub(super) fn note(warm_ups: &[WarmUp], features: &[Feature]) -> Option<String> {
    let long: Vec<&WarmUp> = warm_ups.iter().filter(|warm_up| warm_up.share() > SHARE_MAX).collect();
    let longest = long.iter().max_by(|one, other| one.share().total_cmp(&other.share()))?;
    let WarmUp { instrument, timeframe, bars, without_row, segments } = longest;
    let reads = longest_reading(features)?;
    let (in_each, advice) = match segments {
        1 => (String::new(), " or give more bars"),
        _ => (format!(", in each of {segments} segments"), ", give more bars, or let segments go on over longer holes"),
    };
    let others = match long.len() - 1 {
        0 => String::new(),
        others => format!("; {} likewise", plural(others, "other instrument")),
    };
    Some(format!(
        "{instrument}: {without_row} of {bars} {timeframe} bars have no row: {reads} before a row{in_each}; choose features that read fewer{advice}{others}"
    ))
}

/// Bars of an instrument before another one beside it has values.
pub(super) struct ContextLoss {
    pub(super) symbol: String,
    /// The other instrument.
    pub(super) context: String,
    /// The bars, which are dropped.
    pub(super) dropped: usize,
    /// All bars.
    pub(super) bars: usize,
}

impl ContextLoss {
    pub(super) fn share(&self) -> f64 {
        self.dropped as f64 / self.bars as f64
    }

    /// The note on it, where the context has these features; `None` where few bars are lost. With
    /// functions, which may read more bars, nobody knows what reads most.
    pub(super) fn note(&self, features: &[Feature], has_functions: bool) -> Option<String> {
        if self.share() <= SHARE_MAX {
            return None;
        }
        let ContextLoss { symbol, context, dropped, bars } = self;
        let (reads, choice) = match longest_reading(features) {
            _ if has_functions => (String::new(), "choose features and functions that read fewer, or "),
            Some(reads) => (format!(": {reads} of it before a value"), "choose features that read fewer, or "),
            None => (String::new(), ""),
        };
        Some(format!(
            "{symbol}: {dropped} of {bars} bars are dropped, until the context {context} has values{reads}; {choice}give bars of {context} from before those of {symbol}"
        ))
    }
}

/// The features that read most bars before their own, and how many; `None` where none reads any.
fn longest_reading(features: &[Feature]) -> Option<String> {
    let look_back = features.iter().map(Feature::warm_up).max().filter(|&bars| bars > 0)?;
    let names = features.iter().filter(|feature| feature.warm_up() == look_back).map(ToString::to_string);
    let names: Vec<String> = names.collect();
    let verb = if names.len() == 1 { "reads" } else { "read" };
    Some(format!("{} {verb} {}", listed(&names), plural(look_back, "bar")))
}

#[cfg(test)]
mod tests {
    use megabatch_bars::Timeframe;

    use super::*;

    #[test]
    fn the_longest_warm_up_is_named_with_its_feature() {
        let warm_up = |instrument: &str, without_row: usize, segments: usize| WarmUp {
            instrument: instrument.to_owned(),
            timeframe: Timeframe::D1,
            bars: 200,
            without_row,
            segments,
        };
        let features = [Feature::Body, Feature::Sma50Distance, Feature::Rsi14];
        assert_eq!(note(&[warm_up("A", 20, 1)], &features), None);
        assert_eq!(
            note(&[warm_up("A", 49, 1)], &features).unwrap(),
            "A: 49 of 200 D1 bars have no row: sma_50_distance reads 49 bars before a row; choose features that read fewer or give more bars"
        );
        let several = note(&[warm_up("A", 49, 1), warm_up("B", 147, 3), warm_up("C", 0, 1)], &features).unwrap();
        assert!(
            several.starts_with("B: 147 of 200 D1 bars") && several.ends_with("; 1 other instrument likewise"),
            "{several}"
        );
        assert!(several.contains("in each of 3 segments; ") && several.contains("over longer holes"), "{several}");
    }

    #[test]
    fn a_context_that_costs_many_bars_is_named() {
        let features = [Feature::Body, Feature::Sma50Distance, Feature::Rsi14];
        let note = |dropped: usize, features: &[Feature], has_functions: bool| {
            let loss = ContextLoss { symbol: "A".to_owned(), context: "WK".to_owned(), dropped, bars: 200 };
            loss.note(features, has_functions)
        };
        assert_eq!(note(20, &features, false), None);
        let (says, advice) = (
            "A: 196 of 200 bars are dropped, until the context WK has values",
            "give bars of WK from before those of A",
        );
        let reads = "sma_50_distance reads 49 bars of it before a value; choose features that read fewer, or";
        assert_eq!(note(196, &features, false).unwrap(), format!("{says}: {reads} {advice}"));
        // A function may read more than any feature.
        let functions = "choose features and functions that read fewer, or";
        assert_eq!(note(196, &features, true).unwrap(), format!("{says}; {functions} {advice}"));
        // No feature reads fewer than none.
        assert_eq!(note(196, &[Feature::Body], false).unwrap(), format!("{says}; {advice}"));
    }
}
