//! Versions of programs and of CUDA, compute capabilities, and the targets of a build.

use std::cmp::Ordering;
use std::fmt;

use serde::{Serialize, Serializer};

/// Numbers separated by dots, such as `570.124.06`, and the build after a `+`, such as `cu128` of
/// `2.7.0+cu128`.
///
/// Versions are compared by their numbers alone, missing ones being 0, so that `2.7` equals
/// `2.7.0+cu128`.
#[derive(Clone, Debug)]
pub struct Version {
    numbers: Vec<u32>,
    text: String,
}

impl Version {
    /// Reads the numbers at the beginning of `text`; `None` where there is none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let public = text.split('+').next().unwrap_or_default();
        let mut numbers = Vec::new();
        for part in public.split('.') {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            let Ok(number) = digits.parse() else { break };
            numbers.push(number);
            if digits.len() < part.len() {
                break;
            }
        }
        (!numbers.is_empty()).then(|| Version { numbers, text: text.to_owned() })
    }

    /// Local version, after the `+`.
    pub fn local(&self) -> Option<&str> {
        self.text.split_once('+').map(|(_, local)| local)
    }

    /// The text before the `+`.
    pub fn public(&self) -> &str {
        self.text.split('+').next().unwrap_or_default()
    }

    /// The number at `index`, counted from 0; 0 where there are fewer.
    pub fn number(&self, index: usize) -> u32 {
        self.numbers.get(index).copied().unwrap_or(0)
    }

    /// The first two numbers, which name a release of PyTorch or of Python.
    pub fn minor(&self) -> (u32, u32) {
        (self.number(0), self.number(1))
    }

    /// Count of the version's numbers.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let len = self.len().max(other.len());
        let numbers = |version: &Self| (0..len).map(|k| version.number(k)).collect::<Vec<_>>();
        numbers(self).cmp(&numbers(other))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A version of CUDA, such as 12.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion {
    /// 12 of 12.8.
    pub major: u32,
    /// 8 of 12.8.
    pub minor: u32,
}

impl CudaVersion {
    /// The version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        CudaVersion { major, minor }
    }

    /// Reads `12.8`, or `12.8.1` as the same.
    pub fn parse(text: &str) -> Option<Self> {
        let version = Version::parse(text)?;
        (version.len() > 1).then(|| CudaVersion::new(version.number(0), version.number(1)))
    }

    /// Reads the tag of a wheel: `cu128`, or `pt27cu128` as extensions have it.
    pub fn from_tag(tag: &str) -> Option<Self> {
        let digits = &tag[tag.rfind("cu")? + 2..];
        let number: u32 = digits.parse().ok().filter(|_| (3..=4).contains(&digits.len()))?;
        Some(CudaVersion::new(number / 10, number % 10))
    }

    /// The tag of wheels for it, such as `cu128`.
    pub fn tag(self) -> String {
        format!("cu{}{}", self.major, self.minor)
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A GPU's compute capability: the version of its instruction set, such as 9.0, which compilers
/// call `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// 9 of 9.0.
    pub major: u32,
    /// 0 of 9.0.
    pub minor: u32,
}

impl Capability {
    /// The capability `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Self {
        Capability { major, minor }
    }

    /// The compilers' name of it, such as `sm_90`.
    pub fn sm(self) -> String {
        format!("sm_{}{}", self.major, self.minor)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

macro_rules! serialized_as_text {
    ($($name:ty),*) => {
        $(impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        })*
    };
}

serialized_as_text!(Version, CudaVersion, Capability, CompiledFor);

/// Compatibility of a build with a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuCompatibility {
    /// Machine code for the GPU.
    Binary,
    /// PTX, which the driver compiles at the first use.
    Ptx,
    /// Neither: `no kernel image is available for execution on the device`.
    Nothing,
}

/// The GPUs that a build was compiled for, as in `torch.cuda.get_arch_list()`: `sm_90` is machine
/// code, `compute_90` PTX.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledFor {
    binaries: Vec<Capability>,
    /// Machine code for one GPU and no later one, such as `sm_90a`.
    exact: Vec<Capability>,
    ptx: Vec<Capability>,
}

