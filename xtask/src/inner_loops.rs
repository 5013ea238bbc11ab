//! Innermost loops of the CPU engine's kernels, read from the machine code as objdump prints it.
//!
//! A loop goes from the target of a backward branch to the branch, and is innermost where no other
//! lies inside. A kernel has several, for tiles of some rows and of few, for LSTM and for GRU:
//! [`Kernel`] says which one is counted.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Modules of `megabatch_nn_cpu::kernel` with the kernels of an instruction set, and its name.
/// AVX2, which the others are read beside, comes first.
const MODULES: &[(&str, &str)] = &[
    ("avx2", "AVX2"),
    ("avx512", "AVX-512"),
    ("neon", "NEON"),
    ("attention::avx2", "AVX2"),
    ("attention::avx512", "AVX-512"),
    ("attention::neon", "NEON"),
    ("bf16::dot", "AVX512_BF16"),
    ("bf16::tiles", "AMX"),
    ("bf16::neon", "NEON, BF16"),
    ("quantized::avx2", "AVX2"),
    ("quantized::avx_vnni", "AVX-VNNI"),
    ("quantized::avx512_vnni", "AVX-512 VNNI"),
    ("quantized::neon", "NEON, dot products"),
    ("quantized::neon_i8mm", "NEON, I8MM"),
];

/// Kernels that multiply matrices, in tiles.
const PRODUCTS: &[&str] = &["product", "outer", "pairs_of_rows"];

/// A kernel for one instruction set, and one of its innermost loops: of a product the one with the
/// fewest loads for a multiply-add, which is its largest tile; else the one with the most
/// multiply-adds.
pub(crate) struct Kernel {
    name: String,
    /// Its place in [`MODULES`].
    module: usize,
    counts: Counts,
}

/// Instructions of a loop.
#[derive(Clone, Copy)]
struct Counts {
    instructions: usize,
    multiply_adds: usize,
    loads: usize,
    /// Numbers that the multiply-adds multiply and add.
    numbers: usize,
}

struct Instruction<'a> {
    address: u64,
    name: &'a str,
    operands: &'a str,
}

/// The kernels that multiply and add in a loop, in a listing of `objdump --disassemble --demangle
/// --no-show-raw-insn`.
pub(crate) fn kernels(listing: &str) -> Vec<Kernel> {
    let mut found = Vec::new();
    let mut lines = listing.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((name, module)) = kernel_at(line) else { continue };
        let mut body = Vec::new();
        while let Some(instruction) = lines.peek().copied().and_then(Instruction::parsed) {
            body.push(instruction);
            lines.next();
        }
        let loops = innermost_loops(&body).into_iter().map(Counts::count).filter(|counts| counts.multiply_adds > 0);
        let chosen = if PRODUCTS.contains(&name.rsplit("::").next().unwrap_or_default()) {
            loops.max_by(|one, other| {
                let [left, right] = [one.multiply_adds * (other.loads + 1), other.multiply_adds * (one.loads + 1)];
                left.cmp(&right).then(one.multiply_adds.cmp(&other.multiply_adds))
            })
        } else {
            loops.max_by_key(|counts| (counts.multiply_adds, Reverse(counts.instructions)))
        };
        found.extend(chosen.map(|counts| Kernel { name, module, counts }));
    }
    found
}

/// A row a kernel, each beside the same kernel for other instruction sets.
pub(crate) fn table(kernels: &[Kernel]) -> String {
    let mut sorted: Vec<&Kernel> = kernels.iter().collect();
    sorted.sort_by(|one, other| (&one.name, one.module).cmp(&(&other.name, other.module)));
    let row = |kernel: &&Kernel| {
        let Counts { instructions, multiply_adds, loads, numbers } = kernel.counts;
        let share_percent = 100.0 * multiply_adds as f64 / instructions as f64;
        let numbers = numbers as f64 / instructions as f64;
        let (name, isa) = (&kernel.name, MODULES[kernel.module].1);
        format!("| {name} | {isa} | {instructions} | {multiply_adds} | {share_percent:.0} | {loads} | {numbers:.1} |\n")
    };
    format!(
        "| kernel | instruction set | instructions | multiply-adds | share, % | loads | numbers an instruction |\n\
        | --- | --- | ---: | ---: | ---: | ---: | ---: |\n{}",
        sorted.iter().map(row).collect::<String>()
    )
}

