//! The plain form: every window whole, in plain loops. It is the oracle of the CPU engine.

pub(crate) mod lstm;
pub(crate) mod matmul;
pub(crate) mod pass;
