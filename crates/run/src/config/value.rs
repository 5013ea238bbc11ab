//! The values that configuration keys take, read from the text a user wrote in a file, a variable
//! or an argument.

use std::path::PathBuf;

use megabatch_nn::loss::Ascending;
use serde_json::json;

use super::tasks::{TaskList, parse_ascending, parse_count, parse_numbers};
use crate::text::Duration;

/// Kinds of values.
#[derive(Debug)]
pub(crate) enum Kind {
    Bool,
    /// A whole number from `min` to `max`.
    Count {
        min: u64,
        max: u64,
    },
    /// A finite number greater than `above`.
    Number {
        above: f64,
    },
    /// A number from 0 to below 1.
    Probability,
    Text,
    /// One of some words.
    Choice {
        words: fn() -> Vec<&'static str>,
    },
    /// Three shares that sum to one, the first above zero.
    Fractions,
    /// Shares above 0 and below 1, in ascending order; one may be written by itself.
    Levels,
    /// Numbers in ascending order; one may be written by itself.
    Ascending,
    /// Groups of targets with a loss each, or `none`.
    Tasks,
    /// A whole number of days, hours, minutes or seconds, such as `8d`.
    Duration,
    /// A certain word, or another kind.
    OrWord {
        word: &'static str,
        otherwise: &'static Kind,
    },
}

/// A value that its key has accepted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Count(u64),
    Number(f64),
    Text(String),
    /// A word of a choice, or in the place of another value.
    Word(&'static str),
    Fractions([f64; 3]),
    /// In ascending order, as many as the trainer takes.
    Numbers(Ascending),
    DurationNs(i64),
    Tasks(TaskList),
}

/// Largest count of what has no natural limit.
pub(crate) const COUNT_MAX: u64 = 1_000_000_000;

impl Kind {
    /// The value that `text` stands for, or what was expected instead.
    pub(crate) fn parse(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        if let (Kind::Tasks, true) = (self, text != "none") {
            return TaskList::parse(text).map(Value::Tasks);
        }
        self.parse_trimmed(text).ok_or_else(|| self.expected())
    }

    fn parse_trimmed(&self, text: &str) -> Option<Value> {
        match self {
            Kind::Bool => match text {
                "true" | "yes" | "on" => Some(Value::Bool(true)),
                "false" | "no" | "off" => Some(Value::Bool(false)),
                _ => None,
            },
            Kind::Count { min, max } => {
                parse_count(text).filter(|count| (min..=max).contains(&count)).map(Value::Count)
            }
            Kind::Number { above } => text.parse().ok().filter(|x: &f64| x.is_finite() && x > above).map(Value::Number),
            Kind::Probability => text.parse().ok().filter(|x| (0.0..1.0).contains(x)).map(Value::Number),
            Kind::Text => (!text.is_empty()).then(|| Value::Text(text.to_owned())),
            Kind::Choice { words } => words().into_iter().find(|word| *word == text).map(Value::Word),
            Kind::Fractions => parse_fractions(text).map(Value::Fractions),
            Kind::Levels => {
                let levels = parse_ascending(text)?;
                // As the trainer has them, whose gradients are in single precision.
                let in_range = levels.as_slice().iter().all(|&level| level as f32 > 0.0 && (level as f32) < 1.0);
                in_range.then_some(Value::Numbers(levels))
            }
            Kind::Ascending => parse_ascending(text).map(Value::Numbers),
            Kind::Tasks => Some(Value::Word("none")),
            Kind::Duration => text.parse::<Duration>().ok().map(|duration| Value::DurationNs(duration.ns)),
            Kind::OrWord { word, .. } if *word == text => Some(Value::Word(word)),
            Kind::OrWord { otherwise, .. } => otherwise.parse_trimmed(text),
        }
    }

    /// Allowed values in a table: [`Kind::expected`], where a sign says as much as words.
    pub(crate) fn in_table(&self) -> String {
        match self {
            Kind::Count { min, max: COUNT_MAX.. } => format!("whole number ≥ {min}"),
            Kind::Count { min, max } => format!("whole number, {min} to {max}"),
            Kind::Number { above } if *above < 0.0 => "number ≥ 0".to_owned(),
            Kind::Number { above } => format!("number > {above}"),
            Kind::Probability => "number in [0, 1)".to_owned(),
            Kind::Bool => "true, false".to_owned(),
            Kind::OrWord { word, otherwise } if !matches!(otherwise, Kind::Choice { .. }) => {
                format!("{word}, or {}", otherwise.in_table())
            }
            _ => self.expected(),
        }
    }

