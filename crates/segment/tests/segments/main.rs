//! Graphs in compressed form, and operations on segments beside PyTorch.

mod graphs;
mod torch;
