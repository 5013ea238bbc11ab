//! Requirements of a package on another: `torch>=2.0,<2.5; platform_machine == "x86_64"`.

use serde::Serialize;

use crate::version::Version;

/// A package and its admitted versions.
#[derive(Clone, Debug, Serialize)]
pub struct PackageRequirement {
    /// The package's name in small letters.
    pub name: String,
    /// The versions, as they were written, such as `>=2.0,<2.5`.
    pub versions: String,
    /// Environment marker, as it was written; empty for always.
    pub marker: String,
}

impl PackageRequirement {
    /// Reads the text of a `Requires-Dist`; `None` where it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (asked, marker) = text.split_once(';').unwrap_or((text, ""));
        let end = asked.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).unwrap_or(asked.len());
        let (name, rest) = asked.split_at(end);
        let rest = rest.trim_start();
        let versions = if rest.starts_with('[') { rest.split_once(']')?.1 } else { rest };
        let versions: String = versions.chars().filter(|c| !"() ".contains(*c)).collect();
        (!name.is_empty()).then(|| PackageRequirement {
            name: normal(name),
            versions,
            marker: marker.trim().to_owned(),
        })
    }

    /// True if it applies to a machine of `architecture`, as far as its marker is understood;
    /// requirements of extras do not.
    pub fn applies(&self, architecture: &str) -> bool {
        let marker = self.marker.replace('\'', "\"");
        let names = |machine: &str| marker.contains(&format!("platform_machine == \"{machine}\""));
        let is_for_others = ["x86_64", "aarch64", "arm64"].iter().any(|machine| names(machine)) && !names(architecture);
        !marker.contains("extra") && !is_for_others
    }

    /// True if `version` is admitted. A condition that is not understood is ignored.
    pub fn admits(&self, version: &Version) -> bool {
        self.versions.split(',').all(|condition| admits(condition, version).unwrap_or(true))
    }

    /// The admitted version, if it is a single one.
    pub fn pinned(&self) -> Option<Version> {
        self.versions.strip_prefix("==").filter(|version| !version.contains(['*', ','])).and_then(Version::parse)
    }
}

fn admits(condition: &str, version: &Version) -> Option<bool> {
    let end = condition.find(|c: char| !"<>=!~".contains(c))?;
    let (operator, wanted) = condition.split_at(end);
    let begins = |len: usize, wanted: &Version| (0..len).all(|k| wanted.number(k) == version.number(k));
    if let Some(prefix) = wanted.strip_suffix(".*") {
        let wanted = Version::parse(prefix)?;
        let begins = begins(wanted.len(), &wanted);
        return match operator {
            "==" => Some(begins),
            "!=" => Some(!begins),
            _ => None,
        };
    }
    let wanted = Version::parse(wanted)?;
    Some(match operator {
        "==" | "===" => *version == wanted,
        "!=" => *version != wanted,
        ">=" => *version >= wanted,
        "<=" => *version <= wanted,
        ">" => *version > wanted,
        "<" => *version < wanted,
        "~=" => *version >= wanted && begins(wanted.len().saturating_sub(1), &wanted),
        _ => return None,
    })
}

/// A package's name as pip compares them.
pub(super) fn normal(name: &str) -> String {
    name.trim().to_ascii_lowercase().replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_those_of_pip() {
        let torch = Version::parse("2.7.1+cu128").unwrap();
        for (text, expected) in [
            ("torch", true),
            ("torch>=2.0", true),
            ("torch (>=1.8,<2.1)", false),
            ("torch==2.7.1", true),
            ("torch==2.7.*", true),
            ("torch==2.6.*", false),
            ("torch!=2.7.*", false),
            ("torch~=2.6", true),
            ("torch~=2.6.0", false),
            ("torch[opt]<2.7.1", false),
            ("torch>2.7", true),
            ("torch @ https://example.org/torch.whl", true),
        ] {
            let asked = PackageRequirement::parse(text).unwrap();
            assert_eq!((asked.name.as_str(), asked.admits(&torch)), ("torch", expected), "{text}");
        }
        assert_eq!(PackageRequirement::parse("torch==2.6.0").unwrap().pinned().unwrap().to_string(), "2.6.0");
        assert!(PackageRequirement::parse("").is_none());
    }

    #[test]
    fn markers_say_where_it_is_asked_for() {
        for (marker, expected) in [
            ("", true),
            ("platform_system == \"Linux\" and platform_machine == \"x86_64\"", false),
            ("platform_machine == 'aarch64'", true),
            ("extra == 'gpu'", false),
        ] {
            let asked = PackageRequirement::parse(&format!("torch>=2; {marker}")).unwrap();
            assert_eq!(asked.applies("aarch64"), expected, "{marker}");
        }
    }
}