    /// Description of allowed values, for error messages and the template.
    pub(crate) fn expected(&self) -> String {
        match self {
            Kind::Bool => "true or false".to_owned(),
            Kind::Count { min, max: u64::MAX } => format!("a whole number, at least {min}"),
            Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Number { above } if *above < 0.0 => "a number, 0 or greater".to_owned(),
            Kind::Number { above } => format!("a number greater than {above}"),
            Kind::Probability => "a number from 0 to below 1".to_owned(),
            Kind::Text => "text".to_owned(),
            Kind::Choice { words } => words().join(", "),
            Kind::Fractions => {
                "three shares that sum to 1, the first greater than 0, such as [0.7, 0.15, 0.15]".to_owned()
            }
            Kind::Levels => format!(
                "a number above 0 and below 1, or up to {} in ascending order, such as [0.1, 0.5, 0.9]",
                Ascending::MAX
            ),
            Kind::Ascending => {
                format!("a number, or up to {} in ascending order, such as [-5, 5]", Ascending::MAX)
            }
            Kind::Tasks => TaskList::EXPECTED.to_owned(),
            Kind::Duration => Duration::EXPECTED.to_owned(),
            Kind::OrWord { word, otherwise: Kind::Choice { words } } => format!("{word}, {}", words().join(", ")),
            Kind::OrWord { word, otherwise } => format!("{word}, or {}", otherwise.expected()),
        }
    }

    /// Allowed values as a JSON Schema. Text without a pattern may be a path.
    pub(crate) fn schema(&self) -> serde_json::Value {
        match self {
            Kind::Bool => json!({ "type": "boolean" }),
            Kind::Count { min, max: u64::MAX } => json!({ "type": "integer", "minimum": min }),
            Kind::Count { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Kind::Number { above } if *above < 0.0 => json!({ "type": "number", "minimum": 0 }),
            Kind::Number { above } => json!({ "type": "number", "exclusiveMinimum": above }),
            Kind::Probability => json!({ "type": "number", "minimum": 0, "exclusiveMaximum": 1 }),
            Kind::Text => json!({ "type": "string" }),
            Kind::Choice { words } => json!({ "enum": words() }),
            Kind::Fractions => json!({ "type": "array", "items": { "type": "number" }, "minItems": 3, "maxItems": 3 }),
            Kind::Levels | Kind::Ascending => {
                json!({ "anyOf": [{ "type": "number" }, { "type": "array", "items": { "type": "number" } }] })
            }
            Kind::Tasks => {
                json!({ "anyOf": [{ "enum": ["none"] }, { "type": "array", "items": { "type": "object" } }] })
            }
            Kind::Duration => json!({ "type": "string", "pattern": "^[0-9]+[dhms]$" }),
            Kind::OrWord { word, otherwise } => json!({ "anyOf": [{ "enum": [word] }, otherwise.schema()] }),
        }
    }
}

/// A type with a word for each of its values.
pub(crate) trait Choice: Copy + 'static {
    /// Words and what they mean. Several may mean the same.
    const CHOICES: &'static [(&'static str, Self)];

    /// The choice of a word.
    fn find(value: &Value) -> Option<Self> {
        let Value::Word(word) = value else { return None };
        Self::CHOICES.iter().find(|(known, _)| known == word).map(|&(_, choice)| choice)
    }
}

/// The words of a choice.
pub(crate) fn words<T: Choice>() -> Vec<&'static str> {
    T::CHOICES.iter().map(|&(word, _)| word).collect()
}

/// A type that a setting is read as.
pub(crate) trait Read: Sized {
    /// Reads `value`; `None` if it is of another kind.
    fn read(value: &Value) -> Option<Self>;

    /// The meaning of a setting that is not given and has no default.
    fn absent() -> Option<Self> {
        None
    }
}

macro_rules! read {
    ($($type:ty: $pattern:pat => $result:expr),+ $(,)?) => {
        $(impl Read for $type {
            fn read(value: &Value) -> Option<Self> {
                match value {
                    $pattern => Some($result),
                    _ => None,
                }
            }
        })+
    };
}

read!(
    bool: Value::Bool(is_set) => *is_set,
    u64: Value::Count(count) => *count,
    u32: Value::Count(count) => u32::try_from(*count).unwrap_or(u32::MAX),
    usize: Value::Count(count) => usize::try_from(*count).unwrap_or(usize::MAX),
    f64: Value::Number(number) => *number,
    f32: Value::Number(number) => *number as f32,
    String: Value::Text(text) => text.clone(),
    PathBuf: Value::Text(text) => PathBuf::from(text),
    [f64; 3]: Value::Fractions(shares) => *shares,
    Ascending: Value::Numbers(numbers) => *numbers,
    Duration: Value::DurationNs(ns) => Duration { ns: *ns },
    TaskList: Value::Tasks(tasks) => tasks.clone(),
);

