/// A name that is not one of the known ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{name}`: expected {expected}")]
#[non_exhaustive]
pub struct UnknownName {
    /// Kind of the named thing, such as `timeframe`.
    pub kind: &'static str,
    /// The name as given.
    pub name: String,
    /// The known names, for people.
    pub expected: String,
}

/// Writes a type by its `name`, and reads it back from the names of these variants.
macro_rules! named {
    ($type:ident, $kind:literal, $expected:literal, [$($variant:ident),+]) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::unknown_name::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                let mut all = [$($type::$variant),+].into_iter();
                let unknown = || $crate::unknown_name::UnknownName::new($kind, name, $expected);
                all.find(|known| known.name() == name).ok_or_else(unknown)
            }
        }
    };
}

pub(crate) use named;

impl UnknownName {
    pub(crate) fn new(kind: &'static str, name: &str, expected: impl Into<String>) -> Self {
        UnknownName { kind, name: name.to_owned(), expected: expected.into() }
    }
}
