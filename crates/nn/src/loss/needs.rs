//! The table of what each loss needs of targets, and the one place that holds targets against it.

use std::fmt;

use super::{Classes, Loss, is_known, is_labelled};
use crate::error::{Error, Result};

/// Distance from 1 that the sum of a row of probabilities may have: that of a row stored in 16
/// bits.
const SUM_TOLERANCE: f64 = 2e-3;

/// Numbers of a row of targets that an error shows.
const SHOWN_MAX: usize = 8;

/// Requirements of a loss on targets that are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetNeeds {
    /// Each target is a number. An infinite one is left to the step that meets it, which names it
    /// as it names other numbers that are not finite.
    Numbers,
    /// Each target names a class.
    Classes(Classes),
    /// Each row of targets is a probability distribution over two classes or more.
    Probabilities,
}

impl Loss {
    /// The requirements on the targets of a sample; one for each group of [`Loss::groups`].
    pub fn needs(self, targets: usize) -> Vec<TargetNeeds> {
        let group_needs = |loss: Loss| match loss {
            Loss::Mse | Loss::Huber { .. } | Loss::Quantile { .. } | Loss::RankPairwise | Loss::RankListwise { .. } => {
                TargetNeeds::Numbers
            }
            Loss::Classes(classes) => TargetNeeds::Classes(classes),
            Loss::CrossEntropy => TargetNeeds::Probabilities,
            Loss::Tasks(_) => unreachable!("a group of targets has one loss"),
        };
        self.groups(targets).into_iter().map(|group| group_needs(group.loss)).collect()
    }

    /// Refuses rows of targets [.., K = `width`] that are known and that the loss has no meaning
    /// for.
    pub fn check_rows(self, targets: &[f32], width: usize) -> Result<()> {
        if self.takes_any_number(width) {
            return Ok(());
        }
        match targets.chunks_exact(width).find_map(|row| self.fault(row)) {
            Some(Fault { found, needs }) => Err(needs.error(String::new(), found)),
            None => Ok(()),
        }
    }

    /// True if no number is a fault among the targets of a sample.
    pub fn takes_any_number(self, targets: usize) -> bool {
        self.needs(targets).iter().all(|&needs| needs == TargetNeeds::Numbers)
    }

    /// The first number of a row of targets `[K]` that the loss has no meaning for.
    pub fn fault(self, row: &[f32]) -> Option<Fault> {
        let groups = self.groups(row.len()).into_iter().zip(self.needs(row.len()));
        groups.filter_map(|(group, needs)| Some(Fault { found: needs.fault(&row[group.targets])?, needs })).next()
    }
}

/// A row of targets that does not meet a requirement.
pub struct Fault {
    pub found: String,
    pub needs: TargetNeeds,
}

impl TargetNeeds {
    /// The error for targets at `place`, such as "graph 3: "; empty for a place that is not known.
    pub fn error(self, place: String, found: String) -> Error {
        let advice = match self {
            TargetNeeds::Numbers => "leave out samples of other targets",
            TargetNeeds::Classes(_) => "set `classes` or `thresholds` for these targets",
            TargetNeeds::Probabilities => {
                "set `classes` where a target is the number of its class, `thresholds` to make classes of numbers, or \
                 `loss`=mse to predict numbers"
            }
        };
        Error::Targets { place, found, expected: self.to_string(), advice }
    }

    /// Fault of a row of targets of one group.
    fn fault(self, row: &[f32]) -> Option<String> {
        let is_fault = |target: f64| match self {
            TargetNeeds::Classes(classes) => classes.index(target).is_none(),
            TargetNeeds::Numbers | TargetNeeds::Probabilities => false,
        };
        if self == TargetNeeds::Probabilities {
            return (is_labelled(row) && !is_distribution(row)).then(|| shown(row));
        }
        let known = row.iter().filter(|target| is_known(**target)).map(|target| f64::from(*target));
        known.into_iter().find(|&target| is_fault(target)).map(|target| format!("a target is {target}"))
    }
}

impl fmt::Display for TargetNeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetNeeds::Numbers => f.write_str("a number"),
            TargetNeeds::Classes(classes) => classes.fmt(f),
            TargetNeeds::Probabilities => {
                f.write_str("the probabilities of two classes or more, each from 0 to 1 and 1 in sum")
            }
        }
    }
}

fn is_distribution(row: &[f32]) -> bool {
    let sum: f64 = row.iter().map(|p| f64::from(*p)).sum();
    let is_probability = |p: &f32| (0.0..=1.0).contains(&f64::from(*p));
    row.len() > 1 && row.iter().all(is_probability) && (sum - 1.0).abs() <= SUM_TOLERANCE
}

fn shown(row: &[f32]) -> String {
    let numbers: Vec<String> = row.iter().take(SHOWN_MAX).map(|target| f64::from(*target).to_string()).collect();
    let rest = if row.len() > SHOWN_MAX { format!(" and {} more", row.len() - SHOWN_MAX) } else { String::new() };
    format!("targets are {}{rest}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_has_its_requirement() {
        let nan = f32::NAN;
        let labels = Loss::Classes(Classes::Labels(3));
        for (loss, row, fault) in [
            (Loss::Mse, &[1.0, -9.5, nan][..], None),
            (labels, &[0.0, 2.0, nan], None),
            (labels, &[0.0, 3.0], Some("a target is 3")),
            (Loss::CrossEntropy, &[0.0, 1.0], None),
            (Loss::CrossEntropy, &[0.25, 0.25, 0.5], None),
            // A row with an unknown probability is not known.
            (Loss::CrossEntropy, &[nan, 7.0], None),
            // Energies: one column had a loss of 0 and an accuracy of 100 %, two a loss of -3,409.
            (Loss::CrossEntropy, &[-1406.2], Some("targets are -1406.199951171875")),
            (Loss::CrossEntropy, &[-1406.0, 2.5], Some("targets are -1406, 2.5")),
            (Loss::CrossEntropy, &[1.0], Some("targets are 1")),
            (Loss::CrossEntropy, &[1.5, -0.5], Some("targets are 1.5, -0.5")),
            (Loss::CrossEntropy, &[0.5, 0.25], Some("targets are 0.5, 0.25")),
        ] {
            let found = loss.fault(row).map(|fault| fault.found);
            assert_eq!(found.as_deref(), fault, "{loss:?} of {row:?}");
        }
        assert_eq!(shown(&[0.5f32; 10]), "targets are 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5 and 2 more");
    }
}
