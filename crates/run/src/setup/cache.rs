//! Folder for results that can be computed again, kept from one run to the next.

use std::ffi::OsString;
use std::path::PathBuf;

/// The program's folder below the user's cache folder, by the XDG Base Directory Specification:
/// `XDG_CACHE_HOME`, if it is an absolute path, else `.cache` at home. `None` if neither is set.
pub fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name, below: &str| Some(PathBuf::from(variable(name)?).join(below)).filter(|path| path.is_absolute());
    path("XDG_CACHE_HOME", "megabatch").or_else(|| path("HOME", ".cache/megabatch"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_cache_is_where_the_specification_says() {
        for (xdg, home, expected) in [
            (Some("/x"), Some("/h"), Some("/x/megabatch")),
            (Some("x"), Some("/h"), Some("/h/.cache/megabatch")),
            (Some(""), Some("/h"), Some("/h/.cache/megabatch")),
            (None, Some("/h"), Some("/h/.cache/megabatch")),
            (None, None, None),
            (Some("x"), Some(""), None),
        ] {
            let value = |name: &str| if name == "HOME" { home } else { xdg };
            let found = folder(|name| value(name).map(OsString::from));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{xdg:?} {home:?}");
        }
    }
}
