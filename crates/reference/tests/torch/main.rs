//! Agreement with what PyTorch and PyTorch Geometric computed in double precision: outputs, states,
//! attention weights and gradients. The fixtures lie with the tests of the engines, which are
//! compared with them as well.

mod fixture;
mod graphs;
mod losses;
mod lstms;
mod models;
