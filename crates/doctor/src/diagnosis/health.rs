//! Health of the GPUs: holders of their memory, errors, slowdowns.

use super::MachineFacts;
use crate::explain::Topic;
use crate::finding::Finding;
use crate::management::{Gpu, Holder};

/// Memory that other processes may use without a finding: that of a desktop.
const HELD_BYTES_MAX: u64 = 1 << 30;

pub(super) fn findings(case: &MachineFacts<'_>) -> Vec<Finding> {
    let gpus = case.management.gpus.iter().enumerate();
    gpus.flat_map(|(index, gpu)| [held(index, gpu), errors(index, gpu), slowed(index, gpu)]).flatten().collect()
}

fn held(index: usize, gpu: &Gpu) -> Option<Finding> {
    if gpu.used_bytes <= HELD_BYTES_MAX {
        return None;
    }
    let holder = |holder: &Holder| {
        let name = if holder.name.is_empty() { "a process" } else { &holder.name };
        let bytes = holder.bytes.map(|bytes| format!(" with {}", gib(bytes))).unwrap_or_default();
        format!("{name} (number {}){bytes}", holder.pid)
    };
    let holders: Vec<String> = gpu.holders.iter().map(holder).collect();
    let holders_text = if holders.is_empty() {
        "by processes that cannot be seen from here".to_owned()
    } else {
        format!("by {}", holders.join(", "))
    };
    let seen = format!(
        "{} of the {} of GPU {index} ({}) are in use: {holders_text}",
        gib(gpu.used_bytes),
        gib(gpu.total_bytes),
        gpu.name
    );
    let why = "What others hold is not there for training, which may run out of memory though it would fit the GPU alone. The command \
               shows whose the processes are and since when they run; `kill NUMBER` ends one that is yours and forgotten.";
    let finding = Finding::warning("memory-held", seen, why).explained_by(Topic::BatchSize);
    let numbers: Vec<String> = gpu.holders.iter().map(|holder| holder.pid.to_string()).collect();
    Some(if numbers.is_empty() {
        finding
    } else {
        finding.mended_by([format!("ps -o user,pid,lstart,cmd -p {}", numbers.join(","))])
    })
}

fn errors(index: usize, gpu: &Gpu) -> Option<Finding> {
    let count = gpu.uncorrected_errors.filter(|&count| count > 0)?;
    let seen = format!("the memory of GPU {index} ({}) has had {count} errors that could not be corrected", gpu.name);
    let why = "A bit of its memory was wrong when it was read, and programs that used it were ended or computed with a wrong number. The \
               command resets the GPU, which sets faulty memory aside; end all programs on it before. If errors come back, the GPU is to \
               be exchanged.";
    Some(Finding::problem("memory-errors", seen, why).mended_by([format!("sudo nvidia-smi --gpu-reset -i {index}")]))
}

fn slowed(index: usize, gpu: &Gpu) -> Option<Finding> {
    if gpu.slowdowns.is_empty() {
        return None;
    }
    let heat = gpu.celsius.map(|celsius| format!(" at {celsius} °C")).unwrap_or_default();
    let seen = format!("GPU {index} ({}) slows itself down{heat}: {}", gpu.name, gpu.slowdowns.join(", "));
    let why = "It protects itself against heat or too much power, and trains at a fraction of its speed meanwhile. Look at its cooling \
               and at its power supply; the command shows the limits and what it measures.";
    let command = format!("nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {index}");
    Some(Finding::warning("slowed-down", seen, why).mended_by([command]))
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
