//! Instruction sets of the CPU: proof that it has one, and loops compiled for each.

#![allow(
    unsafe_code,
    reason = "a function compiled for an instruction set may only be called where the processor has it, which is checked first"
)]

/// Instruction sets with kernels of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    /// Instructions that the program was compiled for.
    Portable,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, VL, BW and DQ: all CPUs that have the first, but for the earliest, have them all.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// NEON: multiply-adds of four numbers. Almost every AArch64 CPU has it.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// Proof that this CPU has an instruction set: only [`Isa::all`] and [`Isa::best`] make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(InstructionSet);

/// Loops that are compiled for every instruction set. `run` is marked `#[inline(always)]`, and so
/// is all that it calls, to be compiled with it.
///
/// No instruction set changes a result, since compilers do not fuse a multiplication with an
/// addition on their own.
pub trait Loops {
    /// Result type.
    type Output;

    /// Runs the loops.
    fn run(self) -> Self::Output;
}

/// Compiles a kernel for one implementation of the numbers that it computes with, and for the
/// instructions that these need: `entry_point!(Avx2, ["avx2,fma"], sums => add(&Sums) -> f32)` is
/// the function `add` of a module beside `sums`, which calls `sums::add::<Avx2>`.
///
/// The kernel is marked `#[inline(always)]`, and so is all that it calls.
#[macro_export]
macro_rules! entry_point {
    ($numbers:ty, [$($features:literal)?], $($place:ident)::+ => $kernel:ident($arguments:ty) $(-> $output:ty)?) => {
        /// # Safety
        /// The pointers of the arguments reach all that their sizes say; the CPU has the
        /// instruction set of the numbers.
        // Instructions are counted by symbol. For NEON, which all CPUs of AArch64 have, it would be
        // inlined.
        $(#[target_feature(enable = $features)] #[inline(never)])?
        pub(super) unsafe fn $kernel(arguments: $arguments) $(-> $output)? {
            // SAFETY: the caller keeps this function's contract, which is the kernel's.
            unsafe { super::$($place::)+$kernel::<$numbers>(arguments) }
        }
    };
}

impl Isa {
    /// Instruction sets of this CPU, the best first.
    pub fn all() -> Vec<Isa> {
        let mut all = vec![Isa(InstructionSet::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(has_avx2().then_some(Isa(InstructionSet::Avx2)));
            all.extend(has_avx512().then_some(Isa(InstructionSet::Avx512)));
        }
        #[cfg(target_arch = "aarch64")]
        all.extend(has_neon().then_some(Isa(InstructionSet::Neon)));
        all.reverse();
        all
    }

    /// The best one.
    pub fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            if has_avx512() {
                return Isa(InstructionSet::Avx512);
            }
            if has_avx2() {
                return Isa(InstructionSet::Avx2);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if has_neon() {
            return Isa(InstructionSet::Neon);
        }
        Isa(InstructionSet::Portable)
    }

    /// The instruction set.
    pub fn instruction_set(self) -> InstructionSet {
        self.0
    }

    /// The name of the instruction set.
    pub fn name(self) -> &'static str {
        match self.0 {
            InstructionSet::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Neon => "neon",
        }
    }

    /// Runs `loops` as compiled for it.
    pub fn run<L: Loops>(self, loops: L) -> L::Output {
        match self.0 {
            InstructionSet::Portable => loops.run(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` exists only where the CPU has what the function is compiled for.
            InstructionSet::Avx2 => unsafe { avx2(loops) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            InstructionSet::Avx512 => unsafe { avx512(loops) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            InstructionSet::Neon => unsafe { neon(loops) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
}

#[cfg(target_arch = "aarch64")]
fn has_neon() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq")]
fn avx512<L: Loops>(loops: L) -> L::Output {
    loops.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<L: Loops>(loops: L) -> L::Output {
    loops.run()
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn neon<L: Loops>(loops: L) -> L::Output {
    loops.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Additions, products and comparisons.
    struct Mixed<'a>(&'a [f32]);

    impl Loops for Mixed<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run(self) -> Vec<u32> {
            self.0.iter().map(|&x| if x > -3.0 { x * x + 0.1 } else { x / 3.0 }.to_bits()).collect()
        }
    }

    #[test]
    fn the_best_is_the_first_and_the_portable_the_last() {
        let all = Isa::all();
        assert_eq!((all[0], all[all.len() - 1].name()), (Isa::best(), "portable"));
    }

    /// Tests that go through [`Isa::all`] pass over the others in silence.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn instruction_sets_that_this_cpu_lacks_are_reported() {
        let present: Vec<&str> = Isa::all().into_iter().map(Isa::name).collect();
        for missing in ["avx2", "avx512"].into_iter().filter(|name| !present.contains(name)) {
            let reason = format!("kernels for {missing} in all crates");
            megabatch_test_support::skip(megabatch_test_support::Requirement::Instructions, &reason);
        }
        assert!(present.len() <= 3, "a new instruction set has no row here: {present:?}");
    }

    #[test]
    fn the_width_of_vectors_changes_no_bit() {
        let x: Vec<f32> = (0..1000).map(|k| k as f32 * -0.0917).collect();
        let expected = Mixed(&x).run();
        assert!(Isa::all().into_iter().all(|isa| isa.run(Mixed(&x)) == expected));
    }
}
