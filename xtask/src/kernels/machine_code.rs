//! Waits for memory in a recurrence's loop, read from the machine code.
//!
//! A step's loads are submitted one step ahead, so that they are on their way during a product. A
//! later instruction that reads or replaces a loaded register waits for the load. If it stands
//! before the product, every step takes as long as memory; the compiler may place it there where
//! the source does not. PTX does not show it, the control bits of the machine code do.
//!
//! Control bits of an instruction of 128 bits since compute capability 7.0: bits 110 to 112 name
//! the barrier that its result sets (7: none), bits 116 to 121 the barriers that it waits for.
//! Source: Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking (2018),
//! 2.1.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use super::compiler::Compiler;

/// The GPU whose code is read: the persistent kernels are made for it.
const TARGET: &str = "sm_90";

/// Number of a barrier that means none.
const NO_BARRIER: u64 = 7;

#[derive(Debug, Default)]
struct Kernel {
    name: String,
    instructions: Vec<Instruction>,
    /// Place of each label among the instructions.
    labels: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Instruction {
    text: String,
    /// Barrier that is set when the result is there.
    sets: u64,
    /// Barriers that are waited for before, a bit each.
    waits: u64,
}

/// Prints the loads in the loops of `source`'s kernels that multiply matrices.
///
/// # Errors
/// A load that is waited for before a product.
pub(super) fn check(compiler: &Compiler, source: &Path, ptx: &str) -> Result<()> {
    let mut faults = Vec::new();
    for kernel in kernels(&compiler.disassemble(ptx, TARGET)?) {
        for loop_body in kernel.loops().filter(|body| body.iter().any(|one| is(one, "HMMA")) && loads(body) > 0) {
            let early = early_waits(loop_body);
            println!(
                "  {:20} {} loads in the loop, {} waited for before a product",
                kernel.name,
                loads(loop_body),
                early.len()
            );
            faults.extend(early.into_iter().map(|text| format!("{}: {}: {text}", source.display(), kernel.name)));
        }
    }
    if !faults.is_empty() {
        bail!("every step of these kernels waits for memory:\n{}", faults.join("\n"));
    }
    Ok(())
}

impl Kernel {
    /// Instructions from the target of each backward branch to the branch.
    fn loops(&self) -> impl Iterator<Item = &[Instruction]> {
        self.instructions.iter().enumerate().filter_map(|(end, instruction)| {
            let target = is(instruction, "BRA").then(|| instruction.text.split_whitespace().last()).flatten()?;
            let start = *self.labels.get(target.trim_matches(['`', '(', ')']))?;
            (start <= end).then(|| &self.instructions[start..=end])
        })
    }
}

/// True for an instruction of this name, whatever its predicate and its modifiers.
fn is(instruction: &Instruction, name: &str) -> bool {
    let mut words = instruction.text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let operation = if first.starts_with('@') { words.next().unwrap_or_default() } else { first };
    operation.split('.').next() == Some(name)
}

fn is_load(instruction: &Instruction) -> bool {
    is(instruction, "LDG") && instruction.sets != NO_BARRIER
}

fn loads(body: &[Instruction]) -> usize {
    body.iter().filter(|one| is_load(one)).count()
}

/// Loads of a loop that an instruction waits for before the next product, in words.
fn early_waits(body: &[Instruction]) -> Vec<String> {
    let loads = body.iter().enumerate().filter(|(_, one)| is_load(one));
    let waits = loads.filter_map(|(place, load)| {
        let before_product = body[place + 1..].iter().take_while(|one| !is(one, "HMMA"));
        let waiting = before_product.into_iter().find(|one| one.waits >> load.sets & 1 == 1)?;
        Some(format!("`{}` is waited for by `{}`", load.text, waiting.text))
    });
    waits.collect()
}

/// The kernels of `nvdisasm -hex`: a line an instruction with its lower half as a number, and a
/// line with the upper half.
fn kernels(listing: &str) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = Vec::new();
    let mut text = None;
    for line in listing.lines() {
        if let Some(name) = line.strip_prefix(".text.").and_then(|line| line.strip_suffix(':')) {
            kernels.push(Kernel { name: name.to_owned(), ..Kernel::default() });
        }
        let Some(kernel) = kernels.last_mut() else { continue };
        if let Some(label) = line.strip_suffix(':').filter(|label| label.starts_with(".L_")) {
            kernel.labels.insert(label.to_owned(), kernel.instructions.len());
        }
        let Some(number) = number(line) else { continue };
        match text.take() {
            None => text = instruction_text(line),
            Some(text) => {
                kernel.instructions.push(Instruction { text, sets: number >> 46 & 7, waits: number >> 52 & 63 });
            }
        }
    }
    kernels
}

/// The number in the last comment of a line: `/* 0x0000001004037981 */`.
fn number(line: &str) -> Option<u64> {
    let (_, comment) = line.rsplit_once("/* 0x")?;
    u64::from_str_radix(comment.trim_end().strip_suffix("*/")?.trim_end(), 16).ok()
}

/// `LDG.E R3, desc[UR16][R4.64]` of a line with an instruction.
fn instruction_text(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("*/")?;
    Some(rest.split_once(';')?.0.trim().to_owned())
}

#[test]
fn a_load_that_is_waited_for_before_the_product_is_found() {
    // A load into barrier 2; with `waits`, an instruction that reads it before the product.
    let listing = |waits: &str| {
        format!(
            ".text.backward:
        /*0000*/                   MOV R1, R2 ;      /* 0x0000000000000001 */
                                                     /* 0x000fe20000000000 */
.L_x_1:
        /*0010*/              @!P0 LDG.E.64 R3, desc[UR4][R4.64] ;  /* 0x0000000000000002 */
                                                     /* 0x0000a80000000000 */
        /*0020*/                   PRMT R5, R3, 0x5410, R4 ;  /* 0x0000000000000003 */
                                                     /* {waits} */
        /*0030*/                   HMMA.16816.F32.BF16 R8, R8, R12, R8 ;  /* 0x0000000000000004 */
                                                     /* 0x000fe20000000000 */
        /*0040*/                   FADD R5, R3, R3 ;  /* 0x0000000000000005 */
                                                     /* 0x004fe20000000000 */
        /*0050*/               @P0 BRA `(.L_x_1) ;  /* 0x0000000000000006 */
                                                     /* 0x000fe20000000000 */
"
        )
    };
    for (waits, expected) in [("0x000fe20000000000", 0), ("0x004fe20000000000", 1), ("0x002fe20000000000", 0)] {
        let kernels = kernels(&listing(waits));
        assert_eq!((kernels.len(), kernels[0].instructions.len()), (1, 6));
        let bodies: Vec<_> = kernels[0].loops().collect();
        assert_eq!((bodies.len(), bodies[0].len(), loads(bodies[0])), (1, 5, 1));
        assert_eq!(early_waits(bodies[0]).len(), expected, "{waits}");
    }
}
