//! Names and kinds of the numbers of a data file. A model is used on data with the same schema.

use std::collections::BTreeMap;

use megabatch_chunk_io::{AttributeValue, SeriesFile, Source};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use crate::error::Result;

/// Noun of the rule about bars of longer timeframes, and the rule by which they are taken as they
/// are.
const LONGER_BARS: &str = "longer bars";
const OWN_BARS: &str = "those of their own files";

/// Names of features, kind of targets, kind of scaling; empty for a windows file, which has none of
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataSchema {
    /// By timeframe.
    features: BTreeMap<String, Vec<String>>,
    /// By timeframe: `robust`, `standard` or `none`.
    scaling: BTreeMap<String, String>,
    /// `cumulative` or `increment`.
    target_kind: Option<String>,
    /// Names of the instruments.
    instruments: Vec<String>,
    /// Size of a pip, of one instrument whose targets are in pips.
    #[serde(default)]
    pip_size: Option<String>,
    /// By instrument and timeframe: a hash of the centres and scales of the features. Empty in
    /// plans of before.
    #[serde(default)]
    scalers: BTreeMap<String, BTreeMap<String, String>>,
    /// Rules by which bars were made, by a plural noun. Empty in plans of before, and for series
    /// that `ingest` did not make.
    #[serde(default)]
    bars: BTreeMap<String, String>,
}

impl DataSchema {
    /// Schema of the file behind `source`.
    pub(crate) fn from_source(source: &Source) -> Result<Self> {
        source.series().map_or(Ok(DataSchema::default()), |series| DataSchema::from_series(series.file()))
    }

    /// Schema of a series file.
    pub(crate) fn from_series(file: &SeriesFile) -> Result<Self> {
        let mut meaning = DataSchema::default();
        for timeframe in file.timeframes() {
            meaning.features.insert(timeframe.name().to_owned(), timeframe.feature_names().to_vec());
            if let Some(scaler) = timeframe.scaler() {
                meaning.scaling.insert(timeframe.name().to_owned(), scaler.kind.clone());
            }
        }
        if let Some(AttributeValue::Text(kind)) = file.attribute("target_kind")? {
            meaning.target_kind = Some(kind);
        }
        meaning.instruments = file.instruments().to_vec();
        if let (true, Some(AttributeValue::Text(symbol))) = (meaning.instruments.is_empty(), file.attribute("symbol")?)
        {
            meaning.instruments.push(symbol);
        }
        meaning.pip_size = file.attribute("pip_size")?.map(|size| size.to_string());
        for timeframe in file.timeframes() {
            let Some(scaler) = timeframe.scaler().filter(|scaler| scaler.kind != "none") else { continue };
            let features = timeframe.feature_names().len().max(1);
            let rows = scaler.center.chunks(features).zip(scaler.scale.chunks(features));
            for (instrument, (center, scale)) in meaning.instruments.iter().zip(rows) {
                let hashes = meaning.scalers.entry(instrument.clone()).or_default();
                hashes.insert(timeframe.name().to_owned(), scaler_hash(center, scale));
            }
        }
        meaning.bars = bar_rules(file)?;
        Ok(meaning)
    }

    /// Schema of nodes with these features.
    pub(crate) fn from_node_features(features: &[String]) -> Self {
        DataSchema { features: [(String::new(), features.to_vec())].into(), ..DataSchema::default() }
    }

    /// Names of a timeframe's features, where they are known.
    pub(crate) fn features(&self, timeframe: &str) -> Option<&[String]> {
        self.features.get(timeframe).map(Vec::as_slice)
    }

    /// The kind of a timeframe's scaling, where it is known.
    pub(crate) fn scaling(&self, timeframe: &str) -> Option<&str> {
        self.scaling.get(timeframe).map(String::as_str)
    }

