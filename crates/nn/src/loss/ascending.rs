use std::fmt;

use serde::{Deserialize, Serialize};

/// One to sixteen finite numbers, each larger than the one before.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Vec<f64>")]
pub struct Ascending {
    len: usize,
    /// Zero from `len` on.
    numbers: [f64; Ascending::MAX],
}

/// Written form: a list, or a single number by itself.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    One(f64),
    Several(Vec<f64>),
}

impl Ascending {
    /// Largest count.
    pub const MAX: usize = 16;

    /// `numbers`; `None` if there are none or too many, or they do not ascend.
    pub fn new(numbers: &[f64]) -> Option<Self> {
        let ascend = numbers.windows(2).all(|pair| pair[0] < pair[1]) && numbers.iter().all(|x| x.is_finite());
        if !ascend || !(1..=Self::MAX).contains(&numbers.len()) {
            return None;
        }
        let mut all = [0.0; Self::MAX];
        all[..numbers.len()].copy_from_slice(numbers);
        Some(Ascending { len: numbers.len(), numbers: all })
    }

    /// A single number.
    ///
    /// # Panics
    /// If it is not finite.
    pub fn one(number: f64) -> Self {
        Ascending::new(&[number]).expect("a finite number")
    }

    /// The numbers.
    pub fn as_slice(&self) -> &[f64] {
        &self.numbers[..self.len]
    }
}

impl TryFrom<Form> for Ascending {
    type Error = String;

    fn try_from(form: Form) -> Result<Self, String> {
        let numbers = match form {
            Form::One(number) => vec![number],
            Form::Several(numbers) => numbers,
        };
        Ascending::new(&numbers).ok_or_else(|| format!("expected 1 to 16 ascending numbers, found {numbers:?}"))
    }
}

impl From<Ascending> for Vec<f64> {
    fn from(numbers: Ascending) -> Self {
        numbers.as_slice().to_vec()
    }
}

impl fmt::Debug for Ascending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// The numbers with commas between them.
impl fmt::Display for Ascending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.as_slice().iter().map(f64::to_string).collect();
        f.write_str(&numbers.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ascend_and_there_are_one_to_sixteen() {
        let many: Vec<f64> = (0..17).map(f64::from).collect();
        for (numbers, expected) in [
            (&[][..], false),
            (&[0.5], true),
            (&[0.1, 0.5], true),
            (&[0.5, 0.5], false),
            (&[0.5, 0.1], false),
            (&[f64::NAN], false),
            (&[0.0, f64::INFINITY], false),
            (&many[..16], true),
            (&many, false),
        ] {
            let made = Ascending::new(numbers);
            assert_eq!(made.is_some(), expected, "{numbers:?}");
            made.iter().for_each(|made| assert_eq!(made.as_slice(), numbers));
        }
    }

    #[test]
    fn they_are_read_as_a_list_or_a_number_and_written_as_a_list() {
        let some = Ascending::new(&[0.1, 0.9]).unwrap();
        assert_eq!(serde_json::to_string(&some).unwrap(), "[0.1,0.9]");
        assert_eq!(serde_json::from_str::<Ascending>("[0.1,0.9]").unwrap(), some);
        assert_eq!(serde_json::from_str::<Ascending>("0.5").unwrap(), Ascending::one(0.5));
        assert!(serde_json::from_str::<Ascending>("[0.9,0.1]").unwrap_err().to_string().contains("[0.9, 0.1]"));
        assert_eq!((some.to_string(), format!("{some:?}")), ("0.1, 0.9".to_owned(), "[0.1, 0.9]".to_owned()));
    }
}
