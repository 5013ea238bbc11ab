//! Random splits of graphs, which have no order in time.

use megabatch_order::Order;
use megabatch_trainer::{SampleRanges, Split};

use crate::error::{Error, Result};

/// The division is the same for every run, whatever its seed, so that runs can be compared.
const SEED: u64 = 0;

/// Cross-validation: part `fold` is the test, the next one is validation, the others are for
/// training.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folds {
    pub(super) folds: usize,
    pub(super) fold: usize,
}

impl Folds {
    /// Divides units of these `classes`, each class as evenly as can be.
    ///
    /// # Errors
    /// A usage failure for a fold that does not exist, or more folds than units.
    pub(super) fn split(self, classes: &[usize]) -> Result<Split> {
        let Folds { folds, fold } = self;
        if fold >= folds || folds > classes.len() {
            let reason = if fold >= folds { "folds count from 1" } else { "a fold needs a graph at least" };
            let (graphs, number) = (classes.len(), fold + 1);
            return Err(Error::usage(format!(
                "data.fold_number={number} of data.folds={folds} over {graphs} graphs: {reason}"
            )));
        }
        let mut dealt = shuffled(classes.len())?;
        dealt.sort_by_key(|&unit| classes[unit]);
        let [mut train, mut validation, mut test] = [(); 3].map(|()| Vec::new());
        for (card, unit) in dealt.into_iter().enumerate() {
            match (card % folds + folds - fold) % folds {
                0 => test.push(unit),
                1 => validation.push(unit),
                _ => train.push(unit),
            }
        }
        Ok(split_of([train, validation, test]))
    }
}

/// Divides `units` by fractions for training, validation and test.
///
/// # Errors
/// A usage failure where a part that should have units has none.
pub(super) fn split_by_chance(units: usize, fractions: [f64; 3]) -> Result<Split> {
    let all = shuffled(units)?;
    let train = (units as f64 * fractions[0]).round() as usize;
    let validation = (units as f64 * fractions[1]).round() as usize;
    let ends = [train.min(units), (train + validation).min(units)];
    let parts = [&all[..ends[0]], &all[ends[0]..ends[1]], &all[ends[1]..]];
    for ((part, fraction), name) in parts.iter().zip(fractions).zip(["training", "validation", "test"]) {
        if fraction > 0.0 && part.is_empty() {
            return Err(Error::usage(format!("data.split: {fraction} of {units} graphs leaves none for {name}")));
        }
    }
    Ok(split_of(parts.map(<[usize]>::to_vec)))
}

fn shuffled(units: usize) -> Result<Vec<usize>> {
    let epoch = Order::new(units, 1, SEED)?.epoch(0);
    Ok((0..units).map(|position| epoch.sample(position)).collect())
}

/// Training, validation and test, each ascending.
fn split_of(parts: [Vec<usize>; 3]) -> Split {
    let [train, validation, test] = parts.map(|mut part| {
        part.sort_unstable();
        SampleRanges::from_iter(part)
    });
    Split { train, validation, test, ..Split::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_tested_once_and_validated_once_with_its_class_dealt_evenly() {
        let classes: Vec<usize> = (0..23).map(|unit| usize::from(unit % 3 == 0)).collect();
        let (mut tested, mut validated) = (Vec::new(), Vec::new());
        for fold in 0..5 {
            let Split { train, validation, test, .. } = Folds { folds: 5, fold }.split(&classes).unwrap();
            assert_eq!(train.len() + validation.len() + test.len(), 23);
            let class_one = test.iter().filter(|&unit| classes[unit] == 1).count();
            assert!((1..=2).contains(&class_one), "{test:?}");
            tested.extend(test.iter());
            validated.extend(validation.iter());
        }
        for mut units in [tested, validated] {
            units.sort_unstable();
            assert_eq!(units, (0..23).collect::<Vec<_>>());
        }
        let error = Folds { folds: 5, fold: 5 }.split(&classes).unwrap_err().to_string();
        assert!(error.contains("data.fold_number=6 of data.folds=5 over 23 graphs: folds count from 1"), "{error}");
    }

    #[test]
    fn fractions_are_of_the_whole() {
        let Split { train, validation, test, .. } = split_by_chance(10, [0.8, 0.1, 0.1]).unwrap();
        let mut all: Vec<usize> = [&train, &validation, &test].into_iter().flat_map(SampleRanges::iter).collect();
        all.sort_unstable();
        assert_eq!((train.len(), all), (8, (0..10).collect()));
        assert_ne!(train, SampleRanges::from(0..8));
        assert!(split_by_chance(2, [0.5, 0.25, 0.25]).unwrap_err().to_string().contains("leaves none for test"));
    }
}
