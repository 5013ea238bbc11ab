//! Files as vendors and other programs write them, made up here: what is read, and what is refused.

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod written;
