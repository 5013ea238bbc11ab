//! The instruction sets for products of bf16 numbers, and which of them pay.

/// The instruction sets that there are kernels on pairs for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstructionSet {
    /// The twin of `Dot`.
    #[cfg(test)]
    PortableDot,
    /// The twin of `Tiles`.
    #[cfg(test)]
    PortableTiles,
    /// The twin of `Bfdot`.
    #[cfg(test)]
    PortableBfdot,
    /// AVX512_BF16: `vdpbf16ps`.
    #[cfg(target_arch = "x86_64")]
    Dot,
    /// AMX: `tdpbf16ps`, and AVX512_BF16 to pack its operands.
    #[cfg(target_arch = "x86_64")]
    Tiles,
    /// Arm's FEAT_BF16: `bfdot`.
    #[cfg(target_arch = "aarch64")]
    Bfdot,
}

/// Proof that this CPU has an instruction set for products of pairs: only [`Bf16Isa::all`] and
/// [`Bf16Isa::best`] make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bf16Isa(InstructionSet);

impl Bf16Isa {
    /// Instruction sets of this CPU, and their twins.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Bf16Isa> {
        let mut all = Vec::new();
        let twins = [InstructionSet::PortableDot, InstructionSet::PortableTiles, InstructionSet::PortableBfdot];
        all.extend(twins.map(Bf16Isa));
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(x86::has_dots().then_some(Bf16Isa(InstructionSet::Dot)));
            all.extend(x86::has_tiles().then_some(Bf16Isa(InstructionSet::Tiles)));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(has_bfdot().then_some(Bf16Isa(InstructionSet::Bfdot)));
        all
    }

    /// The one that is faster than single precision on this CPU; `None` where none is.
    ///
    /// Intel's CPUs have two multipliers of single precision for 512 bits, and execute one
    /// `vdpbf16ps` where they execute four of these: it has half the multiply-adds a second, and
    /// is passed over there. AMX has sixteen times as many. AMD's have twice as many by
    /// `vdpbf16ps`. `bfdot` has twice those of NEON's `fmla` an instruction; its speed was not
    /// measured.
    pub(crate) fn best() -> Option<Bf16Isa> {
        #[cfg(target_arch = "x86_64")]
        {
            if x86::has_tiles() {
                return Some(Bf16Isa(InstructionSet::Tiles));
            }
            if x86::has_dots() && !x86::is_intel() {
                return Some(Bf16Isa(InstructionSet::Dot));
            }
        }
        #[cfg(target_arch = "aarch64")]
        if has_bfdot() {
            return Some(Bf16Isa(InstructionSet::Bfdot));
        }
        None
    }

    /// True for the kernels of any CPU, which take a thousand times as long.
    #[cfg(test)]
    pub(crate) fn is_twin(self) -> bool {
        self.twin().is_none()
    }

    /// The kernels of any CPU that have this one's bits; `None` for these themselves.
    #[cfg(test)]
    pub(crate) fn twin(self) -> Option<Bf16Isa> {
        match self.0 {
            InstructionSet::PortableDot | InstructionSet::PortableTiles | InstructionSet::PortableBfdot => None,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Dot => Some(Bf16Isa(InstructionSet::PortableDot)),
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Tiles => Some(Bf16Isa(InstructionSet::PortableTiles)),
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Bfdot => Some(Bf16Isa(InstructionSet::PortableBfdot)),
        }
    }

    pub(super) fn instruction_set(self) -> InstructionSet {
        self.0
    }

    /// True if a product has a start-up cost for which all units of a step are multiplied at once.
    pub(crate) fn multiplies_whole_steps(self) -> bool {
        match self.0 {
            #[cfg(test)]
            InstructionSet::PortableDot | InstructionSet::PortableBfdot => false,
            #[cfg(test)]
            InstructionSet::PortableTiles => true,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Dot => false,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Tiles => true,
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Bfdot => false,
        }
    }

    /// The name of the instruction set.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            #[cfg(test)]
            InstructionSet::PortableDot => "portable bf16",
            #[cfg(test)]
            InstructionSet::PortableTiles => "portable amx-bf16",
            #[cfg(test)]
            InstructionSet::PortableBfdot => "portable bfdot",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Dot => "bf16",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Tiles => "amx-bf16",
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Bfdot => "bfdot",
        }
    }
}

#[cfg(target_arch = "aarch64")]
fn has_bfdot() -> bool {
    use std::arch::is_aarch64_feature_detected as has;
    has!("neon") && has!("bf16")
}

/// Features of the CPU, by CPUID.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    use std::sync::OnceLock;

    use super::super::tiles;

    pub(super) fn has_dots() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bf16")
    }

    /// True if the CPU has AMX and the operating system lends the process its tiles.
    pub(super) fn has_tiles() -> bool {
        /// AMX-BF16 and AMX-TILE in EDX of leaf 7.
        const AMX: u32 = 1 << 22 | 1 << 24;
        static LENT: OnceLock<bool> = OnceLock::new();
        *LENT.get_or_init(|| has_dots() && __cpuid_count(7, 0).edx & AMX == AMX && tiles::request())
    }

    pub(super) fn is_intel() -> bool {
        let leaf = __cpuid(0);
        let vendor = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes);
        vendor.as_flattened() == b"GenuineIntel"
    }
}