/// The modules of which no kernel was found.
pub(crate) fn missing(kernels: &[Kernel]) -> Vec<&'static str> {
    let is_missing = |module: &usize| kernels.iter().all(|kernel| kernel.module != *module);
    (0..MODULES.len()).filter(is_missing).map(|module| MODULES[module].0).collect()
}

/// Name and module of the kernel that begins at `line`: `0000a0 <megabatch_nn_cpu::kernel::…>:`.
fn kernel_at(line: &str) -> Option<(String, usize)> {
    let (_, symbol) = line.strip_suffix(">:")?.split_once(" <megabatch_nn_cpu::kernel::")?;
    let (path, name) = symbol.rsplit_once("::")?;
    let module = MODULES.iter().position(|(known, _)| *known == path)?;
    // A function that link-time optimisation has renamed has more after its name.
    let name = name.split([' ', '.']).next().unwrap_or_default();
    let folder = path.rsplit_once("::").map(|(folder, _)| format!("{folder}::"));
    Some((folder.unwrap_or_default() + name, module))
}

fn innermost_loops<'a, 'b>(body: &'b [Instruction<'a>]) -> Vec<&'b [Instruction<'a>]> {
    let backward = body.iter().enumerate().filter_map(|(end, branch)| {
        let target = branch.target()?;
        let start = body.binary_search_by_key(&target, |instruction| instruction.address).ok()?;
        (start <= end).then_some((start, end))
    });
    let loops: BTreeSet<(usize, usize)> = backward.collect();
    let has_inner =
        |outer: &(usize, usize)| loops.iter().any(|inner| inner != outer && outer.0 <= inner.0 && inner.1 <= outer.1);
    loops.iter().filter(|outer| !has_inner(outer)).map(|&(start, end)| &body[start..=end]).collect()
}

impl Counts {
    fn count(body: &[Instruction<'_>]) -> Self {
        let numbers: Vec<usize> = body.iter().filter_map(Instruction::numbers).collect();
        Counts {
            instructions: body.len(),
            multiply_adds: numbers.len(),
            loads: body.iter().filter(|instruction| instruction.is_load()).count(),
            numbers: numbers.iter().sum(),
        }
    }
}

impl<'a> Instruction<'a> {
    /// Parses a line that has an address, a colon, a tab and an instruction.
    fn parsed(line: &'a str) -> Option<Self> {
        let (address, text) = line.split_once(":\t")?;
        let address = u64::from_str_radix(address.trim_start(), 16).ok()?;
        let text = text.strip_prefix("{vex} ").unwrap_or(text);
        let (name, operands) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let operands = operands.trim_start();
        // The symbol of an address, or a comment.
        let end = [" <", "  "].into_iter().filter_map(|mark| operands.find(mark)).min();
        Some(Instruction { address, name, operands: &operands[..end.unwrap_or(operands.len())] })
    }

    /// Address that it branches to, if that is in the instruction.
    fn target(&self) -> Option<u64> {
        let is_branch = self.name.starts_with('j')
            || self.name.starts_with("b.")
            || ["b", "cbz", "cbnz", "tbz", "tbnz"].contains(&self.name);
        let last = self.operands.rsplit([' ', ',']).next()?;
        if is_branch { u64::from_str_radix(last, 16).ok() } else { None }
    }

