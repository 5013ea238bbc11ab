//! Location of the environment: the interpreter, and the folders of its packages.

use std::path::{Path, PathBuf};

use crate::system::System;
use crate::version::Version;

/// The interpreter `named`; otherwise that of the active environment; otherwise the first on the
/// path. Also returns how it was found.
pub(super) fn interpreter(system: &System, named: Option<&Path>) -> Option<(PathBuf, &'static str)> {
    if let Some(named) = named {
        let is_bare = named.components().count() == 1 && named.is_relative();
        let found = if is_bare { on_path(system, &named.to_string_lossy()) } else { None };
        return Some((found.unwrap_or_else(|| named.to_owned()), "--python"));
    }
    let from_environment = |variable: &'static str| {
        let executable = Path::new(system.variable(variable)?).join("bin/python");
        system.is_file(&executable).then_some((executable, variable))
    };
    let on_path = || ["python3", "python"].iter().find_map(|name| Some((on_path(system, name)?, "PATH")));
    from_environment("VIRTUAL_ENV").or_else(|| from_environment("CONDA_PREFIX")).or_else(on_path)
}

fn on_path(system: &System, name: &str) -> Option<PathBuf> {
    let folders = system.variable("PATH")?.split(':').filter(|folder| !folder.is_empty());
    folders.map(|folder| Path::new(folder).join(name)).find(|path| system.is_file(path))
}

/// The package folders of an interpreter that cannot be asked, by its location.
pub(super) fn sites(system: &System, executable: &Path) -> Vec<PathBuf> {
    let Some(prefix) = executable.parent().and_then(Path::parent) else { return Vec::new() };
    let mut sites = Vec::new();
    for library in ["lib", "lib64"].map(|name| prefix.join(name)) {
        let is_python = |name: &String| name.strip_prefix("python").is_some_and(|rest| rest.starts_with("3"));
        for name in system.names(&library).into_iter().filter(is_python) {
            sites.extend(["site-packages", "dist-packages"].map(|folder| library.join(&name).join(folder)));
        }
    }
    sites
}

/// Folders of the CUDA libraries that NVIDIA's wheels bring, `nvidia/*/lib` beside the packages of
/// the environment: PyTorch finds them there, the system's loader does not.
pub fn wheel_library_folders(system: &System) -> Vec<PathBuf> {
    let Some((executable, _)) = interpreter(system, None) else { return Vec::new() };
    let packages = sites(system, &executable).into_iter().map(|site| site.join("nvidia"));
    let libraries = packages
        .flat_map(|nvidia| system.names(&nvidia).into_iter().map(move |package| nvidia.join(package).join("lib")));
    libraries.filter(|folder| !system.names(folder).is_empty()).collect()
}

/// 3.11 of `…/python3.11/site-packages`.
pub(super) fn version_of(site: &Path) -> Option<Version> {
    let name = site.parent()?.file_name()?.to_str()?;
    Version::parse(name.strip_prefix("python")?).filter(|version| version.len() > 1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_active_environment_goes_before_the_path() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["venv/bin", "usr/bin", "venv/lib/python3.11/site-packages"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        for path in ["venv/bin/python", "usr/bin/python3", "usr/bin/python3.9"] {
            fs::write(folder.path().join(path), "").unwrap();
        }
        let found_with = |variables: &[(&str, &str)], named: Option<&str>| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let system = System::new(folder.path(), variables, "x86_64");
            interpreter(&system, named.map(Path::new)).map(|(path, named_by)| (path.display().to_string(), named_by))
        };
        let path = ("PATH", "/bin:/usr/bin");
        let found = |path: &str, named_by| Some((path.to_owned(), named_by));
        assert_eq!(found_with(&[path, ("VIRTUAL_ENV", "/venv")], None), found("/venv/bin/python", "VIRTUAL_ENV"));
        assert_eq!(found_with(&[path, ("VIRTUAL_ENV", "/gone")], None), found("/usr/bin/python3", "PATH"));
        assert_eq!(found_with(&[path], Some("python3.9")), found("/usr/bin/python3.9", "--python"));
        assert_eq!(found_with(&[path], Some("/opt/python")), found("/opt/python", "--python"));
        assert_eq!(found_with(&[], None), None);
        let library = "venv/lib/python3.11/site-packages/nvidia/cublas/lib";
        fs::create_dir_all(folder.path().join(library)).unwrap();
        fs::write(folder.path().join(library).join("libcublasLt.so.12"), "").unwrap();
        let variables = [("VIRTUAL_ENV".to_owned(), "/venv".to_owned())];
        let found = wheel_library_folders(&System::new(folder.path(), variables, "x86_64"));
        assert_eq!(found, [Path::new("/").join(library)]);
        let system = System::new(folder.path(), [], "x86_64");
        let sites = sites(&system, Path::new("/venv/bin/python"));
        assert_eq!(sites[0], Path::new("/venv/lib/python3.11/site-packages"));
        assert_eq!(version_of(&sites[0]).unwrap().to_string(), "3.11");
    }
}
