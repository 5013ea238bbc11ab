//! Warnings about series, for people.

use crate::clean::gap::{GapPolicy, Weekends};
use crate::series::Segment;
use crate::series::context::AGE_IN_CONTEXT;
use crate::series::feature::Feature;
use crate::time::timestamp::display_duration;

/// Size of an instrument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstrumentSize {
    pub(crate) segments: usize,
    pub(crate) bars: usize,
}

/// Prefix of a message about one of several instruments.
pub(crate) fn whose(names: &[&str], instrument: usize) -> String {
    match names {
        [_] => String::new(),
        several => format!("{} ", several[instrument]),
    }
}

/// A warning an instrument of whose segments some are too short.
pub(crate) fn excluded_warnings(
    names: &[&str],
    sizes: &[InstrumentSize],
    excluded: &[Segment],
    holes: GapPolicy,
) -> Vec<String> {
    let limit = display_duration(holes.longest_ns);
    let weekends = match holes.weekends {
        Weekends::Spanned => "",
        Weekends::NotSpanned => " and every weekend",
    };
    let warning = |(place, size): (usize, &InstrumentSize)| {
        let own = excluded.iter().filter(|segment| segment.instrument as usize == place);
        let (count, bars) = own.fold((0, 0), |(count, bars), segment| (count + 1, bars + segment.bars));
        let InstrumentSize { segments, bars: all } = *size;
        (count > 0).then(|| {
            format!(
                "{}{count} of {segments} segments are too short for one sample, so that {bars} of {all} bars are left out; holes of more than {limit}{weekends} end a segment",
                whose(names, place)
            )
        })
    };
    sizes.iter().enumerate().filter_map(warning).collect()
}

/// A feature that does not vary, and where.
#[derive(Clone, Debug)]
pub(crate) struct ConstantFeature {
    pub(crate) feature: Feature,
    /// Instrument and timeframe.
    pub(crate) place: String,
}

/// One warning a feature, with the timeframes and instruments in which it is constant; `everywhere`
/// is the number of all those. The age of another instrument's bars has none: it is constant where
/// that instrument has every bar.
pub(crate) fn constant_warnings(features: &[Feature], constant: &[ConstantFeature], everywhere: usize) -> Vec<String> {
    let warning = |feature: &Feature| {
        let found: Vec<&str> =
            constant.iter().filter(|found| found.feature == *feature).map(|found| found.place.as_str()).collect();
        let places = match found.len() {
            0 => return None,
            count if count == everywhere => "every timeframe".to_owned(),
            _ => found.join(", "),
        };
        Some(format!(
            "{feature} is constant over the training span in {places}: it carries nothing there and keeps the scale 1"
        ))
    };
    features.iter().filter(|feature| !is_age(feature)).filter_map(warning).collect()
}

/// True if the feature is the age of the bars of another instrument.
fn is_age(feature: &Feature) -> bool {
    let name = feature.as_function().and_then(|name| name.rsplit_once('.'));
    name.is_some_and(|(_, own)| own == AGE_IN_CONTEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ingest` of days warned of every instrument beside them that has a bar each day.
    #[test]
    fn the_age_of_complete_bars_is_no_constant_to_warn_of() {
        let features = ["SPY.age", "SPY.log_return", "age"].map(Feature::from_function);
        let constant = features.clone().map(|feature| ConstantFeature { feature, place: "D1".to_owned() });
        let warnings = constant_warnings(&features, &constant, 1);
        let named: Vec<&str> = warnings.iter().map(|warning| warning.split(" is constant").next().unwrap()).collect();
        assert_eq!(named, ["function:SPY.log_return", "function:age"]);
    }
}
