//! Cases from the field, each a made-up machine: its findings, and their commands.
#![cfg(target_os = "linux")]

mod environment;
mod machine;
mod patient;
