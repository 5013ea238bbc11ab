//! Packages that would replace PyTorch when they are next installed.

use super::Case;
use crate::finding::Finding;
use crate::knowledge::Processor;
use crate::repair::Installer;

pub(super) fn findings(case: &Case<'_>) -> Vec<Finding> {
    let Some((python, torch)) = case.python.zip(case.torch()).filter(|(_, torch)| torch.cuda.is_some()) else {
        return Vec::new();
    };
    let architecture = python.machine.as_deref().unwrap_or(&case.machine.architecture);
    let installer = Installer::of(python);
    let finding = |distribution: &crate::python::Distribution| {
        let asked = distribution
            .requires
            .iter()
            .find(|asked| asked.name == "torch" && asked.applies(architecture) && !asked.admits(&torch.version))?;
        let seen = format!(
            "{} {} asks for torch{}, and PyTorch {} is installed",
            distribution.name, distribution.version, asked.versions, torch.version
        );
        let build = match case.processor() {
            Some(Processor::Arm) => "usually the one without CUDA on ARM",
            _ => "perhaps for another CUDA version than yours, or for none",
        };
        let why = format!(
            "When this package is next installed or updated, pip replaces your PyTorch by the build that it finds in its own index: \
             {build}. The command installs the package and leaves PyTorch alone."
        );
        let command = installer.pip("install", &["--no-deps".to_owned(), distribution.name.clone()]);
        Some(Finding::warning("would-replace-torch", seen, why).mended_by([command]))
    };
    python.distributions.iter().filter_map(finding).collect()
}