impl CompiledFor {
    /// Reads names such as `sm_90`, `sm_90a`, `compute_120` and, as lists for compilers have it,
    /// `9.0` and `12.0+PTX`. Others are ignored.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut compiled = CompiledFor::default();
        for name in names {
            if let Some(number) = name.strip_prefix("compute_") {
                compiled.ptx.extend(capability(number));
            } else if let Some(number) = name.strip_prefix("sm_") {
                let list = if number.ends_with(['a', 'f']) { &mut compiled.exact } else { &mut compiled.binaries };
                list.extend(capability(number.trim_end_matches(['a', 'f'])));
            } else if let Some(version) = CudaVersion::parse(name.trim_end_matches("+PTX")) {
                let capability = Capability::new(version.major, version.minor);
                compiled.binaries.push(capability);
                compiled.ptx.extend(name.ends_with("+PTX").then_some(capability));
            }
        }
        compiled
    }

    /// Compatibility of the build with a GPU of `capability`. Machine code runs on the GPU that it
    /// is for and on later ones of the same major number; PTX on all later ones.
    pub fn fit(&self, capability: Capability) -> GpuCompatibility {
        let runs = |code: &Capability| code.major == capability.major && code.minor <= capability.minor;
        if self.exact.contains(&capability) || self.binaries.iter().any(runs) {
            GpuCompatibility::Binary
        } else if self.ptx.iter().any(|&ptx| ptx <= capability) {
            GpuCompatibility::Ptx
        } else {
            GpuCompatibility::Nothing
        }
    }

    /// True if nothing is known.
    pub fn is_empty(&self) -> bool {
        self.binaries.is_empty() && self.exact.is_empty() && self.ptx.is_empty()
    }
}

impl fmt::Display for CompiledFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binaries = self.binaries.iter().map(ToString::to_string);
        let exact = self.exact.iter().map(|code| format!("{code}a"));
        let ptx = self.ptx.iter().map(|code| format!("{code}+PTX"));
        f.write_str(&binaries.chain(exact).chain(ptx).collect::<Vec<_>>().join(" "))
    }
}

/// `90` as 9.0 and `120` as 12.0.
fn capability(digits: &str) -> Option<Capability> {
    let number: u32 = digits.parse().ok().filter(|_| digits.len() > 1)?;
    Some(Capability::new(number / 10, number % 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        let version = |text: &str| Version::parse(text).unwrap();
        for (less, more) in [("2.7.1", "2.10.0"), ("570.26", "570.124.06"), ("2.7", "2.7.1"), ("2.8.0a0", "2.8.1")] {
            assert!(version(less) < version(more), "{less} < {more}");
        }
        assert_eq!(version("2.7"), version("2.7.0+cu128"));
        assert_eq!(version("2.7.0+cu128").local(), Some("cu128"));
        assert_eq!(version("2.7.0+cu128").public(), "2.7.0");
        for text in ["", "abc", "+cu128", ".1"] {
            assert!(Version::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn tags_are_versions_of_cuda() {
        for (tag, expected) in [
            ("cu128", Some((12, 8))),
            ("pt27cu118", Some((11, 8))),
            ("cu102", Some((10, 2))),
            ("pt212cu130", Some((13, 0))),
            ("cpu", None),
            ("pt27cpu", None),
            ("cu12", None),
            ("", None),
            ("rocm6.3", None),
        ] {
            assert_eq!(CudaVersion::from_tag(tag).map(|cuda| (cuda.major, cuda.minor)), expected, "{tag}");
        }
        assert_eq!(CudaVersion::parse("12.8.1").map(CudaVersion::tag).as_deref(), Some("cu128"));
    }

    #[test]
    fn machine_code_runs_within_a_major_number_and_ptx_on_all_later_ones() {
        let fits =
            |names: &[&str], major, minor| CompiledFor::parse(names.iter().copied()).fit(Capability::new(major, minor));
        assert_eq!(fits(&["sm_80"], 8, 0), GpuCompatibility::Binary);
        assert_eq!(fits(&["sm_80"], 8, 9), GpuCompatibility::Binary);
        assert_eq!(fits(&["sm_86"], 8, 0), GpuCompatibility::Nothing);
        assert_eq!(fits(&["sm_90"], 12, 0), GpuCompatibility::Nothing);
        assert_eq!(fits(&["sm_90", "compute_90"], 12, 0), GpuCompatibility::Ptx);
        assert_eq!(fits(&["sm_90a"], 9, 0), GpuCompatibility::Binary);
        assert_eq!(fits(&["sm_90a"], 10, 0), GpuCompatibility::Nothing);
        assert_eq!(fits(&["9.0", "12.0+PTX"], 12, 1), GpuCompatibility::Binary);
        assert_eq!(fits(&["12.0+PTX"], 13, 0), GpuCompatibility::Ptx);
        assert_eq!(fits(&[], 9, 0), GpuCompatibility::Nothing);
    }
}
