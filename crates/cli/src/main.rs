//! The `megabatch` program: [`megabatch::run`] with the process's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(megabatch::run(std::env::args_os()))
}