    /// True if it reads memory, alone or beside its arithmetic.
    fn is_load(&self) -> bool {
        // On x86-64 the destination comes last.
        let reads = self.operands.rsplit_once(')').is_some_and(|(_, after)| after.contains(','));
        (reads && !self.name.starts_with("lea")) || (self.name.starts_with("ld") && self.operands.contains('['))
    }

    /// Numbers that a multiply-add multiplies and adds; `None` for other instructions.
    fn numbers(&self) -> Option<usize> {
        // x86-64 names its widest register everywhere, AArch64 the shape of a vector first.
        let bytes = [("%zmm", 64), ("%ymm", 32)].into_iter().find(|(register, _)| self.operands.contains(*register));
        let bytes = bytes.map_or(16, |(_, bytes)| bytes);
        let shape = self.operands.split(',').next().and_then(|first| first.split_once('.'));
        let lanes = shape.and_then(|(_, shape)| shape.trim_end_matches(char::is_alphabetic).parse().ok()).unwrap_or(1);
        match self.name {
            "fmla" | "fmls" => Some(lanes),
            "bfdot" => Some(2 * lanes),
            "sdot" => Some(4 * lanes),
            "smmla" => Some(8 * lanes),
            "vdpbf16ps" => Some(bytes / 2),
            "vpdpbusd" | "vpmaddubsw" => Some(bytes),
            // Sixteen rows, as many columns, 32 products each.
            "tdpbf16ps" => Some(16 * 16 * 32),
            name if ["vfmadd", "vfmsub", "vfnmadd", "vfnmsub"].into_iter().any(|start| name.starts_with(start)) => {
                Some(match &name[name.len() - 2..] {
                    "ps" => bytes / 4,
                    "pd" => bytes / 8,
                    _ => 1,
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "
0000000000000fe0 <megabatch_nn_cpu::kernel::portable::product>:
     fe0:\tvfmadd231ss %xmm0,%xmm1,%xmm2
     fe5:\tjne    fe0 <megabatch_nn_cpu::kernel::portable::product>

0000000000001000 <megabatch_nn_cpu::kernel::avx2::product>:
    1000:\tpush   %rbp
    1001:\tvbroadcastss (%rcx,%r10,4),%ymm13
    1007:\tlea    0x8(%rax),%rax
    100b:\tvfmadd231ps %ymm14,%ymm13,%ymm11
    1010:\tvfmadd231ps 0x20(%r15),%ymm13,%ymm10
    1016:\tvfmadd231ps %ymm15,%ymm13,%ymm9
    101b:\tdec    %r8
    101e:\tjne    1001 <megabatch_nn_cpu::kernel::avx2::product+0x1>
    1020:\tvmovups %ymm11,(%rdi)
    1024:\tjmp    1000 <megabatch_nn_cpu::kernel::avx2::product>
    1029:\tvmovaps 0x0(%rip),%ymm0        # 1a <ZERO+0x1a>
    1031:\tvfmadd231ps (%rsi),%ymm1,%ymm2
    1036:\tvfmadd231ps (%rsi),%ymm1,%ymm3
    103b:\tvfmadd231ps (%rsi),%ymm1,%ymm4
    1040:\tvfmadd231ps (%rsi),%ymm1,%ymm5
    1045:\tjb     1031 <megabatch_nn_cpu::kernel::avx2::product+0x31>
    104a:\tjmp    *%rax

0000000000001050 <megabatch_nn_cpu::kernel::quantized::avx_vnni::product>:
    1050:\t{vex} vpdpbusd %ymm3,%ymm9,%ymm12
    1056:\tjne    1050 <megabatch_nn_cpu::kernel::quantized::avx_vnni::product>
";

    const AARCH64: &str = "
0000000000002000 <megabatch_nn_cpu::kernel::neon::forward>:
    2000:\tldr\tq0, [x1], #16
    2004:\tld1r\t{v3.4s}, [x2]
    2008:\tfmla\tv4.4s, v0.4s, v3.s[1]
    200c:\tfmla\ts5, s0, v3.s[1]
    2010:\tprfm\tpldl2keep, [x2]
    2014:\tstr\tq4, [x3]
    2018:\tsubs\tx3, x3, #0x1
    201c:\tb.ne\t2000 <megabatch_nn_cpu::kernel::neon::forward>  // b.any
    2020:\tmov\tw0, #0x10                  \t// #16
    2024:\tfmla\tv4.4s, v0.4s, v3.s[1]
    2028:\tcbnz\tx3, 2024 <megabatch_nn_cpu::kernel::neon::forward+0x24>
    202c:\tret

0000000000002030 <megabatch_nn_cpu::kernel::neon::add>:
    2030:\tfadd\tv4.4s, v0.4s, v3.4s
    2034:\ttbnz\tw0, #3, 2030 <megabatch_nn_cpu::kernel::neon::add>
";

    fn rows(listing: &str) -> Vec<(String, &'static str, [usize; 4])> {
        let row = |kernel: Kernel| {
            let Counts { instructions, multiply_adds, loads, numbers } = kernel.counts;
            (kernel.name, MODULES[kernel.module].0, [instructions, multiply_adds, loads, numbers])
        };
        kernels(listing).into_iter().map(row).collect()
    }

    #[test]
    fn a_product_is_its_largest_tile_and_portable_code_is_left_out() {
        let expected = [
            ("product".to_owned(), "avx2", [7, 3, 2, 24]),
            ("quantized::product".to_owned(), "quantized::avx_vnni", [2, 1, 0, 32]),
        ];
        assert_eq!(rows(X86), expected);
    }

    #[test]
    fn other_kernels_are_the_loop_with_the_most_multiply_adds() {
        assert_eq!(rows(AARCH64), [("forward".to_owned(), "neon", [8, 2, 2, 5])]);
    }

    #[test]
    fn numbers_are_those_of_registers() {
        let cases = [
            ("vfmadd231ps 0x40(%rsi){1to16},%zmm1,%zmm2", Some(16)),
            ("vfnmadd213ps %ymm1,%ymm2,%ymm3", Some(8)),
            ("vfmadd213ss %xmm1,%xmm2,%xmm3", Some(1)),
            ("vdpbf16ps %zmm15,%zmm12,%zmm11", Some(32)),
            ("vpmaddubsw %ymm1,%ymm2,%ymm3", Some(32)),
            ("tdpbf16ps %tmm6,%tmm4,%tmm0", Some(8192)),
            ("vaddps %ymm1,%ymm2,%ymm3", None),
            ("bfdot\tv5.4s, v0.8h, v3.2h[1]", Some(8)),
            ("sdot\tv6.4s, v0.16b, v3.16b", Some(16)),
            ("smmla\tv7.4s, v0.16b, v3.16b", Some(32)),
            ("fmul\tv7.4s, v0.4s, v3.4s", None),
        ];
        for (text, expected) in cases {
            let line = format!("    10:\t{text}");
            assert_eq!(Instruction::parsed(&line).and_then(|one| one.numbers()), expected, "{text}");
        }
        let is_load = |line| Instruction::parsed(line).is_some_and(|one| one.is_load());
        assert!(is_load(" 0:\tvmovups (%rax),%zmm0{%k1}") && !is_load(" 0:\tvmovups %zmm0,(%rax){%k1}"));
    }

    #[test]
    fn a_kernel_stands_beside_itself_for_avx2_and_modules_without_one_are_named() {
        let listing = X86.replace("kernel::avx2::product", "kernel::neon::product") + X86;
        let found = kernels(&listing);
        let table = table(&found);
        let rows = ["| product | AVX2 | 7 | 3 | 43 | 2 | 3.4 |\n", "| product | NEON | 7 | 3 | 43 | 2 | 3.4 |\n"];
        assert!(table.contains(&rows.concat()), "{table}");
        let missing = missing(&found);
        assert!(missing.contains(&"avx512") && !missing.contains(&"neon"), "{missing:?}");
    }
}
