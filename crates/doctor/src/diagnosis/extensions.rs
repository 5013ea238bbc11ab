//! Extensions of PyTorch, such as torch_scatter: checks that they were built for this PyTorch, its
//! CUDA and GPUs.

use super::MachineFacts;
use crate::explain::Topic;
use crate::finding::Finding;
use crate::knowledge::{CpuArchitecture, EXTENSIONS, Extension, Wheel};
use crate::python::{BuiltFor, Installed, Python, Torch};
use crate::repair::{Installer, Repair, companions};
use crate::version::{CudaVersion, Version};

/// An extension that does not fit, and the reason.
struct Misfit<'a> {
    extension: &'a Installed,
    id: &'static str,
    seen: String,
}

const WHY: &str = "An extension is compiled for one release of PyTorch and one version of CUDA, and works with these alone; pip does not \
check that it does. The commands replace it by the build that fits.";

/// The findings, and the repair of the environment: of PyTorch by `wheel` if one is given, and of
/// the extensions.
pub(super) fn findings(case: &MachineFacts<'_>, wheel: Option<Wheel>) -> (Vec<Finding>, Option<Repair>) {
    let Some((python, torch)) = case.python.zip(case.torch()) else { return (Vec::new(), None) };
    let misfits: Vec<Misfit<'_>> =
        python.extensions.iter().filter_map(|extension| misfit(case, python, torch, extension)).collect();
    // Another PyTorch needs all of them anew.
    let leaving: Vec<&Installed> = match wheel {
        Some(_) => python.extensions.iter().collect(),
        None => misfits.iter().map(|misfit| misfit.extension).collect(),
    };
    let repair = repair(case, python, torch, wheel, &leaving);
    let findings = misfits.iter().enumerate().map(|(k, misfit)| finding(misfit, k == 0, repair.as_ref())).collect();
    (findings, repair)
}

fn misfit<'a>(case: &MachineFacts<'_>, python: &Python, torch: &Torch, extension: &'a Installed) -> Option<Misfit<'a>> {
    let name = match &extension.version {
        Some(version) => format!("{} {version}", extension.module),
        None => extension.module.to_owned(),
    };
    let misfit = |id, seen: String| Some(Misfit { extension, id, seen });
    let ran = python.runs.iter().find(|run| run.operation.starts_with(extension.module) && run.error.is_some());
    let failure = ran.and_then(|run| Some(format!("; run on {}, it said: {}", run.device, run.error.as_ref()?)));
    let failure = failure.unwrap_or_default();
    match (extension.built_for(), torch.cuda) {
        (BuiltFor::Cpu, Some(cuda)) if case.has_gpu() => misfit(
            "extension-without-cuda",
            format!("{name} was built without CUDA, and PyTorch {} with CUDA {cuda}{failure}", torch.version),
        ),
        (BuiltFor::Cuda(built), Some(cuda)) if built != cuda => misfit(
            "extension-for-other-cuda",
            format!("{name} was built with CUDA {built}, and PyTorch {} with CUDA {cuda}{failure}", torch.version),
        ),
        _ if extension.built_for_torch().is_some_and(|release| release != torch.version.minor()) => {
            let (major, minor) = extension.built_for_torch()?;
            misfit(
                "extension-for-other-torch",
                format!("{name} was built for PyTorch {major}.{minor}, and {} is installed{failure}", torch.version),
            )
        }
        _ => match &extension.import_error {
            Some(error) => misfit("extension-not-imported", format!("`import {}` fails: {error}", extension.module)),
            None if !failure.is_empty() => {
                misfit("extension-run-failed", format!("{name} is installed and does not work{failure}"))
            }
            None => None,
        },
    }
}

/// A way to do without an extension.
fn way_without(extension: &Installed) -> &'static str {
    match extension.module {
        "torch_scatter" => {
            " On the CPU it is not needed: megabatch's Python module has its functions for every PyTorch from 2.4 on, \
             `import megabatch.scatter as torch_scatter`."
        }
        _ => "",
    }
}

fn finding(misfit: &Misfit<'_>, is_first: bool, repair: Option<&Repair>) -> Finding {
    let without = way_without(misfit.extension);
    let Some(repair) = repair else {
        let why = "An extension is compiled for one release of PyTorch and one version of CUDA. Which build fits here is not known: \
                   PyTorch was built without CUDA, or there are no wheels for this CPU.";
        return Finding::problem(misfit.id, &misfit.seen, format!("{why}{without}"));
    };
    if repair.wheel.is_some() || !is_first {
        let why = format!("The commands of the problem above mend this one too.{without}");
        return Finding::problem(misfit.id, &misfit.seen, why);
    }
    let on_arm = if repair.builds() {
        format!(
            " There are no CUDA builds of it for ARM to download, so the command compiles one: that takes minutes, a C++ compiler, and \
             NVIDIA's toolkit for CUDA {} in {}.",
            repair.cuda,
            repair.toolkit()
        )
    } else {
        String::new()
    };
    let topic = if repair.builds() { Topic::Arm } else { Topic::Architectures };
    Finding::problem(misfit.id, &misfit.seen, format!("{WHY}{on_arm}{without}"))
        .mended_by(repair.commands())
        .explained_by(topic)
}

fn repair(
    case: &MachineFacts<'_>,
    python: &Python,
    torch: &Torch,
    wheel: Option<Wheel>,
    leaving: &[&Installed],
) -> Option<Repair> {
    if wheel.is_none() && leaving.is_empty() {
        return None;
    }
    let (version, cuda): (Version, CudaVersion) = match &wheel {
        Some(wheel) => (wheel.torch.clone(), wheel.cuda),
        None => (torch.version.clone(), torch.cuda?),
    };
    let is_leaving = |extension: &&Extension| leaving.iter().any(|installed| installed.module == extension.module);
    Some(Repair {
        installer: Installer::for_python(python),
        companions: if wheel.is_some() { companions(python) } else { Vec::new() },
        wheel,
        torch: version,
        cuda,
        extensions: EXTENSIONS.iter().filter(is_leaving).collect::<Vec<&'static Extension>>(),
        has_scatter: python.extensions.iter().any(|extension| extension.module == "torch_scatter"),
        cpu: case.cpu().unwrap_or(CpuArchitecture::X86),
        gpus: case.capabilities(),
    })
}
