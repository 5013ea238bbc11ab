#![forbid(unsafe_code)]

//! Graph attention against PyTorch Geometric, against finite differences, and its fast form against
//! its plain one.

mod gradients;
mod made_up;
mod parity;
