use std::fmt;

/// The first field in which two bars of one time differ.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum BarDifference {
    /// One bar has a spread, and the other has none.
    NoSpread {
        /// The spread of the bar that has one.
        spread: f64,
        /// True if the bar of the file that is named first has it.
        is_first: bool,
    },
    /// Both bars have another number.
    Number {
        /// Name of the field.
        field: &'static str,
        /// The bar of the file that is named later.
        found: f64,
        /// The bar of the file that is named first.
        first: f64,
    },
    /// A further column has another value.
    Column,
}

impl fmt::Display for BarDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BarDifference::NoSpread { spread, is_first: true } => {
                write!(f, "it has no spread, and the other has the spread {spread}")
            }
            BarDifference::NoSpread { spread, is_first: false } => {
                write!(f, "it has the spread {spread}, and the other has none")
            }
            BarDifference::Number { field, found, first } => {
                write!(f, "its {field} is {found}, and the other's {first}")
            }
            BarDifference::Column => f.write_str("a further column has another value"),
        }
    }
}
