//! Facts about the machine, without judgement.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::python::wheel_library_folders;
use crate::system::{NodeAccess, System};
use crate::version::Version;

/// Environment variables that change the behaviour of CUDA and PyTorch.
pub(crate) const VARIABLES: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_CACHE_DISABLE",
    "CUDA_CACHE_MAXSIZE",
    "CUDA_CACHE_PATH",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_HOME",
    "LD_LIBRARY_PATH",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_CUDA_ARCH_LIST",
];

/// The machine without its Python.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// The CPU's architecture, such as `x86_64`.
    pub architecture: String,
    /// Name of the system, such as `Ubuntu 24.04.1 LTS`.
    pub system: Option<String>,
    /// The system's short name, such as `ubuntu`.
    pub distribution: Option<String>,
    /// The container that this runs in.
    pub container: Option<Container>,
    /// True if this is Linux within Windows, where GPUs are not on the PCI bus.
    pub is_wsl: bool,
    /// NVIDIA's GPUs on the PCI bus, with a driver or without.
    pub pci: Vec<PciGpu>,
    /// The driver's module of the kernel.
    pub module: Option<DriverModule>,
    /// Device nodes of the driver that are there.
    pub nodes: Vec<DeviceNode>,
    /// CUDA's libraries where the loader looks for them.
    pub libraries: Libraries,
    /// Variables that are set, and their values.
    pub variables: Vec<(&'static str, String)>,
}

impl Machine {
    /// Looks at `system`.
    pub fn probe(system: &System) -> Self {
        let release = system.read("/etc/os-release").unwrap_or_default();
        Machine {
            architecture: system.architecture().to_owned(),
            system: setting(&release, "PRETTY_NAME"),
            distribution: setting(&release, "ID"),
            container: probe_container(system),
            is_wsl: system.exists("/dev/dxg"),
            pci: probe_pci(system),
            module: system.read("/proc/driver/nvidia/version").and_then(|account| module(&account)),
            nodes: probe_nodes(system),
            libraries: probe_libraries(system),
            variables: VARIABLES.iter().filter_map(|&name| Some((name, system.variable(name)?.to_owned()))).collect(),
        }
    }

    /// Value of a variable.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str())
    }
}

/// The value of `NAME=value` or `NAME="value"`.
fn setting(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim().trim_matches('"').to_owned()).filter(|value| !value.is_empty())
}

/// A container engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Container {
    /// Docker or a compatible engine.
    Docker,
    /// Podman.
    Podman,
    /// Kubernetes with any engine.
    Kubernetes,
    /// Another, by a variable that it sets.
    Other,
}

fn probe_container(system: &System) -> Option<Container> {
    let groups = system.read("/proc/1/cgroup").unwrap_or_default();
    let is_in_group = |words: &[&str]| words.iter().any(|word| groups.contains(word));
    if system.variable("KUBERNETES_SERVICE_HOST").is_some() || is_in_group(&["kubepods"]) {
        Some(Container::Kubernetes)
    } else if system.exists("/run/.containerenv") || is_in_group(&["libpod"]) {
        Some(Container::Podman)
    } else if system.exists("/.dockerenv") || is_in_group(&["docker", "containerd"]) {
        Some(Container::Docker)
    } else {
        system.variable("container").map(|_| Container::Other)
    }
}

/// The module of the kernel.
#[derive(Clone, Debug, Serialize)]
pub struct DriverModule {
    /// Its version, such as `570.124.06`.
    pub version: Version,
    /// True if it is the open one, which GPUs from Blackwell on need.
    pub is_open: bool,
}

/// Reads `NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 12 ...`.
fn module(account: &str) -> Option<DriverModule> {
    let line = account.lines().find(|line| line.starts_with("NVRM version"))?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    let version = line.split_whitespace().find(is_version).and_then(Version::parse)?;
    Some(DriverModule { version, is_open: line.contains("Open Kernel Module") })
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceNode {
    /// Its path, such as `/dev/nvidia0`.
    pub path: String,
    /// True if it can be used.
    pub access: NodeAccess,
}

/// Device nodes that CUDA opens: `nvidiactl`, `nvidia-uvm` and one for each GPU.
fn probe_nodes(system: &System) -> Vec<DeviceNode> {
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let names = system.names("/dev").into_iter();
    let paths = names.filter(|name| is_gpu(name) || name == "nvidiactl" || name == "nvidia-uvm");
    let node = |name: String| {
        let path = format!("/dev/{name}");
        let access = system.access(&path)?;
        Some(DeviceNode { path, access })
    };
    paths.filter_map(node).collect()
}

const DEVICES: &str = "/sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";
/// First byte of the class of displays and of 3D controllers, which accelerators without a display
/// are.
const DISPLAY: &str = "0x03";

/// An NVIDIA GPU on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PciGpu {
    /// PCI address, such as `0000:01:00.0`.
    pub address: String,
    /// PCI device ID, such as `0x2342`.
    pub model: String,
    /// The kernel's driver that has it, such as `nvidia`, `nouveau` or `vfio-pci`.
    pub driver: Option<String>,
}

