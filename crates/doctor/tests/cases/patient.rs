//! Made-up machines: a folder with `sys`, `proc`, `dev` and a fake Python in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use megabatch_doctor::{
    Capability, CudaVersion, Examination, ExaminationRequest, Gpu, Management, System, Trial, Version, examine,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Path of the fake Python.
pub(crate) const PYTHON: &str = "/opt/env/bin/python";
const SITE: &str = "/opt/env/lib/python3.11/site-packages";

/// A machine in the making.
pub(crate) struct Patient {
    root: TempDir,
    architecture: &'static str,
    variables: Vec<(String, String)>,
    pub(crate) management: Management,
    pub(crate) trials: Vec<Trial>,
    pub(crate) limit: Duration,
}

impl Patient {
    /// A machine with nothing but a system.
    pub(crate) fn new(architecture: &'static str) -> Self {
        let patient = Patient {
            root: tempfile::tempdir().unwrap(),
            architecture,
            variables: Vec::new(),
            management: Management::default(),
            trials: Vec::new(),
            limit: Duration::from_secs(60),
        };
        patient.file("/etc/os-release", "ID=ubuntu\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\n")
    }

    /// A machine with a GPU, its driver, and all that belongs to it.
    pub(crate) fn with_gpu(architecture: &'static str, driver: &str, capability: (u32, u32)) -> Self {
        let mut patient = Patient::new(architecture).pci("nvidia").module(driver).nodes().libcuda(driver);
        patient.management = Management {
            fault: None,
            driver: Version::parse(driver),
            cuda: None,
            gpus: vec![Gpu {
                name: "NVIDIA GPU".to_owned(),
                capability: Some(Capability::new(capability.0, capability.1)),
                total_bytes: 24 << 30,
                used_bytes: 300 << 20,
                ..Gpu::default()
            }],
        };
        patient
    }

    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        let place = self.place(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A GPU on the PCI bus, operated by `driver`; empty for none. Beside it a network card.
    pub(crate) fn pci(self, driver: &str) -> Self {
        let folder = "/sys/bus/pci/devices/0000:01:00.0";
        let patient = self
            .file(&format!("{folder}/vendor"), "0x10de\n")
            .file(&format!("{folder}/class"), "0x030200\n")
            .file(&format!("{folder}/device"), "0x2342\n")
            .file("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n")
            .file("/sys/bus/pci/devices/0000:02:00.0/class", "0x020000\n");
        if !driver.is_empty() {
            let home = patient.place(&format!("/sys/bus/pci/drivers/{driver}"));
            fs::create_dir_all(&home).unwrap();
            symlink(home, patient.place(&format!("{folder}/driver"))).unwrap();
        }
        patient
    }

    pub(crate) fn module(self, version: &str) -> Self {
        let text = format!(
            "NVRM version: NVIDIA UNIX Open Kernel Module for {}  {version}  Release Build\n",
            self.architecture
        );
        self.file("/proc/driver/nvidia/version", &text)
    }

    pub(crate) fn nodes(self) -> Self {
        self.file("/dev/nvidiactl", "")
            .file("/dev/nvidia0", "")
            .file("/dev/nvidia-uvm", "")
            .file("/dev/nvidia-modeset", "")
    }

    pub(crate) fn libcuda(self, version: &str) -> Self {
        let folder = format!("/usr/lib/{}-linux-gnu", self.architecture);
        let patient = self.file(&format!("{folder}/libcuda.so.{version}"), "");
        symlink(format!("libcuda.so.{version}"), patient.place(&format!("{folder}/libcuda.so.1"))).unwrap();
        patient
    }

    /// A Python 3.11 that tells `facts`, and is the active environment.
    pub(crate) fn python(self, facts: &[(&str, Value)]) -> Self {
        let machine = json!(self.architecture);
        let common = [("python", json!("3.11.9")), ("machine", machine), ("sites", json!([SITE]))];
        let lines =
            common.iter().chain(facts).map(|(key, value)| format!("megabatch-doctor {}\n", json!([key, value])));
        let answer = format!("a package says something\n{}", lines.collect::<String>());
        let patient = self.file(&format!("{PYTHON}.answer"), &answer).package("pip", "25.0", &[]);
        symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/fake-python.sh"), patient.place(PYTHON))
            .unwrap();
        patient.variable("VIRTUAL_ENV", "/opt/env")
    }

    /// A package in the environment's folder.
    pub(crate) fn package(self, name: &str, version: &str, requires: &[&str]) -> Self {
        let requires: String = requires.iter().map(|asked| format!("Requires-Dist: {asked}\n")).collect();
        let text = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}\nText.\n");
        self.file(&format!("{SITE}/{name}-{version}.dist-info/METADATA"), &text)
    }

    /// The file in which PyTorch keeps its version.
    pub(crate) fn torch_file(self, version: &str, cuda: &str) -> Self {
        self.file(
            &format!("{SITE}/torch/version.py"),
            &format!("__version__ = '{version}'\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n"),
        )
    }

    pub(crate) fn place(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    pub(crate) fn examine(&self) -> Examination {
        let system = System::new(self.root.path(), self.variables.clone(), self.architecture);
        examine(ExaminationRequest {
            system: &system,
            python: None,
            limit: self.limit,
            management: self.management.clone(),
            trials: self.trials.clone(),
        })
    }
}

/// A PyTorch's description of itself, and of one GPU if it was built with CUDA.
pub(crate) fn torch(
    version: &str,
    cuda: Option<&str>,
    compiled_for: &[&str],
    capability: Option<(u32, u32)>,
) -> (&'static str, Value) {
    let gpus: Vec<Value> =
        capability.iter().map(|(major, minor)| json!({ "name": "NVIDIA GPU", "capability": [major, minor] })).collect();
    let told = json!({
        "version": version, "cuda": cuda, "hip": null, "compiled_for": compiled_for,
        "is_available": !gpus.is_empty(), "gpus": gpus, "cudnn": null,
    });
    ("torch", told)
}

pub(crate) fn extension(module: &str, cuda: i64, error: Option<&str>) -> (&'static str, Value) {
    ("extension", json!({ "module": module, "cuda": cuda, "error": error }))
}

pub(crate) fn run(operation: &str, error: Option<&str>) -> (&'static str, Value) {
    ("run", json!({ "operation": operation, "device": "cuda:0", "error": error }))
}

/// Observation and commands of the finding `id`.
pub(crate) fn found(examination: &Examination, id: &str) -> (String, Vec<String>) {
    let finding = examination.findings.iter().find(|finding| finding.id == id);
    let finding = finding.unwrap_or_else(|| panic!("no {id} in\n{}", examination.to_text()));
    (finding.seen.clone(), finding.commands.clone())
}

/// The names of all findings.
pub(crate) fn ids(examination: &Examination) -> Vec<&'static str> {
    examination.findings.iter().map(|finding| finding.id).collect()
}

pub(crate) const CUDA_12_8: CudaVersion = CudaVersion::new(12, 8);