    /// The instruments of `other` that are not in this schema; none if either names none.
    pub(crate) fn other_instruments<'o>(&self, other: &'o DataSchema) -> Vec<&'o str> {
        if self.instruments.is_empty() {
            return Vec::new();
        }
        other.instruments.iter().filter(|name| !self.instruments.contains(name)).map(String::as_str).collect()
    }

    /// The instruments of `other` whose features, the same as here, were scaled by other numbers,
    /// and the timeframes where they were.
    pub(crate) fn other_scalers<'o>(&self, other: &'o DataSchema) -> Vec<(&'o str, Vec<&'o str>)> {
        let differing = |(instrument, theirs): (&'o String, &'o BTreeMap<String, String>)| {
            let ours = self.scalers.get(instrument)?;
            let differs = |(timeframe, hash): &(&String, &String)| {
                let has_same_features = self.features.get(*timeframe) == other.features.get(*timeframe);
                has_same_features && ours.get(*timeframe).is_some_and(|own| own != *hash)
            };
            let timeframes: Vec<&str> = theirs.iter().filter(differs).map(|(name, _)| name.as_str()).collect();
            (!timeframes.is_empty()).then_some((instrument.as_str(), timeframes))
        };
        other.scalers.iter().filter_map(differing).collect()
    }

    /// The rules of this schema by which the bars of `other` were not made, in words.
    pub(crate) fn other_bars(&self, other: &DataSchema) -> Vec<String> {
        let differing = |(noun, ours): (&String, &String)| {
            let theirs = other.bars.get(noun).filter(|theirs| *theirs != ours)?;
            Some(format!("{noun} were {ours} in training and are {theirs} here"))
        };
        self.bars.iter().filter_map(differing).collect()
    }

    /// True if bars of longer timeframes are those of their own files.
    pub(crate) fn has_own_bars(&self) -> bool {
        self.bars.get(LONGER_BARS).is_some_and(|rule| rule == OWN_BARS)
    }

    /// Names of the instruments.
    pub(crate) fn instruments(&self) -> &[String] {
        &self.instruments
    }

    /// The first difference between this schema and `other`, in words; `None` without one.
    pub(crate) fn difference(&self, other: &DataSchema) -> Option<String> {
        let features = self.features.iter().filter_map(|(timeframe, ours)| {
            // Another number of features is another shape, of which the model itself speaks.
            let theirs = other.features.get(timeframe).filter(|theirs| theirs.len() == ours.len())?;
            let k = (0..ours.len()).find(|&k| ours[k] != theirs[k])?;
            let owner = if timeframe.is_empty() { "a node" } else { timeframe };
            Some(format!("feature {k} of {owner} was {} in training and is {} here", ours[k], theirs[k]))
        });
        let scaling = self.scaling.iter().filter_map(|(timeframe, ours)| {
            let theirs = other.scaling.get(timeframe).filter(|theirs| *theirs != ours)?;
            Some(format!("the scaling of {timeframe} was {ours} in training and is {theirs} here"))
        });
        let targets = match (&self.target_kind, &other.target_kind) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                Some(format!("the targets were {ours} in training and are {theirs} here"))
            }
            _ => None,
        };
        let pips = match (&self.pip_size, &other.pip_size) {
            (Some(ours), Some(theirs)) if ours != theirs && self.instruments == other.instruments => {
                Some(format!("a pip was {ours} in training and is {theirs} here"))
            }
            _ => None,
        };
        features.chain(scaling).chain(targets).chain(pips).next()
    }
}

/// Rules by which the bars of a series were made. The zone of its files is none of them: files of
/// other clocks give the same bars.
fn bar_rules(file: &SeriesFile) -> Result<BTreeMap<String, String>> {
    let Some(AttributeValue::Text(source)) = file.attribute("source")? else { return Ok(BTreeMap::new()) };
    let base = match file.attribute("base")? {
        Some(AttributeValue::Text(base)) => Some(base),
        _ => None,
    };
    Ok(rules_in_account(&source, base))
}