fn probe_pci(system: &System) -> Vec<PciGpu> {
    let gpu = |address: String| {
        let folder = Path::new(DEVICES).join(&address);
        let read = |name: &str| system.read(folder.join(name)).map(|text| text.trim().to_owned());
        let is_gpu = read("vendor")? == NVIDIA && read("class")?.starts_with(DISPLAY);
        is_gpu.then(|| PciGpu {
            address,
            model: read("device").unwrap_or_default(),
            driver: system.resolved_name(&folder.join("driver")),
        })
    };
    system.names(DEVICES).into_iter().filter_map(gpu).collect()
}

/// A library that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Library {
    /// Path, links not followed.
    pub path: PathBuf,
    /// Its version, from the name of the linked file.
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
    /// cuBLASLt libraries, which megabatch can measure beside its own products.
    pub cublaslt: Vec<Library>,
}

const CUBLASLT: &str = "libcublasLt.so.";

fn probe_libraries(system: &System) -> Libraries {
    let searched = search_order(system);
    let find = |stem: &str| libraries_in(system, &searched, stem);
    let wheels = wheel_library_folders(system);
    Libraries {
        driver: find("libcuda.so.1"),
        runtimes: find("libcudart.so."),
        cudnn: find("libcudnn.so."),
        cublaslt: [find(CUBLASLT), libraries_in(system, &wheels, CUBLASLT)].concat(),
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
    let in_folder = |name: String| Path::new("/etc/ld.so.conf.d").join(name);
    let included = system.names("/etc/ld.so.conf.d").into_iter().filter(|name| name.ends_with(".conf")).map(in_folder);
    let texts = std::iter::once(PathBuf::from("/etc/ld.so.conf")).chain(included).filter_map(|path| system.read(path));
    texts
        .flat_map(|text| {
            text.lines().map(str::trim).filter(|line| line.starts_with('/')).map(PathBuf::from).collect::<Vec<_>>()
        })
        .collect()
}

/// Files whose names are `stem`, or begin with it where it ends with a point; each file once, under
/// the first name that leads to it.
fn libraries_in(system: &System, folders: &[PathBuf], stem: &str) -> Vec<Library> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut libraries = Vec::new();
    for folder in folders {
        let matching = |name: &String| if stem.ends_with('.') { name.starts_with(stem) } else { name == stem };
        for name in system.names(folder).into_iter().filter(matching) {
            let path = folder.join(name);
            let Some(file) = system.resolved(&path).filter(|file| !files.contains(file)) else { continue };
            libraries.push(Library { version: version_of_file(&file), path });
            files.push(file);
        }
    }
    libraries
}

/// 12.8.90 of `libcudart.so.12.8.90`.
fn version_of_file(file: &Path) -> Option<Version> {
    let name = file.file_name()?.to_str()?;
    Version::parse(name.split_once(".so.")?.1)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn both_kinds_of_module_are_read() {
        for (account, version, is_open) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: gcc 11.4.0\n",
                "550.54.15",
                false,
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.124.06  Release ReleaseBuild  (dvs-builder@U22)\n",
                "570.124.06",
                true,
            ),
        ] {
            let found = module(account).unwrap();
            assert_eq!((found.version.to_string().as_str(), found.is_open), (version, is_open));
        }
        assert!(module("").is_none());
        assert!(module("NVRM version: unknown").is_none());
    }

    #[test]
    fn libraries_are_found_in_the_loaders_order_and_once_each() {
        let folder = tempfile::tempdir().unwrap();
        let path_to = |path: &str| folder.path().join(path);
        for path in ["opt/cuda/lib64", "etc/ld.so.conf.d", "usr/local/cuda-12.4/lib64", "usr/lib/x86_64-linux-gnu"] {
            fs::create_dir_all(path_to(path)).unwrap();
        }
        fs::write(path_to("etc/ld.so.conf.d/cuda.conf"), "# toolkit\n/usr/local/cuda-12.4/lib64\n").unwrap();
        fs::write(path_to("etc/ld.so.conf.d/notes.txt"), "/nowhere\n").unwrap();
        fs::write(path_to("opt/cuda/lib64/libcudart.so.11.8.89"), "").unwrap();
        symlink("libcudart.so.11.8.89", path_to("opt/cuda/lib64/libcudart.so.11.0")).unwrap();
        fs::write(path_to("usr/local/cuda-12.4/lib64/libcudart.so.12.4.127"), "").unwrap();
        fs::write(path_to("usr/local/cuda-12.4/lib64/libcublasLt.so.12.4.5.8"), "").unwrap();
        fs::write(path_to("usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06"), "").unwrap();
        symlink("libcuda.so.570.124.06", path_to("usr/lib/x86_64-linux-gnu/libcuda.so.1")).unwrap();
        let variables = [("LD_LIBRARY_PATH".to_owned(), "/opt/cuda/lib64::/opt/cuda/lib64".to_owned())];
        let found = probe_libraries(&System::new(folder.path(), variables, "x86_64"));
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
