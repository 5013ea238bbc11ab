use std::fmt;

use serde::{Deserialize, Serialize};

use super::Ascending;
use crate::error::{Error, Result};

/// Naming of one of C classes by a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Classes {
    /// The target is its class: a whole number from 0 to C - 1, of so many.
    Labels(usize),
    /// A target's class is the number of these thresholds, in the unit of the targets, that it is
    /// above: 0 up to the first one.
    Thresholds(Ascending),
}

impl Classes {
    /// The most classes that there can be.
    pub const MAX: usize = 1024;

    /// C.
    pub fn count(self) -> usize {
        match self {
            Classes::Labels(count) => count,
            Classes::Thresholds(thresholds) => thresholds.as_slice().len() + 1,
        }
    }

    /// The class of a target; `None` for a number that names none.
    pub fn index(self, target: f64) -> Option<usize> {
        match self {
            Classes::Labels(count) => {
                let is_label = target >= 0.0 && target < count as f64 && target.fract() == 0.0;
                is_label.then_some(target as usize)
            }
            Classes::Thresholds(thresholds) => {
                target.is_finite().then(|| thresholds.as_slice().partition_point(|&threshold| threshold < target))
            }
        }
    }

    /// Refuses fewer than two classes, or more than there may be.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn check(self) -> Result<()> {
        match self {
            Classes::Labels(count) if !(2..=Self::MAX).contains(&count) => {
                Err(Error::setting("classes", &count, "2 to 1024 classes"))
            }
            _ => Ok(()),
        }
    }
}

/// The classes, for an error about a target that names none.
impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Classes::Labels(count) => write!(f, "a whole number from 0 to {}, the last class", count - 1),
            Classes::Thresholds(thresholds) => write!(f, "a finite number, to be held against {thresholds}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_its_class() {
        let thresholds = Classes::Thresholds(Ascending::new(&[-1.0, 1.0]).unwrap());
        for (classes, target, expected) in [
            (thresholds, -9.0, Some(0)),
            (thresholds, -1.0, Some(0)),
            (thresholds, -0.5, Some(1)),
            (thresholds, 1.0, Some(1)),
            (thresholds, 1.5, Some(2)),
            (thresholds, f64::NAN, None),
            (thresholds, f64::INFINITY, None),
            (Classes::Labels(3), 0.0, Some(0)),
            (Classes::Labels(3), 2.0, Some(2)),
            (Classes::Labels(3), 3.0, None),
            (Classes::Labels(3), -1.0, None),
            (Classes::Labels(3), 0.5, None),
            (Classes::Labels(3), f64::NAN, None),
        ] {
            assert_eq!(classes.index(target), expected, "{target} in {classes:?}");
        }
        assert_eq!((thresholds.count(), Classes::Labels(7).count()), (3, 7));
    }

    #[test]
    fn a_single_class_is_refused() {
        for count in [0, 1, 1025] {
            let message = Classes::Labels(count).check().unwrap_err().to_string();
            assert!(message.starts_with("`classes` is "), "{message}");
        }
        Classes::Labels(2).check().unwrap();
        Classes::Thresholds(Ascending::one(0.0)).check().unwrap();
    }
}
