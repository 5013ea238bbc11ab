//! Sizes of the graphs of a file.

use megabatch_graph_cache::GraphFile;
use serde_json::{Value, json};

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
            false => format!("{} to {} {what}s, {:.1} on average", self.min, self.max, self.mean),
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
