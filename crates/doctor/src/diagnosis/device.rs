//! The GPU, its driver, and access to it.

use super::MachineFacts;
use crate::explain::Topic;
use crate::finding::Finding;
use crate::knowledge::oldest_driver;
use crate::system::NodeAccess;
use crate::version::CudaVersion;

const NO_GPU: &str = "Training on a GPU needs an NVIDIA GPU, and nothing here is one: none on the PCI bus, and no driver of NVIDIA's. \
megabatch trains on the CPU meanwhile, more slowly.";
const NO_GPU_IN_MACHINE: &str = "If the machine does have an NVIDIA GPU, look whether it is plugged in and switched on in the firmware; \
in a virtual machine, whether it was handed through.";
const NO_GPU_IN_CONTAINER: &str = "If the machine outside of the container has an NVIDIA GPU, start the container with it: `docker run \
--gpus all …`.";
const NO_DRIVER: &str = "The GPU is plugged in, and the program that operates it, NVIDIA's driver, is not loaded. Without it no program \
can use the GPU. After it was installed the machine has to be restarted.";
const DRIVER_LIBRARY: &str = "The driver consists of a part in the kernel, which is loaded, and of the library libcuda.so.1, which every \
CUDA program opens; that one is in none of the folders in which the system looks for libraries.";

pub(super) fn findings(case: &MachineFacts<'_>) -> Vec<Finding> {
    if !case.has_gpu() {
        let (place, hint) = match case.machine.container {
            Some(_) => ("container", NO_GPU_IN_CONTAINER),
            None => ("machine", NO_GPU_IN_MACHINE),
        };
        let (seen, why) = (format!("there is no NVIDIA GPU in this {place}"), format!("{NO_GPU} {hint}"));
        return vec![Finding::problem("no-gpu", seen, why).explained_by(Topic::Cpu)];
    }
    let first = container(case).or_else(|| no_driver(case)).or_else(|| nodes(case));
    first
        .into_iter()
        .chain(forbidden(case))
        .chain(library(case))
        .chain(versions_apart(case))
        .chain(too_old(case))
        .collect()
}

/// A container without access to the GPU.
fn container(case: &MachineFacts<'_>) -> Option<Finding> {
    let has_control = case.machine.nodes.iter().any(|node| node.path == "/dev/nvidiactl");
    let is_handed_in = has_control || case.is_reached() || !case.management.gpus.is_empty();
    if case.machine.container.is_none() || case.machine.is_wsl || is_handed_in {
        return None;
    }
    let hidden = case.machine.variable("NVIDIA_VISIBLE_DEVICES").filter(|value| ["void", "none", ""].contains(value));
    let seen = match hidden {
        Some(value) => format!("the container has no GPU: it was started with NVIDIA_VISIBLE_DEVICES={value}"),
        None => "the machine has an NVIDIA GPU, and this container was started without it: /dev/nvidiactl is missing"
            .to_owned(),
    };
    let why = "A container sees a GPU only where it was started with it. The commands are for the machine outside of the container: the \
               first two tell Docker how to hand GPUs in, once and for all, and need NVIDIA's container toolkit; the last starts a \
               container with all GPUs and should list them. Start yours again with `--gpus all` in the same place.";
    Some(Finding::problem("container-without-gpu", seen, why).mended_by([
        "sudo nvidia-ctk runtime configure --runtime=docker",
        "sudo systemctl restart docker",
        "docker run --rm --gpus all ubuntu nvidia-smi",
    ]))
}

fn no_driver(case: &MachineFacts<'_>) -> Option<Finding> {
    if case.has_driver() {
        return None;
    }
    let gpu = case.machine.pci.first()?;
    let place = format!("an NVIDIA GPU (model {}, at {} on the PCI bus)", gpu.model, gpu.address);
    let finding = match gpu.driver.as_deref() {
        Some("vfio-pci") => Finding::problem(
            "gpu-given-away",
            format!("{place} is set apart for virtual machines (its driver is vfio-pci)"),
            "Programs on this machine cannot use it; those in the virtual machine that it was given to can.",
        ),
        Some("nouveau") => Finding::problem(
            "no-driver",
            format!("{place} is operated by nouveau, which cannot run CUDA programs"),
            NO_DRIVER,
        ),
        _ => Finding::problem("no-driver", format!("{place} has no driver"), NO_DRIVER),
    };
    Some(if finding.id == "no-driver" { finding.mended_by(install_driver(case, None)) } else { finding })
}

/// The command of the system's distribution, if known.
pub(super) fn install_driver(case: &MachineFacts<'_>, branch: Option<u32>) -> Option<String> {
    match (case.machine.distribution.as_deref()?, branch) {
        ("ubuntu", None) => Some("sudo ubuntu-drivers install".to_owned()),
        ("ubuntu", Some(branch)) => Some(format!("sudo ubuntu-drivers install nvidia:{branch}")),
        ("debian", _) => Some("sudo apt-get install nvidia-driver".to_owned()),
        _ => None,
    }
}

