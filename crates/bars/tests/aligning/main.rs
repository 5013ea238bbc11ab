//! Alignment through the public interface: what a sample sees, and that it sees nothing that had
//! not closed or lies beyond a hole.

mod all_at_once;
mod drawn;
mod functions;
mod instruments;
mod proof;
mod samples;
mod segments;
mod weekends;
#[path = "../whole/mod.rs"]
mod whole;
