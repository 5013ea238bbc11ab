//! Names and kinds of the numbers of a data file. A model is used on data with the same schema.

use std::collections::BTreeMap;

use megabatch_chunk_io::{AttributeValue, SeriesFile, Source};
use serde::{Deserialize, Serialize};

use crate::error::Result;

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
        features.chain(scaling).chain(targets).next()
    }
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
