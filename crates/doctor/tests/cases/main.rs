//! Cases from the field, each a made-up machine: what is said about it, and the commands that are
//! given.
#![cfg(target_os = "linux")]

mod environment;
mod machine;
mod patient;
mod script;
