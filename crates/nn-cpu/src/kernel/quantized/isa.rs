#![forbid(unsafe_code)]

use super::GROUP;

/// The instruction sets that there are kernels on bytes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstructionSet {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "aarch64")]
    NeonDotprod,
    #[cfg(target_arch = "aarch64")]
    NeonI8mm,
}

/// Proof that this CPU has an instruction set for products of bytes: only [`Int8Isa::all`]
/// makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int8Isa(InstructionSet);

impl Int8Isa {
    /// Instruction sets of this CPU, the best first.
    pub(crate) fn all() -> Vec<Int8Isa> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let parts = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl");
            let has_avx512_vnni =
                is_x86_feature_detected!("avx512f") && parts && is_x86_feature_detected!("avx512vnni");
            let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let has_avx_vnni = has_avx2 && is_x86_feature_detected!("avxvnni");
            all.extend(has_avx512_vnni.then_some(Int8Isa(InstructionSet::Avx512Vnni)));
            all.extend(has_avx_vnni.then_some(Int8Isa(InstructionSet::AvxVnni)));
            all.extend(has_avx2.then_some(Int8Isa(InstructionSet::Avx2)));
        }
        #[cfg(target_arch = "aarch64")]
        {
            use std::arch::is_aarch64_feature_detected as has;
            all.extend((has!("neon") && has!("i8mm")).then_some(Int8Isa(InstructionSet::NeonI8mm)));
            all.extend((has!("neon") && has!("dotprod")).then_some(Int8Isa(InstructionSet::NeonDotprod)));
        }
        all.extend([Int8Isa(InstructionSet::Portable)]);
        all
    }

    /// The best one.
    pub(crate) fn best() -> Int8Isa {
        Int8Isa::all()[0]
    }

    /// Inputs whose products are added at once.
    pub(super) fn group(self) -> usize {
        match self.0 {
            InstructionSet::Portable => GROUP,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 | InstructionSet::AvxVnni | InstructionSet::Avx512Vnni => GROUP,
            #[cfg(target_arch = "aarch64")]
            InstructionSet::NeonDotprod => GROUP,
            #[cfg(target_arch = "aarch64")]
            InstructionSet::NeonI8mm => 2 * GROUP,
        }
    }

    pub(super) fn instruction_set(self) -> InstructionSet {
        self.0
    }
}
