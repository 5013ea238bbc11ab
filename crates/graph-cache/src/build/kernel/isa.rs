#![forbid(unsafe_code)]

/// The instruction sets that there are kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstructionSet {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Proof that this processor has an instruction set: only [`Isa::best`] and, for tests, `all` make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Isa(InstructionSet);

impl Isa {
    /// The best that this processor has.
    pub(crate) fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                return Isa(InstructionSet::Avx512);
            }
            if Isa::has_avx2() {
                return Isa(InstructionSet::Avx2);
            }
        }
        Isa(InstructionSet::Portable)
    }

    #[cfg(target_arch = "x86_64")]
    fn has_avx2() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }

    /// Those that this processor has.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Isa> {
        let mut all = vec![Isa(InstructionSet::Portable)];
        #[cfg(target_arch = "x86_64")]
        all.extend(Isa::has_avx2().then_some(Isa(InstructionSet::Avx2)));
        all.push(Isa::best());
        all.dedup();
        all
    }

    pub(super) fn instruction_set(self) -> InstructionSet {
        self.0
    }
}
