//! Loops compiled for each width of vectors that processors have. They are the same loops: no instruction set changes a result, since none fuses a
//! multiplication with an addition unless it is told to.

#![allow(
    unsafe_code,
    reason = "a function compiled for an instruction set may only be called where the processor has it, which is checked first"
)]

/// Loops over numbers that are to be compiled several times. `run` is inlined into each, with all that it calls.
pub(crate) trait Loops {
    type Output;

    fn run(self) -> Self::Output;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InstructionSet {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Proof that this processor has an instruction set: only this module makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Isa(InstructionSet);

impl Isa {
    /// Those that this processor has, the best last.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Isa> {
        let mut all = vec![Isa(InstructionSet::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Isa(InstructionSet::Avx2));
            }
            if has_avx512() {
                all.push(Isa(InstructionSet::Avx512));
            }
        }
        all
    }

    /// The best one.
    pub(crate) fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            if has_avx512() {
                return Isa(InstructionSet::Avx512);
            }
            if is_x86_feature_detected!("avx2") {
                return Isa(InstructionSet::Avx2);
            }
        }
        Isa(InstructionSet::Portable)
    }

    /// Runs `loops` as compiled for it.
    pub(crate) fn run<L: Loops>(self, loops: L) -> L::Output {
        match self.0 {
            InstructionSet::Portable => loops.run(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` exists only where the processor has what the function is compiled for.
            InstructionSet::Avx2 => unsafe { avx2(loops) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            InstructionSet::Avx512 => unsafe { avx512(loops) },
        }
    }
}

/// F, and the parts of it for integers of 16 bits and for conversions of 64.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
fn avx512<L: Loops>(loops: L) -> L::Output {
    loops.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<L: Loops>(loops: L) -> L::Output {
    loops.run()
}
