//! Resources of a kernel on each GPU: registers, spilled bytes, shared memory, as ptxas reports
//! them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::compiler::Compiler;

/// A100, consumer Ampere, Ada, Hopper, data-centre and consumer Blackwell.
pub(super) const TARGETS: [&str; 6] = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"];

/// Resources of one kernel on one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    registers: u32,
    spilled_bytes: u32,
    shared_bytes: u32,
}

/// Assembles `ptx` for every target and prints a line for each kernel.
pub(super) fn report(compiler: &Compiler, source: &Path, ptx: &str) -> Result<()> {
    let mut kernels: BTreeMap<String, Vec<Use>> = BTreeMap::new();
    for target in TARGETS {
        let messages = compiler.assemble(ptx, target);
        let messages = messages.with_context(|| format!("{} does not assemble for {target}", source.display()))?;
        for (kernel, used) in uses(&messages) {
            kernels.entry(kernel).or_default().push(used);
        }
    }
    for (kernel, uses) in kernels {
        let list =
            |value: fn(&Use) -> u32| uses.iter().map(|used| value(used).to_string()).collect::<Vec<_>>().join(" ");
        let shared_bytes = uses.iter().map(|used| used.shared_bytes).max().unwrap_or_default();
        let (registers, spilled) = (list(|used| used.registers), list(|used| used.spilled_bytes));
        println!("  {kernel:20} registers {registers}  spilled {spilled}  shared {shared_bytes} bytes");
    }
    Ok(())
}

fn uses(messages: &str) -> Vec<(String, Use)> {
    let mut kernels: Vec<(String, Use)> = Vec::new();
    for line in messages.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            kernels.push((rest.split('\'').next().unwrap_or_default().to_owned(), Use::default()));
        }
        let Some((_, used)) = kernels.last_mut() else { continue };
        for part in line.split([',', ':']).map(str::trim) {
            let number = |part: &str| part.split_whitespace().find_map(|word| word.parse::<u32>().ok()).unwrap_or(0);
            if part.ends_with("registers") {
                used.registers = number(part);
            } else if part.ends_with("spill stores") || part.ends_with("spill loads") {
                used.spilled_bytes += number(part);
            } else if part.ends_with("bytes smem") {
                used.shared_bytes = number(part);
            }
        }
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptxas_is_read() {
        let messages = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'sum' for 'sm_80'\n\
            ptxas info    : Function properties for sum\n\
            \u{20}   0 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\n\
            ptxas info    : Used 23 registers, used 1 barriers, 1024 bytes smem, 380 bytes cmem[0]\n\
            ptxas info    : Compiling entry function 'fill' for 'sm_80'\n\
            \u{20}   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 20 registers, used 0 barriers\n";
        let expected = [
            ("sum".to_owned(), Use { registers: 23, spilled_bytes: 40, shared_bytes: 1024 }),
            ("fill".to_owned(), Use { registers: 20, spilled_bytes: 0, shared_bytes: 0 }),
        ];
        assert_eq!(uses(messages), expected);
    }
}
