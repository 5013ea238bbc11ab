//! Packages of an environment by its files: nothing is run.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Torch;
use super::requirement::{PackageRequirement, normal};

use crate::system::System;
use crate::version::{CompiledFor, CudaVersion, Version};

/// An installed package.
#[derive(Clone, Debug, Serialize)]
pub struct Distribution {
    /// Its name in small letters, with `-` for `_` and `.`.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// Requirements on PyTorch and NVIDIA's libraries.
    pub requires: Vec<PackageRequirement>,
}

/// The packages in the folders `sites`, the first of each name.
pub(super) fn read(system: &System, sites: &[PathBuf]) -> Vec<Distribution> {
    let mut found: Vec<Distribution> = Vec::new();
    for site in sites {
        for name in system.names(site).into_iter().filter(|name| name.ends_with(".dist-info")) {
            let text = system.read(site.join(name).join("METADATA")).unwrap_or_default();
            found.extend(distribution(&text).filter(|new| found.iter().all(|old| old.name != new.name)));
        }
    }
    found
}

fn distribution(text: &str) -> Option<Distribution> {
    let header = || text.lines().take_while(|line| !line.is_empty());
    let field = |name: &str| header().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.trim()));
    let requires = header().filter_map(|line| PackageRequirement::parse(line.strip_prefix("Requires-Dist: ")?));
    Some(Distribution {
        name: normal(field("Name")?),
        version: Version::parse(field("Version")?)?,
        requires: requires.filter(|asked| asked.name == "torch" || asked.name.starts_with("nvidia-")).collect(),
    })
}

/// The PyTorch in `site`, by the file in which it keeps its version.
pub(super) fn torch(system: &System, site: &Path) -> Option<Torch> {
    let text = system.read(site.join("torch/version.py"))?;
    let version = Version::parse(&assigned(&text, "__version__")?)?;
    let tag = version.local().and_then(CudaVersion::from_tag);
    Some(Torch {
        cuda: assigned(&text, "cuda").as_deref().and_then(CudaVersion::parse).or(tag),
        is_rocm: assigned(&text, "hip").is_some(),
        compiled_for: CompiledFor::default(),
        is_available: None,
        gpus: Vec::new(),
        cudnn: None,
        import_error: None,
        version,
    })
}

/// The text that a line such as `cuda: Optional[str] = '12.8'` assigns; `None` for `None`.
fn assigned(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (annotation, value) = rest.split_once('=')?;
        (annotation.trim().is_empty() || annotation.starts_with(':')).then_some(value.trim())
    })?;
    let quote = value.chars().next().filter(|c| "'\"".contains(*c))?;
    Some(value[1..].split(quote).next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_says_what_it_asks_for_in_its_header() {
        let text = "Metadata-Version: 2.1\nName: Torch_Scatter\nVersion: 2.1.2+pt27cpu\nRequires-Dist: torch==2.7.0\n\
                    Requires-Dist: scipy\nRequires-Dist: nvidia-cudnn-cu12==9.7.1.26; platform_system == \"Linux\"\n\nRequires-Dist: \
                    torch==1.0\n";
        let found = distribution(text).unwrap();
        assert_eq!((found.name.as_str(), found.version.to_string().as_str()), ("torch-scatter", "2.1.2+pt27cpu"));
        assert_eq!(found.requires.len(), 2);
        assert!(distribution("Name: nameless\n").is_none());
    }

    #[test]
    fn torch_is_read_off_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site/torch");
        std::fs::create_dir_all(&site).unwrap();
        let system = System::new(folder.path(), [], "x86_64");
        let read = |text: &str| {
            std::fs::write(site.join("version.py"), text).unwrap();
            torch(&system, Path::new("/site"))
                .map(|torch| (torch.version.to_string(), torch.cuda.map(CudaVersion::tag), torch.is_rocm))
        };
        let new = "from typing import Optional\n__all__ = ['__version__', 'cuda']\n__version__ = '2.7.0+cu128'\n\
                   debug = False\ncuda: Optional[str] = '12.8'\ngit_version = 'x'\nhip: Optional[str] = None\n";
        assert_eq!(read(new), Some(("2.7.0+cu128".to_owned(), Some("cu128".to_owned()), false)));
        let cpu = "__version__ = '2.0.1'\ncuda = None\nhip = None\n";
        assert_eq!(read(cpu), Some(("2.0.1".to_owned(), None, false)));
        assert_eq!(read("nothing"), None);
    }
}
