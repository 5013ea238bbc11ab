//! Sizes of the graphs of a file.

use megabatch_graph_cache::GraphFile;
use serde_json::{Value, json};

use crate::text::number::grouped;
use crate::text::plural;

/// Least, mean and largest.
pub(super) struct Range {
    min: usize,
    mean: f64,
    pub(super) max: usize,
}

impl Range {
    fn from_values(values: impl Iterator<Item = usize> + Clone) -> Self {
        let (count, sum) = (values.clone().count(), values.clone().sum::<usize>());
        Range {
            min: values.clone().min().unwrap_or(0),
            mean: sum as f64 / count.max(1) as f64,
            max: values.max().unwrap_or(0),
        }
    }

    /// `2 to 9 nodes, 4.5 on average`.
    pub(super) fn words(&self, what: &str) -> String {
        match self.min == self.max {
            true => plural(self.min, what),
            false => {
                let (min, max) = (grouped(self.min as u64), grouped(self.max as u64));
                format!("{min} to {max} {what}s, {:.1} on average", self.mean)
            }
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({ "min": self.min, "mean": self.mean, "max": self.max })
    }
}

/// Numbers of nodes and of edges of a file's graphs.
pub(super) fn sizes(file: &GraphFile) -> (Range, Range) {
    let sizes = (0..file.len()).map(|index| file.size(index));
    (Range::from_values(sizes.clone().map(|size| size.0)), Range::from_values(sizes.map(|size| size.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_in_one_number_and_in_two() {
        let words = |values: &[usize]| Range::from_values(values.iter().copied()).words("node");
        assert_eq!(words(&[2, 9]), "2 to 9 nodes, 5.5 on average");
        assert_eq!(words(&[1_000, 20_000]), "1,000 to 20,000 nodes, 10500.0 on average");
        assert_eq!((words(&[20_000]), words(&[])), ("20,000 nodes".to_owned(), "0 nodes".to_owned()));
    }
}
