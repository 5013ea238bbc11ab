//! Matrices of named columns.

/// Values [rows, columns], row-major, with the names of their columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NamedColumns {
    pub(super) names: Vec<String>,
    pub(super) values: Vec<f32>,
}

impl NamedColumns {
    pub(super) fn width(&self) -> usize {
        self.names.len()
    }

    /// The same with rows of NaN at `places` of the result, which ascend.
    pub(super) fn with_unknown_rows(self, places: &[usize]) -> NamedColumns {
        let width = self.width();
        let mut known = self.values.chunks_exact(width.max(1));
        let rows = self.values.len() / width.max(1) + places.len();
        let unknown = vec![f32::NAN; width];
        let row = |place| match places.binary_search(&place) {
            Ok(_) => unknown.as_slice(),
            Err(_) => known.next().expect("as many as are not unknown"),
        };
        let values = (0..rows).flat_map(row).copied().collect();
        NamedColumns { names: self.names, values }
    }

    /// These columns and then `others` of the same `rows`.
    pub(super) fn beside(self, others: NamedColumns, rows: usize) -> NamedColumns {
        if self.names.is_empty() || others.names.is_empty() {
            return if self.names.is_empty() { others } else { self };
        }
        let (left, right) = (self.width(), others.width());
        let mut values = Vec::with_capacity(rows * (left + right));
        for (own, other) in self.values.chunks_exact(left).zip(others.values.chunks_exact(right)) {
            values.extend_from_slice(own);
            values.extend_from_slice(other);
        }
        NamedColumns { names: self.names.into_iter().chain(others.names).collect(), values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_joined() {
        let columns = |names: &[&str], values: &[f32]| NamedColumns {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            values: values.to_vec(),
        };
        let (one, two) = (columns(&["a"], &[1.0, 2.0]), columns(&["b", "c"], &[3.0, 4.0, 5.0, 6.0]));
        let both = columns(&["a", "b", "c"], &[1.0, 3.0, 4.0, 2.0, 5.0, 6.0]);
        assert_eq!(one.clone().beside(two, 2), both);
        assert_eq!(NamedColumns::default().beside(one.clone(), 2), one);
        assert_eq!(one.clone().beside(NamedColumns::default(), 2), one);
    }
}
