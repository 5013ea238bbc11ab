#![forbid(unsafe_code)]

use std::env::consts::ARCH;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cpu::form::Form;
use crate::cpu::kernel::Isa;

/// Arithmetic of a run. Another form or another machine changes how sums are rounded, and nothing
/// else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arithmetic {
    /// The model's form.
    pub form: Form,
    /// Kind of CPU and vector instructions, such as `x86_64 avx512`.
    pub instruction_set: String,
}

impl Arithmetic {
    /// Arithmetic of a run of `form` on this machine.
    pub fn here(form: Form) -> Self {
        Arithmetic { form, instruction_set: format!("{ARCH} {}", Isa::best().name()) }
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.form {
            Form::Plain => "plain",
            Form::Fast => "fast",
        };
        write!(f, "training.form {form} on {}", self.instruction_set)
    }
}
