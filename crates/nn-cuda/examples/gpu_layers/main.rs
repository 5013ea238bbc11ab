//! How long LSTM layers take on a GPU, made of the operations in `ops` as a training step makes
//! them: a case a line in, an answer a line out, both JSON, so that another program can be asked in
//! turn. `benches/peers/gpu_speed.py` does, and prints a table; `scripts/gpu-check` runs that.
//!
//! ```text
//! echo '{"hidden":128,"layers":1,"features":16,"batch":64,"steps":256,
//!        "precision":"bf16","budget_s":0.1}' | tr -d '\n' |
//!     cargo run --release -p megabatch-nn-cuda --example gpu_layers -- [--device N | --device cpu]
//! ```

#[path = "../device/mod.rs"]
mod device;
mod measure;

use std::io::{BufRead, Write};
use std::process::ExitCode;

use megabatch_gpu_core::Device;

const USAGE: &str = "gpu_layers [--device N | --device cpu] < cases";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let device = match device::named("gpu_layers", USAGE, &words) {
        Ok(device) => device,
        Err(code) => return code,
    };
    match answer(&device) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu_layers: {error}");
            ExitCode::from(2)
        }
    }
}

/// Answers until there are no more cases. What the device refuses, as where memory is short, is an
/// answer too: the next case may be smaller.
fn answer(device: &Device) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let case = serde_json::from_str(&line?)?;
        let answer = measure::measure(device, &case).unwrap_or_else(|error| measure::Answer::failed(&error));
        device.empty_cache();
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        out.flush()?;
    }
    Ok(())
}
