//! Warnings about series, for people.

use crate::clean::gap::{GapPolicy, Weekends};
use crate::series::Segment;
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
/// is the number of all those.
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
    features.iter().filter_map(warning).collect()
}
