//! What was found, as a table.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use megabatch_gpu_core::cuda::Properties;

pub(crate) struct Report {
    pub(super) properties: Properties,
    pub(super) checks: Vec<Check>,
    pub(super) stress_events: usize,
    pub(super) stress_driver_calls: u64,
    pub(super) copying: Copying,
}

pub(super) struct Check {
    pub(super) name: String,
    pub(super) fault: Option<String>,
    pub(super) seconds: f64,
}

pub(super) struct Copying {
    /// Bytes that each copy moves.
    pub(super) bytes: usize,
    pub(super) rates: Vec<Rate>,
}

pub(super) struct Rate {
    pub(super) name: &'static str,
    pub(super) gb_per_s: f64,
}

impl Report {
    pub(crate) fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.fault.is_none())
    }

    /// A section of docs/gpu-results.md.
    pub(crate) fn markdown(&self, date: &str) -> String {
        let gpu = &self.properties;
        let mut text = format!("## {}, {date}\n\n", gpu.name);
        let (major, minor) = gpu.compute_capability;
        let _ = writeln!(
            text,
            "Compute capability {major}.{minor}, {} multiprocessors, {:.1} GiB; driver {}, CUDA {}; host {}, {}.\n",
            gpu.multiprocessors,
            gpu.total_bytes as f64 / f64::from(1 << 30),
            kernel_driver().unwrap_or_else(|| "unknown".to_owned()),
            gpu.driver_version,
            processor().unwrap_or_else(|| "unknown".to_owned()),
            std::env::consts::ARCH,
        );
        text += "| check | result | s |\n| --- | --- | ---: |\n";
        for Check { name, fault, seconds } in &self.checks {
            let result = fault.as_ref().map_or("ok".to_owned(), |fault| format!("**failed**: {}", in_a_cell(fault)));
            let _ = writeln!(text, "| {name} | {result} | {seconds:.2} |");
        }
        let _ = writeln!(
            text,
            "\nThe pool made {} driver calls for {} random allocations.\n\n| bytes moved, {} MiB at a time | GB/s |\n| --- | ---: |",
            self.stress_driver_calls,
            self.stress_events,
            self.copying.bytes >> 20,
        );
        for Rate { name, gb_per_s } in &self.copying.rates {
            let _ = writeln!(text, "| {name} | {gb_per_s:.1} |");
        }
        text
    }
}

fn in_a_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
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
