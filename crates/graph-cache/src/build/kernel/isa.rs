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

/// Proof that this processor has an instruction set: only [`Isa::all`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Isa(InstructionSet);

impl Isa {
    /// Those that this processor has, the best first.
    pub(crate) fn all() -> Vec<Isa> {
        let mut all = vec![Isa(InstructionSet::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                all.insert(0, Isa(InstructionSet::Avx2));
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                all.insert(0, Isa(InstructionSet::Avx512));
            }
        }
        all
    }

    /// The best one.
    pub(crate) fn best() -> Isa {
        Isa::all()[0]
    }

    pub(super) fn instruction_set(self) -> InstructionSet {
        self.0
    }
}