/// `None` for a word that is no choice of `T`, such as `auto` or `none`.
impl<T: Read> Read for Option<T> {
    fn read(value: &Value) -> Option<Self> {
        match (T::read(value), value) {
            (None, Value::Word(_)) => Some(None),
            (read, _) => read.map(Some),
        }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

fn parse_fractions(text: &str) -> Option<[f64; 3]> {
    let shares: [f64; 3] = parse_numbers(text)?.try_into().ok()?;
    let in_range = shares.iter().all(|share| (0.0..=1.0).contains(share));
    (in_range && shares[0] > 0.0 && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-9).then_some(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_say_in_signs_what_errors_say_in_words() {
        let table = |kind: &Kind| kind.in_table();
        assert_eq!(table(&Kind::Count { min: 1, max: COUNT_MAX }), "whole number ≥ 1");
        assert_eq!(table(&Kind::Count { min: 0, max: u64::MAX }), "whole number ≥ 0");
        let width = Kind::OrWord { word: "auto", otherwise: &Kind::Count { min: 1, max: 64 } };
        assert_eq!(table(&width), "auto, or whole number, 1 to 64");
        assert_eq!(table(&Kind::Number { above: 0.0 }), "number > 0");
        assert_eq!(table(&Kind::Number { above: -f64::MIN_POSITIVE }), "number ≥ 0");
        assert_eq!(table(&Kind::Fractions), Kind::Fractions.expected());
    }

    #[test]
    fn a_word_in_the_place_of_a_value_is_none() {
        assert_eq!(Option::<usize>::read(&Value::Word("auto")), Some(None));
        assert_eq!(Option::<usize>::read(&Value::Count(3)), Some(Some(3)));
        assert_eq!(Option::<usize>::read(&Value::Bool(true)), None);
        assert_eq!((usize::read(&Value::Word("auto")), usize::absent()), (None, None));
    }

    #[test]
    fn values_are_read_as_users_write_them() {
        let count = Kind::Count { min: 1, max: 9 };
        let or_word = Kind::OrWord { word: "batch", otherwise: &Kind::Count { min: 1, max: u64::MAX } };
        let choice = Kind::Choice { words: || vec!["adam", "sgd"] };
        let cases: &[(&Kind, &str, Option<Value>)] = &[
            (&Kind::Bool, " true ", Some(Value::Bool(true))),
            (&Kind::Bool, "True?", None),
            (&count, "1", Some(Value::Count(1))),
            (&count, "9", Some(Value::Count(9))),
            (&count, "10", None),
            (&count, "0", None),
            (&count, "-1", None),
            (&count, "2.0", Some(Value::Count(2))),
            (&count, "2.5", None),
            (&count, "1e1", None),
            (&count, "nan", None),
            (&Kind::Count { min: 0, max: u64::MAX }, "1e3", Some(Value::Count(1000))),
            (&Kind::Count { min: 0, max: u64::MAX }, "1e20", None),
            (&Kind::Count { min: 0, max: u64::MAX }, "18446744073709551615", Some(Value::Count(u64::MAX))),
            (&Kind::Number { above: 0.0 }, "1e-3", Some(Value::Number(0.001))),
            (&Kind::Number { above: 0.0 }, "0", None),
            (&Kind::Number { above: -f64::MIN_POSITIVE }, "0", Some(Value::Number(0.0))),
            (&Kind::Number { above: 0.0 }, "nan", None),
            (&Kind::Number { above: 0.0 }, "inf", None),
            (&Kind::Probability, "0", Some(Value::Number(0.0))),
            (&Kind::Probability, "0.1", Some(Value::Number(0.1))),
            (&Kind::Probability, "1", None),
            (&Kind::Probability, "-0.1", None),
            (&Kind::Probability, "nan", None),
            (&Kind::Text, "", None),
            (&choice, "sgd", Some(Value::Word("sgd"))),
            (&choice, "SGD", None),
            (&Kind::Fractions, "[0.7, 0.15, 0.15]", Some(Value::Fractions([0.7, 0.15, 0.15]))),
            (&Kind::Fractions, "1,0,0", Some(Value::Fractions([1.0, 0.0, 0.0]))),
            (&Kind::Fractions, "0,1,0", None),
            (&Kind::Fractions, "0.7,0.2", None),
            (&Kind::Fractions, "0.7,0.2,0.2", None),
            (&Kind::Levels, "0.5", Some(Value::Numbers(Ascending::one(0.5)))),
            (&Kind::Levels, "[0.1, 0.9]", Ascending::new(&[0.1, 0.9]).map(Value::Numbers)),
            (&Kind::Levels, "0.9, 0.1", None),
            (&Kind::Levels, "[0, 0.5]", None),
            (&Kind::Levels, "0.99999999999", None),
            (&Kind::Levels, "[]", None),
            (&Kind::Ascending, "[-5, 5]", Ascending::new(&[-5.0, 5.0]).map(Value::Numbers)),
            (&Kind::Ascending, "0", Some(Value::Numbers(Ascending::one(0.0)))),
            (&Kind::Ascending, "[5, -5]", None),
            (&Kind::Ascending, "[0, inf]", None),
            (&Kind::Duration, "8d", Some(Value::DurationNs(691_200_000_000_000))),
            (&Kind::Duration, "8", None),
            (&or_word, "batch", Some(Value::Word("batch"))),
            (&or_word, "8", Some(Value::Count(8))),
            (&or_word, "0", None),
        ];
        for (kind, text, expected) in cases {
            assert_eq!(kind.parse(text).ok(), *expected, "{text:?} as {}", kind.expected());
        }
    }
}
