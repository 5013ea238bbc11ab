//! CUDA's shared libraries, where the dynamic loader looks for them and in its order:
//! `LD_LIBRARY_PATH`, then what `/etc/ld.so.conf` lists, then the system's own folders (ld.so(8)).

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::system::System;
use crate::version::Version;

/// A library that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Library {
    /// Path, links not followed.
    pub path: PathBuf,
    /// Its version, off the name of the file that the links lead to.
    pub version: Option<Version>,
}

/// Libraries that the loader would find.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Libraries {
    /// The folders in the loader's order.
    pub searched: Vec<PathBuf>,
    /// The driver's library, `libcuda.so.1`, wherever it is; the loader takes the first.
    pub driver: Vec<Library>,
    /// CUDA runtimes, `libcudart`.
    pub runtimes: Vec<Library>,
    /// cuDNNs.
    pub cudnn: Vec<Library>,
    /// cuBLASLts, which megabatch measures beside its own products with `training.autotune: fast`.
    pub cublaslt: Vec<Library>,
}

pub(super) fn look(system: &System) -> Libraries {
    let searched = search_order(system);
    let find = |stem: &str| found(system, &searched, stem);
    Libraries {
        driver: find("libcuda.so.1"),
        runtimes: find("libcudart.so."),
        cudnn: find("libcudnn.so."),
        cublaslt: find("libcublasLt.so."),
        searched,
    }
}

fn search_order(system: &System) -> Vec<PathBuf> {
    let named = system.variable("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = named.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from).collect();
    folders.extend(configured(system));
    let triple = format!("{}-linux-gnu", system.architecture());
    folders.extend([format!("/lib/{triple}"), format!("/usr/lib/{triple}")].map(PathBuf::from));
    folders.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
    let mut seen = Vec::new();
    folders.retain(|folder| {
        let is_new = !seen.contains(folder);
        seen.push(folder.clone());
        is_new
    });
    folders
}

/// Folders of `/etc/ld.so.conf` and of the folder that it usually includes.
fn configured(system: &System) -> Vec<PathBuf> {
    let below = |name: String| Path::new("/etc/ld.so.conf.d").join(name);
    let included = system.names("/etc/ld.so.conf.d").into_iter().filter(|name| name.ends_with(".conf")).map(below);
    let texts = std::iter::once(PathBuf::from("/etc/ld.so.conf")).chain(included).filter_map(|path| system.read(path));
    texts
        .flat_map(|text| {
            text.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from).collect::<Vec<_>>()
        })
        .collect()
}

/// Files whose names are `stem`, or begin with it where it ends with a point; each file once, under
/// the first name that leads to it.
fn found(system: &System, folders: &[PathBuf], stem: &str) -> Vec<Library> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut libraries = Vec::new();
    for folder in folders {
        let matching = |name: &String| if stem.ends_with('.') { name.starts_with(stem) } else { name == stem };
        for name in system.names(folder).into_iter().filter(matching) {
            let path = folder.join(name);
            let Some(file) = system.resolved(&path).filter(|file| !files.contains(file)) else { continue };
            libraries.push(Library { version: version(&file), path });
            files.push(file);
        }
    }
    libraries
}

/// 12.8.90 of `libcudart.so.12.8.90`.
fn version(file: &Path) -> Option<Version> {
    let name = file.file_name()?.to_str()?;
    Version::parse(name.split_once(".so.")?.1)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn libraries_are_found_in_the_loaders_order_and_once_each() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in ["opt/cuda/lib64", "etc/ld.so.conf.d", "usr/local/cuda-12.4/lib64", "usr/lib/x86_64-linux-gnu"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        fs::write(at("etc/ld.so.conf.d/cuda.conf"), "# toolkit\n/usr/local/cuda-12.4/lib64\n").unwrap();
        fs::write(at("etc/ld.so.conf.d/notes.txt"), "/nowhere\n").unwrap();
        fs::write(at("opt/cuda/lib64/libcudart.so.11.8.89"), "").unwrap();
        symlink("libcudart.so.11.8.89", at("opt/cuda/lib64/libcudart.so.11.0")).unwrap();
        fs::write(at("usr/local/cuda-12.4/lib64/libcudart.so.12.4.127"), "").unwrap();
        fs::write(at("usr/local/cuda-12.4/lib64/libcublasLt.so.12.4.5.8"), "").unwrap();
        fs::write(at("usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06"), "").unwrap();
        symlink("libcuda.so.570.124.06", at("usr/lib/x86_64-linux-gnu/libcuda.so.1")).unwrap();
        let variables = [("LD_LIBRARY_PATH".to_owned(), "/opt/cuda/lib64::/opt/cuda/lib64".to_owned())];
        let found = look(&System::new(folder.path(), variables, "x86_64"));
        let order = ["/opt/cuda/lib64", "/usr/local/cuda-12.4/lib64", "/lib/x86_64-linux-gnu"].map(PathBuf::from);
        assert_eq!(found.searched[..3], order);
        let versions = |libraries: &[Library]| -> Vec<String> {
            libraries.iter().filter_map(|library| library.version.as_ref()).map(ToString::to_string).collect()
        };
        assert_eq!(versions(&found.runtimes), ["11.8.89", "12.4.127"]);
        assert_eq!(versions(&found.driver), ["570.124.06"]);
        assert_eq!(found.driver[0].path, Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1"));
        assert!(found.cudnn.is_empty());
        assert_eq!(versions(&found.cublaslt), ["12.4.5.8"]);
    }
}
