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
            if is_x86_feature_detected!("avx512f") {
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

    /// The name of the instruction set.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            InstructionSet::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => "avx512",
        }
    }
}
