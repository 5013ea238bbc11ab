//! PyTorch: checks that it was built with CUDA, for these GPUs and this driver.

use super::MachineFacts;
use super::device::install_driver;
use crate::explain::Topic;
use crate::finding::{Finding, Severity};
use crate::knowledge::{AS_OF, CpuArchitecture, RELEASES, Wheel, oldest_driver, release};
use crate::python::Torch;
use crate::version::{Capability, CompiledFor, CudaVersion, GpuCompatibility};

/// Fault of PyTorch, and the wheel that fixes it.
pub(super) struct Verdict {
    pub(super) findings: Vec<Finding>,
    pub(super) wheel: Option<Wheel>,
}

pub(super) fn findings(case: &MachineFacts<'_>) -> Verdict {
    let mut verdict = Verdict { findings: Vec::new(), wheel: None };
    let Some(torch) = case.torch() else { return verdict };
    verdict.findings.extend(not_imported(torch));
    if let Some(wrong) = wrong_build(case, torch) {
        verdict.wheel = case.wheel().filter(|wheel| !is_there(torch, wheel));
        verdict.findings.push(if verdict.wheel.is_some() { wrong } else { without_wheel(case, wrong) });
    }
    verdict.findings.extend(unknown_release(torch));
    verdict.findings.extend(compiled_at_start(case, torch));
    verdict.findings.extend(failed(case));
    verdict
}

fn is_there(torch: &Torch, wheel: &Wheel) -> bool {
    torch.cuda == Some(wheel.cuda) && torch.version == wheel.torch && torch.import_error.is_none()
}

/// Reason for which another build of PyTorch is needed.
fn wrong_build(case: &MachineFacts<'_>, torch: &Torch) -> Option<Finding> {
    if !case.has_gpu() {
        return None;
    }
    let Some(cuda) = torch.cuda else { return Some(without_cuda(case, torch)) };
    old_driver(case, torch, cuda).or_else(|| not_compiled_for(case, torch, cuda))
}

fn without_cuda(case: &MachineFacts<'_>, torch: &Torch) -> Finding {
    let version = &torch.version;
    if torch.is_rocm {
        let seen = format!("PyTorch {version} is built for AMD's GPUs");
        return Finding::problem(
            "torch-for-amd",
            seen,
            "It cannot use an NVIDIA GPU. The commands replace it by the build that can.",
        );
    }
    let on_arm = match case.cpu() {
        Some(CpuArchitecture::Arm) => {
            " On ARM machines a plain `pip install torch` gave this build for years, so the address of the other one is part of the \
             command."
        }
        _ => "",
    };
    let seen = format!("PyTorch {version} is a CPU-only build: it cannot use a GPU, whatever else is installed");
    let why = format!(
        "PyTorch comes in builds with and without CUDA, NVIDIA's way to compute on GPUs. The commands replace yours.{on_arm}"
    );
    Finding::problem("torch-without-cuda", seen, why).explained_by(match case.cpu() {
        Some(CpuArchitecture::Arm) => Topic::Arm,
        _ => Topic::Cpu,
    })
}

fn old_driver(case: &MachineFacts<'_>, torch: &Torch, cuda: CudaVersion) -> Option<Finding> {
    let (driver, oldest) = (case.driver()?, oldest_driver(cuda)?);
    if *driver >= oldest {
        return None;
    }
    let seen =
        format!("the driver, {driver}, is too old for PyTorch {}, which was built with CUDA {cuda}", torch.version);
    let newer = install_driver(case, Some(oldest.number(0)));
    let newer = newer.map(|command| format!(", for example by `{command}` and a restart")).unwrap_or_default();
    let why = format!(
        "What is built with CUDA {cuda} needs driver {oldest} or newer{newer}. The commands below leave the driver alone and install a \
         build of PyTorch that this driver can run."
    );
    Some(Finding::problem("driver-too-old", seen, why))
}

fn not_compiled_for(case: &MachineFacts<'_>, torch: &Torch, cuda: CudaVersion) -> Option<Finding> {
    let compiled = compiled_for(case, torch, cuda)?;
    let gpu = case.capabilities().into_iter().find(|&gpu| compiled.fit(gpu) == GpuCompatibility::Nothing)?;
    let seen = format!(
        "PyTorch {} has no code for this GPU: it is of compute capability {gpu} ({}), and the build is for {compiled}",
        torch.version,
        gpu.sm()
    );
    let newer = if gpu >= Capability::new(10, 0) {
        " GPUs of the Blackwell family, such as RTX 50, need a build for CUDA 12.8 or newer."
    } else {
        ""
    };
    let why = format!(
        "Every GPU family understands instructions of its own, named by its compute capability. Work on this GPU ends with `no kernel \
         image is available for execution on the device`. The commands install the build that has code for it.{newer}"
    );
    Some(Finding::problem("gpu-not-compiled-for", seen, why).explained_by(Topic::Architectures))
}

