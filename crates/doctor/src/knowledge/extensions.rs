//! Extensions of PyTorch that are built for one version of it and of CUDA.

use super::CpuArchitecture;
use crate::version::{CudaVersion, Version};

/// An extension.
#[derive(Clone, Copy, Debug)]
pub struct Extension {
    /// The name by which Python imports it.
    pub module: &'static str,
    /// The name by which pip installs it.
    pub package: &'static str,
}

/// Extensions examined, in the order in which they are installed: torch_sparse uses torch_scatter.
///
/// Their wheels carry what they were built for in their version: `2.1.2+pt27cu128` is for PyTorch
/// 2.7 and CUDA 12.8, `2.1.2+pt27cpu` for no GPU. Confirmed:
/// <https://data.pyg.org/whl/torch-2.8.0+cu128.html>.
pub const EXTENSIONS: &[Extension] = &[
    Extension { module: "torch_scatter", package: "torch-scatter" },
    Extension { module: "torch_sparse", package: "torch-sparse" },
    Extension { module: "torch_cluster", package: "torch-cluster" },
    Extension { module: "pyg_lib", package: "pyg-lib" },
];

/// The address where the wheels for a PyTorch and a CUDA are listed:
/// `https://data.pyg.org/whl/torch-${TORCH}+${CUDA}.html`, in which the last number of PyTorch's
/// version is 0, because wheels serve all patches of a release. Confirmed:
/// <https://github.com/pyg-team/pyg-lib>, and by the indexes of 2.0 (CUDA 11.8), 2.4 (12.4), 2.8
/// and 2.9 (12.8), 2.11 and 2.12 (13.0).
pub fn index(torch: &Version, cuda: CudaVersion) -> String {
    let (major, minor) = torch.minor();
    format!("https://data.pyg.org/whl/torch-{major}.{minor}.0+{}.html", cuda.tag())
}

/// True if the extensions have CUDA wheels for `cpu`. Confirmed for aarch64, where there are
/// none: the indexes of 2.8 (CUDA 12.8) and 2.12 (CUDA 13.0) list `linux_x86_64` alone. The index
/// of 2.12 *without* CUDA has `linux_aarch64` wheels of torch_scatter, which do not use a GPU.
pub fn has_cuda_wheels(cpu: CpuArchitecture) -> bool {
    cpu == CpuArchitecture::X86
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_for_all_patches_of_a_release() {
        let torch = Version::parse("2.7.1+cu128").unwrap();
        assert_eq!(index(&torch, CudaVersion::new(12, 8)), "https://data.pyg.org/whl/torch-2.7.0+cu128.html");
    }
}
