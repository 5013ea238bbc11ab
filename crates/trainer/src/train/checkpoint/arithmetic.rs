use std::env::consts::ARCH;
use std::fmt;

use megabatch_amp::Precision;
use megabatch_gpu_core::isa::Isa;
use megabatch_nn_cpu::instructions;
use serde::{Deserialize, Serialize};

/// Arithmetic of a run. Another machine rounds sums differently, and changes nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arithmetic {
    /// Kind of CPU and vector instructions, such as `x86_64 avx512`; for a run in bf16 also those
    /// that multiply its numbers, such as `x86_64 avx512 amx-bf16`.
    pub instruction_set: String,
}

impl Arithmetic {
    /// Arithmetic of a run in `precision` on this machine.
    pub fn here(precision: Precision) -> Self {
        let names = [Some(ARCH), Some(Isa::best().name()), instructions(precision)];
        Arithmetic { instruction_set: names.into_iter().flatten().collect::<Vec<_>>().join(" ") }
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.instruction_set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_in_bf16_name_the_instructions_that_multiply_it() {
        let [fp32, bf16, fp16] = Precision::ALL.map(|precision| Arithmetic::here(precision).instruction_set);
        assert_eq!(fp16, fp32);
        let named = instructions(Precision::Bf16).map_or(String::new(), |name| format!(" {name}"));
        assert_eq!(bf16, fp32 + &named);
    }
}
