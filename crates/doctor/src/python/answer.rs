//! Answers of a Python interpreter to a short program.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Installed, OperationRun, Torch, TorchGpu};
use crate::knowledge::EXTENSIONS;
use crate::system::System;
use crate::version::{Capability, CompiledFor, CudaVersion, Version};

const PROGRAM: &str = include_str!("probe.py");
/// Prefix of our lines, among those that packages print at import.
const MARK: &str = "megabatch-doctor ";

/// The facts received so far.
#[derive(Debug, Default)]
pub(super) struct InterpreterAnswer {
    pub(super) version: Option<String>,
    pub(super) machine: Option<String>,
    pub(super) sites: Vec<String>,
    pub(super) torch_error: Option<String>,
    pub(super) runs: Vec<OperationRun>,
    pub(super) failure: Option<String>,
    torch: Option<TorchAnswer>,
    extensions: Vec<ExtensionAnswer>,
    /// Step at which the answer broke off.
    step: Option<String>,
}

#[derive(Debug, Deserialize)]
struct TorchAnswer {
    version: String,
    cuda: Option<String>,
    hip: Option<String>,
    compiled_for: Vec<String>,
    is_available: bool,
    gpus: Vec<SeenAnswer>,
    cudnn: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct SeenAnswer {
    name: String,
    capability: (u32, u32),
}

#[derive(Debug, Deserialize)]
struct ExtensionAnswer {
    module: String,
    cuda: Option<i64>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RunAnswer {
    operation: String,
    device: String,
    error: Option<String>,
}

/// Asks the Python at `executable`, and writes nothing, compiled modules included.
pub(super) fn ask(system: &System, executable: &Path, limit: Duration) -> InterpreterAnswer {
    let ran = match system.run(executable, &["-B", "-c", PROGRAM], limit) {
        Ok(ran) => ran,
        Err(error) => return InterpreterAnswer { failure: Some(error.to_string()), ..InterpreterAnswer::default() },
    };
    let mut answer = InterpreterAnswer::default();
    for line in ran.stdout.lines() {
        if let Some((key, value)) =
            line.strip_prefix(MARK).and_then(|text| serde_json::from_str::<(String, Value)>(text).ok())
        {
            answer.take(&key, value);
        }
    }
    answer.failure = ran.fault.map(|fault| {
        let last = ran.stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let step = answer.step.as_ref().map(|step| format!(" during `{step}`")).unwrap_or_default();
        if last.is_empty() { format!("{fault}{step}") } else { format!("{fault}{step}: {last}") }
    });
    answer
}

impl InterpreterAnswer {
    /// Takes a fact; one of the wrong type is ignored.
    fn take(&mut self, key: &str, value: Value) {
        fn read<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
            serde_json::from_value(value).ok()
        }
        match key {
            "python" => self.version = read(value),
            "machine" => self.machine = read(value),
            "sites" => self.sites = read(value).unwrap_or_default(),
            "no_torch" => self.torch_error = read(value),
            "torch" => self.torch = read(value),
            "extension" => self.extensions.extend(read::<ExtensionAnswer>(value)),
            "run" => self.runs.extend(read::<RunAnswer>(value).map(OperationRun::from)),
            "step" => self.step = read(value).unwrap_or_default(),
            _ => {}
        }
    }

    pub(super) fn torch(&self) -> Option<Torch> {
        let torch = self.torch.as_ref()?;
        let seen = |gpu: &SeenAnswer| TorchGpu {
            name: gpu.name.clone(),
            capability: Capability::new(gpu.capability.0, gpu.capability.1),
        };
        Some(Torch {
            version: Version::parse(&torch.version)?,
            cuda: torch.cuda.as_deref().and_then(CudaVersion::parse),
            is_rocm: torch.hip.is_some(),
            compiled_for: CompiledFor::parse(torch.compiled_for.iter().map(String::as_str)),
            is_available: Some(torch.is_available),
            gpus: torch.gpus.iter().map(seen).collect(),
            cudnn: torch.cudnn.and_then(cudnn_version),
            import_error: None,
        })
    }

    pub(super) fn extensions(&self) -> Vec<Installed> {
        let installed = |answer: &ExtensionAnswer| {
            let extension = EXTENSIONS.iter().find(|extension| extension.module == answer.module)?;
            Some(Installed {
                module: extension.module,
                version: None,
                tells: answer.cuda.map(cuda_version),
                import_error: answer.error.clone(),
            })
        };
        self.extensions.iter().filter_map(installed).collect()
    }
}

impl From<RunAnswer> for OperationRun {
    fn from(RunAnswer { operation, device, error }: RunAnswer) -> Self {
        OperationRun { operation, device, error }
    }
}

/// 12.8 of 12080, as CUDA's headers count; -1 is a build without CUDA.
fn cuda_version(number: i64) -> Option<CudaVersion> {
    let number = u32::try_from(number).ok()?;
    Some(CudaVersion::new(number / 1000, number % 1000 / 10))
}

/// 9.10.2 of 91002, and 8.9.2 of 8902, as cuDNN's headers count since and until 9.
fn cudnn_version(number: u32) -> Option<Version> {
    let unit = if number >= 90_000 { 10_000 } else { 1_000 };
    Version::parse(&format!("{}.{}.{}", number / unit, number % unit / 100, number % 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_headers_are_versions() {
        assert_eq!(cuda_version(12080), Some(CudaVersion::new(12, 8)));
        assert_eq!(cuda_version(11080), Some(CudaVersion::new(11, 8)));
        assert_eq!(cuda_version(-1), None);
        for (number, expected) in [(91002, "9.10.2"), (90701, "9.7.1"), (8902, "8.9.2")] {
            assert_eq!(cudnn_version(number).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn what_is_not_ours_or_broken_is_passed_over() {
        let mut answer = InterpreterAnswer::default();
        answer.take("torch", Value::Null);
        answer.take("run", serde_json::json!({ "operation": 3 }));
        answer.take("unheard-of", Value::Bool(true));
        assert!(answer.torch().is_none() && answer.runs.is_empty());
    }
}
