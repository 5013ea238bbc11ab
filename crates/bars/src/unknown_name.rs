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

impl UnknownName {
    pub(crate) fn new(kind: &'static str, name: &str, expected: impl Into<String>) -> Self {
        UnknownName { kind, name: name.to_owned(), expected: expected.into() }
    }
}
