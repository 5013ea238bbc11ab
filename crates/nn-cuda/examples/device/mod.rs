//! The device that an example is asked for: `--device N`, `--device cpu`, or the first GPU.

use std::path::PathBuf;
use std::process::ExitCode;

use megabatch_gpu_core::{CublasLt, Device};

/// Exit code of `megabatch` itself where a device cannot be had.
const NO_DEVICE: u8 = 6;

/// The device that the command line `words` of the example `program` names, or what to exit with
/// once that was told.
pub(crate) fn named(program: &str, usage: &str, words: &[String]) -> Result<Device, ExitCode> {
    let name = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => "cuda:0".to_owned(),
        ["--device", "cpu"] => "cpu".to_owned(),
        ["--device", ordinal] if ordinal.parse::<u32>().is_ok() => format!("cuda:{ordinal}"),
        _ => {
            eprintln!("usage: {usage}");
            return Err(ExitCode::from(2));
        }
    };
    let device = Device::select(&name).map_err(|error| {
        eprintln!("{program}: {error}");
        ExitCode::from(NO_DEVICE)
    })?;
    device.set_kernel_folder(std::env::var_os("MEGABATCH_KERNELS").map(PathBuf::from));
    let folders = std::env::var_os("MEGABATCH_LIBRARIES");
    CublasLt::search_in(|| folders.iter().flat_map(std::env::split_paths).collect());
    Ok(device)
}