/// GPUs that PyTorch was compiled for, as it reports or by the table.
fn compiled_for(case: &MachineFacts<'_>, torch: &Torch, cuda: CudaVersion) -> Option<CompiledFor> {
    if !torch.compiled_for.is_empty() {
        return Some(torch.compiled_for.clone());
    }
    let cpu = case.cpu()?;
    let gpus = release(&torch.version)?.build(cuda, cpu)?.gpus(cpu);
    (!gpus.is_empty()).then_some(gpus)
}

/// The finding, if the tables have no wheel that would fix it.
fn without_wheel(case: &MachineFacts<'_>, mut finding: Finding) -> Finding {
    let python =
        case.python.and_then(|python| python.version.as_ref()).map(|version| format!(" with Python {version}"));
    finding.why = format!(
        "{} No build of PyTorch is known (as of {AS_OF}) that suits this machine{}; a newer driver, or a newer Python, may open more of \
         them.",
        finding.why.split(" The commands").next().unwrap_or_default(),
        python.unwrap_or_default()
    );
    finding.mended_by(case.driver().and_then(|_| install_driver(case, Some(580))))
}

fn not_imported(torch: &Torch) -> Option<Finding> {
    let error = torch.import_error.as_ref()?;
    let why = "PyTorch is installed and does not start. What it says names what is missing or broken; installing it anew usually mends it.";
    Some(Finding::problem("torch-not-imported", format!("`import torch` fails: {error}"), why))
}

fn unknown_release(torch: &Torch) -> Option<Finding> {
    if release(&torch.version).is_some() {
        return None;
    }
    let (major, minor) = RELEASES[0].version;
    let seen = format!("PyTorch {} is not in the tables of this program", torch.version);
    let why = format!(
        "The tables know the releases from 2.0 to {major}.{minor}, as of {AS_OF}. Which builds of this one there are is unknown here; \
         what was run and measured is not affected."
    );
    Some(Finding::note("torch-unknown", seen, why))
}

/// PTX, which a new enough driver compiles at the first use.
fn compiled_at_start(case: &MachineFacts<'_>, torch: &Torch) -> Option<Finding> {
    let cuda = torch.cuda?;
    let compiled = compiled_for(case, torch, cuda)?;
    let gpu = case.capabilities().into_iter().find(|&gpu| compiled.fit(gpu) == GpuCompatibility::Ptx)?;
    if case.driver_cuda().is_some_and(|known| known < cuda) {
        let seen = format!(
            "PyTorch {} brings code for this GPU ({}) in a form that the driver is too old to compile",
            torch.version,
            gpu.sm()
        );
        let why = format!(
            "The form, PTX, was made by CUDA {cuda}, which is newer than what the driver knows. Install a newer driver and restart the \
             machine."
        );
        let finding = Finding::problem("ptx-too-new", seen, why);
        let branch =
            crate::knowledge::DRIVERS.iter().find(|row| row.cuda == cuda)?.version.split('.').next()?.parse().ok();
        return Some(finding.mended_by(install_driver(case, branch)));
    }
    let seen = format!(
        "PyTorch {} has no machine code for this GPU ({}); the driver compiles its PTX",
        torch.version,
        gpu.sm()
    );
    let why = "That works, and takes minutes at the first start and again whenever the driver's cache of compiled code is too small.";
    Some(Finding::note("compiled-at-start", seen, why).explained_by(Topic::JitCache))
}

/// An operation of PyTorch itself that failed on a device.
fn failed(case: &MachineFacts<'_>) -> Option<Finding> {
    let is_torch = |operation: &str| operation.starts_with("torch.");
    let run = case.python?.runs.iter().find(|run| is_torch(&run.operation) && run.error.is_some())?;
    let seen =
        format!("{} was run on {} and failed: {}", run.operation, run.device, run.error.as_deref().unwrap_or_default());
    let why = "PyTorch itself cannot compute on this device, so neither can anything that is built on it.";
    Some(Finding::problem("torch-run-failed", seen, why))
}

/// PyTorch sees no GPU, and no other finding explains it.
pub(super) fn unexplained(case: &MachineFacts<'_>, found: &[Finding]) -> Option<Finding> {
    let torch = case.torch().filter(|torch| torch.cuda.is_some() && torch.is_available == Some(false))?;
    if !case.has_gpu() || found.iter().any(|finding| finding.severity == Severity::Problem) {
        return None;
    }
    let seen =
        format!("PyTorch {} sees no GPU, though there is one, and nothing else that is wrong was found", torch.version);
    let why = "`torch.cuda.is_available()` is false. The command lets PyTorch say what the driver answers.";
    let executable = crate::quote::quote(&case.python?.executable.to_string_lossy());
    Some(
        Finding::problem("torch-sees-no-gpu", seen, why)
            .mended_by([format!("{executable} -c 'import torch; torch.cuda.init()'")]),
    )
}
