//! Alignment through the public interface: what a sample sees, and that it sees nothing that had
//! not closed or lies beyond a hole.

mod instruments;
mod made_up;
mod proof;
mod samples;
mod segments;
mod weekends;