/// A loaded driver without its device nodes.
fn nodes(case: &MachineFacts<'_>) -> Option<Finding> {
    let is_missing = case.machine.module.is_some() && case.machine.nodes.is_empty() && !case.machine.is_wsl;
    let finding = Finding::problem(
        "no-device-nodes",
        "the driver is loaded, and the files in /dev through which programs reach it are missing",
        "CUDA programs then find no GPU. The command makes the files.",
    );
    is_missing.then(|| finding.mended_by(["sudo nvidia-modprobe -u -c 0"]))
}

fn forbidden(case: &MachineFacts<'_>) -> Option<Finding> {
    let findings_with = |access: NodeAccess| -> Vec<&str> {
        case.machine.nodes.iter().filter(|node| node.access == access).map(|node| node.path.as_str()).collect()
    };
    let (denied, dead) = (findings_with(NodeAccess::Denied), findings_with(NodeAccess::Dead));
    if !denied.is_empty() {
        let paths = denied.join(" ");
        let why = "These files are the way to the GPU, and their permissions keep your user out. The command opens them to everybody \
                   until the next start of the machine; whoever administers it may rather want to put you into a group.";
        let finding = Finding::problem("devices-forbidden", format!("you may not open {paths}"), why);
        return Some(finding.mended_by([format!("sudo chmod a+rw {paths}")]));
    }
    let why = "The files are there and may be opened, but the driver does not answer: it may have lost the GPU. The command shows what it \
               reported last; a restart of the machine often helps.";
    let finding =
        || Finding::problem("driver-does-not-answer", format!("nothing answers behind {}", dead.join(" ")), why);
    (!dead.is_empty()).then(|| finding().mended_by(["sudo dmesg | grep -i -e NVRM -e Xid | tail -n 20"]))
}

fn library(case: &MachineFacts<'_>) -> Option<Finding> {
    let libraries = &case.machine.libraries;
    if !libraries.driver.is_empty() || !case.has_driver() || case.is_reached() {
        return None;
    }
    let folders: Vec<String> = libraries.searched.iter().map(|folder| folder.display().to_string()).collect();
    let seen = format!("the driver's library libcuda.so.1 is missing; looked in {}", folders.join(", "));
    let finding = Finding::problem("no-libcuda", seen, DRIVER_LIBRARY);
    let branch = case.driver().map(|driver| driver.number(0));
    Some(match (case.machine.container, case.machine.distribution.as_deref(), branch) {
        (Some(_), ..) => {
            finding.mended_by(["docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE"])
        }
        (None, Some("ubuntu"), Some(branch)) => {
            finding.mended_by([format!("sudo apt-get install libnvidia-compute-{branch}")])
        }
        _ => finding,
    })
}

/// The driver's two parts at different versions: an update without a restart.
fn versions_apart(case: &MachineFacts<'_>) -> Option<Finding> {
    let module = &case.machine.module.as_ref()?.version;
    let library = case.machine.libraries.driver.first()?;
    let version = library.version.as_ref().filter(|version| version.number(0) > 99 && *version != module)?;
    let seen = format!("the driver in the kernel is {module}, and its library {} is {version}", library.path.display());
    let why = "The two parts of a driver work together only at the same version (`Driver/library version mismatch`). This is what an \
               update leaves until the machine is restarted.";
    Some(Finding::problem("driver-parts-differ", seen, why).mended_by(["sudo reboot"]))
}

/// A driver older than anything that current wheels were made with.
fn too_old(case: &MachineFacts<'_>) -> Option<Finding> {
    let (driver, oldest) = (case.driver()?, oldest_driver(CudaVersion::new(11, 0))?);
    if *driver >= oldest {
        return None;
    }
    let seen = format!("the driver is {driver}, older than {oldest}");
    let why = "Programs made with CUDA 11 or later, which are all PyTorch wheels since 2.0 and megabatch itself, do not run on it. \
               Install a newer driver and restart the machine.";
    Some(Finding::problem("driver-too-old", seen, why).mended_by(install_driver(case, Some(580))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::Management;
    use crate::probe::{DeviceNode, Machine};

    #[test]
    fn nodes_that_may_not_be_opened_come_before_those_that_do_not_answer() {
        let node = |path: &str, access| DeviceNode { path: path.to_owned(), access };
        let nodes = [
            ("/dev/nvidia0", NodeAccess::Denied),
            ("/dev/nvidiactl", NodeAccess::Granted),
            ("/dev/nvidia1", NodeAccess::Dead),
        ];
        let (management, mut machine) = (Management::default(), Machine::default());
        machine.nodes = nodes.map(|(path, access)| node(path, access)).to_vec();
        let found = |machine: &Machine| {
            forbidden(&MachineFacts { machine, management: &management, python: None, trials: &[] })
        };
        let finding = found(&machine).unwrap();
        assert_eq!((finding.id, finding.seen.as_str()), ("devices-forbidden", "you may not open /dev/nvidia0"));
        assert_eq!(finding.commands, ["sudo chmod a+rw /dev/nvidia0"]);
        machine.nodes[0].access = NodeAccess::Granted;
        assert_eq!(found(&machine).unwrap().id, "driver-does-not-answer");
        machine.nodes.pop();
        assert!(found(&machine).is_none());
    }
}