/// Rules in `account`, the attribute `source` of a series of bars of `base`; none without a recipe.
fn rules_in_account(account: &str, base: Option<String>) -> BTreeMap<String, String> {
    let provenance: Value = serde_json::from_str(account).unwrap_or_default();
    let words: Vec<String> = serde_json::from_value(provenance["recipe"].clone()).unwrap_or_default();
    if words.is_empty() {
        return BTreeMap::new();
    }
    let word =
        |name: &str| words.iter().find_map(|word| word.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='));
    let longer = if word("own-bars") == Some("true") { OWN_BARS } else { "made of the shortest" };
    let rules = [
        ("bins", Some(word("bins").unwrap_or("UTC").to_owned())),
        (LONGER_BARS, Some(longer.to_owned())),
        ("prices", word("prices").map(str::to_owned)),
        ("shortest bars", base),
    ];
    rules.into_iter().filter_map(|(noun, rule)| Some((noun.to_owned(), rule?))).collect()
}

/// A hash of the centres and scales of an instrument's features.
fn scaler_hash(center: &[f64], scale: &[f64]) -> String {
    let mut hasher = Xxh3::new();
    center.iter().chain(scale).for_each(|number| hasher.update(&number.to_bits().to_le_bytes()));
    format!("{:016x}", hasher.digest())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(feature: &str, scaling: &str, target_kind: &str) -> DataSchema {
        DataSchema {
            features: [("M1".to_owned(), vec!["body".to_owned(), feature.to_owned()])].into(),
            scaling: [("M1".to_owned(), scaling.to_owned())].into(),
            target_kind: Some(target_kind.to_owned()),
            instruments: vec!["EURUSD".to_owned()],
            ..DataSchema::default()
        }
    }

    #[test]
    fn other_scalers_are_named_and_another_pip_is_refused() {
        let with = |scale: f64| {
            let hashes =
                [("H1".to_owned(), scaler_hash(&[1.0], &[2.0])), ("M1".to_owned(), scaler_hash(&[0.0], &[scale]))];
            let scalers = [("EURUSD".to_owned(), BTreeMap::from(hashes))].into();
            DataSchema { scalers, pip_size: Some(scale.to_string()), ..meaning("range", "robust", "cumulative") }
        };
        let ours = with(0.5);
        assert_eq!(ours.other_scalers(&with(0.5)), []);
        assert_eq!(ours.other_scalers(&with(0.25)), [("EURUSD", vec!["M1"])]);
        let other_features = DataSchema { features: meaning("body", "robust", "cumulative").features, ..with(0.25) };
        assert_eq!(ours.other_scalers(&other_features), []);
        assert_eq!(ours.difference(&with(0.25)).as_deref(), Some("a pip was 0.5 in training and is 0.25 here"));
        let other_instrument = DataSchema { instruments: vec!["USDJPY".to_owned()], ..with(0.25) };
        assert_eq!(ours.difference(&other_instrument), None);
        // A plan of before.
        let before = meaning("range", "robust", "cumulative");
        assert_eq!((before.other_scalers(&ours).len(), before.difference(&ours)), (0, None));
    }

    /// Errors on bars by another clock, or of files of their own, were told without a word.
    #[test]
    fn other_rules_of_bars_are_named() {
        let with = |recipe: &str, base: &str| {
            let account = format!(r#"{{"recipe": [{recipe}]}}"#);
            DataSchema { bars: rules_in_account(&account, Some(base.to_owned())), ..DataSchema::default() }
        };
        let ours = with(r#""--prices=auto", "--bins=new-york+7", "--", "a.csv""#, "M1");
        assert_eq!(ours.other_bars(&ours), [""; 0]);
        assert!(!ours.has_own_bars() && !DataSchema::default().has_own_bars());
        let theirs = with(r#""--prices=quoted", "--own-bars=true", "--", "a.csv""#, "M5");
        assert_eq!(
            ours.other_bars(&theirs),
            [
                "bins were new-york+7 in training and are UTC here",
                "longer bars were made of the shortest in training and are those of their own files here",
                "prices were auto in training and are quoted here",
                "shortest bars were M1 in training and are M5 here",
            ]
        );
        assert!(theirs.has_own_bars());
        for unknown in [DataSchema::default(), with("", "M5")] {
            assert_eq!((ours.other_bars(&unknown).len(), unknown.other_bars(&ours).len()), (0, 0));
        }
    }

    #[test]
    fn instruments_that_training_had_none_of_are_named() {
        let with = |names: &[&str]| DataSchema {
            instruments: names.iter().map(|&name| name.to_owned()).collect(),
            ..DataSchema::default()
        };
        for (ours, theirs, others) in [
            (with(&["A", "B"]), with(&["B"]), vec![]),
            (with(&["A"]), with(&["B", "A", "C"]), vec!["B", "C"]),
            (with(&[]), with(&["B"]), vec![]),
            (with(&["A"]), with(&[]), vec![]),
        ] {
            assert_eq!(ours.other_instruments(&theirs), others);
        }
    }

    #[test]
    fn the_first_difference_is_named_and_silence_is_none() {
        let ours = meaning("range", "robust", "cumulative");
        for (theirs, difference) in [
            (ours.clone(), None),
            (DataSchema::default(), None),
            (meaning("rsi_14", "none", "increment"), Some("feature 1 of M1 was range in training and is rsi_14 here")),
            (meaning("range", "none", "cumulative"), Some("the scaling of M1 was robust in training and is none here")),
            (
                meaning("range", "robust", "increment"),
                Some("the targets were cumulative in training and are increment here"),
            ),
        ] {
            assert_eq!(ours.difference(&theirs).as_deref(), difference);
        }
    }
}
