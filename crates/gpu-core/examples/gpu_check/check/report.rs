//! On which machine a table was made.
use megabatch_gpu_core::cuda::Properties;

/// The head of a section of docs/measurements/gpu-results.md.
pub(super) fn head(gpu: &Properties, date: &str) -> String {
    let (major, minor) = gpu.compute_capability;
    format!(
        "## {}, {date}\n\nCompute capability {major}.{minor}, {} multiprocessors, {:.1} GiB; driver {}, CUDA {}; host {}, {}.\n",
        gpu.name,
        gpu.multiprocessors,
        gpu.total_bytes as f64 / f64::from(1 << 30),
        kernel_driver().unwrap_or_else(|| "unknown".to_owned()),
        gpu.driver_version,
        processor().unwrap_or_else(|| "unknown".to_owned()),
        std::env::consts::ARCH,
    )
}

/// `550.54.15`, off the first line of the kernel module's own account of itself.
fn kernel_driver() -> Option<String> {
    let account = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    account.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

fn processor() -> Option<String> {
    let account = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = account.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
