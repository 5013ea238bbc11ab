//! Labels as one-hot columns.

use crate::error::Result;
use crate::import::text::Text;

/// Most distinct labels: more of them are numbers or names, and their one-hot columns would be much
/// larger than the file.
const CLASSES_MAX: usize = 2048;

/// The distinct labels of a list in order, and the place of each label among them.
pub(super) struct LabelClasses<T> {
    pub(super) distinct: Vec<T>,
    pub(super) places: Vec<usize>,
}

impl<T: Ord + Clone> LabelClasses<T> {
    pub(super) fn new(text: &Text, labels: &[T]) -> Result<Self> {
        let mut distinct = labels.to_vec();
        distinct.sort();
        distinct.dedup();
        if distinct.len() > CLASSES_MAX {
            return Err(text.contradiction(
                format!("{} different labels", distinct.len()),
                format!("at most {CLASSES_MAX}; numbers are attributes or targets, not labels"),
            ));
        }
        let place = |label| distinct.binary_search(label).expect("every label is among the distinct ones");
        let places = labels.iter().map(place).collect();
        Ok(LabelClasses { distinct, places })
    }

    /// One row a label: 1 in the column of its class, 0 elsewhere.
    pub(super) fn one_hot(&self) -> Vec<f32> {
        let width = self.distinct.len();
        let mut values = vec![0.0; self.places.len() * width];
        for (row, place) in self.places.iter().enumerate() {
            values[row * width + place] = 1.0;
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_columns_in_order() {
        let text = Text::new("labels", Vec::new()).unwrap();
        let classes = LabelClasses::new(&text, &[3, -1, 3]).unwrap();
        assert_eq!((classes.one_hot(), classes.distinct), (vec![0.0, 1.0, 1.0, 0.0, 0.0, 1.0], vec![-1, 3]));
        let many: Vec<usize> = (0..=CLASSES_MAX).collect();
        assert!(LabelClasses::new(&text, &many).err().unwrap().to_string().contains("2049 different labels"));
        assert!(LabelClasses::new(&text, &many[1..]).is_ok());
    }
}
