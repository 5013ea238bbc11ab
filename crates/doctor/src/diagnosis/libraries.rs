//! Several CUDA runtimes on the search path, and a cuDNN of another version than PyTorch requires.

use std::collections::BTreeSet;

use super::MachineFacts;
use crate::finding::Finding;
use crate::knowledge::{CpuArchitecture, release};
use crate::probe::Library;
use crate::python::{Python, Torch};
use crate::repair::Installer;
use crate::version::Version;

pub(super) fn findings(case: &MachineFacts<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = runtimes(case).into_iter().chain(stub(case)).collect();
    if let Some((python, torch)) = case.python.zip(case.torch()) {
        findings.extend(pins(case, python, torch));
        findings.extend(cudnn(case, torch));
    }
    findings
}

fn runtimes(case: &MachineFacts<'_>) -> Option<Finding> {
    let runtimes = &case.machine.libraries.runtimes;
    let versions: BTreeSet<(u32, u32)> =
        runtimes.iter().filter_map(|found| Some(found.version.as_ref()?.minor())).collect();
    if versions.len() < 2 {
        return None;
    }
    let list: Vec<String> = runtimes.iter().map(describe).collect();
    let seen = format!("{} different CUDA runtimes are on the library path: {}", versions.len(), list.join(", "));
    let why = "A program that was built with one takes the first that has the right name, which may be another. PyTorch's wheels bring \
               their own and do not mind; extensions that you compile do.";
    let finding = Finding::warning("several-cuda-runtimes", seen, why);
    let is_named = case.machine.variable("LD_LIBRARY_PATH").is_some_and(|folders| folders.contains("cuda"));
    Some(if is_named { finding.mended_by(["unset LD_LIBRARY_PATH"]) } else { finding })
}

fn describe(library: &Library) -> String {
    let version = library.version.as_ref().map(|version| format!(" ({version})")).unwrap_or_default();
    format!("{}{version}", library.path.display())
}

/// The toolkit's stub of the driver library, which is for linking only.
fn stub(case: &MachineFacts<'_>) -> Option<Finding> {
    let library = case.machine.libraries.driver.first()?;
    let is_stub = library.path.components().any(|part| part.as_os_str() == "stubs");
    let seen = format!("{} is found before the driver's own library", library.path.display());
    let why = "It is a stand-in that programs are linked with where there is no driver, and every call of it fails. Take its folder out \
               of LD_LIBRARY_PATH.";
    is_stub.then(|| Finding::problem("stub-of-libcuda", seen, why).mended_by(["unset LD_LIBRARY_PATH"]))
}

/// NVIDIA's libraries in another version than PyTorch requires.
fn pins(case: &MachineFacts<'_>, python: &Python, torch: &Torch) -> Option<Finding> {
    torch.cuda?;
    let architecture = python.machine.as_deref().unwrap_or(&case.machine.architecture);
    let asked = python.distribution("torch")?.requires.iter().filter(|asked| asked.applies(architecture));
    let wrong: Vec<(String, Version, Version)> = asked
        .filter_map(|asked| {
            let (wanted, found) = (asked.pinned()?, &python.distribution(&asked.name)?.version);
            (*found != wanted).then(|| (asked.name.clone(), wanted, found.clone()))
        })
        .collect();
    let list: Vec<String> =
        wrong.iter().map(|(name, wanted, found)| format!("{name} {found} instead of {wanted}")).collect();
    let seen = format!("PyTorch {} finds other libraries than it was built with: {}", torch.version, list.join(", "));
    let why = "Another package replaced them. PyTorch may then fail to start, or fail in the middle of training where a function is \
               missing. The command puts the right ones back.";
    let mut arguments = vec!["--no-deps".to_owned()];
    arguments.extend(wrong.iter().map(|(name, wanted, _)| format!("{name}=={wanted}")));
    (!wrong.is_empty()).then(|| {
        Finding::warning("libraries-replaced", seen, why)
            .mended_by([Installer::for_python(python).pip("install", &arguments)])
    })
}

/// A cuDNN older than the one that PyTorch was built with, loaded from elsewhere.
fn cudnn(case: &MachineFacts<'_>, torch: &Torch) -> Option<Finding> {
    let loaded = torch.cudnn.as_ref()?;
    let row = release(&torch.version)?.build(torch.cuda?, case.cpu().unwrap_or(CpuArchitecture::X86))?;
    let wanted = Version::parse(row.cudnn).filter(|wanted| loaded.minor() < wanted.minor())?;
    let elsewhere: Vec<String> = case.machine.libraries.cudnn.iter().map(describe).collect();
    let places =
        if elsewhere.is_empty() { String::new() } else { format!("; on the library path: {}", elsewhere.join(", ")) };
    let seen = format!("PyTorch {} loaded cuDNN {loaded}, and was built with {wanted}{places}", torch.version);
    let why = "cuDNN is NVIDIA's library for neural networks. An older one than PyTorch was built with lacks functions that it calls. \
               Mostly LD_LIBRARY_PATH leads to an old copy; the command takes it away for this shell.";
    let finding = Finding::warning("cudnn-too-old", seen, why);
    Some(if case.machine.variable("LD_LIBRARY_PATH").is_some() {
        finding.mended_by(["unset LD_LIBRARY_PATH"])
    } else {
        finding
    })
}
