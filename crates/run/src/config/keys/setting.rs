//! A setting: its key, and the type that its value is read as.

use std::marker::PhantomData;

use megabatch_trainer as trainer;

use super::Condition;
use crate::config::Config;
#[cfg(test)]
use crate::config::value::Value;
use crate::config::value::{Choice, Kind, Read, words};

/// One configuration key.
#[derive(Debug)]
pub(crate) struct Key {
    /// `section.name`.
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    /// The default, written as a user would; empty for a key that has none.
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
    /// Conditions under which it acts, all of them; none for a key that always does.
    pub(crate) conditions: &'static [Condition],
    /// Sets the field, if the value is the field's.
    pub(crate) assign: Option<fn(&Config, &mut trainer::Config)>,
    /// True for a value that the setting can be read from.
    #[cfg(test)]
    pub(crate) is_readable: fn(&Value) -> bool,
}

/// A setting with values of type `T`.
pub(crate) struct Setting<T> {
    pub(crate) key: Key,
    value: PhantomData<fn() -> T>,
}

/// A setting without documentation and conditions, which is no field.
pub(super) const fn setting<T: Read>(path: &'static str, kind: Kind, default: &'static str) -> Setting<T> {
    let key = Key {
        path,
        kind,
        default,
        doc: "",
        conditions: &[],
        assign: None,
        #[cfg(test)]
        is_readable: |value| T::read(value).is_some(),
    };
    Setting { key, value: PhantomData }
}

/// A setting that chooses among the words of `T`.
pub(super) const fn choice<T: Choice + Read>(path: &'static str, default: &'static str) -> Setting<T> {
    setting(path, Kind::Choice { words: words::<T> }, default)
}

/// A setting that chooses among the words of `T`, or leaves the choice to the run.
pub(super) const fn auto_or_choice<T: Choice + Read>(path: &'static str) -> Setting<Option<T>> {
    setting(path, Kind::OrWord { word: "auto", otherwise: &Kind::Choice { words: words::<T> } }, "auto")
}

impl<T> Setting<T> {
    /// The setting with the conditions under which it acts.
    pub(super) const fn only(mut self, conditions: &'static [Condition]) -> Self {
        self.key.conditions = conditions;
        self
    }

    /// The setting as a field, whose value `assign` makes it.
    pub(super) const fn assigned(mut self, assign: fn(&Config, &mut trainer::Config)) -> Self {
        self.key.assign = Some(assign);
        self
    }

    /// The setting with its documentation.
    pub(super) const fn documented(mut self, doc: &'static str) -> Self {
        self.key.doc = doc;
        self
    }

    /// The condition that the setting has one of these values.
    pub(super) const fn is(&'static self, values: &'static [&'static str]) -> Condition {
        Condition::With { key: &self.key, values }
    }

    /// The condition that the setting has another value.
    pub(super) const fn is_not(&'static self, value: &'static str) -> Condition {
        Condition::Without { key: &self.key, value }
    }
}

/// Declares the settings of a section, and lists their keys in `KEYS`. The documentation of each is
/// that of the reference page. `=> FIELD` names the field of the trainer's configuration that has
/// its value.
macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty $(=> $($field:ident).+)? = $setting:expr;)+) => {
        $(
            pub(crate) static $name: Setting<$type> = $setting
                .documented(concat!($($doc),+))
                $(.assigned(|config, training| training.$($field).+ = config.get(&$name)))?;
        )+

        pub(super) static KEYS: &[&Key] = &[$(&$name.key),+];
    };
}
pub(super) use settings;
